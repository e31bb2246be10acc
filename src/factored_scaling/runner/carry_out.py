"""Carry out one run, or a group of runs as one job, from the lease to the result.

A group that fails is split in half, and each half continues from its checkpoints. A faulty run ends up alone with its
error, and a group that is too large becomes smaller.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from factored_scaling.backends import Backend, Context, Embeddings
from factored_scaling.core.checks import shown
from factored_scaling.core.proxy import nearest_means
from factored_scaling.core.trials import Measurement, Trial
from factored_scaling.errors import (
    CheckpointError,
    FscError,
    InvalidInput,
    LeaseLost,
    RunFailed,
    StoreError,
    StoreUnreachable,
)
from factored_scaling.progress import PREPARING
from factored_scaling.runner.events import RunEnded, RunProgress, Stage
from factored_scaling.runner.line import Line, Stopped
from factored_scaling.runner.options import WorkOptions, run_folder
from factored_scaling.runner.queue import Run, RunQueue
from factored_scaling.store import Document
from factored_scaling.store.documents import SIMILARITY, TRAINED

CHUNK = 256  # trials that are recorded together
MOST_DEATHS = 5
ALONE_AFTER = 3  # deaths after which a run is no longer taken together with others
STORE_PATIENCE = 300.0  # seconds that a worker waits for an unreachable database before it gives up
RELEASE_PATIENCE = 15.0  # seconds that it tries to give its runs back; it may be about to be killed
LOG = " (log: "  # between the reason of a failure and the path of its log


def carry_out(
    queue: RunQueue, run: Run, backend: Backend, line: Line, options: WorkOptions, folder: Path | None = None
) -> None:
    """Carry out one run. An error is stored with the run; a stop releases it unfinished."""
    carry_out_together(queue, [run], backend, line, options, folder)


def carry_out_together(
    queue: RunQueue, runs: Sequence[Run], backend: Backend, line: Line, options: WorkOptions, folder: Path | None = None
) -> None:
    """Carry out runs as one job where the backend supports it; each succeeds or fails alone.

    `folder` is the study's folder, by default the backend's.
    """
    home: Path = folder if folder is not None else backend.folder  # type: ignore[attr-defined]
    with ExitStack() as stack:
        members: list[_Member] = []
        try:
            members += (_member(run, home) for run in runs)
            group = _Group(queue, backend, line, options)
            stack.enter_context(_heartbeat(queue, members, options, group.stop_now))
            group.carry_out([member for member in members if group.deaths(member) < ALONE_AFTER])
            for member in members:
                group.carry_out([member])
        except BaseException as error:
            stopped = isinstance(error, Stopped | KeyboardInterrupt)
            for member in members:
                if not member.closed:
                    member.write("stopped" if stopped else f"given back: {type(error).__name__}: {error}")
            closed = {member.run.id for member in members if member.closed}
            give_back(queue, [run for run in runs if run.id not in closed])
            raise


def give_back(queue: RunQueue, runs: Iterable[Run]) -> None:
    """Release runs, for a while also while the database is away; after that their leases run out."""
    left = deque(runs)
    until = time.monotonic() + RELEASE_PATIENCE
    while left:
        try:
            queue.release(left[0].id)
        except StoreUnreachable:
            if time.monotonic() > until:
                return
            left.rotate(-1)
            time.sleep(0.5)
            continue
        except FscError:  # another worker has it, or it is done; release the others
            pass
        left.popleft()


def exited(error: SystemExit) -> RunFailed:
    """The failure of a run whose function or backend ends the process, which would end the worker."""
    hint = "return the scores, or raise an exception that says what is wrong"
    return RunFailed(f"the function or backend called sys.exit({error.code!r})", hint=hint)


@dataclass
class _Member:
    """A leased run, its folder and log."""

    run: Run
    folder: Path
    closed: bool = False  # done, failed or taken over
    lost: bool = False  # the lease is lost

    def write(self, text: str) -> None:
        with suppress(OSError), (self.folder / "log.txt").open("a", encoding="utf-8") as log:  # the disk may be full
            log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")


def _member(run: Run, folder: Path) -> _Member:
    place = run_folder(folder, run.spec.digest)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"the folder of run {run.id} cannot be made ({error.strerror or error})"
        raise RunFailed(what, where=str(place)) from None
    member = _Member(run, place)
    member.write(f"attempt {run.lease_token}: {len(run.episodes)} demos, seed {run.seed}")
    return member


class _Group:
    """Carries out a group of runs and handles their errors."""

    def __init__(self, queue: RunQueue, backend: Backend, line: Line, options: WorkOptions) -> None:
        self.queue = queue
        self.backend = backend
        self.line = line
        self.options = options
        self.stop_now = threading.Event()
        self._factors = tuple(queue.spec.names)

    def carry_out(self, members: Sequence[_Member]) -> None:
        """Train, measure and finish the open members; a worker of one stage does only that stage."""
        group = [member for member in members if not member.closed]
        for member in group:
            self._check_deaths(member)
        group = [member for member in group if not member.closed]
        if not group:
            return
        parts: list[list[_Member]] = []  # smaller groups to try next
        try:
            if self.options.stage != "evaluate":
                self._train(group)
                group = [member for member in group if not member.closed]
            if self.options.stage == "train":
                self._hand_over(group)
            else:
                self._measure(group)
        except LeaseLost as error:
            taken_over = [member for member in group if member.lost and not member.closed]
            if not taken_over:
                raise
            for member in taken_over:
                member.write(str(error))
                member.closed = True
            parts = [group]
        except StoreError:  # not an error of the run
            raise
        except (Exception, SystemExit) as error:
            group = [member for member in group if not member.closed]
            for member in group:
                member.write(traceback.format_exc())
            if len(group) == 1:
                self._give_up(group[0], exited(error) if isinstance(error, SystemExit) else error)
            else:
                middle = (len(group) + 1) // 2
                parts = [group[:middle], group[middle:]]
        # Outside the handler: the exception holds references to the tensors of the whole group.
        for part in parts:
            self.carry_out(part)

    def deaths(self, member: _Member) -> int:
        """The number of workers that died during the run since it last failed or saved a checkpoint.

        An attempt that left a checkpoint does not count: its machine may have been preempted.
        """
        attempts = self.queue.store.attempts(member.run.id)
        since = max((place + 1 for place, one in enumerate(attempts) if one.outcome == "failed"), default=0)
        states = (*member.folder.glob("resume-*.json"), *member.folder.glob("policy.json"))
        progress = max((state.stat().st_mtime for state in states), default=0.0)
        return sum(one.outcome == "lost" and one.started > progress for one in attempts[since:])

    def _train(self, group: list[_Member]) -> None:
        context = self._context("train", group)
        failures: Mapping[Path, str] = {}
        train_many = getattr(self.backend, "train_many", None)
        if train_many is not None and (len(group) > 1 or self.options.device.startswith("cuda")):
            failures = train_many([m.run.spec for m in group], [m.folder for m in group], context)
        else:
            for member in group:
                self.backend.train(member.run.spec, member.folder, self._context("train", group, member.run))
        for member in group:
            if member.folder in failures:
                self._give_up(member, RunFailed(failures[member.folder]))
            else:
                member.write("trained" if len(group) == 1 else f"trained, one of {len(group)} together")

    def _check_deaths(self, member: _Member) -> None:
        """Fail a run that kills every worker, most likely by running out of memory."""
        lost = self.deaths(member)
        if lost >= MOST_DEATHS:
            hint = "is there enough memory? `fsc run --retry-failed` tries again"
            self._give_up(member, InvalidInput(f"the run crashed {lost} workers", hint=hint))

    def _hand_over(self, group: list[_Member]) -> None:
        """Hand the policies to workers that evaluate."""
        fingerprint = getattr(self.backend, "fingerprint", None)
        for member in group:
            policy = fingerprint(member.folder) if fingerprint else f"attempt {member.run.lease_token}"
            with _marking_lost(member):
                self._with_retries(partial(self.queue.hand_over, member.run.id, policy))
            member.closed = True
            member.write("waits for an evaluator")
            self.line.say(RunProgress("evaluate", (member.run.id,), 0, 1, "waits for an evaluator"))

    def _measure(self, group: list[_Member]) -> None:
        """Evaluate and finish the members; runs that the backend does not measure wait for people."""
        if not group:
            return
        fingerprint = getattr(self.backend, "fingerprint", None)
        policies: list[str | None] = [fingerprint(member.folder) if fingerprint else None for member in group]
        contexts = []
        for member, policy in zip(group, policies, strict=True):
            contexts.append(self._context("evaluate", group, member.run))
            contexts[-1].done = self._measured(member, policy) if policy is not None else ()
        measured = [bool(context.done) for context in contexts]
        trials: list[list[Trial]] = [[] for _ in group]
        means: list[list[Measurement]] = [[] for _ in group]
        for index, item in self._evaluated(group, contexts):
            measured[index] = True
            if isinstance(item, Measurement):
                means[index].append(item)
                continue
            trials[index].append(item)
            # Trials of a policy with a fingerprint are recorded during the evaluation, the others all at once.
            if len(trials[index]) == CHUNK and policies[index] is not None:
                self._record(group[index], trials[index], policies[index])
                trials[index] = []
        for place, member in enumerate(group):
            if policies[place] is not None and trials[place]:
                self._record(member, trials[place], policies[place])
                trials[place] = []
            documents = self._documents(member, contexts[place])
            self._conclude(member, trials[place], means[place], documents, waits=not measured[place])

    def _evaluated(
        self, group: Sequence[_Member], contexts: Sequence[Context]
    ) -> Iterator[tuple[int, Trial | Measurement]]:
        evaluate_many = getattr(self.backend, "evaluate_many", None)
        if evaluate_many is not None:
            yield from evaluate_many([m.run.spec for m in group], [m.folder for m in group], contexts)
            return
        for index, (member, context) in enumerate(zip(group, contexts, strict=True)):
            found: object = self.backend.evaluate(member.run.spec, member.folder, context)
            if not isinstance(found, Iterable):
                what = f"evaluate must yield Trials or Measurements, not return {shown(found)}"
                raise InvalidInput(
                    what, hint="yield each, such as Measurement(0.5), or return a list, an empty one if people measure"
                )
            for item in found:
                yield index, item

    def _documents(self, member: _Member, context: Context) -> list[Document]:
        """Documents to store with the run: its policy's path and metrics, and similarities for FSC-Proxy."""
        run, documents = member.run, list[Document]()
        describe = getattr(self.backend, "describe", None)
        if describe is not None:
            policy = str((member.folder / context.policy).resolve())
            body = {"policy": policy, "metrics": context.metrics, "trainer": describe()}
            documents.append((TRAINED, run.spec.digest, body))
        if context.similarities:
            documents.append((SIMILARITY, run.spec.digest, dict(context.similarities)))
        embed = getattr(self.backend, "embed", None) if self.options.proxy else None
        embeddings: Embeddings | None = None if embed is None else embed(run.spec, member.folder, context)
        if embeddings is not None:
            documents.append((SIMILARITY, run.spec.digest, similarities_of(embeddings)))
        return documents

    def _measured(self, member: _Member, policy: str) -> set[str]:
        """Keys of the trials that earlier attempts recorded of this policy; none if the policy has changed."""
        store = self.queue.store
        if store.run(member.run.id).policy not in (None, policy):
            return set()
        return {trial.key for trial in store.trials(member.run.id)}

    def _record(self, member: _Member, trials: Sequence[Trial], policy: str | None) -> None:
        with _marking_lost(member):
            self._with_retries(lambda: self.queue.record(member.run.id, trials, policy))

    def _conclude(
        self,
        member: _Member,
        trials: Sequence[Trial] = (),
        means: Sequence[Measurement] = (),
        documents: Sequence[Document] = (),
        waits: bool = False,
    ) -> None:
        with _marking_lost(member):
            self._with_retries(lambda: self.queue.conclude(member.run.id, trials, means, documents, waits))
        member.closed = True
        note = "waits for trials" if waits else ""
        member.write(note or "done")
        self.line.say(RunEnded(member.run.id, "trained" if waits else "done", note))

    def _with_retries(self, call: Callable[[], object]) -> None:
        """Write to the store, waiting while it is unreachable or locked. Repeated writes count once."""
        until = time.monotonic() + STORE_PATIENCE
        while True:
            try:
                call()
            except StoreUnreachable:
                if time.monotonic() > until:
                    raise
                self.line.check()
                time.sleep(1)
            else:
                return

    def _context(self, stage: Stage, group: Sequence[_Member], run: Run | None = None) -> Context:
        """The context of a stage for the group, or for one `run` of it."""

        def progress(done: int, total: int, note: str = "") -> None:
            self.line.check()
            if self.stop_now.is_set():
                raise Stopped
            for member in group:
                if member.lost and not member.closed:
                    raise LeaseLost(f"run {member.run.id} was taken over")
            kind: Stage = "prepare" if note in PREPARING else stage
            self.line.say(RunProgress(kind, tuple(member.run.id for member in group), done, total, note))

        context = Context(progress, self.options.device or "cpu", self._factors, together=self.options.together)
        if run is not None:
            context.run_id, context.demos = run.id, run.demos
        return context

    def _give_up(self, member: _Member, error: Exception) -> None:
        """Record the error; retry unless a retry cannot help."""
        run, folder = member.run, member.folder
        reason = str(error) if isinstance(error, FscError) else f"{type(error).__name__}: {error}"
        member.write(reason)
        member.closed = True
        message = f"{reason}{LOG}{folder / 'log.txt'})"
        damaged = isinstance(error, CheckpointError)  # the policy is trained again
        try:
            self._with_retries(lambda: self.queue.fail(run.id, message, trains_anew=damaged))
        except LeaseLost as lost:
            member.write(str(lost))
            return
        permanent = isinstance(error, InvalidInput)
        if damaged:
            for path in folder.glob("policy.*"):
                path.unlink()
        failures = sum(attempt.outcome == "failed" for attempt in self.queue.store.attempts(run.id))
        if failures < self.options.attempts and not permanent:
            self.queue.store.retry(run.id)
            self.line.say(RunEnded(run.id, "retry", message))
        else:
            self.line.say(RunEnded(run.id, "failed", message))


@contextmanager
def _marking_lost(member: _Member) -> Iterator[None]:
    """Mark the member as lost when the store refuses a write because another worker has the run."""
    try:
        yield
    except LeaseLost:
        member.lost = True
        raise


def similarities_of(embeddings: Embeddings) -> dict[str, Any]:
    """The similarities that FSC-Proxy stores for a policy: for every k, the mean over the k nearest episodes."""
    return {"nearest": nearest_means(embeddings.held_out, embeddings.trained), "factors": list(embeddings.factors)}


@contextmanager
def _heartbeat(
    queue: RunQueue, members: Sequence[_Member], options: WorkOptions, stop_now: threading.Event
) -> Iterator[None]:
    """Extend the leases from a thread, mark members whose lease was lost, and check for stop requests."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(options.lease_seconds / 4):
            for member in members:
                if member.closed or member.lost:
                    continue
                try:
                    queue.store.heartbeat(member.run.id, member.run.lease_token, options.lease_seconds)
                except LeaseLost:
                    member.lost = not ended.is_set()
                except FscError:
                    continue  # the database was busy; the next beat comes before the lease ends
            with suppress(FscError):
                if queue.stop_requested() == "now":
                    stop_now.set()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
