"""Workers: they lease pending runs of a study, train and measure policies, and record the results."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from factored_scaling.backends import Backend, load_backend, trains_in_process
from factored_scaling.errors import InvalidInput, LeaseLost, StoreUnreachable
from factored_scaling.machine import prepare_device
from factored_scaling.runner.carry_out import LOG, STORE_PATIENCE, carry_out_together, exited, give_back
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
    that the options name is created for each run's settings. While the database is away it waits, for five minutes.
    """
    if trains_in_process(options.backend):
        prepare_device(options.device, options.threads)
    with RunQueue(Store.open(address, create=False), study_id) as queue:
        worker = _Worker(queue, line, folder, options, backend)
        while True:
            try:
                if not worker.go_on():
                    return
            except StoreUnreachable:
                if worker.away() > STORE_PATIENCE:
                    raise
                time.sleep(WAIT)


class _Worker:
    """Takes runs, one group after the other."""

    def __init__(
        self, queue: RunQueue, line: Line, folder: Path, options: WorkOptions, backend: Backend | None
    ) -> None:
        self._queue = queue
        self._line = line
        self._folder = folder
        self._options = options
        self._backend = backend
        self._is_given = backend is not None
        self._settings: Mapping[str, Any] | None = None  # of the runs that the backend was made for
        self._ids = {run.id for run in _unfinished(queue)}  # of the runs that were left when it started
        self._succeeded = False  # after one success every run is tried
        self._idle_since: float | None = None
        self._away_since: float | None = None

    def go_on(self) -> bool:
        """Carry out the next runs, or wait for some; False when none can come any more."""
        queue, options = self._queue, self._options
        if self._line.stopping or queue.stop_requested() is not None or self._all_fail_alike():
            return False
        leased = take_alike(queue, options)
        self._away_since = None  # the database answered
        if not leased:
            return self._wait()
        self._idle_since = None
        try:
            backend = self._backend_of(leased)
        except BaseException:
            give_back(queue, leased)
            raise
        if backend is not None:
            carry_out_together(queue, leased, backend, self._line, options, self._folder)
        return True

    def away(self) -> float:
        """Seconds since the database was first found not to answer."""
        self._away_since = self._away_since or time.monotonic()
        return time.monotonic() - self._away_since

    def _all_fail_alike(self) -> bool:
        """Whether nothing has succeeded and enough runs have failed with the same error."""
        if self._succeeded:
            return False
        outline = self._queue.store.outline(self._queue.id)
        states = Counter[str](run.state for run in outline if run.id in self._ids)
        self._succeeded = bool(states["done"] or states["trained"])
        return not self._succeeded and states["failed"] >= MOST_ALIKE and _failed_alike(self._queue, self._ids)

    def _wait(self) -> bool:
        """Wait a moment for policies or runs of others; False when none can come, or it took too long."""
        coming = _coming(self._queue, self._line, self._options)
        if coming is None:
            return False
        self._idle_since = None if coming == "policies" else self._idle_since or time.monotonic()
        waited = 0.0 if self._idle_since is None else time.monotonic() - self._idle_since
        if self._options.idle_seconds is not None and waited > self._options.idle_seconds:
            return False
        time.sleep(WAIT)
        return True

    def _backend_of(self, leased: Sequence[Run]) -> Backend | None:
        """The backend for these runs; None where it cannot be made, which is an error of the runs."""
        settings = leased[0].spec.settings
        if self._backend is None or not (self._is_given or self._settings == settings):
            try:
                device = self._options.device or None
                self._backend = load_backend(self._options.backend, leased[0].spec, self._folder, device)
                self._settings = settings
            except (InvalidInput, SystemExit) as error:  # these runs are older than the checked study.yaml
                reason = str(exited(error) if isinstance(error, SystemExit) else error)
                for run in leased:
                    self._queue.fail(run.id, reason)
                    self._line.say(RunEnded(run.id, "failed", reason))
                return None
        return self._backend


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
    try:
        for row in sorted(queue.runs(), key=lambda row: -max(row.rounds)):  # as ask() takes them
            if len(leased) == options.runs_at_once:
                break
            if row.id == leased[0].id or row.settings != leased[0].spec.settings:
                continue
            if row.state in ("pending", "running"):  # a dead worker's run can be taken
                with suppress(LeaseLost):
                    leased.append(queue.take(row.id, lease_seconds=options.lease_seconds, stage=options.stage))
    except BaseException:
        give_back(queue, leased)
        raise
    return leased
