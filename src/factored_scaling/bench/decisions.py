"""Compare rules: regret against the best allocation, over many worlds of many families."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from factored_scaling.bench.measure import REGIMES
from factored_scaling.bench.methods import DEFAULT, Bench, Decision, Method, parse_method
from factored_scaling.bench.table_worlds import TableFamily, table_families
from factored_scaling.bench.worlds import Family, World
from factored_scaling.core.allocation import spend
from factored_scaling.core.baselines import equal_tiers
from factored_scaling.errors import InvalidInput, UnknownName
from factored_scaling.model.estimate import LEVELS

_CHUNK = 10  # worlds per task of a worker process


@dataclass(frozen=True)
class Settings:
    """Settings of a comparison. `worlds` names a folder of policy tables, a file or a module; no families: all."""

    worlds: str
    families: tuple[str, ...] = ()
    factors: tuple[int, ...] = (5, 8)
    count: int = 400
    budgets: tuple[int, ...] = (100,)
    regimes: tuple[str, ...] = ("rollouts", "real")
    methods: tuple[str, ...] = DEFAULT
    policies: tuple[int, ...] | None = None
    seed: int = 0

    def chosen(self) -> tuple[Family | TableFamily, ...]:
        """The selected families, in their original order."""
        every = families(self.worlds)
        for name in self.families:
            if name not in [family.name for family in every]:
                raise UnknownName(name, [family.name for family in every], kind="family", where="--families")
        return tuple(family for family in every if not self.families or family.name in self.families)

    def parsed(self) -> tuple[Method, ...]:
        """The parsed rules."""
        for name in self.regimes:
            if name not in REGIMES:
                raise UnknownName(name, REGIMES, kind="regime", where="--regime")
        return tuple(parse_method(text, self.policies) for text in self.methods)


@dataclass(frozen=True, order=True)
class Key:
    """One cell: a rule under one regime and budget, in one family with one number of factors."""

    method: str
    regime: str
    budget: int
    family: str
    factors: int


@dataclass
class Cell:
    """Outcome of a rule in the worlds of a cell."""

    regrets: list[float] = field(default_factory=list)
    # success that Equal would have given on top
    behind: list[float] = field(default_factory=list)
    policies: int = 0
    rollouts: int = 0
    # level → whether the interval contained the truth
    covered: dict[float, list[bool]] = field(default_factory=dict)
    # how far the centre of the intervals was above the truth
    bias: list[float] = field(default_factory=list)

    def add(self, other: Cell) -> None:
        """Add more worlds of the same cell."""
        self.regrets += other.regrets
        self.behind += other.behind
        self.bias += other.bias
        self.policies, self.rollouts = other.policies, other.rollouts
        for level, held in other.covered.items():
            self.covered.setdefault(level, []).extend(held)


def families(source: str) -> tuple[Family | TableFamily, ...]:
    """The families of a folder of policy tables, or those of a module or Python file.

    A module is given as `my_module`, `my_module:name` or `file.py`. It holds a sequence of `Family` named `families`
    (or as said after the colon).
    """
    if Path(source).is_dir():
        return table_families(Path(source))
    place, _, name = source.partition(":")
    try:  # third-party code may raise anything
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(place).stem, place)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
        found = getattr(module, name or "families")
    except Exception as error:
        raise InvalidInput(f"no families there ({type(error).__name__}: {error})", where=f"--worlds {source}") from None
    given = tuple(found) if isinstance(found, Iterable) else ()
    if not given or not all(isinstance(family, Family) for family in given):
        what = f"{name or 'families'} is not a list of Family"
        raise InvalidInput(what, where=f"--worlds {source}", hint="factored_scaling.bench.worlds has Family")
    return given


def judge(world: World, place: int, settings: Settings, methods: Sequence[Method]) -> Iterator[tuple[Key, Cell]]:
    """Every rule's decisions in one world, compared to the best allocation of each budget."""
    spec, now, count = world.spec(), world.now, world.setting.count
    before = float(world.score(now))
    best = {k: float(world.score(now + world.best(k))) for k in settings.budgets}

    def regret(allocation: Mapping[str, int], budget: int) -> tuple[float, float]:
        after = float(world.score(now + np.array([allocation[name] for name in world.factors], dtype=float)))
        return (best[budget] - after) / max(best[budget] - before, 1e-9), after

    equal = {k: regret(spend(spec.factors, equal_tiers(spec), k).demos, k)[1] for k in settings.budgets}
    for regime in settings.regimes:
        bench = Bench(world, REGIMES[regime], place)
        trials = int(REGIMES[regime].trials(count).sum())
        for method in methods:
            decisions = bench.decide(method, settings.budgets)
            for budget, decision in zip(settings.budgets, decisions or (), strict=decisions is not None):
                value, after = regret(decision.allocation, budget)
                cell = Cell([value], [equal[budget] - after], decision.policies, decision.policies * trials)
                _cover(cell, decision, after)
                yield Key(method.name, regime, budget, world.family, count), cell


def _cover(cell: Cell, decision: Decision, truth: float) -> None:
    if decision.intervals is None:
        return
    for level, (low, high) in decision.intervals.items():
        cell.covered[level] = [low <= truth <= high]
    narrowest = decision.intervals[min(decision.intervals)]
    cell.bias = [sum(narrowest) / 2 - truth]


def compare(settings: Settings, jobs: int, progress: Callable[[int, int], None]) -> dict[Key, Cell]:
    """All cells. Results do not depend on the number of processes."""
    settings.parsed()
    tasks = [
        (settings, family.name, place, start, min(start + _CHUNK, settings.count))
        for start in range(0, settings.count, _CHUNK)
        for family in settings.chosen()
        for place, factors in enumerate(settings.factors)
        if family.has(factors)
    ]
    total, done = sum(stop - start for *_, start, stop in tasks), 0
    cells: dict[Key, Cell] = {}
    for task, part in zip(tasks, _carried_out(tasks, jobs), strict=True):
        for key, cell in part.items():
            cells.setdefault(key, Cell()).add(cell)
        done += task[4] - task[3]
        progress(done, total)
    return cells


Task = tuple[Settings, str, int, int, int]


def _carried_out(tasks: Sequence[Task], jobs: int) -> Iterator[dict[Key, Cell]]:
    if jobs == 1:
        yield from map(_work, tasks)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_work, tasks)


def _work(task: Task) -> dict[Key, Cell]:
    settings, name, place, start, stop = task
    family = next(family for family in settings.chosen() if family.name == name)
    methods = settings.parsed()
    cells: dict[Key, Cell] = {}
    for index in range(start, stop):
        world = family.world(settings.factors[place], index, settings.seed)
        for key, cell in judge(world, place, settings, methods):
            cells.setdefault(key, Cell()).add(cell)
    return cells


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over equally weighted cells, with its standard error."""

    regret: float
    error: float
    # share of worlds in which Equal gives more, and at least a point more
    worse: float
    much_worse: float
    worlds: int
    # level → share of intervals that contained the truth; empty for rules without intervals
    coverage: Mapping[float, float]
    bias: float | None


def mean(cells: Sequence[Cell]) -> Mean:
    """Mean over families and numbers of factors. Each cell has the same weight."""
    means = [float(np.mean(cell.regrets)) for cell in cells]
    errors = [
        float(np.var(cell.regrets, ddof=1)) / len(cell.regrets) if len(cell.regrets) > 1 else 0.0 for cell in cells
    ]
    coverage = {
        level: float(np.mean([np.mean(cell.covered[level]) for cell in cells]))
        for level in LEVELS
        if all(level in cell.covered for cell in cells)
    }
    return Mean(
        math.fsum(means) / len(means),
        math.sqrt(math.fsum(errors)) / len(means),
        _share_behind(cells, 1e-9),
        _share_behind(cells, 0.01),
        sum(len(cell.regrets) for cell in cells),
        coverage,
        float(np.mean([np.mean(cell.bias) for cell in cells])) if all(cell.bias for cell in cells) else None,
    )


def _share_behind(cells: Sequence[Cell], least: float) -> float:
    return float(np.mean([np.mean(np.array(cell.behind) > least) for cell in cells]))
