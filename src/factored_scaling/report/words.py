"""The report in sentences: numbers as people say them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Score
from factored_scaling.model.posterior import REQUIRED_PROBABILITY
from factored_scaling.model.recommend import ALTERNATIVES, CurveReport, Recommendation, evenly
from factored_scaling.model.summary import ModelSummary
from factored_scaling.report.style import funded_labels

_MEANING = {
    "top": "everything to the steepest curve",
    "top-half": "the steeper half of the curves, by their slopes",
    "all": "every curve, by its slope",
    "greedy": "everything to the factor that scores lowest",
    "cubed-failure": "by the third power of each factor's failure rate",
    "remix": "by the weights that Re-Mix learned",
}


def percent(value: float, digits: int = 0) -> str:
    """0.614 as 61%."""
    return f"{100 * value + 0.0:.{digits}f}%".replace("-0%", "0%").replace("-", "−")


def plain(name: str) -> str:
    """A factor's name as written by its owner, with spaces where they could not be written."""
    return name.replace("_", " ")


def spoken(spec: StudySpec, sentence: str) -> str:
    """A sentence with the names of combinations and factors as the page writes them."""
    for combination in spec.combinations():
        sentence = sentence.replace(combination.label, label_words(combination.factors))
    for name in spec.names:
        sentence = sentence.replace(name, plain(name))
    return sentence


def counted_factors(spec: StudySpec) -> str:
    """'1 factor', '5 factors'."""
    return f"{len(spec.names)} {'factor' if len(spec.names) == 1 else 'factors'}"


def demo_words(demos: Mapping[str, int]) -> str:
    """'camera pose 50, distractor 50'."""
    return ", ".join(f"{plain(name)} {count}" for name, count in demos.items() if count) or "–"


def label_words(factors: Sequence[str]) -> str:
    return " + ".join(plain(name) for name in factors)


def gain_points(now: float, later: float, digits: int | None = None) -> str:
    """A difference of scores in points of percent: '+9', or '+0.7' where whole points would hide it."""
    gain = 100 * (later - now)
    places = digits if digits is not None else 0 if abs(gain) >= 2 else 1
    return f"{gain:+.{places}f}".replace("-", "−") if round(gain, places) else "±0"


def gain_words(now: float, later: float) -> str:
    """'61.2% to 70.4%, +9 points'; no arrow, which some fonts lack."""
    if now == later:
        return f"{percent(now, 1)}, flat"
    return f"{percent(now, 1)} to {percent(later, 1)}, {gain_points(now, later)} points"


def listed(items: Sequence[str]) -> str:
    """a, b and c."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def meaning(recommendation: Recommendation) -> str:
    """What a strategy does, in half a sentence."""
    if recommendation.strategy == "auto":
        summary = recommendation.summary
        equal = summary is not None and summary.is_equal
        return f"split {evenly(recommendation.allocation)}" if equal else "the largest predicted success"
    curved = recommendation.fit == "power-law" and recommendation.strategy in ("top", "top-half", "all")
    if curved and not any(curve.slope > 0 for curve in recommendation.curves):
        return f"no curve rises: split {evenly(recommendation.allocation)}"
    if recommendation.strategy == "equal":
        return f"split {evenly(recommendation.allocation)}"
    return _MEANING.get(recommendation.strategy, "")


def strategy_words(recommendation: Recommendation) -> str:
    """What the headline's strategy does and, where there is a response model, how certain it is."""
    text = f"{recommendation.budget} in all: {meaning(recommendation)}."
    said = recommendation.summary
    if said is None:
        return text
    likely = max(said.curves, key=lambda curve: curve.best)
    return (
        f"{text} Best single factor: {plain(likely.factor)}, with a probability of {percent(likely.best)}. "
        f"Expected regret of acting now: {100 * said.regret:.1f} points."
    )


def allocation_words(spec: StudySpec, recommendation: Recommendation) -> str:
    """'Collect 50 camera pose and 50 distractor demos'."""
    given = [(plain(name), amount) for name, amount in recommendation.allocation.items() if amount]
    if not given:
        return "Collect nothing"
    if len(given) == len(spec.names) > 2 and len({amount for _, amount in given}) == 1:
        return f"Collect {given[0][1]} demos of each of the {len(given)} factors"
    noun = "demo" if given[-1][1] == 1 else "demos"
    return f"Collect {listed([f'{amount} {name}' for name, amount in given])} {noun}"


def answer(spec: StudySpec, recommendation: Recommendation) -> tuple[str, str]:
    """The whole report in a line: what to do, and why."""
    headline = f"{allocation_words(spec, recommendation)}."
    if recommendation.summary is not None:
        return headline, _expected_words(recommendation.summary)
    if recommendation.strategy == "equal":
        even = "" if evenly(recommendation.allocation) == "evenly" else " as far as possible"
        why = "" if recommendation.curves else ": there are no curves yet"
        return headline, f"An equal share for every factor{even}{why}."
    if recommendation.strategy == "greedy":
        return headline, "The policy trained on everything scores lowest there."
    if recommendation.strategy == "cubed-failure":
        return headline, "The shares follow the third power of how often the policy trained on everything fails there."
    if recommendation.strategy == "remix":
        return headline, "The shares are the weights that Re-Mix learned."
    best = _best_funded(spec, recommendation)
    if best is None or best.predicted <= best.now:
        return headline, "No curve rises, so the curves do not rank the factors."
    gain = (
        f"{gain_points(best.now, best.predicted)} points, from {percent(best.now, 1)} to {percent(best.predicted, 1)}"
    )
    factors = best.curve.combination.factors
    if len(funded_labels(spec, recommendation)) == 1:
        given = {name for name, amount in recommendation.allocation.items() if amount}
        whose = f"The curve of {label_words(factors)}"
        if given == set(factors):
            whose = "Their curve" if len(factors) > 1 else "Its curve"
        return headline, f"{whose} predicts {gain}."
    return headline, (
        f"The steepest of their curves, {label_words(factors)}, predicts {gain}, for all {recommendation.budget}."
    )


def _expected_words(said: ModelSummary) -> str:
    """Predicted success of the recommended allocation and of its alternatives."""
    others = [
        f"{ALTERNATIVES[name]}: {percent(estimate.mean, said.digits)}"
        for name, (demos, estimate) in said.alternatives.items()
        if name != "best" and demos != said.allocation
    ]
    predicted = said.predicted
    interval = f"({100 * predicted.low:.0f}–{100 * predicted.high:.0f})"
    text = f"Predicted success: {percent(predicted.mean, said.digits)} {interval}, from {percent(said.now.mean)} now"
    text = f"{'; '.join([text, *others])}."
    if said.is_equal:
        demos, best = said.alternatives["best"]
        return (
            f"{text} Recommending an equal split: the best alternative ({demo_words(demos)}, "
            f"{percent(best.mean, said.digits)}) has only a {said.probability} chance of matching it "
            f"({percent(REQUIRED_PROBABILITY)} required)."
        )
    if said.allocation == said.alternatives["equal"][0]:
        return text
    return f"{text} {said.probability} likely to match or beat an equal split."


def _best_funded(spec: StudySpec, recommendation: Recommendation) -> CurveReport | None:
    labels = funded_labels(spec, recommendation)
    for report in recommendation.curves:
        if labels and report.curve.combination.label == labels[0]:
            return report
    return None


def curve_words(report: CurveReport, budget: int) -> str:
    """A curve for those who cannot see it."""
    curve = report.curve
    measured = listed([f"{percent(s)} at {n}" for n, s in zip(curve.points.n, curve.points.score, strict=True)])
    return (
        f"Scaling curve of {label_words(curve.combination.factors)}: measured {measured} demos; "
        f"the fit says {percent(report.now, 1)} now and {percent(report.predicted, 1)} with {budget} more."
    )


def back_test_words(report: CurveReport) -> str:
    """What the curve would have said of its own last point."""
    test = report.diagnosis.back_test
    if test is None:
        return "Too few sizes for a back-test."
    return (
        f"Back-test: from the smaller sizes it predicts {percent(test.predicted, 1)} at {test.n} demos; "
        f"measured {percent(test.measured, 1)} ({gain_points(test.measured, test.predicted, 1)} points)."
    )


def score_words(score: Score) -> str:
    """'61.3% (57.3–65.1)', or the mean alone where the trials were not counted."""
    if not score.trials:
        return percent(score.mean, 1)
    return f"{percent(score.mean, 1)} ({100 * score.interval.low:.1f}–{100 * score.interval.high:.1f})"
