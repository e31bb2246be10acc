"""Worker processes: heard, restarted when killed, stopped at a safe point."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import threading
import time
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pytest

from factored_scaling.errors import RunFailed
from factored_scaling.runner.executors import Job
from factored_scaling.runner.executors.local import LocalExecutor, ProcessLine, run_workers
from factored_scaling.runner.line import Stopped
from factored_scaling.runner.options import WorkOptions


@pytest.mark.parametrize("own", [None, "7"])
def test_variables_for_the_workers_do_not_outlast_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str | None
) -> None:
    seen: list[str] = []

    def start(*_: object, **__: object) -> bool:
        seen.append(os.environ["FSC_SIM_PROCESSES"])
        return True

    monkeypatch.setattr("factored_scaling.runner.executors.local.run_workers", start)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.delenv("FSC_SIM_PROCESSES", raising=False)
    if own is not None:
        monkeypatch.setenv("FSC_SIM_PROCESSES", own)
    job = Job(str(tmp_path / "study.db"), 1, tmp_path, WorkOptions(backend={"kind": "command"}))
    for workers in (2, 4):  # the second call has its own share
        assert LocalExecutor().run(job, workers, print)
    assert seen == ([own, own] if own else ["4", "2"])
    assert os.environ.get("FSC_SIM_PROCESSES") == own


def count_to_three(line: ProcessLine, word: str) -> None:
    for number in range(3):
        line.say((word, number))  # type: ignore[arg-type]


def die_once(line: ProcessLine, mark: str) -> None:
    path = Path(mark)
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    line.say("alive")  # type: ignore[arg-type]


def work_for_ever(line: ProcessLine) -> None:
    line.say("begun")  # type: ignore[arg-type]
    while True:
        time.sleep(0.01)
        line.check()


def test_workers_are_heard() -> None:
    heard: list[Any] = []
    assert run_workers(2, count_to_three, ("x",), heard.append)
    assert sorted(heard) == sorted([("x", number) for number in range(3)] * 2)


def tell_about_interrupts(line: ProcessLine) -> None:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    line.say((signal.SIGINT in blocked, signal.getsignal(signal.SIGINT)))  # type: ignore[arg-type]


def test_an_interrupt_while_workers_start_prints_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    start, heard = SpawnProcess.start, list[Any]()

    def then_interrupt(process: SpawnProcess) -> None:
        start(process)
        for wait in (0.0, 0.05, 0.1):
            threading.Timer(wait, os.kill, (process.pid, signal.SIGINT)).start()

    monkeypatch.setattr(SpawnProcess, "start", then_interrupt)
    assert run_workers(1, tell_about_interrupts, (), heard.append)
    assert heard == [(False, signal.SIG_IGN)]
    assert capfd.readouterr().err == ""


def test_a_killed_worker_is_started_again(tmp_path: Path) -> None:
    heard: list[Any] = []
    assert run_workers(1, die_once, (str(tmp_path / "mark"),), heard.append)
    assert heard == ["alive"]


def talk_until_the_other_is_back(line: ProcessLine, folder: str) -> None:
    """One talks without a pause; the other dies once and is missed while that goes on."""
    talker, dead, back = (Path(folder) / name for name in ("talker", "dead", "back"))
    try:
        talker.touch(exist_ok=False)
    except FileExistsError:
        if dead.exists():
            back.touch()
            return
        time.sleep(0.3)
        dead.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(2000):
        line.say("talk")  # type: ignore[arg-type]
        time.sleep(0.005)
        if back.exists():
            break
    line.say(back.exists())  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_killed_worker_is_started_again_while_another_talks(tmp_path: Path) -> None:
    heard: list[Any] = []
    assert run_workers(2, talk_until_the_other_is_back, (str(tmp_path),), heard.append)
    assert heard[-1] is True


def test_an_interrupt_stops_at_a_safe_point() -> None:
    def hear(message: Any) -> None:
        if message == "begun":
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()

    assert not run_workers(1, work_for_ever, (), hear)


def save_when_stopped(line: ProcessLine, folder: str) -> None:
    line.say(os.getpid())  # type: ignore[arg-type]
    try:
        while True:
            time.sleep(0.01)
            line.check()
    except Stopped:
        (Path(folder) / str(os.getpid())).touch()
        raise


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_everybody_stops_at_a_safe_point(tmp_path: Path, number: signal.Signals) -> None:
    """As `timeout`, schedulers and terminals that close send it, to parent and workers in any order."""

    def hear(message: Any) -> None:
        os.kill(message, number)
        os.kill(os.getpid(), number)

    assert not run_workers(1, save_when_stopped, (str(tmp_path),), hear)
    assert len(list(tmp_path.iterdir())) == 1


def save_slowly_when_stopped(line: ProcessLine, folder: str) -> None:
    line.say("begun")  # type: ignore[arg-type]
    while not line.stopping:
        time.sleep(0.01)
    time.sleep(0.5)
    (Path(folder) / "saved").touch()


def test_signals_in_quick_succession_are_one(tmp_path: Path) -> None:
    def hear(message: Any) -> None:
        for _ in range(20):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.005)

    assert not run_workers(1, save_slowly_when_stopped, (str(tmp_path),), hear)
    assert (tmp_path / "saved").exists()


def ignore_the_stop(line: ProcessLine) -> None:
    line.say("begun")  # type: ignore[arg-type]
    time.sleep(60)


def test_a_second_interrupt_ends_at_once() -> None:
    def hear(message: Any) -> None:
        for seconds in (0.0, 1.2):
            threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()

    began = time.monotonic()
    assert not run_workers(1, ignore_the_stop, (), hear)
    assert time.monotonic() - began < 30


def test_nohup_is_respected(tmp_path: Path) -> None:
    heard: list[int] = []

    def hear(message: Any) -> None:
        heard.append(message)
        for process in (message, os.getpid()):
            os.kill(process, signal.SIGHUP)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert not run_workers(1, save_when_stopped, (str(tmp_path),), hear)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert [path.name for path in tmp_path.iterdir()] == list(map(str, heard))


def test_a_hangup_of_the_whole_group_gives_the_runs_back(tmp_path: Path) -> None:
    """Also multiprocessing's own process is in the group."""
    from tests.cluster.conftest import command, counting, outcomes, until  # which workers would import with this file

    with counting(tmp_path, updates=4000, seconds=0.02) as study:
        own = command("run", tmp_path, "--workers", "2")
        process = subprocess.Popen(own, start_new_session=True, stderr=subprocess.PIPE, text=True)
        until(lambda: len(list(tmp_path.glob("runs/*/steps.txt"))) == 2, "both workers train")
        os.killpg(process.pid, signal.SIGHUP)
        said = process.communicate(timeout=60)[1]
        assert process.returncode == 130
        assert said == "stopped; the same command continues from here\n"
        assert outcomes(study) == ["released", "released"]


def test_sigterm_to_a_worker_alone_starts_it_again_from_a_safe_point(tmp_path: Path) -> None:
    heard: list[int] = []

    def hear(message: Any) -> None:
        heard.append(message)
        os.kill(message if len(heard) == 1 else os.getpid(), signal.SIGTERM)

    assert not run_workers(1, save_when_stopped, (str(tmp_path),), hear)
    assert len(set(heard)) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(map(str, heard))


def raise_at_once(line: ProcessLine) -> None:
    raise ValueError("no such thing")


def test_a_worker_that_raises_ends_the_whole_with_its_reason(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RunFailed, match="no such thing"):
        run_workers(2, raise_at_once, (), print)
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.parametrize("error", [ValueError("callback bug"), SystemExit(3), OSError(5, "Input/output error")])
def test_an_error_of_the_callback_is_raised_when_the_workers_have_ended(tmp_path: Path, error: BaseException) -> None:
    """A terminal that was closed is such an error: it must not keep workers from reaching a safe point."""
    heard: list[int] = []

    def hear(message: Any) -> None:
        heard.append(message)
        raise error

    with pytest.raises(type(error)) as caught:
        run_workers(1, save_when_stopped, (str(tmp_path),), hear)
    assert caught.value is error
    assert [path.name for path in tmp_path.iterdir()] == list(map(str, heard))


def test_a_worker_that_does_not_end_after_an_error_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    def hear(message: Any) -> None:
        raise ValueError("callback bug")

    monkeypatch.setattr("factored_scaling.runner.executors.local.PATIENCE", 0.5)
    before = multiprocessing.active_children()
    with pytest.raises(ValueError, match="callback bug"):
        run_workers(1, ignore_the_stop, (), hear)
    assert multiprocessing.active_children() == before


def test_workers_are_not_abandoned_when_another_cannot_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, calls = SpawnProcess.start, list[SpawnProcess]()

    def second_fails(process: SpawnProcess) -> None:
        calls.append(process)
        if len(calls) == 2:
            raise OSError("Resource temporarily unavailable")
        start(process)

    monkeypatch.setattr(SpawnProcess, "start", second_fails)
    with pytest.raises(OSError, match="temporarily unavailable"):
        run_workers(2, save_when_stopped, (str(tmp_path),), print)
    assert len(list(tmp_path.iterdir())) == 1
