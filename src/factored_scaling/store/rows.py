"""Values that the store returns: frozen snapshots of the moment they were read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from factored_scaling.core.conditions import Condition
from factored_scaling.core.dataset import Dataset
from factored_scaling.core.design import RunSpec
from factored_scaling.core.rubric import Rubric
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Trial
from factored_scaling.errors import InvalidInput

# "trained" is kept as pending with the moment at which training was over
State = Literal["pending", "running", "trained", "done", "failed"]
Outcome = Literal["done", "failed", "released", "lost"]
# the stage that an unfinished run waits for
Stage = Literal["train", "evaluate"]
QueueState = Literal["open", "scored", "skipped"]
EntryKind = Literal["score", "skip", "undo", "note"]
Document = tuple[str, str, Any]  # kind, key and body
LONGEST_NAME = 400  # characters; PostgreSQL refuses index entries above some 2,700 bytes


@dataclass(frozen=True, slots=True)
class StudyRow:
    """A study of this store."""

    id: int
    name: str
    created: float


@dataclass(frozen=True, slots=True)
class RoundRow:
    """One round of the study. `recommendation` led to this round (None in round 0)."""

    index: int
    spec: StudySpec
    dataset: Dataset
    recommendation: dict[str, Any] | None
    created: float


@dataclass(frozen=True, slots=True)
class RunOutline:
    """The state of a run when it was read. Times are seconds since 1970."""

    id: int
    state: State
    # the rounds it belongs to, oldest first
    rounds: tuple[int, ...]
    lease_expires: float | None
    started: float | None
    finished: float | None
    # when its policy was ready, for runs that are trained first and measured by people later
    trained: float | None
    # names the policy that a worker trained, once it is handed over to evaluators or its first trials are recorded
    policy: str | None


@dataclass(frozen=True, slots=True)
class RunRow(RunOutline):
    """A run without its list of episodes, which is long; `Store.run` returns a run with it."""

    digest: str
    seed: int
    # `task`, `policy` and `evaluation` of its spec
    settings: dict[str, Any]
    # demos per factor in its newest round (or the requested round)
    demos: dict[str, int]
    # its position in its first round (or the requested round)
    position: int
    worker: str | None
    # attempts so far
    attempts: int
    # the error of a failed run; earlier errors are in the attempts
    error: str | None
    # trials recorded so far, and their mean; None where only means were recorded
    trials: int
    mean: float | None
    # measurements recorded as means
    scores: int
    created: float

    @property
    def lease_token(self) -> int:
        """The number of the attempt; it identifies the current lease."""
        return self.attempts


@dataclass(frozen=True, slots=True)
class WholeRun(RunRow):
    """A run with its list of episodes."""

    spec: RunSpec


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """How one attempt at a run ended."""

    number: int
    worker: str | None
    started: float
    ended: float
    outcome: Outcome
    error: str | None


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A JSON document stored with a study."""

    kind: str
    key: str
    body: Any
    created: float


@dataclass(frozen=True, slots=True)
class EvaluationRow:
    """Trials that people score. They do not change after `closed`."""

    id: int
    number: int
    rubric: Rubric
    step_limit: int | None
    created: float
    closed: float | None


@dataclass(frozen=True, slots=True)
class QueuedTrial:
    """One trial of the queue when it was read. Operators must not see `run_id`."""

    code: str
    position: int
    label: str
    run_id: int
    condition: Condition
    repeat: int
    state: QueueState
    # who claimed, scored or skipped it last
    operator: str | None
    # whether the operator has it now
    claimed: bool
    # while it is scored
    score: float | None = None
    ending: str = ""
    # all notes
    notes: tuple[str, ...] = ()
    # when it was scored or skipped
    told: float | None = None
    # whether its last score or skip was undone, and the notes of that, for the operator who undid it
    undone: bool = False
    draft: str = ""

    @property
    def trial(self) -> Trial:
        """The scored trial as a result."""
        assert self.score is not None
        note = "; ".join(part for part in (self.ending, *self.notes) if part)
        return Trial(self.code, self.score, self.condition.factor, self.condition.setting, note)


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """Progress of an evaluation, in total and for one operator."""

    closed: bool
    # trials by their state; `claimed` are those of the open ones that somebody is running
    open: int
    scored: int
    skipped: int
    claimed: int
    # number of trials with each score
    levels: dict[float, int]
    # when the latest trials were scored or skipped, newest first
    recent: tuple[float, ...]
    # number of trials that the operator scored, their last scored or skipped trial, and their current one
    mine: int
    last: QueuedTrial | None
    current: QueuedTrial | None


@dataclass(frozen=True, slots=True)
class Entry:
    """A score, skip, undo or note for a queued trial. Entries with the same `token` count once."""

    kind: EntryKind
    token: str
    operator: str
    score: float | None = None
    ending: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class EntryRow:
    """A stored entry."""

    code: str
    entry: Entry
    created: float


def to_json(value: object, what: str) -> str:
    """Plain data as JSON text; an error if reading it back would not give equal data."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{what} is not plain data ({error})") from None
    return text


def checked_text(value: object, what: str, *, longest: int | None = None, empty: bool = True) -> str:
    """`value` if both databases can store it as text: no NUL, valid Unicode, at most `longest` characters."""
    if not isinstance(value, str):
        raise InvalidInput(f"{what} must be a text, not {value!r}")
    if not value and not empty:
        raise InvalidInput(f"{what} is empty")
    if longest is not None and len(value) > longest:
        raise InvalidInput(f"{what} has {len(value)} characters, at most {longest} fit", where=value[:40])
    if "\0" in value or (not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value)):
        raise InvalidInput(f"{what} holds a character that cannot be stored", where=repr(value[:40]))
    return value
