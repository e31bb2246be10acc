"""Tables of trained policies over dataset compositions: which to train, training and measuring them, reading them.

A row is one trained policy: how many demonstrations of each factor it saw, its seed, and its successes on the held-out
trials of each factor. Every policy draws its own demonstrations from a common pool, so repeated compositions show the
noise of demonstrations and training together. Rules that choose compositions can then be compared on trained policies
without training any more (docs/howto/policy-tables.md).
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from factored_scaling.core.checks import shown, whole
from factored_scaling.core.design import RunSpec
from factored_scaling.core.screen import screening_order
from factored_scaling.core.trials import Trial
from factored_scaling.errors import InvalidInput, NotEnoughData
from factored_scaling.io.atomic import write_whole
from factored_scaling.io.tables import check_columns, csv_table, whole_cell
from factored_scaling.io.text import read_json, read_text
from factored_scaling.io.text import read_table as read_rows
from factored_scaling.machine import prepare_cpu
from factored_scaling.progress import Progress

Floats = NDArray[np.float64]
BUDGETS = (20, 100)
NOMINAL = "nominal"
_FIXED = ("id", "group", "start", "seed", NOMINAL)
_PREFIXES = ("demos:", "successes:", "trials:")
CARD = "card.json"
ROWS = "policies.csv"


@dataclass(frozen=True)
class Composition:
    """A training set by its numbers: demonstrations per factor and nominal ones.

    `group` says what it is for and `start` the demonstrations per factor of the dataset that it belongs to. `seed`
    draws the demonstrations and trains the policy.
    """

    group: str
    start: int
    demos: Mapping[str, int]
    nominal: int
    seed: int

    @property
    def id(self) -> str:
        """A name for the content, the same on every machine."""
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
        ("equal-100", _repeated(base + _equal(count, 100))),
        ("inside", inside),
        ("split-100", split),
        ("one-factor-100", _one_factor(base, 100)),
        ("split-20", _split(base, 20, rng)),
        ("equal-20", _repeated(base + _equal(count, 20))),
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


def _equal(count: int, budget: int) -> NDArray[np.int64]:
    return np.full(count, budget // count) + (np.arange(count) < budget % count)


def _repeated(demos: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], int]]:
    while True:
        yield demos, 0


def _one_factor(base: NDArray[np.int64], budget: int) -> Iterator[tuple[NDArray[np.int64], int]]:
    while True:
        for unit in np.eye(base.size, dtype=np.int64):
            yield base + budget * unit, 0


def _inside(base: NDArray[np.int64], rng: np.random.Generator) -> Iterator[tuple[NDArray[np.int64], int]]:
    """In turn a policy of the screening order and independent uniform numbers; never an empty set."""
    screen = screening_order(base.size)
    next(screen)  # everything
    while True:
        yield np.array([round(int(size) * part) for size, part in zip(base, next(screen), strict=True)]), 0
        drawn = rng.integers(0, base + 1)
        yield (drawn if drawn.any() else base), 0


def _split(base: NDArray[np.int64], budget: int, rng: np.random.Generator) -> Iterator[tuple[NDArray[np.int64], int]]:
    """In turn skewed and even random splits."""
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
        """The rows for which `keep` is true."""
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
    text, card = read_text(place), _card(place.with_name(CARD)) or {}
    factors: list[str] = []

    def header(columns: Sequence[str], where: str) -> None:
        factors.extend(name.removeprefix("demos:") for name in columns if name.startswith("demos:"))
        needed = [f"{prefix}{name}" for prefix in _PREFIXES for name in factors]
        check_columns(columns, where, (*_FIXED, "loss"), (*_FIXED, *needed), *_PREFIXES)

    try:
        rows = csv_table(text, header)
        numbers = {
            key: np.array([[whole_cell(row[name], f"{where}, column {name}") for name in names] for where, row in rows])
            for key, names in {
                "one": ("start", "seed", NOMINAL),
                **{prefix: [f"{prefix}{name}" for name in factors] for prefix in _PREFIXES},
            }.items()
        }
    except InvalidInput as error:
        raise error.at(str(place)) from None
    demos, successes, trials = (numbers[prefix] for prefix in _PREFIXES)
    if (trials < 1).any() or (successes > trials).any():
        raise InvalidInput("successes must not exceed trials, and trials must be at least 1", where=str(place))
    group = tuple(row["group"] for _, row in rows)
    start, seed, nominal = numbers["one"].T
    return PolicyTable(tuple(factors), group, start, seed, nominal, demos, successes, trials, card)


@dataclass(frozen=True)
class TableSettings:
    """How the policies of a table are trained and measured; written to `card.json`."""

    task: str
    policy: Mapping[str, Any]
    evaluation: Mapping[str, Any]
    # demonstrations per factor, and nominal ones, from which every policy draws its own
    pool: int = 200

    def to_mapping(self) -> dict[str, Any]:
        """Plain data for the card."""
        return {
            "task": self.task,
            "policy": dict(self.policy),
            "evaluation": dict(self.evaluation),
            "pool": self.pool,
        }


def build_table(
    folder: Path,
    settings: TableSettings,
    compositions: Sequence[Composition],
    work: Path,
    progress: Progress,
    *,
    device: str = "cpu",
    at_once: int = 16,
    workers: int = 1,
    provenance: Mapping[str, Any] | None = None,
) -> PolicyTable:
    """Train and measure the compositions that `folder` has no row for.

    Each of `workers` processes trains and measures `at_once` policies side by side. One process leaves a large GPU
    idle while it measures. Rows are written after every group of policies, so a table can be filled over several
    calls. Frames and policies lie in `work`; a policy is removed once it is measured.
    """
    _check_card(folder, settings)
    needed = max(max(c.nominal, *c.demos.values()) for c in compositions)
    if needed > settings.pool:
        raise NotEnoughData(f"a composition needs {needed} demonstrations of one factor, the pool has {settings.pool}")
    rows = _rows(folder)
    missing = [c for c in compositions if c.id not in rows]
    batches = [missing[start : start + at_once] for start in range(0, len(missing), at_once)]
    with _Group(settings, work, device, at_once) as group:
        measured = (
            _in_processes(group, batches, workers, progress) if workers > 1 else group.measured(batches, progress)
        )
        done = 0
        for batch in measured:
            done += len(batch)
            rows |= {row["id"]: row for row in batch if row}
            _write(folder, settings, rows, provenance or {})
            progress(min(done, len(missing)), len(missing), "policies")
    return read_table(folder)


class _Group:
    """Trains and measures groups of policies in this process."""

    def __init__(self, settings: TableSettings, work: Path, device: str, at_once: int) -> None:
        from factored_scaling.backends.simulation import Lab

        self.settings, self.work, self.device, self.at_once = settings, work, device, at_once
        self.lab = Lab(settings.task, work, device, settings.policy.get("image_size"))

    def __enter__(self) -> _Group:
        return self

    def __exit__(self, *_: object) -> None:
        close = getattr(self.lab.task, "close", None)
        if close is not None:
            close()

    def collect(self, progress: Progress) -> None:
        """Make the whole pool of demonstrations."""
        names = (*self.lab.task.factors, NOMINAL)
        self.lab.collect(dict.fromkeys(names, self.settings.pool), 0, progress)

    def measured(
        self, batches: Sequence[Sequence[Composition]], progress: Progress
    ) -> Iterator[list[dict[str, str] | None]]:
        """The rows of each batch in turn."""
        total, before = sum(map(len, batches)), 0
        for batch in batches:
            yield self.measure(batch, _within(progress, before, total))
            before += len(batch)

    def measure(self, batch: Sequence[Composition], progress: Progress) -> list[dict[str, str] | None]:
        """The batch's rows; None for a policy whose training failed."""
        from factored_scaling.backends.protocol import Context

        names = self.lab.task.factors
        runs = [_run(self.settings, names, composition) for composition in batch]
        folders = [self.work / "policies" / run.digest for run in runs]
        context = Context(progress, self.device, together=self.at_once)
        failures = self.lab.train_many(runs, folders, context)
        trained = [index for index, place in enumerate(folders) if place not in failures]
        trials: list[list[Trial]] = [[] for _ in trained]
        chosen, places = [runs[i] for i in trained], [folders[i] for i in trained]
        for index, trial in self.lab.evaluate_many(chosen, places, [context] * len(trained)):
            trials[index].append(trial)
        rows: list[dict[str, str] | None] = [None] * len(batch)
        for index, found in zip(trained, trials, strict=True):
            rows[index] = _row(batch[index], names, found, _loss(folders[index]))
        for place in folders:
            _remove(place)
        return rows


def _in_processes(
    group: _Group, batches: Sequence[Sequence[Composition]], workers: int, progress: Progress
) -> Iterator[list[dict[str, str] | None]]:
    """The rows of each batch as it is measured. The pool is made first, so that the processes only read it."""
    group.collect(progress)
    given = (group.settings, group.work, group.device, group.at_once)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawn, _start_process, given) as processes:
        waiting = [processes.submit(_measure_in_process, batch) for batch in batches]
        try:
            for future in as_completed(waiting):
                yield future.result()
        finally:
            processes.shutdown(cancel_futures=True)


_group: _Group | None = None  # of a process that `_in_processes` started


def _start_process(settings: TableSettings, work: Path, device: str, at_once: int) -> None:
    global _group
    prepare_cpu(device)
    _group = _Group(settings, work, device, at_once)


def _measure_in_process(batch: Sequence[Composition]) -> list[dict[str, str] | None]:
    assert _group is not None
    return _group.measure(batch, lambda done, total, note="": None)


def _run(settings: TableSettings, factors: Sequence[str], composition: Composition) -> RunSpec:
    """The composition's own draw from the pool."""
    rng = np.random.default_rng(composition.seed)
    counts = {**composition.demos, NOMINAL: composition.nominal}
    episodes = [
        f"{name}/{index}"
        for name in (*factors, NOMINAL)
        for index in sorted(rng.choice(settings.pool, counts[name], replace=False).tolist())
    ]
    evaluation = {**settings.evaluation, "factors": list(factors)}
    return RunSpec(tuple(episodes), dict(settings.policy), evaluation, composition.seed, settings.task)


def _row(composition: Composition, factors: Sequence[str], trials: Sequence[Trial], loss: float) -> dict[str, str]:
    scores = {name: [trial.score for trial in trials if trial.factor == (name,)] for name in factors}
    row: dict[str, object] = {
        "id": composition.id,
        "group": composition.group,
        "start": composition.start,
        "seed": composition.seed,
        NOMINAL: composition.nominal,
        **{f"demos:{name}": composition.demos[name] for name in factors},
        **{f"successes:{name}": round(sum(scores[name])) for name in factors},
        **{f"trials:{name}": len(scores[name]) for name in factors},
        "loss": f"{loss:.6f}",
    }
    return {key: str(value) for key, value in row.items()}


def _check_card(folder: Path, settings: TableSettings) -> None:
    known = _card(folder / CARD)
    if known is None:
        return
    new = json.loads(json.dumps(settings.to_mapping()))
    other = [key for key, value in new.items() if known.get(key) != value]
    if other:
        raise InvalidInput(
            f"holds a table with another {', '.join(other)}", where=str(folder), hint="give another folder"
        )


def _card(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    card = read_json(path)
    if not isinstance(card, dict):
        raise InvalidInput(f"expected an object, not {shown(card)}", where=str(path))
    return card


def _rows(folder: Path) -> dict[str, dict[str, str]]:
    path = folder / ROWS
    if not path.exists():
        return {}

    def header(columns: Sequence[str], where: str) -> None:
        check_columns(columns, where, (*_FIXED, "loss"), _FIXED, *_PREFIXES)

    return {row["id"]: row for _, row in read_rows(path, header)}


def _write(
    folder: Path, settings: TableSettings, rows: Mapping[str, Mapping[str, str]], provenance: Mapping[str, Any]
) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(next(iter(rows.values()))), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows.values())
    write_whole(folder / ROWS, text.getvalue().encode())
    card = {**settings.to_mapping(), "policies": len(rows), **provenance}
    write_whole(folder / CARD, (json.dumps(card, indent=1) + "\n").encode())


def _loss(folder: Path) -> float:
    return float(json.loads((folder / "policy.json").read_text(encoding="utf-8"))["final_loss"])


def _remove(folder: Path) -> None:
    for path in folder.glob("*"):
        path.unlink()
    if folder.exists():
        folder.rmdir()


def _within(progress: Progress, start: int, total: int) -> Progress:
    policies = total

    def report(done: int, total: int, note: str = "") -> None:
        progress(start, policies, f"{note} {done} of {total}")

    return report
