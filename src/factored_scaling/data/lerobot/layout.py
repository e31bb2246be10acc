"""The layout of LeRobot datasets: info.json, its path templates, parquet files. Errors name the place."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from factored_scaling.core.checks import LARGEST, named, real, shown
from factored_scaling.errors import InvalidInput
from factored_scaling.io.reading import parse_json

STATE, ACTION = "observation.state", "action"
# columns that LeRobot adds to every dataset
INDEX_FEATURES = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}
INFO, TASKS, EPISODES = "meta/info.json", "meta/tasks.parquet", "meta/episodes"
FILE = "chunk-{chunk_index:03d}/file-{file_index:03d}"
DATA_PATH, VIDEO_PATH = f"data/{FILE}.parquet", "videos/{video_key}/" + f"{FILE}.mp4"
CHUNK_FILES, DATA_MEGABYTES, VIDEO_MEGABYTES = 1000, 100, 200
LONGEST_PATH = 400
UNFINISHED, INCOMPLETE = "did the recording end with finalize()?", "was the dataset downloaded whole?"
# {video_key} and {chunk_index:03d}, as LeRobot writes them; other forms of format strings are errors
_FIELD = re.compile(r"\{(\w+)(?::0?(\d)d)?\}")
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
    """Turn errors about malformed metadata into InvalidInput with the place."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, pa.ArrowException) as error:
        what = f"is not built as LeRobot builds it ({type(error).__name__}: {_brief(error)})"
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
    rate, chunk = real(info["fps"]), info.get("chunks_size", CHUNK_FILES)
    if rate is None or not 0 < rate < math.inf:
        raise InvalidInput(f"fps is {shown(info['fps'])}, not a number above 0", where=str(path))
    if isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1:
        raise InvalidInput(f"chunks_size is {shown(chunk)}, not a whole number of at least 1", where=str(path))
    version = info["codebase_version"]
    if version not in ("v3.0", "v2.1"):
        hint = "v3.0 and v2.1 can be read; LeRobot has converters for older ones"
        raise InvalidInput(f"is a LeRobot dataset of version {named(version)}", where=str(root), hint=hint)
    return dict(info)


def read_features(info: Mapping[str, Any], where: str) -> dict[str, Feature]:
    """The features that info.json declares."""
    declared = info["features"]
    if not isinstance(declared, dict):
        what = f"expected an object of features, not {shown(declared)}"
        raise InvalidInput(what, where=f"{where}/{INFO}: features")
    return {name: _feature(entry, f"{where}/{INFO}: features.{name}") for name, entry in declared.items()}


def _feature(entry: Any, where: str) -> Feature:
    if not isinstance(entry, dict) or not {"dtype", "shape"} <= set(entry):
        raise InvalidInput(f"expected an object with dtype and shape, not {shown(entry)}", where=where)
    dtype, shape, info = entry["dtype"], entry["shape"], entry.get("info")
    if not isinstance(dtype, str):
        raise InvalidInput(f"expected the name of a type, not {shown(dtype)}", where=f"{where}.dtype")
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise InvalidInput(f"expected a list of whole numbers, not {shown(shape)}", where=f"{where}.shape")
    if info is not None and not isinstance(info, dict):
        raise InvalidInput(f"expected an object, not {shown(info)}", where=f"{where}.info")
    return Feature(dtype, tuple(shape), entry.get("names"), info)


def read_json(path: Path) -> Any:
    """A JSON file."""
    return parse_json(_text(path), str(path), finite=True)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """A file of one JSON object per line, as v2.1 keeps its metadata."""
    found = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if line.strip():
            where = f"{path}: line {number}"
            found.append(parse_json(line, where))
            if not isinstance(found[-1], dict):
                raise InvalidInput(f"expected an object, not {shown(found[-1])}", where=where)
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot be read ({error.strerror})", where=str(path)) from None
    except UnicodeDecodeError:
        raise InvalidInput("is not text in UTF-8", where=str(path)) from None


def open_parquet(path: Path) -> Any:
    """A parquet file; an error if it has no footer because its writer never closed it."""
    try:
        return pq.ParquetFile(path)
    except FileNotFoundError:
        raise InvalidInput("is missing", where=str(path), hint=INCOMPLETE) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        what = f"cannot be read as parquet ({_brief(error)})"
        raise InvalidInput(what, where=str(path), hint=UNFINISHED) from None


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn Arrow's error about a parquet file that it cannot decode into one with the file's name."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: a name that is not UTF-8
        raise InvalidInput(f"cannot be read ({_brief(error)})", where=str(path)) from None


def read_parquet(path: Path) -> Any:
    """A whole parquet file."""
    with open_parquet(path) as file, reading(path):
        return file.read()


def filled(template: Any, where: str, **values: int | str) -> str:
    """A path template of info.json filled in; it must stay inside the dataset."""
    place = f"{where}/{INFO}"

    def fill(match: re.Match[str]) -> str:
        value = values[match[1]]
        return str(value) if match[2] is None else f"{value:0{match[2]}d}"

    try:
        path = _FIELD.sub(fill, template)
    except (KeyError, TypeError, ValueError):
        path = ""
    if "{" in path or "}" in path or "\0" in path or not 0 < len(path) <= LONGEST_PATH:
        raise InvalidInput(f"cannot fill in the path {shown(template)}", where=place)
    if path.startswith("/") or ".." in path.split(
        "/"
    ):  # a text comparison, because this runs once per episode and camera
        raise InvalidInput(f"the path {path!r} leads out of the dataset", where=place)
    return path


def whole_numbers(values: Sequence[Any], column: str, where: str, least: int = 0) -> list[int]:
    """Values of a column of the metadata that must be whole numbers of at least `least`."""
    for row, value in enumerate(values, start=1):
        if type(value) is not int or not least <= value <= LARGEST:
            what = f"expected a whole number from {least} to {LARGEST}, not {shown(value)}"
            raise InvalidInput(what, where=f"{where}: row {row}, column {column}")
    return list(values)


def is_list(kind: Any) -> bool:
    """Whether a column's type is a list, of any or of a fixed length."""
    return any(check(kind) for check in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def _brief(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:200]


def next_file(chunk: int, file: int) -> tuple[int, int]:
    """The chunk and file numbers after these."""
    return (chunk, file + 1) if file + 1 < CHUNK_FILES else (chunk + 1, 0)
