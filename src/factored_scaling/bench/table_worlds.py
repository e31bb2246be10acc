"""Worlds from policy tables: the emulator of a table gives the success of training."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from factored_scaling.bench.emulator import Emulator, read_emulator
from factored_scaling.bench.oracle import best_allocation
from factored_scaling.bench.policy_tables import ROWS, nominal_heavy_start, read_table, unbalanced_start
from factored_scaling.bench.worlds import Floats, Role, Setting, World
from factored_scaling.errors import InvalidInput

REPLICATES = 4  # number of emulators of resampled rows, which average over noise in the table
DRAWN = 8  # unbalanced and nominal-heavy starts
MIDDLE = 10  # demonstrations per factor around which they are drawn


@dataclass(frozen=True)
class TableWorld(World):
    """A start in an emulated table. Training noise and trials differ between studies."""

    emulator: Emulator = field(kw_only=True)

    def trained(self, demos: Floats, rng: np.random.Generator) -> Floats:
        """True success on each factor's trials of one policy that is trained on `demos`."""
        return self.emulator.trained(demos, self.setting.nominal, rng)

    def best(self, budget: int) -> Floats:
        """The best allocation of `budget`, found once for all studies from this start."""
        return _best(self.emulator, self.setting, budget)


@functools.lru_cache(maxsize=256)
def _best(emulator: Emulator, setting: Setting, budget: int) -> Floats:
    def score(demos: Floats) -> Floats:
        return np.asarray(emulator.success(demos, setting.nominal).mean(axis=-1))

    return best_allocation(score, np.array(setting.sizes, dtype=float), budget)


@dataclass(frozen=True)
class TableFamily:
    """Studies from one kind of start in one table: a number of demonstrations per factor, unbalanced, nominal."""

    name: str
    folder: Path
    kind: str
    count: int
    role: Role

    def has(self, count: int) -> bool:
        """Whether it has worlds with `count` factors."""
        return count == self.count

    def world(self, count: int, index: int, seed: int = 0) -> TableWorld:
        """Study number `index`."""
        emulator = _emulator(self.folder, index % REPLICATES)
        setting = self._start(index // REPLICATES % DRAWN)
        noise = np.random.default_rng([seed, index, *map(ord, self.name)])

        def response(demos: Floats) -> Floats:
            return emulator.success(demos, setting.nominal)

        key = int(noise.integers(2**31))
        return TableWorld(self.name, setting, response, 0.0, 0.0, False, key, emulator=emulator)

    def _start(self, number: int) -> Setting:
        rng = np.random.default_rng([number, self.count])
        if self.kind == "unbalanced":
            return Setting(self.count, MIDDLE, 0, tuple(unbalanced_start(MIDDLE, self.count, rng).tolist()))
        if self.kind == "nominal-heavy":
            sizes, nominal = nominal_heavy_start(MIDDLE, self.count, 1 + number % 2)
            return Setting(self.count, int(sizes[0]), nominal)
        return Setting(self.count, int(self.kind))


@functools.lru_cache(maxsize=64)
def _emulator(folder: Path, replicate: int) -> Emulator:
    return read_emulator(folder).resampled(replicate)


def table_families(folder: Path) -> tuple[TableFamily, ...]:
    """The families of every table in `folder`, or of the table that it is."""
    found = []
    for place in sorted({path.parent for path in (*folder.glob(ROWS), *folder.glob(f"*/{ROWS}"))}):
        table = read_table(place)
        role: Role = "tuning" if table.card.get("role") == "tuning" else "held_out"
        kinds = (*map(str, sorted(set(table.start.tolist()))), "unbalanced", "nominal-heavy")
        name, count = place.resolve().name, len(table.factors)
        found += [TableFamily(f"{name}/{kind}", place, kind, count, role) for kind in kinds]
    if not found:
        raise InvalidInput(f"holds no {ROWS}", where=str(folder), hint="fsc bench table makes one")
    return tuple(found)
