"""LerobotDataset: a dataset's metadata, read without its data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from factored_scaling.core.checks import real, shown
from factored_scaling.data.lerobot import layout
from factored_scaling.data.lerobot.layout import Feature
from factored_scaling.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class VideoSpan:
    """The place of one camera's frames of an episode: a file of the dataset, and its first and last second."""

    path: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class EpisodeEntry:
    """The metadata of one demonstration. Paths are relative to the dataset."""

    index: int
    length: int
    tasks: tuple[str, ...]
    data: str
    videos: Mapping[str, VideoSpan]


class LerobotDataset:
    """A dataset on disk. Opening it reads only metadata."""

    def __init__(
        self,
        root: Path,
        info: Mapping[str, Any],
        features: Mapping[str, Feature],
        episodes: Sequence[EpisodeEntry],
        columns: Any,
    ) -> None:
        self.root = root
        self.info = info
        self.features = features
        self.episodes = tuple(episodes)
        self.columns = columns  # arrow table: all columns of meta/episodes except statistics
        self.ids: dict[int, str] | None = None  # filled in by `identity.episode_ids`
        self._places = {entry.index: place for place, entry in enumerate(self.episodes)}

    @classmethod
    def open(cls, root: str | Path) -> LerobotDataset:
        """Read the metadata of the dataset in the folder `root`."""
        path = Path(root)
        info = layout.read_info(path)
        features = layout.read_features(info, str(path))
        with layout.sensible(path / "meta"):
            table = _episode_table(path, info)
            episodes = _entries(path, info, features, table)
        declared = info.get("total_episodes")
        if declared is not None and declared != len(episodes):
            what = f"info.json counts {declared} episodes, the metadata lists {len(episodes)}"
            raise InvalidInput(what, where=str(path), hint=layout.UNFINISHED)
        return cls(path, info, features, episodes, table)

    def __len__(self) -> int:
        return len(self.episodes)

    @property
    def version(self) -> str:
        """`v3.0` or `v2.1`."""
        return str(self.info["codebase_version"])

    @property
    def fps(self) -> float:
        """Frames per second."""
        return float(self.info["fps"])

    @property
    def cameras(self) -> tuple[str, ...]:
        """The features that hold pictures, in declared order."""
        return tuple(name for name, feature in self.features.items() if feature.is_camera)

    def entry(self, index: int) -> EpisodeEntry:
        """The episode with this number."""
        if index not in self._places:
            last = self.episodes[-1].index if self.episodes else -1
            raise InvalidInput(f"no episode {index}", where=str(self.root), hint=f"they go from 0 to {last}")
        return self.episodes[self._places[index]]

    def entries(self, indices: Iterable[int] | None = None) -> list[EpisodeEntry]:
        """The episodes with these numbers, in the given order; by default all."""
        return list(self.episodes) if indices is None else [self.entry(int(index)) for index in indices]

    def column(self, name: str) -> list[Any]:
        """The column `name` of meta/episodes, one value per episode; `task` is its tasks as one text."""
        if name == "task":
            return [" | ".join(entry.tasks) for entry in self.episodes]
        if name not in self.columns.column_names:
            known = ["task", *(column for column in self.columns.column_names if "/" not in column)]
            raise InvalidInput(f"meta/episodes has no column {name!r}", hint=f"it has {', '.join(known)}")
        return list(self.columns.column(name).to_pylist())

    def tasks(self) -> dict[int, str]:
        """Every task's text by its number."""
        if self.version == "v2.1":
            path = self.root / "meta/tasks.jsonl"
            with layout.sensible(path):
                lines = layout.read_lines(path)
                numbers = layout.whole_numbers([line["task_index"] for line in lines], "task_index", str(path))
                return dict(zip(numbers, _texts([line["task"] for line in lines], "task", path), strict=True))
        path = self.root / layout.TASKS
        table = layout.read_parquet(path)
        texts = [name for name in table.column_names if name != "task_index"]
        if "task_index" not in table.column_names or not texts:
            raise InvalidInput("has no tasks in it", where=str(path))
        with layout.sensible(path):
            numbers = layout.whole_numbers(table.column("task_index").to_pylist(), "task_index", str(path))
            return dict(zip(numbers, _texts(table.column(texts[0]).to_pylist(), texts[0], path), strict=True))


def _episode_table(root: Path, info: Mapping[str, Any]) -> Any:
    """meta/episodes without the statistics, which are most of it, in the order of the episodes' numbers."""
    if info["codebase_version"] == "v2.1":
        lines = layout.read_lines(root / "meta/episodes.jsonl")
        if not lines:
            raise InvalidInput("lists no episodes", where=str(root / "meta/episodes.jsonl"))
        table = pa.Table.from_pylist(lines)
    else:
        paths = sorted((root / layout.EPISODES).glob("*/*.parquet"))
        if not paths:
            raise InvalidInput("lists no episodes", where=str(root / layout.EPISODES))
        parts = []
        for path in paths:
            with layout.open_parquet(path) as file:
                wanted = [name for name in file.schema_arrow.names if not name.startswith("stats/")]
                with layout.reading(path):
                    parts.append(file.read(columns=wanted, use_threads=False))
        table = pa.concat_tables(parts, promote_options="default")
    for name in ("episode_index", "length", "tasks"):
        if name not in table.column_names:
            raise InvalidInput(f"the episodes have no column {name!r}", where=str(root / "meta"))
    return table.sort_by("episode_index")


def _entries(root: Path, info: Mapping[str, Any], features: Mapping[str, Feature], table: Any) -> list[EpisodeEntry]:
    where = str(root / "meta")
    numbers, lengths = (
        layout.whole_numbers(table.column(name).to_pylist(), name, where, least)
        for name, least in (("episode_index", 0), ("length", 1))
    )
    if not layout.is_list(table.column("tasks").type):
        what = f"expected lists of texts, not {table.column('tasks').type}"
        raise InvalidInput(what, where=f"{where}: column tasks")
    tasks = [tuple(_texts(names or (), "tasks", root / "meta")) for names in table.column("tasks").to_pylist()]
    if len(set(numbers)) < len(numbers):
        twice = next(number for number, after in itertools.pairwise(numbers) if number == after)
        raise InvalidInput(f"episode {twice} is listed twice", where=str(root / "meta"))
    videos = [name for name, feature in features.items() if feature.dtype == "video"]
    if info["codebase_version"] == "v2.1":
        data, spans = _separate_files(root, info, videos, numbers, lengths)
    else:
        data, spans = _shared_files(root, info, videos, table)
    empty: dict[str, VideoSpan] = {}
    return [
        EpisodeEntry(number, length, names, data[place], {key: spans[key][place] for key in videos} or empty)
        for place, (number, length, names) in enumerate(zip(numbers, lengths, tasks, strict=True))
    ]


def _shared_files(
    root: Path, info: Mapping[str, Any], videos: Sequence[str], table: Any
) -> tuple[list[str], dict[str, list[VideoSpan]]]:
    """v3.0: several episodes per file; the metadata says which file, and which seconds of a video."""

    where = str(root / layout.EPISODES)

    def values(name: str) -> list[Any]:
        if name not in table.column_names:
            raise InvalidInput(f"the episodes have no column {name!r}", where=where)
        return list(table.column(name).to_pylist())

    def paths(prefix: str, template: Any, **fixed: str) -> list[str]:
        names = (f"{prefix}/chunk_index", f"{prefix}/file_index")
        pairs = list(zip(*(layout.whole_numbers(values(name), name, where) for name in names), strict=True))
        known = {
            pair: layout.filled(template, str(root), chunk_index=pair[0], file_index=pair[1], **fixed)
            for pair in set(pairs)
        }
        return [known[pair] for pair in pairs]

    spans = {}
    for key in videos:
        files = paths(f"videos/{key}", info.get("video_path"), video_key=key)
        starts, ends = (
            _seconds(values(name), name, where)
            for name in (f"videos/{key}/from_timestamp", f"videos/{key}/to_timestamp")
        )
        spans[key] = [VideoSpan(*span) for span in zip(files, starts, ends, strict=True)]
    return paths("data", info["data_path"]), spans


def _separate_files(
    root: Path, info: Mapping[str, Any], videos: Sequence[str], numbers: Sequence[int], lengths: Sequence[int]
) -> tuple[list[str], dict[str, list[VideoSpan]]]:
    """v2.1: one file per episode and camera."""
    size, fps = int(info.get("chunks_size", layout.CHUNK_FILES)), float(info["fps"])

    def paths(template: Any, **fixed: str) -> list[str]:
        return [
            layout.filled(template, str(root), episode_chunk=number // size, episode_index=number, **fixed)
            for number in numbers
        ]

    spans = {
        key: [
            VideoSpan(path, 0.0, length / fps)
            for path, length in zip(paths(info.get("video_path"), video_key=key), lengths, strict=True)
        ]
        for key in videos
    }
    return paths(info["data_path"]), spans


def _texts(values: Iterable[Any], column: str, where: Path) -> list[str]:
    for value in values:
        if not isinstance(value, str):
            raise InvalidInput(f"expected a text, not {shown(value)}", where=f"{where}: column {column}")
    return list(values)


def _seconds(values: Sequence[Any], column: str, where: str) -> list[float]:
    found = [real(value) for value in values]
    for row, (value, number) in enumerate(zip(values, found, strict=True), start=1):
        if number is None or not 0 <= number < math.inf:
            what = f"expected seconds, not {shown(value)}"
            raise InvalidInput(what, where=f"{where}: row {row}, column {column}")
    return [number for number in found if number is not None]
