"""The queue against a model of it, through long random days: whatever operators do, every trial is where it belongs."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from factored_scaling.core.conditions import Condition, ScoringSpec
from factored_scaling.core.dataset import Dataset
from factored_scaling.core.design import plan
from factored_scaling.core.rubric import RUBRICS
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trial_queue import plan_queue
from factored_scaling.errors import InvalidInput, TrialTaken
from factored_scaling.store import Entry, Store

OPERATORS = st.sampled_from(["ada", "grace", "hedy"])
PLACES = st.integers(0, 5)
SCORES = st.sampled_from([0.0, 0.25, 0.5, 1.0])
SCORING = ScoringSpec(RUBRICS["fold-towel"], (Condition((("light", "dim"),)),), repeats=2)
CLAIM = 60.0


class Day(RuleBasedStateMachine):
    """Three policies, two trials each. The model: a state and a score per trial, and who holds what until when."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.now = 1000.0
        self.store = Store.open(Path(self.folder.name) / "study.db", clock=lambda: self.now)
        self.sent: list[tuple[str, Entry]] = []
        self.closed = False

    @initialize()
    def begin(self) -> None:
        spec = StudySpec({"light": 4, "camera": 4}, construction="one", points=2)
        data = Dataset.of_sizes(spec.sizes)
        study = self.store.create_study("day", spec, data)
        self.runs = self.store.add_runs(study, 0, plan(spec, data))
        planned = plan_queue(len(self.runs), SCORING, 0)
        self.id = self.store.add_evaluation(study, self.runs, planned, SCORING.rubric, None, 0)
        self.codes = [trial.code for trial in planned]
        self.states: dict[str, tuple[str, float | None]] = dict.fromkeys(self.codes, ("open", None))
        self.claims: dict[str, tuple[str, float]] = {}

    def holder(self, code: str) -> str | None:
        operator, until = self.claims.get(code, ("", 0.0))
        return operator if until > self.now and self.states[code][0] == "open" else None

    def send(self, code: str, entry: Entry, allowed: bool) -> bool:
        """Send an entry; it must be taken exactly if the model allows it."""
        if allowed and not self.closed:
            assert self.store.append_entries(self.id, [(code, entry)], CLAIM) == 1
            self.sent.append((code, entry))
            return True
        with pytest.raises(TrialTaken):
            self.store.append_entries(self.id, [(code, entry)], CLAIM)
        return False

    def token(self) -> str:
        return f"entry {len(self.sent)} at {self.now}"

    @rule(operator=OPERATORS)
    def ask(self, operator: str) -> None:
        mine = [code for code in self.codes if self.holder(code) == operator]
        free = [c for c in self.codes if self.states[c][0] == "open" and self.holder(c) is None]
        expected = None if self.closed else next(iter(mine or free), None)
        trial = self.store.claim_trial(self.id, operator, CLAIM)
        assert (trial.code if trial else None) == expected
        if trial is not None:
            self.claims[trial.code] = (operator, self.now + CLAIM)

    @rule(operator=OPERATORS, place=PLACES, score=SCORES)
    def score(self, operator: str, place: int, score: float) -> None:
        code = self.codes[place]
        allowed = self.states[code][0] == "open" and self.holder(code) in (None, operator)
        if self.send(code, Entry("score", self.token(), operator, score), allowed):
            self.states[code] = ("scored", score)

    @rule(operator=OPERATORS, score=SCORES)
    def score_and_go_on(self, operator: str, score: float) -> None:
        """As the scoring page does: the next trial is claimed with the score."""
        held = [code for code in self.codes if self.holder(code) == operator]
        if not held or self.closed:
            return
        entry = Entry("score", self.token(), operator, score)
        assert self.store.append_entries(self.id, [(held[0], entry)], CLAIM, next_for=operator) == 1
        self.sent.append((held[0], entry))
        self.states[held[0]] = ("scored", score)
        free = [c for c in self.codes if self.states[c][0] == "open" and self.holder(c) is None]
        following = next(iter(held[1:] or free), None)
        if following is not None:
            self.claims[following] = (operator, self.now + CLAIM)

    @rule(operator=OPERATORS, place=PLACES)
    def skip(self, operator: str, place: int) -> None:
        code = self.codes[place]
        allowed = self.states[code][0] == "open" and self.holder(code) in (None, operator)
        if self.send(code, Entry("skip", self.token(), operator), allowed):
            self.states[code] = ("skipped", None)

    @rule(operator=OPERATORS, place=PLACES)
    def undo(self, operator: str, place: int) -> None:
        code = self.codes[place]
        if self.send(code, Entry("undo", self.token(), operator), self.states[code][0] != "open"):
            self.states[code] = ("open", None)
            self.claims[code] = (operator, self.now + CLAIM)

    @rule(operator=OPERATORS, place=PLACES)
    def note(self, operator: str, place: int) -> None:
        self.send(self.codes[place], Entry("note", self.token(), operator, note="hm"), True)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def resend(self, data: st.DataObject) -> None:
        assert self.store.append_entries(self.id, [data.draw(st.sampled_from(self.sent))], CLAIM) == 0

    @rule(operator=OPERATORS)
    def give_back(self, operator: str) -> None:
        mine = [code for code in self.codes if self.holder(code) == operator]
        assert self.store.unclaim_trials(self.id, operator) == len(mine)
        for code in mine:
            del self.claims[code]

    @rule(seconds=st.sampled_from([1.0, 30.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(early=st.booleans())
    def close(self, early: bool) -> None:
        scored = sum(state == "scored" for state, _ in self.states.values())
        complete = all(state != "open" for state, _ in self.states.values())
        if self.closed:
            assert self.store.close_evaluation(self.id, early) == 0
        elif early or (scored and complete):
            assert self.store.close_evaluation(self.id, early) == scored
            self.closed = True
        else:
            with pytest.raises(InvalidInput):
                self.store.close_evaluation(self.id, early)

    @invariant()
    def the_queue_is_what_the_model_says(self) -> None:
        if not hasattr(self, "codes"):
            return
        queue = self.store.queue(self.id)
        assert {trial.code: (trial.state, trial.score) for trial in queue} == self.states
        assert {trial.code: trial.operator for trial in queue if trial.claimed} == {
            code: holder for code in self.codes if (holder := self.holder(code)) is not None
        }
        assert [(row.code, row.entry) for row in self.store.entries(self.id)] == self.sent
        scores = sorted(trial.score for run in self.runs for trial in self.store.trials(run))
        assert scores == (sorted(s for _, s in self.states.values() if s is not None) if self.closed else [])

    @invariant()
    def a_summary_says_of_every_operator_what_the_queue_does(self) -> None:
        if not hasattr(self, "codes"):
            return
        queue = self.store.queue(self.id)
        for operator in ("ada", "grace", "hedy", ""):
            found = self.store.queue_summary(self.id, operator, recent=4)
            mine = [trial for trial in queue if trial.operator == operator]
            told = [trial for trial in mine if trial.told is not None]
            assert found.closed == self.closed
            assert (found.open, found.scored, found.skipped) == tuple(
                sum(trial.state == state for trial in queue) for state in ("open", "scored", "skipped")
            )
            assert found.claimed == sum(trial.claimed for trial in queue)
            assert found.levels == Counter(trial.score for trial in queue if trial.score is not None)
            assert found.recent == tuple(sorted((t.told for t in queue if t.told is not None), reverse=True)[:4])
            assert found.mine == sum(trial.state == "scored" for trial in mine)
            assert found.last == max(told, key=lambda trial: (trial.told or 0.0, trial.position), default=None)
            assert found.current == next((trial for trial in mine if trial.claimed), None)

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


TestDay = Day.TestCase
TestDay.settings = settings(max_examples=8, stateful_step_count=40, deadline=None)
