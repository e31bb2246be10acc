"""Workers: they lease pending runs of a study, train and measure policies, and record the results."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Literal

from factored_scaling.backends import Backend, load_backend, trains_in_process
from factored_scaling.errors import InvalidInput, LeaseLost
from factored_scaling.machine import prepare_device
from factored_scaling.runner.carry_out import LOG, carry_out_together
from factored_scaling.runner.events import RunEnded
from factored_scaling.runner.line import Line
from factored_scaling.runner.options import WorkOptions
from factored_scaling.runner.queue import Run, RunQueue
from factored_scaling.store import RunOutline, RunRow, Store

MOST_ALIKE = 3  # workers stop after so many runs failed with the same error and none succeeded
WAIT = 0.5  # seconds between two looks at runs that others hold


def work(
    line: Line,
    address: str | Path,
    study_id: int,
    folder: Path,
    options: WorkOptions,
    backend: Backend | None = None,
) -> None:
    """Carry out runs until none is left, waiting for runs of other workers, which come back if their worker dies.

    A worker that only evaluates also waits for policies while `line.training` is true. Without a `backend`, the one
    that the options name is created for each run's settings.
    """
    if trains_in_process(options.backend):
        prepare_device(options.device, options.threads)
    with RunQueue(Store.open(address, create=False), study_id) as queue:
        unfinished = {run.id for run in queue.store.outline(queue.id) if run.state in ("pending", "running")}
        is_given, settings = backend is not None, None
        idle_since: float | None = None
        succeeded = False  # after one success every run is tried
        while not line.stopping and queue.stop_requested() is None:
            if not succeeded:
                states = Counter[str](run.state for run in queue.store.outline(queue.id) if run.id in unfinished)
                succeeded = bool(states["done"] or states["trained"])
                if not succeeded and states["failed"] >= MOST_ALIKE and _failed_alike(queue, unfinished):
                    return
            leased = take_alike(queue, options)
            if not leased:
                coming = _coming(queue, line, options)
                if coming is None:
                    return
                idle_since = None if coming == "policies" else idle_since or time.monotonic()
                waited = 0.0 if idle_since is None else time.monotonic() - idle_since
                if options.idle_seconds is not None and waited > options.idle_seconds:
                    return
                time.sleep(WAIT)
                continue
            idle_since = None
            if backend is None or not (is_given or settings == leased[0].spec.settings):
                try:
                    backend = load_backend(options.backend, leased[0].spec, folder, options.device or None)
                    settings = leased[0].spec.settings
                except InvalidInput as error:  # these runs are older than the checked study.yaml
                    for run in leased:
                        queue.fail(run.id, str(error))
                        line.say(RunEnded(run.id, "failed", str(error)))
                    continue
            carry_out_together(queue, leased, backend, line, options, folder)


def _coming(queue: RunQueue, line: Line, options: WorkOptions) -> Literal["policies", "runs"] | None:
    """What an idle worker waits for: policies to be trained, or runs of other workers that may be released."""
    left = _unfinished(queue)
    if options.stage == "evaluate" and any(run.policy is None for run in left):
        if line.training:
            return "policies"
        left = _unfinished(queue)  # the last trainer may have handed over a run before it ended
    if options.stage is not None:
        left = [run for run in left if (run.policy is None) == (options.stage == "train")]
    return "runs" if left else None


def _unfinished(queue: RunQueue) -> list[RunOutline]:
    return [run for run in queue.store.outline(queue.id) if run.state in ("pending", "running")]


def _failed_alike(queue: RunQueue, ids: Collection[int]) -> bool:
    """Whether all failures have the same reason and all runs the same settings.

    Runs with other settings, from before a change of study.yaml, may succeed.
    """
    runs = queue.store.some_runs(list(ids))
    alike = all(run.settings == runs[0].settings for run in runs)
    return alike and len({_reason(run) for run in runs if run.state == "failed"}) == 1


def _reason(run: RunRow) -> str:
    """The run's error without its digest, log path and numbers, so that errors of different runs can be compared."""
    return re.sub(r"\d+", "", (run.error or "").partition(LOG)[0].replace(run.digest, ""))


def take_alike(queue: RunQueue, options: WorkOptions) -> list[Run]:
    """Lease the next runs for a worker: as many as it takes at once, all with the same settings.

    Settings differ between runs when study.yaml was changed.
    """
    leased = queue.ask(1, lease_seconds=options.lease_seconds, stage=options.stage)
    if not leased or options.runs_at_once == 1:
        return leased
    for row in sorted(queue.runs(), key=lambda row: -max(row.rounds)):  # as ask() takes them
        if len(leased) == options.runs_at_once:
            break
        if row.id == leased[0].id or row.settings != leased[0].spec.settings:
            continue
        if row.state in ("pending", "running"):  # a dead worker's run can be taken
            with suppress(LeaseLost):
                leased.append(queue.take(row.id, lease_seconds=options.lease_seconds, stage=options.stage))
    return leased
