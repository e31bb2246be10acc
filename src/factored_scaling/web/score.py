"""Scoring pages: the content for an operator, and reading and recording of their entries.

Everything here uses `BlindTrial`, which does not hold the policy, so a page cannot reveal it.
"""

from __future__ import annotations

import itertools
import secrets
import statistics
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from factored_scaling.core.conditions import SceneItem, scene
from factored_scaling.core.rubric import Rubric
from factored_scaling.errors import InvalidInput
from factored_scaling.report.words import plain
from factored_scaling.scoring.session import BlindTrial, Scoring, View
from factored_scaling.store import Entry
from factored_scaling.store.rows import EntryKind
from factored_scaling.study import Study
from factored_scaling.web.overview import duration_words

LONGEST_OPERATOR = 60
_PACE = 20  # number of trials for the estimate of the pace
_BREAK = 20 * 60.0  # seconds without a score that count as a break
# fields of an entry, and whether they are text
_FIELDS = {"operator": True, "kind": True, "code": True, "token": True, "ending": True, "note": True, "score": False}


@dataclass(frozen=True)
class SentEntry:
    """One entry as it was sent, and the trial it is about."""

    code: str
    entry: Entry

    @classmethod
    def read(cls, data: object) -> SentEntry:
        """From plain data: `operator`, `kind`, `code`, `token`, and optionally `score`, `ending` and `note`."""
        if not isinstance(data, Mapping):
            raise InvalidInput("expected an object with operator, kind, code and token")
        for name, value in data.items():
            if name not in _FIELDS:
                raise InvalidInput(f"unknown field {str(name)[:40]!r}", hint=f"known: {', '.join(_FIELDS)}")
            if _FIELDS[name] and not isinstance(value, str):
                raise InvalidInput("expected a text", where=name)
        missing = [name for name in ("operator", "kind", "code", "token") if not data.get(name)]
        if missing:
            raise InvalidInput("is missing", where=missing[0])
        kind, ending = data["kind"], data.get("ending", "")
        if kind not in get_args(EntryKind):
            raise InvalidInput(f"expected one of {', '.join(get_args(EntryKind))}", where="kind")
        score = 0.0 if ending else data.get("score")
        if score is not None and (isinstance(score, bool) or not isinstance(score, int | float)):
            raise InvalidInput("expected a number", where="score")
        operator = checked_operator(data["operator"])
        entry = Entry(kind, data["token"], operator, score, ending, data.get("note", "").strip())
        return cls(data["code"], entry)

    @classmethod
    def from_form(cls, form: Mapping[str, str], operator: str) -> SentEntry:
        """From the page's form, with the button's value: `score:0.5`, `ending:hazard`, `skip` or `undo`."""
        kind, _, value = form.get("choice", "").partition(":")
        data: dict[str, Any] = {"operator": operator, "kind": kind}
        data |= {name: form[name] for name in ("code", "token", "note") if name in form}
        if kind == "ending":
            data |= {"kind": "score", "ending": value}
        elif kind == "score":
            try:
                data["score"] = float(value)
            except ValueError:
                raise InvalidInput("expected a number", where="score") from None
        return cls.read(data)


def checked_operator(name: object) -> str:
    """Check that a name can be stored and shown."""
    text = " ".join(name.split()) if isinstance(name, str) else ""
    if not text or len(text) > LONGEST_OPERATOR or not text.isprintable():
        raise InvalidInput(f"expected a name of 1 to {LONGEST_OPERATOR} characters", where="operator")
    return text


def new_operator(name: str) -> str:
    """A name with a suffix for the device, so that two phones with the same name get different trials."""
    text = checked_operator(name)
    mark = "".join(secrets.choice("abcdefghjkmnpqrstuvwxyz23456789") for _ in range(4))
    return f"{text[: LONGEST_OPERATOR - 7]} ({mark})"


class Desk:
    """A study's evaluations for operators. A lock makes writes fair, which SQLite's lock is not."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self._lock = threading.Lock()
        self._known: dict[int, Scoring] = {}
        self._closed: dict[int, dict[str, Any]] = {}  # immutable parts, read once

    def newest(self) -> Scoring | None:
        """The newest open evaluation, or else the newest; None when there is none."""
        return Scoring.open(self.study) if self.study.store.evaluations(self.study.id) else None

    def evaluation(self, number: int) -> Scoring:
        """The evaluation with this number. The cached part never changes."""
        if number not in self._known:
            self._known[number] = Scoring.open(self.study, number)
        return self._known[number]

    def next(self, number: int, operator: str) -> dict[str, Any]:
        """Claim the next trial for the operator, or extend the current claim."""
        scoring, who = self.evaluation(number), checked_operator(operator)
        with self._lock:
            scoring.next(who)
        return state(scoring, who)

    def tell(self, number: int, sent: SentEntry) -> dict[str, Any]:
        """Record one entry; after a score or a skip the operator claims the next trial. Resending has no effect."""
        scoring, operator = self.evaluation(number), sent.entry.operator
        with self._lock:
            new = scoring.tell([(sent.code, sent.entry)], operator if sent.entry.kind in ("score", "skip") else None)
        return {"counted": bool(new), **state(scoring, operator)}

    def release(self, number: int, operator: str) -> dict[str, Any]:
        """Release the operator's trial."""
        scoring, who = self.evaluation(number), checked_operator(operator)
        with self._lock:
            scoring.release(who)
        return state(scoring, who)

    def close(self, number: int) -> int:
        """Close the evaluation: the scores become trials of the study's runs and are final."""
        with self._lock:
            return self.evaluation(number).close()

    def summaries(self) -> list[dict[str, Any]]:
        """Every evaluation's progress for the overview, newest first; it has no results of single policies."""
        found = []
        for row in reversed(self.study.store.evaluations(self.study.id)):
            known = self._closed.get(row.number)
            if known is None:
                view = self.evaluation(row.number).view("", _PACE + 1)
                known = {"number": row.number, "closed": row.closed is not None, **_progress(view)}
                if row.closed is not None:
                    self._closed[row.number] = known
            found.append(known)
        return found


def state(scoring: Scoring, operator: str) -> dict[str, Any]:
    """The content for an operator as plain data."""
    view = scoring.view(operator, _PACE + 1)
    current, last, overall = view.current, view.last, view.progress.overall
    return {
        "evaluation": scoring.number,
        "closed": view.progress.closed,
        "operator": operator,
        "trial": None if current is None else _shown(current, view, scoring.factors),
        "last": None if last is None else _dealt_with(last, scoring.rubric),
        "progress": {**_progress(view), "mine": view.mine},
        "overall": None
        if overall is None
        else {"mean": overall.mean, "low": overall.interval.low, "high": overall.interval.high},
    }


def buttons(rubric: Rubric) -> list[dict[str, Any]]:
    """The rubric's levels as buttons; `tone` goes from 0 (failure) to 4 (full score)."""
    return [
        {
            "score": level.score,
            "name": level.name,
            "means": level.means,
            "tone": 0 if level.score == 0 else 4 if level.score == 1 else 1 + int(3 * level.score),
        }
        for level in rubric.levels
    ]


def _shown(trial: BlindTrial, view: View, factors: Sequence[str]) -> dict[str, Any]:
    """A trial to run, with the whole scene and its changes from the operator's last trial.

    After a skip or an undo the present scene is unknown, and every row is listed as to be set up.
    """
    last = view.last
    known = last is not None and last.state == "scored" and not trial.undone
    rows = scene(factors, trial.condition, last.condition if last is not None and known else None)
    return {
        "code": trial.code,
        "number": trial.number,
        "label": trial.label,
        "repeat": trial.repeat,
        "notes": list(trial.notes),
        "draft": trial.draft,
        "known": known,
        "advice": _advice(trial, view, rows),
        "setting": [
            {
                "factor": plain(row.factor),
                "value": row.value,
                "before": row.before,
                "changed": row.changed,
                "back": known and row.back,
            }
            for row in rows
        ],
    }


def _advice(trial: BlindTrial, view: View, rows: Sequence[SceneItem]) -> str:
    """Instructions for setting up the scene."""
    last = view.last
    if trial.undone:
        return "This trial was taken back. Check the whole scene."
    if last is None:
        return "Set up the whole scene."
    if last.state != "scored":
        return "Your last trial was skipped. Check the whole scene."
    changes = sum(row.changed for row in rows)
    text = "Same scene as your last trial."
    if changes:
        text = f"{changes} {'change' if changes == 1 else 'changes'} from your last trial."
    if view.recent and last.told is not None and view.recent[0] > last.told:
        text += " Others scored in between: if you share a robot, check the whole scene."
    return text


def _dealt_with(trial: BlindTrial, rubric: Rubric) -> dict[str, Any]:
    result = "skipped" if trial.score is None else trial.ending or rubric.level(trial.score).name
    return {
        "code": trial.code,
        "number": trial.number,
        "label": trial.label,
        "score": trial.score,
        "said": result,
        "notes": list(trial.notes),
    }


def seconds_left(times: Sequence[float], left: int) -> float | None:
    """Estimated time for the remaining trials, from the median pace of the latest ones without breaks.

    The pace is that of all operators together. None before five trials.
    """
    moments = sorted(times)
    gaps = [after - before for before, after in itertools.pairwise(moments[-1 - _PACE :]) if after - before < _BREAK]
    return statistics.median(gaps) * left if left and len(gaps) >= 4 else None


def _progress(view: View) -> dict[str, Any]:
    progress = view.progress
    seconds = seconds_left(view.recent, progress.left)
    return {
        "trials": progress.trials,
        "scored": progress.scored,
        "skipped": progress.skipped,
        "running": progress.claimed,
        "left": progress.left,
        "time": None if seconds is None else duration_words(seconds) if seconds >= 90 else "1 min",
    }
