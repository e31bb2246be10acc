"""What is particular to the SQLite file: its durability settings, and everything that can be wrong with a file."""

from __future__ import annotations

import os
import socket
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, insert
from sqlalchemy.exc import OperationalError

from factored_scaling.core.trials import Trial
from factored_scaling.errors import InvalidInput, StoreError, StoreUnreachable, StudyMissing
from factored_scaling.store import Store, connections
from factored_scaling.store.connections import Database, address_of
from factored_scaling.store.schema import scores


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study.db"


def test_a_commit_is_on_disk_when_it_returns(path: Path) -> None:
    database = Database(path, create=True, clock=None, busy_seconds=1.0)
    with database.reading() as connection:
        settings = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    database.close()
    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 1000}


def test_a_path_and_a_url_are_the_same_place(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(path) as store:
        assert store.place == str(path)
    monkeypatch.chdir(path.parent)
    for address in (path, str(path), f"sqlite:///{path}", "study.db", "sqlite:///study.db"):
        with Store.open(address, create=False) as store:
            assert store.place == str(path)


def test_a_store_does_not_move_when_the_process_does(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with Store.open("study.db") as store:
        (path.parent / "elsewhere").mkdir()
        monkeypatch.chdir(path.parent / "elsewhere")
        assert store.studies() == []
    assert list(path.parent.glob("elsewhere/*")) == []


@pytest.mark.parametrize(
    "address", ["sqlite://", "sqlite:///:memory:", "mysql://u:secret@h/d", "postgresql+pg8000://u@h/d"]
)
def test_other_databases_are_refused(address: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        address_of(address)
    assert "secret" not in str(caught.value)


def test_a_broken_address_does_not_show_its_password() -> None:
    with pytest.raises(InvalidInput, match="cannot be read") as caught:
        address_of("postgresql://user:secret@host:port/name")
    assert "secret" not in str(caught.value)


def test_a_server_that_is_not_there_is_said_to_be_so() -> None:
    with pytest.raises(StoreError, match="cannot be reached") as caught:
        Store.open("postgresql://user:secret@localhost:1/name")
    assert "secret" not in str(caught.value)


def test_a_server_that_does_not_answer_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_PATIENCE", {**connections._PATIENCE, "connect_timeout": 2})
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"postgresql://user:secret@127.0.0.1:{silent.getsockname()[1]}/name"
        with pytest.raises(StoreUnreachable, match="does not answer: connection timeout expired") as caught:
            Store.open(address)
    assert "secret" not in str(caught.value)


def test_a_timeout_of_the_address_counts() -> None:
    given: dict[str, Any] = {}

    def connect(dialect: Any, record: Any, arguments: Any, parameters: dict[str, Any]) -> None:
        given.update(parameters)
        raise OperationalError("", None, Exception("stopped here"))

    event.listen(Engine, "do_connect", connect)
    try:
        with pytest.raises(StoreUnreachable):
            Store.open("postgresql://user@localhost:1/name?connect_timeout=3")
    finally:
        event.remove(Engine, "do_connect", connect)
    assert (given["connect_timeout"], given["tcp_user_timeout"]) == ("3", 30_000)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=f"there is no folder {tmp_path}/none"):
        Store.open(tmp_path / "none" / "study.db")
    with pytest.raises(StudyMissing):
        Store.open(tmp_path / "none" / "study.db", create=False)


@pytest.mark.parametrize("content", [b"name: study\nfactors: {}\n", os.urandom(5000)])
def test_a_file_that_is_no_database_is_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreError, match="is not a study database"):
        Store.open(path)
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE photos (id INTEGER)")
    connection.close()
    with pytest.raises(StoreError, match="another program"):
        Store.open(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("photos",)]
    connection.close()


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    with Store.open(path) as store:
        assert store.studies() == []


def test_a_damaged_file_is_said_to_be_damaged(path: Path, example_at: Any) -> None:
    example_at(str(path))
    content = path.read_bytes()
    page = 4096
    path.write_bytes(content[:page] + b"\xff" * (len(content) - page))
    with pytest.raises(StoreError, match=r"damaged|recover"), Store.open(path) as store:
        store.runs(store.studies()[0].id)


def test_a_file_cut_short_is_an_error_with_advice(path: Path, example_at: Any) -> None:
    example_at(str(path))
    path.write_bytes(path.read_bytes()[:6000])
    with pytest.raises(StoreError), Store.open(path) as store:
        store.runs(store.studies()[0].id)


def test_a_locked_file_is_waited_for_and_then_said_to_be_locked(path: Path, example_at: Any) -> None:
    example = example_at(str(path))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with Store.open(path, busy_seconds=0.05) as store:
        assert len(store.runs(example.study)) == len(example.runs)  # readers do not wait for a writer
        with pytest.raises(StoreError, match="another program holds the database"):
            store.append_trials(example.runs[0], [Trial("a", 1.0)])
        other.execute("ROLLBACK")
        assert store.append_trials(example.runs[0], [Trial("a", 1.0)]) == 1
    other.close()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write to everything")
@pytest.mark.parametrize(("file", "folder"), [(0o444, 0o555), (0o444, 0o755), (0o644, 0o555)])
def test_without_permission_to_write_a_file_is_read(path: Path, example_at: Any, file: int, folder: int) -> None:
    example = example_at(str(path))
    path.chmod(file)
    path.parent.chmod(folder)
    try:
        _is_read_and_not_written(path, example)
    finally:
        path.parent.chmod(0o755)


def test_a_file_that_may_not_be_written_to_is_read_and_left_alone(
    path: Path, example_at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = example_at(str(path))
    monkeypatch.setattr(connections, "_writable", lambda _: False)  # as on a read-only disk; root may write elsewhere
    _is_read_and_not_written(path, example)


def test_what_another_program_is_writing_is_read_without_permission_to_write(
    path: Path, example_at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = example_at(str(path))
    run = example.runs[0]
    with monkeypatch.context() as patch:
        patch.setattr(connections, "_writable", lambda _: False)
        reader = Store.open(path, create=False)
    with reader, Store.open(path) as writer:
        assert reader.trials(run) == []
        writer.append_trials(run, [Trial("a", 1.0)])  # it lies in the log, not in the file yet
        assert [trial.key for trial in reader.trials(run)] == ["a"]


def _is_read_and_not_written(path: Path, example: Any) -> None:
    content = path.read_bytes()
    with Store.open(path, create=False) as store:
        assert store.read_only
        assert len(store.runs(example.study)) == len(example.runs)
        with pytest.raises(StoreError, match=r"may not be written to.*permissions"):
            store.append_trials(example.runs[0], [Trial("a", 1.0)])
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == content


def test_every_row_belongs_to_something(path: Path, example_at: Any) -> None:
    example_at(str(path))
    database = Database(path, create=False, clock=None, busy_seconds=1.0)
    with pytest.raises(StoreError, match="FOREIGN KEY"), database.writing() as connection:
        connection.execute(insert(scores).values(run_id=99, factor="[]", source="", score=0, created=0))
    database.close()
