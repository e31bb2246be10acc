"""Write episodes of one or several datasets as a new dataset, with statistics of its own.

Rows are copied with new numbers, images unchanged. Videos are linked, not encoded again: the metadata gives the seconds
of an episode, so a file may hold more than the selection uses.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from factored_scaling.data.lerobot import layout, statistics
from factored_scaling.data.lerobot.dataset import EpisodeEntry, LerobotDataset
from factored_scaling.data.lerobot.identity import content_of, distinct_ids, episode_ids
from factored_scaling.data.lerobot.labels import Label, read_labels, write_labels
from factored_scaling.data.lerobot.rows import read_rows, vectors
from factored_scaling.data.lerobot.statistics import Statistics
from factored_scaling.data.lerobot.write import Shelf, video_columns
from factored_scaling.errors import InvalidInput

SELECTION = "meta/fsc_selection.json"
SUBTASKS = "meta/subtasks.parquet"
RENUMBERED = ("episode_index", "index", "task_index")


def select_episodes(dataset: LerobotDataset, indices: Iterable[int], target: str | Path) -> LerobotDataset:
    """Write the episodes with these numbers, in ascending order, as a v3.0 dataset at `target`.

    Its `meta/fsc_selection.json` names the episodes, their dataset and the source of the statistics.
    """
    chosen = _Part(dataset, sorted({int(index) for index in indices}))
    if not chosen.indices:
        raise InvalidInput("no episodes are selected", where=str(dataset.root))
    dataset.entries(chosen.indices)  # an unknown number is an error before anything is written
    return _write([chosen], Path(target))


def merge_datasets(datasets: Sequence[LerobotDataset], target: str | Path) -> tuple[LerobotDataset, int]:
    """All episodes of the datasets as one at `target`; returns it and how many were left out.

    Episodes with the same content as an earlier one are left out. Cameras, states and actions must match.
    """
    if not datasets:
        raise InvalidInput("no datasets to merge")
    parts: list[_Part] = []
    seen: set[str] = set()
    left_out = 0
    for dataset in datasets:
        _check_alike(datasets[0], dataset)
        contents = {index: content_of(id_) for index, id_ in episode_ids(dataset).items()}
        new = [index for index, content in contents.items() if content not in seen]
        left_out += len(contents) - len(new)
        seen |= set(contents.values())
        if new:
            parts.append(_Part(dataset, new))
    return _write(parts, Path(target)), left_out


@dataclass(frozen=True)
class _Part:
    """Some episodes of one dataset."""

    dataset: LerobotDataset
    indices: list[int]

    @property
    def ids(self) -> list[str]:
        ids = episode_ids(self.dataset)
        return [ids[index] for index in self.indices]


def _write(parts: Sequence[_Part], target: Path) -> LerobotDataset:
    first = parts[0].dataset
    described: list[Statistics] = []
    sources: dict[str, str] = {}
    tasks = first.tasks()
    shelf = Shelf(target)
    try:
        films = _Films(shelf.root)
        for part in parts:
            known, where = statistics.of_selected(part.dataset, part.indices)
            sources |= {name: source for name, source in where.items() if sources.get(name) != statistics.COMPUTED}
            numbers = _task_numbers(part.dataset, tasks)
            for entry, table in _ascending(part):
                rows = _renumbered(table, len(shelf.episodes), shelf.frames, numbers)
                own = known[entry.index]
                own |= {n: statistics.of_rows(vectors(rows.column(n), len(rows), n)) for n in RENUMBERED}
                described.append(own)
                shelf.add(rows, entry.tasks, own, films.link(part.dataset, entry))
        info = {key: value for key, value in first.info.items() if key != "total_videos"}
        info["video_path"] = layout.VIDEO_PATH if films.places else None
        (shelf.root / "meta").mkdir()
        if (first.root / SUBTASKS).exists():  # rows refer to its numbers
            shutil.copyfile(first.root / SUBTASKS, shelf.root / SUBTASKS)
        note = _note(parts, sources | dict.fromkeys(RENUMBERED, statistics.COMPUTED))
        (shelf.root / SELECTION).write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")
        _take_labels(parts, shelf.root)
        shelf.put(info, tasks, statistics.put_together(described))
    except BaseException:
        shelf.drop()
        raise
    return LerobotDataset.open(target)


def _note(parts: Sequence[_Part], sources: dict[str, str]) -> dict[str, Any]:
    """The names of the episodes, and the source of the statistics."""
    places = [{"source": str(part.dataset.root.resolve()), "episodes": part.indices, "ids": part.ids} for part in parts]
    described = {"of": "the episodes listed here, and no others", "features": sources}
    return {**places[0], "statistics": described} if len(places) == 1 else {"sources": places, "statistics": described}


def _check_alike(first: LerobotDataset, other: LerobotDataset) -> None:
    """Datasets that are merged must have the same columns; how videos are encoded may differ."""
    kinds = [{name: (f.dtype, f.shape) for name, f in dataset.features.items()} for dataset in (first, other)]
    if kinds[0] != kinds[1]:
        differing = sorted(name for name in {*kinds[0], *kinds[1]} if kinds[0].get(name) != kinds[1].get(name))
        what = f"{differing[0]!r} is {_kind(other, differing[0])} here and {_kind(first, differing[0])} in {first.root}"
        raise InvalidInput(what, where=str(other.root), hint="only datasets with the same features can be merged")
    if first.fps != other.fps:
        what = f"has {other.fps:g} frames per second, {first.root} has {first.fps:g}"
        raise InvalidInput(what, where=str(other.root))
    if first.root.resolve() != other.root.resolve() and any((d.root / SUBTASKS).exists() for d in (first, other)):
        raise InvalidInput("datasets with subtasks cannot be merged here", where=str(other.root))


def _kind(dataset: LerobotDataset, name: str) -> str:
    feature = dataset.features.get(name)
    return "missing" if feature is None else f"{feature.dtype} of shape {tuple(feature.shape)}"


def _ascending(part: _Part) -> Iterable[tuple[EpisodeEntry, Any]]:
    """Rows sorted by episode number."""
    waiting: dict[int, tuple[EpisodeEntry, Any]] = {}
    following = iter(part.indices)
    wanted = next(following, None)
    for entry, table in read_rows(part.dataset, part.indices):
        waiting[entry.index] = (entry, table)
        while wanted in waiting:
            yield waiting.pop(wanted)
            wanted = next(following, None)


def _task_numbers(dataset: LerobotDataset, tasks: dict[int, str]) -> dict[int, int]:
    """The dataset's task numbers in the common list, which is extended by new tasks."""
    known = {text: number for number, text in tasks.items()}
    numbers = {}
    for number, text in dataset.tasks().items():
        if text not in known:
            known[text] = max(tasks, default=-1) + 1
            tasks[known[text]] = text
        numbers[number] = known[text]
    return numbers


def _renumbered(table: Any, episode: int, first: int, tasks: dict[int, int]) -> Any:
    old = table.column("task_index").to_numpy()
    numbers = {
        "episode_index": np.full(len(table), episode, dtype=np.int64),
        "index": np.arange(first, first + len(table), dtype=np.int64),
        "task_index": np.array([tasks.get(int(number), int(number)) for number in old], dtype=np.int64),
    }
    for name, values in numbers.items():
        place = table.column_names.index(name)
        table = table.set_column(place, table.schema.field(place), pa.array(values, table.schema.field(place).type))
    return table


class _Films:
    """Video files of the new dataset: hard links to the old ones, or copies on another disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.places: dict[Path, tuple[int, int]] = {}  # chunk and file by the old path
        self._free: dict[str, tuple[int, int]] = {}  # the next chunk and file of each camera

    def link(self, dataset: LerobotDataset, entry: EpisodeEntry) -> dict[str, Any]:
        """Link the episode's videos if needed; returns their entry in meta/episodes."""
        columns: dict[str, Any] = {}
        for camera, span in entry.videos.items():
            old = dataset.root / span.path
            if old not in self.places:
                self._take(old, camera)
            columns |= video_columns(camera, *self.places[old], span.start, span.end)
        return columns

    def _take(self, old: Path, camera: str) -> None:
        place = self._free.get(camera, (0, 0))
        new = self.root / layout.VIDEO_PATH.format(video_key=camera, chunk_index=place[0], file_index=place[1])
        new.parent.mkdir(parents=True, exist_ok=True)
        if not old.exists():
            raise InvalidInput("is missing", where=str(old), hint=layout.INCOMPLETE)
        try:
            os.link(old.resolve(), new)
        except OSError:
            shutil.copyfile(old, new)
        self.places[old], self._free[camera] = place, layout.next_file(*place)


def _take_labels(parts: Sequence[_Part], root: Path) -> None:
    """Copy the labels; of episodes with equal content, each gets the id that it has in the new dataset."""
    labels: list[Label | None] = []
    ids: list[str] = []
    for part in parts:
        known = read_labels(part.dataset.root)
        labels += [known.get(id_) for id_ in part.ids]
        ids += part.ids
    new = distinct_ids(content_of(id_) for id_ in ids)
    copied = [replace(label, id=new[place], index=place) for place, label in enumerate(labels) if label is not None]
    if copied:
        write_labels(root, copied)
