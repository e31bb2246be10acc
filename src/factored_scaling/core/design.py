"""Which policies to train: sizes per curve, nested subsets per seed, shared policies counted once."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

from factored_scaling.core.checks import LARGEST_SEED, expect, whole
from factored_scaling.core.dataset import Dataset
from factored_scaling.core.screen import screening_order
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", whole(self.seed, "seed", what="a seed", most=LARGEST_SEED))

    @cached_property
    def digest(self) -> str:
        """A name for the content, the same on every machine."""
        return hashlib.sha256(json.dumps(self.to_mapping(), sort_keys=True).encode()).hexdigest()[:16]

    @property
    def settings(self) -> dict[str, Any]:
        """What runs of one curve share: they differ in their episodes and seeds."""
        return {"task": self.task, "policy": self.policy, "evaluation": self.evaluation}

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
    if points > size:
        return tuple(range(size + 1))
    return tuple(dict.fromkeys(round(size * k / (points - 1)) for k in range(points)))


def split(n: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """`n` demonstrations in proportion to `sizes`, so that the split of n is contained in the split of n + 1.

    The j-th demonstration of a factor with d of them stands at (j + ½)/d; the n that stand first are taken, ties in
    declared order. For two factors this is rounding to the nearest; for more it never takes a demonstration back as
    n grows, which largest remainders can do.
    """
    total, names = sum(sizes.values()), list(sizes)
    if not 0 <= n <= total:
        raise InvalidInput(f"cannot take {n} of {total} demonstrations")
    if n == 0:
        return dict.fromkeys(names, 0)
    # All that stand at n/total or before it: at most half a demonstration per factor away from n in all.
    taken = {name: (2 * n * sizes[name] + total) // (2 * total) for name in names}

    def place(name: str, j: int) -> tuple[Fraction, int]:
        return Fraction(2 * j + 1, 2 * sizes[name]), names.index(name)

    while sum(taken.values()) > n:
        last = max((name for name in names if taken[name] > 0), key=lambda name: place(name, taken[name] - 1))
        taken[last] -= 1
    while sum(taken.values()) < n:
        following = min(
            (name for name in names if taken[name] < sizes[name]), key=lambda name: place(name, taken[name])
        )
        taken[following] += 1
    return taken


def nested_order(dataset: Dataset, factor: str | None, seed: int) -> tuple[str, ...]:
    """The factor's episodes in the order in which subsets take them for this seed; every prefix is a subset.

    The order depends on the seed, the factor's name and the episodes' ids alone: adding episodes of another factor
    does not change it.
    """
    return _order([episode.id for episode in dataset.subset(factor)], factor, seed)


def _order(ids: Iterable[str], factor: str | None, seed: int) -> tuple[str, ...]:
    return tuple(sorted(ids, key=lambda id_: hashlib.sha256(f"{seed}\0{factor}\0{id_}".encode()).digest()))


def training_sets(dataset: Dataset, wanted: Sequence[tuple[Mapping[str, int], int]]) -> list[tuple[str, ...]]:
    """For every demos per factor and seed: all nominal episodes and `demos[factor]` of each factor, nested for a seed.

    A factor's episodes are put in order once per seed.
    """
    ids: dict[str | None, list[str]] = {}
    for episode in dataset.episodes:
        ids.setdefault(episode.factor, []).append(episode.id)
    made: dict[int, tuple[str, ...]] = {}
    by_seed = sorted(range(len(wanted)), key=lambda place: wanted[place][1])
    for seed, places in itertools.groupby(by_seed, key=lambda place: wanted[place][1]):
        orders: dict[str, tuple[str, ...]] = {}
        for place in places:
            chosen = list(ids.get(None, ()))
            for factor, count in wanted[place][0].items():
                if factor not in orders:
                    orders[factor] = _order(ids.get(factor, ()), factor, seed)
                if count > len(orders[factor]):
                    raise InvalidInput(f"{count} demos of {factor!r} asked for, there are {len(orders[factor])}")
                chosen += orders[factor][:count]
            made[place] = tuple(chosen)
    return [made[place] for place in range(len(wanted))]


def demos_at(spec: StudySpec, combination: Combination, n: int) -> dict[str, int]:
    """Demos per factor of the training set D^n of one curve."""
    sizes = spec.sizes
    inside = split(n, {name: sizes[name] for name in combination.factors})
    return {name: inside.get(name, size) for name, size in sizes.items()}


def plan(spec: StudySpec, dataset: Dataset | None = None) -> tuple[PlannedRun, ...]:
    """Every distinct policy of the study, in the order to train them.

    Seed by seed: first the full-data policy, which every curve shares and Greedy needs; then the far ends (n = 0), so
    that each curve can be fitted as early as possible; then the sizes between, largest gaps first. `screen` has its own
    order. A training set without any demonstration (n = 0 where the curve spans the whole dataset) cannot be trained
    and is not planned.
    """
    expect(spec, StudySpec, "spec")
    if dataset is not None:
        expect(dataset, Dataset, "dataset")
    data = dataset if dataset is not None else Dataset.of_sizes(spec.sizes, spec.nominal)
    sets = list((_screen_sets if spec.construction == "screen" else _curve_sets)(spec))[: spec.policies]
    seeds = range(spec.first_seed, spec.first_seed + spec.seeds)
    specs = iter(run_specs(spec, data, [(demos, seed) for seed in seeds for demos, _ in sets]))
    return tuple(PlannedRun(next(specs), demos, points) for _ in seeds for demos, points in sets)


def count_policies(spec: StudySpec) -> int:
    """How many policies `plan` lists: training sets differ in the factors of which they lack demonstrations."""
    if spec.construction == "screen":
        sets = sum(1 for _ in _screen_sets(spec))
    else:
        sizes, thinned = spec.sizes, set()
        for combination in spec.combinations():
            whole = {name: sizes[name] for name in combination.factors}
            for n in curve_sizes(combination.size, spec.points):
                if n + combination.base > 0:
                    thinned.add(frozenset(split(n, whole).items() - whole.items()))
        sets = len(thinned)
    return spec.seeds * (sets if spec.policies is None else min(sets, spec.policies))


def _curve_sets(spec: StudySpec) -> Iterator[tuple[dict[str, int], tuple[CurvePoint, ...]]]:
    """Every distinct training set of the curves, with the points it gives."""
    combinations = spec.combinations()
    ladders = [_ends_first(curve_sizes(combination.size, spec.points)) for combination in combinations]
    sets: dict[tuple[int, ...], dict[str, int]] = {}
    points: dict[tuple[int, ...], tuple[CurvePoint, ...]] = {}
    for rank in range(max(len(ladder) for ladder in ladders)):
        for combination, ladder in zip(combinations, ladders, strict=True):
            if rank < len(ladder) and ladder[rank] + combination.base > 0:
                demos = demos_at(spec, combination, ladder[rank])
                key = tuple(demos.values())
                sets.setdefault(key, demos)
                points[key] = (*points.get(key, ()), CurvePoint(combination.factors, ladder[rank]))
    yield from ((demos, points[key]) for key, demos in sets.items())


def _screen_sets(spec: StudySpec) -> Iterator[tuple[dict[str, int], tuple[CurvePoint, ...]]]:
    """The first policies of the screening order whose training sets differ; as many as asked for, if there are."""
    wanted = len(spec.factors) + 1 if spec.policies is None else spec.policies
    seen: set[tuple[int, ...]] = set()
    for kept in itertools.islice(screening_order(len(spec.factors)), 4 * wanted + 8):
        demos = {factor.name: round(factor.demos * part) for factor, part in zip(spec.factors, kept, strict=True)}
        key = tuple(demos.values())
        if key not in seen and sum(key) + spec.nominal > 0:
            seen.add(key)
            yield demos, ()
        if len(seen) == wanted:
            return


def run_spec(spec: StudySpec, dataset: Dataset, demos: Mapping[str, int], seed: int) -> RunSpec:
    """The run that trains on `demos` of each factor with this seed."""
    return run_specs(spec, dataset, [(demos, seed)])[0]


def run_specs(spec: StudySpec, dataset: Dataset, wanted: Sequence[tuple[Mapping[str, int], int]]) -> list[RunSpec]:
    """The runs that train on these demos of each factor with these seeds."""
    sets = training_sets(dataset, wanted)
    return [run_on(spec, episodes, seed) for episodes, (_, seed) in zip(sets, wanted, strict=True)]


def run_on(spec: StudySpec, episodes: Iterable[str], seed: int) -> RunSpec:
    """The run that trains on these episodes; a simulator gets the factors of the study."""
    evaluation = spec.evaluation if spec.task is None else {**spec.evaluation, "factors": list(spec.names)}
    return RunSpec(tuple(episodes), spec.policy, evaluation, seed, spec.task)


def _ends_first(ladder: tuple[int, ...]) -> tuple[int, ...]:
    """Largest, smallest, then whatever halves the widest gap that is left."""
    order = [len(ladder) - 1, 0] if len(ladder) > 1 else [0]
    while len(order) < len(ladder):
        done = sorted(order)
        low, high = max(itertools.pairwise(done), key=lambda gap: (gap[1] - gap[0], gap[1]))
        order.append((low + high + 1) // 2)
    return tuple(ladder[index] for index in order)


def trials_per_policy(spec: StudySpec) -> int | None:
    """Rollouts that the study's evaluation spends on one policy: factors × settings × initial states, where stated."""
    settings, states = spec.evaluation.get("settings", 10), spec.evaluation.get("initial_states")
    if not isinstance(settings, int) or not isinstance(states, int):
        return None  # the evaluation's meaning belongs to the evaluator, which may count otherwise
    return len(spec.factors) * settings * states
