"""Sentences and formatted numbers of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from factored_scaling.core.checks import listed
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Score
from factored_scaling.model.recommend import RESPONSE_MODEL, CurveReport, Recommendation, evenly
from factored_scaling.model.summary import Comparison
from factored_scaling.model.text import (
    choice_sentence,
    comparison_sentence,
    percent,
    points,
    prediction_sentence,
    regret_sentence,
    versus_equal_sentence,
)
from factored_scaling.report.style import funded_labels

_MEANING = {
    "top": "everything to the steepest curve",
    "top-half": "the steeper half of the curves, by their slopes",
    "all": "every curve, by its slope",
    "greedy": "everything to the factor that scores lowest",
    "cubed-failure": "by the third power of each factor's failure rate",
    "remix": "by the weights that Re-Mix learned",
}


def plain(name: str) -> str:
    """A factor's name with spaces instead of underscores."""
    return name.replace("_", " ")


def spoken(spec: StudySpec, sentence: str) -> str:
    """A sentence with the page's names of combinations and factors."""
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


def gain_words(now: float, later: float) -> str:
    """'61.2% to 70.4%, +9.2 points'; no arrow, which some fonts lack."""
    if now == later:
        return f"{percent(now)}, flat"
    return f"{percent(now)} to {percent(later)}, {points(later - now)} points"


def meaning(recommendation: Recommendation) -> str:
    """A short description of a strategy."""
    if recommendation.strategy == "auto":
        summary = recommendation.summary
        equal = summary is not None and summary.is_equal
        return f"split {evenly(recommendation.allocation)}" if equal else "the largest predicted success"
    if follows_curves(recommendation) and not any(curve.slope > 0 for curve in recommendation.curves):
        return f"no curve rises: split {evenly(recommendation.allocation)}"
    if recommendation.strategy == "equal":
        return f"split {evenly(recommendation.allocation)}"
    return _MEANING.get(recommendation.strategy, "")


def strategy_words(recommendation: Recommendation, compared: Comparison | None = None) -> str:
    """Description of the headline's strategy, whether the choice matters, and the response model's view.

    `compared` is the response model's view of an allocation that it did not choose.
    """
    text = f"Budget {recommendation.budget}: {meaning(recommendation)}. {decided_by(recommendation)}"
    summary = recommendation.summary
    if summary is None:
        return text if compared is None else f"{text} {comparison_sentence(compared)}"
    likely = max(summary.curves, key=lambda curve: curve.best)
    return (
        f"{text} {choice_sentence(summary)} Best single factor: {plain(likely.factor)}, with a probability of "
        f"{percent(likely.best, 0)}. {regret_sentence(summary)}"
    )


def follows_curves(recommendation: Recommendation) -> bool:
    """Whether the strategy follows the paper's curves."""
    return recommendation.fit != RESPONSE_MODEL and recommendation.strategy in ("auto", "top", "top-half", "all")


def decided_by(recommendation: Recommendation) -> str:
    """The model behind the numbers of a recommendation."""
    if recommendation.fit == RESPONSE_MODEL:
        return "Decided by the response model."
    if follows_curves(recommendation):
        return (
            "Decided by the paper's curves. Each curve is fitted alone, so their values of the current success differ."
        )
    return "Decided by this rule, which predicts no success."


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
    """The report's recommendation and its reason in one line."""
    headline = f"{allocation_words(spec, recommendation)}."
    if recommendation.summary is not None:
        summary = recommendation.summary
        return headline, f"{prediction_sentence(summary)} {versus_equal_sentence(summary, demo_words)}"
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
    gain = f"{points(best.predicted - best.now)} points, from {percent(best.now)} to {percent(best.predicted)}"
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


def _best_funded(spec: StudySpec, recommendation: Recommendation) -> CurveReport | None:
    labels = funded_labels(spec, recommendation)
    for report in recommendation.curves:
        if labels and report.curve.combination.label == labels[0]:
            return report
    return None


def curve_words(report: CurveReport, budget: int) -> str:
    """A text alternative for a curve."""
    curve = report.curve
    measured = listed([f"{percent(s)} at {n}" for n, s in zip(curve.points.n, curve.points.score, strict=True)])
    return (
        f"Scaling curve of {label_words(curve.combination.factors)}: measured {measured} demos; "
        f"the fit says {percent(report.now)} now and {percent(report.predicted)} with {budget} more."
    )


def back_test_words(report: CurveReport) -> str:
    """Backtest: the curve's prediction of its own last point."""
    test = report.diagnosis.back_test
    if test is None:
        return "Too few sizes for a back-test."
    return (
        f"Back-test: from the smaller sizes it predicts {percent(test.predicted)} at {test.n} demos; "
        f"measured {percent(test.measured)} ({points(test.predicted - test.measured)} points)."
    )


def score_words(score: Score) -> str:
    """'61.3% (57.3–65.1)', or the mean alone if the number of trials is unknown."""
    if not score.trials:
        return percent(score.mean)
    return f"{percent(score.mean)} ({100 * score.interval.low:.1f}–{100 * score.interval.high:.1f})"
