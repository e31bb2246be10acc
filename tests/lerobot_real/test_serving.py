"""A checkpoint of LeRobot's own behind our server: the same actions as LeRobot gives at home."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.backends.heard import Heard
from tests.lerobot_real.cases import CAMERA, made, write

from factored_scaling.backends.lerobot import read_checkpoint

pytest.importorskip("lerobot")
torch = pytest.importorskip("torch")


def test_actions_over_the_wire_are_lerobots_own(tmp_path: Path) -> None:
    from factored_scaling.backends.elsewhere import jobs
    from factored_scaling.serving.client import PolicyClient
    from factored_scaling.serving.lerobot import ServedLerobot
    from factored_scaling.serving.server import PolicyServer

    write(tmp_path / "data")
    trainer, run = made(tmp_path, "act", steps=1)
    (tmp_path / "run").mkdir()
    trainer.train(run, tmp_path / "run", Heard())
    rng = np.random.default_rng(0)
    frames: list[dict[str, Any]] = [
        {CAMERA: rng.integers(0, 256, (64, 64, 3)).astype(np.uint8), "observation.state": rng.normal(size=3)}
        for _ in range(10)  # a chunk has eight actions: the policy looks anew once
    ]
    served = ServedLerobot(tmp_path / "run", Path(sys.executable), {"HF_HUB_OFFLINE": "1"}, "cpu")
    with PolicyServer(served, port=0) as server, PolicyClient(server.address) as robot:
        assert robot.metadata["type"] == "act"
        told = np.concatenate([robot.infer({**frame, "prompt": "pick"})["actions"] for frame in frames])
    served.close()

    policy, prepare, finish = jobs.load(str(read_checkpoint(tmp_path / "run")), "cpu")
    policy.reset()
    own = []
    with torch.inference_mode():
        for frame in frames:
            [batch] = jobs.batches({name: values[None] for name, values in frame.items()}, ["pick"], 1)
            own.append(finish(policy.select_action(prepare(batch))).numpy())
    assert np.allclose(told, np.concatenate(own), atol=1e-5)
    assert np.ptp(told, axis=0).min() > 0
