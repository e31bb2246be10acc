"""Which policies to train: sizes per curve, nested subsets per seed, shared policies counted once."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from factored_scaling.core.dataset import Dataset
from factored_scaling.core.spec import Combination, StudySpec
from factored_scaling.errors import InvalidInput


@dataclass(frozen=True)
class RunSpec:
    """One policy to train and measure. Its identity is its content: equal specs are the same run."""

    episodes: tuple[str, ...]
    policy: Mapping[str, Any] = field(default_factory=dict)
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    task: str | None = None

    @property
    def digest(self) -> str:
        """A name for the content, the same on every machine."""
        return hashlib.sha256(json.dumps(self.to_mapping(), sort_keys=True).encode()).hexdigest()[:16]

    def to_mapping(self) -> dict[str, Any]:
        """Plain data; the order of the episodes does not matter and is not kept."""
        return {
            "episodes": sorted(self.episodes),
            "policy": dict(self.policy),
            "evaluation": dict(self.evaluation),
            "seed": self.seed,
            "task": self.task,
        }

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> RunSpec:
        """Read what `to_mapping` wrote."""
        return cls(
            episodes=tuple(data["episodes"]),
            policy=data["policy"],
            evaluation=data["evaluation"],
            seed=data["seed"],
            task=data["task"],
        )


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Where a run sits on a curve: `n` demonstrations of the combination's own."""

    combination: tuple[str, ...]
    n: int


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run of the plan: its spec, its demos per factor, and the curve points it gives."""

    spec: RunSpec
    demos: dict[str, int]
    points: tuple[CurvePoint, ...]


def curve_sizes(size: int, points: int) -> tuple[int, ...]:
    """Equally spaced whole sizes from 0 to `size`; sizes that coincide appear once."""
    return tuple(dict.fromkeys(round(size * k / (points - 1)) for k in range(points)))


def split(n: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """`n` demonstrations in proportion to `sizes`, so that the split of n is contained in the split of n + 1.

    The j-th demonstration of a factor with d of them stands at (j + ½)/d; the n that stand first are taken, ties in
    declared order. For two factors this is rounding to the nearest; for more it never takes a demonstration back as
    n grows, which largest remainders can do.
    """
    if not 0 <= n <= sum(sizes.values()):
        raise InvalidInput(f"cannot take {n} of {sum(sizes.values())} demonstrations")
    places = np.concatenate([(2 * np.arange(size) + 1) / (2 * size) for size in sizes.values()])
    owners = np.repeat(np.arange(len(sizes)), list(sizes.values()))
    taken = owners[np.lexsort((owners, places))[:n]]
    return dict(zip(sizes, np.bincount(taken, minlength=len(sizes)).tolist(), strict=True))


def nested_order(dataset: Dataset, factor: str | None, seed: int) -> tuple[str, ...]:
    """The factor's episodes in the order in which subsets take them for this seed; every prefix is a subset.

    The order depends on the seed, the factor's name and the episodes' ids alone: adding episodes of another factor
    does not change it.
    """
    ids = [episode.id for episode in dataset.subset(factor)]
    return tuple(sorted(ids, key=lambda id_: hashlib.sha256(f"{seed}\0{factor}\0{id_}".encode()).digest()))


def training_set(dataset: Dataset, demos: Mapping[str, int], seed: int) -> tuple[str, ...]:
    """All nominal episodes and `demos[factor]` of each factor, nested for one seed."""
    chosen = [episode.id for episode in dataset.subset(None)]
    for factor, count in demos.items():
        order = nested_order(dataset, factor, seed)
        if count > len(order):
            raise InvalidInput(f"{count} demos of {factor!r} asked for, {len(order)} at hand")
        chosen += order[:count]
    return tuple(chosen)


def demos_at(spec: StudySpec, combination: Combination, n: int) -> dict[str, int]:
    """Demos per factor of the training set D^n of one curve."""
    sizes = spec.sizes
    inside = split(n, {name: sizes[name] for name in combination.factors})
    return {name: inside.get(name, size) for name, size in sizes.items()}


def plan(spec: StudySpec, dataset: Dataset | None = None) -> tuple[PlannedRun, ...]:
    """Every distinct policy of the study, in the order to train them.

    Seed by seed: first the full-data policy, which every curve shares and Greedy needs; then the far ends (n = 0), so
    that each curve can be fitted as early as possible; then the sizes between, largest gaps first.
    """
    data = dataset if dataset is not None else Dataset.of_sizes(spec.sizes, spec.nominal)
    combinations = spec.combinations()
    ladders = [_ends_first(curve_sizes(combination.size, spec.points)) for combination in combinations]
    runs: dict[str, PlannedRun] = {}
    for seed in range(spec.seeds):
        for rank in range(max(len(ladder) for ladder in ladders)):
            for combination, ladder in zip(combinations, ladders, strict=True):
                if rank >= len(ladder):
                    continue
                demos = demos_at(spec, combination, ladder[rank])
                point = CurvePoint(combination.factors, ladder[rank])
                run = run_spec(spec, data, demos, seed)
                known = runs.get(run.digest)
                points = (*known.points, point) if known else (point,)
                runs[run.digest] = PlannedRun(run, demos, points)
    return tuple(runs.values())


def run_spec(spec: StudySpec, dataset: Dataset, demos: Mapping[str, int], seed: int) -> RunSpec:
    """The run that trains on `demos` of each factor with this seed."""
    return RunSpec(training_set(dataset, demos, seed), spec.policy, spec.evaluation, seed, spec.task)


def _ends_first(ladder: tuple[int, ...]) -> tuple[int, ...]:
    """Largest, smallest, then whatever halves the widest gap that is left."""
    order = [len(ladder) - 1, 0] if len(ladder) > 1 else [0]
    while len(order) < len(ladder):
        done = sorted(order)
        low, high = max(itertools.pairwise(done), key=lambda gap: (gap[1] - gap[0], gap[1]))
        order.append((low + high + 1) // 2)
    return tuple(ladder[index] for index in order)
