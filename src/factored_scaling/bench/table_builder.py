"""Build a table of trained policies: train and measure compositions, in one process or several."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from factored_scaling.bench.policy_tables import (
    CARD,
    FIXED,
    NOMINAL,
    PREFIXES,
    ROWS,
    Composition,
    PolicyTable,
    read_card,
    read_table,
)
from factored_scaling.core.design import RunSpec
from factored_scaling.core.trials import Trial
from factored_scaling.errors import InvalidInput, NotEnoughData
from factored_scaling.io.tables import check_columns, table_csv
from factored_scaling.io.text import read_table as read_rows
from factored_scaling.io.text import write_text
from factored_scaling.machine import prepare_device
from factored_scaling.progress import Progress


@dataclass(frozen=True)
class TableSettings:
    """How the policies of a table are trained and measured; written to `card.json`."""

    task: str
    policy: Mapping[str, Any]
    evaluation: Mapping[str, Any]
    # demonstrations per factor, and nominal ones, from which policies draw theirs
    pool: int = 200


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
    """Train and measure the compositions that have no row in `folder`.

    Each of `workers` processes trains and measures `at_once` policies side by side. One process leaves a large GPU
    idle while it measures. Rows are written after every group of policies, so a table can be filled over several
    calls. `work` holds frames and policies; measured policies are removed.
    """
    _check_card(folder, settings)
    needed = max(max(c.nominal, *c.demos.values()) for c in compositions)
    if needed > settings.pool:
        raise NotEnoughData(f"a composition needs {needed} demonstrations of one factor, the pool has {settings.pool}")
    rows = _rows(folder)
    missing = [c for c in compositions if c.id not in rows]
    batches = [missing[start : start + at_once] for start in range(0, len(missing), at_once)]
    with closing(_Group(settings, work, device, at_once)) as group:
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

    def close(self) -> None:
        """End the simulator's processes, if it has any; they start again when they are needed."""
        close = getattr(self.lab.task, "close", None)
        if close is not None:
            close()

    def collect(self, progress: Progress) -> None:
        """Demonstrate the whole pool."""
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
            shutil.rmtree(place, ignore_errors=True)
        return rows


def _in_processes(
    group: _Group, batches: Sequence[Sequence[Composition]], workers: int, progress: Progress
) -> Iterator[list[dict[str, str] | None]]:
    """The rows of each batch as it is measured. The pool is created first, so that the processes only read it."""
    group.collect(progress)
    group.close()  # frees the memory of its simulator
    given = (group.settings, group.work, group.device, group.at_once, max(1, (os.cpu_count() or 1) // workers))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawn, _start_process, given) as processes:
        waiting = [processes.submit(_measure_in_process, batch) for batch in batches]
        try:
            for future in as_completed(waiting):
                yield future.result()
        finally:
            processes.shutdown(cancel_futures=True)


_group: _Group | None = None  # of a process that `_in_processes` started


def _start_process(settings: TableSettings, work: Path, device: str, at_once: int, share: int) -> None:
    global _group
    os.environ.setdefault("FSC_SIM_PROCESSES", str(share))
    prepare_device(device)
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
    known = read_card(folder / CARD)
    if known is None:
        return
    new = json.loads(json.dumps(asdict(settings)))
    other = [key for key, value in new.items() if known.get(key) != value]
    if other:
        raise InvalidInput(
            f"holds a table with another {', '.join(other)}", where=str(folder), hint="give another folder"
        )


def _rows(folder: Path) -> dict[str, dict[str, str]]:
    path = folder / ROWS
    if not path.exists():
        return {}

    def header(columns: Sequence[str], where: str) -> None:
        check_columns(columns, where, (*FIXED, "loss"), FIXED, *PREFIXES)

    return {row["id"]: row for _, row in read_rows(path, header)}


def _write(
    folder: Path, settings: TableSettings, rows: Mapping[str, Mapping[str, str]], provenance: Mapping[str, Any]
) -> None:
    header = list(next(iter(rows.values())))
    write_text(folder / ROWS, table_csv(header, ([row[column] for column in header] for row in rows.values())))
    card = {**asdict(settings), "policies": len(rows), **provenance}
    write_text(folder / CARD, json.dumps(card, indent=1) + "\n")


def _loss(folder: Path) -> float:
    return float(json.loads((folder / "policy.json").read_text(encoding="utf-8"))["final_loss"])


def _within(progress: Progress, start: int, total: int) -> Progress:
    policies = total

    def report(done: int, total: int, note: str = "") -> None:
        progress(start, policies, f"{note} {done} of {total}")

    return report
