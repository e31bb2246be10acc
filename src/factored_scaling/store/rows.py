"""What the store gives back: frozen values, snapshots of the moment they were read."""

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
# what a run that is not finished waits for: a policy, or trials of the policy that a worker trained
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
    """One round of the study. `recommendation` is the one that was followed to get here (None in round 0)."""

    index: int
    spec: StudySpec
    dataset: Dataset
    recommendation: dict[str, Any] | None
    created: float


@dataclass(frozen=True, slots=True)
class RunOutline:
    """How far a run is, as it stood when it was read. Times are seconds since 1970."""

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
    """A run without the list of episodes it is trained on, which is long; `Store.run` reads one whole."""

    digest: str
    seed: int
    # `task`, `policy` and `evaluation` of its spec
    settings: dict[str, Any]
    # demos per factor, as the newest of its rounds (or the round asked for) counts them
    demos: dict[str, int]
    # its place in the first of its rounds (or in the round asked for)
    position: int
    worker: str | None
    # how often it was taken so far
    attempts: int
    # why it failed, while it is failed; earlier errors are in the attempts
    error: str | None
    # trials recorded so far, and their mean
    trials: int
    mean: float | None
    # measurements recorded as means
    scores: int
    created: float

    @property
    def lease_token(self) -> int:
        """Proves that one holds this lease and not an earlier one: the number of the attempt."""
        return self.attempts


@dataclass(frozen=True, slots=True)
class WholeRun(RunRow):
    """A run with all that it is trained on."""

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
    """A JSON document kept with a study."""

    kind: str
    key: str
    body: Any
    created: float


@dataclass(frozen=True, slots=True)
class EvaluationRow:
    """Trials that people score. After `closed` nothing about them changes any more."""

    id: int
    number: int
    rubric: Rubric
    step_limit: int | None
    created: float
    closed: float | None


@dataclass(frozen=True, slots=True)
class QueuedTrial:
    """One trial of the queue as it stood when it was read. `run_id` is what operators must not see."""

    code: str
    position: int
    label: str
    run_id: int
    condition: Condition
    repeat: int
    state: QueueState
    # who claimed it last, or scored or left it out
    operator: str | None
    # whether the operator has it now
    claimed: bool
    # while it is scored
    score: float | None = None
    ending: str = ""
    # remarks with the score or reason, and later ones
    notes: tuple[str, ...] = ()
    # when it was scored or left out
    told: float | None = None
    # whether its last score or skip was undone, and the notes of that, for the operator who undid it
    undone: bool = False
    draft: str = ""

    @property
    def trial(self) -> Trial:
        """The scored trial as results keep it."""
        assert self.score is not None
        note = "; ".join(part for part in (self.ending, *self.notes) if part)
        return Trial(self.code, self.score, self.condition.factor, self.condition.setting, note)


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """How far an evaluation is, and what one operator has to do with it."""

    closed: bool
    # trials by their state; `claimed` are those of the open ones that somebody is running
    open: int
    scored: int
    skipped: int
    claimed: int
    # how many trials had each score
    levels: dict[float, int]
    # when the latest trials were scored or left out, newest first
    recent: tuple[float, ...]
    # how many trials the operator scored, the last that they scored or left out, and the one that they have now
    mine: int
    last: QueuedTrial | None
    current: QueuedTrial | None


@dataclass(frozen=True, slots=True)
class Entry:
    """What somebody says about a queued trial. `token` is the sender's name for it: sent twice, it counts once."""

    kind: EntryKind
    token: str
    operator: str
    score: float | None = None
    ending: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class EntryRow:
    """An entry as it is kept."""

    code: str
    entry: Entry
    created: float


def to_json(value: object, what: str) -> str:
    """Plain data as JSON text; refuses what would not come back equal."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{what} is not plain data ({error})") from None
    return text


def checked_text(value: object, what: str, *, longest: int | None = None, empty: bool = True) -> str:
    """`value` if both databases can keep it as text: no NUL, valid Unicode, not longer than `longest`."""
    if not isinstance(value, str):
        raise InvalidInput(f"{what} must be a text, not {value!r}")
    if not value and not empty:
        raise InvalidInput(f"{what} is empty")
    if longest is not None and len(value) > longest:
        raise InvalidInput(f"{what} has {len(value)} characters, at most {longest} fit", where=value[:40])
    if "\0" in value or (not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value)):
        raise InvalidInput(f"{what} holds a character that cannot be stored", where=repr(value[:40]))
    return value
