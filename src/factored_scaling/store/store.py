"""Store: the durable record behind a study, in an SQLite file or a PostgreSQL database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from factored_scaling.core.dataset import Dataset
from factored_scaling.core.design import RunSpec
from factored_scaling.core.rubric import Rubric
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trial_queue import PlannedTrial
from factored_scaling.core.trials import Measurement, Tally, Trial
from factored_scaling.io.atomic import take_name
from factored_scaling.store import (
    creation,
    exchange,
    imports,
    leases,
    migrations,
    queue_summary,
    results,
    runs,
    studies,
    trial_queue,
)
from factored_scaling.store.connections import Clock, Database, address_of
from factored_scaling.store.rows import (
    AttemptRow,
    Document,
    DocumentRow,
    Entry,
    EntryRow,
    EvaluationRow,
    Planned,
    QueuedTrial,
    QueueSummary,
    RoundRow,
    RunOutline,
    RunRow,
    StudyRow,
    WholeRun,
)

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class _Moment(threading.local):
    """The transaction in which a thread reads everything at once, if it does."""

    connection: Connection | None = None


class Store:
    """Every method is one transaction: it happens as a whole, and what it wrote is on disk when it returns.

    A store may be used from several threads, several processes may open the same database, and a process may fork
    while it has a store open. An SQLite file must lie on a local disk: its locks do not work over most network file
    systems; workers on several machines share a PostgreSQL database instead.
    """

    def __init__(self, database: Database) -> None:
        """Use `Store.open`."""
        self._database = database
        self._moment = _Moment()

    @classmethod
    def open(
        cls, address: str | Path, *, create: bool = True, clock: Clock | None = None, busy_seconds: float = 30.0
    ) -> Store:
        """Open a path, `sqlite:////full/path.db` or `postgresql://user@host/name`; make it when `create` is set.

        `clock` replaces the clock by which leases run out (default: this machine's for SQLite, the server's for
        PostgreSQL). `busy_seconds` is how long to wait for another process that is writing to an SQLite file.
        """
        database = Database(address, create=create, clock=clock, busy_seconds=busy_seconds)
        try:
            migrations.prepare(database, create=create)
        except BaseException:
            database.close()
            raise
        return cls(database)

    @classmethod
    def create(cls, address: str | Path, write: Callable[[Store], Answer]) -> tuple[Store, Answer]:
        """Open a database for a first study, which `write` writes; returns the store and what `write` returned.

        A new SQLite file is written under another name and gets its own when it is complete. Killed at any instant,
        there is no file or a whole one. Where the database exists already, `write` writes to that.
        """
        url = address_of(address)
        path = Path(str(url.database)) if url.drivername == "sqlite" else None
        if path is not None and not path.exists():
            with creation.unnamed(path) as partial:
                with cls.open(partial) as store:
                    answer = write(store)
                named = take_name(partial, path)
            if named:
                return cls.open(address, create=False), answer
        store = cls.open(address)  # another process may have made it meanwhile
        try:
            return store, write(store)
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        """Close every connection."""
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def address(self) -> str:
        """What opens this store again, its password included: for workers, not for messages."""
        return self._database.url.render_as_string(hide_password=False)

    @property
    def file(self) -> Path | None:
        """The SQLite file; None with a server."""
        return Path(self._database.place) if self._database.is_sqlite else None

    @property
    def place(self) -> str:
        """Where the record lies, for messages: a path, or an address without its password."""
        return self._database.place

    @property
    def read_only(self) -> bool:
        """Whether the file or its folder may not be written to: what reads works, what writes is an error."""
        return self._database.read_only

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Everything that this thread reads inside the block is as of one moment: one transaction for all of it.

        Write outside the block: what is written inside is not seen by later reads of the block.
        """
        if self._moment.connection is not None:
            yield
            return
        with self._database.reading() as connection:
            self._moment.connection = connection
            try:
                yield
            finally:
                self._moment.connection = None

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """The transaction of `one_moment`, or one of its own."""
        if self._moment.connection is not None:
            yield self._moment.connection
            return
        with self._database.reading() as connection:
            yield connection

    def _read(
        self, look: Callable[Concatenate[Connection, Given], Answer], *given: Given.args, **named: Given.kwargs
    ) -> Answer:
        with self._reading() as connection:
            return look(connection, *given, **named)

    def _write(
        self, change: Callable[Concatenate[Connection, float, Given], Answer], *given: Given.args, **named: Given.kwargs
    ) -> Answer:
        with self._database.writing() as connection:
            return change(connection, self._database.now(connection), *given, **named)

    # --- studies and rounds

    def create_study(self, name: str, spec: StudySpec, dataset: Dataset, planned: Sequence[Planned] = ()) -> int:
        """A new study with round 0 and its runs; returns the number by which the other methods know it."""
        with self._database.writing() as connection:
            now = self._database.now(connection)
            study = studies.create(connection, now, name)
            studies.add_round(connection, now, study, spec, dataset, recommendation=None, index=0)
            runs.add(connection, now, study, 0, planned)
        return study

    def studies(self) -> list[StudyRow]:
        """All studies, oldest first."""
        return self._read(studies.every)

    def study(self, name: str) -> StudyRow:
        """The study of this name."""
        return self._read(studies.named, name)

    def add_round(
        self,
        study: int,
        spec: StudySpec,
        dataset: Dataset,
        recommendation: Mapping[str, Any] | None,
        *,
        index: int | None = None,
        planned: Sequence[Planned] = (),
    ) -> int:
        """Append a round with its runs and return its index.

        With `index`, fail unless that is the next one: nobody came between.
        """
        with self._database.writing() as connection:
            now = self._database.now(connection)
            number = studies.add_round(connection, now, study, spec, dataset, recommendation, index)
            runs.add(connection, now, study, number, planned)
        return number

    def rounds(self, study: int) -> list[RoundRow]:
        """The study's rounds, oldest first."""
        return self._read(studies.rounds_of, study)

    # --- runs

    def add_runs(self, study: int, round: int, planned: Sequence[Planned]) -> list[int]:
        """Place runs in a round, after those already there; returns their ids in the order given.

        A run that the study knows already, from this round or an earlier one, is not added twice: it keeps its state
        and its results.
        """
        return self._write(runs.add, study, round, planned)

    def withdraw_runs(self, study: int, round: int, digests: Collection[str]) -> list[int]:
        """Take back runs that a round planned; returns the ids of those that are gone.

        A run that somebody works on, that is trained, has a result or waits in a queue stays, and so does one that
        another round has too.
        """
        return self._write(runs.withdraw, study, round, digests)

    def runs(self, study: int, round: int | None = None) -> list[RunRow]:
        """The study's runs, or those of one round, in the order to train them, all as of one moment."""
        return self._read(runs.of_study, study, round)

    def some_runs(self, run_ids: Sequence[int]) -> list[RunRow]:
        """The runs of these ids that exist, in the order of the ids."""
        return self._read(runs.some, run_ids)

    def outline(self, study: int) -> list[RunOutline]:
        """How far every run of the study is, in the order to train them: quick, whatever was measured."""
        return self._read(runs.outline, study)

    def digests(self, study: int, round: int) -> set[str]:
        """The digests of a round's runs."""
        return self._read(runs.digests, study, round)

    def find_runs(self, study: int, reference: str) -> list[int]:
        """Ids of the study's runs that are meant by an id, or by four or more characters that a digest begins with."""
        return self._read(runs.find, study, reference)

    def specs(self, run_ids: Sequence[int]) -> dict[int, RunSpec]:
        """What runs are trained on, by their ids and in the order of these."""
        return self._read(runs.specs, run_ids)

    def run(self, run_id: int) -> WholeRun:
        """One run, with the episodes it is trained on."""
        return self._read(runs.one, run_id)

    def attempts(self, run_id: int) -> list[AttemptRow]:
        """How the run's attempts so far ended, oldest first; the one under way is not among them."""
        return self._read(runs.attempts_of, run_id)

    # --- leases

    def lease(self, study: int, worker: str, seconds: float, run_id: int | None = None) -> WholeRun | None:
        """Take a run that is pending, or whose worker's lease ran out, for `seconds`; None when there is none.

        It is the first of the latest round that has one, or `run_id` and no other. The row's `lease_token` goes into
        the calls below.
        """
        with self._database.writing() as connection:
            now = self._database.now(connection)
            taken = leases.take(connection, now, study, worker, seconds, run_id)
            return None if taken is None else runs.one(connection, taken)

    def heartbeat(self, run_id: int, lease_token: int, seconds: float) -> float:
        """Extend the lease to `seconds` from now; returns its new end. LeaseLost when the run was taken over."""
        return self._write(leases.extend, run_id, lease_token, seconds)

    def finish(self, run_id: int, lease_token: int | None = None) -> None:
        """The run is done; it needs a result. Without a token: by hand, and the worker that holds the run loses it."""
        self._write(leases.end, run_id, lease_token, "done")

    def fail(self, run_id: int, lease_token: int | None, error: str) -> None:
        """The run failed, for this reason. It stays so until `retry`."""
        self._write(leases.end, run_id, lease_token, "failed", error)

    def release(self, run_id: int, lease_token: int | None = None) -> None:
        """Give the run back unfinished, its trials kept: the next worker goes on where this one stopped."""
        self._write(leases.end, run_id, lease_token, "released")

    def trained(self, run_id: int, lease_token: int | None = None) -> None:
        """The run's policy is ready and waits for trials that people score: no worker takes it. `finish` ends it."""
        self._write(leases.set_trained, run_id, lease_token)

    def retry(self, run_id: int) -> None:
        """A failed or trained run becomes pending again; its error stays among the attempts."""
        with self._database.writing() as connection:
            leases.retry(connection, run_id)

    # --- results

    def tell(
        self,
        run_id: int,
        trials: Iterable[Trial] = (),
        means: Iterable[Measurement] = (),
        lease_token: int | None = None,
        *,
        documents: Iterable[Document] = (),
        waits: bool = False,
        policy: str | None = None,
    ) -> int:
        """Store the whole outcome of an attempt and end it: the run is done. Returns how many results were new.

        With `waits` the run is trained instead and waits for results of people. `documents` are kept with the study.
        Tokens, `policy` and repeated calls count as in `append_trials`, `append_scores` and `finish`.
        """
        return self._write(results.tell, run_id, trials, means, lease_token, documents, waits, policy)

    def append_trials(
        self, run_id: int, trials: Iterable[Trial], lease_token: int | None = None, *, policy: str | None = None
    ) -> int:
        """Store trials, all or none; returns how many were new.

        A key recorded again with the same content counts once; with another content it is an error. A run that is done
        takes no new ones. With a token, LeaseLost when the run was taken over; without, the trials are by hand.

        A worker may name the `policy` that it measures, for example by a digest of its weights. Where an earlier
        attempt recorded trials of a policy of another name, those are removed: the policy was trained again, and one
        run never holds trials of two. Trials by hand stay.
        """
        return self._write(results.append_trials, run_id, trials, lease_token, policy)

    def trials(self, run_id: int) -> list[Trial]:
        """The run's trials in the order in which they were recorded."""
        return self._read(results.trials_of, run_id)

    def tallies(self, study: int, run_ids: Sequence[int] | None = None) -> dict[int, list[Tally]]:
        """How many trials had each score, by run id: of every run of the study that has any, or of some runs."""
        return self._read(results.tallies, study, run_ids)

    def counts(self, study: int) -> tuple[int, int]:
        """How many trials, and how many measurements that are means, all runs of the study have together."""
        return self._read(results.counts, study)

    def append_scores(self, run_id: int, scores: Iterable[Measurement], lease_token: int | None = None) -> int:
        """Store results that are means rather than trials, all or none; returns how many were new.

        Factor and source name a measurement, under the rule of `append_trials`. A run that is done still takes them
        by hand: another source is another opinion, and changes no row.
        """
        return self._write(results.append_scores, run_id, scores, lease_token)

    def import_means(self, study: int, round: int, match: imports.Match) -> int:
        """Take in a file of means: `match` names the runs it is about and what is new, and these runs are done.

        It is called with the study's runs, measurements and trials as this transaction sees them. Returns how many
        measurements were new. Fails when `round` is not the latest any more.
        """
        return self._write(imports.take_in, study, round, match)

    def scores(self, run_id: int) -> list[Measurement]:
        """The run's measurements in the order in which they were recorded."""
        return self._read(results.scores_of, run_id)

    def study_scores(self, study: int, run_ids: Sequence[int] | None = None) -> dict[int, list[Measurement]]:
        """The measurements of every run of the study that has any, or of some runs, by run id."""
        return self._read(results.scores_of_study, study, run_ids)

    # --- trials that people score

    def add_evaluation(
        self,
        study: int,
        run_ids: Sequence[int],
        planned: Sequence[PlannedTrial],
        rubric: Rubric,
        step_limit: int | None,
        seed: int,
    ) -> int:
        """Queue trials for people to score; they name their policies by place in `run_ids`. Returns the id."""
        return self._write(trial_queue.add, study, run_ids, planned, rubric, step_limit, seed)

    def evaluations(self, study: int) -> list[EvaluationRow]:
        """The study's evaluations, oldest first."""
        return self._read(trial_queue.of_study, study)

    def evaluation(self, evaluation: int) -> EvaluationRow:
        """One evaluation by its id."""
        return self._read(trial_queue.one, evaluation)

    def queue(self, evaluation: int) -> list[QueuedTrial]:
        """The evaluation's trials in the order to run them, all as of one moment."""
        with self._reading() as connection:
            return trial_queue.read(connection, self._database.now(connection), evaluation)

    def queued_trial(self, evaluation: int, code: str) -> QueuedTrial:
        """One trial by its code."""
        with self._reading() as connection:
            return trial_queue.of_code(connection, self._database.now(connection), evaluation, code)

    def queue_summary(self, evaluation: int, operator: str, recent: int) -> QueueSummary:
        """How far the evaluation is, as of one moment, and what is this operator's.

        With the moments at which the `recent` latest trials were scored or left out.
        """
        with self._reading() as connection:
            return queue_summary.summary(connection, self._database.now(connection), evaluation, operator, recent)

    def entries(self, evaluation: int) -> list[EntryRow]:
        """Everything that was said about the trials, oldest first, what was undone included."""
        return self._read(trial_queue.history, evaluation)

    def claim_trial(self, evaluation: int, operator: str, seconds: float) -> QueuedTrial | None:
        """The trial the operator has, or the first that nobody has, claimed for `seconds`; None when none is left."""
        return self._write(trial_queue.claim, evaluation, operator, seconds)

    def unclaim_trials(self, evaluation: int, operator: str) -> int:
        """Give back what the operator claimed and did not score; returns how many trials that was."""
        return self._write(trial_queue.unclaim, evaluation, operator)

    def append_entries(
        self,
        evaluation: int,
        given: Sequence[tuple[str, Entry]],
        claim_seconds: float = 60.0,
        next_for: str | None = None,
    ) -> int:
        """Store what was said about trials, by their codes, all or none; returns how many entries were new.

        An entry whose token is known counts once. TrialTaken when a trial is not open to it: scored already, or run
        by somebody else now. A trial that is undone is claimed for who undid it. In the same transaction the operator
        `next_for` claims their next trial.
        """
        return self._write(trial_queue.tell, evaluation, given, claim_seconds, next_for)

    def close_evaluation(self, evaluation: int, early: bool = False) -> int:
        """Append the scores to the runs as trials and finish these; returns how many were new. Closed, it stays so.

        With `early`, trials that nobody scored are left out, and so are scores of a run that was finished otherwise
        meanwhile; runs without any score stay as they are, also when nothing at all was scored.
        """
        return self._write(trial_queue.close, evaluation, early)

    def unsettled_trials(self, study: int) -> dict[int, list[Trial]]:
        """What is scored in evaluations that are not closed yet, by run id."""
        with self._reading() as connection:
            return trial_queue.unsettled(connection, self._database.now(connection), study)

    # --- documents

    def put_document(self, study: int, kind: str, key: str, body: Any) -> None:
        """Keep plain data with the study; the latest of a kind and key is the one that is read."""
        self.put_documents(study, [(kind, key, body)])

    def put_documents(self, study: int, put: Sequence[Document], *, fresh: bool = False) -> None:
        """Several documents at once, each with its kind, key and body; all or none.

        With `fresh`, fail where one of that kind and key exists, for example because another process made it.
        """
        with self._database.writing() as connection:
            now = self._database.now(connection)
            for kind, key, body in put:
                if fresh:
                    studies.require_no_document(connection, study, kind, key)
                studies.put_document(connection, now, study, kind, key, body)

    def document(self, study: int, kind: str, key: str) -> Any | None:
        """The latest document of this kind and key, or None."""
        found = self._read(studies.documents_of, study, kind, key)
        return found[0].body if found else None

    def documents(self, study: int, kind: str | None = None) -> list[DocumentRow]:
        """The latest document of every key, of one kind or of all."""
        return self._read(studies.documents_of, study, kind, None)

    # --- export and import

    def dump(self, study: int) -> dict[str, Any]:
        """Everything about the study as plain data, ready for `json.dump`."""
        return self._read(exchange.dump, study)

    def load(
        self,
        data: Mapping[str, Any],
        name: str | None = None,
        check: Callable[[Mapping[str, Any]], None] = lambda data: None,
    ) -> int:
        """Recreate a dumped study, under `name` or, when its own name is taken, the first free of name-2, name-3, …

        `check` is called with the data when every part is known to be well formed; if it raises, nothing is kept.
        """
        with self._database.writing() as connection:
            return exchange.load(connection, data, name, check)
