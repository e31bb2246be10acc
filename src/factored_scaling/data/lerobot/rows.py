"""Read rows of episodes from the data files, only the needed row groups and columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from factored_scaling.data.lerobot import layout
from factored_scaling.data.lerobot.dataset import EpisodeEntry, LerobotDataset
from factored_scaling.errors import InvalidInput

PICTURE_ROWS = 2000  # rows with pictures that are held in memory at once


def read_rows(
    dataset: LerobotDataset, indices: Iterable[int] | None, columns: Sequence[str] | None = None
) -> Iterator[tuple[EpisodeEntry, Any]]:
    """Each episode and its rows as an arrow table, in the order of the files. Without `columns`: all of them."""
    by_file: dict[str, list[EpisodeEntry]] = defaultdict(list)
    for entry in dataset.entries(indices):
        by_file[entry.data].append(entry)
    stored = [name for name, feature in dataset.features.items() if feature.dtype != "video"]
    lacking = [name for name in layout.INDEX_FEATURES if columns is None and name not in stored]
    if lacking:
        raise InvalidInput(f"no feature {lacking[0]!r}", where=f"{dataset.root}/{layout.INFO}", hint="is it LeRobot's?")
    wanted = stored if columns is None else list(dict.fromkeys([*columns, "episode_index", "frame_index"]))
    heavy = any(dataset.features[name].dtype == "image" for name in wanted if name in dataset.features)
    for name, entries in by_file.items():
        where = str(dataset.root / name)
        with layout.open_parquet(dataset.root / name) as file:
            missing = [column for column in wanted if column not in file.schema_arrow.names]
            if missing:
                raise InvalidInput(f"has no column {missing[0]!r}", where=where)
            for column, numbers in layout.INDEX_FEATURES.items():
                if column in wanted and not _holds(kind := file.schema_arrow.field(column).type, numbers):
                    raise InvalidInput(f"the column {column!r} holds {kind}, not {numbers}", where=where)
            yield from _of_file(file, entries, wanted, heavy, where)


def vectors(column: Any, rows: int, where: str) -> NDArray[Any]:
    """A column of numbers or of lists of numbers as rows × size."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    while layout.is_list(values.type):
        values = values.flatten()
    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise InvalidInput(f"expected numbers, not {kind}", where=where)
    flat = values.to_numpy(zero_copy_only=False)
    if values.null_count or len(flat) % max(rows, 1):
        raise InvalidInput("rows of different sizes, or empty ones", where=where)
    return np.asarray(flat).reshape(rows, -1)


def _of_file(
    file: Any, entries: Sequence[EpisodeEntry], wanted: Sequence[str], heavy: bool, where: str
) -> Iterator[tuple[EpisodeEntry, Any]]:
    waiting = {entry.index: entry for entry in entries}
    parts: dict[int, list[Any]] = defaultdict(list)
    counts: dict[int, int] = defaultdict(int)
    chosen = row_groups(file, waiting)
    for groups in _batches(file, chosen) if heavy else [chosen]:
        with layout.reading(Path(where)):
            table = file.read_row_groups(groups, columns=list(wanted))
        for column in set(layout.INDEX_FEATURES) & set(wanted):
            if table.column(column).null_count:
                raise InvalidInput(f"the column {column!r} has gaps", where=where)
        for index, start, end in _runs(table.column("episode_index").to_numpy()):
            if index not in waiting:
                continue
            parts[index].append(table.slice(start, end - start))
            counts[index] += end - start
            if counts[index] == waiting[index].length:
                yield waiting.pop(index), _in_order(parts.pop(index))
    for index, entry in waiting.items():
        what = f"has {counts[index]} rows of episode {index}, the metadata says {entry.length}"
        raise InvalidInput(what, where=where, hint=layout.UNFINISHED)


def row_groups(file: Any, wanted: Iterable[int]) -> list[int]:
    """The row groups of a file that may hold episodes with these numbers, according to the file's metadata."""
    metadata, numbers = file.metadata, np.array(sorted(wanted))
    leaf = next(i for i in range(len(file.schema)) if file.schema.column(i).path == "episode_index")
    chosen = []
    for group in range(metadata.num_row_groups):
        limits = metadata.row_group(group).column(leaf).statistics
        if limits is not None and limits.has_min_max:
            first = np.searchsorted(numbers, limits.min)
            if first == len(numbers) or numbers[first] > limits.max:
                continue
        chosen.append(group)
    return chosen


def _batches(file: Any, groups: Sequence[int]) -> Iterator[list[int]]:
    """Batches of row groups with a limited number of images."""
    batch: list[int] = []
    rows = 0
    for group in groups:
        more = file.metadata.row_group(group).num_rows
        if batch and rows + more > PICTURE_ROWS:
            yield batch
            batch, rows = [], 0
        batch.append(group)
        rows += more
    if batch:
        yield batch


def _runs(numbers: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Consecutive rows of one episode: its number, first row, and the row after the last."""
    edges = np.flatnonzero(np.diff(numbers)) + 1
    for start, end in zip([0, *edges], [*edges, len(numbers)], strict=True):
        if end > start:
            yield int(numbers[start]), int(start), int(end)


def _in_order(parts: Sequence[Any]) -> Any:
    table = pa.concat_tables(parts) if len(parts) > 1 else parts[0]
    frames = table.column("frame_index").to_numpy()
    return table if np.all(np.diff(frames) > 0) else table.take(pa.array(np.argsort(frames, kind="stable")))


def _holds(kind: Any, numbers: str) -> bool:
    """Whether a column's type fits an index column: seconds, or whole numbers of at most 64 bits."""
    if numbers.startswith("float"):
        return bool(pa.types.is_floating(kind))
    return bool(pa.types.is_integer(kind)) and kind != pa.uint64()
