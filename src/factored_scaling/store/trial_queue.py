"""Trials that people score: claims, entries, and their conversion into results.

Every change locks its evaluation first, so that changes to one queue are serialised on both databases. Entries are
never removed; the state of a trial follows from its latest entry that is not a note.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, bindparam, func, insert, or_, select, update

from factored_scaling.core.conditions import Condition
from factored_scaling.core.rubric import ENDINGS, Rubric
from factored_scaling.core.trial_queue import PlannedTrial
from factored_scaling.core.trials import Trial
from factored_scaling.errors import InvalidInput, StudyMissing, TrialTaken
from factored_scaling.store import leases, results, studies
from factored_scaling.store.rows import (
    LONGEST_NAME,
    Entry,
    EntryKind,
    EntryRow,
    EvaluationRow,
    QueuedTrial,
    QueueState,
    checked_text,
    to_json,
)
from factored_scaling.store.runs import require as require_run
from factored_scaling.store.schema import entries, evaluations, queue, runs

LONGEST_NOTE = 2000
_AFTER: dict[EntryKind, QueueState] = {"score": "scored", "skip": "skipped", "undo": "open"}
# Queries of every score, built once: building takes longer than running them.
HERE = queue.c.evaluation_id == bindparam("evaluation")
OWN = queue.c.operator == bindparam("operator")
OVER = leases.is_over(queue.c.claim_expires, queue.c.claim_seconds, bindparam("now"))
CLAIMED = and_(queue.c.state == "open", queue.c.claim_expires.is_not(None), ~OVER)
_FREE = and_(queue.c.state == "open", or_(queue.c.claim_expires.is_(None), OVER))
_HEADER = select(evaluations).where(evaluations.c.id == bindparam("evaluation"))
_LOCKED = _HEADER.with_for_update()
_BY_CODE = select(queue).where(HERE, queue.c.code == bindparam("code"))
_BY_TOKEN = select(entries).where(
    entries.c.evaluation_id == bindparam("evaluation"), entries.c.token == bindparam("token")
)
_NEXT = [select(queue.c.id).where(HERE, one).order_by(queue.c.position).limit(1) for one in (OWN & CLAIMED, _FREE)]
_CHANGE = update(queue).where(queue.c.id == bindparam("trial"))
_ADD = insert(entries)


def add(
    connection: Connection,
    now: float,
    study: int,
    run_ids: Sequence[int],
    planned: Sequence[PlannedTrial],
    rubric: Rubric,
    step_limit: int | None,
    seed: int,
) -> int:
    """Queue trials for people to score; they name their policies by index in `run_ids`. Returns the id."""
    studies.require(connection, study, lock=True)
    mine = set(connection.execute(select(runs.c.id).where(runs.c.study_id == study)).scalars())
    for run_id in run_ids:
        if run_id not in mine:
            raise StudyMissing(f"there is no run {run_id} in this study")
    _require_unqueued(connection, study, run_ids)
    last = connection.execute(select(func.max(evaluations.c.number)).where(evaluations.c.study_id == study)).scalar()
    values = {
        "study_id": study,
        "number": 1 if last is None else int(last) + 1,
        "rubric": to_json(rubric.to_mapping(), "the rubric"),
        "step_limit": step_limit,
        "seed": str(seed),
        "created": now,
    }
    made = connection.execute(insert(evaluations).values(values).returning(evaluations.c.id))
    evaluation = int(made.scalar_one())
    rows = [
        {
            "evaluation_id": evaluation,
            "position": position,
            "code": trial.code,
            "run_id": run_ids[trial.policy],
            "label": trial.label,
            "condition": to_json([list(pair) for pair in trial.condition.values], "the condition"),
            "repeat": trial.repeat,
            "state": "open",
        }
        for position, trial in enumerate(planned)
    ]
    connection.execute(insert(queue), rows)
    return evaluation


def of_study(connection: Connection, study: int) -> list[EvaluationRow]:
    """The study's evaluations, oldest first."""
    studies.require(connection, study)
    query = select(evaluations).where(evaluations.c.study_id == study).order_by(evaluations.c.number)
    return [_evaluation(row) for row in connection.execute(query)]


def one(connection: Connection, evaluation: int) -> EvaluationRow:
    """One evaluation by its id."""
    return _evaluation(_require(connection, evaluation))


def read(
    connection: Connection, now: float, evaluation: int, condition: ColumnElement[bool] | None = None
) -> list[QueuedTrial]:
    """The evaluation's trials, or those that meet `condition`, in the order to run them, all as of one moment."""
    _require(connection, evaluation)
    chosen = queue.c.evaluation_id == evaluation
    conditions = chosen if condition is None else and_(chosen, condition)
    rows = connection.execute(select(queue).where(conditions).order_by(queue.c.position)).all()
    return with_entries(connection, now, rows, select(queue.c.id).where(conditions))


def with_entries(
    connection: Connection, now: float, rows: Sequence[Row[Any]], ids: Select[Any] | Sequence[int]
) -> list[QueuedTrial]:
    """The trials of these rows, whose ids are `ids`, with their entries."""
    said: dict[int, list[Row[Any]]] = {}
    query = select(entries).where(entries.c.queue_id.in_(ids)).order_by(entries.c.id)
    for row in connection.execute(query):
        said.setdefault(row.queue_id, []).append(row)
    return [_queued(row, said.get(row.id, []), now) for row in rows]


def of_code(connection: Connection, now: float, evaluation: int, code: str) -> QueuedTrial:
    """One trial by its code."""
    _require(connection, evaluation)
    return read(connection, now, evaluation, queue.c.id == _require_code(connection, evaluation, code).id)[0]


def history(connection: Connection, evaluation: int) -> list[EntryRow]:
    """All entries for the trials, oldest first, including undone ones."""
    _require(connection, evaluation)
    query = (
        select(entries, queue.c.code)
        .join(queue, queue.c.id == entries.c.queue_id)
        .where(entries.c.evaluation_id == evaluation)
        .order_by(entries.c.id)
    )
    return [EntryRow(row.code, _entry(row), row.created) for row in connection.execute(query)]


def claim(connection: Connection, now: float, evaluation: int, operator: str, seconds: float) -> QueuedTrial | None:
    """The operator's trial, or else the first free one, claimed for `seconds`; None when none is left."""
    checked_text(operator, "the operator's name", longest=LONGEST_NAME, empty=False)
    if not (math.isfinite(seconds) and seconds > 0):
        raise InvalidInput(f"a claim must last a number of seconds above 0, not {seconds!r}")
    if _require(connection, evaluation, lock=True).closed is not None:
        return None
    found = _claim_next(connection, now, evaluation, operator, seconds)
    return None if found is None else read(connection, now, evaluation, queue.c.id == found)[0]


def _claim_next(connection: Connection, now: float, evaluation: int, operator: str, seconds: float) -> int | None:
    asked = {"evaluation": evaluation, "operator": operator, "now": now}
    found = next((id_ for query in _NEXT if (id_ := connection.execute(query, asked).scalar()) is not None), None)
    if found is not None:
        values = {"operator": operator, "claim_expires": now + seconds, "claim_seconds": seconds}
        connection.execute(_CHANGE, {"trial": found, **values})
    return found


def unclaim(connection: Connection, now: float, evaluation: int, operator: str) -> int:
    """Release the operator's claims; returns the number of released trials."""
    _require(connection, evaluation, lock=True)
    held = and_(queue.c.evaluation_id == evaluation, queue.c.state == "open", queue.c.operator == operator)
    over = leases.is_over(queue.c.claim_expires, queue.c.claim_seconds, now)
    found = connection.execute(select(queue.c.id).where(held, ~over)).scalars().all()
    given_back = {"operator": None, "claim_expires": None, "claim_seconds": None}
    connection.execute(update(queue).where(queue.c.id.in_(found)).values(given_back))
    return len(found)


def tell(
    connection: Connection,
    now: float,
    evaluation: int,
    given: Sequence[tuple[str, Entry]],
    claim_seconds: float = 60.0,
    next_for: str | None = None,
) -> int:
    """Store entries for trials, by their codes, all or none; returns the number of new entries.

    Entries with the same token count once. Raises TrialTaken if a trial is already scored or run by somebody else.
    An undone trial is claimed for the operator who undid it. In the same transaction, the operator `next_for` claims
    their next trial.
    """
    header = _require(connection, evaluation, lock=True)
    rubric = Rubric.from_mapping(json.loads(header.rubric))
    new = 0
    for code, entry in given:
        values = _entry_values(entry, rubric)
        row = _require_code(connection, evaluation, code)
        if _known(connection, evaluation, row, values):
            continue
        if header.closed is not None:
            raise TrialTaken(f"evaluation {header.number} is closed and takes no more entries", where=f"trial {code}")
        _require_state(row, entry, now)
        connection.execute(_ADD, {**values, "evaluation_id": evaluation, "queue_id": row.id, "created": now})
        if entry.kind in _AFTER:
            seconds = claim_seconds if entry.kind == "undo" else None
            after = {"state": _AFTER[entry.kind], "operator": entry.operator, "claim_seconds": seconds}
            after |= {"score": values["score"], "told": None if entry.kind == "undo" else now}
            after["claim_expires"] = None if seconds is None else now + seconds
            connection.execute(_CHANGE, {"trial": row.id, **after})
        new += 1
    if next_for is not None and header.closed is None:
        _claim_next(connection, now, evaluation, next_for, claim_seconds)
    return new


def close(connection: Connection, now: float, evaluation: int, early: bool = False) -> int:
    """Append the scores to the runs as trials and finish these; returns how many were new. This is final.

    With `early`, trials without a score are left out, and so are scores of runs that were finished otherwise. Runs
    without any score stay unchanged.
    """
    header = _require(connection, evaluation, lock=True)
    if header.closed is not None:
        return 0
    every = read(connection, now, evaluation)
    left = [trial for trial in every if trial.state == "open"]
    if left and not early:
        what = f"{len(left)} of {len(every)} trials are not scored yet"
        raise InvalidInput(what, where=f"evaluation {header.number}", hint="score or skip them, or close it early")
    by_run = scored_by_run(header.number, every)
    if not by_run and not early:
        hint = "closed early, the queue is dropped and another can be made"
        raise InvalidInput("every trial was left out", where=f"evaluation {header.number}", hint=hint)
    # in the same order as an import, which prevents a deadlock
    by_run = dict(sorted(by_run.items()))
    done = [run_id for run_id in by_run if require_run(connection, run_id, lock=True).state == "done"]
    if done and not early:
        what = f"run {done[0]} was finished otherwise meanwhile and takes no more trials"
        hint = "closed early, the evaluation leaves its scores out"
        raise InvalidInput(what, where=f"evaluation {header.number}", hint=hint)
    new = 0
    for run_id, trials in by_run.items():
        if run_id in done:
            continue
        new += results.append_trials(connection, now, run_id, trials, None)
        leases.end(connection, now, run_id, None, "done")
    connection.execute(update(evaluations).where(evaluations.c.id == evaluation).values(closed=now))
    return new


def unsettled(connection: Connection, now: float, study: int) -> dict[int, list[Trial]]:
    """Scored trials of open evaluations, by run id."""
    found: dict[int, list[Trial]] = {}
    for evaluation in of_study(connection, study):
        if evaluation.closed is None:
            scored = read(connection, now, evaluation.id, queue.c.state == "scored")
            for run_id, trials in scored_by_run(evaluation.number, scored).items():
                found.setdefault(run_id, []).extend(trials)
    return found


def scored_by_run(number: int, every: Sequence[QueuedTrial]) -> dict[int, list[Trial]]:
    """Scored trials under keys that no other evaluation uses."""
    found: dict[int, list[Trial]] = {}
    for queued in every:
        if queued.state == "scored":
            trial = queued.trial
            key = f"scored/{number}/{trial.key}"
            found.setdefault(queued.run_id, []).append(Trial(key, trial.score, trial.factor, trial.setting, trial.note))
    return found


def _require_unqueued(connection: Connection, study: int, run_ids: Sequence[int]) -> None:
    """Fail if an evaluation that is still open has one of the runs: its scores would be in two places."""
    query = (
        select(queue.c.run_id, evaluations.c.number)
        .join(evaluations, evaluations.c.id == queue.c.evaluation_id)
        .where(evaluations.c.study_id == study, evaluations.c.closed.is_(None))
        .distinct()
    )
    for row in connection.execute(query):
        if row.run_id in run_ids:
            what = f"run {row.run_id} is already queued in evaluation {row.number}"
            raise InvalidInput(what, hint="score and close that one first")


def _require(connection: Connection, evaluation: int, *, lock: bool = False) -> Row[Any]:
    row = connection.execute(_LOCKED if lock else _HEADER, {"evaluation": evaluation}).first()
    if row is None:
        raise StudyMissing(f"there is no evaluation with number {evaluation} in this database")
    return row


def _require_code(connection: Connection, evaluation: int, code: str) -> Row[Any]:
    checked_text(code, "a trial's code", longest=LONGEST_NAME)
    row = connection.execute(_BY_CODE, {"evaluation": evaluation, "code": code}).first()
    if row is None:
        raise StudyMissing(f"there is no trial {code!r} in this evaluation", hint="codes are printed on the sheet")
    return row


def _require_state(row: Row[Any], entry: Entry, now: float) -> None:
    """Fail unless the entry may be made in this state of the trial."""
    where = f"trial {row.code}"
    if entry.kind == "undo" and row.state == "open":
        raise TrialTaken("there is nothing to undo", where=where)
    if entry.kind in ("score", "skip"):
        if row.state != "open":
            raise TrialTaken(f"is {row.state} already, by {row.operator}", where=where, hint="undo that first")
        if _claimed(row, now) and row.operator != entry.operator:
            raise TrialTaken(f"{row.operator} is running it", where=where, hint="agree with them who scores it")


def _claimed(row: Row[Any], now: float) -> bool:
    """Whether the claim is valid; one that ends much too late is from before the clock was set back."""
    return row.claim_expires is not None and now < row.claim_expires <= now + 2 * row.claim_seconds


def _known(connection: Connection, evaluation: int, trial: Row[Any], values: dict[str, Any]) -> bool:
    """Whether the entry is already stored under its token; a different entry under it is an error."""
    row = connection.execute(_BY_TOKEN, {"evaluation": evaluation, "token": values["token"]}).first()
    if row is None:
        return False
    if row.queue_id != trial.id or any(row._mapping[field] != value for field, value in values.items()):
        raise InvalidInput("this token was used for another entry", where=f"trial {trial.code}")
    return True


def _entry_values(entry: Entry, rubric: Rubric) -> dict[str, Any]:
    if (entry.kind == "score") != (entry.score is not None):
        raise InvalidInput("an entry has a score exactly if it scores", where=f"entry {entry.token!r}")
    if entry.ending and (entry.ending not in ENDINGS or entry.score != 0.0):
        what = f"a rollout ends by {' or '.join(ENDINGS)} with score 0, not by {entry.ending!r} with {entry.score}"
        raise InvalidInput(what, where=f"entry {entry.token!r}")
    return {
        "token": checked_text(entry.token, "an entry's token", longest=LONGEST_NAME, empty=False),
        "kind": entry.kind,
        "score": None if entry.score is None else rubric.level(entry.score).score,
        "ending": entry.ending,
        "note": checked_text(entry.note, "a note", longest=LONGEST_NOTE),
        "operator": checked_text(entry.operator, "the operator's name", longest=LONGEST_NAME, empty=False),
    }


def _evaluation(row: Row[Any]) -> EvaluationRow:
    rubric = Rubric.from_mapping(json.loads(row.rubric))
    return EvaluationRow(row.id, row.number, rubric, row.step_limit, row.created, row.closed)


def _entry(row: Row[Any]) -> Entry:
    return Entry(row.kind, row.token, row.operator, row.score, row.ending, row.note)


def _queued(row: Row[Any], said: Sequence[Row[Any]], now: float) -> QueuedTrial:
    deciding = [entry for entry in said if entry.kind != "note"]
    last = deciding[-1] if deciding and row.state != "open" else None
    # notes of an undone rollout are removed with it; the operator who undid it gets them back as a draft
    undos = [entry.id for entry in said if entry.kind == "undo"]
    since, earlier = (undos[-1] if undos else -1), (undos[-2] if len(undos) > 1 else -1)
    notes = tuple(entry.note for entry in said if entry.note and entry.id > since)
    undone = row.state == "open" and bool(undos)
    undid = undone and deciding[-1].operator == row.operator
    drafts = [entry.note for entry in said if undid and entry.note and earlier < entry.id < since]
    return QueuedTrial(
        code=row.code,
        position=row.position,
        label=row.label,
        run_id=row.run_id,
        condition=Condition(tuple((name, value) for name, value in json.loads(row.condition))),
        repeat=row.repeat,
        state=row.state,
        operator=row.operator,
        claimed=row.state == "open" and _claimed(row, now),
        score=last.score if last is not None else None,
        ending=last.ending if last is not None else "",
        notes=notes,
        told=last.created if last is not None else None,
        undone=undone,
        draft="; ".join(drafts)[:LONGEST_NOTE],
    )
