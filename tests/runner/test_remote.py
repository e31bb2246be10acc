"""The body of a scheduler's job: when it starts another worker process, waits to be queued again, or ends."""

from __future__ import annotations

import _thread
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from factored_scaling.core.spec import StudySpec
from factored_scaling.runner import remote
from factored_scaling.runner.executors import Job
from factored_scaling.runner.options import WorkOptions
from factored_scaling.runner.remote import PARENT, STOPPED, RemoteLine, Worker
from factored_scaling.store.documents import JOBS
from factored_scaling.study import Study

Processes = Callable[..., list[str]]


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    """Replaces worker processes by lines of Python; returns those that were started."""

    popen = subprocess.Popen

    def replace(*lines: str) -> list[str]:
        left, begun = list(lines), list[str]()

        def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
            begun.append(left.pop(0))
            return popen([sys.executable, "-c", f"import os, signal, sys; {begun[-1]}"], **options)

        monkeypatch.setattr(subprocess, "Popen", start)
        return begun

    return replace


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """A study whose submission lies in `jobs/one`."""
    study = Study.create(StudySpec({"camera_pose": 2, "lighting": 2}), tmp_path / "study.db")
    path = tmp_path / "jobs" / "one" / "job.json"
    path.parent.mkdir(parents=True)
    remote.write_job(Job(study.store.address, study.id, tmp_path, WorkOptions()), path)
    return study


def job_file(study: Study) -> str:
    return str(Path(str(study.store.file)).parent / "jobs" / "one" / "job.json")


def test_a_worker_that_slurm_asks_to_stop_waits_to_be_killed_and_goes_on_if_nothing_happens(
    study: Study, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(remote, "GRACE", 0.3)
    monkeypatch.setattr(remote, "RETRY", 0.1)
    monkeypatch.setattr(remote, "stop_requested", lambda path: waited.append(0))
    with study:
        begun = processes(f"sys.exit({STOPPED})", "sys.exit(0)")
        assert Worker(job_file(study), "slurm:17_2")() == "no run is left"
        assert len(begun) == 2
        assert len(waited) > 2
        processes(f"sys.exit({STOPPED})")
        assert Worker(job_file(study), "ray:17")() == "stopped"


@pytest.mark.parametrize("how", ["now", "drain", "cancelled"])
def test_a_stop_request_in_the_record_ends_a_worker_on_slurm(study: Study, processes: Processes, how: str) -> None:
    with study:
        if how == "cancelled":
            study.store.put_document(study.id, JOBS, "one", {"cancelled": True})
        else:
            study.stop(now=how == "now")
        processes(f"sys.exit({STOPPED})")
        assert Worker(job_file(study), "slurm:17_2")() == "stopped"


def test_a_record_that_cannot_be_read_requests_no_stop(tmp_path: Path) -> None:
    assert not remote.stop_requested(tmp_path / "job.json")


def test_a_database_of_a_newer_version_is_said_at_once(
    study: Study, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(remote.RemoteLine, "listen", lambda line: None)
    path = Path(job_file(study))
    study.close()
    with sqlite3.connect(str(study.store.file)) as connection:
        connection.execute("UPDATE fsc_meta SET value = '9999' WHERE key = 'schema_version'")
    connection.close()
    assert remote.main(path) == 1
    assert "the database has version 9999" in (path.parent / remote.REASON).read_text()


def test_a_worker_that_ends_by_sigterm_while_it_starts_is_not_replaced(processes: Processes) -> None:
    begun = processes("os.kill(os.getpid(), signal.SIGTERM)", "sys.exit(0)")
    assert Worker("job.json", "ray:17")() == "stopped"
    assert len(begun) == 1


def test_a_worker_whose_parent_died_while_it_started_stops(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes(f"sys.exit(os.environ['{PARENT}'] != str(os.getppid()))")
    assert Worker("job.json", "ray:17")() == "no run is left"
    assert not RemoteLine().stopping
    monkeypatch.setenv(PARENT, str(os.getpid()))  # which is not the parent of this process
    assert RemoteLine().stopping


@pytest.mark.parametrize("interrupt", [partial(signal.raise_signal, signal.SIGUSR2), _thread.interrupt_main])
def test_a_stop_while_the_process_starts_ends_it(
    monkeypatch: pytest.MonkeyPatch, interrupt: Callable[[], None]
) -> None:
    popen, begun = subprocess.Popen, list[subprocess.Popen[bytes]]()

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        begun.append(popen([sys.executable, "-c", "import time; time.sleep(60)"], **options))
        interrupt()
        return begun[0]

    monkeypatch.setattr(subprocess, "Popen", start)
    worker = Worker("job.json", "ray:17")

    def handle(number: int, frame: object) -> None:  # as submitit does
        worker.stop()
        sys.exit()

    before = signal.signal(signal.SIGUSR2, handle)
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever tests before this one left
    try:
        worker()
    except SystemExit:
        pass
    except KeyboardInterrupt:
        worker.stop()
    finally:
        signal.signal(signal.SIGUSR2, before)
        signal.signal(signal.SIGINT, earlier)
    try:
        assert begun[0].wait(10) == -signal.SIGTERM
    finally:
        begun[0].kill()
