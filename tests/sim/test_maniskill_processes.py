"""The simulator processes: they survive a kill, never outlive their parent, and say what is missing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.sim.maniskill_cases import Wanderer, needs_maniskill, spread

from factored_scaling.errors import FscError, UnknownName
from factored_scaling.sim import Condition
from factored_scaling.sim.maniskill import renderer
from factored_scaling.sim.maniskill.factors import trial_scene
from factored_scaling.sim.maniskill.pool import Pool, ProcessDied
from factored_scaling.sim.maniskill.rules import SETTINGS
from factored_scaling.sim.maniskill.task import make_task
from factored_scaling.sim.maniskill.worker import Move, Options

pytestmark = pytest.mark.slow  # every one starts simulator processes

NAME = "maniskill/pull-visual"
PARENT = """
import sys, time
from factored_scaling.sim import DemoRequest
from factored_scaling.sim.maniskill.task import make_task

if __name__ == "__main__":
    task = make_task("maniskill/pull-visual", 32, processes=2)
    task.attempt([DemoRequest("a", None, 0), DemoRequest("b", None, 1)], pictures=False)
    print(*task.pool(False).pids(), flush=True)
    time.sleep(600)
"""
LEFT_OPEN = """
import weakref

class Early: ...

early = Early()
weakref.finalize(early, print, end="")  # its exit hook now runs after that of multiprocessing

import multiprocessing
from factored_scaling.sim import DemoRequest
from factored_scaling.sim.maniskill.task import make_task

def play():
    global task
    task = make_task("maniskill/pull-visual", 32, processes=1)
    task.attempt([DemoRequest("a", None, 0)], pictures=False)
    print(*task.pool(False).pids(), flush=True)

if __name__ == "__main__":
    other = multiprocessing.get_context("spawn").Process(target=play)
    other.start()
    other.join()
    play()
"""
BLIND = """
from factored_scaling.errors import FscError
from factored_scaling.sim import Condition, DemoRequest, load_task

if __name__ == "__main__":
    task = load_task("maniskill/pull-visual", 32)
    task.processes = 1
    print(len(task.attempt([DemoRequest("a", "lighting", 0)], pictures=False)), "recorded")
    try:
        task.first_frames([Condition(None, 0, 0)])
    except FscError as error:
        print(type(error).__name__, error)
"""


def test_an_evaluation_with_killed_processes_ends_complete_and_the_same() -> None:
    needs_maniskill()
    task = make_task(NAME, 32, processes=2)
    task.max_steps = 40
    conditions = spread(task.factors, 9)
    killed: list[int] = []

    def kill(call: int) -> None:
        if call in (2, 5):
            victim = task.pool(True).pids()[len(killed)]
            killed.append(victim)
            os.kill(victim, signal.SIGKILL)

    try:
        calm, disturbed = Wanderer(), Wanderer(kill)
        expected = list(task.rollout(calm, conditions))
        scores = list(task.rollout(disturbed, conditions))
    finally:
        task.close()
    assert len(set(killed)) == 2
    assert scores == expected
    assert [condition for condition, _ in scores] == conditions
    assert disturbed.seen == calm.seen


def test_policies_side_by_side_meet_what_each_would_meet_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_maniskill()
    task = make_task(NAME, 32, processes=2)
    task.max_steps = 24
    conditions = spread(task.factors, 5)
    monkeypatch.setattr("factored_scaling.sim.maniskill.task.LANES_EACH", 64)
    killed: list[int] = []

    def kill(call: int) -> None:
        if call == 4:
            killed.append(task.pool(True).pids()[0])
            os.kill(killed[0], signal.SIGKILL)

    try:
        alone, together = Wanderer(), Wanderer(kill)
        scores = [score for _, score in task.rollout(alone, conditions)]
        rows = dict(task.rollout_many(together, 3, conditions))
    finally:
        task.close()
    assert killed
    assert [rows[row] for row in range(15)] == scores * 3
    for policy in range(3):
        assert {row: together.seen[5 * policy + row] for row in range(5)} == alone.seen
        # A batch of all policies holds at most one of each; which come together depends on timing.
        mine = [[row % 5 for row in batch if row // 5 == policy] for batch in together.batches]
        assert sorted(batch for batch in mine if batch) == sorted(alone.batches)


def test_processes_that_keep_dying_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_maniskill()
    task = make_task(NAME, 32, processes=1)
    monkeypatch.setattr("factored_scaling.sim.maniskill.pool.RESTARTS", 0)

    def kill(call: int) -> None:
        os.kill(task.pool(True).pids()[0], signal.SIGKILL)

    with pytest.raises(FscError, match="keep dying"):
        list(task.rollout(Wanderer(kill), spread(task.factors, 2)))
    assert task.pool(True).pids() == []


def test_processes_end_with_their_parent(tmp_path: Path) -> None:
    needs_maniskill()
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        children = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(children) == 2
        assert all(_alive(child) for child in children)
        parent.kill()
    until = time.monotonic() + 20
    while any(_alive(child) for child in children) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(_alive(child) for child in children)


def test_processes_that_were_not_closed_do_not_keep_python_from_ending(tmp_path: Path) -> None:
    needs_maniskill()
    script = tmp_path / "left_open.py"
    script.write_text(LEFT_OPEN)
    done = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, text=True, check=True, timeout=120)
    children = [int(pid) for pid in done.stdout.split()]
    assert len(children) == 2
    assert not any(_alive(child) for child in children)


def test_sigterm_to_all_processes_is_left_to_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_maniskill()
    monkeypatch.setattr("factored_scaling.sim.maniskill.pool.RESTARTS", 0)
    rules = SETTINGS[NAME]
    jobs = [Move(0, trial_scene(rules, Condition(None, 0, 0)), np.empty((0, 8), np.float32))]
    pool = Pool(Options(rules, 32, render=False), 2)
    try:
        ticket = pool.send(0, jobs)
        os.kill(pool.pids()[0], signal.SIGTERM)  # while it starts
        with pytest.raises(ProcessDied):
            pool.receive(ticket)
        for index in (0, 1):
            pool.receive(pool.send(index, jobs))
        lives = [pool.life(index) for index in (0, 1)]
        for pid in pool.pids():
            os.kill(pid, signal.SIGTERM)
        for index in (0, 1):
            assert len(pool.receive(pool.send(index, jobs))) == 1
        assert [pool.life(index) for index in (0, 1)] == lives
    finally:
        pool.close()
    assert pool.pids() == []


def test_without_vulkan_states_are_still_made_and_pictures_say_what_to_install(tmp_path: Path) -> None:
    needs_maniskill()
    script = tmp_path / "blind.py"
    script.write_text(BLIND)
    missing = {"VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"}
    asked = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True, env=os.environ | missing, timeout=300
    )
    told = asked.stdout.splitlines()
    assert told[0] == "1 recorded"
    assert told[1].startswith("NoRenderer cannot render: there is no Vulkan driver")
    assert "mesa-vulkan-drivers" in told[1]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("vk::createInstanceUnique: ErrorIncompatibleDriver", "there is no Vulkan driver"),
        ("Failed to find a supported physical device", "too old"),
        ("failed to find a rendering device", "usable device"),
        ("something new", "something new"),
    ],
)
def test_the_renderers_errors_are_translated(raw: str, words: str) -> None:
    error = renderer.translate(RuntimeError(raw))
    assert words in str(error)
    assert "apt-get install" in str(error)


def test_the_renderer_can_be_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_maniskill()
    find = renderer.find_renderer.__wrapped__
    monkeypatch.setenv("FSC_SIM_RENDERER", "cpu")
    assert find() == "cpu"
    monkeypatch.setenv("FSC_SIM_RENDERER", "cuda")
    with pytest.raises(UnknownName, match="FSC_SIM_RENDERER: unknown renderer 'cuda'"):
        find()
    if not torch.cuda.is_available():  # a renderer that was asked for is not replaced by the other
        monkeypatch.setenv("FSC_SIM_RENDERER", "gpu")
        with pytest.raises(renderer.NoRenderer, match="cannot render"):
            find()


def _alive(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody has collected yet does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
