"""Leases: which worker works on which run. A run is pending, then running under a lease, then done or failed.

A run may also be trained: it waits for people to measure it, and no worker takes it. If some workers train and others
evaluate, a pending run whose policy has a name waits for one that evaluates.

A lease must be extended in time. Its token is the number of the attempt: after another worker has taken the run over,
the number is higher, and all calls of the late worker are refused. A late worker that was not replaced keeps its run,
because its work is still useful.

A lease never ends later than its length from now. One that ends much later was granted before the clock was set back
and counts as over; otherwise a dead worker's run would be blocked for that time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    exists,
    insert,
    or_,
    select,
    text,
    update,
)

from factored_scaling.errors import InvalidInput, LeaseLost
from factored_scaling.store import studies
from factored_scaling.store.rows import LONGEST_NAME, Outcome, Stage, State, checked_text
from factored_scaling.store.runs import in_parts, require
from factored_scaling.store.schema import RUNNING, WAITING, attempts, runs, scores, trials


def take(
    connection: Connection,
    now: float,
    study: int,
    worker: str,
    seconds: float,
    run_id: int | None,
    stage: Stage | None,
) -> int | None:
    """Lease the first free run of the latest round that has one; returns its id, or None.

    With a `stage`, the run must wait for that stage.
    """
    studies.require(connection, study)
    checked_text(worker, "the worker's name", longest=LONGEST_NAME, empty=False)
    _check_seconds(seconds)
    found = _free(connection, now, study, run_id, stage)
    if found is None:
        return None
    values = {"state": "running", "attempts": found.attempts + 1, "worker": worker, "started": now, "error": None}
    values |= {"lease_expires": now + seconds, "lease_seconds": seconds}
    connection.execute(update(runs).where(runs.c.id == found.id).values(values))
    if found.state == "running":
        _record(connection, found, now, "lost", f"no word since {found.worker}'s lease ran out")
    return int(found.id)


def extend(connection: Connection, now: float, run_id: int, token: int, seconds: float) -> float:
    """Extend the lease to `seconds` from now; returns its new end."""
    _check_seconds(seconds)
    require_lease(require(connection, run_id, lock=True), token)
    values = {"lease_expires": now + seconds, "lease_seconds": seconds}
    connection.execute(update(runs).where(runs.c.id == run_id).values(values))
    return now + seconds


def is_over(
    expires: ColumnElement[float | None], seconds: ColumnElement[float | None], now: float | ColumnElement[float]
) -> ColumnElement[bool]:
    """Whether a lease or claim for `seconds` has run out, or was granted before the clock was set back."""
    return or_(expires <= now, expires > now + 2 * seconds)


def end(
    connection: Connection, now: float, run_id: int, token: int | None, outcome: Outcome, error: str | None = None
) -> None:
    """End the attempt. Without a token a person ends it, and the worker that holds the run loses it."""
    row = require(connection, run_id, lock=True)
    if token is not None and token != row.attempts:
        raise lost(row)
    if row.state == "done":
        if outcome == "done":
            return  # a repeated call, because the first answer did not arrive
        raise InvalidInput(f"run {run_id} is already done", hint="a new seed is a new run")
    if token is not None:
        require_lease(row, token)
    if outcome == "released" and row.state != "running":
        raise InvalidInput(f"run {run_id} is {row.state}, nobody works on it")
    if outcome == "done":
        _require_results(connection, run_id)
    number = row.attempts if row.state == "running" else row.attempts + 1
    states: dict[Outcome, State] = {"done": "done", "failed": "failed", "released": "pending"}
    connection.execute(
        update(runs)
        .where(runs.c.id == run_id)
        .values(
            state=states[outcome],
            attempts=number,
            lease_expires=None,
            lease_seconds=None,
            worker=row.worker if outcome == "done" else None,
            error=error,
            finished=None if outcome == "released" else now,
        )
    )
    _record(connection, row, now, outcome, error)


def finish_all(connection: Connection, now: float, run_ids: Sequence[int]) -> None:
    """End many runs by hand, as `end` does for one; runs that are done stay unchanged."""
    rows: list[Row[Any]] = []
    for part in in_parts(run_ids):
        open_ = and_(runs.c.id.in_(part), runs.c.state != "done")
        rows += connection.execute(select(runs).where(open_))
        measured = or_(*(exists().where(table.c.run_id == runs.c.id) for table in (trials, scores)))
        empty = connection.execute(select(runs.c.id).where(open_, ~measured).limit(1)).scalar()
        if empty is not None:
            raise _no_results(empty)
    if not rows:
        return
    values: dict[str, Any] = {"state": "done", "lease_expires": None, "lease_seconds": None, "error": None}
    ended = (
        update(runs).where(runs.c.id == bindparam("run")).values(**values, finished=now, attempts=bindparam("number"))
    )
    connection.execute(ended, [{"run": row.id, "number": row.attempts + (row.state != "running")} for row in rows])
    connection.execute(insert(attempts), [_attempt(row, now, "done", None) for row in rows])


def set_trained(connection: Connection, now: float, run_id: int, token: int | None) -> None:
    """Mark the run as trained and end the worker's attempt. Repeated calls count once."""
    row = require(connection, run_id, lock=True)
    if row.trained is not None and row.state == "pending" and token in (None, row.attempts):
        return
    if row.state == "running" or token is not None:
        end(connection, now, run_id, token, "released")
    elif row.state != "pending":
        raise InvalidInput(f"run {run_id} is {row.state}, only a pending or running one becomes trained")
    connection.execute(update(runs).where(runs.c.id == run_id).values(trained=now))


def retry(connection: Connection, run_id: int) -> None:
    """Make a failed or trained run pending again; its error stays in the attempts."""
    row = require(connection, run_id, lock=True)
    if row.state != "failed" and (row.state != "pending" or row.trained is None):
        raise InvalidInput(f"run {run_id} is {row.state}, only failed or trained runs are tried again")
    values = {"state": "pending", "error": None, "finished": None, "trained": None}
    connection.execute(update(runs).where(runs.c.id == run_id).values(values))


def require_lease(row: Row[Any], token: int) -> None:
    """Fail unless `token` is the run's current lease."""
    if row.state != "running" or row.attempts != token:
        raise lost(row)


def lost(row: Row[Any]) -> LeaseLost:
    """The error for a worker that no longer holds the run."""
    now = f"{row.worker} works on it now" if row.state == "running" else f"it is {row.state} now"
    return LeaseLost(f"run {row.id} was taken away: {now}", hint="discard this work and ask for another run")


def _free(connection: Connection, now: float, study: int, run_id: int | None, stage: Stage | None) -> Row[Any] | None:
    """The run to lease, locked: `run_id` if it is free; without it the first free run."""
    asked = {"study": study, "now": now}
    # A locked run is being leased by another worker: skip it. (SQLite has no row locks; one process writes at a time.)
    if run_id is None:
        both = [connection.execute(query.with_for_update(skip_locked=True), asked).first() for query in _FREE[stage]]
        found = [row for row in both if row is not None]
        if found:
            return max(found, key=lambda row: (row.latest_round, -row.latest_position))
    for query in _FREE[stage]:
        wanted = query if run_id is None else query.where(runs.c.id == run_id)
        row = connection.execute(wanted.with_for_update(), asked).first()
        if row is not None:
            return row
    return None


def _free_queries(stage: Stage | None) -> tuple[Select[Any], Select[Any]]:
    """Queries for the first waiting run and for the first run with an expired lease, both of the stage."""
    names = ("id", "state", "attempts", "worker", "started", "latest_round", "latest_position")
    own = select(*(runs.c[name] for name in names)).where(runs.c.study_id == bindparam("study"))
    if stage is not None:
        own = own.where(runs.c.policy.is_(None) if stage == "train" else runs.c.policy.is_not(None))
    # unfinished runs of earlier rounds come later
    first = own.order_by(runs.c.latest_round.desc(), runs.c.latest_position).limit(1)
    over = is_over(runs.c.lease_expires, runs.c.lease_seconds, bindparam("now"))
    # the same words as in the indexes, so that the databases use them
    return first.where(text(WAITING)), first.where(text(RUNNING), over)


# built once: building takes longer than running them
_STAGES: tuple[Stage | None, ...] = (None, "train", "evaluate")
_FREE = {stage: _free_queries(stage) for stage in _STAGES}


def _record(connection: Connection, row: Row[Any], now: float, outcome: Outcome, error: str | None) -> None:
    """Add the attempt that just ended to the history; `row` is the run as it was before."""
    connection.execute(insert(attempts).values(_attempt(row, now, outcome, error)))


def _attempt(row: Row[Any], now: float, outcome: Outcome, error: str | None) -> dict[str, Any]:
    worked = row.state == "running"
    return {
        "run_id": row.id,
        "number": row.attempts if worked else row.attempts + 1,
        "worker": row.worker if worked else None,
        "started": row.started if worked else now,
        "ended": now,
        "outcome": outcome,
        "error": error,
    }


def _require_results(connection: Connection, run_id: int) -> None:
    for table in (trials, scores):
        if connection.execute(select(table.c.id).where(table.c.run_id == run_id).limit(1)).first() is not None:
            return
    raise _no_results(run_id)


def _no_results(run_id: int) -> InvalidInput:
    return InvalidInput(f"run {run_id} has no results yet", hint="tell its trials or its score first")


def _check_seconds(seconds: float) -> None:
    if not (math.isfinite(seconds) and seconds > 0):
        raise InvalidInput(f"a lease must last a number of seconds above 0, not {seconds!r}")
