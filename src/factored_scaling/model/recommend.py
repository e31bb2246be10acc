"""From measured results to a collection order: the one function most users call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from factored_scaling.core.allocate import check_budget, curve_tiers, included, mean_cost, ranked, spend
from factored_scaling.core.baselines import BASELINES, cubed_failure_tiers, equal_tiers, greedy_tiers, remix_tiers
from factored_scaling.core.checks import named
from factored_scaling.core.curves import Curve, fit_power_law, refit
from factored_scaling.core.diagnostics import Diagnosis, diagnose
from factored_scaling.core.results import Results, curve_points
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import NotEnoughData, UnknownName
from factored_scaling.model.identifiability import doubts
from factored_scaling.model.posterior import Surface, fit_surface
from factored_scaling.model.summary import SurfaceReport, combination_gains, report_surface

STRATEGIES = ("auto", "top", "top-half", "all", *BASELINES)
FITS = ("surface", "power-law")
# With power-law curves `auto` takes Top when the best combination stands out with this probability, else All.
STANDS_OUT = 0.8
# The orders that the surface holds its own against, as people call them.
ALTERNATIVES = {"equal": "Equal", "most": "what is expected to give most", "top": "the paper's Top"}


class UnknownStrategy(UnknownName):
    """A strategy other than the known ones."""

    kind = "strategy"


class UnknownFit(UnknownName):
    """A fit other than the known ones."""

    kind = "fit"


@dataclass(frozen=True, slots=True)
class CurveReport:
    """One combination's curve as `fsc recommend --json` prints it."""

    curve: Curve
    now: float
    predicted: float
    slope: float
    # probability that this combination is the best buy, over refits of all curves
    best: float
    diagnosis: Diagnosis

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
    """How many demonstrations of each factor to collect next, and what that rests on."""

    budget: int
    strategy: str
    fit: str
    curves: tuple[CurveReport, ...]
    allocation: dict[str, int]
    warnings: tuple[str, ...]
    # the part of the budget that caps or costs left unspent
    left: float = 0.0
    # what the surface says of this allocation and of others; None with `--fit power-law`
    surface: SurfaceReport | None = None
    # what `auto` came to on power-law curves
    chosen: str | None = None

    @property
    def sentence(self) -> str:
        """What to do and what to expect of it, in plain words; every number in it stands in `to_mapping()` too."""
        return self.say("collect")

    def say(self, verb: str) -> str:
        """The sentence, for an order that is carried out otherwise than by collecting."""
        order = f"{verb} {counted(self.allocation)}"
        if self.surface is None:
            return order
        expected, digits = self.surface.predicted, self.surface.digits
        others = [
            self._other(name, demos, f"{100 * estimate.mean:.{digits}f}")
            for name, (demos, estimate) in self.surface.alternatives.items()
            if demos != self.allocation
        ]
        text = (
            f"{order}; expected {100 * expected.mean:.{digits}f}% ({100 * expected.low:.0f}–{100 * expected.high:.0f})"
        )
        return "; ".join([text, *others])

    def _other(self, name: str, demos: Mapping[str, int], mean: str) -> str:
        if name != "most" or self.surface is None:
            return f"{ALTERNATIVES[name]} would give {mean}"
        return f"{counted(demos)} would give {mean}, but is only {self.surface.surety} sure to be no worse"

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
        if self.surface is not None:
            data["answer"] = self.sentence
            data["surface"] = self.surface.to_mapping()
        return data


def fit_curves(spec: StudySpec, results: Results) -> tuple[tuple[Curve, ...], tuple[str, ...]]:
    """The power-law curve of every combination, in declared order, and warnings."""
    every, warnings = curve_points(spec, results)
    try:
        curves = tuple(fit_power_law(points) for points in every)
    except NotEnoughData as error:
        if spec.construction != "screen":
            raise
        hint = "the surface needs none: `fsc recommend --fit surface`"
        raise NotEnoughData(
            f"construction screen has no curves to fit a power law to ({error.what})", hint=hint
        ) from None
    for points in every:
        if any(n + points.combination.base == 0 for n in points.n):
            text = f"the point n = 0 of {points.combination.label} has no training data and is left out of the fit"
            warnings = (*warnings, text)
    return curves, warnings


def report_curves(spec: StudySpec, curves: tuple[Curve, ...], budget: int, seed: int = 0) -> tuple[CurveReport, ...]:
    """Slopes, predictions, diagnostics and the probability of being the best buy, for every curve."""
    costs = [mean_cost(spec, curve.combination) for curve in curves]
    reach = [budget / cost for cost in costs]
    gains = refit(curves, seed=seed).slopes(reach) / costs
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
        )
        for index, curve in enumerate(curves)
    )


def recommend(
    spec: StudySpec,
    results: Results,
    budget: int,
    strategy: str = "auto",
    fit: str | None = None,
    *,
    weights: Mapping[str, float] | None = None,
    half_up: bool = False,
    proxy: Results | None = None,
    surface: Surface | None = None,
    seed: int = 0,
) -> Recommendation:
    """Split `budget` demonstrations over the factors.

    `auto` spends where the surface expects most success, or evenly where that is not surely enough better; with
    `fit="power-law"` it chooses between `top` and `all` by how surely the best combination stands out. `top`,
    `top-half` and `all` follow the paper's curves (`fit="power-law"`, the default for them) or what the surface expects
    of each combination (`fit="surface"`). `equal`, `greedy`, `cubed-failure` and `remix` (with its `weights`) are the
    baselines. With costs, the budget counts cost units. `half_up` makes `top-half` round up, as the paper's algorithm
    box does. `proxy` are stand-in scores for the surface to weigh; `surface` is one that was fitted to these results
    before.
    """
    budget = check_budget(budget)
    if named(strategy) not in STRATEGIES:
        raise UnknownStrategy(named(strategy), STRATEGIES, where="strategy")
    fit = fit if fit is not None else "surface" if strategy == "auto" else "power-law"
    if named(fit) not in FITS:
        raise UnknownFit(named(fit), FITS, where="fit")
    if fit == "power-law":
        surface = None
    elif surface is None:
        surface = fit_surface(spec, results, proxy=proxy, seed=seed)
    warnings: tuple[str, ...] = ()
    reports: tuple[CurveReport, ...] = ()
    chosen: str | None = None
    others: dict[str, dict[str, int]] = {}
    try:
        curves, warnings = fit_curves(spec, results)
        reports = report_curves(spec, curves, budget, seed)
    except NotEnoughData:
        if strategy not in BASELINES and surface is None:
            raise
    if surface is not None and strategy == "auto":
        warnings = ()  # which policies lie on no curve matters to the curves alone
        choice = surface.choose(budget)
        spending, even = choice.spending, choice.spread
        others = choice.untaken
    else:
        gains = gains_of(spec, reports, budget) if surface is None else combination_gains(surface, budget)
        if strategy == "auto":
            chosen = "top" if reports[ranked(gains)[0]].best >= STANDS_OUT else "all"
        tiers, told = _tiers(spec, results, chosen or strategy, gains, weights, half_up)
        spending, warnings = spend(spec.factors, tiers, budget), (*warnings, *told)
        even = tiers == equal_tiers(spec)
    if even:
        warnings = (*warnings, *_unreached(spec, spending.demos, budget))
    if spending.left > 1e-9:
        text = f"{spending.left:g} of the budget is left unspent: every factor is at its cap or costs more than that"
        warnings = (*warnings, text)
    said = None
    if surface is not None:
        equal = spending.demos == surface.equal(budget).demos
        warnings = (*doubts(surface, spending.demos, equal), *warnings)
        said = report_surface(surface, budget, spending, others | _papers(spec, reports, budget))
    return Recommendation(budget, strategy, fit, reports, spending.demos, warnings, spending.left, said, chosen)


def gains_of(spec: StudySpec, reports: Sequence[CurveReport], budget: int) -> list[float]:
    """Slope per unit of cost of every curve: what the combinations are ranked by."""
    costs = [mean_cost(spec, report.curve.combination) for report in reports]
    return [report.curve.slope(budget / cost) / cost for report, cost in zip(reports, costs, strict=True)]


def _tiers(
    spec: StudySpec,
    results: Results,
    strategy: str,
    gains: Sequence[float],
    weights: Mapping[str, float] | None,
    half_up: bool,
) -> tuple[list[dict[str, float]], tuple[str, ...]]:
    """Weights per factor for the rules that spend in proportion, and warnings."""
    if strategy == "equal":
        return equal_tiers(spec), ()
    if strategy == "greedy":
        return greedy_tiers(spec, results), ()
    if strategy == "cubed-failure":
        return cubed_failure_tiers(spec, results), ()
    if strategy == "remix":
        return remix_tiers(spec, weights), ()
    warnings: tuple[str, ...] = ()
    if len(gains) == 1 and len(spec.factors) > 1:
        warnings = ("all factors share one curve, which cannot tell them apart; construction one gives each its own",)
    picked = included(gains, strategy, half_up)
    if any(gains[index] > 0 for index in picked):
        return curve_tiers(spec, gains, picked), warnings
    text = "no curve rises, so nothing can be told from them; the budget is spread equally"
    return equal_tiers(spec), (*warnings, text)


def _papers(spec: StudySpec, reports: tuple[CurveReport, ...], budget: int) -> dict[str, dict[str, int]]:
    """What the paper's Top would order, for the surface to say what it expects of that; nothing without curves."""
    if not reports:
        return {}
    gains = gains_of(spec, reports, budget)
    picked = included(gains, "top")
    rises = any(gains[index] > 0 for index in picked)
    tiers = curve_tiers(spec, gains, picked) if rises else equal_tiers(spec)
    return {"top": spend(spec.factors, tiers, budget).demos}


def _unreached(spec: StudySpec, order: Mapping[str, int], budget: int) -> tuple[str, ...]:
    """A warning where an even order is too small for every factor, so that the order of declaration decides."""
    none = [factor.name for factor in spec.factors if not order[factor.name] and factor.cap != 0]
    if not none:
        return ()
    text = f"a budget of {budget} does not reach every factor: spread evenly, it leaves none for {', '.join(none)}"
    return (f"{text}; of equal shares the factors declared first get theirs",)


def evenly(order: Mapping[str, int]) -> str:
    """How Equal is to be called: caps, minimums, costs and budgets below the number of factors make it uneven."""
    counts = order.values()
    return "evenly" if min(counts) > 0 and max(counts) - min(counts) <= 1 else "as evenly as can be"


def counted(demos: Mapping[str, int]) -> str:
    """'50 camera_pose, 50 distractor'."""
    return ", ".join(f"{count} {name}" for name, count in demos.items() if count) or "nothing"


def predicted_score(spec: StudySpec, reports: Sequence[CurveReport], allocation: Mapping[str, int]) -> float | None:
    """What the curves together say of an allocation: the score now plus every curve's own gain.

    Exact for an allocation to one combination, where it is that curve's prediction. Otherwise the gains are added,
    which the method does not claim and data of one factor that help another can break; None where curves overlap.
    """
    if not reports or spec.construction == "pair":
        return None
    spent = [sum(allocation[name] for name in report.curve.combination.factors) for report in reports]
    total = sum(spent)
    if total == 0:
        return None
    now = sum(count * report.now for count, report in zip(spent, reports, strict=True)) / total
    sizes = [report.curve.combination.size for report in reports]
    gain = sum(r.curve.at(size + count) - r.now for r, size, count in zip(reports, sizes, spent, strict=True))
    return min(1.0, max(0.0, now + gain))
