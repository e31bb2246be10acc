"""The likelihood: measured scores as arrays, and their log-probability under the response model.

A score over many trials is compared on the scale θ = arcsin √p, where t trials have the sampling variance 1/(4t + 2)
whatever p is. Training noise comes on top: one part moves all trials of a policy together, the other is each score's
own. A score over few trials is binomial, where 0 of 3 says more than that scale can; training noise is small beside it
and left out. Graded scores count like 0/1 scores of the same mean, whose variance is never smaller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from factored_scaling.core.results import Results, distinct
from factored_scaling.core.scores import ALL_FACTORS
from factored_scaling.core.spec import StudySpec
from factored_scaling.model.prior import Floats, PriorMixture
from factored_scaling.model.response import (
    NOISE_COMMON,
    NOISE_OWN,
    PROXY_GAIN,
    PROXY_NOISE,
    PROXY_SHIFT,
    Forward,
    Parameters,
    forward,
    gradient,
    saturate,
)

FEW = 12  # trials; fewer are binomial
UNKNOWN_TRIALS = 100  # assumed of a score without a number of trials
_EDGE = 1e-6  # a success nearer to 0 or 1 has no finite derivative of θ


@dataclass(frozen=True)
class Cells:
    """Means over some of the successes of all policies and factors, which are numbered policy by policy."""

    cell: NDArray[np.int64]
    mean: NDArray[np.int64]  # to which mean each cell belongs, ascending
    start: NDArray[np.int64]  # where each mean's cells begin
    share: Floats  # 1 / how many, per cell
    # every success is one mean, in order: nothing to compute
    plain: bool

    @classmethod
    def of(cls, groups: Sequence[Sequence[int]], total: int) -> Cells:
        sizes = np.array([len(group) for group in groups], dtype=np.int64)
        cell = np.array([place for group in groups for place in group], dtype=np.int64)
        mean = np.repeat(np.arange(len(groups)), sizes)
        plain = cell.size == total == len(groups) and bool((cell == np.arange(total)).all())
        return cls(cell, mean, np.cumsum(sizes) - sizes, 1 / np.repeat(sizes, sizes), plain)

    @property
    def count(self) -> int:
        """How many means."""
        return len(self.start)

    def means(self, flat: Floats) -> Floats:
        """means × samples, from successes × samples."""
        if self.plain or not self.count:
            return flat[: self.count]
        return np.asarray(np.add.reduceat(flat[self.cell] * self.share[:, None], self.start, axis=0))

    def back(self, by_means: Floats, total: int) -> Floats:
        """From derivatives by the means to those by the successes."""
        if self.plain:
            return by_means
        by_flat = np.zeros((total, by_means.shape[1]))
        np.add.at(by_flat, self.cell, by_means[self.mean] * self.share[:, None])
        return by_flat


@dataclass(frozen=True)
class Observations:
    """Everything measured, as arrays. Successes are weighted means over single factors, or all factors at once."""

    demos: Floats  # R × N, in units
    now: Floats  # N, in units
    unit: float
    # scores by single factors: which of the R·N successes they are the mean of
    cells: Cells
    # scores by several factors at once: which ones
    joint: Floats  # J × N
    joint_run: NDArray[np.int64]
    # of all O + J scores
    score: Floats
    trials: Floats  # 0 where their number is unknown
    few: Floats  # trials where they are few, else 0
    many: Floats  # 1 where they are many, else 0
    theta: Floats
    variance: Floats
    own_share: Floats  # part of a factor's own training noise that the score has
    run: NDArray[np.int64]  # the policy's place among those that have scores
    # stand-in scores: which successes, and values
    proxy_cells: Cells
    proxy: Floats


@dataclass(frozen=True)
class _Score:
    demos: tuple[int, ...]
    copy: tuple[int | None, int]  # seed, and which of several policies without a seed
    factor: tuple[str, ...]
    score: float
    trials: int | None


def observe(spec: StudySpec, results: Results, proxy: Results | None = None) -> Observations:
    """The rows of a study as arrays."""
    scores = _without_totals(spec, _scores(spec, results))
    stand_ins = _scores(spec, proxy) if proxy is not None else []
    keys = list(dict.fromkeys((score.demos, score.copy) for score in [*scores, *stand_ins]))
    place = {key: index for index, key in enumerate(keys)}
    count, runs = len(spec.names), len(keys)
    unit = float(np.mean(list(spec.sizes.values())))
    single = [score for score in scores if not _several(spec, score)]
    joint = [score for score in scores if _several(spec, score)]
    # Sorted by policy and factor, complete results are all successes in their order.
    single.sort(key=lambda score: _cells_of(spec, score, place))
    ordered = [*single, *joint]
    trials = np.array([score.trials or UNKNOWN_TRIALS for score in ordered], dtype=float)
    mean = np.array([score.score for score in ordered])
    cells = _cells(spec, single, place)
    policies = np.array([place[score.demos, score.copy] for score in ordered], dtype=np.int64)
    return Observations(
        demos=np.array([key[0] for key in keys], dtype=float).reshape(runs, count) / unit,
        now=np.array(list(spec.sizes.values()), dtype=float) / unit,
        unit=unit,
        cells=cells,
        joint=np.array([[float(_varies(score, name)) for name in spec.names] for score in joint]).reshape(-1, count),
        joint_run=np.array([place[score.demos, score.copy] for score in joint], dtype=np.int64),
        score=mean,
        trials=np.array([score.trials or 0 for score in ordered], dtype=float),
        few=np.where(trials < FEW, trials, 0.0),
        many=np.where(trials < FEW, 0.0, 1.0),
        theta=np.arcsin(np.sqrt((mean * trials + 0.375) / (trials + 0.75))),
        variance=1 / (4 * trials + 2),
        own_share=np.concatenate([cells.share[cells.start], np.ones(len(joint))]),
        run=np.unique(policies, return_inverse=True)[1].astype(np.int64),
        proxy_cells=_cells(spec, stand_ins, place),
        proxy=np.array([score.score for score in stand_ins]),
    )


def _scores(spec: StudySpec, results: Results) -> list[_Score]:
    """Every measurement once. Rows without a seed that say the same thing of the same training set twice are of
    different policies."""
    made: list[_Score] = []
    copies: Counter[Any] = Counter()
    for _, row, demos in distinct(spec, results):
        copy = 0
        if row.seed is None:
            copy = copies[demos, row.factor]
            copies[demos, row.factor] += 1
        made.append(_Score(demos, (row.seed, copy), row.factor, row.score, row.trials))
    return made


def _without_totals(spec: StudySpec, scores: list[_Score]) -> list[_Score]:
    """Without the overall scores of policies that have a score for every factor: they hold the same trials."""
    known: dict[Any, set[str]] = {}
    for score in scores:
        if len(score.factor) == 1:
            known.setdefault((score.demos, score.copy), set()).add(score.factor[0])
    full = {key for key, names in known.items() if names >= set(spec.names)}
    return [score for score in scores if score.factor or (score.demos, score.copy) not in full]


def _several(spec: StudySpec, score: _Score) -> bool:
    return len(score.factor) > 1 or (score.factor == (ALL_FACTORS,) and len(spec.names) > 1)


def _varies(score: _Score, name: str) -> bool:
    return score.factor == (ALL_FACTORS,) or name in score.factor


def _cells(spec: StudySpec, scores: list[_Score], place: dict[Any, int]) -> Cells:
    return Cells.of([_cells_of(spec, score, place) for score in scores], len(place) * len(spec.names))


def _cells_of(spec: StudySpec, score: _Score, place: dict[Any, int]) -> list[int]:
    """The successes that the score is the mean of."""
    names = score.factor if score.factor and score.factor != (ALL_FACTORS,) else spec.names
    first = place[score.demos, score.copy] * len(spec.names)
    return [first + spec.names.index(name) for name in names]


@dataclass(frozen=True)
class LogLikelihood:
    """The log-likelihood and its gradient by the standard normal variables, for many samples at once."""

    observations: Observations

    def __call__(self, raw: Floats, mixture: PriorMixture) -> tuple[Floats, Floats]:
        parameters = Parameters.of(raw, mixture)
        data = self.observations
        state = forward(parameters, mixture, data.demos, data.now)
        flat = state.success.reshape(-1, raw.shape[1])
        success = data.cells.means(flat)
        joint = _joint(state, data, mixture) if len(data.joint) else None
        if joint is not None:
            success = np.concatenate([success, joint.success])
        links = np.zeros_like(parameters.links)
        value, by_success = self._scores(success, parameters.links, links)
        by_flat = data.cells.back(by_success[: data.cells.count], len(flat))
        if len(data.proxy):
            added, through = self._proxy(data.proxy_cells.means(flat), parameters.links, links)
            value, by_flat = value + added, by_flat + data.proxy_cells.back(through, len(flat))
        by_cells = by_flat.reshape(state.success.shape)
        by_robust, by_skilled, by_hazard = by_cells * state.skilled, by_cells * state.robust, None
        if joint is not None:
            more, by_hazard = joint.back(by_success[data.cells.count :], state, data)
            by_robust = by_robust + more
        return value, gradient(state, parameters, mixture, by_robust, by_skilled, by_hazard, links)

    def _scores(self, success: Floats, links: Floats, by_links: Floats) -> tuple[Floats, Floats]:
        """Normal on the scale of θ, a policy's common noise integrated out; binomial where trials are few."""
        data = self.observations
        common, own = np.exp(2 * links[NOISE_COMMON]), np.exp(2 * links[NOISE_OWN])
        inside = np.clip(success, _EDGE, 1 - _EDGE)
        spread = data.variance[:, None] + data.own_share[:, None] * own
        precision = data.many[:, None] / spread
        miss = np.arcsin(np.sqrt(inside)) - data.theta[:, None]
        scaled = miss * precision
        pull, weight = self._by_run(scaled), self._by_run(precision)
        grown = 1 + common * weight
        shrink = common / grown
        value = 0.5 * ((shrink * pull**2).sum(0) - (scaled * miss).sum(0) - np.log(grown).sum(0))
        value -= 0.5 * (data.many[:, None] * np.log(spread)).sum(0)
        left = scaled - (shrink * pull)[data.run] * precision  # of the miss, once the common part is taken out
        by_success = -left / (2 * np.sqrt(inside * (1 - inside)))
        by_spread = 0.5 * (left**2 + shrink[data.run] * precision**2 - precision)
        if data.few.any():
            good, bad = (data.few * data.score)[:, None], (data.few * (1 - data.score))[:, None]
            value = value + (good * np.log(inside) + bad * np.log1p(-inside)).sum(0)
            by_success = by_success + good / inside - bad / (1 - inside)
        by_links[NOISE_OWN] = (by_spread * data.own_share[:, None]).sum(0) * 2 * own
        by_links[NOISE_COMMON] = ((pull / grown) ** 2 - weight / grown).sum(0) * common
        return value, by_success

    def _by_run(self, values: Floats) -> Floats:
        """Sums over the scores of each policy."""
        order, start = self._order
        return np.asarray(np.add.reduceat(values if order is None else values[order], start, axis=0))

    @cached_property
    def _order(self) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
        """How scores stand policy by policy (None: as they are), and where each policy begins."""
        run = self.observations.run
        order = np.argsort(run, kind="stable")
        start = np.flatnonzero(np.diff(run[order], prepend=-1))
        return None if bool((order == np.arange(run.size)).all()) else order, start

    def _proxy(self, success: Floats, links: Floats, by_links: Floats) -> tuple[Floats, Floats]:
        """Stand-in scores lie around a straight line of the successes; how far is learned with the rest."""
        shift, gain, spread = links[PROXY_SHIFT], links[PROXY_GAIN], np.exp(links[PROXY_NOISE])
        miss = self.observations.proxy[:, None] - shift - gain * success
        scaled = miss / spread**2
        value = -0.5 * (scaled * miss).sum(0) - len(miss) * np.log(spread)
        by_links[PROXY_SHIFT], by_links[PROXY_GAIN] = scaled.sum(0), (scaled * success).sum(0)
        by_links[PROXY_NOISE] = (scaled * miss).sum(0) - len(miss)
        return value, gain * scaled


@dataclass(frozen=True)
class _Joint:
    """Trials in which several factors vary at once: the shared skill, and robustness to each of them."""

    success: Floats  # J × samples
    skilled: Floats
    slope: Floats

    def back(self, by_success: Floats, state: Forward, data: Observations) -> tuple[Floats, Floats]:
        by_robust, by_hazard = np.zeros_like(state.robust), np.zeros_like(state.hazard)
        for index, (run, varied) in enumerate(zip(data.joint_run, data.joint, strict=True)):
            through = by_success[index] * self.success[index]
            by_robust[run] += through * varied[:, None] / state.robust[run]
            by_hazard[run] -= through * self.slope[index] / self.skilled[index]
        return by_robust, by_hazard


def _joint(state: Forward, data: Observations, mixture: PriorMixture) -> _Joint:
    shared, slope = saturate(state.hazard, mixture.sharpness)
    skilled = 1 - shared[data.joint_run]
    robust = np.exp((np.log(state.robust[data.joint_run]) * data.joint[:, :, None]).sum(1))
    return _Joint(skilled * robust, skilled, slope[data.joint_run])
