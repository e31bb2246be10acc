"""Carrying out a study's pending runs: workers that lease, train, measure, record, and survive being killed.

A worker carries out one run, or a group of them as one job. A group that fails as a whole is halved and goes on from
its checkpoints, so that the run whose fault it was ends up alone with its reason, and a group that is too large becomes
smaller.
"""

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
from factored_scaling.machine import prepare_cpu
from factored_scaling.runner.carry_out import LOG, carry_out_together
from factored_scaling.runner.events import RunEnded
from factored_scaling.runner.line import Line
from factored_scaling.runner.options import WorkOptions
from factored_scaling.runner.queue import Run, RunQueue
from factored_scaling.store import RunOutline, RunRow, Store

MOST_ALIKE = 3  # runs that fail for one reason, and none that comes to anything: the others would fail, too
WAIT = 0.5  # seconds between two looks at runs that others hold


def work(
    line: Line,
    address: str | Path,
    study_id: int,
    folder: Path,
    options: WorkOptions,
    backend: Backend | None = None,
) -> None:
    """Take runs until none is left. Waits for runs that others hold: if their worker dies, they come back.

    A worker that only evaluates also waits for the policies that others train, for as long as `line.training`. Without
    a `backend` it is the one that the options name, made for each run's settings.
    """
    if trains_in_process(options.backend):
        prepare_cpu(options.device, options.threads)
    with RunQueue(Store.open(address, create=False), study_id) as queue:
        begun = {run.id for run in queue.store.outline(queue.id) if run.state in ("pending", "running")}
        given, settings = backend is not None, None
        idle_since: float | None = None
        succeeded = False  # one of them: the others are worth trying
        while not line.stopping and queue.stop_requested() is None:
            if not succeeded:
                states = Counter[str](run.state for run in queue.store.outline(queue.id) if run.id in begun)
                succeeded = bool(states["done"] or states["trained"])
                if not succeeded and states["failed"] >= MOST_ALIKE and _failed_alike(queue, begun):
                    return
            taken = take_alike(queue, options)
            if not taken:
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
            if backend is None or not (given or settings == taken[0].spec.settings):
                try:
                    backend = load_backend(options.backend, taken[0].spec, folder, options.device or None)
                    settings = taken[0].spec.settings
                except InvalidInput as error:  # study.yaml was checked, but these runs are from before it was changed
                    for run in taken:
                        queue.fail(run.id, str(error))
                        line.say(RunEnded(run.id, "failed", str(error)))
                    continue
            carry_out_together(queue, taken, backend, line, options, folder)


def _coming(queue: RunQueue, line: Line, options: WorkOptions) -> Literal["policies", "runs"] | None:
    """What a worker without a run waits for: policies that others train, or runs that others hold and may give back."""
    left = _unfinished(queue)
    if options.stage == "evaluate" and any(run.policy is None for run in left):
        if line.training:
            return "policies"
        left = _unfinished(queue)  # the last that trained may have handed a run over before it ended
    if options.stage is not None:
        left = [run for run in left if (run.policy is None) == (options.stage == "train")]
    return "runs" if left else None


def _unfinished(queue: RunQueue) -> list[RunOutline]:
    return [run for run in queue.store.outline(queue.id) if run.state in ("pending", "running")]


def _failed_alike(queue: RunQueue, begun: Collection[int]) -> bool:
    """Whether those of these runs that failed did so for the same reason.

    Where some are from before a change of study.yaml, their reason need not be that of the others.
    """
    runs = queue.store.some_runs(list(begun))
    alike = all(run.settings == runs[0].settings for run in runs)
    return alike and len({_reason(run) for run in runs if run.state == "failed"}) == 1


def _reason(run: RunRow) -> str:
    """Why the run failed, without what is its own: where its files lie, sizes, and the time in a program's lines."""
    return re.sub(r"\d+", "", (run.error or "").partition(LOG)[0].replace(run.digest, ""))


def take_alike(queue: RunQueue, options: WorkOptions) -> list[Run]:
    """The next runs for a worker, as many as it takes at once and as have the same settings.

    Those from before a change of study.yaml have others.
    """
    taken = queue.ask(1, lease_seconds=options.lease_seconds, stage=options.stage)
    if not taken or options.runs_at_once == 1:
        return taken
    for row in sorted(queue.runs(), key=lambda row: -max(row.rounds)):  # as ask() takes them
        if len(taken) == options.runs_at_once:
            break
        if row.id == taken[0].id or row.settings != taken[0].spec.settings:
            continue
        if row.state in ("pending", "running"):  # a dead worker's run can be taken
            with suppress(LeaseLost):
                taken.append(queue.take(row.id, lease_seconds=options.lease_seconds, stage=options.stage))
    return taken
