"""Results of runs: single trials, and scores that arrive as means. Rows are added and never change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

from sqlalchemy import Connection, Row, Table, delete, func, insert, select, update

from factored_scaling.core.trials import Measurement, Tally, Trial
from factored_scaling.errors import InvalidInput
from factored_scaling.store import leases, studies
from factored_scaling.store.leases import lost
from factored_scaling.store.rows import LONGEST_NAME, Document, checked_text, to_json
from factored_scaling.store.runs import in_parts, require, rows_by_run
from factored_scaling.store.schema import runs, scores, trials

_Values = dict[str, Any]
_CORRECTION = "results never change; tell a correction under another name"
_ANEW = "; name a policy that was trained again with `policy=`"


def append_trials(
    connection: Connection,
    now: float,
    run_id: int,
    given: Iterable[Trial],
    token: int | None,
    policy: str | None = None,
) -> int:
    """Store the trials whose keys are new; returns how many."""
    by_name = _by_name((trial_values(trial) for trial in given), ("key",))
    run = _held(connection, run_id, token)
    if policy is not None:
        _name_policy(connection, run, token, policy)
    keys = [key for (key,) in by_name]
    known: list[Row[Any]] = []
    for part in in_parts(keys):
        some = trials.c.key.in_(part)
        known += connection.execute(select(trials).where(trials.c.run_id == run_id, some)).all()
    hint = _CORRECTION if token is None or policy is not None else _CORRECTION + _ANEW
    new = _new_only(by_name, known, ("key",), run_id, hint)
    if new and run.state == "done":
        raise InvalidInput(f"run {run_id} is done and takes no more trials", hint="a new seed is a new run")
    return _insert(connection, trials, [{**values, "attempt": token} for values in new], run_id, now)


def append_scores(
    connection: Connection, now: float, run_id: int, given: Iterable[Measurement], token: int | None
) -> int:
    """Store the measurements whose factor and source are new; returns how many."""
    name = ("factor", "source")
    by_name = _by_name((score_values(measurement) for measurement in given), name)
    run = _held(connection, run_id, token)
    known = connection.execute(select(scores).where(scores.c.run_id == run_id)).all()
    new = _new_only(by_name, known, name, run_id, _CORRECTION)
    if new and token is not None and run.state == "done":
        raise lost(run)  # a person ended the run; only people add further scores
    return _insert(connection, scores, new, run_id, now)


def tell(
    connection: Connection,
    now: float,
    run_id: int,
    given: Iterable[Trial],
    means: Iterable[Measurement],
    token: int | None,
    documents: Iterable[Document],
    waits: bool,
    policy: str | None,
) -> int:
    """Store an attempt's outcome and end it; returns how many trials and measurements were new."""
    run = require(connection, run_id)
    for kind, key, body in documents:  # before the run: a study is always locked before its runs
        studies.put_document(connection, now, run.study_id, kind, key, body)
    listed, measured, new = list(given), list(means), 0
    if listed or policy is not None:
        new += append_trials(connection, now, run_id, listed, token, policy)
    if measured:
        new += append_scores(connection, now, run_id, measured, token)
    if waits:
        leases.set_trained(connection, now, run_id, token)
    else:
        leases.end(connection, now, run_id, token, "done")
    return new


def hand_over(connection: Connection, now: float, run_id: int, token: int, policy: str) -> None:
    """Give the run back with its policy trained: leases of the stage "evaluate" take it, those of "train" do not.

    Trials of a policy of another name are removed, as in `append_trials`. Repeated calls count once.
    """
    run = require(connection, run_id, lock=True)
    if run.state == "pending" and run.policy == policy and run.attempts == token:
        return
    leases.require_lease(run, token)
    _name_policy(connection, run, token, policy)
    leases.end(connection, now, run_id, token, "released")


def fail(connection: Connection, now: float, run_id: int, token: int | None, error: str, trains_anew: bool) -> None:
    """End the attempt in an error. With `trains_anew`, the run loses its policy and the policy's trials."""
    leases.end(connection, now, run_id, token, "failed", error)
    if trains_anew:
        _forget_trials(connection, run_id)
        connection.execute(update(runs).where(runs.c.id == run_id).values(policy=None))


def trials_of(connection: Connection, run_id: int) -> list[Trial]:
    """The run's trials in the order in which they were recorded."""
    require(connection, run_id)
    query = select(trials).where(trials.c.run_id == run_id).order_by(trials.c.id)
    return [
        Trial(row.key, row.score, tuple(json.loads(row.factor)), row.setting, row.note)
        for row in connection.execute(query)
    ]


def tallies(connection: Connection, study: int, run_ids: Sequence[int] | None = None) -> dict[int, list[Tally]]:
    """The number of trials with each score, by run id: for all runs of the study with trials, or for some runs.

    In order of first appearance.
    """
    studies.require(connection, study)
    columns = trials.c.run_id, trials.c.factor, trials.c.score
    counted = select(*columns, func.count().label("count"), func.min(trials.c.id).label("first")).group_by(*columns)
    parts = [select(runs.c.id).where(runs.c.study_id == study)] if run_ids is None else in_parts(run_ids)
    rows = [row for ids in parts for row in connection.execute(counted.where(trials.c.run_id.in_(ids)))]
    factors = cache(lambda text: tuple(json.loads(text)))
    found: dict[int, list[tuple[int, Tally]]] = {}
    for run_id, factor, score, count, first in rows:
        found.setdefault(run_id, []).append((first, Tally(factors(factor), score, count)))
    return {run_id: [one for _, one in sorted(mine)] for run_id, mine in found.items()}


def scores_of(connection: Connection, run_id: int) -> list[Measurement]:
    """The run's measurements in the order in which they were recorded."""
    require(connection, run_id)
    query = select(scores).where(scores.c.run_id == run_id).order_by(scores.c.id)
    return [_measurement(row) for row in connection.execute(query)]


def scores_of_study(
    connection: Connection, study: int, run_ids: Sequence[int] | None = None
) -> dict[int, list[Measurement]]:
    """Measurements by run id: for all runs of the study with measurements, or for some runs."""
    studies.require(connection, study)
    rows = rows_by_run(connection, study, scores, run_ids)
    return {run_id: [_measurement(row) for row in mine] for run_id, mine in rows.items()}


def counts(connection: Connection, study: int) -> tuple[int, int]:
    """The numbers of trials and of means that all runs of the study have together."""
    own = select(runs.c.id).where(runs.c.study_id == study)
    found = [
        connection.execute(select(func.count()).where(table.c.run_id.in_(own))).scalar_one()
        for table in (trials, scores)
    ]
    return int(found[0]), int(found[1])


def _held(connection: Connection, run_id: int, token: int | None) -> Row[Any]:
    """The run, locked. With a token, LeaseLost when the run was taken over; the same results may come again."""
    run = require(connection, run_id, lock=True)
    if token is not None and (token != run.attempts or run.state not in ("running", "done")):
        raise lost(run)
    return run


def _name_policy(connection: Connection, run: Row[Any], token: int | None, policy: str) -> None:
    """Set the policy of the run's trials; trials that workers recorded of another policy are removed."""
    checked_text(policy, "a policy's name", longest=LONGEST_NAME, empty=False)
    if token is None:
        hint = "ask for the run first, or leave the policy out"
        raise InvalidInput("only the worker that holds a run names its policy", where=f"run {run.id}", hint=hint)
    if run.state != "running" or run.policy == policy:
        return
    if run.policy is not None:
        _forget_trials(connection, run.id)
    connection.execute(update(runs).where(runs.c.id == run.id).values(policy=policy))


def _forget_trials(connection: Connection, run_id: int) -> None:
    """Remove the trials that workers recorded; trials entered by hand stay."""
    connection.execute(delete(trials).where(trials.c.run_id == run_id, trials.c.attempt.is_not(None)))


def _by_name(given: Iterable[_Values], name: Sequence[str]) -> dict[tuple[str, ...], _Values]:
    """The values by name; different values under one name are an error."""
    by_name: dict[tuple[str, ...], _Values] = {}
    for values in given:
        label = tuple(values[part] for part in name)
        if by_name.setdefault(label, values) != values:
            raise InvalidInput(f"{_label(label)} is given twice with different contents")
    return by_name


def _new_only(
    by_name: dict[tuple[str, ...], _Values], known: Sequence[Row[Any]], name: Sequence[str], run_id: int, hint: str
) -> list[_Values]:
    """The values that are not stored yet. Values that are stored must be equal."""
    new = dict(by_name)
    for row in known:
        stored = row._mapping
        label = tuple(stored[part] for part in name)
        values = new.pop(label, None)
        if values is None:
            continue
        for field, value in values.items():
            if stored[field] != value:
                raise InvalidInput(
                    f"{_label(label)} is already stored with {field} {stored[field]!r}, not {value!r}",
                    where=f"run {run_id}",
                    hint=hint,
                )
    return list(new.values())


def _insert(connection: Connection, table: Table, new: list[_Values], run_id: int, now: float) -> int:
    if new:
        connection.execute(insert(table), [{**values, "run_id": run_id, "created": now} for values in new])
    return len(new)


def _label(label: tuple[str, ...]) -> str:
    if len(label) == 1:
        return f"trial {label[0]!r}"
    names, source = json.loads(label[0]), label[1]
    return f"the score of {'+'.join(names) or 'the run'} from {source!r}"


def trial_values(trial: Trial) -> _Values:
    """The checked trial as values of its table."""
    return {
        "key": checked_text(trial.key, "a trial's key", longest=LONGEST_NAME),
        "score": float(trial.score),
        "factor": _factor_text(tuple(trial.factor)),
        "setting": checked_text(trial.setting, "a trial's setting"),
        "note": checked_text(trial.note, "a trial's note"),
    }


def score_values(measurement: Measurement) -> _Values:
    """The checked measurement as values of its table."""
    return {
        "factor": _factor_text(tuple(measurement.factor)),
        "source": checked_text(measurement.source, "a score's source", longest=LONGEST_NAME),
        "score": float(measurement.score),
        "trials": measurement.trials,
    }


@lru_cache(maxsize=1024)  # trials name few
def _factor_text(factor: tuple[str, ...]) -> str:
    return checked_text(to_json(list(factor), "a factor"), "the names of the factors", longest=4 * LONGEST_NAME)


def _measurement(row: Row[Any]) -> Measurement:
    return Measurement(row.score, row.trials, tuple(json.loads(row.factor)), row.source)
