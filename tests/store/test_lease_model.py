"""Three workers and a person on one study, in any order, by a clock that jumps: the store agrees with a small model.

Every worker says something else, leases run out, and calls are repeated, also those of workers that lost their run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from factored_scaling.core.dataset import Dataset
from factored_scaling.core.design import PlannedRun, RunSpec
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Trial
from factored_scaling.errors import FscError, InvalidInput, LeaseLost
from factored_scaling.store import Stage, Store
from factored_scaling.study import Study

pytestmark = pytest.mark.slow

RUNS = 2
WORKERS = 3
PERSON = WORKERS  # never asks for a run
ENDS = ["finish", "trained", "fail", "lose", "release", "hand over"]
names = itertools.count()
# most of it happens to one run and between two workers and the person: there they meet
speakers = st.sampled_from([0, 0, 1, 1, 2, PERSON, PERSON])
workers = st.sampled_from([0, 0, 1, 1, 2])
places = st.sampled_from([0, 0, 0, 0, 1])
lengths = st.sampled_from([2.0, 10.0])
stages: Any = st.sampled_from([None, None, "train", "evaluate"])
policies = st.sampled_from([None, "one", "two"])
keys = st.sampled_from([["a"], ["b"], ["a", "b"], ["b", "c"], [], [], []])


class Refused(Exception):
    """What the model expects of a call that fails."""

    def __init__(self, kind: type[FscError]) -> None:
        self.kind = kind


@dataclass(frozen=True)
class Run:
    """What one run should be. `state` is as the table has it: a run that is trained is pending."""

    state: str = "pending"
    trained: bool = False
    attempts: int = 0
    expires: float | None = None
    seconds: float | None = None
    policy: str | None = None
    # key, score and the lease under which it was recorded
    trials: tuple[tuple[str, float, int | None], ...] = ()
    mean: float | None = None
    ended: tuple[str, ...] = ()

    def is_free(self, now: float, stage: str | None) -> bool:
        if stage is not None and (self.policy is None) != (stage == "train"):
            return False
        if self.state == "pending":
            return not self.trained
        if self.state != "running" or self.expires is None or self.seconds is None:
            return False
        return self.expires <= now or self.expires > now + 2 * self.seconds

    def taken(self, now: float, seconds: float) -> Run:
        ended = (*self.ended, "lost") if self.state == "running" else self.ended
        number = self.attempts + 1
        return replace(self, state="running", attempts=number, expires=now + seconds, seconds=seconds, ended=ended)

    def held(self, token: int | None) -> None:
        if token is not None and (token != self.attempts or self.state not in ("running", "done")):
            raise Refused(LeaseLost)

    def with_trials(self, told: list[str], score: float, token: int | None, policy: str | None) -> Run:
        self.held(token)
        run = self
        if policy is not None:
            if token is None:
                raise Refused(InvalidInput)
            if run.state == "running":
                run = run.with_policy(policy)
        known = {key: stored for key, stored, _ in run.trials}
        if any(known.get(key, score) != score for key in told):
            raise Refused(InvalidInput)
        new = tuple((key, score, token) for key in told if key not in known)
        if new and run.state == "done":
            raise Refused(InvalidInput)
        return replace(run, trials=(*run.trials, *new))

    def with_mean(self, mean: float, token: int | None) -> Run:
        self.held(token)
        if self.mean is not None and self.mean != mean:
            raise Refused(InvalidInput)
        if self.mean is None and token is not None and self.state == "done":
            raise Refused(LeaseLost)
        return replace(self, mean=mean)

    def with_end(self, token: int | None, outcome: str) -> Run:
        if token is not None and token != self.attempts:
            raise Refused(LeaseLost)
        if self.state == "done":
            if outcome == "done":
                return self
            raise Refused(InvalidInput)
        if token is not None and self.state != "running":
            raise Refused(LeaseLost)
        if outcome == "released" and self.state != "running":
            raise Refused(InvalidInput)
        if outcome == "done" and not self.trials and self.mean is None:
            raise Refused(InvalidInput)
        state = {"done": "done", "failed": "failed", "released": "pending"}[outcome]
        number = self.attempts + (self.state != "running")
        ended = (*self.ended, outcome)
        return replace(self, state=state, attempts=number, expires=None, seconds=None, ended=ended)

    def with_policy(self, policy: str) -> Run:
        if self.policy == policy:
            return self
        kept = self.trials if self.policy is None else tuple(trial for trial in self.trials if trial[2] is None)
        return replace(self, policy=policy, trials=kept)

    def handed_over(self, token: int, policy: str) -> Run:
        if (self.state, self.policy, self.attempts) == ("pending", policy, token):
            return self
        if self.state != "running" or self.attempts != token:
            raise Refused(LeaseLost)
        return self.with_policy(policy).with_end(token, "released")

    def without_policy(self) -> Run:
        return replace(self, policy=None, trials=tuple(trial for trial in self.trials if trial[2] is None))

    def with_training_over(self, token: int | None) -> Run:
        if self.trained and self.state == "pending" and token in (None, self.attempts):
            return self
        if self.state == "running" or token is not None:
            return replace(self.with_end(token, "released"), trained=True)
        if self.state != "pending":
            raise Refused(InvalidInput)
        return replace(self, trained=True)


@dataclass
class Worker:
    """A process with the study open, and the leases that it believes to hold."""

    study: Study
    score: float
    tokens: dict[int, int] = field(default_factory=dict)

    def token(self, place: int) -> int:
        if place not in self.tokens:
            raise Refused(LeaseLost)
        return self.tokens[place]


class Leases(RuleBasedStateMachine):
    """The store beside its model."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.time = 1_000_000.0
        self.store = Store.open(address, clock=lambda: self.time)
        spec = StudySpec({"light": 1})
        planned = [PlannedRun(RunSpec((), seed=seed), {"light": 1}, ()) for seed in range(RUNS)]
        self.id = self.store.create_study(f"study {next(names)}", spec, Dataset.of_sizes(spec.sizes), planned)
        self.ids = [run.id for run in self.store.runs(self.id)]
        self.runs = [Run() for _ in planned]
        self.workers = [Worker(Study(self.store, self.id), (number + 1) / 10) for number in range(WORKERS + 1)]
        self.last: Callable[[], None] | None = None

    def teardown(self) -> None:
        self.store.close()

    @initialize(seconds=lengths)
    def begin(self, seconds: float) -> None:
        self.take(0, None, seconds)

    # --- the clock

    @rule(seconds=st.sampled_from([1.0, 5.0, 20.0, 20.0, -1.0, -86_400.0]))
    def wait(self, seconds: float) -> None:
        self.time += seconds

    # --- leases

    @rule(number=workers, place=st.sampled_from([None, None, 0, 1]), seconds=lengths, stage=stages)
    def take(self, number: int, place: int | None, seconds: float, stage: Stage | None = None) -> None:
        """Ask for any run, or for one of them; for one that waits for a stage, or for any."""
        study, name = self.workers[number].study, f"worker {number}"
        free = [one for one, run in enumerate(self.runs) if run.is_free(self.time, stage) and place in (None, one)]
        if place is None:
            assert [run.id for run in study.ask(1, name, seconds, stage=stage)] == [self.ids[one] for one in free[:1]]
        elif free:
            assert study.take(self.ids[place], name, seconds, stage=stage).id == self.ids[place]
        else:
            with pytest.raises(LeaseLost):
                study.take(self.ids[place], name, seconds, stage=stage)
        for one in free[:1]:
            self.has_taken(number, one, seconds)

    def has_taken(self, number: int, place: int, seconds: float) -> None:
        self.runs[place] = self.runs[place].taken(self.time, seconds)
        self.workers[number].tokens[place] = self.runs[place].attempts

    @rule(number=speakers, place=places, seconds=lengths)
    def heartbeat(self, number: int, place: int, seconds: float) -> None:
        worker = self.workers[number]

        def expected(run: Run) -> Run:
            if run.state != "running" or run.attempts != worker.token(place):
                raise Refused(LeaseLost)
            return replace(run, expires=self.time + seconds, seconds=seconds)

        self.call(place, expected, lambda run_id: worker.study.heartbeat(run_id, seconds))

    # --- results

    @rule(number=speakers, place=places, told=keys, policy=policies)
    def record(self, number: int, place: int, told: list[str], policy: str | None) -> None:
        worker = self.workers[number]
        trials = [Trial(key, worker.score) for key in told]
        self.call(
            place,
            lambda run: run.with_trials(told, worker.score, worker.tokens.get(place), policy),
            lambda run_id: worker.study.record(run_id, trials, policy),
        )

    @rule(number=speakers, place=places, told=keys, policy=policies)
    def tell(self, number: int, place: int, told: list[str], policy: str | None) -> None:
        """The whole outcome: trials, or else a mean."""
        worker = self.workers[number]
        outcome: Any = [Trial(key, worker.score) for key in told] or worker.score

        def expected(run: Run) -> Run:
            token = worker.tokens.get(place)
            if told or policy is not None:
                run = run.with_trials(told, worker.score, token, policy)
            if not told:
                run = run.with_mean(worker.score, token)
            return run.with_end(token, "done")

        self.call(place, expected, lambda run_id: worker.study.tell(run_id, outcome, policy), worker)

    @rule(number=speakers, place=places, kind=st.sampled_from(ENDS))
    def end(self, number: int, place: int, kind: str) -> None:
        worker = self.workers[number]
        study, token = worker.study, worker.tokens.get
        expected: dict[str, Callable[[Run], Run]] = {
            "finish": lambda run: run.with_end(token(place), "done"),
            "trained": lambda run: run.with_training_over(token(place)),
            "fail": lambda run: run.with_end(token(place), "failed"),
            "lose": lambda run: run.with_end(token(place), "failed").without_policy(),
            "release": lambda run: run.with_end(token(place), "released"),
            "hand over": lambda run: run.handed_over(worker.token(place), "two"),
        }
        actual: dict[str, Callable[[int], object]] = {
            "finish": study.finish,
            "trained": study.trained,
            "fail": lambda run_id: study.fail(run_id, "broke"),
            "lose": lambda run_id: study.fail(run_id, "damaged", trains_anew=True),
            "release": study.release,
            "hand over": lambda run_id: study.hand_over(run_id, "two"),
        }
        self.call(place, expected[kind], actual[kind], worker if kind in ("finish", "trained") else None)

    @rule(place=places)
    def retry(self, place: int) -> None:
        def expected(run: Run) -> Run:
            if run.state != "failed" and not (run.state == "pending" and run.trained):
                raise Refused(InvalidInput)
            return replace(run, state="pending", trained=False)

        self.call(place, expected, self.store.retry)

    # --- repeats

    @precondition(lambda self: self.last is not None)
    @rule(times=st.integers(1, 2))
    def again(self, times: int) -> None:
        assert self.last is not None
        for _ in range(times):
            self.last()

    def call(
        self,
        place: int,
        expected: Callable[[Run], Run],
        actual: Callable[[int], object],
        ending: Worker | None = None,
    ) -> None:
        """Make a call of the store and of the model; one that ends a run lets go of the worker's lease."""

        def both() -> None:
            try:
                after = expected(self.runs[place])
            except Refused as refused:
                with pytest.raises(refused.kind):
                    actual(self.ids[place])
                return
            actual(self.ids[place])
            self.runs[place] = after
            if ending is not None:
                ending.tokens.pop(place, None)

        self.last = both
        both()

    @invariant()
    def the_store_agrees_with_the_model(self) -> None:
        for row, run in zip(self.store.dump(self.id)["runs"], self.runs, strict=True):
            assert (row["state"], row["attempts"]) == (run.state, run.attempts)
            assert (row["lease_expires"], row["lease_seconds"]) == (run.expires, run.seconds)
            assert (row["trained"] is not None, row["policy"]) == (run.trained, run.policy)
            assert tuple((trial["key"], trial["score"], trial["attempt"]) for trial in row["trials"]) == run.trials
            assert [mean["score"] for mean in row["scores"]] == ([] if run.mean is None else [run.mean])
            assert tuple(attempt["outcome"] for attempt in row["history"]) == run.ended


@pytest.mark.timeout(300)
def test_the_store_agrees_with_a_model_of_leases(address: str) -> None:
    machine: Any = lambda: Leases(address)  # noqa: E731
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=50, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
