"""Worker processes on this machine: start them, restart them when killed, and stop them cleanly."""

from __future__ import annotations

import math
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event as StopEvent
from types import FrameType
from typing import Any

from factored_scaling.backends import backend_class
from factored_scaling.core.checks import whole
from factored_scaling.errors import FscError, RunFailed
from factored_scaling.machine import without_script
from factored_scaling.runner.events import Event
from factored_scaling.runner.executors import Job, split_stages
from factored_scaling.runner.executors.threads import PATIENCE, run_threads
from factored_scaling.runner.line import Stopped
from factored_scaling.runner.options import WORKER
from factored_scaling.runner.worker import work

_RESTARTS = 5  # of workers that keep dying
_SAME = 1.0  # seconds in which further signals repeat the first: some senders signal a process and its group
_LOOK = 0.2  # seconds between two looks at whether workers live and whether to stop
_ENDS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]  # Windows has no SIGHUP


class LocalExecutor:
    """Worker processes on this machine; threads for a backend that is an object of this process.

    With `evaluators`, the workers only train, and as many additional workers on the CPU measure the policies.
    """

    def __init__(self, *, evaluators: int = 0) -> None:
        self._evaluators = whole(evaluators, "executor.evaluators", least=0, what="number of evaluators")

    def count(self, job: Job, waiting: int, workers: int | None) -> int:
        """One worker per core where a worker keeps one core busy, else one.

        An external program may need the whole machine, and two workers would compete for the memory of one GPU.
        """
        options = job.options
        one_core = bool(options.backend) and getattr(backend_class(options.backend), "one_core", False)
        cores = max(1, (os.cpu_count() or 1) - self._evaluators)
        usual = cores if options.device == "cpu" and one_core else 1
        return min(workers or usual, math.ceil(waiting / options.runs_at_once))

    def run(self, job: Job, workers: int, on_event: Callable[[Event], None]) -> bool:
        """Run the workers until no run is left; False when stopped by Ctrl-C, SIGTERM or SIGHUP."""
        if job.backend is not None:
            return run_threads(job, workers, on_event, self._evaluators)
        options, share = job.options, max(1, (os.cpu_count() or 1) // (workers + self._evaluators))
        found = backend_class(options.backend)
        in_process, one_core = (getattr(found, name, False) for name in ("in_process", "one_core"))
        if in_process:
            from factored_scaling.policies.capacity import check_device

            check_device(options.device)
        # A simulator with processes of its own divides the cores among the workers.
        environment = {"FSC_SIM_PROCESSES": str(share)}
        if in_process and not one_core:
            # A robot's images are larger than the simulator's and keep several cores busy. Waiting threads must sleep:
            # spinning threads take the core from the thread they wait for when other programs run.
            options = replace(options, threads=share)
            environment["OMP_WAIT_POLICY"] = "passive"
        own, theirs = split_stages(options, self._evaluators)
        arguments = job.address, job.study_id, job.folder
        with _variables(environment):
            return run_workers(
                workers, work, (*arguments, own), on_event, evaluators=self._evaluators, evaluate=(*arguments, theirs)
            )


class ProcessLine:
    """A worker's connection to the process that started it."""

    def __init__(self, messages: Any, stop: StopEvent, trained: StopEvent, parent: int) -> None:
        self.ending = False  # only this worker was asked to end
        self._messages = messages
        self._stop = stop
        self._trained = trained
        self._parent = parent

    def say(self, event: Event) -> None:
        """Send an event to the parent."""
        self._messages.put(event)

    @property
    def stopping(self) -> bool:
        """Whether to end at the next safe point: asked to, or orphaned because the parent was killed."""
        return self.ending or self._stop.is_set() or os.getppid() != self._parent

    @property
    def training(self) -> bool:
        """Whether workers that train are running."""
        return not self._trained.is_set()

    def check(self) -> None:
        """Raise Stopped when a stop was requested: a safe point."""
        if self.stopping:
            raise Stopped


def run_workers(
    count: int,
    entry: Callable[..., None],
    arguments: tuple[Any, ...],
    hear: Callable[[Any], None],
    *,
    evaluators: int = 0,
    evaluate: tuple[Any, ...] = (),
) -> bool:
    """Run `entry(line, *arguments)` in `count` fresh processes until all return; False when stopped by Ctrl-C.

    In addition, `evaluators` processes run with the arguments `evaluate`; their lines tell when the others end. A
    worker that is killed (by hand, or out of memory) is restarted, up to five times in all. A worker that raises ends
    all with RunFailed. The first Ctrl-C, SIGTERM or SIGHUP asks the workers to end at a safe point, the second ends
    them at once. SIGTERM and SIGHUP may come to all processes, as `timeout`, schedulers and terminals send them.
    An exception of `hear` stops the workers as well, and is raised when they have ended.
    """
    context = multiprocessing.get_context("spawn")
    with _blocked(*_ENDS):  # of multiprocessing's own process for semaphores, which would not survive SIGHUP
        messages, stop, trained = context.Queue(), context.Event(), context.Event()

    broken: list[str] = []
    failed: list[BaseException] = []  # what went wrong in this process
    workers: dict[SpawnProcess, tuple[Any, ...]] = {}

    def start(given: tuple[Any, ...]) -> None:
        lines = messages, stop, trained, os.getpid()
        process = context.Process(target=_worker, name=WORKER, args=(entry, lines, given), daemon=False)
        try:
            with without_script(), _blocked(signal.SIGINT):  # a worker ignores it after its imports, see _worker
                process.start()
        except BaseException as error:
            failed.append(error)
        else:
            workers[process] = given

    def listen(seconds: float) -> bool:
        try:
            message = messages.get(timeout=seconds)
        except queue.Empty:
            return False
        if isinstance(message, _Broken):
            broken.append(message.reason)
            stop.set()
        elif not failed:
            try:
                hear(message)
            except BaseException as error:
                failed.append(error)
        return True

    interrupts = _Interrupts()
    with interrupts:
        for mine in [arguments] * count + [evaluate] * evaluators:
            start(mine)
        restarts, since = _RESTARTS, math.inf
        while workers:
            until = time.monotonic() + _LOOK  # even if messages keep arriving
            while (left := until - time.monotonic()) > 0:
                listen(left)
            if interrupts.count or failed:
                stop.set()
                since = min(since, time.monotonic())
            if interrupts.count > 1 or time.monotonic() - since > PATIENCE:
                for worker in workers:
                    worker.kill()
            for worker in [one for one in workers if not one.is_alive()]:
                mine = workers.pop(worker)
                if worker.exitcode and not stop.is_set():
                    if restarts == 0:
                        broken.append(f"killed again and again (last exit code {worker.exitcode})")
                        stop.set()
                        break
                    restarts -= 1
                    start(mine)
            if evaluators and arguments not in workers.values():
                trained.set()
        while listen(0.05):
            pass
    if failed:
        raise failed[0]
    if broken:
        raise RunFailed(f"a worker ended: {broken[0]}", hint="recorded results are kept; fix the cause and run again")
    return not interrupts.count


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Environment variables of processes that are started here; the user's own count more."""
    new = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)


@contextmanager
def _blocked(*numbers: signal.Signals) -> Iterator[None]:
    """Block signals in processes that are started here. This process gets them when the block ends."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True)
class _Broken:
    """The error that ended a worker."""

    reason: str


class _Interrupts:
    """Counts Ctrl-C, SIGTERM and SIGHUP instead of exiting. Only the main thread can handle signals."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._before: dict[int, Any] = {}

    @property
    def count(self) -> int:
        """The number of signals; those that come with the first count once."""
        times = list(self._times)
        return min(1, len(times)) + sum(when > times[0] + _SAME for when in times)

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, *_ending()):
                self._before[number] = signal.signal(number, self._note)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        # no more than this: a signal may interrupt this function, or one that holds a lock
        self._times.append(time.monotonic())


def _ending() -> list[signal.Signals]:
    """Signals beside Ctrl-C that end the work in order. `nohup` has SIGHUP ignored, which stays so."""
    return [number for number in _ENDS if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN]


def _worker(
    entry: Callable[..., None], lines: tuple[Any, StopEvent, StopEvent, int], arguments: tuple[Any, ...]
) -> None:
    messages = lines[0]
    line = ProcessLine(*lines)

    def end(number: int, frame: FrameType | None) -> None:
        line.ending = True

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides; a terminal sends Ctrl-C to everyone
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # programs that it starts inherit the mask
    for number in _ending():
        signal.signal(number, end)
    try:
        entry(line, *arguments)
    except Stopped:
        pass
    except FscError as error:
        messages.put(_Broken(str(error)))
    except Exception as error:
        traceback.print_exc()
        messages.put(_Broken(f"{type(error).__name__}: {error}"))
    if line.ending:
        sys.exit(128 + signal.SIGTERM)  # tells the parent that this worker was killed
