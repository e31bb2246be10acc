"""The compared rules: notation, policies to train, and decisions."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from factored_scaling.bench.measure import Regime, policy_rows, results
from factored_scaling.bench.regressors import REGRESSORS, check_installed
from factored_scaling.bench.regressors import decide as regressed
from factored_scaling.bench.worlds import World, factor_names
from factored_scaling.core.allocation import curve_tiers, included, spend
from factored_scaling.core.baselines import BASELINES, equal_tiers
from factored_scaling.core.curves import Curve
from factored_scaling.core.design import curve_sizes, demos_at, plan
from factored_scaling.core.results import Results
from factored_scaling.core.spec import CONSTRUCTIONS, StudySpec
from factored_scaling.errors import InvalidInput, UnknownName
from factored_scaling.model.estimate import Estimate
from factored_scaling.model.posterior import Posterior, fit_posterior
from factored_scaling.model.recommend import (
    FITS,
    RESPONSE_MODEL,
    STANDS_OUT,
    STRATEGIES,
    fit_curves,
    recommend,
    report_curves,
)

SWITCH = "switch"
BEST = "best"
DEFAULT = (
    "equal",
    "greedy",
    "cubed-failure",
    "power-law:top@group-unshared",
    "power-law:all@group-unshared",
    "power-law:top@group",
    "power-law:all@group",
    "power-law:switch@group",
    "response-model:auto@group",
    "response-model:auto@screen:4/5",
    "response-model:auto@screen:6/8",
    "response-model:auto@screen:10/13",
)
_WRITTEN = re.compile(r"([\w-]+):([\w-]+)@([\w-]+?)(-unshared)?(?::(\d+(?:/\d+)*))?")


@dataclass(frozen=True, slots=True)
class Method:
    """A rule and its policies. `policies[i]` is their number for the i-th number of factors; None: all."""

    name: str
    fit: str
    strategy: str
    construction: str
    # train the full-data policy once for every curve, as in the paper
    unshared: bool = False
    policies: tuple[int, ...] | None = None

    def training_sets(self, world: World, place: int) -> tuple[dict[str, int], ...]:
        """Demos per factor of every policy it trains, in order; `place` is the place of N in the list of them."""
        if self.strategy == "equal":
            return ()
        wanted = None if self.policies is None else self.policies[min(place, len(self.policies) - 1)]
        sets = _planned(self.construction, world.setting.sizes, world.setting.nominal, wanted)
        if self.strategy in BASELINES:
            return sets[:1]
        if wanted is not None and wanted > len(sets):
            what = f"{wanted} policies asked for, construction {self.construction} has {len(sets)}"
            raise InvalidInput(what, where=self.name)
        return sets


@dataclass(frozen=True)
class Decision:
    """A rule's allocation, and its predicted success, if it makes a prediction."""

    allocation: Mapping[str, int]
    policies: int
    # predicted success after collecting: level → (low, high)
    intervals: Mapping[float, tuple[float, float]] | None = None


def parse_method(text: str, policies: tuple[int, ...] | None = None) -> Method:
    """`equal`, `greedy`, `cubed-failure`, or FIT:STRATEGY@CONSTRUCTION[-unshared][:POLICIES].

    POLICIES is one number, or one for each number of factors: 6/8.
    """
    if text in BASELINES and text != "remix":
        return Method(text, "power-law", text, "group")
    match = _WRITTEN.fullmatch(text)
    if match is None:
        known = [name for name in BASELINES if name != "remix"]
        hint = f"write {', '.join(known)}, or FIT:STRATEGY@CONSTRUCTION[:POLICIES]"
        raise UnknownName(text, kind="method", hint=hint)
    fit, strategy, construction, unshared, own = match.groups()
    rules = (*STRATEGIES, SWITCH) if fit == "power-law" else (BEST,) if fit in REGRESSORS else STRATEGIES
    for value, names in ((fit, (*FITS, *REGRESSORS)), (strategy, rules), (construction, CONSTRUCTIONS)):
        if value not in names:
            raise UnknownName(text, kind="method", hint=f"{value!r} is not one of {', '.join(names)}")
    check_installed(fit, text)
    if unshared and (fit != "power-law" or construction == "pair" or own):
        raise UnknownName(text, kind="method", hint="-unshared goes with power-law on one or group, with all policies")
    counts = tuple(int(part) for part in own.split("/")) if own else None if unshared else policies
    return Method(text, fit, strategy, construction, bool(unshared), counts)


class Bench:
    """One world under one regime. Measurements and fits are shared between rules."""

    def __init__(self, world: World, regime: Regime, place: int) -> None:
        self.world = world
        self._regime = regime
        self._place = place
        self._results: dict[tuple[str, bool, int], Results] = {}
        self._curves: dict[tuple[str, bool, int], tuple[Curve, ...]] = {}
        self._posteriors: dict[tuple[str, bool, int], Posterior] = {}

    def decide(self, method: Method, budgets: Sequence[int]) -> list[Decision] | None:
        """The rule's allocation for every budget; None if it needs scores per factor and there are only means."""
        world, regime = self.world, self._regime
        if regime.mean_only and method.strategy in ("greedy", "cubed-failure"):
            return None
        spec = world.spec(method.construction)
        sets = method.training_sets(world, self._place)
        policies = len(spec.combinations()) * spec.points if method.unshared else len(sets)
        key = (method.construction, method.unshared, policies)
        if key not in self._results:
            self._results[key] = _unshared(spec, world, regime) if method.unshared else results(world, sets, regime)
        known = self._results[key]
        if method.fit == "power-law" and method.strategy in ("top", "top-half", "all", SWITCH):
            if key not in self._curves:
                self._curves[key] = fit_curves(spec, known)[0]
            curves = self._curves[key]
            return [Decision(_by_curves(spec, curves, method.strategy, budget), policies) for budget in budgets]
        if method.fit in REGRESSORS:
            return [Decision(regressed(method.fit, spec, known, budget), policies) for budget in budgets]
        if method.fit == RESPONSE_MODEL and method.strategy == "auto":
            if key not in self._posteriors:
                self._posteriors[key] = fit_posterior(spec, known)
            return [_by_model(self._posteriors[key], budget, policies) for budget in budgets]
        answers = [recommend(spec, known, budget, method.strategy, method.fit) for budget in budgets]
        return [Decision(answer.allocation, policies) for answer in answers]


def _by_curves(spec: StudySpec, curves: Sequence[Curve], strategy: str, budget: int) -> Mapping[str, int]:
    """The result of `recommend` for these strategies, without its refits; a test compares both.

    `switch` is what `recommend` calls `auto` on power-law curves: Top when the best stands out, else All.
    """
    gains = [curve.slope(budget) for curve in curves]
    if strategy == SWITCH:
        best = max(report.best for report in report_curves(spec, tuple(curves), budget))
        strategy = "top" if best >= STANDS_OUT else "all"
    chosen = included(gains, strategy)
    rises = any(gains[index] > 0 for index in chosen)
    return spend(spec.factors, curve_tiers(spec, gains, chosen) if rises else equal_tiers(spec), budget).demos


def _unshared(spec: StudySpec, world: World, regime: Regime) -> Results:
    """Rows with a separate full-data policy per curve, by combination and n to keep curves apart."""
    rows = []
    for index, combination in enumerate(spec.combinations()):
        for n in curve_sizes(combination.size, spec.points):
            seed, names = index if n == combination.size else 0, {"combination": combination.label, "n": n}
            rows += policy_rows(world, demos_at(spec, combination, n), regime, names, seed)
    return Results.from_rows(rows)


def _by_model(posterior: Posterior, budget: int, policies: int) -> Decision:
    """The result of `recommend` for `auto`, without its report; a test compares both."""
    allocation = posterior.allocate(budget).demos
    after = posterior.now + np.array([float(allocation[name]) for name in posterior.spec.names])
    now, then = posterior.score(np.stack([posterior.now, after]))
    return Decision(allocation, policies, Estimate.of(then, then - now).intervals)


@functools.lru_cache(maxsize=64)
def _planned(
    construction: str, sizes: tuple[int, ...], nominal: int, policies: int | None
) -> tuple[dict[str, int], ...]:
    named = dict(zip(factor_names(len(sizes)), sizes, strict=True))
    spec = StudySpec(named, nominal=nominal, construction=construction, policies=policies)
    return tuple(run.demos for run in plan(spec))
