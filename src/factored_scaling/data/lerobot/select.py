"""Some episodes of a dataset as a dataset of their own, with their own statistics.

Rows are copied with new numbers, pictures byte by byte. Videos are linked, never encoded again: the metadata says which
seconds of a file belong to an episode, so a file may hold more than the selection uses.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from factored_scaling.data.lerobot import layout, statistics
from factored_scaling.data.lerobot.dataset import EpisodeEntry, LerobotDataset
from factored_scaling.data.lerobot.identity import episode_ids
from factored_scaling.data.lerobot.labels import read_labels, write_labels
from factored_scaling.data.lerobot.rows import read_rows, vectors
from factored_scaling.data.lerobot.write import Shelf, video_columns
from factored_scaling.errors import InvalidInput

SELECTION = "meta/fsc_selection.json"
SUBTASKS = "meta/subtasks.parquet"
RENUMBERED = ("episode_index", "index")


def select_episodes(dataset: LerobotDataset, indices: Iterable[int], target: str | Path) -> LerobotDataset:
    """Write the episodes with these numbers, in ascending order, as a v3.0 dataset at `target`.

    `meta/fsc_selection.json` there says which episodes of which dataset they are and whose statistics stats.json holds.
    """
    chosen = sorted({int(index) for index in indices})
    if not chosen:
        raise InvalidInput("no episodes are selected", where=str(dataset.root))
    ids = episode_ids(dataset, chosen)
    described, sources = statistics.of_selected(dataset, chosen)
    shelf = Shelf(Path(target))
    try:
        places = _link_videos(dataset, dataset.entries(chosen), shelf.root)
        for entry, table in _ascending(dataset, chosen):
            rows = _renumbered(table, len(shelf.episodes), shelf.frames)
            own = described[entry.index]
            for name in RENUMBERED:
                own[name] = statistics.of_rows(vectors(rows.column(name), len(rows), name))
            videos: dict[str, Any] = {}
            for camera, span in entry.videos.items():
                videos |= video_columns(camera, *places[span.path], span.start, span.end)
            shelf.add(rows, entry.tasks, own, videos)
        info = {key: value for key, value in dataset.info.items() if key != "total_videos"}
        info["video_path"] = layout.VIDEO_PATH if places else None
        summary = statistics.put_together([described[index] for index in chosen])
        note = {
            "source": str(dataset.root.resolve()),
            "episodes": chosen,
            "ids": [ids[index] for index in chosen],
            "statistics": {
                "of": "the episodes listed here, and no others",
                "features": sources | dict.fromkeys(RENUMBERED, statistics.COMPUTED),
            },
        }
        (shelf.root / "meta").mkdir()
        if (dataset.root / SUBTASKS).exists():  # rows refer to it by number
            shutil.copyfile(dataset.root / SUBTASKS, shelf.root / SUBTASKS)
        (shelf.root / SELECTION).write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")
        _take_labels(dataset, [ids[index] for index in chosen], shelf.root)
        shelf.put(info, dataset.tasks(), summary)
    except BaseException:
        shelf.drop()
        raise
    return LerobotDataset.open(target)


def _ascending(dataset: LerobotDataset, chosen: Sequence[int]) -> Iterable[tuple[EpisodeEntry, Any]]:
    """Rows in the order of `chosen`, whatever the order of the files."""
    waiting: dict[int, tuple[EpisodeEntry, Any]] = {}
    following = iter(chosen)
    wanted = next(following, None)
    for entry, table in read_rows(dataset, chosen):
        waiting[entry.index] = (entry, table)
        while wanted in waiting:
            yield waiting.pop(wanted)
            wanted = next(following, None)


def _renumbered(table: Any, episode: int, first: int) -> Any:
    numbers = {
        "episode_index": np.full(len(table), episode, dtype=np.int64),
        "index": np.arange(first, first + len(table), dtype=np.int64),
    }
    for name, values in numbers.items():
        place = table.column_names.index(name)
        table = table.set_column(place, table.schema.field(place), pa.array(values))
    return table


def _link_videos(dataset: LerobotDataset, entries: Sequence[EpisodeEntry], root: Path) -> dict[str, tuple[int, int]]:
    """Hard links to the files that are needed (copies on another disk); their chunk and file by the old path."""
    places: dict[str, tuple[int, int]] = {}
    for camera in dataset.cameras:
        place = (0, 0)
        for path in dict.fromkeys(entry.videos[camera].path for entry in entries if camera in entry.videos):
            new = root / layout.VIDEO_PATH.format(video_key=camera, chunk_index=place[0], file_index=place[1])
            new.parent.mkdir(parents=True, exist_ok=True)
            old = dataset.root / path
            if not old.exists():
                raise InvalidInput("is missing", where=str(old), hint="was the dataset downloaded whole?")
            try:
                os.link(old.resolve(), new)
            except OSError:
                shutil.copyfile(old, new)
            places[path] = place
            place = layout.next_file(*place)
    return places


def _take_labels(dataset: LerobotDataset, ids: Sequence[str], root: Path) -> None:
    known = read_labels(dataset.root)
    kept = [known[id_].at(place) for place, id_ in enumerate(ids) if id_ in known]
    if kept:
        write_labels(root, kept)
