"""Carrying out a study's pending runs: workers that lease, train, measure, record, and survive being killed.

A worker carries out one run, or a group of them as one job. A group that fails as a whole is halved and goes on from
its checkpoints, so that the run whose fault it was ends up alone with its reason, and a group that is too large becomes
smaller.
"""

from __future__ import annotations

import re
import threading
import time
import traceback
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from factored_scaling.backends import OutsideTrainer, load_trainer, trained_here
from factored_scaling.backends.diffusion import DiffusionTrainer
from factored_scaling.backends.protocol import Embedder
from factored_scaling.backends.simulation import CHUNK, Lab
from factored_scaling.core.proxy import KS, cosine_similarities, nearest_mean
from factored_scaling.core.trials import Trial
from factored_scaling.errors import CheckpointError, FscError, InvalidInput, LeaseLost, RunFailed
from factored_scaling.machine import limit_threads
from factored_scaling.progress import PREPARING, Progress
from factored_scaling.runner.executors.local import Line, Stopped
from factored_scaling.store import Document, Measurement, RunRow
from factored_scaling.study import Run, Study
from factored_scaling.study.proxy import KIND

MOST_DEATHS = 5
MOST_ALIKE = 3  # runs that fail for one reason, and none that comes to anything: the others would fail, too
TRAINED = "trained"  # kind of the documents that say where a policy lies and which command made it
ALONE_AFTER = 3  # deaths after which a run is no longer taken together with others
MOST_TOGETHER = 12  # runs that a worker on a GPU takes at once; beyond that the chip is full

_LOG = " (log: "  # between the reason of a failure and where its log lies

# What workers say: (kind, run ids, done, total, note). Shown by the command line, ignored by tests.
Message = tuple[str, tuple[int, ...], int, int, str]


@dataclass(frozen=True)
class WorkOptions:
    """How runs are carried out."""

    # seconds without a heartbeat after which another worker may take a run
    lease_seconds: float = 60.0
    # how often a run is tried before it stays failed
    attempts: int = 2
    # where networks are trained and run; empty: where a trainer outside prefers
    device: str = "cpu"
    # keep the similarities that FSC-Proxy needs
    proxy: bool = True
    # the study's `trainer:`; empty when the simulator trains
    trainer: Mapping[str, Any] = field(default_factory=dict)
    # runs that a worker trains and measures as one job; None: as many as fit on a GPU, one elsewhere
    together: int | None = None
    # that a worker computes with on a CPU
    threads: int = 1

    @property
    def runs_at_once(self) -> int:
        """How many runs a worker takes; a program outside is given one at a time."""
        if not trained_here(self.trainer):
            return 1
        if self.together is not None:
            return self.together
        return MOST_TOGETHER if self.device.startswith("cuda") else 1


def run_folder(folder: Path, digest: str) -> Path:
    """Where a run's checkpoint and log lie."""
    return folder / "runs" / digest


def work(line: Line, address: str | Path, study_id: int, folder: Path, options: WorkOptions) -> None:
    """Take runs until none is left. Waits for runs that others hold: if their worker dies, they come back."""
    if trained_here(options.trainer):
        limit_threads(options.device, options.threads)
    with Study.open_by_id(address, study_id) as study:
        begun = {run.id for run in study.store.outline(study.id) if run.state in ("pending", "running")}
        lab: Lab | OutsideTrainer | None = None
        settings: dict[str, Any] | None = None
        while not line.stopping and not _hopeless(study, begun):
            taken = take_alike(study, options)
            if not taken:
                if not any(run.state == "running" for run in study.store.outline(study.id)):
                    return
                time.sleep(0.5)
                continue
            if lab is None or settings != taken[0].spec.settings:
                try:
                    lab, settings = _lab(taken[0], folder, options), taken[0].spec.settings
                except InvalidInput as error:  # study.yaml was checked, but these runs are from before it was changed
                    for run in taken:
                        study.fail(run.id, str(error))
                        line.say(("failed", (run.id,), 0, 1, str(error)))
                    continue
            carry_out_together(study, taken, lab, line, options)


def _hopeless(study: Study, begun: Collection[int]) -> bool:
    """Several of these runs failed for the same reason and none has come to anything.

    Where some are from before a change of study.yaml, their reason need not be that of the others.
    """
    states = Counter[str](run.state for run in study.store.outline(study.id) if run.id in begun)
    if states["failed"] < MOST_ALIKE or states["done"] or states["trained"]:
        return False
    runs = study.store.some_runs(list(begun))
    alike = all(run.settings == runs[0].settings for run in runs)
    return alike and len({_reason(run) for run in runs if run.state == "failed"}) == 1


def _reason(run: RunRow) -> str:
    """Why the run failed, without what is its own: where its files lie, sizes, and the time in a program's lines."""
    return re.sub(r"\d+", "", (run.error or "").partition(_LOG)[0].replace(run.digest, ""))


def take_alike(study: Study, options: WorkOptions) -> list[Run]:
    """The next runs for a worker, as many as it takes at once and as have the same settings.

    Those from before a change of study.yaml have others.
    """
    taken = study.ask(1, lease_seconds=options.lease_seconds)
    if not taken or options.runs_at_once == 1:
        return taken
    for row in sorted(study.runs(), key=lambda row: -max(row.rounds)):  # as ask() takes them
        if len(taken) == options.runs_at_once:
            break
        if row.id == taken[0].id or row.settings != taken[0].spec.settings:
            continue
        if row.state in ("pending", "running"):  # a dead worker's run can be taken
            with suppress(LeaseLost):
                taken.append(study.take(row.id, lease_seconds=options.lease_seconds))
    return taken


def _lab(run: Run, folder: Path, options: WorkOptions) -> Lab | OutsideTrainer:
    if options.trainer:
        return load_trainer(options.trainer, run.spec.policy, folder, options.device or None, run.spec.evaluation)
    return Lab.of_run(run.spec, folder, options.device)


def carry_out(study: Study, run: Run, lab: Lab | OutsideTrainer, line: Line, options: WorkOptions) -> None:
    """One run from lease to done; an error is kept with the run, a stop gives it back unfinished."""
    carry_out_together(study, [run], lab, line, options)


def carry_out_together(
    study: Study, runs: Sequence[Run], lab: Lab | OutsideTrainer, line: Line, options: WorkOptions
) -> None:
    """Runs from lease to done, trained as one job and rolled out side by side; each succeeds or fails alone.

    A program outside is given one run at a time.
    """
    with ExitStack() as stack:
        members = [stack.enter_context(_member(run, lab.folder)) for run in runs]
        stack.enter_context(_heartbeat(study, members, options))
        group = _Group(study, lab, line, options)
        try:
            group.carry_out([member for member in members if group.deaths(member) < ALONE_AFTER])
            for member in members:
                group.carry_out([member])
        except Stopped:
            for member in members:
                if not member.closed:
                    member.write("stopped")
                    with suppress(LeaseLost):  # somebody else has it, and the others are to be given back all the same
                        study.release(member.run.id)
            raise


@dataclass
class _Member:
    """A leased run, its folder and log."""

    run: Run
    folder: Path
    log: TextIO
    closed: bool = False  # done, failed or with somebody else
    lost: bool = False  # the lease was

    def write(self, text: str) -> None:
        self.log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        self.log.flush()


@contextmanager
def _member(run: Run, folder: Path) -> Iterator[_Member]:
    place = run_folder(folder, run.spec.digest)
    place.mkdir(parents=True, exist_ok=True)
    with (place / "log.txt").open("a", encoding="utf-8") as log:
        member = _Member(run, place, log)
        member.write(f"attempt {run.lease_token}: {len(run.episodes)} demos, seed {run.seed}")
        yield member


class _Group:
    """What is done with the members of a group, and what becomes of their mistakes."""

    def __init__(self, study: Study, lab: Lab | OutsideTrainer, line: Line, options: WorkOptions) -> None:
        self.study = study
        self.lab = lab
        self.line = line
        self.options = options

    def carry_out(self, members: Sequence[_Member]) -> None:
        """Train, measure and finish those that are not closed."""
        group = [member for member in members if not member.closed]
        if not group:
            return
        parts: list[list[_Member]] = []  # what is left to be tried in another way
        try:
            self._train(group)
            group = [member for member in group if not member.closed]
            if isinstance(self.lab, Lab):
                self._measure(group, self.lab)
            else:
                for member in group:
                    self._take_outcome(member, self.lab)
            for member in group:
                self._finish(member)
        except LeaseLost as error:
            taken_over = [member for member in group if member.lost and not member.closed]
            if not taken_over:
                raise
            for member in taken_over:
                member.write(str(error))
                member.closed = True
            parts = [group]
        except Exception as error:
            group = [member for member in group if not member.closed]
            for member in group:
                member.write(traceback.format_exc())
            if len(group) == 1:
                self._give_up(group[0], error)
            else:
                middle = (len(group) + 1) // 2
                parts = [group[:middle], group[middle:]]
        # After the error is gone: it keeps alive what it met on its way, on a GPU the memory of the whole group.
        for part in parts:
            self.carry_out(part)

    def deaths(self, member: _Member) -> int:
        """How many workers have died over the run since it last failed or got further.

        One that leaves a checkpoint is no sign that the run kills its workers: machines are taken away, too.
        """
        attempts = self.study.store.attempts(member.run.id)
        since = max((place + 1 for place, one in enumerate(attempts) if one.outcome == "failed"), default=0)
        states = (*member.folder.glob("resume-*.json"), *member.folder.glob("policy.json"))
        further = max((state.stat().st_mtime for state in states), default=0.0)
        return sum(one.outcome == "lost" and one.started > further for one in attempts[since:])

    def _train(self, group: list[_Member]) -> None:
        for member in list(group):
            self._check_deaths(member)
        group = [member for member in group if not member.closed]
        if not group:
            return
        progress = self._progress("train", group)
        failures: dict[Path, str] = {}
        lab = self.lab
        if isinstance(lab, Lab | DiffusionTrainer) and (len(group) > 1 or lab.device.startswith("cuda")):
            specs = [member.run.spec for member in group]
            folders = [member.folder for member in group]
            failures = lab.train_many(specs, folders, progress, self.options.together)
        else:
            for member in group:
                lab.train(member.run.spec, member.folder, progress)
        for member in group:
            if member.folder in failures:
                self._give_up(member, RunFailed(failures[member.folder]))
            else:
                member.write("trained" if len(group) == 1 else f"trained, one of {len(group)} together")

    def _check_deaths(self, member: _Member) -> None:
        """A run that kills every worker (memory, most likely) must not be taken for ever."""
        lost = self.deaths(member)
        if lost >= MOST_DEATHS:
            hint = "is there enough memory? `fsc run --retry-failed` tries again"
            self._give_up(member, InvalidInput(f"{lost} workers died over this run", hint=hint))

    def _take_outcome(self, member: _Member, trainer: OutsideTrainer) -> None:
        """Record what the trainer's own program measured; a run that it did not measure waits for people."""
        run = member.run
        outcome = trainer.outcome(run.spec, member.folder, self.study.spec.names, self._progress("evaluate", [member]))
        body = {
            "policy": str((member.folder / outcome.policy).resolve()),
            "metrics": outcome.metrics,
            "trainer": trainer.described,
        }
        documents: list[Document] = [(TRAINED, run.spec.digest, body)]
        if outcome.similarities:
            documents.append((KIND, run.spec.digest, dict(outcome.similarities)))
        embedder = trainer.embedder(self._progress("evaluate", [member])) if self.options.proxy else None
        if embedder is not None:
            documents.append(_similarities(run, embedder, embedder.factors(), member.folder))
        self._conclude(member, outcome.trials, outcome.scores, documents, waits=not outcome.measured)

    def _measure(self, group: list[_Member], lab: Lab) -> None:
        if not group:
            return
        policies = [lab.fingerprint(member.folder) for member in group]
        done = [self._measured(member, policy) for member, policy in zip(group, policies, strict=True)]
        batches: list[list[Trial]] = [[] for _ in group]
        specs, folders = [member.run.spec for member in group], [member.folder for member in group]
        for index, trial in lab.evaluate_many(specs, folders, done, self._progress("evaluate", group)):
            batches[index].append(trial)
            if len(batches[index]) == CHUNK:
                self._record(group[index], batches[index], policies[index])
                batches[index] = []
        for member, batch, policy in zip(group, batches, policies, strict=True):
            self._record(member, batch, policy)

    def _measured(self, member: _Member, policy: str) -> set[str]:
        """Keys of the trials that earlier attempts recorded of this policy; one trained elsewhere may be another."""
        store = self.study.store
        if store.run(member.run.id).policy not in (None, policy):
            return set()
        return {trial.key for trial in store.trials(member.run.id)}

    def _record(self, member: _Member, trials: Sequence[Trial], policy: str) -> None:
        if trials:
            with _noticing(member):
                self.study.record(member.run.id, trials, policy)

    def _finish(self, member: _Member) -> None:
        if member.closed:
            return
        documents: list[Document] = []
        if self.options.proxy and isinstance(self.lab, Lab):
            factors = [condition.factor for condition in self.lab.conditions(member.run.spec.evaluation)]
            documents.append(_similarities(member.run, self.lab, factors, member.folder))
        self._conclude(member, documents=documents)

    def _conclude(
        self,
        member: _Member,
        trials: Sequence[Trial] = (),
        means: Sequence[Measurement] = (),
        documents: Sequence[Document] = (),
        waits: bool = False,
    ) -> None:
        with _noticing(member):
            self.study.conclude(member.run.id, trials, means, documents, waits)
        member.closed = True
        word, note = ("trained", "waits for trials") if waits else ("done", "")
        member.write(note or word)
        self.line.say((word, (member.run.id,), 1, 1, note))

    def _progress(self, stage: str, group: Sequence[_Member]) -> Progress:
        def progress(done: int, total: int, note: str = "") -> None:
            self.line.check()
            for member in group:
                if member.lost and not member.closed:
                    raise LeaseLost(f"run {member.run.id} was taken over")
            kind = "prepare" if note in PREPARING else stage
            self.line.say((kind, tuple(member.run.id for member in group), done, total, note))

        return progress

    def _give_up(self, member: _Member, error: Exception) -> None:
        """Keep the reason; try again unless trying again cannot help."""
        run, folder = member.run, member.folder
        reason = str(error) if isinstance(error, FscError) else f"{type(error).__name__}: {error}"
        member.write(reason)
        member.closed = True
        told = f"{reason}{_LOG}{folder / 'log.txt'})"
        try:
            self.study.fail(run.id, told)
        except LeaseLost as lost:
            member.write(str(lost))
            return
        hopeless = isinstance(error, InvalidInput)
        if isinstance(error, CheckpointError):
            for path in folder.glob("policy.*"):  # a damaged policy is trained again
                path.unlink()
        failures = sum(attempt.outcome == "failed" for attempt in self.study.store.attempts(run.id))
        if failures < self.options.attempts and not hopeless:
            self.study.store.retry(run.id)
            self.line.say(("retry", (run.id,), 0, 1, told))
        else:
            self.line.say(("failed", (run.id,), 0, 1, told))


@contextmanager
def _noticing(member: _Member) -> Iterator[None]:
    """A refused write means that the run is with somebody else now."""
    try:
        yield
    except LeaseLost:
        member.lost = True
        raise


def _similarities(run: Run, embedder: Embedder, factors: Sequence[str | None], folder: Path) -> Document:
    """What FSC-Proxy needs of the run's policy, as a document."""
    trained, held_out = embedder.embed(folder, run.episodes), embedder.embed_held_out(folder, run.spec)
    similarities = cosine_similarities(held_out, trained)
    nearest = {str(k): nearest_mean(similarities, k).round(6).tolist() for k in KS}
    return KIND, run.spec.digest, {"nearest": nearest, "factors": list(factors)}


@contextmanager
def _heartbeat(study: Study, members: Sequence[_Member], options: WorkOptions) -> Iterator[None]:
    """Keeps the leases alive from a thread of its own, and marks the members whose lease was lost."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(options.lease_seconds / 4):
            for member in members:
                if member.closed or member.lost:
                    continue
                try:
                    study.store.heartbeat(member.run.id, member.run.lease_token, options.lease_seconds)
                except LeaseLost:
                    member.lost = not ended.is_set()
                except FscError:
                    continue  # the database was busy; the next beat comes before the lease ends

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
