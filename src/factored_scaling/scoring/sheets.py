"""Sheets for the lab: demonstrations to collect and trials to evaluate, on paper or as CSV, and their import."""

from __future__ import annotations

import random
import secrets
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from factored_scaling.core.conditions import NORMAL
from factored_scaling.core.rubric import ENDINGS, Rubric
from factored_scaling.core.trial_queue import read_code, short_codes
from factored_scaling.errors import InvalidInput, StudyMissing, suggest
from factored_scaling.io.tables import check_columns, csv_table, table_csv
from factored_scaling.io.text import read_table
from factored_scaling.scoring.collection import Demo, demos_to_collect
from factored_scaling.scoring.session import BlindTrial, Scoring
from factored_scaling.store import Entry
from factored_scaling.study import Study

_TICKS = ("x", "yes", "y", "1", "true", "done", "✓", "✔", "☑")
_BLANKS = ("", "no", "n", "0", "false", "☐", "-", "–")
_ENDED = {"time": "step limit", "time limit": "step limit"}  # as the printed sheet calls it
_TYPED = ("score", "ended", "episode", "note")  # columns that operators fill in, beside `collected`
_COLLECTION = ("number", "code", "factor", "value", "collected", "episode", "note")
_Cells = Mapping[str, str]
_Rows = Sequence[tuple[str, _Cells]]


# --- evaluation: which policy in which scene


def evaluation_csv(scoring: Scoring) -> str:
    """The queue as a table to fill in: score (or skip), ended, note. Every row has the whole scene."""
    names = scoring.factors

    def cells(trial: BlindTrial) -> list[object]:
        values = dict(trial.condition.values)
        score = "skip" if trial.state == "skipped" else "" if trial.score is None else f"{trial.score:g}"
        shown = [trial.number, trial.code, trial.label, *(values.get(name, NORMAL) for name in names)]
        return [*shown, score, trial.ending, "; ".join(trial.notes)]

    header = ["number", "code", "policy", *names, "score", "ended", "note"]
    return table_csv(header, map(cells, scoring.trials()))


def _import_evaluation(scoring: Scoring, rows: _Rows, operator: str, partial: bool) -> int:
    waiting = {trial.code: trial for trial in scoring.trials()}
    entries: list[tuple[str, Entry]] = []
    on_sheet: set[str] = set()
    for code, place, cells in _by_code(rows, waiting):
        on_sheet.add(code)
        label = cells.get("policy", "")
        if label and label != waiting[code].label:
            what = f"the policy of trial {code} is {waiting[code].label}, not {label}"
            raise InvalidInput(what, where=f"{place}, column policy", hint="have cells been moved?")
        entry = _entry(cells, place, operator, scoring.rubric)
        if entry is None and not partial and waiting[code].state == "open":
            hint = "write a score or skip, or import with --partial"
            raise InvalidInput("missing", where=f"{place}, column score", hint=hint)
        if entry is not None and not _recorded(waiting[code], entry, place):
            entries.append((code, entry))
    lost = [code for code, trial in waiting.items() if trial.state == "open" and code not in on_sheet]
    if lost and not partial:
        what = f"{len(lost)} trials are not on the sheet, the first is {lost[0]}"
        raise InvalidInput(what, where="column code", hint="import with --partial to take the filled-in rows")
    return scoring.tell(entries) if entries else 0


def _entry(cells: _Cells, place: str, operator: str, rubric: Rubric) -> Entry | None:
    """The entry of a row, or None if it is not filled in."""
    text, ended, note = (cells.get(column, "") for column in ("score", "ended", "note"))
    ending = _ENDED.get(ended.lower(), ended.lower().replace("-", " "))
    if ending and ending not in ENDINGS:
        hint = suggest(ending, ENDINGS)
        raise InvalidInput(
            f"expected nothing or a reason to stop, not {ended!r}", where=f"{place}, column ended", hint=hint
        )
    if text.lower() in ("skip", "skipped"):
        if ending:
            raise InvalidInput(
                "score=skip conflicts with ended", where=f"{place}, column ended", hint="keep one of them"
            )
        return Entry("skip", uuid.uuid4().hex, operator, None, "", note)
    if not text and not ending:
        return None
    try:
        score = rubric.level(float(text)).score if text else 0.0
    except ValueError:
        levels = ", ".join(f"{level.score:g}" for level in rubric.levels)
        dotted = text.replace(",", ".")
        hint = f"write {dotted}" if _is_number(dotted) else f"scores are {levels}, or skip"
        raise InvalidInput(f"expected a score, not {text!r}", where=f"{place}, column score", hint=hint) from None
    except InvalidInput as error:
        raise error.at(f"{place}, column score") from None
    if ending and score != 0.0:
        what = f"ended by {ending}, and yet the score is {score:g}"
        raise InvalidInput(what, where=f"{place}, column ended", hint="such a trial scores 0")
    return Entry("score", uuid.uuid4().hex, operator, score, ending, note)


def _recorded(trial: BlindTrial, entry: Entry, place: str) -> bool:
    """Whether the record already holds the same entry. A different one is an error."""
    if trial.state == "open":
        return False
    known = "skip" if trial.state == "skipped" else f"{trial.score:g}"
    score = "skip" if entry.kind == "skip" else f"{entry.score:g}"
    if known != score or trial.ending != entry.ending:
        what = f"trial {trial.code} is recorded as {known} by {trial.operator}, not {score}"
        raise InvalidInput(
            what, where=f"{place}, column score", hint="`fsc sheet undo STUDY CODE` takes that back first"
        )
    return True


# --- collection: which value of which factor


@dataclass(frozen=True, slots=True)
class CollectionRow:
    """One demonstration on the operator's list, and whether and how it was recorded."""

    code: str
    demo: Demo
    collected: bool = False
    # the value used, if the operator chose or changed it
    shown: str = ""
    # the recorded episode's name, if the operator wrote it down
    episode: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Collection:
    """An operator's list for an `allocation`."""

    number: int
    created: float
    allocation: dict[str, int]
    rows: tuple[CollectionRow, ...]

    def counts(self) -> dict[str, int]:
        """Demonstrations ticked off, per factor."""
        return {name: sum(row.collected and row.demo.factor == name for row in self.rows) for name in self.allocation}


def begin_collection(study: Study, allocation: Mapping[str, int]) -> Collection:
    """A new list in the record; values that earlier lists ticked off count as used."""
    earlier = collections(study)
    used: dict[str, list[str]] = {}
    for row in (row for collection in earlier for row in collection.rows if row.collected):
        used.setdefault(row.demo.factor, []).append(row.shown or row.demo.value)
    spec = study.spec
    demos = demos_to_collect(spec, allocation, used)
    taken = [row.code for collection in earlier for row in collection.rows]
    codes = short_codes(len(demos), random.Random(secrets.randbits(63)), taken)
    body = {
        "allocation": {name: int(allocation.get(name, 0)) for name in spec.names},
        "rows": [[code, demo.factor, demo.value] for code, demo in zip(codes, demos, strict=True)],
    }
    number = len(earlier) + 1
    study.store.put_documents(study.id, [("collection", str(number), body)], fresh=True)
    return open_collection(study, number)


def collections(study: Study) -> list[Collection]:
    """Every list so far, oldest first, with what was ticked off."""
    ticks = {row.key: row.body for row in study.store.documents(study.id, "collected")}
    found = []
    for document in study.store.documents(study.id, "collection"):
        rows = [CollectionRow(code, Demo(factor, value)) for code, factor, value in document.body["rows"]]
        done = tuple(replace(row, collected=True, **ticks[row.code]) if row.code in ticks else row for row in rows)
        found.append(Collection(int(document.key), document.created, document.body["allocation"], done))
    return sorted(found, key=lambda collection: collection.number)


def open_collection(study: Study, number: int | None = None) -> Collection:
    """The list of this number, or the newest."""
    found = [collection for collection in collections(study) if number in (None, collection.number)]
    if not found:
        what = "no list of demos was made yet" if number is None else f"there is no list {number}"
        raise StudyMissing(what, hint="`fsc sheet collect STUDY --budget K` makes one")
    return found[-1]


def collection_csv(collection: Collection) -> str:
    """The list as a table to fill in: collected, and optionally value, episode and note."""
    rows = [
        [
            number,
            row.code,
            row.demo.factor,
            row.shown or row.demo.value,
            "x" if row.collected else "",
            row.episode,
            row.note,
        ]
        for number, row in enumerate(collection.rows, start=1)
    ]
    return table_csv(_COLLECTION, rows)


def labels_csv(study: Study) -> tuple[str, int]:
    """Collected rows with an episode, as a CSV for `fsc label --csv`, and the number of those without one."""
    ticked = [row for collection in collections(study) for row in collection.rows if row.collected]
    rows = [[row.episode, row.demo.factor, row.shown or row.demo.value] for row in ticked if row.episode]
    return table_csv(["episode", "factor", "value"], rows), sum(not row.episode for row in ticked)


def _import_collection(study: Study, rows: _Rows) -> int:
    known = {row.code: row for collection in collections(study) for row in collection.rows}
    episodes = {row.episode: row.code for row in known.values() if row.episode}
    fresh: list[tuple[str, str, Any]] = []
    for code, place, cells in _by_code(rows, known):
        tick = cells["collected"].lower()
        if tick not in (*_TICKS, *_BLANKS):
            what = f"expected a tick or nothing, not {cells['collected']!r}"
            raise InvalidInput(what, where=f"{place}, column collected", hint="write x where it was collected")
        if tick in _BLANKS or known[code].collected:
            continue
        demo, value = known[code].demo, cells.get("value", "")
        if cells.get("factor", demo.factor) != demo.factor:
            what = f"{code} is a demo of {demo.factor}, not {cells['factor']}"
            raise InvalidInput(what, where=f"{place}, column factor", hint="have cells been moved?")
        shown, episode = "" if value == demo.value else value, cells.get("episode", "")
        if episode and episodes.setdefault(episode, code) != code:
            what = f"episode {episode} is already that of {episodes[episode]}"
            raise InvalidInput(what, where=f"{place}, column episode", hint="each row has a recording of its own")
        body = {"shown": shown, "episode": episode, "note": cells.get("note", "")}
        fresh.append(("collected", code, body))
    study.store.put_documents(study.id, fresh)
    return len(fresh)


def listed_in_round(study: Study) -> dict[str, Any] | None:
    """The total allocation of this round's lists, for the record; None without lists."""
    here = [collection for collection in collections(study) if collection.created >= study.round.created]
    if not here:
        return None
    totals = {name: sum(collection.allocation.get(name, 0) for collection in here) for name in study.spec.names}
    return {"allocation": totals, "lists": [collection.number for collection in here]}


def collected_in_round(study: Study) -> dict[str, int]:
    """Demonstrations ticked off on the lists of this round, per factor; factors without any are left out."""
    counts: dict[str, int] = {}
    for collection in collections(study):
        if collection.created >= study.round.created:
            for name, count in collection.counts().items():
                counts[name] = counts.get(name, 0) + count
    return {name: count for name, count in counts.items() if count}


# --- reading both


@dataclass(frozen=True, slots=True)
class Imported:
    """Result of an import: demonstrations ticked off, or trials scored."""

    collection: bool
    rows: int
    new: int


def import_sheet(study: Study, path: Path, operator: str, partial: bool = False) -> Imported:
    """Import a filled-in CSV of either kind, all or nothing.

    Rows that are already recorded are skipped; a trial recorded with a different score is an error. Without
    `partial`, every trial that is still open must be on its sheet and filled in. Lists of demos may be partial.
    """
    header: list[str] = []

    def check(found: Sequence[str], place: str) -> None:
        header.extend(found)
        if "collected" in found:
            check_columns(found, place, _COLLECTION, ("code", "collected"))
        else:
            known = ("number", "code", "policy", *study.spec.names, "score", "ended", "note")
            check_columns(found, place, known, ("code", "score"))

    rows = read_table(path, check)
    listed = "collected" in header
    try:
        if listed:
            return Imported(True, len(rows), _import_collection(study, rows))
        return Imported(False, len(rows), _import_evaluation(Scoring.open(study), rows, operator, partial))
    except InvalidInput as error:
        raise error.at("standard input" if str(path) == "-" else str(path)) from None


def not_imported(path: Path, text: str) -> list[str]:
    """Codes with entries in the CSV file at `path` that the sheet `text`, which is to replace it, does not have."""
    recorded = {cells["code"]: cells for _, cells in csv_table(text, lambda header, place: None)}
    if not path.exists():
        return []
    try:
        rows = read_table(path, lambda header, place: check_columns(header, place, header, ("code",)))
    except InvalidInput:  # another file, or this sheet as a spreadsheet program saved it
        return [code for code in recorded if code.encode() in path.read_bytes()]
    found = [(read_code(cells["code"]), cells) for _, cells in rows]
    return [code for code, cells in found if code in recorded and _filled_in(cells) and not _filled_in(recorded[code])]


def _filled_in(cells: _Cells) -> bool:
    return cells.get("collected", "").lower() not in _BLANKS or any(cells.get(column) for column in _TYPED)


def _by_code(rows: _Rows, known: Mapping[str, object]) -> Iterator[tuple[str, str, _Cells]]:
    """Every row with its code, checked: readable, on this sheet, once."""
    places: dict[str, str] = {}
    for place, cells in rows:
        where = f"{place}, column code"
        code = read_code(cells["code"])
        if code is None:
            what = "missing" if not cells["code"] else f"{cells['code']!r} is no code"
            raise InvalidInput(what, where=where, hint="compare it with the printed sheet")
        if code not in known:
            raise InvalidInput(
                f"there is no {code} on this sheet",
                where=where,
                hint="is it an earlier sheet, or one of another study?",
            )
        if code in places:
            raise InvalidInput(f"{code} is already in {places[code]}", where=where, hint="keep one of them")
        places[code] = place
        yield code, place, cells


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
