"""Printing: tables for people, JSON for programs."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import click

from factored_scaling.errors import hide_passwords, printable

if TYPE_CHECKING:  # `fsc plan` needs no numpy
    from factored_scaling.core.trials import Interval

Command = TypeVar("Command", bound=Callable[..., Any])
_ESCAPES = str.maketrans({"\n": r"\n", "\t": r"\t"})


def json_option(command: Command) -> Command:
    """The `--json` flag, the same on every command."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")(command)


def say(text: str = "", err: bool = False) -> None:
    """Print a text for people: all output of commands goes through here.

    Names, notes and messages may come from other people's studies and programs, and an address may hold a password.
    """
    click.echo(printable(hide_passwords(text)), err=err)


def say_again(text: str, last: bool) -> None:
    """A line on stderr that the next one overwrites, only on a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r     {_shown([text])[0]}\x1b[K" + ("\n" if last else ""), nl=False, err=True)


def write_out(text: str) -> None:
    """A file's content on standard output, as it is; where that is a terminal, control characters are written out."""
    click.echo(printable(text) if sys.stdout.isatty() else text, nl=False)


def quoted(name: object) -> str:
    """A path or study for a command that people copy into a shell."""
    return shlex.quote(str(name))


def plural(count: int, noun: str) -> str:
    """'1 trial', '20 trials'."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def print_json(data: object) -> None:
    """One JSON document; never NaN, which JSON does not have."""
    write_out(json.dumps(_without_passwords(data), indent=2, allow_nan=False) + "\n")


def _without_passwords(data: object) -> object:
    if isinstance(data, str):
        return hide_passwords(data)
    if isinstance(data, Mapping):
        return {hide_passwords(key) if isinstance(key, str) else key: _without_passwords(data[key]) for key in data}
    return [_without_passwords(value) for value in data] if isinstance(data, list | tuple) else data


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table as wide as it needs to be: columns whose cells are all numbers stand to the right.

    In a terminal that is too narrow, headings and then cells go over several lines, between words and never inside a
    name; a pipe has no width to fit into.
    """
    columns, rows = _shown(columns), [_shown(row) for row in rows]
    header, body = [[column] for column in columns], [[[cell] for cell in row] for row in rows]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if room is not None and _width(header, body) > room:
        header, whole = [_stacked(column, 1) for column in columns], body
        for longest in (32, 24, 16, 12, 8):
            if _width(header, body) > room:
                body = [[_stacked(cell, longest) for cell in row] for row in rows]
        if _width(header, body) > room:  # broken for nothing
            body = whole
    widths = _widths(header, body)
    right = [bool(rows) and all(_numeric(row[index]) for row in rows) for index in range(len(columns))]
    if title:
        print_heading(title)
        say()
    rule = (("─" if column else " ") * width for column, width in zip(columns, widths, strict=True))
    lines = [*_lines(header, widths, right, bottom=True), "  ".join(rule).rstrip()]
    lines += [line for cells in body for line in _lines(cells, widths, right)]
    write_out("\n".join([*lines, "", ""]))


def print_heading(text: str) -> None:
    """A line in bold."""
    click.echo(click.style(printable(hide_passwords(text)), bold=True))


def print_text(text: str) -> None:
    """A sentence, broken between words where the terminal ends."""
    _print_wrapped(text, err=False)


def print_warnings(warnings: Sequence[str]) -> None:
    """Warnings go to stderr, so that a table can be piped."""
    for warning in warnings:
        _print_wrapped(f"warning: {warning}", err=True)


def _print_wrapped(text: str, err: bool) -> None:
    stream = sys.stderr if err else sys.stdout
    room = shutil.get_terminal_size().columns if stream.isatty() else sys.maxsize
    for line in _stacked(text, room, r"\S+\s*"):
        say(line, err=err)


def percent(value: float) -> str:
    """0.61 → 61.0%"""
    return f"{100 * value:.1f}%"


def with_interval(mean: float, interval: Interval) -> str:
    """61.0% (55.2–66.5)"""
    return f"{percent(mean)} ({100 * interval.low:.1f}–{100 * interval.high:.1f})"


def _lines(
    cells: Sequence[list[str]], widths: Sequence[int], right: Sequence[bool], bottom: bool = False
) -> Iterator[str]:
    """The lines of one row; cells of fewer lines than others stand at the top, or at the `bottom`."""
    height = max((len(lines) for lines in cells), default=0)
    for number in range(height):
        parts = []
        for lines, width, to_right in zip(cells, widths, right, strict=True):
            index = number - (height - len(lines) if bottom else 0)
            text = lines[index] if 0 <= index < len(lines) else ""
            space = " " * (width - _cells(text))
            parts.append(space + text if to_right else text + space)
        yield "  ".join(parts).rstrip()


def _shown(cells: Sequence[str]) -> list[str]:
    """Cells of one line each."""
    return [cell if cell.isalnum() else printable(hide_passwords(cell)).translate(_ESCAPES) for cell in cells]


def _widths(header: Sequence[list[str]], body: Sequence[Sequence[list[str]]]) -> list[int]:
    return [max(_cells(line) for row in (header, *body) for line in row[index]) for index in range(len(header))]


def _width(header: Sequence[list[str]], body: Sequence[Sequence[list[str]]]) -> int:
    return sum(_widths(header, body)) + 2 * (len(header) - 1)


def _stacked(text: str, longest: int, parts: str = r"\S[^\s_+]*[_+]*\s*") -> list[str]:
    """The text on lines of at most `longest` where it can be broken: at spaces, and in a table after _ and +."""
    lines: list[str] = []
    for part in re.findall(parts, text):
        if lines and _cells((lines[-1] + part).rstrip()) <= longest:
            lines[-1] += part
        else:
            lines.append(part)
    return [line.rstrip() for line in lines] or [""]


def _cells(text: str) -> int:
    """Columns of a terminal that the text takes: Chinese characters take two, accents none."""
    return len(text) if text.isascii() else sum(map(_cell, text))


@lru_cache(maxsize=4096)
def _cell(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _numeric(cell: str) -> bool:
    return cell in ("", "–") or re.fullmatch(r"[-+−]?[0-9][0-9,]*(\.[0-9]+)?(e[-+][0-9]+)?%?", cell) is not None
