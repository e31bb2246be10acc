"""Read text, JSON and CSV files with errors that name the place; write them atomically."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from factored_scaling.errors import InvalidInput
from factored_scaling.io.atomic import write_whole
from factored_scaling.io.reading import parse_json
from factored_scaling.io.tables import csv_table

_MOST_BYTES = 64 * 1024 * 1024  # far above any real file; larger files are rejected before they are parsed


def read_text(path: Path, most: int = _MOST_BYTES) -> str:
    """The text of a file, or of standard input for `-`."""
    where = file_name(path)
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(most + 1)
        else:
            with path.open("rb") as file:
                data = file.read(most + 1)  # a device may report a wrong size
    except FileNotFoundError:
        raise InvalidInput("no such file", where=where) from None
    except IsADirectoryError:
        raise InvalidInput("is a folder, not a file", where=where) from None
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot be read ({getattr(error, 'strerror', None) or error})", where=where) from None
    if len(data) > most:
        raise InvalidInput(f"is larger than {most >> 20} MB", where=where, hint="is this the right file?")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInput("is not text in UTF-8", where=f"{where}: line {line}", hint="save it as UTF-8") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InvalidInput("is a binary file, not text", where=f"{where}: line {line}", hint="save it as UTF-8 text")
    if not text.strip():
        raise InvalidInput("is empty", where=where, hint="fill it, or give another file")
    return text


def write_text(path: Path, text: str) -> None:
    """Write a file atomically."""
    write_whole(path, text.encode())


def read_json(path: Path) -> Any:
    """A JSON file."""
    return parse_json(read_text(path), str(path))


def read_table(path: Path, check_header: Callable[[Sequence[str], str], None]) -> list[tuple[str, dict[str, str]]]:
    """A CSV file with a header: every row with its place and its cells by column. `-` reads standard input."""
    try:
        return csv_table(read_text(path), check_header)
    except InvalidInput as error:
        name = file_name(path)
        raise (error if error.where.startswith(name) else error.at(name)) from None


def file_name(path: Path) -> str:
    """The name of the path in errors."""
    return "standard input" if str(path) == "-" else str(path)
