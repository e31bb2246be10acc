"""The result file of an external program: a small JSON file, read strictly."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from factored_scaling.backends.protocol import Context
from factored_scaling.backends.steps import Step
from factored_scaling.core.checks import check_keys, real, shown, whole
from factored_scaling.core.design import RunSpec
from factored_scaling.core.trials import Measurement, Trial
from factored_scaling.errors import FscError, InvalidInput, UnknownFactor, UnknownName
from factored_scaling.io.text import read_json
from factored_scaling.progress import Progress

_KEYS = ("policy", "scores", "trials", "metrics", "embeddings")
_TRIAL_KEYS = ("key", "score", "factor", "setting", "note")
CORRECT = "correct the file, or remove its folder to train again, and `fsc run --retry-failed`"
MEASURE = "correct the program; `fsc run --retry-failed` measures again and does not train"
SOURCE = "trainer"  # of measurements that arrive as means


@dataclass(frozen=True)
class Outcome:
    """Measurements, the policy's path, and the program's own metrics."""

    trials: tuple[Trial, ...] = ()
    scores: tuple[Measurement, ...] = ()
    policy: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    # similarities for FSC-Proxy, from embeddings of the program
    similarities: Mapping[str, Any] = field(default_factory=dict)

    @property
    def measured(self) -> bool:
        """Whether there is anything to fit a curve to."""
        return bool(self.trials or self.scores)

    def with_evaluation(self, later: Outcome) -> Outcome:
        """This outcome of training, with the results of a separate evaluation."""
        return Outcome(
            self.trials + later.trials,
            self.scores + later.scores,
            later.policy or self.policy,
            {**self.metrics, **later.metrics},
            later.similarities or self.similarities,
        )


class OutcomeBackend(ABC):
    """Base of backends whose program writes an `Outcome`. Its trials and means are recorded with the run."""

    @abstractmethod
    def outcome(self, run: RunSpec, folder: Path, factors: Sequence[str], progress: Progress) -> Outcome:
        """The outcome of a trained run; without trials and scores it waits for people."""

    def evaluate(self, run: RunSpec, folder: Path, context: Context) -> Iterator[Trial | Measurement]:
        """The program's trials and means; nothing if people measure the policy."""
        outcome = self.outcome(run, folder, context.factors, context)
        context.policy, context.metrics = outcome.policy, outcome.metrics
        context.similarities = outcome.similarities
        yield from outcome.trials
        yield from outcome.scores


def read_outcome(path: Path, factors: Sequence[str], remedy: str = CORRECT) -> Outcome:
    """The file's content; an empty outcome without a file. Errors name the place."""
    if not path.exists():
        return Outcome()
    try:
        return _outcome(read_json(path), factors, path.parent)
    except FscError as error:
        # a finished training is not repeated, even after a change of the program
        error.hint = f"{error.hint}; {remedy}" if error.hint else remedy
        if str(path) in error.where:
            raise
        raise error.at(str(path)) from None


def measured(step: Step, factors: Sequence[str]) -> Outcome:
    """The outcome of an evaluation. Without scores it is an error, and the next attempt evaluates again."""
    try:
        outcome = read_outcome(step.result, factors, MEASURE)
        if not outcome.measured:
            hint = f"the command must write scores or trials to {{result}}; {MEASURE}"
            raise InvalidInput("the evaluation wrote no scores", where=str(step.result), hint=hint)
    except FscError:
        step.forget()
        raise
    return outcome


def _outcome(data: object, factors: Sequence[str], folder: Path) -> Outcome:
    if not isinstance(data, Mapping):
        raise InvalidInput(f"expected an object, not {shown(data)}", hint=f"its keys are {', '.join(_KEYS)}")
    if "score" in data:
        raise UnknownName("score", _KEYS, kind="key", where="score", hint='did you mean scores? Write {"scores": 0.5}')
    check_keys(data, _KEYS, hint="anything of your own belongs in `metrics`")
    policy, metrics = data.get("policy", ""), data.get("metrics", {})
    if not isinstance(policy, str):
        raise InvalidInput(f"expected a path, not {shown(policy)}", where="policy")
    if not isinstance(metrics, Mapping):
        raise InvalidInput(f"expected an object, not {shown(metrics)}", where="metrics")
    _refuse_nan(metrics)
    trials = _trials(data.get("trials", []), factors)
    more, scores = _scores(data.get("scores", {}), factors)
    near = _similarities(folder, data["embeddings"], factors) if "embeddings" in data else {}
    return Outcome(tuple(trials + more), tuple(scores), policy, metrics, near)


def _similarities(folder: Path, name: object, factors: Sequence[str]) -> dict[str, Any]:
    from factored_scaling.backends.embeddings import similarities

    if not isinstance(name, str):
        raise InvalidInput(f"expected a path, not {shown(name)}", where="embeddings")
    try:
        return similarities(folder / name, factors)
    except InvalidInput as error:
        raise error.at(f"embeddings ({name})") from None


def _refuse_nan(metrics: Mapping[str, Any]) -> None:
    try:
        json.dumps(metrics, allow_nan=False)
    except ValueError:
        raise InvalidInput("holds a number that is not finite", where="metrics", hint="write it as a text") from None


def _trials(data: object, factors: Sequence[str]) -> list[Trial]:
    if not isinstance(data, list):
        raise InvalidInput(f"expected a list of trials, not {shown(data)}", where="trials")
    trials = []
    for index, row in enumerate(data):
        where = f"trials[{index}]"
        if not isinstance(row, Mapping):
            raise InvalidInput(f"expected an object, not {shown(row)}", where=where, hint='{"key": …, "score": …}')
        check_keys(row, _TRIAL_KEYS, where)
        for key in ("factor", "setting", "note"):
            if not isinstance(row.get(key, ""), str):
                raise InvalidInput(f"expected a text, not {shown(row[key])}", where=f"{where}.{key}")
        factor = _factor(row.get("factor", ""), factors, where)
        try:
            trials.append(
                Trial(
                    row.get("key", f"trial/{index}"),
                    row.get("score", ""),
                    factor,
                    row.get("setting", ""),
                    row.get("note", ""),
                )
            )
        except InvalidInput as error:
            raise error.at(where) from None
    return trials


def _scores(data: object, factors: Sequence[str]) -> tuple[list[Trial], list[Measurement]]:
    """One score, or one per factor: a mean, a mean with its number of trials, or a list of trials' scores."""
    if not isinstance(data, Mapping) or set(data) & {"mean", "trials"}:
        data = {"": data}
    trials: list[Trial] = []
    scores: list[Measurement] = []
    for name, value in data.items():
        where = f"scores.{name}" if name else "scores"
        factor = _factor(name, factors, where)
        mean = real(value)
        try:
            if mean is not None:
                scores.append(Measurement(mean, None, factor, SOURCE))
            elif isinstance(value, list):
                trials += [Trial(f"{name or 'all'}/{k}", score, factor) for k, score in enumerate(value)]
            elif isinstance(value, Mapping) and set(value) == {"mean", "trials"}:
                count = whole(value["trials"], where, least=1, what="trials")
                scores.append(Measurement(value["mean"], count, factor, SOURCE))
            else:
                hint = 'write 0.6, [1, 0, 1] or {"mean": 0.6, "trials": 40}'
                raise InvalidInput(f"expected a score, not {shown(value)}", hint=hint)
        except InvalidInput as error:
            raise (error if error.where == where else error.at(where)) from None
    return trials, scores


def _factor(name: str, factors: Sequence[str], where: str) -> tuple[str, ...]:
    names = tuple(name.split("+")) if name else ()
    for one in names:
        if one not in factors and names != ("*",):
            hint = "leave trials of the nominal scene out, or keep them in `metrics`" if one == "nominal" else ""
            raise UnknownFactor(one, factors, where=where, hint=hint)
    return names
