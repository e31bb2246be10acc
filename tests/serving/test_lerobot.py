"""A LeRobot checkpoint behind the server, with a stand-in for LeRobot; tests/lerobot_real has the real one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.backends.heard import Heard
from tests.backends.test_lerobot import DOUBLE, run, trainer
from tests.data.lerobot_cases import CAMERA, write

from factored_scaling.errors import PolicyError
from factored_scaling.serving.client import PolicyClient
from factored_scaling.serving.lerobot import ServedLerobot
from factored_scaling.serving.server import PolicyServer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("study")
    write(home / "data", range(2))
    (home / "run").mkdir()
    trainer(home).train(run(home, 0), home / "run", Heard())
    return home / "run"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[PolicyServer]:
    policy = ServedLerobot(folder, Path(sys.executable), {"PYTHONPATH": str(DOUBLE)}, "cpu")
    with PolicyServer(policy, port=0) as running:
        yield running
    policy.close()


def seen(level: int, **more: Any) -> dict[str, Any]:
    return {CAMERA: np.full((16, 16, 3), level, np.uint8), "observation.state": np.zeros(3), **more}


def test_every_frame_gets_its_action(server: PolicyServer) -> None:
    with PolicyClient(server.address) as robot:
        assert robot.metadata["observation"] == {CAMERA: [16, 16, 3], "observation.state": [3]}
        assert (robot.metadata["action_size"], robot.metadata["execute"]) == (2, 1)
        answers = [robot.infer(seen(level, prompt="pick"))["actions"] for level in (0, 255)]
        assert np.allclose(answers, [[[1, 0]], [[2, 1]]])
        assert np.allclose(robot.infer(seen(0, reset=True))["actions"], [[1, 0]])


def test_a_new_connection_is_a_new_episode_and_takes_over(server: PolicyServer) -> None:
    with PolicyClient(server.address) as first, PolicyClient(server.address) as second:
        assert first.infer(seen(0))["actions"][0, 0] == 1
        assert second.infer(seen(0))["actions"][0, 0] == 1
        with pytest.raises(PolicyError, match="another connection now uses this policy"):
            first.infer(seen(0))
        assert second.infer(seen(0))["actions"][0, 0] == 2


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        ({"observation.state": np.zeros(3)}, r"\['observation.images.front'\]: is missing"),
        (seen(0, extra=1), "unknown key 'extra'"),
        ({**seen(0), CAMERA: np.zeros((8, 8, 3), np.uint8)}, r"expected uint8 of shape \(16, 16, 3\)"),
        ({**seen(0), "observation.state": np.zeros(4)}, "expected 3 finite numbers"),
        ({**seen(0), "observation.state": "here"}, "expected numbers, not 'here'"),
        (seen(0, prompt="break"), "RuntimeError: inside LeRobot"),
    ],
)
def test_mistakes_are_told_and_the_policy_goes_on(server: PolicyServer, observation: Any, message: str) -> None:
    with PolicyClient(server.address) as robot:
        with pytest.raises(PolicyError, match=message):
            robot.infer(observation)
        assert robot.infer(seen(0))["actions"].shape == (1, 2)


def test_a_mistaken_first_frame_does_not_continue_the_last_episode(server: PolicyServer) -> None:
    with PolicyClient(server.address) as before:
        assert [before.infer(seen(0))["actions"][0, 0] for _ in range(3)] == [1, 2, 3]
    with PolicyClient(server.address) as robot:
        with pytest.raises(PolicyError, match="is missing"):
            robot.infer({"observation.state": np.zeros(3)})
        assert robot.infer(seen(0))["actions"][0, 0] == 1


def test_a_lerobot_that_does_not_start_is_told(folder: Path) -> None:
    with pytest.raises(PolicyError, match="LeRobot ended with exit code 1"):
        ServedLerobot(folder, Path(sys.executable), {"PYTHONPATH": ""})
