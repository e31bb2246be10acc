"""Tables of trained policies over dataset compositions: design a table, and read those of `table_builder`.

A row is one trained policy: how many demonstrations of each factor it saw, its seed, and its successes on the held-out
trials of each factor. Every policy draws its own demonstrations from a common pool, so repeated compositions show the
noise of demonstrations and training together. Rules can then be compared on trained policies without
further training (docs/howto/policy-tables.md).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from factored_scaling.bench.oracle import even
from factored_scaling.core.checks import shown, whole
from factored_scaling.core.screen import screening_order
from factored_scaling.errors import InvalidInput
from factored_scaling.io.tables import check_columns, csv_table, whole_cell
from factored_scaling.io.text import read_json, read_text

Floats = NDArray[np.float64]
NOMINAL = "nominal"
FIXED = ("id", "group", "start", "seed", NOMINAL)
PREFIXES = ("demos:", "successes:", "trials:")
CARD = "card.json"
ROWS = "policies.csv"


@dataclass(frozen=True)
class Composition:
    """A training set as numbers: demonstrations per factor and nominal ones.

    `group` is its purpose and `start` the demonstrations per factor of the dataset that it belongs to. `seed`
    draws the demonstrations and trains the policy.
    """

    group: str
    start: int
    demos: Mapping[str, int]
    nominal: int
    seed: int

    @property
    def id(self) -> str:
        """A name derived from the content."""
        content = json.dumps([dict(self.demos), self.nominal, self.seed], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:12]


def design_table(factors: Sequence[str], start: int, policies: int, seed: int = 0) -> tuple[Composition, ...]:
    """`policies` compositions around a dataset of `start` demonstrations per factor, the most useful first.

    A third repeats a few compositions with other demonstrations and seeds: the start, an equal split of K = 20 and 100,
    and K = 100 to one factor. The others are drawn: subsets of the start, random splits of K = 20 and 100 on top of it,
    unbalanced starts and starts with many nominal demonstrations, before and after a random split of K = 100. Every
    prefix holds all groups.
    """
    whole(start, "start", least=1)
    rng = np.random.default_rng([seed, start, len(factors)])
    count = len(factors)
    base = np.full(count, start)
    inside, split = _inside(base, rng), _split(base, 100, rng)
    unbalanced, nominal_heavy = _unbalanced(start, count, rng), _nominal_heavy(start, count, rng)
    groups: list[tuple[str, Iterator[tuple[NDArray[np.int64], int]]]] = [
        ("start", _repeated(base)),
        ("equal-100", _repeated(base + even(100, count))),
        ("inside", inside),
        ("split-100", split),
        ("one-factor-100", _one_factor(base, 100)),
        ("split-20", _split(base, 20, rng)),
        ("equal-20", _repeated(base + even(20, count))),
        ("unbalanced", unbalanced),
        ("inside", inside),
        ("split-100", split),
        ("nominal-heavy", nominal_heavy),
        ("split-100", split),
        ("unbalanced", unbalanced),
        ("nominal-heavy", nominal_heavy),
    ]
    made: list[Composition] = []
    while len(made) < policies:
        group, drawn = groups[len(made) % len(groups)]
        demos, nominal = next(drawn)
        counts = {name: int(number) for name, number in zip(factors, demos, strict=True)}
        made.append(Composition(group, start, counts, nominal, seed * 1_000_000 + start * 10_000 + len(made)))
    return tuple(made)


def _repeated(demos: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], int]]:
    while True:
        yield demos, 0


def _one_factor(base: NDArray[np.int64], budget: int) -> Iterator[tuple[NDArray[np.int64], int]]:
    while True:
        for unit in np.eye(base.size, dtype=np.int64):
            yield base + budget * unit, 0


def _inside(base: NDArray[np.int64], rng: np.random.Generator) -> Iterator[tuple[NDArray[np.int64], int]]:
    """Alternate between policies of the screening order and uniform random numbers; never empty."""
    screen = screening_order(base.size)
    next(screen)  # everything
    while True:
        yield np.array([round(int(size) * part) for size, part in zip(base, next(screen), strict=True)]), 0
        drawn = rng.integers(0, base + 1)
        yield (drawn if drawn.any() else base), 0


def _split(base: NDArray[np.int64], budget: int, rng: np.random.Generator) -> Iterator[tuple[NDArray[np.int64], int]]:
    """Alternate between skewed and even random splits."""
    while True:
        for concentration in (0.3, 1.0):
            shares = rng.dirichlet(np.full(base.size, concentration))
            yield base + rng.multinomial(budget, shares), 0


def _unbalanced(start: int, count: int, rng: np.random.Generator) -> Iterator[tuple[NDArray[np.int64], int]]:
    """Starts whose factors differ up to sixteenfold, before and after a random split of K = 100."""
    while True:
        base = unbalanced_start(start, count, rng)
        yield base, 0
        yield base + rng.multinomial(100, rng.dirichlet(np.full(count, 0.5))), 0


def _nominal_heavy(start: int, count: int, rng: np.random.Generator) -> Iterator[tuple[NDArray[np.int64], int]]:
    """As many nominal demonstrations as all factors have together or twice that, before and after K = 100."""
    while True:
        for times in (1, 2):
            base, nominal = nominal_heavy_start(start, count, times)
            yield base, nominal
            yield base + rng.multinomial(100, rng.dirichlet(np.full(count, 0.5))), nominal


def unbalanced_start(start: int, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Demonstrations per factor that differ up to sixteenfold around `start`."""
    return np.maximum(1, np.round(start * 4.0 ** rng.uniform(-1, 1, count))).astype(np.int64)


def nominal_heavy_start(start: int, count: int, times: int) -> tuple[NDArray[np.int64], int]:
    """Half of `start` demonstrations per factor, and `times` as many nominal ones as these together."""
    return np.full(count, max(1, start // 2)), times * count * start // 2


@dataclass(frozen=True)
class PolicyTable:
    """Policies as arrays, one row each. `demos` and `successes` have one column per factor."""

    factors: tuple[str, ...]
    group: tuple[str, ...]
    start: NDArray[np.int64]
    seed: NDArray[np.int64]
    nominal: NDArray[np.int64]
    demos: NDArray[np.int64]
    successes: NDArray[np.int64]
    trials: NDArray[np.int64]
    card: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.group)

    @property
    def scores(self) -> Floats:
        """Success on each factor's trials: rows × factors."""
        return np.asarray(self.successes / self.trials)

    def where(self, keep: NDArray[np.bool_]) -> PolicyTable:
        """The rows where `keep` is true."""
        return self.rows(np.flatnonzero(keep))

    def rows(self, chosen: NDArray[np.int64]) -> PolicyTable:
        """The rows of these numbers."""
        columns = ("start", "seed", "nominal", "demos", "successes", "trials")
        group = tuple(self.group[index] for index in chosen)
        return replace(self, group=group, **{name: getattr(self, name)[chosen] for name in columns})


def read_table(path: str | Path) -> PolicyTable:
    """Read a table: a folder with `policies.csv` and `card.json`, or the CSV file itself."""
    place = Path(path)
    place = place / ROWS if place.is_dir() else place
    text, card = read_text(place), read_card(place.with_name(CARD)) or {}
    factors: list[str] = []

    def header(columns: Sequence[str], where: str) -> None:
        factors.extend(name.removeprefix("demos:") for name in columns if name.startswith("demos:"))
        needed = [f"{prefix}{name}" for prefix in PREFIXES for name in factors]
        check_columns(columns, where, (*FIXED, "loss"), (*FIXED, *needed), *PREFIXES)

    try:
        rows = csv_table(text, header)
        numbers = {
            key: np.array([[whole_cell(row[name], f"{where}, column {name}") for name in names] for where, row in rows])
            for key, names in {
                "one": ("start", "seed", NOMINAL),
                **{prefix: [f"{prefix}{name}" for name in factors] for prefix in PREFIXES},
            }.items()
        }
    except InvalidInput as error:
        raise error.at(str(place)) from None
    demos, successes, trials = (numbers[prefix] for prefix in PREFIXES)
    if (trials < 1).any() or (successes > trials).any():
        raise InvalidInput("successes must not exceed trials, and trials must be at least 1", where=str(place))
    group = tuple(row["group"] for _, row in rows)
    start, seed, nominal = numbers["one"].T
    return PolicyTable(tuple(factors), group, start, seed, nominal, demos, successes, trials, card)


def read_card(path: Path) -> dict[str, Any] | None:
    """The content of a card; None if there is no file."""
    if not path.exists():
        return None
    card = read_json(path)
    if not isinstance(card, dict):
        raise InvalidInput(f"expected an object, not {shown(card)}", where=str(path))
    return card
