"""Statistics in LeRobot's form, of the selected episodes only.

LeRobot keeps the statistics of the whole dataset when episodes are selected, so that the normalisation depends on the
others. Here they are combined from the statistics of each selected episode, as LeRobot does for a whole dataset, or
computed from the rows if an episode has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from factored_scaling.core.checks import LARGEST
from factored_scaling.data.lerobot import layout
from factored_scaling.data.lerobot.dataset import EpisodeEntry, LerobotDataset
from factored_scaling.data.lerobot.pictures import read_episodes, read_pictures
from factored_scaling.data.lerobot.rows import row_groups, vectors

QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
RECORDED, COMPUTED = "put together from the episodes' recorded statistics", "computed from the episodes' rows"
_MOST_SIDE = 300  # larger images are subsampled to about 150 pixels a side

FeatureStatistics = dict[str, NDArray[Any]]
Statistics = dict[str, FeatureStatistics]


def of_rows(values: NDArray[Any]) -> FeatureStatistics:
    """Statistics of rows × size."""
    rows = values.astype(np.float64)
    ordered = rows if values.dtype == bool else values
    made: FeatureStatistics = {
        "min": ordered.min(0),
        "max": ordered.max(0),
        "mean": rows.mean(0),
        "std": rows.std(0),
        "count": np.array([len(rows)]),
    }
    quantiles = np.quantile(rows, list(QUANTILES.values()), axis=0)
    return made | dict(zip(QUANTILES, quantiles, strict=True))


def of_pictures(pictures: Iterable[NDArray[np.uint8]]) -> FeatureStatistics:
    """Statistics per colour channel, in [0, 1] and of shape 3 × 1 × 1; exact, from histograms."""
    counts, frames = np.zeros((3, 256), dtype=np.int64), 0
    for picture in pictures:
        thin = _thinned(picture)
        for channel in range(3):
            counts[channel] += np.bincount(thin[..., channel].ravel(), minlength=256)
        frames += 1
    levels = np.arange(256) / 255.0
    share = counts / counts.sum(1, keepdims=True)
    mean = share @ levels
    reached = np.cumsum(share, axis=1)
    made = {
        "min": levels[(counts > 0).argmax(1)],
        "max": levels[255 - (counts[:, ::-1] > 0).argmax(1)],
        "mean": mean,
        "std": np.sqrt(np.maximum(share @ levels**2 - mean**2, 0.0)),
    }
    made |= {name: levels[(reached >= level - 1e-12).argmax(1)] for name, level in QUANTILES.items()}
    return {name: value.reshape(3, 1, 1) for name, value in made.items()} | {"count": np.array([frames])}


def sampled(length: int) -> list[int]:
    """The frames for an episode's image statistics: at least 100, a sample of a long episode."""
    count = max(min(length, 100), min(int(length**0.75), 10_000))
    return [int(frame) for frame in np.round(np.linspace(0, length - 1, count))]


def put_together(parts: Sequence[Mapping[str, Mapping[str, NDArray[Any]]]]) -> Statistics:
    """Statistics of all parts. Quantiles are means over the parts, weighted by count, as in LeRobot."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: _together([part[name] for part in parts if name in part]) for name in names}


def recorded(dataset: LerobotDataset, indices: Iterable[int]) -> dict[int, Statistics]:
    """The dataset's statistics of each episode; empty for episodes without."""
    wanted = {int(index) for index in indices}
    found: dict[int, Statistics] = {index: {} for index in wanted}
    with layout.sensible(dataset.root / "meta"):
        for index, entry in _entries(dataset, wanted):
            arrays = {
                name: {key: np.asarray(value) for key, value in values.items() if value is not None}
                for name, values in entry.items()
                if values is not None
            }
            found[index] = {name: values for name, values in arrays.items() if _usable(values)}
    return found


def of_selected(dataset: LerobotDataset, indices: Iterable[int]) -> tuple[dict[int, Statistics], dict[str, str]]:
    """Statistics of each selected episode, and the source of each feature's.

    A feature is computed from the rows unless every selected episode has usable statistics of it.
    """
    chosen = [int(index) for index in indices]
    known = recorded(dataset, chosen)
    names = [name for name, feature in dataset.features.items() if feature.dtype != "string"]
    shapes = {name: {_shape(known[index], name) for index in chosen} for name in names}
    lacking = [name for name, found in shapes.items() if len(found) > 1 or None in found]
    cameras = [name for name in lacking if dataset.features[name].is_camera]
    numbers = [name for name in lacking if name not in cameras]
    if lacking:
        for entry, table in read_episodes(dataset, chosen, numbers, cameras):
            for name in numbers:
                where = f"{dataset.root}: episode {entry.index}, {name}"
                known[entry.index][name] = of_rows(vectors(table.column(name), entry.length, where))
            for name in cameras:
                known[entry.index][name] = _of_camera(dataset, entry, table, name)
    sources = {name: COMPUTED if name in lacking else RECORDED for name in names}
    return {index: {name: known[index][name] for name in names} for index in chosen}, sources


def to_plain(statistics: Mapping[str, Mapping[str, NDArray[Any]]]) -> dict[str, dict[str, Any]]:
    """The content of stats.json."""
    return {name: {key: value.tolist() for key, value in values.items()} for name, values in statistics.items()}


def _of_camera(dataset: LerobotDataset, entry: EpisodeEntry, table: Any, name: str) -> FeatureStatistics:
    return of_pictures(read_pictures(dataset, entry, table, name, sampled(entry.length)))


def _thinned(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    longest = max(picture.shape[:2])
    step = 1 if longest < _MOST_SIDE else longest // (_MOST_SIDE // 2)
    return picture[::step, ::step]


def _usable(values: Mapping[str, NDArray[Any]]) -> bool:
    """Whether statistics are complete and plausible.

    LeRobot 0.4 overflows when it squares the bytes of images, so that their standard deviation is often 0.
    """
    if not all(key in values for key in ("min", "max", "mean", "std", "count")):
        return False
    if not all(value.dtype.kind in "fib" and value.size for value in values.values()):
        return False
    if values["count"].shape != (1,) or not 1 <= values["count"][0] <= LARGEST:
        return False
    if any(value.shape != values["mean"].shape for key, value in values.items() if key != "count"):
        return False
    return not (values["min"].ndim == 3 and bool(np.any((values["std"] == 0) & (values["max"] > values["min"]))))


def _shape(known: Statistics, name: str) -> tuple[int, ...] | None:
    return known[name]["mean"].shape if name in known else None


def _together(parts: Sequence[Mapping[str, NDArray[Any]]]) -> FeatureStatistics:
    counts = np.array([int(part["count"][0]) for part in parts], dtype=np.float64)
    share = counts / counts.sum()

    def mean(values: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(np.tensordot(share, values, axes=1))

    means = np.stack([part["mean"] for part in parts]).astype(np.float64)
    deviations = np.stack([part["std"] for part in parts]).astype(np.float64)
    middle = mean(means)
    made = {
        "min": np.min([part["min"] for part in parts], axis=0),
        "max": np.max([part["max"] for part in parts], axis=0),
        "mean": middle,
        "std": np.sqrt(mean(deviations**2 + (means - middle) ** 2)),
        "count": np.array([int(counts.sum())]),
    }
    for name in QUANTILES:
        if all(name in part for part in parts):
            made[name] = mean(np.stack([part[name] for part in parts]))
    return made


def _entries(dataset: LerobotDataset, wanted: set[int]) -> Iterator[tuple[int, Mapping[str, Mapping[str, Any]]]]:
    """Recorded statistics as nested plain data."""
    if dataset.version == "v2.1":
        path = dataset.root / "meta/episodes_stats.jsonl"
        for line in layout.read_lines(path) if path.exists() else []:
            if line["episode_index"] in wanted:
                yield int(line["episode_index"]), line["stats"]
        return
    for path in sorted((dataset.root / layout.EPISODES).glob("*/*.parquet")):
        with layout.open_parquet(path) as file:
            columns = [name for name in file.schema_arrow.names if name.startswith("stats/")]
            groups = row_groups(file, wanted)
            if not columns or not groups:
                continue
            with layout.reading(path):
                table = file.read_row_groups(groups, columns=["episode_index", *columns])
        numbers = table.column("episode_index").to_pylist()
        places = [place for place, number in enumerate(numbers) if number in wanted]
        for row in table.take(places).to_pylist():
            number = row["episode_index"]
            nested: dict[str, dict[str, Any]] = {}
            for column in columns:
                name, _, key = column.removeprefix("stats/").rpartition("/")
                nested.setdefault(name, {})[key] = row[column]
            yield int(number), nested
