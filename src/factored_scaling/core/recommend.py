"""From measured results to a collection order: the one function most users call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from factored_scaling.core.allocate import check_budget, curve_tiers, included, mean_cost, ranked, spend
from factored_scaling.core.baselines import BASELINES, cubed_failure_tiers, equal_tiers, greedy_tiers, remix_tiers
from factored_scaling.core.curves import Curve, fit_power_law, refit
from factored_scaling.core.diagnostics import Diagnosis, diagnose
from factored_scaling.core.results import Results, curve_points
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import NotEnoughData, UnknownName

STRATEGIES = ("top", "top-half", "all", "auto", *BASELINES)
FITS = ("power-law",)
# `auto` takes Top when the best combination stands out with at least this probability, else All.
STANDS_OUT = 0.8


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
    # what `auto` chose; the same as `strategy` otherwise
    chosen: str
    # the part of the budget that caps or costs left unspent
    left: float = 0.0

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
        if self.chosen != self.strategy:
            data["chosen"] = self.chosen
            data["best"] = [report.best for report in self.curves]
        if self.left:
            data["left"] = self.left
        return data


def fit_curves(spec: StudySpec, results: Results) -> tuple[tuple[Curve, ...], tuple[str, ...]]:
    """The power-law curve of every combination, in declared order, and warnings."""
    every, warnings = curve_points(spec, results)
    try:
        curves = tuple(fit_power_law(points) for points in every)
    except NotEnoughData as error:
        if spec.construction != "screen":
            raise
        hint = "fit the surface instead of curves: --fit surface"
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
    fit: str = "power-law",
    *,
    weights: Mapping[str, float] | None = None,
    half_up: bool = False,
    seed: int = 0,
) -> Recommendation:
    """Split `budget` demonstrations over the factors.

    `top`, `top-half` and `all` follow the fitted curves; `auto` chooses between `top` and `all` by how surely the best
    combination stands out; `equal`, `greedy`, `cubed-failure` and `remix` (with its `weights`) are the baselines. With
    costs, the budget counts cost units. `half_up` makes `top-half` round up, as the paper's algorithm box does.
    """
    budget = check_budget(budget)
    if strategy not in STRATEGIES:
        raise UnknownStrategy(str(strategy), STRATEGIES, where="strategy")
    if fit not in FITS:
        raise UnknownFit(str(fit), FITS, where="fit")
    baseline = strategy in BASELINES
    warnings: tuple[str, ...] = ()
    try:
        curves, warnings = fit_curves(spec, results)
        reports = report_curves(spec, curves, budget, seed)
    except NotEnoughData as error:
        if not baseline:
            raise
        reports = ()
        if results.rows:
            warnings = (f"no curves: {error}",)
    chosen = strategy
    if strategy == "equal":
        tiers = equal_tiers(spec)
    elif strategy == "greedy":
        tiers = greedy_tiers(spec, results)
    elif strategy == "cubed-failure":
        tiers = cubed_failure_tiers(spec, results)
    elif strategy == "remix":
        tiers = remix_tiers(spec, weights)
    else:
        gains = [report.curve.slope(budget / cost) / cost for report, cost in _with_costs(spec, reports)]
        if strategy == "auto":
            chosen = "top" if reports[ranked(gains)[0]].best >= STANDS_OUT else "all"
        if len(reports) == 1 and len(spec.factors) > 1:
            text = "all factors share one curve, which cannot tell them apart; construction one gives each its own"
            warnings = (*warnings, text)
        picked = included(gains, chosen, half_up)
        tiers = curve_tiers(spec, gains, picked)
        if not any(gains[index] > 0 for index in picked):
            tiers = equal_tiers(spec)
            warnings = (
                *warnings,
                "no curve rises, so nothing can be told from them; the budget is spread equally",
            )
    spending = spend(spec.factors, tiers, budget)
    if spending.left > 1e-9:
        text = f"{spending.left:g} of the budget is left unspent: every factor is at its cap or costs more than that"
        warnings = (*warnings, text)
    return Recommendation(budget, strategy, fit, reports, spending.demos, warnings, chosen, spending.left)


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


def _with_costs(spec: StudySpec, reports: tuple[CurveReport, ...]) -> list[tuple[CurveReport, float]]:
    return [(report, mean_cost(spec, report.curve.combination)) for report in reports]
