"""A worker on a machine of a cluster: `python -m factored_scaling.runner.remote JOB.json`.

The scheduler's job calls a `Worker`, which starts the worker as a process of its own and starts it again when it is
killed or the database is away for a while. SIGTERM asks the process to save a resume point, give its runs back and end.
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from factored_scaling.errors import FscError, InvalidInput, RunFailed, StoreUnreachable, hide_passwords
from factored_scaling.io.atomic import whole
from factored_scaling.runner.events import Event, RunEnded, RunProgress
from factored_scaling.runner.executors import Job, executor_class
from factored_scaling.runner.line import Stopped
from factored_scaling.runner.options import WORKER, WorkOptions
from factored_scaling.runner.queue import JOB_ID, RunQueue
from factored_scaling.runner.worker import work
from factored_scaling.store import Store
from factored_scaling.store.documents import JOBS
from factored_scaling.version import __version__

STOPPED, AGAIN = 76, 75  # exit codes: stopped at a safe point; the database was away
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)  # request a stop
PARENT = "FSC_PARENT"  # variable: the process that started the worker process
LOOK = 0.2  # seconds between two looks at the worker process
PATIENCE = 60.0  # seconds that a worker gets to reach a safe point
MOST_AWAY = 600.0  # seconds without a database after which a job gives up
GRACE = 600.0  # seconds after SIGTERM in which Slurm is expected to kill a job and queue it again
RETRY = 5.0  # seconds between two attempts to reach the database, and between two looks for a stop request
MOST_KILLED = 5  # times that a worker is killed
REASON = "error.txt"  # file beside JOB.json: why a worker could not start
ASK_EVERY = 30.0  # seconds between two checks whether workers that train are left
SHOWN_EVERY = 30.0  # seconds between two lines of progress in the scheduler's log


def write_job(job: Job, path: Path) -> None:
    """Write what a worker needs to a file that only the user can read: the address may hold a password."""
    data = {
        "version": __version__,
        "address": job.address,
        "study": job.study_id,
        "folder": str(job.folder),
        "options": asdict(job.options),
        "trainers": dict(job.trainers),
    }
    with whole(path) as partial:
        partial.chmod(0o600)
        partial.write_text(json.dumps(data, indent=2), encoding="utf-8")


def read_job(path: Path) -> Job:
    """Read what `write_job` wrote; an error where another version of the package wrote it."""
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if data["version"] != __version__:
        what = f"this machine has factored-scaling {__version__}, the one that submitted the job {data['version']}"
        raise InvalidInput(what, where=os.uname().nodename, hint="install the same version on both")
    options = WorkOptions(**data["options"])
    return Job(data["address"], data["study"], Path(data["folder"]), options, trainers=data["trainers"])


class RemoteLine:
    """A worker's connection on a cluster: events become lines of the scheduler's log, signals request a stop."""

    def __init__(self) -> None:
        self.trainers: Mapping[str, Any] = {}
        self._stopping = False
        self._asked = -math.inf
        # not getppid() alone: the parent may have died while this process imported its modules
        self._parent = int(os.environ.get(PARENT) or os.getppid())
        self._shown = 0.0

    def listen(self) -> None:
        """Treat signals as requests to stop: Slurm sends SIGUSR2 to all processes of a job before its time limit."""
        for number in SIGNALS:
            signal.signal(number, self._stop)

    @property
    def stopping(self) -> bool:
        """Whether to end at the next safe point: asked to, or orphaned because the job was killed."""
        return self._stopping or os.getppid() != self._parent

    @property
    def training(self) -> bool:
        """Whether workers that train are queued or running; the scheduler is queried every half minute."""
        if self.trainers and time.monotonic() - self._asked > ASK_EVERY:
            if not executor_class(self.trainers["executor"]).trains(self.trainers):
                self.trainers = {}
            self._asked = time.monotonic()
        return bool(self.trainers)

    def check(self) -> None:
        """Raise Stopped after a stop request."""
        if self.stopping:
            raise Stopped

    def say(self, event: Event) -> None:
        """Write the event to the log; progress every half minute."""
        if isinstance(event, RunProgress):
            if time.monotonic() - self._shown < SHOWN_EVERY:
                return
            self._shown = time.monotonic()
            print(f"runs {event.runs}: {event.stage} {event.done} of {event.total} {event.note}", flush=True)
        elif isinstance(event, RunEnded):
            print(f"run {event.run}: {event.state} {event.note}", flush=True)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True


def main(path: Path) -> int:
    """Work until no run is left, and return the exit code."""
    line = RemoteLine()
    line.listen()
    try:
        job = read_job(path)
        line.trainers = job.trainers
        work(line, job.address, job.study_id, job.folder, job.options)
    except Stopped:
        return STOPPED
    except FscError as error:
        reason = hide_passwords(str(error))
        print(reason, file=sys.stderr, flush=True)
        if isinstance(error, StoreUnreachable):
            return AGAIN
        with contextlib.suppress(OSError):
            (path.parent / REASON).write_text(f"{reason}\n", encoding="utf-8")
        return 1
    return STOPPED if line.stopping else 0


class Worker:
    """The body of a scheduler's job: keeps a worker process running until no run is left.

    Submitit pickles it, calls it in the job, and calls `checkpoint` when the job is about to be preempted or to end.
    `job` is the scheduler's id of the job, by default what Slurm says. `patience` is how many seconds the process gets
    to reach a safe point.
    """

    def __init__(self, path: str, job: str = "", patience: float = PATIENCE) -> None:
        self.path = path
        self._job = job
        self._patience = patience
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_process": None, "_stopping": False}

    def __call__(self) -> str:
        """Run worker processes one after the other; returns how the last one ended."""
        away_since: float | None = None
        killed = 0
        job = self._job or slurm_job()
        environment = {**os.environ, JOB_ID: job, PARENT: str(os.getpid())}
        while True:
            started = time.monotonic()
            command = [sys.executable, "-m", "factored_scaling.runner.remote", self.path]
            with _signals_delayed():  # `stop` must know the process
                self._process = subprocess.Popen(command, env=environment)
            while (code := self._process.poll()) is None:  # not wait(), which would keep `stop` from looking
                time.sleep(LOOK)
            if code == 0:
                return "no run is left"
            if code in (STOPPED, -signal.SIGTERM):  # the signal itself ends one that still imports its modules
                if self._stopping or not job.startswith("slurm:") or self._ends_in_grace():
                    return "stopped"
            elif code == AGAIN:
                if away_since is None or time.monotonic() - started > MOST_AWAY:
                    away_since = time.monotonic()
                if time.monotonic() - away_since > MOST_AWAY:
                    raise RunFailed(f"the database was away for {MOST_AWAY / 60:.0f} minutes")
                time.sleep(RETRY)
            elif code < 0 and killed < MOST_KILLED:
                killed += 1
                print(f"the worker was killed by signal {-code}; another one starts", file=sys.stderr, flush=True)
            else:
                raise RunFailed(f"the worker ended with exit code {code}", hint="the lines above say why")

    def stop(self) -> None:
        """End the worker process at a safe point, or when its patience is over."""
        self._stopping = True
        process = self._process
        if process is None:
            return
        process.terminate()
        until = time.monotonic() + self._patience
        while time.monotonic() < until and not _ended(process.pid):
            time.sleep(LOOK)
        process.kill()

    def checkpoint(self) -> Any:
        """Save a resume point; the same work is submitted again."""
        from submitit.helpers import DelayedSubmission

        self.stop()
        return DelayedSubmission(self)

    def _ends_in_grace(self) -> bool:
        """Wait until Slurm kills a preempted job; True if the job is to end, False if it was not preempted.

        Slurm sends SIGTERM at the beginning of the partition's GraceTime. A job that ends by itself in this time counts
        as completed; one that is killed at the end of it is queued again.
        """
        until = time.monotonic() + GRACE
        while not (ends := stop_requested(Path(self.path))) and time.monotonic() < until:
            time.sleep(RETRY)
        return ends


def stop_requested(path: Path) -> bool:
    """Whether the record asks the workers of JOB.json to end; False where it cannot be read."""
    try:
        job = read_job(path)
        with Store.open(job.address, create=False) as store:
            submission = store.document(job.study_id, JOBS, path.parent.name) or {}
            return RunQueue(store, job.study_id).stop_requested() is not None or bool(submission.get("cancelled"))
    except (FscError, OSError):
        return False


def slurm_job() -> str:
    """The id of the Slurm job that this process belongs to, as squeue shows it; empty elsewhere."""
    array, task = (os.environ.get(f"SLURM_ARRAY_{name}_ID") for name in ("JOB", "TASK"))
    found = f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID")
    return f"slurm:{found}" if found else ""


@contextlib.contextmanager
def _signals_delayed() -> Iterator[None]:
    """Handle requests to stop after the block: signals, and the KeyboardInterrupt with which Ray cancels a task."""
    if threading.current_thread() is not threading.main_thread():  # others handle no signals
        yield
        return
    arrived: list[int] = []
    # None is a handler from outside Python, which could not be put back
    before = {number: handler for number in SIGNALS if (handler := signal.getsignal(number)) is not None}
    for number in before:
        signal.signal(number, lambda number, frame: arrived.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for missed in arrived:
            signal.raise_signal(missed)


def _ended(pid: int) -> bool:
    """Whether a child has ended. Its exit code stays available, because `stop` may interrupt a wait for it."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


if __name__ == "__main__":
    multiprocessing.current_process().name = WORKER
    sys.exit(main(Path(sys.argv[1])))
