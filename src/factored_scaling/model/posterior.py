"""Posterior samples of the response model, their predictions, and the recommended allocation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from factored_scaling.core.allocation import Spending, check_budget, spend
from factored_scaling.core.baselines import equal_tiers
from factored_scaling.core.checks import LARGEST_SEED, expect, whole
from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput, NotEnoughData, UnknownFactor
from factored_scaling.model.allocate import optimize_allocation, optimize_allocations
from factored_scaling.model.estimate import Estimate
from factored_scaling.model.likelihood import LogLikelihood
from factored_scaling.model.observations import Observations, observe
from factored_scaling.model.prior import PRIORS, Floats, Prior, PriorMixture, draw_mixture
from factored_scaling.model.response import NOISE_COMMON, NOISE_OWN, Forward, Parameters, forward, saturate, size_of
from factored_scaling.model.sampler import SamplerSettings, sample

SAMPLER = SamplerSettings()
# An allocation other than an equal split must match or beat it with this probability.
REQUIRED_PROBABILITY = 0.6
_ROUNDING = 1e-9  # of success
# Bytes of an array that is allocated and freed once. GNU's C library then keeps freed blocks up to that size instead
# of returning them to the system.
_KEPT = 31 << 20
_CHUNK = 1024  # cells (rows × N) at once, to stay in the processor's cache


@dataclass(frozen=True, slots=True)
class Choice:
    """The recommended allocation: the best one, or an equal split where the best is not likely enough to match it."""

    spending: Spending
    best: Spending  # with the largest expected success
    probability: float  # that `best` matches or beats an equal split

    @property
    def is_equal(self) -> bool:
        """Whether an equal split is recommended because the best allocation is not likely enough to match it."""
        return self.probability < REQUIRED_PROBABILITY

    @property
    def rejected(self) -> dict[str, dict[str, int]]:
        """The best allocation under its name in reports, if an equal split is recommended instead; else empty."""
        return {"best": self.best.demos} if self.is_equal else {}


@dataclass(frozen=True)
class Posterior:
    """Samples from the posterior of the response model of one study.

    `demos` are demonstrations per factor in declared order, one row per training set; they need not be whole numbers.
    """

    spec: StudySpec
    observations: Observations = field(repr=False)
    parameters: Parameters = field(repr=False)
    mixture: PriorMixture = field(repr=False)
    raw: Floats = field(repr=False)

    @property
    def n_samples(self) -> int:
        """The number of samples."""
        return int(self.raw.shape[1])

    @property
    def noise_common(self) -> Floats:
        """Training noise that all trials of a policy share: standard deviation on the scale of arcsin √p."""
        return np.asarray(np.exp(self.parameters.links[NOISE_COMMON]))

    @property
    def noise_own(self) -> Floats:
        """Training noise of each factor's trials: standard deviation on the scale of arcsin √p."""
        return np.asarray(np.exp(self.parameters.links[NOISE_OWN]))

    @cached_property
    def now(self) -> Floats:
        """Current demonstrations per factor."""
        return np.array(list(self.spec.sizes.values()), dtype=float)

    def by_factor(self, demos: Floats) -> Floats:
        """Success on each factor's trials: rows × factors × samples.

        `demos` is rows × factors, or rows × factors × samples with separate training sets for each sample.
        """
        demos = self._rows(demos)
        size = max(1, _CHUNK // demos.shape[1])
        parts = [self._forward(demos[start : start + size]).success for start in range(0, len(demos), size)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def score(self, demos: Floats, by_factor: Floats | None = None) -> Floats:
        """Success over the target distribution: rows × samples.

        The mean over the factors' trials, or over trials of several factors if there are no others. `by_factor` is the
        success on each factor's trials, if it is already computed.
        """
        data = self.observations
        if data.cells.count or not len(data.joint):
            return np.asarray((self.by_factor(demos) if by_factor is None else by_factor).mean(1))
        state = self._forward(demos)
        skilled = 1 - saturate(state.hazard, self.mixture.sharpness)[0]
        sets = np.unique(data.joint, axis=0)
        robust = np.exp(np.einsum("rnd,sn->rsd", np.log(state.robust), sets)).mean(1)
        return np.asarray(skilled * robust)

    def _forward(self, demos: Floats) -> Forward:
        data = self.observations
        return forward(self.parameters, self.mixture, self._rows(demos) / data.unit, data.now, data.nominal)

    def _rows(self, demos: Floats) -> Floats:
        rows = np.atleast_2d(demos)
        if rows.ndim > 3 or rows.shape[1] != len(self.spec.names):
            what = f"expected rows of {len(self.spec.names)} numbers of demos, not an array of shape {rows.shape}"
            raise InvalidInput(what, where="demos", hint=f"one number each for {', '.join(self.spec.names)}")
        return rows

    def predict(self, demos: Mapping[str, int]) -> Estimate:
        """Success of a policy trained on `demos[factor]` demonstrations of every factor (and all nominal ones).

        The same numbers as `fsc recommend` and the report print for that training set.
        """
        for name in demos:
            if name not in self.spec.names:
                raise UnknownFactor(str(name), self.spec.names)
        for name in self.spec.names:
            if name not in demos:
                raise InvalidInput(f"no number of demos for {name}", where="demos", hint="name every factor")
        counts = np.array([whole(demos[name], f"demos.{name}") for name in self.spec.names], dtype=float)
        current, then = self.score(np.stack([self.now, counts]))
        return Estimate.of(then, None if np.array_equal(counts, self.now) else then - current)

    def choose(self, budget: float) -> Choice:
        """The best allocation if it is likely enough to match or beat an equal split, else an equal split."""
        budget = check_budget(budget)
        best, equal = optimize_allocation(self.spec.factors, self.worth, budget), self.equal(budget)
        extra = np.array([list(spending.demos.values()) for spending in (best, equal)])
        probability = probability_at_least(*self.score(self.now + extra))
        return Choice(best if probability >= REQUIRED_PROBABILITY else equal, best, probability)

    def allocate(self, budget: float) -> Spending:
        """The allocation that `choose` recommends."""
        return self.choose(budget).spending

    def equal(self, budget: float) -> Spending:
        """An equal split, as far as caps and minimums allow."""
        return spend(self.spec.factors, equal_tiers(self.spec), budget)

    def candidates(self, budget: float, more: Sequence[Mapping[str, int]] = ()) -> Floats:
        """Allocations (rows × factors) that include a nearly optimal one for every sample.

        First `more`, then the best allocations of groups of samples, then everything to one factor, to two, and to all.
        """
        factors = self.spec.factors
        groups = np.array_split(np.arange(self.n_samples), min(self.n_samples, 16))
        sizes = np.array([len(group) for group in groups])
        starts = np.cumsum(sizes) - sizes

        def worths(rows: Floats) -> Floats:
            """Expected success after each allocation (groups × rows × factors) by each group of samples."""
            demos = np.repeat(np.moveaxis(self.now + rows, 0, -1), sizes, axis=-1)
            return np.asarray(np.add.reduceat(self.score(demos), starts, axis=1) / sizes).T

        best = optimize_allocations(factors, worths, budget, len(groups), parts=8)
        unit = budget / np.array([factor.cost for factor in factors])
        plain = np.floor(_shares(len(factors)) * unit)
        caps = np.array([math.inf if factor.cap is None else factor.cap for factor in factors])
        least = np.array([factor.minimum for factor in factors])
        allowed = (plain <= caps).all(1) & (plain >= least).all(1)
        more_rows = np.array([[float(allocation[factor.name]) for factor in factors] for allocation in more])
        return np.concatenate([more_rows.reshape(-1, len(factors)), best, plain[allowed]])

    def worth(self, allocations: Floats) -> Floats:
        """Expected success after each allocation (rows × factors) on top of the current demonstrations."""
        return np.asarray(self.score(self.now + allocations).mean(1, dtype=float))


def fit_posterior(
    spec: StudySpec,
    results: Results,
    *,
    proxy: Results | None = None,
    seed: int = 0,
    sampler: SamplerSettings = SAMPLER,
    priors: Sequence[tuple[float, Prior]] = PRIORS,
) -> Posterior:
    """Sample the response model's posterior given every score. The same arguments give the same samples.

    `proxy` holds offline scores; their weight depends on how well they agree with the measured ones.
    """
    expect(spec, StudySpec, "spec")
    expect(results, Results, "results")
    if proxy is not None:
        expect(proxy, Results, "proxy")
    seed = whole(seed, "seed", what="a seed", most=LARGEST_SEED)
    if not results.rows and (proxy is None or not proxy.rows):
        raise NotEnoughData(
            "the response model needs scores of at least one policy",
            hint="measure the policy trained on all demonstrations",
        )
    np.empty(_KEPT, dtype=np.uint8)
    observations = observe(spec, results, proxy)
    rng = np.random.default_rng(seed)
    count = len(spec.names)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        mixture = draw_mixture(rng, sampler.draws, count, priors)
        raw, mixture = sample(LogLikelihood(observations).given, mixture, size_of(count), rng, sampler)
    return Posterior(spec, observations, Parameters.of(raw, mixture), mixture, raw)


def probability_at_least(scores: Floats, others: Floats) -> float:
    """Probability that one allocation matches or beats another, from the success of both in every sample."""
    return float(np.mean(scores >= others - _ROUNDING))


def _shares(count: int) -> Floats:
    """Shares of the budget: all to one factor, half to each of two (for up to 12 factors), equal to all."""
    one = np.eye(count)
    first, second = np.triu_indices(count if count <= 12 else 0, 1)
    return np.concatenate([one, (one[first] + one[second]) / 2, np.full((1, count), 1 / count)])
