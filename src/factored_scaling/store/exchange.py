"""Export a whole study as plain data, and import it again."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Row, Table, insert, select
from sqlalchemy.exc import IntegrityError

from factored_scaling.core.checks import shown
from factored_scaling.core.design import RunSpec
from factored_scaling.core.trials import Measurement, Trial
from factored_scaling.errors import FscError, InvalidInput
from factored_scaling.store import studies
from factored_scaling.store.format import (
    ATTEMPT,
    DOCUMENT,
    ENTRY,
    EVALUATION,
    PLACE,
    QUEUED,
    ROUND,
    RUN,
    SCORE,
    TOP,
    TRIAL,
    WHOLE_RUN,
    Check,
    Values,
    checked,
)
from factored_scaling.store.results import score_values, trial_values
from factored_scaling.store.runs import rows_by_run, spec_values
from factored_scaling.store.schema import (
    attempts,
    documents,
    entries,
    evaluations,
    placements,
    queue,
    rounds,
    runs,
    scores,
    trials,
)
from factored_scaling.store.schema import studies as studies_table

FORMAT = "factored-scaling study"
VERSION = 1
CLAIM_SECONDS = 1800.0  # length of a claim if the export does not have it
_ROWS_PER_INSERT = 5000


def dump(connection: Connection, study: int) -> dict[str, Any]:
    """Everything about one study. Runs are named by their digests, because their ids belong to the database."""
    studies.require(connection, study)
    header = connection.execute(select(studies_table).where(studies_table.c.id == study)).one()
    ended, run_trials, run_scores = (rows_by_run(connection, study, table) for table in (attempts, trials, scores))
    placed = _places(connection, study)
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": header.name,
        "created": header.created,
        "rounds": [
            {
                "spec": json.loads(row.spec),
                "dataset": json.loads(row.dataset),
                "order": None if row.collected is None else json.loads(row.collected),
                "created": row.created,
            }
            for row in connection.execute(select(rounds).where(rounds.c.study_id == study).order_by(rounds.c.number))
        ],
        "runs": [
            {
                "digest": row.digest,
                "spec": json.loads(row.spec),
                **{field: row._mapping[field] for field in RUN},
                "placements": placed.get(row.id, []),
                "history": [_some(one, ATTEMPT) for one in ended.get(row.id, [])],
                "trials": [_some(one, TRIAL) for one in run_trials.get(row.id, [])],
                "scores": [_some(one, SCORE) for one in run_scores.get(row.id, [])],
            }
            for row in connection.execute(select(runs).where(runs.c.study_id == study).order_by(runs.c.id))
        ],
        "documents": [
            {"kind": row.kind, "key": row.key, "body": json.loads(row.body), "created": row.created}
            for row in connection.execute(
                select(documents).where(documents.c.study_id == study).order_by(documents.c.id)
            )
        ],
        "evaluations": _evaluations(connection, study),
    }


def load(
    connection: Connection,
    data: Mapping[str, Any],
    name: str | None,
    check: Callable[[Mapping[str, Any]], None] = lambda data: None,
) -> int:
    """Recreate a study from the data of `dump`. Nothing is stored unless all parts are valid, also by `check`."""
    # older exports, from before scoring by people, lack it
    top = checked({"evaluations": [], **data} if isinstance(data, Mapping) else data, TOP, "the export")
    if (top["format"], top["version"]) != (FORMAT, VERSION):
        raise InvalidInput(f"not an export of version {VERSION}", where="format", hint="make it with `fsc export`")
    study = studies.create(connection, top["created"], _free_name(connection, top["name"]) if name is None else name)
    try:
        round_ids = [
            _load_round(connection, study, index, row, f"rounds[{index}]") for index, row in enumerate(top["rounds"])
        ]
        if not round_ids:
            raise InvalidInput("a study has at least one round", where="rounds")
        for index, row in enumerate(top["runs"]):
            _load_run(connection, study, round_ids, row, f"runs[{index}]")
        for index, row in enumerate(top["evaluations"]):
            _load_evaluation(connection, study, index + 1, row, f"evaluations[{index}]")
        rows = [checked(row, DOCUMENT, f"documents[{index}]") for index, row in enumerate(top["documents"])]
        _insert(connection, documents, ({**row, "study_id": study} for row in rows))
        check(top)
    except IntegrityError:
        raise InvalidInput("the export names a run, trial, score or place twice", hint="export it again") from None
    return study


def _load_round(connection: Connection, study: int, index: int, data: Any, where: str) -> int:
    row = checked(data, ROUND, where)
    values = {**row, "collected": row["order"], "study_id": study, "number": index}
    del values["order"]
    return int(connection.execute(insert(rounds).values(values).returning(rounds.c.id)).scalar_one())


def _load_run(connection: Connection, study: int, round_ids: list[int], data: Any, where: str) -> None:
    # earlier exports lack newer fields: waiting for trials, the length of leases, policies
    later = dict.fromkeys(("trained", "lease_seconds", "policy"))
    run = checked({**later, **data} if isinstance(data, Mapping) else data, WHOLE_RUN, where)
    spec: RunSpec = run["spec"]
    if spec.digest != run["digest"]:
        raise InvalidInput(f"the spec's digest is {spec.digest}, not {shown(run['digest'])}", where=f"{where}.digest")
    if (run["state"] == "running") != (run["lease_expires"] is not None):
        raise InvalidInput("a run has a lease exactly while it is running", where=f"{where}.lease_expires")
    if run["state"] == "running" and run["lease_seconds"] is None:
        run["lease_seconds"] = max(run["lease_expires"] - (run["started"] or 0.0), 0.0)
    if not run["placements"]:
        raise InvalidInput("a run belongs to at least one round", where=f"{where}.placements")
    places = [checked(row, PLACE, f"{where}.placements[{index}]") for index, row in enumerate(run["placements"])]
    latest = max(places, key=lambda place: int(place["round"]))
    own = {field: run[field] for field in RUN} | spec_values(spec, latest["round"], latest["position"])
    run_id = int(connection.execute(insert(runs).values(**own, study_id=study).returning(runs.c.id)).scalar_one())
    for place in places:
        number = place.pop("round")
        if number >= len(round_ids):
            raise InvalidInput(f"there is no round {number}", where=f"{where}.placements")
        place["round_id"] = round_ids[number]
    _insert(connection, placements, ({**place, "run_id": run_id} for place in places))
    parts: list[tuple[str, Table, Mapping[str, Check]]] = [
        ("history", attempts, ATTEMPT),
        ("trials", trials, TRIAL),
        ("scores", scores, SCORE),
    ]
    for part, table, checks in parts:
        rows = (_part(part, row, checks, f"{where}.{part}[{index}]") for index, row in enumerate(run[part]))
        _insert(connection, table, ({**row, "run_id": run_id} for row in rows))


def _load_evaluation(connection: Connection, study: int, number: int, data: Any, where: str) -> None:
    row = checked(data, EVALUATION, where)
    by_digest = {run.digest: run.id for run in connection.execute(select(runs).where(runs.c.study_id == study))}
    queued = row.pop("queue")
    values = {**row, "study_id": study, "number": number}
    made = connection.execute(insert(evaluations).values(values).returning(evaluations.c.id))
    evaluation = int(made.scalar_one())
    for position, entry in enumerate(queued):
        place = f"{where}.queue[{position}]"
        trial = checked({"claim_seconds": None, **entry} if isinstance(entry, Mapping) else entry, QUEUED, place)
        if trial["claim_expires"] is not None and trial["claim_seconds"] is None:
            trial["claim_seconds"] = CLAIM_SECONDS
        digest, rows = trial.pop("run"), trial.pop("entries")
        if digest not in by_digest:
            raise InvalidInput(f"there is no run {shown(digest)}", where=f"{place}.run")
        given = [checked(one, ENTRY, f"{place}.entries[{index}]") for index, one in enumerate(rows)]
        for one in given:
            if (one["kind"] == "score") != (one["score"] is not None):
                raise InvalidInput("an entry has a score exactly if it scores", where=f"{place}.entries")
        own = {**trial, "run_id": by_digest[digest], "position": position, "evaluation_id": evaluation}
        deciding = [one for one in given if one["kind"] != "note"]
        if deciding and trial["state"] != "open":
            own |= {"score": deciding[-1]["score"], "told": deciding[-1]["created"]}
        queue_id = int(connection.execute(insert(queue).values(own).returning(queue.c.id)).scalar_one())
        _insert(connection, entries, ({**one, "evaluation_id": evaluation, "queue_id": queue_id} for one in given))


def _part(part: str, data: Any, checks: Mapping[str, Check], where: str) -> Values:
    later = {"attempt": None} if part == "trials" else {}
    row = checked({**later, **data} if isinstance(data, Mapping) else data, checks, where)
    try:
        return _measured(part, row)
    except FscError as error:
        raise error.at(where) from None


def _measured(part: str, row: Values) -> Values:
    """Trials and scores of a run, checked by their value classes."""
    if part == "trials":
        trial = Trial(row["key"], row["score"], tuple(row["factor"]), row["setting"], row["note"])
        return {**trial_values(trial), "created": row["created"], "attempt": row["attempt"]}
    if part == "scores":
        mean = Measurement(row["score"], row["trials"], tuple(row["factor"]), row["source"])
        return {**score_values(mean), "created": row["created"]}
    return row


def _insert(connection: Connection, table: Table, rows: Iterable[Values]) -> None:
    waiting = iter(rows)
    while chunk := list(itertools.islice(waiting, _ROWS_PER_INSERT)):
        connection.execute(insert(table), chunk)


def _places(connection: Connection, study: int) -> dict[int, list[Values]]:
    query = (
        select(placements, rounds.c.number)
        .join(rounds, rounds.c.id == placements.c.round_id)
        .where(rounds.c.study_id == study)
        .order_by(rounds.c.number, placements.c.position)
    )
    found: dict[int, list[Values]] = {}
    for row in connection.execute(query):
        place = {"round": row.number, "position": row.position, "demos": json.loads(row.demos)}
        found.setdefault(row.run_id, []).append(place)
    return found


def _evaluations(connection: Connection, study: int) -> list[Values]:
    """Evaluations with their queues; each trial holds its entries."""
    here = select(evaluations.c.id).where(evaluations.c.study_id == study)
    said: dict[int, list[Values]] = {}
    for row in connection.execute(select(entries).where(entries.c.evaluation_id.in_(here)).order_by(entries.c.id)):
        said.setdefault(row.queue_id, []).append({field: row._mapping[field] for field in ENTRY})
    query = select(queue, runs.c.digest.label("run")).join(runs, runs.c.id == queue.c.run_id)
    waiting: dict[int, list[Values]] = {}
    for row in connection.execute(query.where(queue.c.evaluation_id.in_(here)).order_by(queue.c.position)):
        trial = {field: row._mapping[field] for field in QUEUED if field != "entries"}
        trial |= {"condition": json.loads(row.condition), "entries": said.get(row.id, [])}
        waiting.setdefault(row.evaluation_id, []).append(trial)
    found = connection.execute(
        select(evaluations).where(evaluations.c.study_id == study).order_by(evaluations.c.number)
    )
    return [
        {
            **{field: row._mapping[field] for field in EVALUATION if field != "queue"},
            "rubric": json.loads(row.rubric),
            "queue": waiting.get(row.id, []),
        }
        for row in found
    ]


def _some(row: Row[Any], checks: Mapping[str, Check]) -> Values:
    values = row._mapping
    return {field: json.loads(values[field]) if field == "factor" else values[field] for field in checks}


def _free_name(connection: Connection, name: str) -> str:
    taken = {row.name for row in studies.every(connection)}
    candidates = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(candidate for candidate in candidates if candidate not in taken)
