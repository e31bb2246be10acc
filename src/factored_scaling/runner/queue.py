"""The run queue of a study: lease runs, send heartbeats, record trials, finish."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from factored_scaling.core.checks import real, shown, whole
from factored_scaling.core.design import RunSpec, run_on
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Measurement, Result, Trial, result_of
from factored_scaling.errors import FscError, InvalidInput, LeaseLost
from factored_scaling.runner.outcomes import Outcome, check_factors, read_outcome
from factored_scaling.store import Document, RunRow, Stage, Store, WholeRun
from factored_scaling.store.documents import STOP

DAY = 24 * 3600.0
StopMode = Literal["drain", "now"]
JOB_ID = "FSC_JOB_ID"  # variable: the scheduler's job that a worker belongs to


@dataclass(frozen=True, slots=True)
class Run:
    """A run to carry out: train on `episodes` with `seed`, measure, and pass `id` and the scores to `tell`."""

    id: int
    spec: RunSpec
    demos: dict[str, int]
    lease_token: int

    @property
    def episodes(self) -> tuple[str, ...]:
        """Ids of the demonstrations to train on."""
        return self.spec.episodes

    @property
    def seed(self) -> int:
        """The training seed."""
        return self.spec.seed


class RunQueue:
    """The runs of one study in a store. Several processes may use it; a run is leased to one of them at a time.

    Calls about a run that this object leased (with `ask` or `take`) need the lease: once another worker has taken the
    run, they raise LeaseLost until this object leases the run again. An exception that leaves the `with` block of this
    object releases its runs. Calls about a run that this object never leased,
    or whose lease it ended by `tell`, `conclude`, `finish` or `trained`, count as made by a person: they always apply,
    and a worker on the run loses its lease.
    """

    def __init__(self, store: Store, id_: int) -> None:
        self.store = store
        self.id = id_
        self._tokens: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:  # also Ctrl-C: nobody works on these runs any more
            for run_id in self._tokens:
                with suppress(FscError):
                    self.release(run_id)
        self.close()

    def close(self) -> None:
        """Close the database."""
        self.store.close()

    @property
    def spec(self) -> StudySpec:
        """The study with the demonstrations collected so far."""
        return self.store.rounds(self.id)[-1].spec

    def runs(self) -> list[RunRow]:
        """All runs, in the order to train them."""
        return self.store.runs(self.id)

    def ask(
        self, count: int = 1, worker: str | None = None, lease_seconds: float = DAY, *, stage: Stage | None = None
    ) -> list[Run]:
        """Lease up to `count` pending runs, of the latest round first.

        No other worker gets them until the lease ends without a heartbeat. `stage="train"` limits this to runs that are
        not trained yet, `stage="evaluate"` to runs whose policy was trained and handed over.
        """
        taken, lease_seconds = [], lease_length(lease_seconds)
        for _ in range(whole(count, "count", what="the number of runs")):
            row = self.store.lease(self.id, worker or worker_name(), lease_seconds, stage=stage)
            if row is None:
                break
            taken.append(self._taken(row))
        return taken

    def take(
        self, run_id: int, worker: str | None = None, lease_seconds: float = DAY, *, stage: Stage | None = None
    ) -> Run:
        """Lease one particular run. `stage` is as in `ask`."""
        run_id, seconds = _id_of(run_id), lease_length(lease_seconds)
        row = self.store.lease(self.id, worker or worker_name(), seconds, run_id=run_id, stage=stage)
        if row is None:
            state = self.store.run(run_id).state
            hint = (
                "finished rows never change; a new seed is a new run" if state == "done" else "is another worker on it?"
            )
            raise LeaseLost(f"run {run_id} cannot be taken: it is {state}", hint=hint)
        return self._taken(row)

    def heartbeat(self, run_id: int, lease_seconds: float = DAY) -> None:
        """Extend the lease of a run to `lease_seconds` from now."""
        self.store.heartbeat(run_id, self._token(run_id), lease_length(lease_seconds))

    def tell(self, run_id: int, outcome: Outcome, policy: str | None = None) -> Result | None:
        """Record the outcome of a run and finish it, with or without a lease. `policy` is as in `record`."""
        run_id = _id_of(run_id)
        trials, means = read_outcome(outcome, self.spec)
        if not trials and not means:
            raise InvalidInput("the outcome has no scores", where=f"run {run_id}")
        self.conclude(run_id, trials, means, policy=policy)
        return result_of(trials) if trials else None

    def conclude(
        self,
        run_id: int,
        trials: Sequence[Trial] = (),
        means: Sequence[Measurement] = (),
        documents: Sequence[Document] = (),
        waits: bool = False,
        policy: str | None = None,
    ) -> int:
        """Record results and documents of a run and finish it in one transaction; returns the number of new results.

        With `waits` the run becomes `trained` instead of `done`: people score it later. `policy` is as in `record`.
        """
        run_id = _id_of(run_id)
        self._check_trials(trials)
        if means:
            self._check_means(means)
        token = self._tokens.get(run_id)
        new = self.store.tell(run_id, trials, means, token, documents=documents, waits=waits, policy=policy)
        self._tokens.pop(run_id, None)  # only now: a failed call may be repeated under the same lease
        return new

    def record(self, run_id: int, trials: Sequence[Trial], policy: str | None = None) -> int:
        """Append trials to a run that is not finished yet; returns the number of new trials.

        The worker that holds the lease may name the trained `policy`, by a digest of its weights or any other text.
        Trials of a policy with another name, from earlier attempts, are removed: a run has trials of one policy only.
        """
        run_id = _id_of(run_id)
        self._check_trials(trials)
        return self.store.append_trials(run_id, trials, self._tokens.get(run_id), policy=policy)

    def finish(self, run_id: int) -> None:
        """Finish a run: its evaluation is complete and cannot change any more."""
        self.conclude(run_id)

    def fail(self, run_id: int, reason: str, *, trains_anew: bool = False) -> None:
        """Mark the run as failed and store the reason. `trains_anew` discards its policy and that policy's trials."""
        run_id = _id_of(run_id)
        self.store.fail(run_id, self._tokens.get(run_id), reason, trains_anew=trains_anew)

    def release(self, run_id: int) -> None:
        """Return a run to the queue unfinished; its trials stay."""
        run_id = _id_of(run_id)
        self.store.release(run_id, self._tokens.get(run_id))

    def hand_over(self, run_id: int, policy: str) -> None:
        """Return a run to the queue with its policy trained, for an evaluator; `policy` is as in `record`."""
        self.store.hand_over(run_id, self._token(run_id), policy)

    def trained(self, run_id: int) -> None:
        """Mark the run as trained: its trials are recorded later."""
        self.conclude(run_id, waits=True)

    def request_stop(self, mode: StopMode | None) -> None:
        """Ask all workers of the study to stop; None withdraws the request."""
        if mode is not None or self.stop_requested() is not None:
            self.store.put_document(self.id, STOP, "request", {"mode": mode})

    def stop_requested(self) -> StopMode | None:
        """Whether workers are asked to stop: after their current runs ("drain"), or at a safe point ("now")."""
        found = self.store.document(self.id, STOP, "request")
        return None if found is None else found["mode"]

    def _check_trials(self, trials: Sequence[Trial]) -> None:
        if not isinstance(trials, Sequence) or isinstance(trials, str | bytes):
            raise InvalidInput(f"expected a list of Trials, not {shown(trials)}", hint="give even one as [trial]")
        if trials:
            spec = self.spec
            for trial in trials:
                if not isinstance(trial, Trial):
                    hint = "give each rollout as Trial(key, score), and a mean as Measurement(score)"
                    raise InvalidInput(f"expected a Trial, not {shown(trial)}", hint=hint)
                check_factors(trial.factor, spec)

    def _check_means(self, means: Sequence[Measurement]) -> None:
        spec = self.spec
        for mean in means:
            if not isinstance(mean, Measurement):
                raise InvalidInput(f"expected a Measurement, not {shown(mean)}", hint="give each as Measurement(score)")
            check_factors(mean.factor, spec)

    def _taken(self, row: WholeRun) -> Run:
        self._tokens[row.id] = row.lease_token
        return Run(row.id, row.spec, row.demos, row.lease_token)

    def _token(self, run_id: int) -> int:
        run_id = _id_of(run_id)
        if run_id not in self._tokens:
            raise LeaseLost(f"run {run_id} was not taken by this Study object", hint="call ask() or take() first")
        return self._tokens[run_id]


def _id_of(run_id: object) -> int:
    """The id of a run; whole runs are not ids."""
    if isinstance(run_id, Run | RunRow):
        raise InvalidInput("expected the id of a run, not the run", where=f"run {run_id.id}", hint="pass run.id")
    return whole(run_id, "run", what="the id of a run")


def lease_length(seconds: object) -> float:
    """The length of a lease as a number of seconds."""
    number = real(seconds)
    if number is None or not 0 <= number < float("inf"):
        raise InvalidInput(f"expected a number of seconds, not {shown(seconds)}", where="lease_seconds")
    return number


def worker_name() -> str:
    """Host, process and, beside the main one, thread of the worker; on a cluster after the id of its job."""
    job = os.environ.get(JOB_ID)
    if job:
        return f"{job} {socket.gethostname()}:{os.getpid()}"
    thread = threading.current_thread()
    own = "" if thread is threading.main_thread() else f":{thread.name}"
    return f"{socket.gethostname()}:{os.getpid()}{own}"


def has_ended(worker: str) -> bool:
    """Whether a worker of this machine, by the name that `worker_name` gave it, runs no longer."""
    host, _, rest = worker.rpartition(" ")[2].partition(":")
    pid = rest.partition(":")[0]
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def mixed_settings(spec: StudySpec, runs: Sequence[RunRow]) -> str:
    """A sentence where some of these runs were planned with other settings than the study has now, and some not."""
    now = run_on(spec, (), 0).settings
    other = [run for run in runs if run.settings != now]
    if len(other) in (0, len(runs)):
        return ""
    keys = " and ".join(f"`{key}:`" for key in now if any(run.settings[key] != now[key] for run in other))
    return f"{keys} in study.yaml changed after {listed([run.id for run in other])} had been planned"


def listed(ids: Sequence[int]) -> str:
    """Runs by their ids, the first eight of them."""
    some = ", ".join(str(id_) for id_ in ids[:8]) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
    return f"run {some}" if len(ids) == 1 else f"runs {some}"
