"""Where a LeRobot dataset keeps what: info.json, its path templates, parquet files; mistakes are told by place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from factored_scaling.errors import InvalidInput

STATE, ACTION = "observation.state", "action"
# columns that LeRobot adds to every dataset
INDEX_FEATURES = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}
INFO, STATS, TASKS, EPISODES = "meta/info.json", "meta/stats.json", "meta/tasks.parquet", "meta/episodes"
FILE = "chunk-{chunk_index:03d}/file-{file_index:03d}"
DATA_PATH, VIDEO_PATH = f"data/{FILE}.parquet", "videos/{video_key}/" + f"{FILE}.mp4"
CHUNK_FILES, DATA_MEGABYTES, VIDEO_MEGABYTES = 1000, 100, 200
# The type that pandas and LeRobot give to the columns of meta/tasks.parquet
TASK_COLUMN = "__index_level_0__"


@dataclass(frozen=True, slots=True)
class Feature:
    """One column of a dataset: a camera (`image` or `video`) or numbers of a shape."""

    dtype: str
    shape: tuple[int, ...]
    names: Any = None
    info: Mapping[str, Any] | None = None

    @property
    def is_camera(self) -> bool:
        """Whether the column holds pictures."""
        return self.dtype in ("image", "video")

    def to_mapping(self) -> dict[str, Any]:
        """The entry in info.json."""
        entry: dict[str, Any] = {"dtype": self.dtype, "shape": list(self.shape), "names": self.names}
        return {**entry, "info": dict(self.info)} if self.info else entry


@contextmanager
def sensible(where: Path) -> Iterator[None]:
    """Metadata that is not built as LeRobot builds it becomes an error with a place, whatever it trips over."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, pa.ArrowException) as error:
        what = f"is not built as LeRobot builds it ({type(error).__name__}: {error})"
        raise InvalidInput(what, where=str(where)) from None


def read_info(root: Path) -> dict[str, Any]:
    """meta/info.json with the keys that every version has."""
    path = root / INFO
    if not path.exists():
        hint = "give the folder that holds meta/, data/ and so on"
        raise InvalidInput("is not a LeRobot dataset (no meta/info.json)", where=str(root), hint=hint)
    info = read_json(path)
    needed = ("codebase_version", "fps", "features", "data_path")
    missing = [key for key in needed if not isinstance(info, dict) or key not in info]
    if missing:
        raise InvalidInput(f"no key {missing[0]!r}", where=str(path), hint="is it LeRobot's?")
    rate = info["fps"]
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not rate > 0:
        raise InvalidInput(f"fps is {rate!r}, not a number above 0", where=str(path))
    version = str(info["codebase_version"])
    if version not in ("v3.0", "v2.1"):
        hint = "v3.0 and v2.1 can be read; LeRobot has converters for older ones"
        raise InvalidInput(f"is a LeRobot dataset of version {version}", where=str(root), hint=hint)
    return dict(info)


def read_features(info: Mapping[str, Any], where: str) -> dict[str, Feature]:
    """The features that info.json declares."""
    try:
        return {
            str(name): Feature(str(entry["dtype"]), tuple(entry["shape"]), entry.get("names"), entry.get("info"))
            for name, entry in info["features"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"a feature without {error}", where=f"{where}/{INFO}") from None


def read_json(path: Path) -> Any:
    """A JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot be read ({error.strerror})", where=str(path)) from None
    except ValueError as error:
        raise InvalidInput(f"is not JSON ({error})", where=str(path)) from None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """A file of one JSON object per line, as v2.1 keeps its metadata."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.strip()]
    except OSError as error:
        raise InvalidInput(f"cannot be read ({error.strerror})", where=str(path)) from None
    except ValueError as error:
        raise InvalidInput(f"is not JSON lines ({error})", where=str(path)) from None


def open_parquet(path: Path) -> Any:
    """A parquet file; one without its ending was never closed by whoever wrote it."""
    try:
        return pq.ParquetFile(path)
    except FileNotFoundError:
        raise InvalidInput("is missing", where=str(path), hint="was the dataset downloaded whole?") from None
    except (pa.ArrowInvalid, OSError) as error:
        what = f"cannot be read as parquet ({str(error).splitlines()[0]})"
        raise InvalidInput(what, where=str(path), hint="did the recording end with finalize()?") from None


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> Any:
    """A whole parquet file, or some of its columns."""
    with open_parquet(path) as file:
        try:
            return file.read(columns=None if columns is None else list(columns))
        except (pa.ArrowInvalid, OSError) as error:
            raise InvalidInput(f"cannot be read ({str(error).splitlines()[0]})", where=str(path)) from None


def filled(template: Any, where: str, **values: Any) -> str:
    """A path template of info.json filled in; it must stay inside the dataset."""
    try:
        path = str(template).format(**values)
    except (KeyError, IndexError, ValueError, AttributeError):
        raise InvalidInput(f"cannot fill in the path {template!r}", where=f"{where}/{INFO}") from None
    if path.startswith("/") or ".." in path.split("/"):  # as text: this runs once per episode and camera
        raise InvalidInput(f"the path {path!r} leads out of the dataset", where=f"{where}/{INFO}")
    return path


def next_file(chunk: int, file: int) -> tuple[int, int]:
    """The chunk and file numbers after these."""
    return (chunk, file + 1) if file + 1 < CHUNK_FILES else (chunk + 1, 0)
