"""Runs: adding them to rounds, and reading them as snapshots."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    and_,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from factored_scaling.core.design import PlannedRun, RunSpec
from factored_scaling.errors import InvalidInput, StudyMissing
from factored_scaling.store import studies
from factored_scaling.store.rows import AttemptRow, RunOutline, RunRow, State, WholeRun, to_json
from factored_scaling.store.schema import attempts, placements, queue, rounds, runs, scores, trials

_PLACED = runs.join(placements, placements.c.run_id == runs.c.id).join(rounds, rounds.c.id == placements.c.round_id)
_SHORTEST_DIGEST = 4  # characters by which a run may be named
_FIELDS = tuple(field.name for field in fields(RunRow))
_VALUES_PER_QUERY = 500  # databases limit how many values one statement may name


def add(
    connection: Connection, now: float, study: int, index: int, planned: Sequence[PlannedRun | RunRow]
) -> list[int]:
    """Append runs to a round; returns their ids in the given order.

    A run that the study already has, in this round or an earlier one, keeps its state and results.
    """
    studies.require(connection, study, lock=True)
    round_id = studies.round_id(connection, study, index)
    digests = [run.digest if isinstance(run, RunRow) else run.spec.digest for run in planned]
    known = _ids_by_digest(connection, study)
    position = _positions(connection, round_id, [(known.get(digest), digest) for digest in dict.fromkeys(digests)])
    new = {d: run for d, run in zip(digests, planned, strict=True) if d not in known and not isinstance(run, RunRow)}
    if new:
        connection.execute(insert(runs), [_new_run(now, study, index, position[d], run) for d, run in new.items()])
        known = _ids_by_digest(connection, study)
    if position:
        named = dict(zip(digests, planned, strict=True))
        places = [
            {"round_id": round_id, "run_id": known[digest], "position": place, "demos": _demos(named[digest])}
            for digest, place in position.items()
        ]
        connection.execute(insert(placements), places)
        latest = [{"run": known[d], "place": place} for d, place in position.items() if d not in new]
        if latest:
            later = and_(runs.c.id == bindparam("run"), runs.c.latest_round <= index)
            values = {"latest_round": index, "latest_position": bindparam("place")}
            connection.execute(update(runs).where(later).values(values), latest)
    return [known[digest] for digest in digests]


def withdraw(connection: Connection, _now: float, study: int, index: int, digests: Collection[str]) -> list[int]:
    """Remove planned runs from a round; returns the ids of the removed runs.

    Runs stay that are running or trained, have results, wait in a queue or belong to another round.
    """
    studies.require(connection, study, lock=True)
    here = studies.round_id(connection, study, index)
    placed = select(placements.c.run_id).where(placements.c.round_id == here)
    unmeasured = [runs.c.state.in_(("pending", "failed")), runs.c.trained.is_(None), runs.c.policy.is_(None)]
    unmeasured += [runs.c.id.not_in(select(table.c.run_id)) for table in (trials, scores, queue)]
    query = select(runs.c.id, runs.c.digest).where(runs.c.id.in_(placed), *unmeasured).order_by(runs.c.id)
    found = [row.id for row in connection.execute(query.with_for_update()) if row.digest in digests]
    elsewhere = set(connection.execute(select(placements.c.run_id).where(placements.c.round_id != here)).scalars())
    gone = [id_ for id_ in found if id_ not in elsewhere]
    for id_ in found:
        connection.execute(delete(placements).where(placements.c.round_id == here, placements.c.run_id == id_))
        if id_ in elsewhere:
            _set_latest(connection, id_)
    for id_ in gone:
        connection.execute(delete(attempts).where(attempts.c.run_id == id_))
        connection.execute(delete(runs).where(runs.c.id == id_))
    return gone


def of_study(connection: Connection, study: int, index: int | None = None) -> list[RunRow]:
    """The study's runs, or those of one round, in the order to train them, from one snapshot."""
    if index is None:
        studies.require(connection, study)
        return read(connection, runs.c.study_id == study)
    here = placements.c.round_id == studies.round_id(connection, study, index)
    found = read(connection, runs.c.id.in_(select(placements.c.run_id).where(here)), index)
    return sorted(found, key=lambda run: run.position)


def some(connection: Connection, run_ids: Sequence[int]) -> list[RunRow]:
    """The runs of these ids that exist, in the order of the ids."""
    found = {run.id: run for chunk in in_parts(run_ids) for run in read(connection, runs.c.id.in_(chunk))}
    return [found[id_] for id_ in run_ids if id_ in found]


def outline(connection: Connection, study: int) -> list[RunOutline]:
    """The state of every run of the study, in the order to train them. Fast, because it reads no results."""
    studies.require(connection, study)
    columns = [runs.c[name] for name in ("id", "state", "lease_expires", "started", "finished", "trained", "policy")]
    query = (
        select(*columns, rounds.c.number)
        .select_from(_PLACED)
        .where(runs.c.study_id == study)
        .order_by(runs.c.latest_round.desc(), runs.c.latest_position, rounds.c.number)
    )
    found: dict[int, RunOutline] = {}
    rows: Iterable[Any] = connection.execute(query).all()
    for id_, state, expires, started, finished, trained, policy, number in rows:
        numbers = (*found[id_].rounds, number) if id_ in found else (number,)
        found[id_] = RunOutline(id_, _state(state, trained), numbers, expires, started, finished, trained, policy)
    return list(found.values())


def specs(connection: Connection, run_ids: Sequence[int]) -> dict[int, RunSpec]:
    """The specifications of the existing runs with these ids, in the order of the ids."""
    found: dict[int, str] = {}
    for chunk in in_parts(run_ids):
        rows = connection.execute(select(runs.c.id, runs.c.spec).where(runs.c.id.in_(chunk)))
        found |= {row.id: row.spec for row in rows}
    return {id_: RunSpec.from_mapping(json.loads(found[id_])) for id_ in run_ids if id_ in found}


def one(connection: Connection, run_id: int) -> WholeRun:
    """One run, with the episodes it is trained on."""
    found = _rows(connection.execute(_ONE, {"run": run_id}), None)
    if not found:
        raise missing(run_id)
    values = {name: getattr(found[0], name) for name in _FIELDS}
    return WholeRun(**values, spec=specs(connection, [run_id])[run_id])


def digests(connection: Connection, study: int, index: int) -> set[str]:
    """The digests of a round's runs."""
    here = placements.c.round_id == studies.round_id(connection, study, index)
    return set(connection.execute(select(runs.c.digest).select_from(_PLACED).where(here)).scalars())


def find(connection: Connection, study: int, reference: str) -> list[int]:
    """Ids of the study's runs that match an id, or the first four or more characters of a digest."""
    own = select(runs.c.id).where(runs.c.study_id == study)
    if reference.isascii() and reference.isdigit() and len(reference) < 10:
        found = connection.execute(own.where(runs.c.id == int(reference))).scalars().all()
        if found and str(found[0]) == reference:
            return list(found)
    if len(reference) < _SHORTEST_DIGEST:
        return []
    return list(connection.execute(own.where(runs.c.digest.startswith(reference, autoescape=True))).scalars())


def read(connection: Connection, condition: ColumnElement[bool], index: int | None = None) -> list[RunRow]:
    """Snapshots of the runs that meet `condition`, first placed first; demos and position as round `index` has them."""
    return _rows(connection.execute(_query(condition)).all(), index)


def _query(condition: ColumnElement[bool]) -> Select[Any]:
    """One row per run and round, with counts of what was measured."""
    chosen = select(runs.c.id).where(condition)
    sums = (
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
    return (
        select(*(column for column in runs.c if column.name != "spec"))
        .add_columns(rounds.c.number, placements.c.position, placements.c.demos)
        .add_columns(sums.c.count.label("trials"), sums.c.mean, means.c.count.label("scores"))
        .select_from(_PLACED.outerjoin(sums, sums.c.run_id == runs.c.id).outerjoin(means, means.c.run_id == runs.c.id))
        .where(condition)
        .order_by(runs.c.latest_round.desc(), runs.c.latest_position, rounds.c.number)
    )


_ONE = _query(runs.c.id == bindparam("run"))  # built once: building takes longer than running it


def _rows(found: Iterable[Row[Any]], index: int | None) -> list[RunRow]:
    places: dict[int, list[Row[Any]]] = {}
    for row in found:
        places.setdefault(row.id, []).append(row)
    parsed = cache(json.loads)  # few settings and training sets are shared by many runs
    return [_run_row(rows, index, parsed) for rows in places.values()]


def last_workers(connection: Connection, run_ids: Sequence[int]) -> dict[int, str]:
    """The worker of the last finished attempt at each of these runs, if it had one."""
    found: dict[int, str] = {}
    for chunk in in_parts(run_ids):
        query = select(attempts.c.run_id, attempts.c.worker).where(attempts.c.run_id.in_(chunk))
        rows = connection.execute(query.where(attempts.c.worker.is_not(None)).order_by(attempts.c.number))
        found |= {row.run_id: row.worker for row in rows}
    return found


def earlier_work(connection: Connection, study: int) -> dict[int, float]:
    """Seconds that workers spent on runs before the latest attempt, by run id.

    For a pending run, the latest attempt counts too. Failed attempts do not count.
    """
    waits = and_(runs.c.state == "pending", runs.c.trained.is_(None))
    query = (
        select(attempts.c.run_id, func.sum(attempts.c.ended - attempts.c.started))
        .join(runs, runs.c.id == attempts.c.run_id)
        .where(runs.c.study_id == study, attempts.c.worker.is_not(None), attempts.c.outcome.in_(("released", "lost")))
        .where(or_(waits, attempts.c.started < runs.c.started))
        .group_by(attempts.c.run_id)
    )
    return {run_id: float(seconds) for run_id, seconds in connection.execute(query)}


def attempts_of(connection: Connection, run_id: int) -> list[AttemptRow]:
    """The run's finished attempts, oldest first."""
    require(connection, run_id)
    query = select(attempts).where(attempts.c.run_id == run_id).order_by(attempts.c.number)
    return [
        AttemptRow(row.number, row.worker, row.started, row.ended, row.outcome, row.error)
        for row in connection.execute(query)
    ]


def rows_by_run(
    connection: Connection, study: int, table: Table, run_ids: Sequence[int] | None = None
) -> dict[int, list[Row[Any]]]:
    """Rows of a table by run id, oldest first: for all runs of the study, or for some runs."""
    found: dict[int, list[Row[Any]]] = {}
    for ids in [select(runs.c.id).where(runs.c.study_id == study)] if run_ids is None else in_parts(run_ids):
        for row in connection.execute(select(table).where(table.c.run_id.in_(ids)).order_by(table.c.id)):
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


def in_parts(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Parts of a long list, each short enough for one statement."""
    return (values[start : start + _VALUES_PER_QUERY] for start in range(0, len(values), _VALUES_PER_QUERY))


def _ids_by_digest(connection: Connection, study: int) -> dict[str, int]:
    query = select(runs.c.digest, runs.c.id).where(runs.c.study_id == study)
    return {row.digest: row.id for row in connection.execute(query)}


def _positions(connection: Connection, round_id: int, members: Iterable[tuple[int | None, str]]) -> dict[str, int]:
    """Positions by digest for runs that are not in the round yet: after the existing ones."""
    query = select(placements.c.run_id, placements.c.position).where(placements.c.round_id == round_id)
    placed = {row.run_id: row.position for row in connection.execute(query)}
    following = max(placed.values(), default=-1) + 1
    return {digest: following + n for n, digest in enumerate(d for id_, d in members if id_ not in placed)}


def _new_run(now: float, study: int, index: int, position: int, run: PlannedRun) -> dict[str, Any]:
    return {"study_id": study, "state": "pending", "attempts": 0, "created": now} | spec_values(
        run.spec, index, position
    )


def spec_values(spec: RunSpec, latest_round: int, latest_position: int) -> dict[str, Any]:
    """Values of the table for a run's spec and its position in its latest round."""
    return {
        "digest": spec.digest,
        "spec": to_json(spec.to_mapping(), "a run"),
        "seed": str(spec.seed),
        "settings": to_json(spec.settings, "a run"),
        "latest_round": latest_round,
        "latest_position": latest_position,
    }


def _set_latest(connection: Connection, run_id: int) -> None:
    query = (
        select(rounds.c.number, placements.c.position)
        .join(placements, placements.c.round_id == rounds.c.id)
        .where(placements.c.run_id == run_id)
        .order_by(rounds.c.number.desc())
    )
    number, position = connection.execute(query).first() or (0, 0)
    values = {"latest_round": number, "latest_position": position}
    connection.execute(update(runs).where(runs.c.id == run_id).values(values))


def _demos(run: PlannedRun | RunRow) -> str:
    for factor, count in run.demos.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise InvalidInput(f"demos must be whole numbers, not {count!r}", where=f"demos.{factor}")
    return to_json(dict(run.demos), "demos")


def _state(state: State, trained: float | None) -> State:
    return "trained" if state == "pending" and trained is not None else state


def _run_row(places: list[Row[Any]], index: int | None, parsed: Callable[[str], Any]) -> RunRow:
    """One run from its rows, one per round it is in, oldest round first."""
    asked = [place for place in places if place.number == index]
    row, newest = (asked[0], asked[0]) if asked else (places[0], places[-1])
    values = {name: row._mapping[name] for name in _FIELDS if name != "rounds"}
    values |= {"state": _state(row.state, row.trained), "seed": int(row.seed), "settings": parsed(row.settings)}
    values |= {"demos": parsed(newest.demos), "trials": row.trials or 0, "scores": row.scores or 0}
    return RunRow(**values, rounds=tuple(place.number for place in places))
