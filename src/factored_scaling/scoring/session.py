"""Scoring by people: a blind queue of trials over a study's policies, several operators at once, each trial once."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from factored_scaling.core.conditions import Condition
from factored_scaling.core.rubric import Ending, Rubric
from factored_scaling.core.trial_queue import plan_queue
from factored_scaling.core.trials import Score, Tally, score_of_tallies, summarise
from factored_scaling.errors import InvalidInput, StudyMissing
from factored_scaling.store import Entry, EntryRow, EvaluationRow, QueuedTrial, RunRow
from factored_scaling.store.rows import QueueState
from factored_scaling.study import Study

CLAIM_SECONDS = 30 * 60.0  # longer than any rollout with its set-up; afterwards others can take the trial


@dataclass(frozen=True, slots=True)
class BlindTrial:
    """A queued trial as operators may see it: a scene, an opaque policy label, and its entries."""

    code: str
    # which of the queue's trials this is, from 1
    number: int
    # names the policy without revealing its training set
    label: str
    condition: Condition
    # repeat index of this policy in this condition, from 1
    repeat: int
    state: QueueState
    # who has it now, or scored or skipped it
    operator: str | None
    claimed: bool
    score: float | None
    ending: str
    notes: tuple[str, ...]
    told: float | None
    # whether its last score or skip was undone, and the notes of that, for the operator who undid it
    undone: bool
    draft: str


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an evaluation. `overall` is the mean over all policies together, so it reveals none of them."""

    trials: int
    scored: int
    skipped: int
    # trials that somebody is running now
    claimed: int
    overall: Score | None
    closed: bool

    @property
    def left(self) -> int:
        """Trials still to run."""
        return self.trials - self.scored - self.skipped


@dataclass(frozen=True, slots=True)
class Standing:
    """One policy's scores so far. Not for operators: it says which policy hides behind a label."""

    label: str
    run: RunRow
    trials: int
    scored: int
    score: Score | None


@dataclass(frozen=True, slots=True)
class View:
    """What an operator may see of an evaluation. It reveals nothing about single policies."""

    progress: Progress
    # number of trials they scored, the last scored or skipped one, which they may undo, and their current one
    mine: int
    last: BlindTrial | None
    current: BlindTrial | None
    # when the latest trials of all operators were scored or skipped, newest first
    recent: tuple[float, ...]


class Scoring:
    """One evaluation of a study, trial by trial. Every method is one transaction; several processes may use it at once.

    `token` is a unique name that the sender gives to an entry. An entry that is sent again under the same token counts
    once, so it can be repeated after a lost connection.
    """

    def __init__(self, study: Study, row: EvaluationRow) -> None:
        """Use `begin` or `open`."""
        self.study = study
        self.id = row.id
        self.number = row.number
        self.rubric: Rubric = row.rubric
        self.step_limit = row.step_limit
        self.factors = study.spec.names

    @classmethod
    def begin(cls, study: Study, run_ids: Iterable[int] | None = None, seed: int | None = None) -> Scoring:
        """Queue trials as study.yaml declares them.

        By default for the trained runs of the current round, or for all of its unfinished runs if none is trained. The
        seed determines order, labels and codes. By default it is random, so that labels do not reveal policies.
        """
        if run_ids is None:
            every = study.store.runs(study.id, study.round.index)
            here = [run for run in every if run.state not in ("done", "failed")]
            chosen: Sequence[int] = [run.id for run in here if run.state == "trained"] or [run.id for run in here]
            if not chosen:
                raise InvalidInput("every run of this round is done or failed", hint="`fsc runs STUDY` lists them")
        else:
            chosen = list(dict.fromkeys(run_ids))
        for run in study.store.some_runs(chosen):
            if run.state == "done":
                raise InvalidInput(f"run {run.id} is done and takes no more trials", hint="a new seed is a new run")
        scoring = study.spec.scoring_spec()
        drawn = secrets.randbits(63) if seed is None else seed
        planned = plan_queue(len(chosen), scoring, drawn)
        made = study.store.add_evaluation(study.id, chosen, planned, scoring.rubric, scoring.step_limit, drawn)
        return cls(study, study.store.evaluation(made))

    @classmethod
    def open(cls, study: Study, number: int | None = None) -> Scoring:
        """The evaluation of this number; without one the newest that is not closed, or else the newest."""
        rows = study.store.evaluations(study.id)
        if number is None:
            chosen = [row for row in rows if row.closed is None] or rows
        else:
            chosen = [row for row in rows if row.number == number]
        if not chosen:
            what = "no trials are queued yet" if number is None else f"there is no evaluation {number}"
            raise StudyMissing(what, hint="`fsc sheet evaluate STUDY` queues them")
        return cls(study, chosen[-1])

    # --- for operators

    def next(self, operator: str, seconds: float = CLAIM_SECONDS) -> BlindTrial | None:
        """Claim the next trial for this operator for `seconds`; the same one until it is scored or skipped.

        None when no trial is left for them. Another call extends the claim.
        """
        found = self.study.store.claim_trial(self.id, operator, seconds)
        return None if found is None else _blind(found)

    def score(
        self, code: str, score: float, operator: str, token: str, note: str = "", ending: Ending | None = None
    ) -> BlindTrial:
        """Score a trial by the rubric. An `ending` by step limit or hazard is a failure, whatever was reached."""
        value = 0.0 if ending is not None else self.rubric.level(score).score
        return self._tell(code, Entry("score", token, operator, value, ending or "", note))

    def fail(self, code: str, ending: Ending, operator: str, token: str, note: str = "") -> BlindTrial:
        """The rollout was stopped by the step limit or for a hazard: score 0 with the reason recorded."""
        return self.score(code, 0.0, operator, token, note, ending)

    def skip(self, code: str, operator: str, token: str, note: str = "") -> BlindTrial:
        """Skip the trial because it could not be run."""
        return self._tell(code, Entry("skip", token, operator, None, "", note))

    def undo(self, code: str, operator: str, token: str) -> BlindTrial:
        """Take a score or a skip back; the trial is this operator's again. The entry stays in the history."""
        return self._tell(code, Entry("undo", token, operator))

    def note(self, code: str, note: str, operator: str, token: str) -> BlindTrial:
        """Add a remark to a trial."""
        if not note.strip():
            raise InvalidInput("the note is empty", where=f"trial {code}")
        return self._tell(code, Entry("note", token, operator, None, "", note))

    def release(self, operator: str) -> int:
        """Release this operator's claim; returns the number of released trials."""
        return self.study.store.unclaim_trials(self.id, operator)

    def tell(self, entries: Sequence[tuple[str, Entry]], next_for: str | None = None) -> int:
        """Many entries at once, all or none, as a filled-in sheet has them; returns how many were new.

        The operator `next_for` claims their next trial with it, as `next` does.
        """
        return self.study.store.append_entries(self.id, entries, CLAIM_SECONDS, next_for)

    def last(self, operator: str) -> BlindTrial | None:
        """The trial that this operator scored or skipped last and may undo."""
        return self.view(operator).last

    def view(self, operator: str, recent: int = 0) -> View:
        """Progress of the evaluation for this operator, with the times of the `recent` latest entries."""
        found = self.study.store.queue_summary(self.id, operator, recent)
        progress = Progress(
            trials=found.open + found.scored + found.skipped,
            scored=found.scored,
            skipped=found.skipped,
            claimed=found.claimed,
            overall=score_of_tallies(Tally((), *level) for level in found.levels.items()) if found.levels else None,
            closed=found.closed,
        )
        last, current = (None if trial is None else _blind(trial) for trial in (found.last, found.current))
        return View(progress, found.mine, last, current, found.recent)

    def trials(self) -> list[BlindTrial]:
        """The whole queue in the order to run it."""
        return [_blind(trial) for trial in self.study.store.queue(self.id)]

    def trial(self, code: str) -> BlindTrial:
        """One trial of the queue."""
        return _blind(self.study.store.queued_trial(self.id, code))

    def progress(self) -> Progress:
        """Progress of the evaluation, without results of single policies."""
        return self.view("").progress

    # --- for the person who leads the study

    def outdated(self) -> bool:
        """Whether study.yaml has changed and declares other trials than the queued ones."""
        declared = self.study.spec.scoring_spec()
        queued = {(trial.condition, trial.repeat) for trial in self.study.store.queue(self.id)}
        asked = {(condition, repeat) for condition in declared.conditions for repeat in range(1, declared.repeats + 1)}
        return (declared.rubric, declared.step_limit, asked) != (self.rubric, self.step_limit, queued)

    def standings(self) -> list[Standing]:
        """Every policy with its running mean and interval, in the order to train them. Unblinds."""
        store = self.study.store
        every = store.queue(self.id)
        labels = {trial.run_id: trial.label for trial in every}
        found = []
        for run in self.study.runs():
            if run.id in labels:
                mine = [trial for trial in every if trial.run_id == run.id]
                scores = [trial.score for trial in mine if trial.score is not None]
                score = summarise(scores) if scores else None
                found.append(Standing(labels[run.id], run, len(mine), len(scores), score))
        return found

    def history(self) -> list[EntryRow]:
        """All entries, oldest first, including undone ones."""
        return self.study.store.entries(self.id)

    def close(self, early: bool = False) -> int:
        """Add the scores to the study's runs, which are then done; returns the number of trials.

        Before this, scores can be undone, and `Study.results(partial=True)` already uses them. With `early`, trials
        without a score are left out, and so are scores of runs that were finished otherwise. A queue without any
        score is dropped, and its runs can be queued again.
        """
        return self.study.store.close_evaluation(self.id, early)

    def _tell(self, code: str, entry: Entry) -> BlindTrial:
        self.tell([(code, entry)])
        return self.trial(code)


def _blind(trial: QueuedTrial) -> BlindTrial:
    values = {field.name: getattr(trial, field.name) for field in fields(BlindTrial) if field.name != "number"}
    values["operator"] = trial.operator if trial.claimed or trial.state != "open" else None
    return BlindTrial(**values, number=trial.position + 1)
