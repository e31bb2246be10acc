"""A database that is away or locked for a while: nothing of it counts as an error of the runs."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from factored_scaling.backends import Context
from factored_scaling.core.design import RunSpec
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Measurement
from factored_scaling.errors import StoreError
from factored_scaling.runner.carry_out import carry_out_together
from factored_scaling.runner.events import Event
from factored_scaling.runner.options import WorkOptions
from factored_scaling.runner.queue import RunQueue
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
