"""CSV with a header: every row with its place, and cells as numbers; errors name line and column."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from factored_scaling.core.checks import percentage, shown
from factored_scaling.errors import InvalidInput, suggest

_WHOLE = re.compile(r"[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


# texts that a spreadsheet reads as formulas, also after spaces and apostrophes
_FORMULA = re.compile(r"[\s']*[=+\-@＝＋－＠]|'*[\t\r\n]")


def table_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as CSV. Texts that a spreadsheet would run as formulas get an apostrophe; `csv_table` takes it away."""
    return "".join(",".join(map(_written, cells)) + "\n" for cells in (header, *rows))


def _written(cell: object) -> str:
    text = "" if cell is None else str(cell)
    if isinstance(cell, str) and _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        text = f"'{text}"
    # csv.writer does not quote a carriage return, and csv.reader rejects it
    return '"' + text.replace('"', '""') + '"' if re.search(r'[,"\r\n]', text) else text


def _read(cell: str) -> str:
    text = cell.lstrip()
    return text[1:].rstrip() if text.startswith("'") and _FORMULA.match(text) else text.rstrip()


def check_columns(
    header: Sequence[str], place: str, known: Sequence[str], needed: Sequence[str], *prefixes: str
) -> None:
    """Check that columns are `known` or begin with a prefix, occur once, and include the `needed` ones."""
    names = (*known, *(f"{prefix}NAME" for prefix in prefixes))
    for number, column in enumerate(header, start=1):
        where = f"{place}, column {number}"
        if not column:
            hint = "remove the last comma of every line" if number == len(header) else "name it or remove it"
            raise InvalidInput("empty column name", where=where, hint=hint)
        separators = ";" in column or "\t" in column  # factor names cannot have them
        if separators or not (column in known or (column.startswith(prefixes) and column not in prefixes)):
            hint = "separate the columns by commas" if separators else suggest(column, names)
            raise InvalidInput(f"unknown column {shown(column)}", where=where, hint=hint)
        if header.index(column) < number - 1:
            raise InvalidInput(f"column {column!r} appears twice", where=where, hint="keep one of them")
    for column in needed:
        if column not in header:
            raise InvalidInput(f"no column {column!r}", where=place, hint=f"columns are {', '.join(known)}")


def csv_table(text: str, check_header: Callable[[Sequence[str], str], None]) -> list[tuple[str, dict[str, str]]]:
    """Every row with its place and its cells by column."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[tuple[str, dict[str, str]]] = []
    header: list[str] = []
    end = 0
    try:
        for cells in reader:
            line, end = end + 1, reader.line_num  # a quoted cell may span several lines
            if not any(cell.strip() for cell in cells):
                continue
            if not header:
                header = [_read(cell) for cell in cells]
                check_header(header, f"header (line {line})")
                continue
            place = f"row {len(rows) + 1} (line {line})"
            if len(cells) != len(header):
                column = header[len(cells)] if len(cells) < len(header) else str(len(header) + 1)
                what = f"{len(cells)} cells where the header has {len(header)}"
                raise InvalidInput(what, where=f"{place}, column {column}", hint="one cell per column")
            rows.append((place, dict(zip(header, [_read(cell) for cell in cells], strict=True))))
    except csv.Error as error:
        where = f"row {len(rows) + 1} (line {end + 1})" if header else f"header (line {end + 1})"
        raise InvalidInput(f"not valid CSV ({error})", where=where) from None
    if not rows:
        raise InvalidInput("has a header but no rows", hint="add a row below the header")
    return rows


@lru_cache(maxsize=4096)  # large files repeat values
def whole_cell(cell: str, where: str) -> int:
    """A whole number of at least 0."""
    if not _WHOLE.fullmatch(cell) or len(cell) > 15:
        least = " of at least 0" if _WHOLE.fullmatch(cell.removeprefix("-")) and cell.startswith("-") else ""
        raise InvalidInput(f"expected a whole number{least}, not {shown(cell)}", where=where)
    return int(cell)


def trials_cell(cell: str, where: str) -> int:
    """A number of trials, also as pandas writes it where some are missing: 20.0."""
    return whole_cell(re.sub(r"(?<=[0-9])\.0+$", "", cell), where)


@lru_cache(maxsize=4096)
def share_cell(cell: str, where: str, trials: int | None = None) -> float:
    """A score from 0 to 1; `trials` helps to say what was meant by another number."""
    if not _NUMBER.fullmatch(cell):
        hint = "write 45% as 0.45" if cell.endswith("%") else ""
        if _NUMBER.fullmatch(point := cell.replace(",", ".")):
            hint = f"write {point}"
        raise InvalidInput(f"expected a number in [0, 1], not {shown(cell)}", where=where, hint=hint)
    if not 0.0 <= (score := float(cell)) <= 1.0:
        raise InvalidInput(f"a score must lie in [0, 1], not {score:g}", where=where, hint=percentage(score, trials))
    return score
