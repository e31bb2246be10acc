"""How long a LeRobot dataset of 10,000 episodes takes to list, to give every episode its id, and to select from.

The dataset is laid out as LeRobot 0.4 records it: two cameras as video, one row group per episode of 200 frames,
metadata in row groups of ten with all its columns of statistics. The videos are empty files: nothing looks in.

python benchmarks/lerobot_listing.py            prints the table
python benchmarks/lerobot_listing.py --save     also writes benchmarks/results/lerobot_listing.md
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from factored_scaling.data.lerobot import layout
from factored_scaling.data.lerobot.dataset import LerobotDataset
from factored_scaling.data.lerobot.identity import episode_ids
from factored_scaling.data.lerobot.layout import Feature
from factored_scaling.data.lerobot.select import select_episodes
from factored_scaling.data.lerobot.write import arrow_column, video_columns, write_tasks
from factored_scaling.machine import processor

RESULTS = Path(__file__).parent / "results" / "lerobot_listing.md"
EPISODES, FRAMES, FPS, ROUNDS = 10_000, 200, 30, 5
CAMERAS = ("observation.images.top", "observation.images.wrist")
FEATURES = {
    "observation.state": Feature("float32", (7,)),
    "action": Feature("float32", (7,)),
    **{name: Feature("video", (480, 640, 3)) for name in CAMERAS},
    **{name: Feature(dtype, (1,)) for name, dtype in layout.INDEX_FEATURES.items()},
}
KEYS = ("min", "max", "mean", "std", "count", "q01", "q10", "q50", "q90", "q99")


def make(root: Path) -> None:
    """Write the dataset."""
    (root / "meta/episodes/chunk-000").mkdir(parents=True)
    (root / "data/chunk-000").mkdir(parents=True)
    rng = np.random.default_rng(0)
    total = EPISODES * FRAMES
    columns: dict[str, Any] = {
        "observation.state": rng.normal(size=(total, 7)).astype(np.float32),
        "action": rng.normal(size=(total, 7)).astype(np.float32),
        "timestamp": np.tile(np.arange(FRAMES) / FPS, EPISODES).astype(np.float32),
        "frame_index": np.tile(np.arange(FRAMES), EPISODES),
        "episode_index": np.repeat(np.arange(EPISODES), FRAMES),
        "index": np.arange(total),
        "task_index": np.zeros(total, dtype=np.int64),
    }
    rows = pa.table({name: arrow_column(values, FEATURES[name]) for name, values in columns.items()})
    pq.write_table(rows, root / "data/chunk-000/file-000.parquet", row_group_size=FRAMES)
    described: dict[str, Any] = {}
    for name, feature in FEATURES.items():
        for key in KEYS:
            value: Any = [[[0.5]]] * 3 if feature.is_camera else [0.5] * feature.shape[0]
            described[f"stats/{name}/{key}"] = [FRAMES] if key == "count" else value
    entries = []
    for index in range(EPISODES):
        entry: dict[str, Any] = {"episode_index": index, "tasks": ["fold the towel"], "length": FRAMES}
        entry |= {"data/chunk_index": 0, "data/file_index": 0}
        entry |= {"dataset_from_index": index * FRAMES, "dataset_to_index": (index + 1) * FRAMES}
        for camera in CAMERAS:
            entry |= video_columns(
                camera, 0, index // 100, index % 100 * FRAMES / FPS, (index % 100 + 1) * FRAMES / FPS
            )
        entries.append(entry | described)
    pq.write_table(pa.Table.from_pylist(entries), root / "meta/episodes/chunk-000/file-000.parquet", row_group_size=10)
    for camera in CAMERAS:
        for file in range(EPISODES // 100):
            path = root / layout.VIDEO_PATH.format(video_key=camera, chunk_index=0, file_index=file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    write_tasks({0: "fold the towel"}, root / layout.TASKS)
    info = {
        "codebase_version": "v3.0",
        "fps": FPS,
        "total_episodes": EPISODES,
        "data_path": layout.DATA_PATH,
        "video_path": layout.VIDEO_PATH,
        "features": {name: feature.to_mapping() for name, feature in FEATURES.items()},
    }
    (root / layout.INFO).write_text(json.dumps(info))


def make_older(root: Path) -> None:
    """The metadata of the same episodes as v2.1 keeps it."""
    (root / "meta").mkdir(parents=True)
    lines = [
        json.dumps({"episode_index": index, "tasks": ["fold the towel"], "length": FRAMES}) for index in range(EPISODES)
    ]
    (root / "meta/episodes.jsonl").write_text("\n".join(lines))
    info = {
        "codebase_version": "v2.1",
        "fps": FPS,
        "total_episodes": EPISODES,
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
        "features": {name: feature.to_mapping() for name, feature in FEATURES.items()},
    }
    (root / layout.INFO).write_text(json.dumps(info))


def selected(dataset: LerobotDataset, folder: Path, count: int) -> None:
    """Write every n-th episode as a dataset of its own, and remove it."""
    select_episodes(dataset, range(0, EPISODES, EPISODES // count), folder / "chosen")
    shutil.rmtree(folder / "chosen")


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Median and slowest of several rounds, in seconds; the first one, with cold caches of our own, counts too."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), max(seconds)


def table() -> str:
    with tempfile.TemporaryDirectory() as folder:
        newer, older = Path(folder) / "v30", Path(folder) / "v21"
        make(newer)
        make_older(older)
        dataset = LerobotDataset.open(newer)
        work: dict[str, Callable[[], object]] = {
            f"list {EPISODES:,} episodes, v3.0": lambda: LerobotDataset.open(newer).episodes,
            f"list {EPISODES:,} episodes, v2.1": lambda: LerobotDataset.open(older).episodes,
            f"ids of {EPISODES:,} episodes ({EPISODES * FRAMES:,} rows of 7 + 7 numbers), v3.0": lambda: episode_ids(
                dataset
            ),
            f"select 100 of {EPISODES:,} episodes, v3.0": lambda: selected(dataset, Path(folder), 100),
            f"select 1,000 of {EPISODES:,} episodes, v3.0": lambda: selected(dataset, Path(folder), 1000),
        }
        lines = [
            "# Listing a LeRobot dataset",
            "",
            f"{datetime.date.today().isoformat()}, {processor()}, "
            f"{os.cpu_count()} cores with a load of {os.getloadavg()[0]:.1f} from other work, {platform.system()}, "
            f"Python {platform.python_version()}, pyarrow {pa.__version__}; "
            "`python benchmarks/lerobot_listing.py --save`. Files were in the page cache.",
            "",
            f"| what | median of {ROUNDS}, s | slowest, s |",
            "|---|---:|---:|",
        ]
        for name, job in work.items():
            middle, slowest = timed(job)
            lines.append(f"| {name} | {middle:.2f} | {slowest:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help=f"also write {RESULTS}")
    save = parser.parse_args().save
    text = table()
    print(text, end="")
    if save:
        RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
