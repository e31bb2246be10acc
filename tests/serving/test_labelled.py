"""Several policies under labels: the right one answers, and nothing says which it is."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.cli.conftest import run_fsc
from tests.serving.cases import Counting, trained

from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import CheckpointError, PolicyError
from factored_scaling.io.files import write_study
from factored_scaling.runner.options import run_folder
from factored_scaling.scoring.session import Scoring
from factored_scaling.serving.client import PolicyClient
from factored_scaling.serving.labelled import ServedByLabel
from factored_scaling.serving.server import PolicyServer, Served
from factored_scaling.study import Study


class Constant(Counting):
    """Answers with its own number."""

    def __init__(self, number: float) -> None:
        self._number = number

    def session(self) -> Any:
        return self

    def infer(self, observation: Mapping[str, Any]) -> Mapping[str, Any]:
        assert "policy" not in observation
        return {"actions": np.array([[self._number]])}


def broken() -> Served:
    raise CheckpointError("the file is missing", where="study/runs/0f3a/policy.json")


def test_each_label_has_its_policy(capsys: pytest.CaptureFixture[str]) -> None:
    loaded: list[str] = []

    def load(label: str, number: float) -> Served:
        loaded.append(label)
        return Constant(number)

    policies = ServedByLabel({"B2": lambda: load("B2", 2), "A7": lambda: load("A7", 7), "C1": broken, "D4": Counting})
    with PolicyServer(policies, port=0) as server, PolicyClient(server.address) as robot:
        assert robot.metadata["policies"] == ["A7", "B2", "C1", "D4"]
        assert [float(robot.infer({"policy": label, "seen": 1})["actions"][0, 0]) for label in ("A7", "B2", "A7")] == [
            7,
            2,
            7,
        ]
        assert loaded == ["A7", "B2"]  # once each, when they are needed
        with pytest.raises(PolicyError, match="unknown label 'A1'"):
            robot.infer({"policy": "A1"})
        with pytest.raises(PolicyError, match="policy C1: the policy failed") as failed:
            robot.infer({"policy": "C1"})
        assert "0f3a" not in str(failed.value)  # the run's name would end the blindness
        counts = [
            robot.infer({"policy": "D4", "reset": again, "seen": 1})["actions"][0, 0] for again in (False, False, True)
        ]
        assert counts == [1, 2, 1]
        assert robot.infer({"policy": "D4"})["ready"] is True
    assert "0f3a" in capsys.readouterr().err


def test_only_so_many_are_kept_in_memory() -> None:
    said: list[str] = []

    class Large(Constant):
        def close(self) -> None:
            said.append(f"closed {self._number}")

    def load(number: int) -> Served:
        said.append(f"loaded {number}")
        return Large(number)

    policies = ServedByLabel({"A": lambda: load(1), "B": lambda: load(2), "C": lambda: load(3)}, keep=2)
    session = policies.session()
    for label in ("A", "B", "A", "C", "B"):
        session.infer({"policy": label})
    assert said == ["loaded 1", "loaded 2", "closed 2", "loaded 3", "closed 1", "loaded 2"]


def test_a_study_is_served_by_the_labels_of_its_evaluation(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    folder, _ = trained(tmp_path / "made")
    factors = {"lighting": {"demos": 2, "test_values": ["dim", "red"]}}
    spec = StudySpec(factors, construction="one", points=2, nominal=1, name="towel")
    home = tmp_path / "towel"
    write_study(spec, home / "study.yaml")
    with Study.create(spec, home / "study.db") as study:
        evaluation = Scoring.begin(study, seed=1)
        labels = {standing.label: standing.run.digest for standing in evaluation.standings()}
        missing = run_fsc("policy", "serve", home, "--port", "0")
        assert missing.returncode == 1
        assert "no trained policy here" in missing.stderr
        for digest in labels.values():
            shutil.copytree(folder, run_folder(home, digest))
    command = [sys.executable, "-m", "factored_scaling", "policy", "serve", str(home), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"ws://127\.0\.0\.1:\d+", process.stdout.readline())
        assert found is not None
        with PolicyClient(found[0]) as robot:
            assert robot.metadata["policies"] == sorted(labels)
            observation = {"images": np.zeros((1, 32, 32, 3), np.uint8), "state": np.zeros(5)}
            for label in labels:
                assert robot.infer({**observation, "policy": label})["actions"].shape == (16, 5)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert not any(digest in out + err for digest in labels.values())
