"""study.yaml and results.csv: read with the place of every mistake, written so that they read back."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from factored_scaling.core.results import Results, Row, resolve
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput, suggest

_MOST_BYTES = 64 * 1024 * 1024  # far above any real file; a wrong file is refused before it is parsed
_WHOLE = re.compile(r"\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_FIXED = ("combination", "n", "score", "trials", "seed", "factor")


def read_spec(path: Path) -> StudySpec:
    """A study.yaml. Mistakes are reported with line and column."""
    text = _text(path)
    data, places = _yaml(text, path)
    try:
        if not isinstance(data, dict):
            raise InvalidInput("expected `name:`, `factors:` and so on", hint="see `fsc init --help` for an example")
        return StudySpec.from_mapping(data)
    except InvalidInput as error:
        raise error.at(_yaml_place(path, error.where, places)) from None


def write_spec(spec: StudySpec, path: Path) -> None:
    """Write a study.yaml that `read_spec` reads back to an equal spec."""
    write_text(path, yaml.safe_dump(spec.to_mapping(), sort_keys=False, allow_unicode=True, default_flow_style=None))


def read_results(path: Path, spec: StudySpec) -> Results:
    """A results.csv, checked row by row against the study. `-` reads standard input."""
    text = sys.stdin.read() if str(path) == "-" else _text(path)
    name = "standard input" if str(path) == "-" else str(path)
    try:
        rows, places = _csv_rows(text)
        results = Results.from_rows(rows, places)
        for row in results.rows:
            resolve(spec, row)
    except InvalidInput as error:
        raise error.at(name) from None
    return results


def results_csv(rows: Iterable[Row], spec: StudySpec) -> str:
    """Rows as a results.csv in the general form, one `demos:NAME` column per factor."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*(f"demos:{name}" for name in spec.names), "factor", "score", "trials", "seed"])
    for row in rows:
        demos, _ = resolve(spec, row)
        optional = ["" if value is None else value for value in (row.trials, row.seed)]
        writer.writerow([*demos, "+".join(row.factor), repr(float(row.score)), *optional])
    return out.getvalue()


def read_json(path: Path) -> Any:
    """A JSON file."""
    try:
        return json.loads(_text(path))
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"not JSON ({error.msg})", where=f"{path}: line {error.lineno}, column {error.colno}"
        ) from None


def read_weights(path: Path) -> dict[str, float]:
    """Domain weights per factor: a JSON object, or an object that holds one under `weights`."""
    data = read_json(path)
    weights = data.get("weights", data) if isinstance(data, dict) else data
    if not isinstance(weights, dict):
        raise InvalidInput("expected an object of factor names and weights", where=str(path))
    return weights


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _text(path: Path) -> str:
    try:
        if path.is_dir():
            raise InvalidInput("is a folder, not a file", where=str(path))
        if path.stat().st_size > _MOST_BYTES:
            raise InvalidInput(f"is larger than {_MOST_BYTES >> 20} MB; is this the right file?", where=str(path))
        data = path.read_bytes()
    except FileNotFoundError:
        raise InvalidInput("no such file", where=str(path)) from None
    except OSError as error:
        raise InvalidInput(f"cannot be read ({error.strerror or error})", where=str(path)) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput("is not a text file in UTF-8", where=str(path)) from None
    if "\0" in text:
        raise InvalidInput("is a binary file, not text", where=str(path))
    if not text.strip():
        raise InvalidInput("is empty", where=str(path))
    return text


def _yaml(text: str, path: Path) -> tuple[Any, dict[str, tuple[int, int]]]:
    """Plain data and the line and column of every key and item, by its path (`factors.camera_pose`, `groups[1]`)."""
    places: dict[str, tuple[int, int]] = {}
    seen: set[int] = set()
    loader = yaml.SafeLoader(text)

    def build(node: yaml.Node, name: str) -> Any:
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        places.setdefault(name, (line, column))
        place = f"line {line}, column {column}"
        if id(node) in seen:
            raise InvalidInput("YAML aliases are not supported", where=place, hint="write the value out")
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            mapping: dict[Any, Any] = {}
            for key_node, value_node in node.value:
                key = loader.construct_object(key_node) if isinstance(key_node, yaml.ScalarNode) else None
                child = f"{name}.{key}" if name else str(key)
                row, col = key_node.start_mark.line + 1, key_node.start_mark.column + 1
                if not isinstance(key, str):
                    raise InvalidInput(
                        f"{key_node.value!r} is not a name", where=f"line {row}, column {col}", hint="quote it"
                    )
                if key in mapping:
                    raise InvalidInput(f"{key!r} appears twice", where=f"line {row}, column {col}")
                places[child] = (row, col)
                mapping[key] = build(value_node, child)
            return mapping
        if isinstance(node, yaml.SequenceNode):
            return [build(item, f"{name}[{index}]") for index, item in enumerate(node.value)]
        return loader.construct_object(node)

    try:
        node = loader.get_single_node()
        return (None if node is None else build(node, "")), places
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}: line {mark.line + 1}, column {mark.column + 1}" if mark else str(path)
        raise InvalidInput(f"not valid YAML ({error.problem})", where=where) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"not valid YAML ({str(error).splitlines()[0] if str(error) else 'nested too deep'})", where=str(path)
        ) from None
    except InvalidInput as error:
        raise error.at(str(path)) from None
    finally:
        loader.dispose()


def _yaml_place(path: Path, where: str, places: Mapping[str, tuple[int, int]]) -> str:
    """The place of `where` or of the nearest thing around it that exists in the file."""
    name = where
    while name and name not in places:
        name = re.sub(r"(\.[^.\[]*|\[\d+\]|^[^.\[]*)$", "", name)
    line, column = places.get(name, (1, 1))
    return f"{path}: line {line}, column {column}"


def _csv_rows(text: str) -> tuple[list[dict[str, Any]], list[str]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[dict[str, Any]] = []
    places: list[str] = []
    header: list[str] = []
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if not header:
                header = [cell.strip() for cell in cells]
                _check_header(header)
                continue
            place = f"row {len(rows) + 1} (line {reader.line_num})"
            if len(cells) != len(header):
                raise InvalidInput(f"{len(cells)} cells where the header has {len(header)}", where=place)
            rows.append(_csv_row(dict(zip(header, (cell.strip() for cell in cells), strict=True)), place))
            places.append(place)
    except csv.Error as error:
        raise InvalidInput(f"not valid CSV ({error})", where=f"line {reader.line_num}") from None
    if not rows:
        raise InvalidInput("has a header but no rows", hint="one row per measured policy")
    return rows, places


def _check_header(header: Sequence[str]) -> None:
    for number, column in enumerate(header, start=1):
        where = f"header (line 1), column {number}"
        if column not in _FIXED and not (column.startswith("demos:") and len(column) > 6):
            semicolons = "separate the columns by commas" if ";" in column else ""
            hint = semicolons or suggest(column, (*_FIXED, "demos:NAME"))
            raise InvalidInput(f"unknown column {column!r}", where=where, hint=hint)
        if list(header).count(column) > 1:
            raise InvalidInput(f"column {column!r} appears twice", where=where)
    general = any(column.startswith("demos:") for column in header)
    if general and ("combination" in header or "n" in header):
        raise InvalidInput("both demos: columns and combination or n", where="header (line 1)", hint="use one form")
    for needed in ("score",) if general else ("combination", "n", "score"):
        if needed not in header:
            raise InvalidInput(
                f"no column {needed!r}", where="header (line 1)", hint=f"columns are {', '.join(_FIXED)}"
            )


def _csv_row(cells: Mapping[str, str], place: str) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for column, cell in cells.items():
        if not cell:
            if column.startswith("demos:"):
                raise InvalidInput("missing", where=f"{place}, column {column}")
            continue
        if column.startswith("demos:"):
            row.setdefault("demos", {})[column[6:]] = _whole(cell, f"{place}, column {column}")
        elif column in ("n", "trials", "seed"):
            row[column] = _whole(cell, f"{place}, column {column}")
        elif column == "score":
            row[column] = _number(cell, f"{place}, column {column}")
        else:
            row[column] = cell
    return row


def _whole(cell: str, where: str) -> int:
    if not _WHOLE.fullmatch(cell) or len(cell) > 15:
        raise InvalidInput(f"expected a whole number, not {cell!r}", where=where)
    return int(cell)


def _number(cell: str, where: str) -> float:
    if not _NUMBER.fullmatch(cell):
        hint = "write 45% as 0.45" if cell.endswith("%") else ""
        raise InvalidInput(f"expected a number in [0, 1], not {cell!r}", where=where, hint=hint)
    return float(cell)
