"""Studies to serve, and ways to ask the server: inside this process, or as a program of its own."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Trial
from factored_scaling.study import Study
from factored_scaling.web.access import Access
from factored_scaling.web.app import create_app

TOKEN = "a-token-that-is-long-enough"
HERE = "http://127.0.0.1:8765"
NETWORK = "http://robot.lab.example:8765"
STEEP = {"camera_pose": 0.25, "lighting": 0.05}


def wipe_spec() -> StudySpec:
    """Two factors, one curve each."""
    return StudySpec(dict.fromkeys(STEEP, 30), construction="one", points=3, name="wipe <table>")


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    """Nothing measured yet."""
    with Study.create(wipe_spec(), tmp_path / "study.db") as opened:
        yield opened


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
    """All of it measured; for tests that only read."""
    with Study.create(wipe_spec(), tmp_path_factory.mktemp("measured") / "study.db") as opened:
        measure(opened, 5)
        yield opened


def towel_spec() -> StudySpec:
    """Five policies that people score by the fold-towel rubric: two scenes, two repeats, twenty trials."""
    factors = {
        "camera_pose": {"demos": 6, "test_values": ["left", "right"]},
        "lighting": {"demos": 6, "test_values": ["dusk", "red"]},
    }
    scoring = {"preset": "fold-towel", "combinations": 2, "repeats": 2}
    return StudySpec(factors, construction="one", points=3, name="towel", scoring=scoring)


def bench_spec() -> StudySpec:
    """One factor at a time: what one scene varies is normal in the next, and nothing ever varies the table."""
    factors: dict[str, Any] = {
        "camera_pose": {"demos": 6, "test_values": ["far left"]},
        "lighting": {"demos": 6, "test_values": ["red lamp"]},
        "table": 6,
    }
    conditions = [{"lighting": "red lamp"}, {"camera_pose": "far left"}]
    scoring = {"rubric": "fold-towel", "conditions": conditions, "repeats": 2}
    return StudySpec(factors, construction="one", points=3, name="bench", scoring=scoring)


def measure(study: Study, runs: int, trials: int = 200) -> None:
    """Let a rule with a steep and a flat factor stand for the robot."""
    for run in study.ask(runs):
        chance = 0.8 - sum(STEEP[name] * (1 - run.demos[name] / 30) for name in STEEP)
        good = round(chance * trials)
        study.tell(run.id, [Trial(str(k), float(k < good), ("lighting",)) for k in range(trials)])


@contextlib.contextmanager
def client_of(
    study: Study, access: Access | None = None, base: str = HERE, folder: Path | None = None
) -> Iterator[TestClient]:
    app = create_app(study, access or Access(), folder=folder, argument="my-study")
    with TestClient(app, base_url=base, follow_redirects=False, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def client(study: Study) -> Iterator[TestClient]:
    """A program on the same machine."""
    with client_of(study) as made:
        yield made


@dataclass
class Served:
    """`fsc serve` as a program of its own."""

    process: subprocess.Popen[str]
    url: str

    @property
    def port(self) -> int:
        found = re.search(r":(\d+)/", self.url)
        assert found is not None
        return int(found[1])

    def kill(self) -> None:
        """As a power cut would."""
        self.process.kill()
        self.process.wait(20)

    def stop(self) -> str:
        """As Ctrl-C does; returns what else was printed."""
        self.process.send_signal(signal.SIGINT)
        return self.process.communicate(timeout=30)[0]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Start `fsc serve …` and wait for the address it prints."""
    started: list[Served] = []

    def start(*arguments: str | Path, files: int | None = None, log: Path | None = None) -> Served:
        """`files` limits its descriptors; what it logs goes to `log` instead of after what it prints."""
        command = [sys.executable, "-m", "factored_scaling", "serve", *map(str, arguments)]
        environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}

        def prepare() -> None:
            # a shell starts what runs in its background deaf to Ctrl-C, and children inherit that
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if files is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

        with contextlib.ExitStack() as open_:
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if log is None else open_.enter_context(log.open("wb")),
                text=True,
                env=environment,
                preexec_fn=prepare,
            )
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found is not None, line + process.communicate(timeout=30)[0]
        started.append(Served(process, found[0]))
        return started[-1]

    yield start
    for served in started:
        if served.process.poll() is None:
            served.kill()
        if served.process.stdout is not None:
            served.process.stdout.close()
