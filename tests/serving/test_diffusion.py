"""Our policy behind the server: the same actions as at home, the same scores in the simulator, mistakes told."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.cli.conftest import run_fsc
from tests.serving.cases import POLICY, TASK, trained

from factored_scaling.backends import Context
from factored_scaling.backends.simulation import Lab
from factored_scaling.core.design import RunSpec
from factored_scaling.errors import PolicyError
from factored_scaling.serving.client import PolicyClient
from factored_scaling.serving.diffusion import ServedDiffusion
from factored_scaling.serving.evaluate import Keys, RemoteActor, evaluate_served
from factored_scaling.serving.server import PolicyServer

EVALUATION = {"settings": 1, "initial_states": 1}


def silent(done: int, total: int, note: str = "") -> None: ...


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Lab]:
    torch.set_num_threads(1)
    return trained(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def server(home: tuple[Path, Lab]) -> Iterator[PolicyServer]:
    with PolicyServer(ServedDiffusion(home[0], seed=5), port=0) as running:
        yield running


@pytest.fixture
def client(server: PolicyServer) -> Iterator[PolicyClient]:
    with PolicyClient(server.address) as connected:
        yield connected


def observation(client: PolicyClient, **changes: Any) -> dict[str, Any]:
    told = client.metadata
    shape = (told["cameras"], told["height"], told["width"], 3)
    images = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    return {"images": images, "state": np.zeros(told["state_size"], dtype=np.float32), **changes}


def test_the_actions_are_those_of_the_policy_at_home(home: tuple[Path, Lab], client: PolicyClient) -> None:
    asked = observation(client, seed=11, trial=3)
    answers = [client.infer(asked)["actions"] for _ in range(2)]
    actor = ServedDiffusion(home[0]).policy.actor(11)
    images = torch.from_numpy(np.moveaxis(asked["images"], -1, 1)[None].copy())
    for answer in answers:
        at_home = actor(images, torch.from_numpy(asked["state"])[None], torch.tensor([3]))[0]
        assert torch.allclose(torch.from_numpy(np.array(answer)), at_home, atol=1e-6)
    assert not np.allclose(answers[0], answers[1])  # another decision, other noise
    assert answers[0].shape == (client.metadata["horizon"], client.metadata["action_size"])


def test_two_robots_do_not_move_alike(server: PolicyServer, client: PolicyClient) -> None:
    with PolicyClient(server.address) as other:
        asked = observation(client)
        assert not np.allclose(client.infer(asked)["actions"], other.infer({**asked, "prompt": "pick"})["actions"])


def test_scores_over_the_wire_are_those_at_home(home: tuple[Path, Lab], client: PolicyClient) -> None:
    folder, lab = home
    run = RunSpec((), policy=POLICY, evaluation=EVALUATION, seed=2)
    at_home = list(lab.evaluate(run, folder, Context()))
    told = list(evaluate_served(client, lab, EVALUATION, client.metadata["execute"], silent, seed=2))
    assert told == at_home
    assert len(told) == len(lab.task.factors)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": np.zeros((1, 8, 8, 3), np.uint8)}, r"observation\.images: expected shape \(1, 32, 32, 3\)"),
        ({"images": np.zeros((1, 32, 32, 3), np.float32)}, "expected uint8, not float32"),
        ({"images": "picture"}, r"observation\.images: expected numbers, not .picture."),
        ({"state": np.zeros(99)}, r"observation\.state: expected \d+ finite numbers"),
        ({"state": [float("nan")] * 3}, "finite"),
        ({"state": "here"}, "expected numbers"),
        ({"image": 1}, "unknown key 'image'; did you mean images"),
        ({"seed": -1}, r"observation\.seed"),
        ({"trial": [1, 2]}, r"observation\.trial"),
        ({"trial": 2**40}, r"observation\.trial"),
    ],
)
def test_mistakes_are_told_and_the_connection_goes_on(
    client: PolicyClient, changes: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(PolicyError, match=message):
        client.infer(observation(client, **changes))
    with pytest.raises(PolicyError, match="no images"):
        client.infer({"state": np.zeros(3)})
    client.infer(observation(client))


class Stranger:
    """Somebody else's policy: other keys, one observation at a time, a chunk that does nothing."""

    metadata: Mapping[str, Any] = {"policy": "theirs"}

    def __init__(self, size: int) -> None:
        self._size = size
        self.seen: list[Mapping[str, Any]] = []

    def session(self) -> Stranger:
        return self

    def infer(self, observation: Mapping[str, Any]) -> Mapping[str, Any]:
        self.seen.append(observation)
        return {"actions": np.zeros((10, self._size))}


def test_somebody_elses_policy_is_measured_too(home: tuple[Path, Lab]) -> None:
    lab = home[1]
    policy = Stranger(lab.task.action_size)
    keys = Keys(("observation/image",), prompt="pick")
    with PolicyServer(policy, port=0) as server, PolicyClient(server.address) as client:
        evaluation = {**EVALUATION, "factors": ["lighting"]}
        [trial] = evaluate_served(client, lab, evaluation, 8, silent, keys=keys)
        assert trial.score == 0
        with pytest.raises(PolicyError, match="not one of ours; say under which names"):
            RemoteActor(client, 0, 3)
        policy._size = 99
        with pytest.raises(PolicyError, match="expected actions of"):
            list(evaluate_served(client, lab, evaluation, 8, silent, keys=keys))
    seen = policy.seen[0]
    assert set(seen) == {"observation/image", "observation/state", "prompt"}
    assert seen["observation/image"].shape == (32, 32, 3)


def test_the_commands(home: tuple[Path, Lab], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "factored_scaling", "policy", "serve", str(home[0]), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"ws://127\.0\.0\.1:\d+", process.stdout.readline())
        assert found is not None
        size = ["--settings", "1", "--initial-states", "1", "--factor", "lighting"]
        done = run_fsc("policy", "evaluate", found[0], "--task", TASK, *size, "--json", "--result", tmp_path / "r.json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["trials"], set(told["scores"])) == (1, {"lighting", "all"})
        assert json.loads((tmp_path / "r.json").read_text())["trials"][0]["factor"] == "lighting"
        wrong = run_fsc("policy", "evaluate", found[0], "--task", "tabletop/pick-plaice")
        assert (wrong.returncode, wrong.stdout) == (2, "")
        keyed = run_fsc("policy", "evaluate", found[0], "--task", TASK, "--camera", "a", "--camera", "b")
        assert "cameras of tabletop/pick-place: 1, not 2" in keyed.stderr
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_folder_without_a_policy_is_told(tmp_path: Path) -> None:
    done = run_fsc("policy", "serve", tmp_path)
    assert done.returncode == 2
    assert "no study.yaml in this folder" in done.stderr


@pytest.mark.parametrize(("content", "message"), [(b" \n", "is empty"), (b"\xff\xfe", "is not text in UTF-8")])
def test_a_key_file_without_a_key_is_told(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(content)
    done = run_fsc("policy", "evaluate", "127.0.0.1:9", "--task", TASK, "--key-file", tmp_path / "key")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{tmp_path / 'key'}" in done.stderr
    assert message in done.stderr


def test_on_a_network_a_key_is_needed(home: tuple[Path, Lab], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FSC_POLICY_KEY", raising=False)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        done = run_fsc("policy", "serve", home[0], "--host", "0.0.0.0", "--port", "0")
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert done.returncode == 2
    assert "can be reached from other machines" in done.stderr
