"""LeRobot datasets: metadata of both versions, rows, statistics, videos, pictures and our labels beside them."""

from __future__ import annotations

import datetime
import json
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from tests.cli.corpus.kinds import (
    GONE,
    Case,
    Instead,
    Reader,
    Spoil,
    at,
    column,
    content,
    dropped,
    first,
    instead,
    jsons,
    parquet,
    parquets,
    raw,
    same,
    texts,
)

DAY = datetime.datetime(2026, 1, 1)
FILE = "chunk-000/file-000.parquet"
PICTURES = "observation.images.front"
SHOW, LABELS = ("dataset", "show", "cubes"), ("label", "cubes")
SELECT = ("dataset", "select", "cubes", "--episodes", "0-1", "--out", "new")


def paths(key: str) -> dict[str, Case]:
    """What no path template of info.json may be."""
    cannot, odd = "cannot fill in the path", "{chunk_index:03d}"
    return {
        f"{key} null": Case(at(key, None), cannot),
        f"{key} a number": Case(at(key, 3), cannot),
        f"{key} empty": Case(at(key, ""), cannot),
        f"{key} an open brace": Case(at(key, "data/{"), cannot),
        f"{key} a closing brace": Case(at(key, "data/}"), cannot),
        f"{key} no name": Case(at(key, "data/{}"), cannot),
        f"{key} a place": Case(at(key, "data/{0}"), cannot),
        f"{key} an unknown name": Case(at(key, "data/{chunk}"), cannot),
        f"{key} an attribute": Case(at(key, "data/{chunk_index.real}"), cannot),
        f"{key} an item": Case(at(key, "data/{chunk_index[0]}"), cannot),
        f"{key} a conversion": Case(at(key, "data/{chunk_index!r}"), cannot),
        f"{key} a billion digits": Case(at(key, "data/{chunk_index:999999999d}"), cannot),
        f"{key} not a number's form": Case(at(key, "data/{chunk_index:zz}"), cannot),
        f"{key} NUL": Case(at(key, "data/\0"), cannot),
        f"{key} long": Case(at(key, "d" * 5000), cannot),
        f"{key} absolute": Case(at(key, f"/tmp/{odd}"), "leads out of the dataset"),
        f"{key} upwards": Case(at(key, f"data/../../{odd}"), "leads out of the dataset"),
    }


INFO: dict[str, Case] = {
    **texts("cubes"),
    "NUL": Case(lambda data: data + b"\0", "not JSON"),
    **jsons("robot_type", "info.json"),
    "NaN": Case(raw("robot_type", "NaN"), "NaN is not a number in JSON"),
    **{f"no {key}": Case(at(key, GONE), f"no key '{key}'") for key in ("codebase_version", "fps", "features")},
    "no data_path": Case(at("data_path", GONE), "no key 'data_path'"),
    "fps null": Case(at("fps", None), "fps is None"),
    "fps 0": Case(at("fps", 0), "fps is 0"),
    "fps negative": Case(at("fps", -30), "fps is -30"),
    "fps a text": Case(at("fps", "30"), "fps is '30'"),
    "fps a bool": Case(at("fps", True), "fps is True"),
    "fps a list": Case(at("fps", [30]), "fps is [30]"),
    "fps 1e999": Case(raw("fps", "1e999"), "fps is inf"),
    "version a number": Case(at("codebase_version", 3.0), "of version 3.0"),
    "version old": Case(at("codebase_version", "v1.6"), "LeRobot has converters"),
    "features null": Case(at("features", None), "expected an object of features"),
    "features a list": Case(at("features", ["action"]), "expected an object of features"),
    "feature null": Case(at("features.action", None), "features.action: expected an object"),
    "feature a text": Case(at("features.action", "float32"), "features.action: expected an object"),
    "dtype missing": Case(at("features.action.dtype", GONE), "features.action: expected an object with dtype"),
    "dtype a number": Case(at("features.action.dtype", 32), "features.action.dtype"),
    "shape missing": Case(at("features.action.shape", GONE), "features.action: expected an object with dtype"),
    "shape null": Case(at("features.action.shape", None), "features.action.shape"),
    "shape a number": Case(at("features.action.shape", 2), "features.action.shape"),
    "shape a text": Case(at("features.action.shape", "2"), "features.action.shape"),
    "shape of texts": Case(at("features.action.shape", ["2"]), "features.action.shape"),
    "shape of parts": Case(at("features.action.shape", [2.5]), "features.action.shape"),
    "shape negative": Case(at("features.action.shape", [-2]), "features.action.shape"),
    "shape nested": Case(at("features.action.shape", [[2]]), "features.action.shape"),
    "info of a feature": Case(at("features.action.info", 3), "features.action.info"),
    "episodes miscounted": Case(at("total_episodes", 99), "counts 99 episodes, the metadata lists 3"),
    "episodes a text": Case(at("total_episodes", "three"), "counts three episodes"),
    "chunks_size 0": Case(at("chunks_size", 0), "chunks_size is 0"),
    "chunks_size negative": Case(at("chunks_size", -1), "chunks_size is -1"),
    "chunks_size a text": Case(at("chunks_size", "1000"), "chunks_size is '1000'"),
    "chunks_size null": Case(at("chunks_size", None), "chunks_size is None"),
    "chunks_size a part": Case(at("chunks_size", 0.5), "chunks_size is 0.5"),
    **paths("data_path"),
}
# what only reading the rows trips over
INFO_ROWS: dict[str, Case] = {
    "no frame_index": Case(at("features.frame_index", GONE), "no feature 'frame_index'"),
    "no task_index": Case(at("features.task_index", GONE), "no feature 'task_index'"),
    "no features": Case(at("features", {}), "no feature 'timestamp'"),
    "a column that is not there": Case(
        at("features.force", {"dtype": "float32", "shape": [1]}), "has no column 'force'"
    ),
    "pictures as numbers": Case(at(f"features.{PICTURES.replace('.', '/')}.dtype", "float32"), "expected numbers"),
    "data elsewhere": Case(at("data_path", "nowhere/{file_index:03d}.parquet"), "is missing"),
    "data a folder": Case(at("data_path", "meta"), "meta"),
}
INFO_FILMS: dict[str, Case] = {
    "video_path gone": Case(at("video_path", GONE), "cannot fill in the path None"),
    "video_path unknown": Case(at("video_path", "videos/{camera}"), "cannot fill in the path"),
    "video_path upwards": Case(at("video_path", "../{video_key}.mp4"), "leads out of the dataset"),
    "another camera": Case(
        at("features.behind", {"dtype": "video", "shape": [64, 64, 3]}), "no column 'videos/behind/chunk_index'"
    ),
}
INFO_OLDER: dict[str, Case] = {
    "chunks_size 0": Case(at("chunks_size", 0), "chunks_size is 0"),
    "no chunk": Case(at("data_path", "data/{chunk_index}"), "cannot fill in the path"),
    "a long width": Case(at("data_path", "data/{episode_index:0600d}"), "cannot fill in the path"),
    "video_path null": Case(at("video_path", None), "cannot fill in the path None"),
}


def whole_numbers(name: str) -> dict[str, Case]:
    """What no column of whole numbers may hold."""
    there = f"column {name}: expected a whole number"
    return {
        f"{name} missing": Case(dropped(name), f"no column '{name}'"),
        f"{name} null": Case(first(name, None), there),
        f"{name} texts": Case(same(name, "5"), there),
        f"{name} parts": Case(same(name, 1.5), there),
        f"{name} NaN": Case(same(name, float("nan")), there),
        f"{name} negative": Case(first(name, -1), there),
        f"{name} huge": Case(first(name, 2**62), there),
        f"{name} bools": Case(same(name, True), there),
        f"{name} lists": Case(same(name, [1]), "cubes/meta"),
        f"{name} objects": Case(same(name, {"a": 1}), "cubes/meta"),
        f"{name} dates": Case(same(name, DAY), "cubes/meta"),
    }


EPISODES: dict[str, Case] = {
    **parquets("file-000.parquet"),
    "no rows": Case(parquet(lambda found: found.slice(0, 0)), "the metadata lists 0"),
    "rows twice": Case(parquet(lambda found: pa.concat_tables([found, found])), "is listed twice"),
    **whole_numbers("episode_index"),
    **whole_numbers("length"),
    "length 0": Case(first("length", 0), "column length: expected a whole number from 1"),
    **whole_numbers("data/chunk_index"),
    "no file_index": Case(dropped("data/file_index"), "no column 'data/file_index'"),
    "no tasks": Case(dropped("tasks"), "no column 'tasks'"),
    "tasks a text": Case(same("tasks", "pick"), "expected lists of texts"),
    "tasks numbers": Case(same("tasks", [3]), "expected a text, not 3"),
    "tasks nested": Case(same("tasks", [["pick"]]), "expected a text"),
}


def seconds(name: str) -> dict[str, Case]:
    there = f"column {name}: expected seconds"
    return {
        f"{name} missing": Case(dropped(name), f"no column '{name}'"),
        f"{name} null": Case(first(name, None), there),
        f"{name} NaN": Case(first(name, float("nan")), there),
        f"{name} negative": Case(first(name, -1.0), there),
        f"{name} endless": Case(first(name, float("inf")), there),
        f"{name} texts": Case(same(name, "0"), there),
    }


SPANS = {
    **seconds(f"videos/{PICTURES}/from_timestamp"),
    **seconds(f"videos/{PICTURES}/to_timestamp"),
    "no file": Case(dropped(f"videos/{PICTURES}/file_index"), "no column"),
}


def lines(make: Callable[[dict[str, Any]], Any]) -> Spoil:
    """JSON lines whose first object is made into something else."""

    def spoil(data: bytes) -> bytes:
        head, *rest = data.decode().splitlines()
        return "\n".join([json.dumps(make(json.loads(head))), *rest]).encode()

    return spoil


LINES: dict[str, Case] = {
    "missing": Case(instead(Instead.NOTHING), "episodes.jsonl"),
    "a folder": Case(instead(Instead.FOLDER), "episodes.jsonl"),
    "empty": Case(content(""), "lists no episodes"),
    "UTF-16": Case(lambda data: data.decode().encode("utf-16"), "UTF-8"),
    "cut off": Case(lambda data: data[:-10], "not JSON"),
    "deep": Case(lambda data: data + b"[" * 100_000, "line 4"),
    "a list": Case(lines(lambda row: [row]), "line 1: expected an object"),
    "a number": Case(lines(lambda row: 3), "line 1: expected an object"),
    "twice": Case(lambda data: data + data, "is listed twice"),
    "no tasks": Case(lambda data: data.replace(b'"tasks"', b'"task"'), "no column 'tasks'"),
    **{
        f"length {name}": Case(lines(lambda row, value=value: {**row, "length": value}), "meta")  # type: ignore[misc]
        for name, value in {"null": None, "text": "5", "0": 0, "-1": -1, "2.5": 2.5, "list": [5]}.items()
    },
    "length huge": Case(lines(lambda row: {**row, "length": 10**30}), "meta"),
    "index text": Case(lines(lambda row: {**row, "episode_index": "0"}), "meta"),
    "tasks a text": Case(lines(lambda row: {**row, "tasks": "pick"}), "meta"),
    "tasks numbers": Case(lines(lambda row: {**row, "tasks": [1]}), "meta"),
}
TASK_LINES: dict[str, Case] = {
    "missing": Case(instead(Instead.NOTHING), "tasks.jsonl"),
    "cut off": Case(lambda data: data[:-10], "not JSON"),
    "no number": Case(lines(lambda row: {"task": row["task"]}), "is not built as LeRobot builds it"),
    "no text": Case(lines(lambda row: {"task_index": 0}), "is not built as LeRobot builds it"),
    "number a text": Case(lines(lambda row: {**row, "task_index": "0"}), "column task_index: expected a whole number"),
    "text null": Case(lines(lambda row: {**row, "task": None}), "column task: expected a text"),
}
STATISTICS_LINES: dict[str, Case] = {
    "cut off": Case(lambda data: data[: len(data) // 2], "not JSON"),
    "no number": Case(lines(lambda row: {"stats": {}}), "is not built as LeRobot builds it"),
    "no statistics": Case(lines(lambda row: {"episode_index": 0}), "is not built as LeRobot builds it"),
    "statistics a list": Case(lines(lambda row: {**row, "stats": [1]}), "is not built as LeRobot builds it"),
    "of a feature a text": Case(lines(lambda row: {**row, "stats": {"action": "x"}}), "is not built as LeRobot builds"),
    "a list": Case(lines(lambda row: [row]), "line 1: expected an object"),
}
TASKS: dict[str, Case] = {
    "missing": Case(instead(Instead.NOTHING), "is missing"),
    **parquets("tasks.parquet"),
    "no numbers": Case(dropped("task_index"), "has no tasks in it"),
    "no texts": Case(parquet(lambda found: found.select(["task_index"])), "has no tasks in it"),
    "number null": Case(same("task_index", None), "column task_index: expected a whole number"),
    "number a text": Case(same("task_index", "0"), "column task_index: expected a whole number"),
    "text null": Case(same("__index_level_0__", None), "expected a text, not None"),
    "text a number": Case(same("__index_level_0__", 3), "expected a text, not 3"),
}
ROWS: dict[str, Case] = {
    "missing": Case(instead(Instead.NOTHING), "is missing"),
    "a folder": Case(instead(Instead.FOLDER), "cannot be read as parquet"),
    **parquets("file-000.parquet"),
    "fewer rows": Case(parquet(lambda found: found.slice(2)), "the metadata says"),
    "no action": Case(dropped("action"), "has no column 'action'"),
    "action texts": Case(same("action", "x"), "expected numbers, not string"),
    "action of texts": Case(same("action", ["x", "y"]), "expected numbers, not string"),
    "action null": Case(column("action", lambda rows: pa.array([None, *rows[1:]], pa.list_(pa.float32()))), "action"),
    "action of nulls": Case(column("action", lambda rows: pa.array([[None, 1.0], *rows[1:]])), "action"),
    "action ragged": Case(first("action", [1.0]), "rows of different sizes"),
    "action objects": Case(same("action", {"a": 1.0}), "expected numbers"),
    "action dates": Case(same("action", DAY), "expected numbers"),
    "action bytes": Case(same("action", b"\xff"), "expected numbers"),
    "no episode_index": Case(dropped("episode_index"), "has no column 'episode_index'"),
    "episode_index texts": Case(same("episode_index", "0"), "'episode_index' holds string, not int64"),
    "episode_index parts": Case(same("episode_index", 0.0), "'episode_index' holds double, not int64"),
    "episode_index lists": Case(same("episode_index", [0]), "'episode_index' holds list"),
    "episode_index dates": Case(same("episode_index", DAY), "'episode_index' holds timestamp"),
    "episode_index gaps": Case(first("episode_index", None), "'episode_index' has gaps"),
    "episode_index of others": Case(same("episode_index", 7), "has 0 rows of episode 0"),
    "episode_index unsigned": Case(
        column("episode_index", lambda rows: pa.array(rows, pa.uint64())), "'episode_index' holds uint64"
    ),
    "frame_index texts": Case(same("frame_index", "0"), "'frame_index' holds string"),
    "frame_index gaps": Case(first("frame_index", None), "'frame_index' has gaps"),
}
ROWS_SELECTED: dict[str, Case] = {
    "task_index texts": Case(same("task_index", "0"), "'task_index' holds string"),
    "task_index parts": Case(same("task_index", 0.5), "'task_index' holds double"),
    "task_index gaps": Case(first("task_index", None), "'task_index' has gaps"),
    "index lists": Case(same("index", [0]), "'index' holds list"),
    "no index": Case(dropped("index"), "has no column 'index'"),
    "timestamp texts": Case(same("timestamp", "0"), "'timestamp' holds string"),
}
ROWS_FILMS: dict[str, Case] = {
    "timestamp NaN": Case(same("timestamp", float("nan")), "timestamp lies outside"),
    "timestamp endless": Case(same("timestamp", float("inf")), "timestamp lies outside"),
    "timestamp far": Case(same("timestamp", 1e30), "timestamp lies outside"),
    "timestamp late": Case(same("timestamp", 1e5), "has no frame at"),
    "timestamp gaps": Case(first("timestamp", None), "'timestamp' has gaps"),
    "timestamp whole": Case(same("timestamp", 1), "'timestamp' holds int64"),
}


def picture(value: Any) -> Spoil:
    """Rows whose first picture is something else."""

    def change(found: Any) -> Any:
        place = found.column_names.index(PICTURES)
        values = [value, *found.column(PICTURES).to_pylist()[1:]]
        return found.set_column(place, found.schema.field(place), pa.array(values, found.schema.field(place).type))

    return parquet(change)


def png(width: int, height: int, data: bytes = b"") -> dict[str, Any]:
    """A PNG that says it is so large."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", size), chunk(b"IDAT", zlib.compress(data)), chunk(b"IEND", b"")]
    return {"bytes": b"\x89PNG\r\n\x1a\n" + b"".join(parts), "path": None}


IMAGES: dict[str, Case] = {
    name: Case(picture(value), "is not a picture")
    for name, value in {
        "null": None,
        "nothing": {"bytes": None, "path": None},
        "empty": {"bytes": b"", "path": None},
        "text": {"bytes": b"hello", "path": None},
        "elsewhere": {"bytes": None, "path": "nowhere.png"},
        "cut off": {"bytes": png(16, 16, bytes(range(256)) * 3)["bytes"][:200], "path": None},
        "too little": png(16, 16, b"\0" * 10),
        "of no size": png(0, 0),
        "too large": png(30_000, 30_000),
        "rather large": png(12_000, 12_000),
    }.items()
}
FILMS: dict[str, Case] = {
    "missing": Case(instead(Instead.NOTHING), "is missing"),
    "a folder": Case(instead(Instead.FOLDER), "cannot be read as a video"),
    "empty": Case(content(b""), "cannot be read as a video"),
    "text": Case(content(b"hello" * 100), "cannot be read as a video"),
    "cut off": Case(lambda data: data[: len(data) // 2], "file-000.mp4"),
    "zeros": Case(lambda data: b"\0" * len(data), "cannot be read as a video"),
    "sound alone": Case(
        content(
            b"RIFF\x88\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x44\xac\0\0\x88\x58\x01\0\x02\0\x10\0data\x64\0\0\0"
            + b"\0" * 100
        ),
        "cannot be read as a video",
    ),
    "unknown codec": Case(lambda data: data.replace(b"av01", b"zz99"), "unknown codec"),
    "damaged frames": Case(lambda data: data[:1000] + b"\xaa" * (len(data) - 1000), "file-000.mp4"),
}


def text_column(name: str) -> dict[str, Case]:
    there = f"the column '{name}' holds"
    return {
        f"{name} missing": Case(dropped(name), f"has no column '{name}'"),
        f"{name} null": Case(first(name, None), there),
        f"{name} numbers": Case(same(name, 3), there),
        f"{name} lists": Case(same(name, ["a"]), there),
        f"{name} bytes": Case(same(name, b"\xff"), there),
    }


SIDECAR: dict[str, Case] = {
    **parquets("fsc_episodes.parquet"),
    "another version": Case(
        parquet(lambda found: found.replace_schema_metadata({"fsc_version": "9"})), "a label file of version 9"
    ),
    "no version": Case(parquet(lambda found: found.replace_schema_metadata({})), "of version unknown"),
    "episode_index missing": Case(dropped("episode_index"), "has no column 'episode_index'"),
    "episode_index texts": Case(same("episode_index", "0"), "the column 'episode_index' holds string"),
    "episode_index null": Case(first("episode_index", None), "the column 'episode_index' holds"),
    **text_column("id"),
    **text_column("factor"),
    **text_column("value"),
    "no factor named": Case(first("factor", ""), "'' names no factor"),
    "half a factor": Case(first("factor", "lighting+"), "'lighting+' names no factor"),
}

READERS: dict[str, Reader] = {
    "info.json": Reader("cubes/meta/info.json", SHOW, INFO),
    "info.json, rows": Reader("cubes/meta/info.json", SELECT, INFO_ROWS),
    "info.json, videos": Reader("films/meta/info.json", ("dataset", "show", "films"), INFO_FILMS),
    "info.json, v2.1": Reader("older/meta/info.json", ("dataset", "show", "older", "--json"), INFO_OLDER),
    "episodes": Reader(f"cubes/meta/episodes/{FILE}", SHOW, EPISODES),
    "episodes, videos": Reader(f"films/meta/episodes/{FILE}", ("dataset", "show", "films"), SPANS),
    "episodes, v2.1": Reader("older/meta/episodes.jsonl", ("init", "new", "--dataset", "older"), LINES),
    "tasks": Reader("cubes/meta/tasks.parquet", SELECT, TASKS),
    "tasks, v2.1": Reader("older/meta/tasks.jsonl", ("dataset", "merge", "older", "films", "--out", "new"), TASK_LINES),
    "statistics, v2.1": Reader(
        "older/meta/episodes_stats.jsonl",
        ("dataset", "select", "older", "--episodes", "0", "--out", "new"),
        STATISTICS_LINES,
    ),
    "rows": Reader(f"cubes/data/{FILE}", ("label", "cubes", "--rule", "all: lighting", "--replace"), ROWS),
    "rows, selected": Reader(f"cubes/data/{FILE}", SELECT, ROWS_SELECTED),
    "rows, videos": Reader(f"films/data/{FILE}", ("label", "films", "--sheet", "sheet.html"), ROWS_FILMS),
    "images": Reader(f"cubes/data/{FILE}", (*LABELS, "--sheet", "sheet.png"), IMAGES),
    "videos": Reader(
        f"films/videos/{PICTURES}/chunk-000/file-000.mp4",
        ("label", "films", "--rule", "all: lighting", "--replace", "--sheet", "sheet.png"),
        FILMS,
    ),
    "labels": Reader("cubes/meta/fsc_episodes.parquet", (*LABELS, "--rule", "all: lighting", "--replace"), SIDECAR),
    "labels of another": Reader(
        "cubes/meta/fsc_episodes.parquet",
        ("label", "films", "--from", "cubes", "--replace"),
        {name: SIDECAR[name] for name in ("text", "no version", "factor missing", "id null", "half a factor")},
    ),
}
