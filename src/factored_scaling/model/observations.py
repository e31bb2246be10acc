"""Measured scores as arrays: which policy, which trials, how many.

A score over many trials is compared on the scale θ = arcsin √p, where t trials have the sampling variance 1/(4t + 2)
whatever p is. A score over few trials is binomial, where 0 of 3 says more than that scale can. Graded scores count like
0/1 scores of the same mean, whose variance is never smaller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from factored_scaling.core.results import Results, distinct
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import ALL_FACTORS
from factored_scaling.model.prior import Floats

FEW = 12  # trials; fewer are binomial
UNKNOWN_TRIALS = 100  # assumed of a score without a number of trials


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

    def moved(self, keep: NDArray[np.bool_], to: NDArray[np.int64], total: int) -> Cells:
        """The means that are kept, over `total` successes of which old number i is now number `to[i]`."""
        chosen = keep[self.mean]
        sizes = np.bincount(self.mean, minlength=self.count)[keep]
        cell = to[self.cell[chosen]]
        plain = cell.size == total == sizes.size and bool((cell == np.arange(total)).all())
        mean = np.repeat(np.arange(sizes.size), sizes)
        return Cells(cell, mean, np.cumsum(sizes) - sizes, self.share[chosen], plain)

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
    nominal: float  # in units
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
    policy: NDArray[np.int64]  # the policy's place among the rows of `demos`
    varied: NDArray[np.int64]  # scores of one number are of the same factors
    # stand-in scores: which successes, and values
    proxy_cells: Cells
    proxy: Floats


class _Score(NamedTuple):
    # the training set, the seed, and which of several policies without a seed
    policy: tuple[tuple[int, ...], int | None, int]
    factor: tuple[str, ...]
    score: float
    trials: int | None


def observe(spec: StudySpec, results: Results, proxy: Results | None = None) -> Observations:
    """The rows of a study as arrays."""
    scores = _without_totals(spec, _scores(spec, results))
    stand_ins = _scores(spec, proxy) if proxy is not None else []
    keys = list(dict.fromkeys(score.policy for score in [*scores, *stand_ins]))
    place = {key: index for index, key in enumerate(keys)}
    count, runs = len(spec.names), len(keys)
    unit = float(np.mean(list(spec.sizes.values())))
    single = [score for score in scores if not _several(spec, score)]
    joint = [score for score in scores if _several(spec, score)]
    cells_of = _cells_of(spec, place)
    # Sorted by policy and factor, complete results are all successes in their order.
    single.sort(key=cells_of)
    ordered = [*single, *joint]
    trials = np.array([score.trials or UNKNOWN_TRIALS for score in ordered], dtype=float)
    mean = np.array([score.score for score in ordered])
    cells = Cells.of([cells_of(score) for score in single], runs * count)
    policies = np.array([place[score.policy] for score in ordered], dtype=np.int64)
    number = {factor: index for index, factor in enumerate(dict.fromkeys(score.factor for score in ordered))}
    return Observations(
        demos=np.array([key[0] for key in keys], dtype=float).reshape(runs, count) / unit,
        now=np.array(list(spec.sizes.values()), dtype=float) / unit,
        unit=unit,
        nominal=spec.nominal / unit,
        cells=cells,
        joint=np.array(
            [[s.factor == (ALL_FACTORS,) or name in s.factor for name in spec.names] for s in joint], dtype=float
        ).reshape(-1, count),
        joint_run=policies[len(single) :],
        score=mean,
        trials=np.array([score.trials or 0 for score in ordered], dtype=float),
        few=np.where(trials < FEW, trials, 0.0),
        many=np.where(trials < FEW, 0.0, 1.0),
        theta=np.arcsin(np.sqrt((mean * trials + 0.375) / (trials + 0.75))),
        variance=1 / (4 * trials + 2),
        own_share=np.concatenate([cells.share[cells.start], np.ones(len(joint))]),
        policy=policies,
        varied=np.array([number[score.factor] for score in ordered], dtype=np.int64),
        proxy_cells=Cells.of([cells_of(score) for score in stand_ins], runs * count),
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
        made.append(_Score((demos, row.seed, copy), row.factor, row.score, row.trials))
    return made


def _without_totals(spec: StudySpec, scores: list[_Score]) -> list[_Score]:
    """Without the overall scores of policies that have a score for every factor: they hold the same trials."""
    known: dict[Any, set[str]] = {}
    for score in scores:
        if len(score.factor) == 1:
            known.setdefault(score.policy, set()).add(score.factor[0])
    full = {policy for policy, names in known.items() if names >= set(spec.names)}
    return [score for score in scores if score.factor or score.policy not in full]


def _several(spec: StudySpec, score: _Score) -> bool:
    return len(score.factor) > 1 or (score.factor == (ALL_FACTORS,) and len(spec.names) > 1)


def _cells_of(spec: StudySpec, place: dict[Any, int]) -> Callable[[_Score], list[int]]:
    """The successes that a score is the mean of."""
    names, offsets = spec.names, dict[tuple[str, ...], list[int]]()

    def cells(score: _Score) -> list[int]:
        first, factor = place[score.policy] * len(names), score.factor
        if factor not in offsets:
            every = not factor or factor == (ALL_FACTORS,)
            offsets[factor] = [names.index(name) for name in (names if every else factor)]
        return [first + offset for offset in offsets[factor]]

    return cells
