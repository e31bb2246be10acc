"""Small datasets written and read back by LeRobot itself, for tests of our reader where LeRobot is not installed.

    python tests/data/lerobot/make_fixtures.py tests/data/lerobot

Run with lerobot 0.4.4 it writes `v30-image` and `v30-video`, with lerobot 0.3.3 (and datasets 3.6) `v21-video`; each
with an `expected.npz` of what LeRobot's own reader returned for every frame (pyav as the video backend).
"""

from __future__ import annotations

import inspect
import shutil
import sys
from pathlib import Path

import numpy as np
from lerobot.datasets.lerobot_dataset import CODEBASE_VERSION, LeRobotDataset

CAMERA = "observation.images.front"
TASKS = ("pick up the cube", "pick up the cube, camera moved", "pick up the cube, lamp on")


def features(kind: str) -> dict[str, dict[str, object]]:
    return {
        "observation.state": {"dtype": "float32", "shape": (3,), "names": ["shoulder", "elbow", "gripper"]},
        "action": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
        CAMERA: {"dtype": kind, "shape": (64, 64, 3), "names": ["height", "width", "channels"]},
    }


def write(root: Path, kind: str) -> None:
    shutil.rmtree(root, ignore_errors=True)
    made = LeRobotDataset.create(
        "fsc/tiny", 10, features(kind), root=root, robot_type="so100", use_videos=kind == "video"
    )
    rng = np.random.default_rng(7)
    for episode, length in enumerate((4, 6, 5)):
        tile = rng.integers(0, 255, (4, 4, 3), dtype=np.uint8).repeat(16, 0).repeat(16, 1)
        for step in range(length):
            frame = {
                "observation.state": rng.normal(size=3).astype(np.float32),
                "action": rng.normal(size=2).astype(np.float32),
                CAMERA: np.roll(tile, 4 * step, axis=1),
            }
            if "task" in inspect.signature(made.add_frame).parameters:  # 0.3
                made.add_frame(frame, TASKS[episode])
            else:
                made.add_frame({**frame, "task": TASKS[episode]})
        made.save_episode()
    if hasattr(made, "finalize"):
        made.finalize()
    shutil.rmtree(root / "images", ignore_errors=True)


def read_back(root: Path) -> None:
    read = LeRobotDataset("fsc/tiny", root=root, video_backend="pyav")
    items = [read[index] for index in range(len(read))]
    pixels = [(item[CAMERA].numpy() * 255).round().astype(np.uint8).transpose(1, 2, 0) for item in items]
    np.savez_compressed(
        root / "expected.npz",
        pixels=np.stack(pixels),
        state=np.stack([item["observation.state"].numpy() for item in items]),
        action=np.stack([item["action"].numpy() for item in items]),
        episode=np.array([int(item["episode_index"]) for item in items]),
        timestamp=np.array([float(item["timestamp"]) for item in items]),
        task=np.array([item["task"] for item in items]),
    )


if __name__ == "__main__":
    home = Path(sys.argv[1])
    for kind in ("image", "video") if CODEBASE_VERSION == "v3.0" else ("video",):
        place = home / f"{CODEBASE_VERSION.replace('.', '')}-{kind}"
        write(place, kind)
        read_back(place)
