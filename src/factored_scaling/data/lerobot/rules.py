"""Labels for many episodes at once: rules, and tables with a row per episode or range."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from factored_scaling.core.checks import shown
from factored_scaling.core.spec import StudySpec
from factored_scaling.data.lerobot.dataset import LerobotDataset
from factored_scaling.data.lerobot.labels import NOMINAL, Check, Label
from factored_scaling.errors import InvalidInput
from factored_scaling.io.tables import check_columns, csv_table

_RANGES = re.compile(r"[0-9]+(\s*[-–]\s*[0-9]+)?(\s*,\s*[0-9]+(\s*[-–]\s*[0-9]+)?)*")
_CONDITION = re.compile(r"(?P<column>[\w./]+)\s*(?P<sign>~|!=|<=|>=|=|<|>)\s*(?P<value>.+)")
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}
_MOST_EPISODES = 1_000_000
EXAMPLE = "such as '0-29: nominal', 'task ~ \"camera\": camera_pose' or 'rest: lighting = dim'"


@dataclass(frozen=True, slots=True)
class Assignment:
    """A new label for an episode: the factors it varies (none: nominal), the value, and the source of the label."""

    factors: tuple[str, ...]
    value: str
    where: str


def by_rules(dataset: LerobotDataset, rules: Iterable[str], check: Check) -> dict[int, Assignment]:
    """Labels from rules `EPISODES: FACTOR` or `EPISODES: FACTOR = VALUE`.

    EPISODES is `all`, `rest` (no other rule and no label), numbers and ranges, or a condition on a column of
    meta/episodes: `task ~ "camera"` (a regular expression), `length > 200`, `operator = anna`.
    """
    assignments: dict[int, Assignment] = {}
    last: list[Assignment] = []
    for text in rules:
        where = f"--rule {shown(text)}"
        episodes, colon, label = text.rpartition(":")
        if not colon or not episodes.strip():
            raise InvalidInput(f"expected EPISODES: FACTOR, not {shown(text)}", where="--rule", hint=EXAMPLE)
        assignment = Assignment(*_label(label, where), where)
        if episodes.strip() == "rest":
            last.append(assignment)
            continue
        found = _chosen(dataset, episodes.strip(), where)
        if not found:
            raise InvalidInput("no episode is meant by it", where=where, hint="`fsc label DATASET` lists the tasks")
        for index in found:
            _add(assignments, index, assignment)
    for assignment in last:
        for index in check.unlabelled:
            if index not in assignments or assignments[index].where in [other.where for other in last]:
                _add(assignments, index, assignment)
    return assignments


def by_table(dataset: LerobotDataset, text: str, name: str, check: Check) -> dict[int, Assignment]:
    """Labels from a CSV: a column `episode` (number or range) or `id`, a column `factor`, and perhaps `value`."""
    assignments: dict[int, Assignment] = {}
    numbers = {id_: index for index, id_ in check.ids.items()}
    try:
        rows = csv_table(text, _check_header)
    except InvalidInput as error:
        raise error.at(name) from None
    for line, row in rows:
        place = f"{name}: {line}"
        factors = factor_names(row["factor"], f"{place}, column factor")
        assignment = Assignment(factors, row.get("value", ""), place)
        for index in _rows_meant(dataset, row, numbers, place):
            _add(assignments, index, assignment)
    return assignments


def by_labels(labels: Mapping[str, Label], check: Check, where: str) -> dict[int, Assignment]:
    """The labels that another dataset has for episodes that are in this one too."""
    return {
        index: Assignment(labels[id_].factors, labels[id_].value, where)
        for index, id_ in check.ids.items()
        if id_ in labels
    }


def merged(check: Check, assignments: Mapping[int, Assignment], replace: bool) -> list[Label]:
    """All labels after the assignments; a label that would change is refused unless `replace`."""
    labels = {index: label.at(index) for index, label in check.labels.items()}
    for index, assignment in assignments.items():
        new = Label(check.ids[index], index, assignment.factors, assignment.value)
        old = labels.get(index)
        if old is not None and not replace and (old.factors, old.value) != (new.factors, new.value):
            changed = [i for i, w in assignments.items() if i in labels and labels[i].factors != w.factors]
            what = f"episode {index} is labelled {_named(old)} already, not {_named(new)}"
            more = f" ({len(changed)} episodes differ)" if len(changed) > 1 else ""
            raise InvalidInput(what + more, where=assignment.where, hint="--replace changes labels")
        labels[index] = new
    return [*labels.values(), *check.gone]


def numbers_in(text: str, where: str) -> list[int]:
    """`0-29, 40` as numbers."""
    if not _RANGES.fullmatch(text.strip()):
        raise InvalidInput(f"expected numbers of episodes, not {shown(text)}", where=where, hint="such as 0-29, 40")
    found: list[int] = []
    for part in text.split(","):
        first, *last = (_number(number, where) for number in re.split("[-–]", part))
        if last and not first <= last[0] < first + _MOST_EPISODES:
            what = f"{part.strip()} is not a range from a lower to a higher number of at most {_MOST_EPISODES} episodes"
            raise InvalidInput(what, where=where, hint="such as 0-29")
        found += range(first, (last[0] if last else first) + 1)
    return found


def _number(text: str, where: str) -> int:
    if len(text.strip()) > 12:
        raise InvalidInput(f"no episode has the number {shown(text.strip())}", where=where)
    return int(text)


def factor_names(text: str, where: str) -> tuple[str, ...]:
    """`camera_pose`, `nominal` or, for an episode that varies more than it may, names joined by +."""
    names = [name.strip() for name in text.split("+")]
    if names == [NOMINAL]:
        return ()
    try:
        StudySpec(dict.fromkeys(names, 1))  # a study's own rules for names
    except InvalidInput as error:
        raise InvalidInput(error.what, where=where, hint=error.hint) from None
    return tuple(dict.fromkeys(names))


def _label(text: str, where: str) -> tuple[tuple[str, ...], str]:
    names, _, value = text.partition("=")
    return factor_names(names.strip(), where), value.strip().strip("\"'")


def _named(label: Label) -> str:
    return f"{label.text} = {label.value}" if label.value else label.text


def _add(assignments: dict[int, Assignment], index: int, assignment: Assignment) -> None:
    """Assignments with different factors make an episode doubly varied, which the check reports."""
    before = assignments.get(index)
    if before is None:
        assignments[index] = assignment
        return
    if bool(before.factors) != bool(assignment.factors):
        varied = before.factors or assignment.factors
        what = f"episode {index} would be nominal and vary {' and '.join(varied)}"
        raise InvalidInput(what, where=assignment.where, hint=f"the other is {before.where}")
    factors = tuple(dict.fromkeys((*before.factors, *assignment.factors)))
    assignments[index] = Assignment(factors, assignment.value or before.value, assignment.where)


def _chosen(dataset: LerobotDataset, episodes: str, where: str) -> list[int]:
    known = [entry.index for entry in dataset.episodes]
    if episodes == "all":
        return known
    if _RANGES.fullmatch(episodes):
        return [dataset.entry(index).index for index in numbers_in(episodes, where)]
    match = _CONDITION.fullmatch(episodes)
    if match is None:
        raise InvalidInput(f"cannot tell which episodes {shown(episodes)} means", where=where, hint=EXAMPLE)
    value = match["value"].strip()
    if value[:1] == value[-1:] and value[:1] in ("'", '"') and len(value) > 1:
        value = value[1:-1]
    try:
        column = dataset.column(match["column"])
        test = _test(match["sign"], value, column)
        return [index for index, found in zip(known, column, strict=True) if found is not None and test(found)]
    except InvalidInput as error:
        raise error.at(where) from None


def _test(sign: str, value: str, column: Sequence[Any]) -> Callable[[Any], bool]:
    if sign == "~":
        try:
            pattern = re.compile(value, re.IGNORECASE)
        except re.error as error:
            raise InvalidInput(f"{shown(value)} is not a regular expression ({error})") from None
        return lambda found: pattern.search(str(found)) is not None
    compare = _SIGNS[sign]
    if all(isinstance(found, int | float) for found in column if found is not None):
        try:
            number = float(value)
        except ValueError:
            raise InvalidInput(f"the column holds numbers, {shown(value)} is none") from None
        return lambda found: compare(found, number)
    if sign not in ("=", "!="):
        raise InvalidInput(f"the column holds texts, which {sign} does not compare", hint="use = != or ~")
    return lambda found: compare(str(found), value)


def _check_header(header: Sequence[str], place: str) -> None:
    check_columns(header, place, ("episode", "id", "factor", "value"), ())
    if "factor" not in header or ("episode" in header) == ("id" in header):
        hint = "one row per episode: episode,factor or id,factor"
        raise InvalidInput("needs a column factor, and either episode or id", where=place, hint=hint)


def _rows_meant(dataset: LerobotDataset, row: Mapping[str, str], numbers: Mapping[str, int], place: str) -> list[int]:
    if "id" in row:
        if row["id"] not in numbers:
            raise InvalidInput(f"no episode with id {shown(row['id'])}", where=f"{place}, column id")
        return [numbers[row["id"]]]
    try:
        return [dataset.entry(index).index for index in numbers_in(row["episode"], "")]
    except InvalidInput as error:
        raise error.at(f"{place}, column episode") from None
