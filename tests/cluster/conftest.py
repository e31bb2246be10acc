"""Real clusters of three nodes on this machine: Slurm by scripts/slurm-for-tests, Ray by its own test cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.runner.test_worker import POLICY, TASK

from factored_scaling.core.spec import StudySpec
from factored_scaling.io.files import write_study
from factored_scaling.store import RunRow
from factored_scaling.study import Study

ROOT = Path(__file__).parents[2]
LEASE = "4"
Answer = TypeVar("Answer")
Rows = dict[str, list[Any]]


def required(reason: str) -> None:
    """Skip the test, or fail it where everything has to run."""
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)


@dataclass(frozen=True)
class Slurm:
    """The cluster of the tests."""

    home: Path

    def script(self, *words: str) -> str:
        environment = {**os.environ, "FSC_SLURM_HOME": str(self.home)}
        done = subprocess.run(
            [ROOT / "scripts" / "slurm-for-tests", *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        if done.returncode:
            raise OSError(done.stderr.strip())
        return done.stdout.strip()

    def ask(self, *command: str) -> list[str]:
        """The lines that a command of Slurm prints; it may be repeated while the scheduler starts."""
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout.split("\n")[:-1] if done.returncode == 0 else []

    def jobs(self) -> list[str]:
        return self.ask("squeue", "--noheader", "--format=%i %T")

    def node_of(self, worker: str | None) -> str:
        """The number of the node on which a worker's job runs."""
        job = str(worker).partition(" ")[0].removeprefix("slurm:")
        return self.ask("squeue", "--noheader", "--jobs", job, "--format=%N")[0].removeprefix("n")

    def clear(self) -> None:
        """Cancel what a test left, and wait until all nodes are idle."""
        self.ask("scancel", "--user=root")
        until(lambda: not self.jobs() or None, "jobs are gone")
        idle = ("sinfo", "--noheader", "-N", "-p", "short", "-t", "idle", "-o", "%N")
        until(lambda: len(self.ask(*idle)) == 3 or None, "three nodes are idle")


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[Slurm]:
    if os.environ.get("FSC_SKIP_POSTGRES") == "1":
        pytest.skip("the fast tier starts no servers")
    cluster = Slurm(Path(f"/tmp/fsc-slurm-tests-{os.getpid()}"))
    try:
        conf = cluster.script("start")
    except (OSError, subprocess.TimeoutExpired) as error:
        required(f"Slurm does not start: {error}")
    before = {name: os.environ.get(name) for name in ("SLURM_CONF", "PYTHONPATH")}
    os.environ |= {"SLURM_CONF": conf, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    yield cluster
    cluster.script("stop")
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture
def slurm(slurm_cluster: Slurm) -> Iterator[Slurm]:
    yield slurm_cluster
    slurm_cluster.clear()


def until(look: Callable[[], Answer | None], what: str, seconds: float = 240.0) -> Answer:
    """Look again and again until there is something to see."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found is not None and found is not False:
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited {seconds:.0f} s in vain: {what}")


def fsc(*words: str | Path, code: int = 0) -> str:
    """What a command printed, on both streams."""
    done = subprocess.run(command(*words), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "factored_scaling", *map(str, words)]


def tabletop(folder: Path, address: str | Path | None = None) -> Study:
    """Three policies of some seconds each, measured in four chunks of trials."""
    spec = StudySpec(
        factors={"camera_pose": 2, "lighting": 2},
        construction="one",
        points=2,
        task=TASK,
        policy={**POLICY, "updates": 400},
        evaluation={"settings": 2, "initial_states": 240},
        name="toy",
    )
    return _create(spec, folder, address)


def counting(
    folder: Path, address: str | Path | None = None, *, updates: int = 40, trials: int = 300, seconds: float = 0.1
) -> Study:
    """Three runs that count."""
    spec = StudySpec(
        factors={"camera_pose": 2, "lighting": 2},
        construction="one",
        points=2,
        trainer={"kind": "tests.cluster.steps:Steps", "updates": updates, "trials": trials, "seconds": seconds},
        name="count",
    )
    return _create(spec, folder, address)


def _create(spec: StudySpec, folder: Path, address: str | Path | None) -> Study:
    folder.mkdir(parents=True, exist_ok=True)
    write_study(spec, folder / "study.yaml")
    return Study.create(spec, address if address is not None else folder / "study.db")


def rows(study: Study) -> Rows:
    """Every trial of every run, which must all be done."""
    assert {run.state for run in study.runs()} == {"done"}
    return {run.digest: sorted((t.key, t.score, t.factor) for t in study.store.trials(run.id)) for run in study.runs()}


def outcomes(study: Study) -> list[str]:
    """How the attempts at all runs ended."""
    return sorted(one.outcome for run in study.runs() for one in study.store.attempts(run.id))


def training(study: Study, folder: Path) -> Callable[[], RunRow | None]:
    """The first run in mid-training: it has left a resume point."""

    def look() -> RunRow | None:
        running = [run for run in study.runs() if run.state == "running" and not run.trials]
        return next((run for run in running if list((folder / "runs" / run.digest).glob("resume-*.json"))), None)

    return look


def measuring(study: Study) -> Callable[[], RunRow | None]:
    """The first run in mid-evaluation: some of its trials are recorded."""
    return lambda: next((run for run in study.runs() if run.state == "running" and run.trials), None)


@pytest.fixture(scope="session")
def tabletop_rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """The rows of `tabletop` from the local executor."""
    folder = tmp_path_factory.mktemp("local")
    with tabletop(folder) as study:
        study.run(workers=2)
        return rows(study)


@pytest.fixture(scope="session")
def counting_rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """The rows of `counting` from the local executor; how long it counts makes no difference."""
    folder = tmp_path_factory.mktemp("local")
    with counting(folder, updates=1, seconds=0.0) as study:
        study.run(workers=1)
        return rows(study)


@pytest.fixture
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Callable[[], None]]]:
    """The address of a PostgreSQL server of its own, and a function that restarts it."""
    home = f"/tmp/fsc-pg-cluster-{os.getpid()}"
    script, environment = ROOT / "scripts" / "postgres-for-tests", {**os.environ, "FSC_POSTGRES_HOME": home}

    def call(word: str) -> str:
        done = subprocess.run(
            [script, word], env=environment, stdout=subprocess.PIPE, text=True, timeout=300, check=True
        )
        return done.stdout.strip()

    try:
        address = call("start")
    except (OSError, subprocess.SubprocessError) as error:
        required(f"PostgreSQL does not start: {error}")

    def restart() -> None:
        call("restart")

    yield address, restart
    call("stop")
