"""Killed at any instant, a store loses nothing that it acknowledged and keeps nothing twice."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from factored_scaling.core.trials import Trial
from factored_scaling.store import Store

PROGRAMS = Path(__file__).parent / "programs"
TRIALS = 1000
FEWEST_KILLS = 5


def random_instants(seed: int) -> Iterator[str]:
    """How many bytes of acknowledgements to wait for, and how many seconds more, before each kill."""
    generator = random.Random(seed)
    while True:
        # counted in trials rather than in time, so that a slow machine takes as many kills as a fast one
        yield f"{generator.randint(1, 500)} {generator.uniform(0, 0.003)}"
        # and now and then while the child is still starting and opening the database
        if generator.random() < 0.3:
            yield f"0 {generator.uniform(0, 0.05)}"


@pytest.mark.timeout(180)
def test_every_acknowledged_trial_survives_kill_9(address: str, tmp_path: Path, example_at: Any) -> None:
    run_id = example_at(address).runs[0]
    file = tmp_path / "acknowledged"
    file.touch()
    instants = random_instants(20_240)
    kills = 0
    command = [sys.executable, str(PROGRAMS / "append.py"), address, str(run_id), str(TRIALS), str(file)]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program,
        Store.open(address) as store,
    ):
        assert program.stdin is not None
        assert program.stdout is not None
        status = -signal.SIGKILL
        while status == -signal.SIGKILL:
            print(next(instants), file=program.stdin, flush=True)
            status = int(program.stdout.readline())
            kills += status == -signal.SIGKILL
            acknowledged = file.read_text().split()
            stored = store.trials(run_id)
            assert set(acknowledged) <= {trial.key for trial in stored}
            # at most the one under way at each kill was stored without word of it
            assert len(stored) - len(acknowledged) <= kills
    assert status == 0
    assert kills >= FEWEST_KILLS, "the child finished too soon to have been tested"
    assert len(acknowledged) == len(set(acknowledged))
    assert len(stored) == TRIALS
    assert set(stored) == {Trial(str(number), number / TRIALS, ("light",)) for number in range(TRIALS)}


@pytest.mark.timeout(60)
def test_a_killed_workers_run_comes_back(address: str, example_at: Any) -> None:
    example = example_at(address)
    command = [sys.executable, str(PROGRAMS / "hold.py"), address, str(example.study)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        run_id = int(child.stdout.readline())
        child.kill()
    with Store.open(address) as store:
        held = store.run(run_id)
        assert (held.state, held.worker) == ("running", "doomed")
        while (again := store.lease(example.study, "heir", 60, run_id=run_id)) is None:
            time.sleep(0.05)
        assert again.started is not None
        assert held.lease_expires is not None
        assert again.started >= held.lease_expires
        assert [(row.worker, row.outcome) for row in store.attempts(run_id)] == [("doomed", "lost")]
