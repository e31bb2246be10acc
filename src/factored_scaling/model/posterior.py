"""The decision model: one Bayesian surface behind every trial of every policy, and what to collect given it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from factored_scaling.core.allocate import Spending, spend
from factored_scaling.core.baselines import equal_tiers
from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import NotEnoughData
from factored_scaling.model.allocate import spend_well
from factored_scaling.model.likelihood import Observations, Posterior, observe
from factored_scaling.model.response import (
    NOISE_COMMON,
    NOISE_OWN,
    PRIORS,
    Floats,
    Kinds,
    Parameters,
    Prior,
    bend,
    draw_kinds,
    forward,
    size_of,
)
from factored_scaling.model.sampler import Effort, sample

EFFORT = Effort()
# An order other than Equal must be no worse than Equal with this probability: a wrong one is worse than none.
SURE = 0.6
_ROUNDING = 1e-9  # of success
_CHUNK = 1024  # cells (rows × N) at once, to stay in the processor's cache


@dataclass(frozen=True, slots=True)
class Choice:
    """What to order: `most`, which is expected to give most, or Equal where that is not surely enough better."""

    spending: Spending
    most: Spending
    sure: float  # probability that `most` is no worse than Equal

    @property
    def spread(self) -> bool:
        """The budget is spread evenly for want of an order that is sure enough."""
        return self.sure < SURE

    @property
    def untaken(self) -> dict[str, dict[str, int]]:
        """The order that is expected to give most, by the name that reports give it, where it was not taken."""
        return {"most": self.most.demos} if self.spread else {}


@dataclass(frozen=True)
class Surface:
    """Draws from the posterior of the success surface of one study.

    `demos` are always demonstrations per factor in declared order, any numbers, one row per training set.
    """

    spec: StudySpec
    observations: Observations
    parameters: Parameters
    kinds: Kinds
    raw: Floats

    @property
    def draws(self) -> int:
        return int(self.raw.shape[1])

    @property
    def noise_common(self) -> Floats:
        """Standard deviation over training runs of all trials of a policy together, on the scale of arcsin √p."""
        return np.asarray(np.exp(self.parameters.links[NOISE_COMMON]))

    @property
    def noise_own(self) -> Floats:
        """The same of each factor's trials on their own."""
        return np.asarray(np.exp(self.parameters.links[NOISE_OWN]))

    @cached_property
    def now(self) -> Floats:
        """Demonstrations at hand, per factor."""
        return np.array(list(self.spec.sizes.values()), dtype=float)

    def by_factor(self, demos: Floats) -> Floats:
        """Success on each factor's trials: rows × N × draws."""
        seen = self.observations
        rows = np.atleast_2d(demos) / seen.unit
        size = max(1, _CHUNK // rows.shape[1])
        parts = [
            forward(self.parameters, self.kinds, rows[start : start + size], seen.now).success
            for start in range(0, len(rows), size)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def score(self, demos: Floats) -> Floats:
        """Success over the target distribution: rows × draws.

        The mean over factors' trials; where every trial varied several factors at once, the mean over such trials.
        """
        seen = self.observations
        if seen.cells.count or not len(seen.joint):
            return np.asarray(self.by_factor(demos).mean(1))
        state = forward(self.parameters, self.kinds, np.atleast_2d(demos) / seen.unit, seen.now)
        skilled = 1 - bend(state.hazard, self.kinds.sharpness)[0]
        sets = np.unique(seen.joint, axis=0)
        robust = np.exp(np.einsum("rnd,sn->rsd", np.log(state.robust), sets)).mean(1)
        return np.asarray(skilled * robust)

    def choose(self, budget: float) -> Choice:
        """The order with the largest expected success if it is sure enough to be no worse than Equal, else Equal."""
        most, equal = spend_well(self.spec.factors, self.worth, budget), self.equal(budget)
        sure = no_worse(*self.score(self.now + np.array([list(order.demos.values()) for order in (most, equal)])))
        return Choice(most if sure >= SURE else equal, most, sure)

    def allocate(self, budget: float) -> Spending:
        """What `choose` orders."""
        return self.choose(budget).spending

    def equal(self, budget: float) -> Spending:
        """The same for every factor, as far as caps and minimums allow."""
        return spend(self.spec.factors, equal_tiers(self.spec), budget)

    def orders(self, budget: float, more: Sequence[Mapping[str, int]] = ()) -> Floats:
        """Orders among which every draw finds one that is nearly its best: `more` first, then orders that are best for
        some of the draws, then everything to one factor, to two, and to all."""
        factors = self.spec.factors
        groups = np.array_split(np.arange(self.draws), min(self.draws, 16))
        found = [*more, *(spend_well(factors, self.only(group).worth, budget, parts=8).demos for group in groups)]
        unit = budget / np.array([factor.cost for factor in factors])
        plain = np.floor(_shares(len(factors)) * unit)
        caps = np.array([math.inf if factor.cap is None else factor.cap for factor in factors])
        least = np.array([factor.minimum for factor in factors])
        allowed = (plain <= caps).all(1) & (plain >= least).all(1)
        given = np.array([[float(order[factor.name]) for factor in factors] for order in found])
        return np.concatenate([given, plain[allowed]])

    def worth(self, orders: Floats) -> Floats:
        """Expected success after orders (rows × N) on top of what is at hand."""
        return np.asarray(self.score(self.now + orders).mean(1, dtype=float))

    def only(self, chosen: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Surface:
        """The same with some of the draws."""
        raw, kinds = self.raw[:, chosen], self.kinds[chosen]
        return Surface(self.spec, self.observations, Parameters.of(raw, kinds), kinds, raw)


def fit_surface(
    spec: StudySpec,
    results: Results,
    *,
    proxy: Results | None = None,
    seed: int = 0,
    effort: Effort = EFFORT,
    priors: Sequence[tuple[float, Prior]] = PRIORS,
) -> Surface:
    """Draws from the posterior given every score; `proxy` are stand-in scores, believed as far as they agree."""
    if not results.rows and (proxy is None or not proxy.rows):
        raise NotEnoughData(
            "the surface needs scores of at least one policy", hint="measure the one trained on everything"
        )
    seen = observe(spec, results, proxy)
    rng = np.random.default_rng(seed)
    count = len(spec.names)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        kinds = draw_kinds(rng, effort.draws, count, priors)
        raw, kinds = sample(Posterior(seen), kinds, size_of(count), rng, effort)
    return Surface(spec, seen, Parameters.of(raw, kinds), kinds, raw)


def no_worse(scores: Floats, others: Floats) -> float:
    """Probability that one order gives no less than another, from what both give in every draw."""
    return float(np.mean(scores >= others - _ROUNDING))


def _shares(count: int) -> Floats:
    """Everything to one factor, halves to each two (of few), the same to all."""
    one = np.eye(count)
    first, second = np.triu_indices(count if count <= 12 else 0, 1)
    return np.concatenate([one, (one[first] + one[second]) / 2, np.full((1, count), 1 / count)])
