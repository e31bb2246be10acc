"""The connection to the database: addresses, transactions, clocks, forks, and error messages."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from factored_scaling.errors import (
    FscError,
    InvalidInput,
    StoreError,
    StoreUnreachable,
    StudyMissing,
    hide_passwords,
    installs,
)

Clock = Callable[[], float]

# libpq's parameters for a PostgreSQL server, or a network, that does not answer; the address may have others
_PATIENCE = {
    "connect_timeout": 10,  # seconds
    "tcp_user_timeout": 30_000,  # milliseconds until sent data must have arrived
    "keepalives_idle": 30,  # seconds until an idle connection is checked, then between checks, and how many may fail
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
_READ_ONLY = (
    "the database may not be written to",
    "check the file's and the folder's permissions, or work on a copy of the folder",
)
_LOCKED, _NO_SERVER = "is locked", "connection failed"  # both may be over in a moment
# message of the database → what happened and what to do; the first match counts
_TROUBLE: tuple[tuple[str, str, str], ...] = (
    ("file is not a database", "is not a study database", "check the path; the file was left as it was"),
    (
        "malformed",
        "the database is damaged",
        "restore a backup, or save what is readable with `sqlite3 FILE .recover`",
    ),
    (_LOCKED, "another program holds the database", "let it finish or close it, then try again"),
    ("unable to open", "the database cannot be opened", "check that the folder exists and may be written to"),
    ("readonly", *_READ_ONLY),
    ("disk is full", "the disk is full", "make room and run the same again; what was stored is intact"),
    ("password authentication", "the server refused the user or password", "check both in the address"),
    (_NO_SERVER, "the server cannot be reached", "check that it runs and that the address is right"),
    ("permission denied", "the database user may not do this", "grant it rights on the schema"),
)


def address_of(given: str | Path) -> URL:
    """The database behind a path, `sqlite:///file` or `postgresql://user@host/name`."""
    if isinstance(given, Path) or "://" not in given:
        return URL.create("sqlite", database=str(Path(given).expanduser().absolute()))
    scheme, rest = given.split("://", 1)
    known = {"postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg"}
    try:
        url = make_url(f"{known.get(scheme, scheme)}://{rest}")
    except (ArgumentError, ValueError):  # the address itself is not shown: it may hold a password
        raise InvalidInput(
            "the database address cannot be read", hint="write sqlite:////full/path.db or postgresql://user@host/name"
        ) from None
    if url.drivername == "sqlite":
        if url.database in (None, "", ":memory:"):
            raise InvalidInput("a database in memory is not saved", hint="give a file: sqlite:////full/path.db")
        return url.set(database=str(Path(str(url.database)).expanduser().absolute()))
    if url.drivername != "postgresql+psycopg":
        raise InvalidInput(f"no store for {scheme}://", hint="use a file, sqlite:/// or postgresql://")
    return url


class Database:
    """One engine, and the only way to it: `reading` and `writing` transactions."""

    def __init__(self, address: str | Path, *, create: bool, clock: Clock | None, busy_seconds: float) -> None:
        self.url = address_of(address)
        self.is_sqlite = self.url.drivername == "sqlite"
        self.place = str(self.url.database) if self.is_sqlite else hide_passwords(self.url.render_as_string())
        if self.is_sqlite and not create and not Path(self.place).exists():
            raise missing(self.place)
        # a read-only study, of another user or archived, can still be read
        self.read_only = self.is_sqlite and Path(self.place).exists() and not _writable(Path(self.place))
        self._clock = clock if clock is not None or not self.is_sqlite else time.time
        self._gate = _Gate()
        self._closed = False
        with self._translated():
            if self.is_sqlite:
                self._engine = _sqlite_engine(self.url, busy_seconds, self.read_only)
            else:
                self._engine = _postgres_engine(self.url)
        # a read is one snapshot; a write sees what others committed before it and locks what it changes
        if self.is_sqlite:
            self._reader, self._writer = self._engine, self._engine.execution_options(fsc_writes=True)
        else:
            self._reader = self._engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            self._writer = self._engine.execution_options(isolation_level="READ COMMITTED")
        _remember(self)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A read-only transaction on one snapshot."""
        with self._translated(), self._gate.passing(), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """An atomic transaction that is on disk when the block ends."""
        if self.read_only:
            what, hint = _READ_ONLY
            raise StoreError(what, where=self.place, hint=hint)
        with self._translated(), self._gate.passing(), self._writer.begin() as connection:
            yield connection

    def now(self, connection: Connection) -> float:
        """Seconds since 1970 by the injected clock, else by the server's, so that all workers use one clock."""
        if self._clock is not None:
            return self._clock()
        return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())::float8")).scalar_one())

    def close(self) -> None:
        """Close every connection; the database cannot be used afterwards."""
        self._closed = True
        self._engine.dispose()

    def before_fork(self) -> None:
        """Wait for open transactions, then close all connections, so that the child inherits none."""
        self._gate.shut()
        self._engine.dispose()

    def after_fork(self) -> None:
        """Continue after a fork, in the parent and in the child, with new connections."""
        self._gate.open()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        if self._closed:
            raise StoreError("the store is closed", where=self.place)
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise _plain_error(error, self.place) from error


def missing(place: str) -> StudyMissing:
    """The error for a store that does not exist."""
    return StudyMissing("no study database here", where=place, hint="check the path, or create it with `fsc init`")


def _plain_error(error: Exception, place: str) -> FscError:
    if isinstance(error, NoSuchModuleError):
        return InvalidInput("no store for this kind of database", where=place, hint="use SQLite or PostgreSQL")
    said = str(error.orig if isinstance(error, DBAPIError) and error.orig is not None else error)
    for words, what, hint in _TROUBLE:
        if words in said.lower():
            kind = StoreUnreachable if words in (_LOCKED, _NO_SERVER) else StoreError
            return kind(what, where=place, hint=hint)
    first = next(iter(said.strip().splitlines()), type(error).__name__)
    if isinstance(error, OperationalError) and not isinstance(error.orig, sqlite3.Error):
        return StoreUnreachable(f"the database's server does not answer: {first}", where=place)
    return StoreError(f"the database refused: {first}", where=place)


def _writable(path: Path) -> bool:
    """Whether SQLite can write to the file and to its folder, which holds the write-ahead log."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def _sqlite_engine(url: URL, busy_seconds: float, read_only: bool) -> Engine:
    folder = Path(str(url.database)).parent
    if not folder.is_dir():
        raise StoreError(f"there is no folder {folder}", where=str(url.database), hint="create it first")
    if read_only:
        # each transaction opens the file again: another process may begin to write at any time
        path = Path(str(url.database))
        engine = create_engine(url, creator=lambda: _open_to_read(path, busy_seconds), poolclass=NullPool)
    else:
        engine = create_engine(url, connect_args={"timeout": busy_seconds}, max_overflow=-1)

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _record: Any) -> None:
        connection.isolation_level = None  # transactions are begun below, not guessed from the statements
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")  # a commit that returned survives a power cut
        if not read_only:
            _use_wal(connection, busy_seconds)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # a writer locks at once: two that read first and write later would fail instead of queueing
        writes = connection.get_execution_options().get("fsc_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _open_to_read(path: Path, patience: float) -> sqlite3.Connection:
    """Open a file without a write-ahead log as immutable: nobody writes to it, and SQLite need not create a log."""
    alone = not path.with_name(f"{path.name}-wal").exists()
    address = f"{path.as_uri()}?mode=ro{'&immutable=1' if alone else ''}"
    return sqlite3.connect(address, uri=True, timeout=patience, check_same_thread=False)


def _use_wal(connection: sqlite3.Connection, patience: float) -> None:
    """Turn on the write-ahead log, with which readers never wait. The file stores the setting."""
    deadline = time.monotonic() + patience
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return  # if the file system does not support it, SQLite uses its other journal, which is as durable
        except sqlite3.OperationalError as error:
            # SQLite does not wait for another process that opens the same new file
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _postgres_engine(url: URL) -> Engine:
    patience = {key: value for key, value in _PATIENCE.items() if key not in url.query}
    try:
        return create_engine(url, pool_pre_ping=True, connect_args=patience)
    except ModuleNotFoundError:
        raise StoreError("PostgreSQL needs the psycopg package", hint=installs("postgres")) from None


class _Gate:
    """Lets operations run together and forks run alone, so that a fork never copies an unfinished operation."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._inside = 0
        self._forking = False

    @contextmanager
    def passing(self) -> Iterator[None]:
        with self._condition:
            while self._forking:  # a waiting fork goes first, or busy threads would block it forever
                self._condition.wait()
            self._inside += 1
        try:
            yield
        finally:
            with self._condition:
                self._inside -= 1
                self._condition.notify_all()

    def shut(self) -> None:
        self._condition.acquire()
        self._forking = True
        while self._inside:
            self._condition.wait()

    def open(self) -> None:
        self._forking = False
        self._condition.notify_all()
        self._condition.release()


# An SQLite connection that crosses a fork can corrupt its file (the child believes it holds the parent's locks), and a
# PostgreSQL one mixes two processes' messages. So forks close idle connections first; both sides reconnect on use.
_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_databases_lock = threading.Lock()
_shut: list[Database] = []


def _remember(database: Database) -> None:
    with _databases_lock:
        _databases.add(database)


def _before_fork() -> None:
    _databases_lock.acquire()
    for database in list(_databases):
        database.before_fork()
        _shut.append(database)


def _after_fork() -> None:
    while _shut:
        _shut.pop().after_fork()
    _databases_lock.release()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
