"""Runs: adding them to rounds, and reading them as snapshots."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, delete, func, insert, select

from factored_scaling.core.design import RunSpec
from factored_scaling.errors import InvalidInput, StudyMissing
from factored_scaling.store import studies
from factored_scaling.store.rows import AttemptRow, Planned, RunRow, to_json
from factored_scaling.store.schema import attempts, placements, queue, rounds, runs, scores, trials


def add(connection: Connection, now: float, study: int, index: int, planned: Sequence[Planned]) -> list[int]:
    """Make each run known to the study once and place it in the round; returns the runs' ids, in the order given."""
    studies.require(connection, study, lock=True)
    round_id = studies.round_id(connection, study, index)
    digests = [run.spec.digest for run in planned]
    known = _ids_by_digest(connection, study)
    fresh = {digest: run.spec for digest, run in zip(digests, planned, strict=True) if digest not in known}
    if fresh:
        rows = [
            {
                "study_id": study,
                "digest": digest,
                "spec": to_json(spec.to_mapping(), "a run"),
                "state": "pending",
                "attempts": 0,
                "created": now,
            }
            for digest, spec in fresh.items()
        ]
        connection.execute(insert(runs), rows)
        known = _ids_by_digest(connection, study)
    ids = [known[digest] for digest in digests]
    _place(connection, round_id, dict(zip(ids, planned, strict=True)))
    return ids


def withdraw(connection: Connection, _now: float, study: int, index: int, digests: Collection[str]) -> list[int]:
    """Take runs out of the round again, if nothing came of them; returns the ids of those that are gone."""
    studies.require(connection, study, lock=True)
    here = studies.round_id(connection, study, index)
    placed = select(placements.c.run_id).where(placements.c.round_id == here)
    unmeasured = [runs.c.state.in_(("pending", "failed")), runs.c.trained.is_(None)]
    unmeasured += [runs.c.id.not_in(select(table.c.run_id)) for table in (trials, scores, queue)]
    query = select(runs.c.id, runs.c.digest).where(runs.c.id.in_(placed), *unmeasured).order_by(runs.c.id)
    found = [row.id for row in connection.execute(query.with_for_update()) if row.digest in digests]
    elsewhere = set(connection.execute(select(placements.c.run_id).where(placements.c.round_id != here)).scalars())
    gone = [id_ for id_ in found if id_ not in elsewhere]
    for id_ in found:
        connection.execute(delete(placements).where(placements.c.round_id == here, placements.c.run_id == id_))
    for id_ in gone:
        connection.execute(delete(attempts).where(attempts.c.run_id == id_))
        connection.execute(delete(runs).where(runs.c.id == id_))
    return gone


def of_study(connection: Connection, study: int, index: int | None) -> list[RunRow]:
    """All runs, or those of one round, in the order to train them."""
    if index is None:
        studies.require(connection, study)
        return read(connection, runs.c.study_id == study)
    here = placements.c.round_id == studies.round_id(connection, study, index)
    found = read(connection, runs.c.id.in_(select(placements.c.run_id).where(here)), index)
    return sorted(found, key=lambda run: run.position)


def one(connection: Connection, run_id: int) -> RunRow:
    """The run of this id."""
    found = read(connection, runs.c.id == run_id)
    if not found:
        raise missing(run_id)
    return found[0]


def read(connection: Connection, condition: ColumnElement[bool], index: int | None = None) -> list[RunRow]:
    """Snapshots of the runs that meet `condition`, first placed first; demos and position as round `index` has them."""
    chosen = select(runs.c.id).where(condition)
    told = (
        select(trials.c.run_id, func.count().label("count"), func.avg(trials.c.score).label("mean"))
        .where(trials.c.run_id.in_(chosen))
        .group_by(trials.c.run_id)
        .subquery()
    )
    means = (
        select(scores.c.run_id, func.count().label("count"))
        .where(scores.c.run_id.in_(chosen))
        .group_by(scores.c.run_id)
        .subquery()
    )
    placed = runs.join(placements, placements.c.run_id == runs.c.id).join(rounds, rounds.c.id == placements.c.round_id)
    query = (
        select(runs, rounds.c.number, placements.c.position, placements.c.demos)
        .add_columns(told.c.count.label("trials"), told.c.mean, means.c.count.label("scores"))
        .select_from(placed.outerjoin(told, told.c.run_id == runs.c.id).outerjoin(means, means.c.run_id == runs.c.id))
        .where(condition)
        .order_by(rounds.c.number, placements.c.position)
    )
    places: dict[int, list[Row[Any]]] = {}
    for row in connection.execute(query):
        places.setdefault(row.id, []).append(row)
    return [_run_row(rows, index) for rows in places.values()]


def attempts_of(connection: Connection, run_id: int) -> list[AttemptRow]:
    """How the run's attempts ended, oldest first."""
    require(connection, run_id)
    query = select(attempts).where(attempts.c.run_id == run_id).order_by(attempts.c.number)
    return [
        AttemptRow(row.number, row.worker, row.started, row.ended, row.outcome, row.error)
        for row in connection.execute(query)
    ]


def rows_by_run(connection: Connection, study: int, table: Table) -> dict[int, list[Row[Any]]]:
    """The rows of a table that belong to runs of the study, by run id, oldest first."""
    joined = table.join(runs, runs.c.id == table.c.run_id)
    query = select(table).select_from(joined).where(runs.c.study_id == study).order_by(table.c.id)
    found: dict[int, list[Row[Any]]] = {}
    for row in connection.execute(query):
        found.setdefault(row.run_id, []).append(row)
    return found


def require(connection: Connection, run_id: int, *, lock: bool = False) -> Row[Any]:
    """The run's own row; with `lock`, nobody else changes the run until the transaction ends."""
    query = select(runs).where(runs.c.id == run_id)
    row = connection.execute(query.with_for_update() if lock else query).first()
    if row is None:
        raise missing(run_id)
    return row


def missing(run_id: int) -> StudyMissing:
    """The error for a run that does not exist."""
    return StudyMissing(f"there is no run {run_id}")


def _ids_by_digest(connection: Connection, study: int) -> dict[str, int]:
    query = select(runs.c.digest, runs.c.id).where(runs.c.study_id == study)
    return {row.digest: row.id for row in connection.execute(query)}


def _place(connection: Connection, round_id: int, planned: dict[int, Planned]) -> None:
    query = select(placements.c.run_id, placements.c.position).where(placements.c.round_id == round_id)
    placed = {row.run_id: row.position for row in connection.execute(query)}
    following = max(placed.values(), default=-1) + 1
    fresh = [(id_, run) for id_, run in planned.items() if id_ not in placed]
    if fresh:
        rows = [
            {"round_id": round_id, "run_id": id_, "position": following + place, "demos": _demos(run)}
            for place, (id_, run) in enumerate(fresh)
        ]
        connection.execute(insert(placements), rows)


def _demos(run: Planned) -> str:
    for factor, count in run.demos.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise InvalidInput(f"demos must be whole numbers, not {count!r}", where=f"demos.{factor}")
    return to_json(dict(run.demos), "demos")


def _run_row(places: list[Row[Any]], index: int | None) -> RunRow:
    """One run from its rows, one per round it is in, oldest round first."""
    asked = [place for place in places if place.number == index]
    row, newest = (asked[0], asked[0]) if asked else (places[0], places[-1])
    return RunRow(
        id=row.id,
        digest=row.digest,
        spec=RunSpec.from_mapping(json.loads(row.spec)),
        demos=json.loads(newest.demos),
        rounds=tuple(place.number for place in places),
        position=row.position,
        state="trained" if row.state == "pending" and row.trained is not None else row.state,
        worker=row.worker,
        attempts=row.attempts,
        lease_expires=row.lease_expires,
        error=row.error,
        trials=row.trials or 0,
        mean=row.mean,
        scores=row.scores or 0,
        created=row.created,
        started=row.started,
        finished=row.finished,
        trained=row.trained,
        policy=row.policy,
    )
