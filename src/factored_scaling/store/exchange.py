"""A whole study as plain data, and back, so that nobody is locked in."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

from sqlalchemy import Connection, RowMapping, Table, insert, select
from sqlalchemy.exc import IntegrityError

from factored_scaling.core.dataset import Dataset, Episode
from factored_scaling.core.design import RunSpec
from factored_scaling.core.rubric import ENDINGS, Rubric
from factored_scaling.core.scores import Trial
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import FscError, InvalidInput
from factored_scaling.store import studies
from factored_scaling.store.results import score_values, trial_values
from factored_scaling.store.rows import (
    LONGEST_NAME,
    MOST_TRIALS,
    EntryKind,
    Measurement,
    Outcome,
    QueueState,
    State,
    checked_text,
    to_json,
)
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
_ROWS_PER_INSERT = 5000
_Values = dict[str, Any]
_Check = Callable[[Any], Any]


def dump(connection: Connection, study: int) -> dict[str, Any]:
    """Everything about one study; runs are known by their digests, since the database's numbers are its own."""
    studies.require(connection, study)
    header = connection.execute(select(studies_table).where(studies_table.c.id == study)).one()
    told_trials, told_scores = _by_run(connection, study, trials), _by_run(connection, study, scores)
    ended, placed = _by_run(connection, study, attempts), _places(connection, study)
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
                **{field: row._mapping[field] for field in _RUN},
                "placements": placed.get(row.id, []),
                "history": [_some(values, _ATTEMPT) for values in ended.get(row.id, [])],
                "trials": [_some(values, _TRIAL) for values in told_trials.get(row.id, [])],
                "scores": [_some(values, _SCORE) for values in told_scores.get(row.id, [])],
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


def load(connection: Connection, data: Mapping[str, Any], name: str | None) -> int:
    """Recreate what `dump` gave; every part is checked first, and nothing is kept when one is wrong."""
    # exports made before people could score say nothing of it
    top = _checked({"evaluations": [], **data} if isinstance(data, Mapping) else data, _TOP, "the export")
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
        fresh = [_checked(row, _DOCUMENT, f"documents[{index}]") for index, row in enumerate(top["documents"])]
        _insert(connection, documents, ({**row, "study_id": study} for row in fresh))
    except IntegrityError:
        raise InvalidInput("the export names a run, trial, score or place twice", hint="export it again") from None
    return study


def _load_round(connection: Connection, study: int, index: int, data: Any, where: str) -> int:
    row = _checked(data, _ROUND, where)
    values = {**row, "collected": row["order"], "study_id": study, "number": index}
    del values["order"]
    return int(connection.execute(insert(rounds).values(values).returning(rounds.c.id)).scalar_one())


def _load_run(connection: Connection, study: int, round_ids: list[int], data: Any, where: str) -> None:
    # exports made before runs could wait for their trials say nothing of it
    run = _checked({"trained": None, **data} if isinstance(data, Mapping) else data, _WHOLE_RUN, where)
    spec: RunSpec = run["spec"]
    if spec.digest != run["digest"]:
        raise InvalidInput(f"the spec's digest is {spec.digest}, not {run['digest']}", where=f"{where}.digest")
    if (run["state"] == "running") != (run["lease_expires"] is not None):
        raise InvalidInput("a run has a lease exactly while it is running", where=f"{where}.lease_expires")
    if not run["placements"]:
        raise InvalidInput("a run belongs to at least one round", where=f"{where}.placements")
    own = {field: run[field] for field in _RUN} | {"spec": to_json(spec.to_mapping(), "a run"), "digest": spec.digest}
    run_id = int(connection.execute(insert(runs).values(**own, study_id=study).returning(runs.c.id)).scalar_one())
    places = [_checked(row, _PLACE, f"{where}.placements[{index}]") for index, row in enumerate(run["placements"])]
    for place in places:
        number = place.pop("round")
        if number >= len(round_ids):
            raise InvalidInput(f"there is no round {number}", where=f"{where}.placements")
        place["round_id"] = round_ids[number]
    _insert(connection, placements, ({**place, "run_id": run_id} for place in places))
    parts: list[tuple[str, Table, Mapping[str, _Check]]] = [
        ("history", attempts, _ATTEMPT),
        ("trials", trials, _TRIAL),
        ("scores", scores, _SCORE),
    ]
    for part, table, checks in parts:
        rows = (_part(part, row, checks, f"{where}.{part}[{index}]") for index, row in enumerate(run[part]))
        _insert(connection, table, ({**row, "run_id": run_id} for row in rows))


def _load_evaluation(connection: Connection, study: int, number: int, data: Any, where: str) -> None:
    row = _checked(data, _EVALUATION, where)
    by_digest = {run.digest: run.id for run in connection.execute(select(runs).where(runs.c.study_id == study))}
    trials_told = row.pop("queue")
    values = {**row, "study_id": study, "number": number}
    made = connection.execute(insert(evaluations).values(values).returning(evaluations.c.id))
    evaluation = int(made.scalar_one())
    for position, entry in enumerate(trials_told):
        place = f"{where}.queue[{position}]"
        trial = _checked(entry, _QUEUED, place)
        digest, said = trial.pop("run"), trial.pop("entries")
        if digest not in by_digest:
            raise InvalidInput(f"there is no run {digest}", where=f"{place}.run")
        own = {**trial, "run_id": by_digest[digest], "position": position, "evaluation_id": evaluation}
        queue_id = int(connection.execute(insert(queue).values(own).returning(queue.c.id)).scalar_one())
        told = [_checked(one, _ENTRY, f"{place}.entries[{index}]") for index, one in enumerate(said)]
        for one in told:
            if (one["kind"] == "score") != (one["score"] is not None):
                raise InvalidInput("an entry has a score exactly if it scores", where=f"{place}.entries")
        _insert(connection, entries, ({**one, "evaluation_id": evaluation, "queue_id": queue_id} for one in told))


def _part(part: str, data: Any, checks: Mapping[str, _Check], where: str) -> _Values:
    row = _checked(data, checks, where)
    try:
        return _measured(part, row)
    except FscError as error:
        raise error.at(where) from None


def _measured(part: str, row: _Values) -> _Values:
    """Trials and scores pass through the values that everything else is told with, and so through their checks."""
    if part == "trials":
        told = Trial(row["key"], row["score"], tuple(row["factor"]), row["setting"], row["note"])
        return {**trial_values(told), "created": row["created"]}
    if part == "scores":
        mean = Measurement(row["score"], row["trials"], tuple(row["factor"]), row["source"])
        return {**score_values(mean), "created": row["created"]}
    return row


def _insert(connection: Connection, table: Table, rows: Iterable[_Values]) -> None:
    waiting = iter(rows)
    while chunk := list(itertools.islice(waiting, _ROWS_PER_INSERT)):
        connection.execute(insert(table), chunk)


def _by_run(connection: Connection, study: int, table: Table) -> dict[int, list[RowMapping]]:
    joined = table.join(runs, runs.c.id == table.c.run_id)
    query = select(table).select_from(joined).where(runs.c.study_id == study).order_by(table.c.id)
    found: dict[int, list[RowMapping]] = {}
    for row in connection.execute(query).mappings():
        found.setdefault(row["run_id"], []).append(row)
    return found


def _places(connection: Connection, study: int) -> dict[int, list[_Values]]:
    query = (
        select(placements, rounds.c.number)
        .join(rounds, rounds.c.id == placements.c.round_id)
        .where(rounds.c.study_id == study)
        .order_by(rounds.c.number, placements.c.position)
    )
    found: dict[int, list[_Values]] = {}
    for row in connection.execute(query):
        place = {"round": row.number, "position": row.position, "demos": json.loads(row.demos)}
        found.setdefault(row.run_id, []).append(place)
    return found


def _evaluations(connection: Connection, study: int) -> list[_Values]:
    """Evaluations with their queues, the entries under the trial they are about."""
    here = select(evaluations.c.id).where(evaluations.c.study_id == study)
    said: dict[int, list[_Values]] = {}
    for row in connection.execute(select(entries).where(entries.c.evaluation_id.in_(here)).order_by(entries.c.id)):
        said.setdefault(row.queue_id, []).append({field: row._mapping[field] for field in _ENTRY})
    query = select(queue, runs.c.digest.label("run")).join(runs, runs.c.id == queue.c.run_id)
    waiting: dict[int, list[_Values]] = {}
    for row in connection.execute(query.where(queue.c.evaluation_id.in_(here)).order_by(queue.c.position)):
        trial = {field: row._mapping[field] for field in _QUEUED if field != "entries"}
        trial |= {"condition": json.loads(row.condition), "entries": said.get(row.id, [])}
        waiting.setdefault(row.evaluation_id, []).append(trial)
    found = connection.execute(
        select(evaluations).where(evaluations.c.study_id == study).order_by(evaluations.c.number)
    )
    return [
        {
            **{field: row._mapping[field] for field in _EVALUATION if field != "queue"},
            "rubric": json.loads(row.rubric),
            "queue": waiting.get(row.id, []),
        }
        for row in found
    ]


def _some(values: RowMapping, checks: Mapping[str, _Check]) -> _Values:
    return {field: json.loads(values[field]) if field == "factor" else values[field] for field in checks}


def _free_name(connection: Connection, name: str) -> str:
    taken = {row.name for row in studies.every(connection)}
    candidates = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(candidate for candidate in candidates if candidate not in taken)


# --- checks: each takes what the export holds and gives what the table keeps, or raises


def _checked(data: Any, checks: Mapping[str, _Check], where: str) -> _Values:
    if not isinstance(data, Mapping) or set(data) != set(checks):
        raise InvalidInput(f"expected the fields {', '.join(checks)}", where=where, hint="make it with `fsc export`")
    values: _Values = {}
    for field, check in checks.items():
        try:
            values[field] = check(data[field])
        except FscError as error:
            raise error.at(f"{where}.{field}") from None
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise InvalidInput(f"cannot be read ({error!r})", where=f"{where}.{field}") from None
    return values


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidInput(f"expected a number, not {value!r}")
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_TRIALS:
        raise InvalidInput(f"expected a whole number, not {value!r}")
    return value


def _text(value: Any) -> str:
    return checked_text(value, "the text")


def _name(value: Any) -> str:
    return checked_text(value, "the name", longest=LONGEST_NAME)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidInput(f"expected a list, not {type(value).__name__}")
    return value


def _names(value: Any) -> list[str]:
    return [_text(name) for name in _list(value)]


def _or_none(check: _Check) -> _Check:
    return lambda value: None if value is None else check(value)


def _one_of(*known: str) -> _Check:
    def check(value: Any) -> str:
        if value not in known:
            raise InvalidInput(f"expected one of {', '.join(known)}, not {value!r}")
        return str(value)

    return check


def _study_spec(value: Any) -> str:
    return to_json(StudySpec.from_mapping(value).to_mapping(), "the spec")


def _dataset(value: Any) -> str:
    dataset = Dataset(tuple(Episode(_text(id_), _or_none(_text)(factor)) for id_, factor in _list(value)))
    return to_json([[episode.id, episode.factor] for episode in dataset.episodes], "the dataset")


def _order(value: Any) -> str | None:
    return None if value is None else to_json(dict(value), "the order")


def _demos(value: Any) -> str:
    return to_json({_text(factor): _whole(count) for factor, count in dict(value).items()}, "demos")


def _rubric(value: Any) -> str:
    return to_json(Rubric.from_mapping(value).to_mapping(), "the rubric")


def _condition(value: Any) -> str:
    return to_json([[_text(name), _text(text)] for name, text in _list(value)], "the condition")


def _share(value: Any) -> float:
    if not 0.0 <= _number(value) <= 1.0:
        raise InvalidInput(f"a score must lie in [0, 1], not {value!r}")
    return float(value)


def _anything(value: Any) -> Any:
    return value


_TOP: Mapping[str, _Check] = {
    "format": _anything,
    "version": _anything,
    "name": _name,
    "created": _number,
    "rounds": _list,
    "runs": _list,
    "documents": _list,
    "evaluations": _list,
}
_ROUND: Mapping[str, _Check] = {"spec": _study_spec, "dataset": _dataset, "order": _order, "created": _number}
_RUN: Mapping[str, _Check] = {
    "state": _one_of(*(state for state in get_args(State) if state != "trained")),
    "attempts": _whole,
    "worker": _or_none(_name),
    "lease_expires": _or_none(_number),
    "error": _or_none(_text),
    "created": _number,
    "started": _or_none(_number),
    "finished": _or_none(_number),
    "trained": _or_none(_number),
}
_WHOLE_RUN: Mapping[str, _Check] = {
    "digest": _text,
    "spec": RunSpec.from_mapping,
    **_RUN,
    "placements": _list,
    "history": _list,
    "trials": _list,
    "scores": _list,
}
_PLACE: Mapping[str, _Check] = {"round": _whole, "position": _whole, "demos": _demos}
_ATTEMPT: Mapping[str, _Check] = {
    "number": _whole,
    "worker": _or_none(_name),
    "started": _number,
    "ended": _number,
    "outcome": _one_of(*get_args(Outcome)),
    "error": _or_none(_text),
}
_TRIAL: Mapping[str, _Check] = {
    "key": _name,
    "score": _number,
    "factor": _names,
    "setting": _text,
    "note": _text,
    "created": _number,
}
_SCORE: Mapping[str, _Check] = {
    "factor": _names,
    "source": _name,
    "score": _number,
    "trials": _or_none(_whole),
    "created": _number,
}
_DOCUMENT: Mapping[str, _Check] = {
    "kind": _name,
    "key": _name,
    "body": lambda body: to_json(body, "the document"),
    "created": _number,
}
_EVALUATION: Mapping[str, _Check] = {
    "rubric": _rubric,
    "step_limit": _or_none(_whole),
    "seed": _name,
    "created": _number,
    "closed": _or_none(_number),
    "queue": _list,
}
_QUEUED: Mapping[str, _Check] = {
    "code": _name,
    "run": _text,
    "label": _name,
    "condition": _condition,
    "repeat": _whole,
    "state": _one_of(*get_args(QueueState)),
    "operator": _or_none(_name),
    "claim_expires": _or_none(_number),
    "entries": _list,
}
_ENTRY: Mapping[str, _Check] = {
    "token": _name,
    "kind": _one_of(*get_args(EntryKind)),
    "score": _or_none(_share),
    "ending": _one_of("", *ENDINGS),
    "note": _text,
    "operator": _name,
    "created": _number,
}
