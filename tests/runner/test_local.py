"""Worker processes: heard, restarted when killed, stopped at a safe point."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from factored_scaling.errors import RunFailed
from factored_scaling.runner.executors.local import ProcessLine, run_workers
from factored_scaling.runner.line import Stopped


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


def test_sigterm_to_everybody_stops_at_a_safe_point(tmp_path: Path) -> None:
    """As `timeout` and schedulers send it, to parent and workers in any order."""

    def hear(message: Any) -> None:
        os.kill(message, signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)

    assert not run_workers(1, save_when_stopped, (str(tmp_path),), hear)
    assert len(list(tmp_path.iterdir())) == 1


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
