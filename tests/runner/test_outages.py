"""A database that is away or locked for a while: nothing of it counts as an error of the runs."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from factored_scaling.backends import Context
from factored_scaling.core.design import RunSpec
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Measurement
from factored_scaling.errors import StoreError, StoreUnreachable
from factored_scaling.runner.carry_out import carry_out_together, give_back
from factored_scaling.runner.events import Event
from factored_scaling.runner.line import Stopped
from factored_scaling.runner.options import WorkOptions
from factored_scaling.runner.queue import RunQueue
from factored_scaling.runner.worker import take_alike, work
from factored_scaling.store import Store
from factored_scaling.study import Study

SPEC = StudySpec({"camera_pose": 2, "lighting": 2}, construction="one", points=2)


class QuietLine:
    """A line nobody listens to."""

    stopping = False
    training = False

    def say(self, event: Event) -> None: ...

    def check(self) -> None: ...


class Means:
    """Measures every run with a mean."""

    def train(self, run: RunSpec, folder: Path, context: Context) -> None: ...

    def evaluate(self, run: RunSpec, folder: Path, context: Context) -> Iterator[Measurement]:
        yield Measurement(0.5, None, (), "test")


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[RunQueue]:
    """The runs of a study, in a store that soon calls a locked file locked."""
    with Study.create(SPEC, tmp_path / "study.db") as study:
        id_ = study.id
    with RunQueue(Store.open(tmp_path / "study.db", busy_seconds=0.05), id_) as opened:
        yield opened


def outcomes(queue: RunQueue) -> list[str]:
    return sorted(one.outcome for run in queue.runs() for one in queue.store.attempts(run.id))


def test_a_locked_file_is_waited_for(tmp_path: Path, queue: RunQueue) -> None:
    other = sqlite3.connect(tmp_path / "study.db", isolation_level=None, check_same_thread=False)

    class Locks(Means):
        def evaluate(self, run: RunSpec, folder: Path, context: Context) -> Iterator[Measurement]:
            other.execute("BEGIN IMMEDIATE")
            threading.Timer(0.5, other.execute, ("ROLLBACK",)).start()
            yield from super().evaluate(run, folder, context)

    carry_out_together(queue, queue.ask(1), Locks(), QuietLine(), WorkOptions(), tmp_path)
    other.close()
    assert outcomes(queue) == ["done"]


def test_an_error_of_the_database_is_not_one_of_the_run(
    tmp_path: Path, queue: RunQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(queue.store, "tell", refused)
    with pytest.raises(StoreError, match="the disk is full"):
        carry_out_together(queue, queue.ask(1), Means(), QuietLine(), WorkOptions(), tmp_path)
    assert "failed" not in {run.state for run in queue.runs()}


def failing(times: int, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, which the database does not answer for some times."""
    left = iter(range(times))

    def called(*arguments: Any, **more: Any) -> Any:
        if next(left, None) is not None:
            raise StoreUnreachable("the database's server does not answer")
        return call(*arguments, **more)

    return called


@pytest.mark.parametrize("name", ["lease", "document", "outline", "attempts", "tell"])
def test_a_worker_outlasts_a_short_outage(
    tmp_path: Path, queue: RunQueue, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("factored_scaling.runner.worker.WAIT", 0.01)
    away = failing(2, getattr(Store, name))

    class Begins(QuietLine):
        """The outage begins after the worker has looked at the runs."""

        @property
        def stopping(self) -> bool:  # type: ignore[override]
            monkeypatch.setattr(Store, name, away)
            return False

    work(Begins(), queue.store.address, queue.id, tmp_path, WorkOptions(), Means())
    assert {run.state for run in queue.runs()} == {"done"}
    assert {one.outcome for run in queue.runs() for one in queue.store.attempts(run.id)} <= {"done", "released"}


def test_a_worker_gives_up_after_a_long_outage(
    tmp_path: Path, queue: RunQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("factored_scaling.runner.worker.WAIT", 0.01)
    monkeypatch.setattr("factored_scaling.runner.worker.STORE_PATIENCE", 0.1)
    monkeypatch.setattr(Store, "lease", failing(1000, Store.lease))
    with pytest.raises(StoreUnreachable):
        work(QuietLine(), queue.store.address, queue.id, tmp_path, WorkOptions(), Means())


def test_a_stop_during_an_outage_is_no_error(tmp_path: Path, queue: RunQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stops(QuietLine):
        looks = 0

        @property
        def stopping(self) -> bool:  # type: ignore[override]
            self.looks += 1
            return self.looks > 2

    monkeypatch.setattr("factored_scaling.runner.worker.WAIT", 0.01)
    monkeypatch.setattr(Store, "lease", failing(1000, Store.lease))
    work(Stops(), queue.store.address, queue.id, tmp_path, WorkOptions(), Means())


@pytest.mark.parametrize("error", [Stopped(), StoreUnreachable("the database's server does not answer")])
def test_all_runs_of_a_group_are_given_back_after_a_short_outage(
    tmp_path: Path, queue: RunQueue, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    class Stops(Means):
        def train(self, run: RunSpec, folder: Path, context: Context) -> None:
            raise error

    monkeypatch.setattr(queue.store, "release", failing(1, queue.store.release))
    with pytest.raises(type(error)):
        carry_out_together(queue, queue.ask(3), Stops(), QuietLine(), WorkOptions(), tmp_path)
    assert [run.state for run in queue.runs()] == ["pending"] * 3


def test_an_outage_while_a_group_is_taken_leaves_nothing_leased(
    tmp_path: Path, queue: RunQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorkOptions, "runs_at_once", 3)
    monkeypatch.setattr(queue.store, "runs", failing(1, queue.store.runs))
    with pytest.raises(StoreUnreachable):
        take_alike(queue, WorkOptions())
    assert [run.state for run in queue.runs()] == ["pending"] * 3


def test_a_long_outage_leaves_runs_to_their_leases(
    tmp_path: Path, queue: RunQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("factored_scaling.runner.carry_out.RELEASE_PATIENCE", 0.1)
    monkeypatch.setattr(queue.store, "release", failing(1000, queue.store.release))
    give_back(queue, queue.ask(3))
    assert [run.state for run in queue.runs()] == ["running"] * 3
