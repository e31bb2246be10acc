"""From measured results to an allocation: the one function most users call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from factored_scaling.core.allocation import check_budget, curve_tiers, included, mean_cost, ranked, spend
from factored_scaling.core.baselines import BASELINES, equal_tiers
from factored_scaling.core.checks import LARGEST_SEED, expect, named, whole
from factored_scaling.core.curves import Curve, Floats, Refits, fit_power_law, refit
from factored_scaling.core.diagnostics import Diagnosis, diagnose
from factored_scaling.core.results import Results, curve_points, mixed_trials
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import NotEnoughData, UnknownName
from factored_scaling.model.estimate import Estimate
from factored_scaling.model.identifiability import identifiability_warnings
from factored_scaling.model.posterior import Choice, Posterior, fit_posterior
from factored_scaling.model.strategies import Strategy, StrategyInput, load_strategy, tiers_of
from factored_scaling.model.summary import ModelSummary, combination_gains, summarize_posterior
from factored_scaling.model.text import counted, prediction_sentence

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STRATEGIES = ("auto", "top", "top-half", "all", *BASELINES)
RESPONSE_MODEL, POWER_LAW = "response-model", "power-law"
FITS = (RESPONSE_MODEL, POWER_LAW)
# With power-law curves `auto` takes Top when the best combination stands out with this probability, else All.
STANDS_OUT = 0.8


@dataclass(frozen=True, slots=True)
class CurveReport:
    """One combination's curve as `fsc recommend --json` prints it."""

    curve: Curve
    now: float
    predicted: float
    slope: float
    # P(best combination) over refits of all curves
    best: float
    diagnosis: Diagnosis
    # refits of all curves together, and this curve's place among them
    refits: Refits = field(compare=False, repr=False)
    place: int

    def band(self, sizes: Floats) -> tuple[Floats, Floats]:
        """Lower and upper edge of 95% of the refits with `sizes` demonstrations of the combination's own."""
        return self.refits.band(self.place, sizes)

    def to_mapping(self) -> dict[str, Any]:
        combination = self.curve.combination
        return {
            "combination": list(combination.factors),
            "size": combination.size,
            "base": combination.base,
            "a": self.curve.a,
            "b": self.curve.b,
            "now": self.now,
            "predicted": self.predicted,
            "slope": self.slope,
        }


@dataclass(frozen=True)
class Recommendation:
    """How many demonstrations of each factor to collect next, with predictions and warnings."""

    budget: int
    strategy: str
    fit: str
    curves: tuple[CurveReport, ...] = field(repr=False)
    allocation: dict[str, int]
    warnings: tuple[str, ...]
    # the part of the budget that caps or costs left unspent
    left: float = 0.0
    # predictions of the response model for this allocation and its alternatives; None with `fit="power-law"`
    summary: ModelSummary | None = field(default=None, repr=False)
    # the rule that `auto` chose on power-law curves
    chosen: str | None = None

    @property
    def sentence(self) -> str:
        """What to collect and its predicted success, as text."""
        return self.say("Collect")

    def say(self, verb: str) -> str:
        """The sentence with another verb, for demonstrations that exist already."""
        action = f"{verb} {counted(self.allocation)}."
        return action if self.summary is None else f"{action} {prediction_sentence(self.summary)}"

    @property
    def prediction(self) -> Estimate:
        """Predicted success after collecting the allocation, with `.mean` and `.interval(level)`."""
        return self._modelled.predicted

    @property
    def regret(self) -> float:
        """Expected regret: how much more success the best allocation would give if the response were known."""
        return self._modelled.regret

    @property
    def probability_at_least_equal(self) -> float:
        """Probability that the allocation matches or beats an equal split; 1 where it is one."""
        return self._modelled.probability_at_least_equal

    def versus(self, name: str) -> Estimate:
        """Posterior of this allocation's success minus that of an alternative: "equal", "top" or "best"."""
        differences = self._modelled.differences
        if named(name) not in differences:
            raise UnknownName(named(name), differences, kind="alternative")
        return differences[name]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the demonstrations to collect per factor as bars, on `ax` or in a new figure; returns the Axes."""
        from factored_scaling.report.notebook import plot_recommendation

        return plot_recommendation(self, ax)

    def _repr_html_(self) -> str:
        from factored_scaling.report.notebook import recommendation_html

        return recommendation_html(self)

    @property
    def _modelled(self) -> ModelSummary:
        if self.summary is None:
            hint = f'fit="{RESPONSE_MODEL}" gives one'
            raise NotEnoughData(f"a {POWER_LAW} recommendation has no posterior to predict from", hint=hint)
        return self.summary

    def to_mapping(self) -> dict[str, Any]:
        """The object that `fsc recommend --json` prints."""
        data: dict[str, Any] = {
            "budget": self.budget,
            "strategy": self.strategy,
            "fit": self.fit,
            "curves": [report.to_mapping() for report in self.curves],
            "allocation": dict(self.allocation),
            "warnings": list(self.warnings),
        }
        if self.chosen is not None:
            data["chosen"] = self.chosen
        if self.left:
            data["left"] = self.left
        if self.summary is not None:
            data["answer"] = self.sentence
            data["response_model"] = self.summary.to_mapping()
        return data


def fit_curves(spec: StudySpec, results: Results) -> tuple[tuple[Curve, ...], tuple[str, ...]]:
    """The power-law curve of every combination, in declared order, and warnings."""
    expect(spec, StudySpec, "spec")
    expect(results, Results, "results")
    every, warnings = curve_points(spec, results)
    try:
        curves = tuple(fit_power_law(points) for points in every)
    except NotEnoughData as error:
        if spec.construction != "screen":
            raise
        hint = f"the response model needs none: `fsc recommend --fit {RESPONSE_MODEL}`"
        raise NotEnoughData(
            f"construction screen has no curves to fit a power law to ({error.what})", hint=hint
        ) from None
    for points in every:
        if any(n + points.combination.base == 0 for n in points.n):
            text = f"the point n = 0 of {points.combination.label} has no training data and is left out of the fit"
            warnings = (*warnings, text)
    return curves, warnings


class FittedCurves:
    """The paper's curves of a study. Fits, refits and reports are computed on first use and cached.

    Every property raises NotEnoughData where a combination has too few scores.
    """

    def __init__(self, spec: StudySpec, results: Results, seed: int = 0) -> None:
        self.spec = spec
        self.results = results
        self.seed = seed
        self._reports: dict[int, tuple[CurveReport, ...]] = {}

    @property
    def curves(self) -> tuple[Curve, ...]:
        """One curve per combination, in declared order."""
        return self._fit[0]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about points that the curves leave out."""
        return self._fit[1]

    @cached_property
    def refits(self) -> Refits:
        """All curves refitted to scores redrawn within their uncertainty."""
        return refit(self.curves, seed=self.seed)

    def reports(self, budget: int) -> tuple[CurveReport, ...]:
        """Slope, prediction, diagnostics and P(best combination) of every curve for a budget."""
        if budget not in self._reports:
            self._reports[budget] = report_curves(self.spec, self.curves, budget, self.refits)
        return self._reports[budget]

    @cached_property
    def _fit(self) -> tuple[tuple[Curve, ...], tuple[str, ...]]:
        return fit_curves(self.spec, self.results)


def report_curves(
    spec: StudySpec, curves: tuple[Curve, ...], budget: int, refits: Refits | None = None
) -> tuple[CurveReport, ...]:
    """Slopes, predictions, diagnostics and P(best combination) of every curve. `refits` are made where not given."""
    refits = refits if refits is not None else refit(curves)
    costs = [mean_cost(spec, curve.combination) for curve in curves]
    reach = [budget / cost for cost in costs]
    gains = refits.slopes(reach) / costs
    # Replicates in which nothing rises name no winner; ties are shared.
    winners = (gains == gains.max(axis=1, keepdims=True)) & (gains.max(axis=1, keepdims=True) > 0)
    best = (winners / winners.sum(axis=1, keepdims=True).clip(min=1)).mean(axis=0)
    return tuple(
        CurveReport(
            curve,
            curve.at(curve.combination.size),
            curve.at(curve.combination.size + budget),
            curve.slope(budget),
            float(best[index]),
            diagnose(curve, budget),
            refits,
            index,
        )
        for index, curve in enumerate(curves)
    )


def recommend(
    spec: StudySpec,
    results: Results,
    budget: int,
    strategy: str | Strategy = "auto",
    fit: str | None = None,
    *,
    weights: Mapping[str, float] | None = None,
    proxy: Results | None = None,
    posterior: Posterior | None = None,
    curves: FittedCurves | None = None,
    seed: int = 0,
) -> Recommendation:
    """Split `budget` demonstrations over the factors.

    `auto` takes the allocation with the largest expected success under the response model if it is at least 60% likely
    to match or beat an equal split, else an equal split. With `fit="power-law"` it takes `top` if the best combination
    is the steepest with a probability of at least 80%, else `all`. `top`, `top-half` and `all` follow the paper's
    curves (`fit="power-law"`, their default) or the response model's gain of each combination. `equal`, `greedy`,
    `cubed-failure` and `remix` (with its `weights`) are the baselines. A strategy may also be a name that another
    package registered, `package.module:function`, or a function of a `StrategyInput`.

    With costs, the budget counts cost units. `proxy` holds proxy scores for the response model. `posterior` and
    `curves` reuse earlier fits to the same results.
    """
    expect(spec, StudySpec, "spec")
    expect(results, Results, "results")
    budget, seed = check_budget(budget), whole(seed, "seed", what="a seed", most=LARGEST_SEED)
    rule = None
    if callable(strategy):
        rule, strategy = strategy, getattr(strategy, "__name__", "function")
    elif named(strategy) not in STRATEGIES:
        rule = load_strategy(named(strategy), STRATEGIES)
    fit = fit if fit is not None else default_fit(strategy)
    if named(fit) not in FITS:
        raise UnknownName(named(fit), FITS, kind="fit", where="fit")
    if fit == POWER_LAW:
        posterior = None
    elif posterior is None:
        posterior = fit_posterior(spec, results, proxy=proxy, seed=seed)
    warnings: tuple[str, ...] = ()
    reports: tuple[CurveReport, ...] = ()
    chosen: str | None = None
    choice: Choice | None = None
    try:
        fitted = curves if curves is not None else FittedCurves(spec, results, seed)
        reports, warnings = fitted.reports(budget), fitted.warnings
    except NotEnoughData:
        if rule is None and strategy not in BASELINES and posterior is None:
            raise
    if posterior is not None and strategy == "auto":
        # which policies lie on no curve matters to the curves alone
        warnings = mixed_trials(spec, results) if reports else ()
        choice = posterior.choose(budget)
        spending, even = choice.spending, choice.is_equal
    else:
        gains = gains_of(spec, reports, budget) if posterior is None else combination_gains(posterior, budget)
        if strategy == "auto":
            chosen = "top" if reports[ranked(gains)[0]].best >= STANDS_OUT else "all"
        given = StrategyInput(spec, results, budget, posterior, weights, gains or None)
        tiers = tiers_of(rule or load_strategy(chosen or strategy), given)
        spending, warnings = spend(spec.factors, tiers, budget), (*warnings, *given.warnings)
        even = tiers == equal_tiers(spec)
    if even:
        warnings = (*warnings, *_unreached(spec, spending.demos, budget))
    if spending.left > 1e-9:
        text = f"{spending.left:g} of the budget is left unspent: every factor is at its cap or costs more than that"
        warnings = (*warnings, text)
    summary = None
    if posterior is not None:
        equal = spending.demos == posterior.equal(budget).demos
        warnings = (*identifiability_warnings(posterior, spending.demos, equal), *warnings)
        others = {} if choice is None else choice.rejected
        summary = summarize_posterior(posterior, budget, spending, others | _papers(spec, reports, budget), choice)
    return Recommendation(budget, strategy, fit, reports, spending.demos, warnings, spending.left, summary, chosen)


def default_fit(strategy: str) -> str:
    """The default `fit` of a strategy."""
    return RESPONSE_MODEL if strategy == "auto" else POWER_LAW


def gains_of(spec: StudySpec, reports: Sequence[CurveReport], budget: int) -> list[float]:
    """Slope per unit of cost of every curve: what the combinations are ranked by."""
    costs = [mean_cost(spec, report.curve.combination) for report in reports]
    return [report.curve.slope(budget / cost) / cost for report, cost in zip(reports, costs, strict=True)]


def _papers(spec: StudySpec, reports: tuple[CurveReport, ...], budget: int) -> dict[str, dict[str, int]]:
    """The allocation of the paper's Top, to compare with; nothing without curves."""
    if not reports:
        return {}
    gains = gains_of(spec, reports, budget)
    picked = included(gains, "top")
    rises = any(gains[index] > 0 for index in picked)
    tiers = curve_tiers(spec, gains, picked) if rises else equal_tiers(spec)
    return {"top": spend(spec.factors, tiers, budget).demos}


def _unreached(spec: StudySpec, allocation: Mapping[str, int], budget: int) -> tuple[str, ...]:
    """A warning where an equal split is too small for every factor, so that the order of declaration decides."""
    none = [factor.name for factor in spec.factors if not allocation[factor.name] and factor.cap != 0]
    if not none:
        return ()
    text = f"a budget of {budget} is too small for every factor: an equal split leaves none for {', '.join(none)}"
    return (f"{text}; the factors declared first come first",)


def evenly(allocation: Mapping[str, int]) -> str:
    """The adverb for an equal split, which caps, minimums, costs or a small budget can make uneven."""
    counts = allocation.values()
    return "evenly" if min(counts) > 0 and max(counts) - min(counts) <= 1 else "as evenly as possible"
