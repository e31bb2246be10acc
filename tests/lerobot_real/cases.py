"""A small dataset and tiny policies that LeRobot itself trains."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from tests.backends.made import backend_of

from factored_scaling.backends.lerobot import LerobotBackend
from factored_scaling.core.design import RunSpec
from factored_scaling.data.lerobot.dataset import LerobotDataset
from factored_scaling.data.lerobot.identity import episode_ids
from factored_scaling.data.lerobot.layout import Feature
from factored_scaling.data.lerobot.write import DatasetWriter

CAMERA = "observation.images.front"
CHOSEN = (1, 4)
POLICIES: dict[str, dict[str, Any]] = {
    "diffusion": {
        "down_dims": [32, 64],
        "horizon": 8,
        "n_action_steps": 4,
        "crop_shape": [56, 56],
        "spatial_softmax_num_keypoints": 8,
        "diffusion_step_embed_dim": 16,
    },
    "act": {
        "dim_model": 32,
        "n_heads": 2,
        "dim_feedforward": 32,
        "n_encoder_layers": 1,
        "n_vae_encoder_layers": 1,
        "chunk_size": 8,
        "n_action_steps": 8,
        "pretrained_backbone_weights": None,
    },
}


def write(folder: Path) -> None:
    """Six episodes whose actions differ in size, so that statistics tell which of them were used."""
    features = {
        "observation.state": Feature("float32", (3,), ["a", "b", "c"]),
        "action": Feature("float32", (2,), ["x", "y"]),
        CAMERA: Feature("video", (64, 64, 3), ["height", "width", "channels"]),
    }
    with DatasetWriter(folder, 10, features, "so100") as writer:
        for seed in range(6):
            rng, length = np.random.default_rng(seed), 20 + seed
            columns: dict[str, Any] = {
                "observation.state": rng.normal(size=(length, 3)).astype(np.float32),
                "action": (rng.normal(size=(length, 2)) + 10 * seed).astype(np.float32),
                CAMERA: rng.integers(0, 256, (length, 64, 64, 3)).astype(np.uint8),
            }
            writer.add(columns, "pick up the cube")


def made(
    home: Path, kind: str, steps: int = 4, options: dict[str, Any] | None = None, **settings: Any
) -> tuple[LerobotBackend, RunSpec]:
    """A trainer of the dataset `data` in `home`, and a run on two of its episodes."""
    policy = {"type": kind, "steps": steps, "batch_size": 4, "options": {**POLICIES[kind], **(options or {})}}
    common = {"kind": "lerobot", "python": sys.executable, "dataset": "data", "arguments": ["--num_workers=0"]}
    ids = episode_ids(LerobotDataset.open(home / "data"))
    run = RunSpec(tuple(ids[index] for index in CHOSEN), policy=policy, seed=3)
    trainer = backend_of({**common, "environment": {"HF_HUB_OFFLINE": "1"}, **settings}, policy, home, "cpu")
    assert isinstance(trainer, LerobotBackend)
    return trainer, run
