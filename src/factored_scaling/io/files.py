"""Read and write study.yaml and results.csv. Errors name the place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from factored_scaling.core.checks import shown
from factored_scaling.core.dataset import Dataset, Episode
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput
from factored_scaling.io.tables import check_columns, csv_table, share_cell, table_csv, trials_cell, whole_cell
from factored_scaling.io.text import file_name, read_json, read_table, read_text, write_text

if TYPE_CHECKING:  # `fsc plan` needs no numpy
    from factored_scaling.core.results import Results, Row

_MOST_YAML = 1024 * 1024
_MOST_DEMOS = 1_000_000  # in a plan, which lists every demonstration; a typing error must not fill the disk
_MOST_POLICIES = 100_000
_PLAIN_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9_]*)")


class _Loader(yaml.SafeLoader):
    """Reads 1e-4 as a number; YAML 1.1 reads it as a text."""


class _Dumper(yaml.SafeDumper):
    """Writes what `_Loader` reads back."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """A text; rare line breaks only survive between double quotes."""
        style = '"' if any(character in data for character in "\x85\u2028\u2029") else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style)


_Dumper.add_representer(str, _Dumper.represent_str)


_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))
_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))


def read_study(path: str | Path) -> StudySpec:
    """Read a study.yaml. Mistakes are reported with line and column."""
    path = Path(path)
    data, places = _yaml(read_text(path, _MOST_YAML), path)
    try:
        if not isinstance(data, dict):
            raise InvalidInput("expected `name:`, `factors:` and so on", hint="`fsc init` writes an example to edit")
        return check_plan_size(StudySpec.from_mapping(data))
    except InvalidInput as error:
        raise error.at(_yaml_place(path, error.where, places)) from None


def write_study(spec: StudySpec, path: Path) -> None:
    """Write a study.yaml that `read_study` reads back to an equal spec."""
    data = spec.to_mapping()
    write_text(path, yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None))


def read_results(path: str | Path, spec: StudySpec | None = None) -> Results:
    """Read a results.csv; with `spec`, every row is checked against the study. `-` reads standard input."""
    from factored_scaling.core.results import Results, resolver

    text, name = read_text(Path(path)), file_name(Path(path))
    try:
        table = csv_table(text, _check_header)
        results = Results.from_rows((_csv_row(cells, place) for place, cells in table), [place for place, _ in table])
        if spec is not None:
            check = resolver(spec)
            for row in results.rows:
                check(row)
    except InvalidInput as error:
        raise error.at(name) from None
    return results


def results_csv(rows: Iterable[Row], spec: StudySpec) -> str:
    """Rows as a results.csv in the general form, one `demos:NAME` column per factor."""
    from factored_scaling.core.results import resolver

    resolved = resolver(spec)

    def cells(row: Row) -> list[object]:
        demos, _ = resolved(row)
        return [*demos, "+".join(row.factor), float(row.score), row.trials, row.seed]

    header = [*(f"demos:{name}" for name in spec.names), "factor", "score", "trials", "seed"]
    return table_csv(header, map(cells, rows))


def read_episodes(path: Path) -> Dataset:
    """Episodes and the factor each one varies: columns `episode` (or `id`) and `factor`; others are ignored."""
    episodes = []
    try:
        for place, cells in read_table(path, _check_episodes):
            key = "episode" if "episode" in cells else "id"
            if not cells[key]:
                raise InvalidInput(
                    "missing", where=f"{place}, column {key}", hint="name the episode, or remove the row"
                )
            try:
                episodes.append(Episode(cells[key], None if cells["factor"] in ("", "nominal") else cells["factor"]))
            except InvalidInput as error:
                raise error.at(f"{place}, column {key}") from None
        return Dataset(tuple(episodes))
    except InvalidInput as error:
        raise (error if error.where.startswith(file_name(path)) else error.at(file_name(path))) from None


def _check_episodes(header: Sequence[str], place: str) -> None:
    for needed in ("episode" if "id" not in header else "id", "factor"):
        if header.count(needed) != 1:
            what = f"column {needed!r} appears twice" if needed in header else f"no column {needed!r}"
            raise InvalidInput(what, where=place, hint="the columns are episode and factor")


def read_weights(path: Path) -> dict[str, float]:
    """Domain weights per factor: a JSON object, or an object that holds one under `weights`."""
    data = read_json(path)
    weights = data.get("weights", data) if isinstance(data, dict) else data
    if not isinstance(weights, dict):
        raise InvalidInput("expected an object of factor names and weights", where=str(path))
    return weights


def check_plan_size(spec: StudySpec) -> StudySpec:
    """Return `spec`; InvalidInput where its plan would be too large to list."""
    if spec.total > _MOST_DEMOS:
        what = f"{spec.total} demos in all; at most {_MOST_DEMOS} can be planned with"
        raise InvalidInput(what, where="factors", hint="is a number too long?")
    if spec.construction == "screen":
        each = len(spec.factors) + 1 if spec.policies is None else spec.policies
    else:
        each = sum(min(spec.points, c.size + 1) for c in spec.combinations())
    policies = spec.seeds * each
    if policies > _MOST_POLICIES:
        what = f"{policies} policies to train; at most {_MOST_POLICIES} can be planned"
        raise InvalidInput(what, where="seeds" if spec.seeds > 1 else "points", hint="is a number too long?")
    return spec


def _yaml(text: str, path: Path) -> tuple[Any, dict[str, tuple[int, int]]]:
    """Plain data, and line and column of every key and item by its path (`factors.camera_pose`, `groups[1]`)."""
    places: dict[str, tuple[int, int]] = {}
    seen: set[int] = set()
    try:
        loader = _Loader(text)
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        place = f"{path}: line {before.count(chr(10)) + 1}, column {error.position - before.rfind(chr(10))}"
        raise InvalidInput(f"a control character (number {error.character})", where=place, hint="remove it") from None

    def scalar(node: yaml.Node) -> Any:
        try:
            value = loader.construct_object(node)
        except (ValueError, LookupError, AttributeError, TypeError):  # 2024-13-45, !!bool maybe, 5000 digits
            what = f"{shown(node.value)} cannot be read as the kind of value it looks like"
            raise InvalidInput(what, where=_mark(node), hint="put it in quotes if it is a text") from None
        if isinstance(value, int) and not isinstance(value, bool) and not _PLAIN_WHOLE.fullmatch(node.value):
            what = f"{node.value} would be read as {value}"  # 030 is 24 in YAML, and 1:30 is 90
            raise InvalidInput(what, where=_mark(node), hint="write whole numbers in plain digits")
        return value

    def build(node: yaml.Node, name: str) -> Any:
        places.setdefault(name, (node.start_mark.line + 1, node.start_mark.column + 1))
        if id(node) in seen:
            raise InvalidInput("YAML aliases are not supported", where=_mark(node), hint="write the value out")
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            mapping: dict[Any, Any] = {}
            for key_node, value_node in node.value:
                key = scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
                if not isinstance(key, str):
                    what = shown(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "a list or mapping"
                    raise InvalidInput(f"{what} is not a name", where=_mark(key_node), hint="names are texts")
                if key in mapping:
                    raise InvalidInput(f"{key!r} appears twice", where=_mark(key_node), hint="keep one of them")
                child = f"{name}.{key}" if name else key
                places[child] = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
                mapping[key] = build(value_node, child)
            return mapping
        if isinstance(node, yaml.SequenceNode):
            return [build(item, f"{name}[{index}]") for index, item in enumerate(node.value)]
        return scalar(node)

    try:
        node = loader.get_single_node()
        return (None if node is None else build(node, "")), places
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}: line {mark.line + 1}, column {mark.column + 1}" if mark else str(path)
        if "'\\t'" in str(error.problem):
            raise InvalidInput("a tab, which YAML does not take here", where=where, hint="indent with spaces") from None
        raise InvalidInput(f"not valid YAML ({error.problem})", where=where) from None
    except RecursionError:
        raise InvalidInput("not valid YAML (nested too deep)", where=str(path)) from None
    except InvalidInput as error:
        raise error.at(str(path)) from None
    finally:
        loader.dispose()


def _mark(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}, column {node.start_mark.column + 1}"


def _yaml_place(path: Path, where: str, places: Mapping[str, tuple[int, int]]) -> str:
    """The place of `where` in the file, or of the nearest enclosing item."""
    name = where
    while name and name not in places:
        name = name[: max(name.rfind("."), name.rfind("["), 0)]
    line, column = places.get(name, (1, 1))
    return f"{path}: line {line}, column {column}"


def _check_header(header: Sequence[str], place: str) -> None:
    general = any(column.startswith("demos:") for column in header)
    from factored_scaling.core.results import COLUMNS

    check_columns(header, place, COLUMNS, ("score",) if general else ("combination", "n", "score"), "demos:")
    if general and ("combination" in header or "n" in header):
        raise InvalidInput("both demos: columns and combination or n", where=place, hint="use one form")


def _trials_if_known(cells: Mapping[str, str]) -> int | None:
    """The row's number of trials where it is one; what is wrong with it is said when its column is read."""
    try:
        return trials_cell(cells.get("trials", ""), "")
    except InvalidInput:
        return None


def _csv_row(cells: Mapping[str, str], place: str) -> dict[str, Any]:
    row: dict[str, Any] = {}
    demos: dict[str, int] = {}
    column = ""
    try:
        for column, cell in cells.items():
            if column.startswith("demos:"):
                if not cell:
                    raise InvalidInput("missing", hint="0 where none was used")
                demos[column[6:]] = whole_cell(cell, "")
            elif not cell:
                continue
            elif column == "score":
                row[column] = share_cell(cell, "", _trials_if_known(cells))
            elif column == "trials":
                row[column] = trials_cell(cell, "")
            else:
                row[column] = whole_cell(cell, "") if column in ("n", "seed") else cell
    except InvalidInput as error:
        raise error.at(f"{place}, column {column}") from None
    return row | {"demos": demos} if demos else row
