"""Ways to spoil a file: each takes its content and gives another, or says that there is no file any more."""

from __future__ import annotations

import copy
import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


class Instead(Enum):
    """What may be there instead of a file."""

    NOTHING = "nothing"
    FOLDER = "folder"


Spoil = Callable[[bytes], bytes | Instead]


@dataclass(frozen=True)
class Case:
    """A way to spoil a file and words of the message about it."""

    spoil: Spoil
    said: str


@dataclass(frozen=True)
class Reader:
    """A file of the desk, a command that reads it, and what it must refuse of the file."""

    file: str
    command: Sequence[str]
    cases: Mapping[str, Case]


def content(text: str | bytes) -> Spoil:
    """Other content."""
    return lambda _: text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def instead(what: Instead) -> Spoil:
    return lambda _: what


def replaced(old: str, new: str) -> Spoil:
    """One text for another, which must occur."""

    def spoil(data: bytes) -> bytes:
        text = data.decode()
        assert old in text
        return text.replace(old, new, 1).encode()

    return spoil


# --- any text


def texts(name: str) -> dict[str, Case]:
    """What no file of text may be, whatever it should hold."""
    return {
        "missing": Case(instead(Instead.NOTHING), name),
        "a folder": Case(instead(Instead.FOLDER), name),
        "empty": Case(content(""), name),
        "binary": Case(content(bytes(range(256))), "UTF-8"),
        "NUL": Case(lambda data: data + b"\0", name),
        "UTF-16": Case(lambda data: data.decode().encode("utf-16"), "UTF-8"),
    }


# --- JSON

MANY = 100_000
GONE = object()


def at(path: str, value: Any) -> Spoil:
    """JSON with another value at `a.b.0`; GONE removes it. Keys of one's own are added; a dot in a key is written /."""

    def spoil(data: bytes) -> bytes:
        whole = copy.deepcopy(json.loads(data))
        *way, last = [int(key) if key.isdigit() else key.replace("/", ".") for key in path.split(".")]
        place = whole
        for key in way:
            place = place[key]
        if value is GONE:
            del place[last]
        else:
            place[last] = value
        return json.dumps(whole).encode()

    return spoil


def raw(path: str, text: str) -> Spoil:
    """JSON with this text, which json.dumps would not write, at a path."""
    return lambda data: at(path, "@@")(data).replace(b'"@@"', text.encode(), 1)  # type: ignore[union-attr]


def nested(path: str, levels: int = MANY) -> Spoil:
    return raw(path, "[" * levels + "]" * levels)


def jsons(path: str, name: str) -> dict[str, Case]:
    """What no JSON file may be; `path` is where something may stand."""
    return {
        "cut off": Case(lambda data: data[: len(data) // 2], "not JSON"),
        "a comment": Case(lambda data: b"// hello\n" + data, "not JSON"),
        "brackets": Case(content("[" * MANY), "not JSON"),
        "deep": Case(nested(path), "not JSON that can be read"),
        "rather deep": Case(nested(path, 150), "nested deeper than"),
        "endless number": Case(raw(path, "9" * 6000), "not JSON that can be read"),
        "half a character": Case(raw(path, '"\\ud800"'), "half of a character"),
        "null": Case(content("null"), name),
        "a text": Case(content('"hello"'), name),
        "a list": Case(content("[1, 2]"), name),
    }


# --- CSV


def cell(row: int, column: str, value: str) -> Spoil:
    """A table with another cell; row 1 is the first below the header."""

    def change(rows: list[list[str]]) -> None:
        rows[row][rows[0].index(column)] = value

    return table(change)


def header(column: str, name: str) -> Spoil:
    """A table with a column of another name."""

    def change(rows: list[list[str]]) -> None:
        rows[0][rows[0].index(column)] = name

    return table(change)


def without(column: str) -> Spoil:
    def change(rows: list[list[str]]) -> None:
        place = rows[0].index(column)
        for row in rows:
            del row[place]

    return table(change)


def doubled(column: str) -> Spoil:
    """A table with one column twice."""

    def change(rows: list[list[str]]) -> None:
        place = rows[0].index(column)
        for row in rows:
            row.append(row[place])

    return table(change)


def again(row: int) -> Spoil:
    """A table with one row twice."""
    return table(lambda rows: rows.append(list(rows[row])))


def table(change: Callable[[list[list[str]]], object]) -> Spoil:
    """A table whose rows, the header among them, are changed."""

    def spoil(data: bytes) -> bytes:
        rows = list(csv.reader(io.StringIO(data.decode())))
        change(rows)
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(rows)
        return out.getvalue().encode()

    return spoil


def tables(needed: str) -> dict[str, Case]:
    """What no table may be; `needed` is a column that it needs."""
    return {
        "header alone": Case(lambda data: data.splitlines()[0] + b"\n", "no rows"),
        "no header": Case(lambda data: b"".join(data.splitlines(keepends=True)[1:]), "header (line 1)"),
        "semicolons": Case(lambda data: data.replace(b",", b";"), "header (line 1)"),
        "tabs": Case(lambda data: data.replace(b",", b"\t"), "header (line 1)"),
        "open quote": Case(lambda data: data + b'"', "not valid CSV"),
        "short row": Case(table(lambda rows: rows[1].pop()), "cells where the header has"),
        "long row": Case(table(lambda rows: rows[1].append("x")), "cells where the header has"),
        "needed column": Case(without(needed), needed),
        "column twice": Case(doubled(needed), "twice"),
        "JSON": Case(content('{"a": 1}'), "header (line 1)"),
    }


# --- parquet


def column(name: str, make: Callable[[list[Any]], Any]) -> Spoil:
    """A parquet file with another column, made of the values that it has."""

    def change(found: Any) -> Any:
        values = make(found.column(name).to_pylist())
        made = values if isinstance(values, pa.Array) else pa.array(values)
        return found.set_column(found.column_names.index(name), name, made)

    return parquet(change)


def first(name: str, value: Any) -> Spoil:
    """A parquet file with another value in the first row of a column."""
    return column(name, lambda values: [value, *values[1:]])


def same(name: str, value: Any) -> Spoil:
    """A parquet file with one value in all rows of a column."""
    return column(name, lambda values: [value] * len(values))


def dropped(name: str) -> Spoil:
    return parquet(lambda found: found.drop_columns([name]))


def parquet(change: Callable[[Any], Any]) -> Spoil:
    def spoil(data: bytes) -> bytes:
        out = io.BytesIO()
        pq.write_table(change(pq.read_table(io.BytesIO(data))), out)
        return out.getvalue()

    return spoil


def parquets(name: str) -> dict[str, Case]:
    """What no parquet file may be."""
    return {
        "empty": Case(content(b""), name),
        "text": Case(content("hello"), "cannot be read as parquet"),
        "cut off": Case(lambda data: data[: len(data) // 2], "cannot be read as parquet"),
        "no footer": Case(lambda data: data[:-8] + b"\0" * 8, "cannot be read as parquet"),
        "damaged pages": Case(lambda data: data[:4] + b"\xff" * 200 + data[204:], name),
    }
