"""Datasets for the tests: those that LeRobot wrote, and small ones made on the spot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from factored_scaling.data.lerobot.layout import Feature
from factored_scaling.data.lerobot.write import DatasetWriter

HOME = Path(__file__).parent / "lerobot"
BY_LEROBOT = ("v30-image", "v30-video", "v21-video")
CAMERA = "observation.images.front"


def expected(name: str) -> dict[str, NDArray[Any]]:
    """What LeRobot's own reader returned for every frame of a dataset that LeRobot wrote."""
    with np.load(HOME / name / "expected.npz") as file:
        return dict(file)


def features(kind: str = "image", size: int = 16) -> dict[str, Feature]:
    return {
        "observation.state": Feature("float32", (3,), ["a", "b", "c"]),
        "action": Feature("float32", (2,), ["x", "y"]),
        CAMERA: Feature(kind, (size, size, 3), ["height", "width", "channels"]),
    }


def episode(seed: int, length: int, size: int = 16) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(seed)
    return {
        "observation.state": rng.normal(size=(length, 3)).astype(np.float32),
        "action": rng.normal(size=(length, 2)).astype(np.float32),
        CAMERA: rng.integers(0, 256, (length, size, size, 3)).astype(np.uint8),
    }


def write(
    root: Path, seeds: Sequence[int], kind: str = "image", size: int = 16, tasks: Sequence[str] = (), fps: int = 10
) -> Path:
    """A dataset with one episode per seed, of 3 to 6 frames."""
    with DatasetWriter(root, fps, features(kind, size), "so100") as writer:
        for place, seed in enumerate(seeds):
            writer.add(episode(seed, 3 + seed % 4, size), tasks[place] if tasks else "pick up the cube")
    return root
