"""Fields of an export. Each check converts a value of the export into the value of the table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, get_args

from factored_scaling.core.checks import shown, whole
from factored_scaling.core.dataset import Dataset, Episode
from factored_scaling.core.design import RunSpec
from factored_scaling.core.rubric import ENDINGS, Rubric
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import MOST_TRIALS
from factored_scaling.errors import FscError, InvalidInput
from factored_scaling.store.rows import (
    LONGEST_NAME,
    EntryKind,
    Outcome,
    QueueState,
    State,
    checked_text,
    to_json,
)

Values = dict[str, Any]
Check = Callable[[Any], Any]


def checked(data: Any, checks: Mapping[str, Check], where: str) -> Values:
    """The fields of `data` as values of the table; fields that are not in `checks` are an error."""
    if not isinstance(data, Mapping) or set(data) != set(checks):
        raise InvalidInput(f"expected the fields {', '.join(checks)}", where=where, hint="make it with `fsc export`")
    values: Values = {}
    for field, check in checks.items():
        try:
            values[field] = check(data[field])
        except FscError as error:
            raise error.at(f"{where}.{field}") from None
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
            raise InvalidInput(f"cannot be read ({shown(error)})", where=f"{where}.{field}") from None
    return values


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidInput(f"expected a number, not {shown(value)}")
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_TRIALS:
        raise InvalidInput(f"expected a whole number, not {shown(value)}")
    return value


def _text(value: Any) -> str:
    return checked_text(value, "the text")


def _name(value: Any) -> str:
    return checked_text(value, "the name", longest=LONGEST_NAME)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidInput(f"expected a list, not {shown(value)}")
    return value


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"expected an object, not {shown(value)}")
    return value


def _names(value: Any) -> list[str]:
    return [_text(name) for name in _list(value)]


def _or_none(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _one_of(*known: str) -> Check:
    def check(value: Any) -> str:
        if value not in known:
            raise InvalidInput(f"expected one of {', '.join(known)}, not {shown(value)}")
        return str(value)

    return check


def _study_spec(value: Any) -> str:
    return to_json(StudySpec.from_mapping(value).to_mapping(), "the spec")


def _run_spec(value: Any) -> RunSpec:
    fields = ("episodes", "policy", "evaluation", "seed", "task")
    if not isinstance(value, Mapping) or set(value) != set(fields):
        raise InvalidInput(f"expected the fields {', '.join(fields)}")
    episodes = _names(value["episodes"])
    if len(set(episodes)) < len(episodes):
        raise InvalidInput("an episode is named twice")
    for field in ("policy", "evaluation"):
        if not isinstance(value[field], Mapping):
            raise InvalidInput(f"expected an object under {field}, not {shown(value[field])}")
    whole(value["seed"], "seed")
    _or_none(_text)(value["task"])
    return RunSpec.from_mapping(value)


def _dataset(value: Any) -> str:
    dataset = Dataset(tuple(Episode(_text(id_), _or_none(_text)(factor)) for id_, factor in _list(value)))
    return to_json([[episode.id, episode.factor] for episode in dataset.episodes], "the dataset")


def _recommendation(value: Any) -> str | None:
    return None if value is None else to_json(_object(value), "the recommendation")


def _demos(value: Any) -> str:
    return to_json({_text(factor): _whole(count) for factor, count in _object(value).items()}, "demos")


def _rubric(value: Any) -> str:
    _name(_object(value)["name"])
    return to_json(Rubric.from_mapping(value).to_mapping(), "the rubric")


def _condition(value: Any) -> str:
    return to_json([[_text(name), _text(text)] for name, text in _list(value)], "the condition")


def _share(value: Any) -> float:
    if not 0.0 <= _number(value) <= 1.0:
        raise InvalidInput(f"a score must lie in [0, 1], not {shown(value)}")
    return float(value)


def _anything(value: Any) -> Any:
    return value


TOP: Mapping[str, Check] = {
    "format": _anything,
    "version": _anything,
    "name": _name,
    "created": _number,
    "rounds": _list,
    "runs": _list,
    "documents": _list,
    "evaluations": _list,
}
ROUND: Mapping[str, Check] = {"spec": _study_spec, "dataset": _dataset, "order": _recommendation, "created": _number}
RUN: Mapping[str, Check] = {
    "state": _one_of(*(state for state in get_args(State) if state != "trained")),
    "attempts": _whole,
    "worker": _or_none(_name),
    "lease_expires": _or_none(_number),
    "error": _or_none(_text),
    "created": _number,
    "started": _or_none(_number),
    "finished": _or_none(_number),
    "trained": _or_none(_number),
    "lease_seconds": _or_none(_number),
    "policy": _or_none(_name),
}
WHOLE_RUN: Mapping[str, Check] = {
    "digest": _text,
    "spec": _run_spec,
    **RUN,
    "placements": _list,
    "history": _list,
    "trials": _list,
    "scores": _list,
}
PLACE: Mapping[str, Check] = {"round": _whole, "position": _whole, "demos": _demos}
ATTEMPT: Mapping[str, Check] = {
    "number": _whole,
    "worker": _or_none(_name),
    "started": _number,
    "ended": _number,
    "outcome": _one_of(*get_args(Outcome)),
    "error": _or_none(_text),
}
TRIAL: Mapping[str, Check] = {
    "key": _name,
    "score": _number,
    "factor": _names,
    "setting": _text,
    "note": _text,
    "created": _number,
    "attempt": _or_none(_whole),
}
SCORE: Mapping[str, Check] = {
    "factor": _names,
    "source": _name,
    "score": _number,
    "trials": _or_none(_whole),
    "created": _number,
}
DOCUMENT: Mapping[str, Check] = {
    "kind": _name,
    "key": _name,
    "body": lambda body: to_json(body, "the document"),
    "created": _number,
}
EVALUATION: Mapping[str, Check] = {
    "rubric": _rubric,
    "step_limit": _or_none(_whole),
    "seed": _name,
    "created": _number,
    "closed": _or_none(_number),
    "queue": _list,
}
QUEUED: Mapping[str, Check] = {
    "code": _name,
    "run": _text,
    "label": _name,
    "condition": _condition,
    "repeat": _whole,
    "state": _one_of(*get_args(QueueState)),
    "operator": _or_none(_name),
    "claim_expires": _or_none(_number),
    "claim_seconds": _or_none(_number),
    "entries": _list,
}
ENTRY: Mapping[str, Check] = {
    "token": _name,
    "kind": _one_of(*get_args(EntryKind)),
    "score": _or_none(_share),
    "ending": _one_of("", *ENDINGS),
    "note": _text,
    "operator": _name,
    "created": _number,
}
