"""Store: the durable record behind a study, in an SQLite file or a PostgreSQL database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from factored_scaling.core.dataset import Dataset
from factored_scaling.core.design import PlannedRun
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Measurement, Trial
from factored_scaling.io.atomic import take_name
from factored_scaling.store import creation, exchange, imports, leases, migrations, results, trial_queue
from factored_scaling.store import queue_summary as summaries
from factored_scaling.store import runs as run_rows
from factored_scaling.store import studies as study_rows
from factored_scaling.store.connections import Clock, Database, address_of
from factored_scaling.store.rows import Document, Stage, WholeRun

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


def _reads(look: Callable[Concatenate[Connection, Given], Answer]) -> Callable[Concatenate[Store, Given], Answer]:
    """A method that calls a function in a transaction that reads."""

    @wraps(look)
    def method(self: Store, /, *given: Given.args, **named: Given.kwargs) -> Answer:
        with self._reading() as connection:
            return look(connection, *given, **named)

    return method


def _reads_now(
    look: Callable[Concatenate[Connection, float, Given], Answer],
) -> Callable[Concatenate[Store, Given], Answer]:
    """The same for a function that needs to know the time."""

    @wraps(look)
    def method(self: Store, /, *given: Given.args, **named: Given.kwargs) -> Answer:
        with self._reading() as connection:
            return look(connection, self._database.now(connection), *given, **named)

    return method


def _writes(
    change: Callable[Concatenate[Connection, float, Given], Answer],
) -> Callable[Concatenate[Store, Given], Answer]:
    """A method that calls a function in a transaction that writes."""

    @wraps(change)
    def method(self: Store, /, *given: Given.args, **named: Given.kwargs) -> Answer:
        return self._write(change, *given, **named)

    return method


class _Moment(threading.local):
    """The transaction of `one_moment` in a thread, if there is one."""

    connection: Connection | None = None


class Store:
    """Every method is one atomic transaction, which is on disk when the method returns.

    Most methods are functions of the other modules, which get the transaction's connection, and the time where they
    need it.

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
        """Open a path, `sqlite:////full/path.db` or `postgresql://user@host/name`; create it if `create` is set.

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
        store = cls.open(address)  # another process may have created it meanwhile
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

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """The address that opens this store, with its password: for workers, not for messages."""
        return self._database.url.render_as_string(hide_password=False)

    @property
    def file(self) -> Path | None:
        """The SQLite file; None with a server."""
        return Path(self._database.place) if self._database.is_sqlite else None

    @property
    def place(self) -> str:
        """The place of the record, for messages: a path, or an address without its password."""
        return self._database.place

    @property
    def read_only(self) -> bool:
        """Whether the file or its folder is read-only. Methods that write then raise an error."""
        return self._database.read_only

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Read everything that this thread reads inside the block from one snapshot, in one transaction.

        Write outside the block: later reads in the block do not see writes.
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

    def _write(
        self, change: Callable[Concatenate[Connection, float, Given], Answer], *given: Given.args, **named: Given.kwargs
    ) -> Answer:
        with self._database.writing() as connection:
            return change(connection, self._database.now(connection), *given, **named)

    # --- studies and rounds

    def create_study(self, name: str, spec: StudySpec, dataset: Dataset, planned: Sequence[PlannedRun] = ()) -> int:
        """A new study with round 0 and its runs; returns the number by which the other methods know it."""
        with self._database.writing() as connection:
            now = self._database.now(connection)
            study = study_rows.create(connection, now, name)
            study_rows.add_round(connection, now, study, spec, dataset, recommendation=None, index=0)
            run_rows.add(connection, now, study, 0, planned)
        return study

    studies = _reads(study_rows.every)
    study = _reads(study_rows.named)

    def add_round(
        self,
        study: int,
        spec: StudySpec,
        dataset: Dataset,
        recommendation: Mapping[str, Any] | None,
        *,
        index: int | None = None,
        planned: Sequence[PlannedRun] = (),
    ) -> int:
        """Append a round with its runs and return its index.

        With `index`, fail unless it is the next one.
        """
        with self._database.writing() as connection:
            now = self._database.now(connection)
            number = study_rows.add_round(connection, now, study, spec, dataset, recommendation, index)
            run_rows.add(connection, now, study, number, planned)
        return number

    rounds = _reads(study_rows.rounds_of)

    # --- runs

    add_runs = _writes(run_rows.add)
    withdraw_runs = _writes(run_rows.withdraw)
    runs = _reads(run_rows.of_study)
    some_runs = _reads(run_rows.some)
    outline = _reads(run_rows.outline)
    digests = _reads(run_rows.digests)
    find_runs = _reads(run_rows.find)
    specs = _reads(run_rows.specs)
    run = _reads(run_rows.one)
    attempts = _reads(run_rows.attempts_of)
    earlier_work = _reads(run_rows.earlier_work)
    last_workers = _reads(run_rows.last_workers)

    # --- leases

    def lease(
        self, study: int, worker: str, seconds: float, run_id: int | None = None, *, stage: Stage | None = None
    ) -> WholeRun | None:
        """Take a run that is pending, or whose worker's lease ran out, for `seconds`; None when there is none.

        It is the first of the latest round that has one, or `run_id` and no other. With a `stage` only runs that wait
        to be trained, or only those whose policy a worker trained. The row's `lease_token` goes into the calls below.
        """
        with self._database.writing() as connection:
            now = self._database.now(connection)
            taken = leases.take(connection, now, study, worker, seconds, run_id, stage)
            return None if taken is None else run_rows.one(connection, taken)

    def heartbeat(self, run_id: int, lease_token: int, seconds: float) -> float:
        """Extend the lease to `seconds` from now; returns its new end. LeaseLost when the run was taken over."""
        return self._write(leases.extend, run_id, lease_token, seconds)

    def fail(self, run_id: int, lease_token: int | None, error: str, *, trains_anew: bool = False) -> None:
        """Mark the run as failed for this reason, until `retry`.

        With `trains_anew`, its policy and the trials that workers recorded of it are removed.
        """
        self._write(results.fail, run_id, lease_token, error, trains_anew)

    def release(self, run_id: int, lease_token: int | None = None) -> None:
        """Release the run unfinished; its trials stay, and the next worker continues from them."""
        self._write(leases.end, run_id, lease_token, "released")

    hand_over = _writes(results.hand_over)

    def retry(self, run_id: int) -> None:
        """Make a failed or trained run pending again; its error stays in the attempts."""
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

        A run that is done has at least one result. With `waits` the run becomes trained instead and waits for results
        of people; no worker takes it. `documents` are stored with the study. Without a token a person ends
        the run, and the worker that holds it loses it. `policy` and repeated calls count as in `append_trials`.
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

    trials = _reads(results.trials_of)
    tallies = _reads(results.tallies)
    counts = _reads(results.counts)

    def append_scores(self, run_id: int, scores: Iterable[Measurement], lease_token: int | None = None) -> int:
        """Store results that are means rather than trials, all or none; returns how many were new.

        Factor and source name a measurement, under the rule of `append_trials`. A run that is done still takes them
        by hand: another source is another measurement and changes no row.
        """
        return self._write(results.append_scores, run_id, scores, lease_token)

    import_means = _writes(imports.take_in)
    scores = _reads(results.scores_of)
    study_scores = _reads(results.scores_of_study)

    # --- trials that people score

    add_evaluation = _writes(trial_queue.add)
    evaluations = _reads(trial_queue.of_study)
    evaluation = _reads(trial_queue.one)
    queue = _reads_now(trial_queue.read)
    queued_trial = _reads_now(trial_queue.of_code)
    queue_summary = _reads_now(summaries.summary)
    entries = _reads(trial_queue.history)
    claim_trial = _writes(trial_queue.claim)
    unclaim_trials = _writes(trial_queue.unclaim)
    append_entries = _writes(trial_queue.tell)
    close_evaluation = _writes(trial_queue.close)
    unsettled_trials = _reads_now(trial_queue.unsettled)

    # --- documents

    def put_document(self, study: int, kind: str, key: str, body: Any) -> None:
        """Store plain data with the study; reads return the latest document of a kind and key."""
        self.put_documents(study, [(kind, key, body)])

    def put_documents(self, study: int, put: Sequence[Document], *, fresh: bool = False) -> None:
        """Several documents at once, each with its kind, key and body; all or none.

        With `fresh`, fail where one of that kind and key exists, for example because another process made it.
        """
        with self._database.writing() as connection:
            now = self._database.now(connection)
            for kind, key, body in put:
                if fresh:
                    study_rows.require_no_document(connection, study, kind, key)
                study_rows.put_document(connection, now, study, kind, key, body)

    def document(self, study: int, kind: str, key: str) -> Any | None:
        """The latest document of this kind and key, or None."""
        found = self.documents(study, kind, key)
        return found[0].body if found else None

    documents = _reads(study_rows.documents_of)

    # --- export and import

    dump = _reads(exchange.dump)

    def load(
        self,
        data: Mapping[str, Any],
        name: str | None = None,
        check: Callable[[Mapping[str, Any]], None] = lambda data: None,
    ) -> int:
        """Recreate a dumped study, under `name` or, when its own name is taken, the first free of name-2, name-3, …

        `check` is called with the data when every part is well formed; if it raises, nothing is stored.
        """
        with self._database.writing() as connection:
            return exchange.load(connection, data, name, check)
