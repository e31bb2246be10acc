"""Workers as threads of this process, for functions and backend objects that need not be importable."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable

from factored_scaling.runner.events import Event, Warned
from factored_scaling.runner.executors import Job, split_stages
from factored_scaling.runner.line import Stopped
from factored_scaling.runner.options import WorkOptions
from factored_scaling.runner.worker import work

PATIENCE = 60.0  # seconds that a worker gets to reach a safe point after a stop
_LOOK = 0.2  # seconds between two checks of the threads


class ThreadLine:
    """A worker thread's connection to the thread that started it."""

    def __init__(self, say: Callable[[Event], None], stop: threading.Event, trained: threading.Event) -> None:
        self.say = say
        self._stop = stop
        self._trained = trained

    @property
    def stopping(self) -> bool:
        """Whether to end at the next safe point."""
        return self._stop.is_set()

    @property
    def training(self) -> bool:
        """Whether workers that train are running."""
        return not self._trained.is_set()

    def check(self) -> None:
        """Raise Stopped after a stop request."""
        if self._stop.is_set():
            raise Stopped


def run_threads(job: Job, workers: int, on_event: Callable[[Event], None], evaluators: int = 0) -> bool:
    """Run the job's backend in `workers` threads; False when stopped by Ctrl-C. `evaluators` threads are added.

    A single worker runs in the calling thread: it may use the terminal and a debugger, and Ctrl-C ends it at once.
    Several workers finish their current runs. A worker that raises ends all. So does an exception of `on_event`, which
    is raised when the workers have ended.
    """
    stop, trained = threading.Event(), threading.Event()
    own, theirs = split_stages(job.options, evaluators)
    failed: list[BaseException] = []  # what `on_event` raised
    if workers == 1 and not evaluators:

        def say(event: Event) -> None:
            """Keep the error: raised here, it would count as one of the run."""
            try:
                if not failed:
                    on_event(event)
            except (Exception, SystemExit) as error:
                failed.append(error)
                stop.set()

        try:
            _work(job, own, ThreadLine(say, stop, trained))
        except Stopped:
            pass
        except KeyboardInterrupt:
            return False
        if failed:
            raise failed[0]
        return True
    events: queue.Queue[Event] = queue.Queue()
    broken: list[BaseException] = []

    def entry(options: WorkOptions) -> None:
        try:
            _work(job, options, ThreadLine(events.put, stop, trained))
        except Stopped:
            pass
        except BaseException as error:
            broken.append(error)
            stop.set()

    threads = [
        threading.Thread(target=entry, args=(own if k <= workers else theirs,), name=f"worker-{k}", daemon=True)
        for k in range(1, workers + evaluators + 1)
    ]
    interrupted, until = False, math.inf
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads) or not events.empty():
            if not any(thread.is_alive() for thread in threads[:workers]):
                trained.set()
            if time.monotonic() > until:
                break
            try:
                event = _next(events)
                if event is not None and not failed:
                    on_event(event)
            except KeyboardInterrupt:
                if interrupted:
                    raise
                interrupted = True
                stop.set()
                events.put(Warned("the study stops after the calls in progress; Ctrl-C again does not wait for them"))
            except BaseException as error:
                failed.append(error)
                until = time.monotonic() + PATIENCE
                stop.set()
    finally:
        stop.set()
    if failed:
        raise failed[0]
    if broken:
        raise broken[0]
    return not interrupted


def _next(events: queue.Queue[Event]) -> Event | None:
    try:
        return events.get(timeout=_LOOK)
    except queue.Empty:
        return None


def _work(job: Job, options: WorkOptions, line: ThreadLine) -> None:
    work(line, job.address, job.study_id, job.folder, options, job.backend)
