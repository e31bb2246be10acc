"""Write datasets in LeRobot's v3.0 layout, atomically."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from factored_scaling.data.lerobot import layout, statistics
from factored_scaling.data.lerobot.layout import INDEX_FEATURES, Feature
from factored_scaling.data.lerobot.pictures import encoded
from factored_scaling.data.lerobot.statistics import Statistics
from factored_scaling.data.lerobot.video import VideoWriter, video_info
from factored_scaling.errors import InvalidInput

IMAGE_TYPE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


class Shelf:
    """A dataset under construction: data files, episode list, tasks, statistics, info. `put` moves it in place."""

    def __init__(self, target: Path) -> None:
        target = Path(os.path.realpath(target)) if target.is_symlink() else target
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise InvalidInput("is already there; nothing was changed", where=str(target), hint="choose a new folder")
        self.target = target
        target.parent.mkdir(parents=True, exist_ok=True)
        self.root = target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}.tmp")
        self.root.mkdir()
        self.episodes: list[dict[str, Any]] = []
        self.frames = 0
        self._data: Any = None
        self._place, self._bytes = (0, 0), 0

    def add(self, table: Any, tasks: Sequence[str], described: Statistics, videos: Mapping[str, Any]) -> None:
        """Append one episode's rows and its entry in meta/episodes; `videos` are its columns about videos."""
        if self._data is not None and self._bytes + table.nbytes > layout.DATA_MEGABYTES << 20:
            self._data.close()
            self._data, self._place, self._bytes = None, layout.next_file(*self._place), 0
        chunk, file = self._place
        if self._data is None:
            path = self.root / layout.DATA_PATH.format(chunk_index=chunk, file_index=file)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._data = pq.ParquetWriter(path, table.schema, compression="snappy")
        if table.schema != self._data.schema:
            table = _cast(table, self._data.schema)
        self._data.write_table(table)  # one row group per episode, so that readers can select episodes
        self._bytes += table.nbytes
        entry = {
            "episode_index": len(self.episodes),
            "tasks": list(tasks),
            "length": len(table),
            "data/chunk_index": chunk,
            "data/file_index": file,
            "dataset_from_index": self.frames,
            "dataset_to_index": self.frames + len(table),
            **videos,
        }
        for name, values in described.items():
            entry |= {f"stats/{name}/{key}": value.tolist() for key, value in values.items()}
        self.episodes.append(entry | {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0})
        self.frames += len(table)

    def put(self, info: Mapping[str, Any], tasks: Mapping[int, str], summary: Statistics) -> None:
        """Write the metadata and give the dataset its name."""
        if not self.episodes:
            raise InvalidInput("a dataset without episodes", where=str(self.target))
        self._data.close()
        meta = self.root / "meta"
        path = self.root / layout.EPISODES / f"{layout.FILE.format(chunk_index=0, file_index=0)}.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(self.episodes), path, compression="snappy")
        write_tasks(tasks, self.root / layout.TASKS)
        whole = {
            **info,
            "codebase_version": "v3.0",
            "total_episodes": len(self.episodes),
            "total_frames": self.frames,
            "total_tasks": len(tasks),
            "chunks_size": layout.CHUNK_FILES,
            "data_files_size_in_mb": layout.DATA_MEGABYTES,
            "video_files_size_in_mb": layout.VIDEO_MEGABYTES,
            "splits": {"train": f"0:{len(self.episodes)}"},
            "data_path": layout.DATA_PATH,
        }
        (meta / "info.json").write_text(json.dumps(whole, indent=4, ensure_ascii=False), encoding="utf-8")
        plain = json.dumps(statistics.to_plain(summary), indent=4)
        (meta / "stats.json").write_text(plain, encoding="utf-8")
        if self.target.exists():
            self.target.rmdir()
        self.root.rename(self.target)

    def drop(self) -> None:
        """Remove the unfinished dataset."""
        if self._data is not None:
            self._data.close()
        shutil.rmtree(self.root, ignore_errors=True)


def _cast(table: Any, schema: Any) -> Any:
    """Rows with the types of the target file: older files may hold lists instead of fixed-size lists."""
    try:
        return table.select(schema.names).cast(schema)
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInput(f"rows of different kinds ({str(error).splitlines()[0]})") from None


class DatasetWriter:
    """Writes a new dataset, episode by episode.

    `features` describe the columns, without those that LeRobot adds; cameras are `image` (PNG, lossless) or
    `video` (encoded with `codec`). As a context manager it leaves a complete dataset, or nothing after an error.
    """

    def __init__(
        self,
        root: str | Path,
        fps: int,
        features: Mapping[str, Feature],
        robot_type: str | None = None,
        codec: str = "libsvtav1",
    ) -> None:
        self.features = {**features, **{name: Feature(dtype, (1,)) for name, dtype in INDEX_FEATURES.items()}}
        for name, feature in features.items():
            if "/" in name or name in INDEX_FEATURES:
                raise InvalidInput(f"{name!r} cannot name a feature", hint="no /, and none of LeRobot's own columns")
            if not _storable(feature):
                what = f"cannot store {feature.dtype!r} of shape {feature.shape}"
                raise InvalidInput(what, where=name, hint="image, video, string of shape (1,), or a numpy dtype")
        self.fps, self.robot_type, self.codec = fps, robot_type, codec
        self._shelf = Shelf(Path(root))
        self._tasks: dict[str, int] = {}
        self._videos: dict[str, VideoWriter] = {}
        self._places = {name: (0, 0) for name, feature in features.items() if feature.dtype == "video"}
        self._parts: list[Statistics] = []

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self._close_videos()
        finally:
            self._shelf.drop()

    def add(self, columns: Mapping[str, NDArray[Any]], task: str | Sequence[str]) -> int:
        """Append an episode: each feature's rows (cameras: frames × height × width × 3) and its task, or one per frame.

        Returns the episode's number.
        """
        length = self._checked(columns)
        per_frame = [task] * length if isinstance(task, str) else list(task)
        if len(per_frame) != length:
            raise InvalidInput(f"{len(per_frame)} tasks for {length} frames", where=f"episode {self._number}")
        numbers = [self._tasks.setdefault(text, len(self._tasks)) for text in per_frame]
        whole: dict[str, NDArray[Any]] = {
            **columns,
            "timestamp": (np.arange(length) / self.fps).astype(np.float32),
            "frame_index": np.arange(length),
            "episode_index": np.full(length, self._number),
            "index": np.arange(self._shelf.frames, self._shelf.frames + length),
            "task_index": np.array(numbers),
        }
        described = {n: _described(whole[n], f) for n, f in self.features.items() if f.dtype != "string"}
        videos: dict[str, Any] = {}
        for name in self._places:
            videos |= self._film(name, columns[name])
        rows = {n: arrow_column(whole[n], f) for n, f in self.features.items() if f.dtype != "video"}
        self._shelf.add(pa.table(rows), list(dict.fromkeys(per_frame)), described, videos)
        self._parts.append(described)
        return self._number - 1

    def close(self) -> None:
        """Finish the files and move the dataset in place."""
        try:
            self._close_videos()
            info = {
                "robot_type": self.robot_type,
                "fps": self.fps,
                "video_path": layout.VIDEO_PATH if self._places else None,
                "features": {name: self._entry(name, feature) for name, feature in self.features.items()},
            }
            tasks = {number: text for text, number in self._tasks.items()}
            self._shelf.put(info, tasks, statistics.put_together(self._parts))
        except BaseException:
            self._shelf.drop()
            raise

    def _entry(self, name: str, feature: Feature) -> dict[str, Any]:
        """The entry of info.json for a feature; how a camera's videos are encoded is read from the first of them."""
        entry = feature.to_mapping()
        if feature.dtype == "video" and self._parts:
            first = layout.VIDEO_PATH.format(video_key=name, chunk_index=0, file_index=0)
            entry["info"] = video_info(self._shelf.root / first)
        return entry

    @property
    def _number(self) -> int:
        return len(self._shelf.episodes)

    def _checked(self, columns: Mapping[str, NDArray[Any]]) -> int:
        where = f"episode {self._number}"
        own = [name for name in self.features if name not in INDEX_FEATURES]
        for name in [*columns, *own]:
            if name not in own or name not in columns:
                what = "is not a feature of this dataset" if name not in own else "is missing"
                raise InvalidInput(what, where=f"{where}, {name}", hint=f"features: {', '.join(own)}")
        lengths = {len(columns[name]) for name in own}
        if len(lengths) != 1 or 0 in lengths:
            raise InvalidInput("the columns have different lengths, or none", where=where)
        for name in own:
            shape, feature = columns[name].shape[1:] or (1,), self.features[name]
            if tuple(shape) != feature.shape:
                raise InvalidInput(f"has shape {tuple(shape)}, not {feature.shape}", where=f"{where}, {name}")
            if feature.is_camera and columns[name].dtype != np.uint8:
                raise InvalidInput("pictures are bytes (uint8)", where=f"{where}, {name}")
        return lengths.pop()

    def _film(self, name: str, pictures: NDArray[np.uint8]) -> dict[str, Any]:
        """Append an episode's pictures to the camera's video; returns its entry in meta/episodes."""
        writer = self._videos.get(name)
        if writer is not None and writer.bytes >= layout.VIDEO_MEGABYTES << 20:
            writer.close()
            self._places[name], writer = layout.next_file(*self._places[name]), None
        chunk, file = self._places[name]
        if writer is None:
            path = self._shelf.root / layout.VIDEO_PATH.format(video_key=name, chunk_index=chunk, file_index=file)
            height, width, _ = pictures.shape[1:]
            writer = self._videos[name] = VideoWriter(path, self.fps, (height, width), self.codec)
        start = writer.frames
        for number, picture in enumerate(pictures):
            writer.add(picture, first=number == 0)
        return video_columns(name, chunk, file, start / self.fps, writer.frames / self.fps)

    def _close_videos(self) -> None:
        for writer in self._videos.values():
            writer.close()
        self._videos.clear()


def video_columns(name: str, chunk: int, file: int, start: float, end: float) -> dict[str, Any]:
    """The entry of meta/episodes for an episode's frames of one camera."""
    prefix = f"videos/{name}"
    return {
        f"{prefix}/chunk_index": chunk,
        f"{prefix}/file_index": file,
        f"{prefix}/from_timestamp": start,
        f"{prefix}/to_timestamp": end,
    }


def write_tasks(tasks: Mapping[int, str], path: Path) -> None:
    """Write meta/tasks.parquet, with the texts as the index of pandas, which LeRobot reads."""
    numbers = sorted(tasks)
    column = {"name": layout.TASK_COLUMN, "field_name": layout.TASK_COLUMN}
    described = {
        "index_columns": [layout.TASK_COLUMN],
        "column_indexes": [],
        "columns": [
            {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64"},
            {**column, "name": None, "pandas_type": "unicode", "numpy_type": "object"},
        ],
    }
    table = pa.table({"task_index": pa.array(numbers, pa.int64()), layout.TASK_COLUMN: [tasks[n] for n in numbers]})
    pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(described)}), path)


def arrow_column(values: NDArray[Any], feature: Feature) -> Any:
    """A feature's rows in the type of the data files."""
    if feature.dtype == "image":
        rows = [{"bytes": encoded(picture), "path": None} for picture in values]
        return pa.array(rows, IMAGE_TYPE)
    if feature.dtype == "string":
        return pa.array([str(value) for value in np.ravel(values)], pa.string())
    kind = pa.from_numpy_dtype(np.dtype(feature.dtype))
    flat = pa.array(np.ascontiguousarray(values).reshape(-1), kind, safe=False)
    if feature.shape == (1,):
        return flat
    for size in reversed(feature.shape):
        flat = pa.FixedSizeListArray.from_arrays(flat, size)
    return flat


def _storable(feature: Feature) -> bool:
    if feature.is_camera:
        return len(feature.shape) == 3 and feature.shape[2] == 3
    if feature.dtype == "string":
        return feature.shape == (1,)
    try:
        return np.dtype(feature.dtype).kind in "biuf" and len(feature.shape) > 0
    except TypeError:
        return False


def _described(values: NDArray[Any], feature: Feature) -> statistics.FeatureStatistics:
    if feature.is_camera:
        return statistics.of_pictures(values[frame] for frame in statistics.sampled(len(values)))
    return statistics.of_rows(values.astype(feature.dtype).reshape(len(values), -1))
