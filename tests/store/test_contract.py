"""What every database behind a store must do."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from sqlalchemy import Engine, event

from factored_scaling.core.dataset import Dataset, Episode
from factored_scaling.core.design import PlannedRun, RunSpec, plan
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Trial
from factored_scaling.errors import InvalidInput, LeaseLost, StoreError, StudyMissing
from factored_scaling.store import Measurement, RunRow, Store, WholeRun


def taken(store: Store, study: int, worker: str = "worker", seconds: float = 60.0) -> WholeRun:
    run = store.lease(study, worker, seconds)
    assert run is not None
    return run


class TestStudies:
    def test_a_study_comes_back_as_it_was_declared(self, address: str) -> None:
        spec = StudySpec(
            {"light": 3, "camera": {"demos": 2, "cost": 3.0}}, nominal=1, policy={"width": 8}, task="stack"
        )
        dataset = Dataset((Episode("n"), *(Episode(f"l{i}", "light") for i in range(3)), Episode("c", "camera")))
        with Store.open(address) as store:
            study = store.create_study("towel", spec, dataset)
        with Store.open(address, create=False) as store:
            assert [row.name for row in store.studies()] == ["towel"]
            assert store.study("towel").id == study
            (first,) = store.rounds(study)
        assert (first.index, first.spec, first.dataset, first.recommendation) == (0, spec, dataset, None)
        assert first.spec.names == ("light", "camera")

    def test_a_name_is_given_once(self, store: Store, example: Any) -> None:
        with pytest.raises(InvalidInput, match="already a study 'example'"):
            store.create_study("example", example.spec, example.dataset)
        assert len(store.studies()) == 1

    def test_a_wrong_name_suggests_the_right_one(self, store: Store, example: Any) -> None:
        with pytest.raises(StudyMissing, match="did you mean example"):
            store.study("exmaple")

    def test_a_new_database_is_not_made_unasked(self, address: str) -> None:
        with pytest.raises(StudyMissing, match="no study database here"):
            Store.open(address, create=False)

    def test_times_are_of_today_without_an_injected_clock(self, address: str) -> None:
        with Store.open(address) as store:
            spec = StudySpec({"light": 1})
            store.create_study("today", spec, Dataset.of_sizes(spec.sizes))
            assert store.study("today").created == pytest.approx(time.time(), abs=60)

    def test_a_closed_store_says_so(self, store: Store) -> None:
        store.close()
        with pytest.raises(StoreError, match="closed"):
            store.studies()

    def test_an_unknown_study_or_run_is_an_error(self, store: Store) -> None:
        for method in ("runs", "outline", "rounds", "tallies", "study_scores", "documents", "dump"):
            with pytest.raises(StudyMissing, match="no study with number 41"):
                getattr(store, method)(41)
        for method in ("run", "trials", "scores", "attempts", "retry", "tell", "release"):
            with pytest.raises(StudyMissing, match="no run 41"):
                getattr(store, method)(41)


class TestRounds:
    def test_rounds_are_appended_with_the_order_that_led_to_them(self, store: Store, example: Any) -> None:
        grown = example.spec.with_demos({"light": 2})
        dataset = example.dataset.extended([Episode("more/0", "light"), Episode("more/1", "light")])
        assert store.add_round(example.study, grown, dataset, {"light": 2}, index=1) == 1
        first, second = store.rounds(example.study)
        assert (first.spec, first.dataset) == (example.spec, example.dataset)
        assert (second.index, second.spec, second.dataset, second.recommendation) == (1, grown, dataset, {"light": 2})

    def test_two_who_extend_at_once_do_not_both_succeed(self, store: Store, example: Any) -> None:
        store.add_round(example.study, example.spec, example.dataset, None, index=1)
        with pytest.raises(InvalidInput, match="the next one is round 2"):
            store.add_round(example.study, example.spec, example.dataset, None, index=1)
        assert len(store.rounds(example.study)) == 2

    def test_a_run_of_an_earlier_round_keeps_its_results(self, store: Store, example: Any) -> None:
        run = taken(store, example.study)
        store.append_trials(run.id, [Trial("a", 1.0)], run.lease_token)
        store.tell(run.id, lease_token=run.lease_token)
        store.add_round(example.study, example.spec, example.dataset, None)
        other = PlannedRun(RunSpec(("new",)), {"camera": 1}, ())
        shared = PlannedRun(run.spec, {"camera": 7}, ())
        ids = store.add_runs(example.study, 1, [other, shared])
        assert ids[1] == run.id
        assert len(store.runs(example.study)) == len(example.runs) + 1
        here = store.runs(example.study, 1)
        assert [row.id for row in here] == ids
        assert [(row.position, row.state, row.trials) for row in here] == [(0, "pending", 0), (1, "done", 1)]
        assert here[1].rounds == (0, 1)
        assert here[1].demos == {"camera": 7}
        assert store.runs(example.study, 0)[0].demos == run.demos

    def test_an_unknown_round_is_an_error(self, store: Store, example: Any) -> None:
        with pytest.raises(StudyMissing, match="no round 3"):
            store.runs(example.study, 3)


class TestRuns:
    def test_runs_come_back_in_the_order_to_train_them(self, store: Store, example: Any) -> None:
        planned = plan(example.spec, example.dataset)
        rows = store.runs(example.study)
        assert [row.digest for row in rows] == [run.spec.digest for run in planned]
        assert [row.demos for row in rows] == [run.demos for run in planned]
        assert [list(row.demos) for row in rows] == [list(run.demos) for run in planned]
        assert {(row.state, row.attempts, row.trials, row.mean) for row in rows} == {("pending", 0, 0, None)}
        assert [row.position for row in rows] == list(range(len(planned)))
        whole = store.run(rows[2].id)
        assert vars_of(whole, {}) == vars_of(rows[2], {})
        assert whole.spec.digest == planned[2].spec.digest

    def test_adding_runs_again_adds_nothing(self, store: Store, example: Any) -> None:
        before = store.runs(example.study)
        again = store.add_runs(example.study, 0, list(reversed(plan(example.spec, example.dataset))))
        assert again == list(reversed(example.runs))
        assert store.runs(example.study) == before

    def test_later_runs_of_a_round_follow_those_already_there(self, store: Store, example: Any) -> None:
        (added,) = store.add_runs(example.study, 0, [PlannedRun(RunSpec(("new",), seed=2**40), {"camera": 1}, ())])
        last = store.runs(example.study, 0)[-1]
        assert (last.id, last.position, last.seed) == (added, len(example.runs), 2**40)

    def test_a_planned_run_is_withdrawn_only_while_nothing_came_of_it(self, store: Store, example: Any) -> None:
        runs = store.runs(example.study)
        digests = {run.digest for run in runs}
        measured, told, working, waiting, failed, released = (taken(store, example.study).id for _ in range(6))
        store.append_trials(measured, [Trial("t", 1)])
        store.release(measured)
        store.append_scores(told, [Measurement(0.5)])
        store.release(told)
        store.tell(waiting, waits=True)
        store.fail(failed, None, "out of memory")
        store.release(released)
        untouched = [run.id for run in runs[6:]]
        assert store.withdraw_runs(example.study, 0, digests) == [failed, released, *untouched]
        assert {run.id for run in store.runs(example.study)} == {measured, told, working, waiting}
        assert store.withdraw_runs(example.study, 0, digests) == []
        store.add_runs(example.study, 0, plan(example.spec, example.dataset))
        again = {run.digest: run for run in store.runs(example.study)}
        assert set(again) == digests
        assert [again[run.digest].attempts for run in runs if run.id == failed] == [0]

    def test_a_run_of_two_rounds_is_withdrawn_from_one(self, store: Store, example: Any) -> None:
        shared = store.runs(example.study)[0]
        store.add_round(example.study, example.spec, example.dataset, None)
        store.add_runs(example.study, 1, [PlannedRun(store.run(shared.id).spec, shared.demos, ())])
        assert store.withdraw_runs(example.study, 1, {shared.digest}) == []
        assert store.run(shared.id).rounds == (0,)

    def test_a_row_is_a_snapshot(self, store: Store, example: Any) -> None:
        before = store.run(example.runs[0])
        taken(store, example.study)
        assert before.state == "pending"
        assert store.run(example.runs[0]).state == "running"


class TestLeases:
    def test_each_run_is_taken_once_in_order(self, store: Store, example: Any) -> None:
        ids = [taken(store, example.study, f"worker {number}").id for number in range(len(example.runs))]
        assert ids == example.runs
        assert store.lease(example.study, "one too many", 60) is None
        assert [row.worker for row in store.runs(example.study)][:2] == ["worker 0", "worker 1"]

    def test_a_dead_workers_run_comes_back_when_its_lease_runs_out(
        self, store: Store, example: Any, clock: Any
    ) -> None:
        late = taken(store, example.study, "late", 60)
        clock.forward(59)
        assert taken(store, example.study, "next", 600).id != late.id
        clock.forward(1)
        again = taken(store, example.study, "other", 60)
        assert (again.id, again.attempts, again.worker) == (late.id, 2, "other")
        (lost,) = store.attempts(late.id)
        assert (lost.number, lost.worker, lost.outcome, lost.ended) == (1, "late", "lost", clock.time)

    def test_a_stale_worker_can_do_nothing(self, store: Store, example: Any, clock: Any) -> None:
        stale = taken(store, example.study, "stale", 60)
        clock.forward(61)
        fresh = taken(store, example.study, "fresh", 60)
        assert fresh.id == stale.id
        calls: list[Callable[[], object]] = [
            lambda: store.heartbeat(stale.id, stale.lease_token, 60),
            lambda: store.append_trials(stale.id, [Trial("a", 1.0)], stale.lease_token),
            lambda: store.append_scores(stale.id, [Measurement(0.9, source="told")], stale.lease_token),
            lambda: store.tell(stale.id, lease_token=stale.lease_token),
            lambda: store.fail(stale.id, stale.lease_token, "broke"),
            lambda: store.release(stale.id, stale.lease_token),
        ]
        for call in calls:
            with pytest.raises(LeaseLost, match="fresh works on it now"):
                call()
        assert store.run(fresh.id) == fresh
        assert store.append_trials(fresh.id, [Trial("a", 1.0)], fresh.lease_token) == 1
        store.tell(fresh.id, lease_token=fresh.lease_token)
        with pytest.raises(LeaseLost, match="it is done now"):
            store.tell(stale.id, lease_token=stale.lease_token)

    def test_a_stale_workers_mean_is_refused_every_time_and_blocks_nobody(
        self, store: Store, example: Any, clock: Any
    ) -> None:
        stale = taken(store, example.study, "stale", 60)
        clock.forward(61)
        fresh = taken(store, example.study, "fresh", 60)
        assert fresh.id == stale.id

        def refused() -> None:
            for _ in range(2):
                with pytest.raises(LeaseLost):
                    store.append_scores(stale.id, [Measurement(0.9, source="told")], stale.lease_token)

        refused()
        assert store.scores(fresh.id) == []
        assert store.append_scores(fresh.id, [Measurement(0.1, source="told")], fresh.lease_token) == 1
        refused()
        store.tell(fresh.id, lease_token=fresh.lease_token)
        refused()
        assert store.scores(fresh.id) == [Measurement(0.1, source="told")]

    def test_a_worker_adds_no_mean_to_a_run_that_a_person_ended(self, store: Store, example: Any) -> None:
        run = taken(store, example.study)
        store.append_scores(run.id, [Measurement(0.5, source="results.csv:1")])
        store.tell(run.id)
        for _ in range(2):
            with pytest.raises(LeaseLost, match="it is done now"):
                store.append_scores(run.id, [Measurement(0.9, source="told")], run.lease_token)
        assert store.scores(run.id) == [Measurement(0.5, source="results.csv:1")]

    def test_a_mean_sent_again_after_the_end_counts_once(self, store: Store, example: Any) -> None:
        run = taken(store, example.study)
        assert store.append_scores(run.id, [Measurement(0.5, source="told")], run.lease_token) == 1
        store.tell(run.id, lease_token=run.lease_token)
        assert store.append_scores(run.id, [Measurement(0.5, source="told")], run.lease_token) == 0

    def test_a_late_worker_that_was_not_replaced_goes_on(self, store: Store, example: Any, clock: Any) -> None:
        run = taken(store, example.study, "slept", 60)
        clock.forward(1000)
        assert store.heartbeat(run.id, run.lease_token, 60) == clock.time + 60
        assert taken(store, example.study).id != run.id

    @pytest.mark.parametrize("back", [10_000, 86_400])
    def test_a_clock_that_is_set_back_does_not_block_a_dead_workers_run(
        self, store: Store, example: Any, clock: Any, back: float
    ) -> None:
        dead = taken(store, example.study, "dead", 60)
        clock.forward(-back)
        again = store.lease(example.study, "heir", 60, run_id=dead.id)
        assert again is not None
        with pytest.raises(LeaseLost):
            store.append_trials(dead.id, [Trial("a", 1.0)], dead.lease_token)

    def test_a_small_step_back_leaves_a_live_worker_its_run(self, store: Store, example: Any, clock: Any) -> None:
        alive = taken(store, example.study, "alive", 60)
        clock.forward(-50)
        assert store.lease(example.study, "thief", 60, run_id=alive.id) is None
        clock.forward(111)
        assert store.lease(example.study, "heir", 60, run_id=alive.id) is not None

    def test_a_heartbeat_after_a_clock_was_set_back_keeps_the_run(self, store: Store, example: Any, clock: Any) -> None:
        alive = taken(store, example.study, "alive", 60)
        for step in (-86_400, 59, -86_400, 2 * 86_400):
            clock.forward(step)
            assert store.heartbeat(alive.id, alive.lease_token, 60) == clock.time + 60
            assert store.lease(example.study, "thief", 60, run_id=alive.id) is None

    def test_a_heartbeat_keeps_the_run(self, store: Store, example: Any, clock: Any) -> None:
        run = taken(store, example.study, "alive", 60)
        for _ in range(5):
            clock.forward(50)
            store.heartbeat(run.id, run.lease_token, 60)
        assert taken(store, example.study).id != run.id
        assert store.run(run.id).lease_expires == clock.time + 60

    def test_a_released_run_is_pending_and_keeps_its_trials(self, store: Store, example: Any) -> None:
        run = taken(store, example.study, "first")
        store.append_trials(run.id, [Trial("a", 0.5)], run.lease_token)
        store.release(run.id, run.lease_token)
        assert (store.run(run.id).state, store.run(run.id).worker) == ("pending", None)
        with pytest.raises(LeaseLost, match="it is pending now"):
            store.append_trials(run.id, [Trial("b", 0.5)], run.lease_token)
        again = taken(store, example.study, "second")
        assert (again.id, again.trials, again.mean, again.attempts) == (run.id, 1, 0.5, 2)
        assert [attempt.outcome for attempt in store.attempts(run.id)] == ["released"]

    def test_errors_outlive_a_retry(self, store: Store, example: Any, clock: Any) -> None:
        for number in (1, 2):
            run = taken(store, example.study, f"worker {number}")
            clock.forward(5)
            store.fail(run.id, run.lease_token, f"out of memory ({number})")
            failed = store.run(run.id)
            assert (failed.state, failed.error, failed.finished) == ("failed", f"out of memory ({number})", clock.time)
            store.retry(run.id)
        pending = store.run(run.id)
        assert (pending.state, pending.error, pending.finished) == ("pending", None, None)
        history = [(row.number, row.worker, row.outcome, row.error) for row in store.attempts(run.id)]
        assert history == [
            (1, "worker 1", "failed", "out of memory (1)"),
            (2, "worker 2", "failed", "out of memory (2)"),
        ]

    def test_only_a_failed_run_is_tried_again(self, store: Store, example: Any) -> None:
        with pytest.raises(InvalidInput, match="is pending, only failed"):
            store.retry(example.runs[0])

    def test_a_trained_run_waits_for_its_trials_and_is_not_taken(self, store: Store, example: Any, clock: Any) -> None:
        run = taken(store, example.study, "trainer")
        clock.forward(7)
        store.tell(run.id, lease_token=run.lease_token, waits=True)
        ready = clock.time
        clock.forward(7)
        store.tell(
            run.id, lease_token=run.lease_token, waits=True
        )  # told twice, because the first answer did not arrive
        row = store.run(run.id)
        assert (row.state, row.worker, row.trained) == ("trained", None, ready)
        assert [attempt.outcome for attempt in store.attempts(run.id)] == ["released"]
        assert taken(store, example.study).id == example.runs[1]
        assert store.lease(example.study, "worker", 60, run_id=run.id) is None
        with pytest.raises(LeaseLost):
            store.append_trials(run.id, [Trial("late", 1.0)], run.lease_token)
        store.append_trials(run.id, [Trial("a", 1.0)])
        assert store.run(run.id).state == "trained"
        store.tell(run.id)
        assert store.run(run.id).state == "done"
        with pytest.raises(InvalidInput, match="is done, only a pending"):
            store.tell(run.id, waits=True)

    def test_a_person_may_say_that_a_run_is_trained_and_take_it_back(self, store: Store, example: Any) -> None:
        store.tell(example.runs[0], waits=True)
        assert store.run(example.runs[0]).state == "trained"
        store.retry(example.runs[0])
        assert store.run(example.runs[0]).state == "pending"
        assert taken(store, example.study).id == example.runs[0]

    def test_a_run_that_is_handed_over_waits_for_those_that_evaluate(self, store: Store, example: Any) -> None:
        study = example.study
        assert store.lease(study, "evaluator", 60, stage="evaluate") is None
        run = store.lease(study, "trainer", 60, stage="train")
        assert run is not None
        for _ in range(2):  # twice, because the first answer did not arrive
            store.hand_over(run.id, run.lease_token, "one")
        row = store.run(run.id)
        assert (row.state, row.policy, row.attempts) == ("pending", "one", 1)
        assert [attempt.outcome for attempt in store.attempts(run.id)] == ["released"]
        assert store.withdraw_runs(study, 0, [run.digest]) == []
        assert store.lease(study, "trainer", 60, run.id, stage="train") is None
        mine = store.lease(study, "evaluator", 60, stage="evaluate")
        assert mine is not None
        assert mine.id == run.id
        with pytest.raises(LeaseLost, match="evaluator works on it now"):
            store.hand_over(run.id, run.lease_token, "one")
        store.release(mine.id, mine.lease_token)
        assert taken(store, study, "does both").id == run.id

    def test_a_dead_evaluators_run_comes_back_to_those_that_evaluate(
        self, store: Store, example: Any, clock: Any
    ) -> None:
        run = taken(store, example.study, "trainer")
        store.hand_over(run.id, run.lease_token, "one")
        dead = store.lease(example.study, "dead", 60, stage="evaluate")
        assert dead is not None
        store.append_trials(run.id, [Trial("a", 1.0)], dead.lease_token, policy="one")
        clock.forward(61)
        trainer = store.lease(example.study, "trainer", 60, stage="train")
        assert trainer is not None
        assert trainer.id != run.id
        evaluator = store.lease(example.study, "evaluator", 60, stage="evaluate")
        assert evaluator is not None
        assert (evaluator.id, evaluator.trials) == (run.id, 1)

    def test_a_run_whose_policy_is_lost_is_trained_anew(self, store: Store, example: Any) -> None:
        run = taken(store, example.study)
        store.append_trials(run.id, [Trial("by hand", 0.5)])
        store.append_trials(run.id, [Trial("a", 1.0)], run.lease_token, policy="one")
        store.fail(run.id, run.lease_token, "damaged", trains_anew=True)
        store.retry(run.id)
        assert store.trials(run.id) == [Trial("by hand", 0.5)]
        again = store.lease(example.study, "trainer", 60, stage="train")
        assert again is not None
        assert (again.id, again.policy) == (run.id, None)

    def test_a_stale_worker_cannot_say_that_a_run_is_trained(self, store: Store, example: Any, clock: Any) -> None:
        stale = taken(store, example.study, "stale", 60)
        clock.forward(61)
        taken(store, example.study, "fresh", 60)
        with pytest.raises(LeaseLost, match="fresh works on it now"):
            store.tell(stale.id, lease_token=stale.lease_token, waits=True)

    def test_a_failed_run_is_not_taken(self, store: Store, example: Any) -> None:
        run = taken(store, example.study)
        store.fail(run.id, run.lease_token, "broke")
        assert store.lease(example.study, "worker", 60, run_id=run.id) is None
        assert taken(store, example.study).id == example.runs[1]

    def test_one_run_can_be_asked_for(self, store: Store, example: Any) -> None:
        run = store.lease(example.study, "worker", 60, run_id=example.runs[3])
        assert run is not None
        assert run.id == example.runs[3]
        assert store.lease(example.study, "other", 60, run_id=example.runs[3]) is None

    def test_what_an_earlier_round_left_comes_last(self, store: Store, example: Any) -> None:
        store.add_round(example.study, example.spec, example.dataset, None)
        new = [PlannedRun(RunSpec((name,)), {}, ()) for name in ("new", "newer")]
        again = plan(example.spec, example.dataset)[2:3]
        ids = store.add_runs(example.study, 1, [*new, *again])
        every = [taken(store, example.study).id for _ in (*new, *example.runs)]
        assert ids[2] == example.runs[2]
        assert every == [*ids, *(id_ for id_ in example.runs if id_ not in ids)]

    def test_a_run_of_two_rounds_is_taken_once(self, store: Store, example: Any) -> None:
        store.add_round(example.study, example.spec, example.dataset, None)
        store.add_runs(example.study, 1, plan(example.spec, example.dataset))
        assert [taken(store, example.study).id for _ in example.runs] == example.runs
        assert store.lease(example.study, "worker", 60) is None

    def test_a_run_without_results_is_not_done(self, store: Store, example: Any) -> None:
        run = taken(store, example.study)
        with pytest.raises(InvalidInput, match="no results yet"):
            store.tell(run.id, lease_token=run.lease_token)
        assert store.run(run.id).state == "running"

    def test_finishing_twice_counts_once(self, store: Store, example: Any, clock: Any) -> None:
        run = taken(store, example.study)
        store.append_trials(run.id, [Trial("a", 1.0)], run.lease_token)
        store.tell(run.id, lease_token=run.lease_token)
        done = store.run(run.id)
        clock.forward(10)
        store.tell(run.id, lease_token=run.lease_token)
        assert store.run(run.id) == done
        assert len(store.attempts(run.id)) == 1

    def test_a_done_run_stays_done(self, store: Store, example: Any) -> None:
        store.append_trials(example.runs[0], [Trial("a", 1.0)])
        store.tell(example.runs[0])
        with pytest.raises(InvalidInput, match="is already done"):
            store.fail(example.runs[0], None, "changed my mind")
        with pytest.raises(InvalidInput, match="is already done"):
            store.release(example.runs[0])
        assert taken(store, example.study).id == example.runs[1]

    def test_a_person_may_decide_over_a_leased_run(self, store: Store, example: Any) -> None:
        run = taken(store, example.study, "hung")
        store.release(run.id)
        with pytest.raises(LeaseLost):
            store.heartbeat(run.id, run.lease_token, 60)
        assert taken(store, example.study, "other").id == run.id

    def test_a_run_can_fail_by_hand_and_keeps_the_reason(self, store: Store, example: Any) -> None:
        store.fail(example.runs[0], None, "the gripper broke")
        store.retry(example.runs[0])
        run = taken(store, example.study)
        assert run.lease_token == 2
        assert [(row.number, row.error) for row in store.attempts(run.id)] == [(1, "the gripper broke")]

    def test_a_lease_must_end(self, store: Store, example: Any) -> None:
        for seconds in (0.0, -1.0, float("nan"), float("inf")):
            with pytest.raises(InvalidInput, match="above 0"):
                store.lease(example.study, "worker", seconds)


class TestTrials:
    def test_trials_come_back_in_the_order_told(self, store: Store, example: Any) -> None:
        told = [
            Trial("z", 1.0, ("light",), "dim", "näher ☂"),
            Trial("a", 0.25, ("*",)),
            Trial("m", 0, ("light", "table")),
        ]
        assert store.append_trials(example.runs[0], told[:1]) == 1
        assert store.append_trials(example.runs[0], told[1:]) == 2
        assert store.trials(example.runs[0]) == told
        run = store.run(example.runs[0])
        assert run.trials == 3
        assert run.mean == pytest.approx(1.25 / 3)

    def test_telling_again_counts_once(self, store: Store, example: Any) -> None:
        told = [Trial(f"{number}", number / 10) for number in range(10)]
        assert store.append_trials(example.runs[0], told[:6]) == 6
        assert store.append_trials(example.runs[0], told) == 4
        assert store.append_trials(example.runs[0], told + told) == 0
        assert store.trials(example.runs[0]) == told

    def test_a_stored_trial_never_changes(self, store: Store, example: Any) -> None:
        first = Trial("a", 1.0, ("light",))
        store.append_trials(example.runs[0], [first])
        others: dict[str, Any] = {"score": 0.0, "factor": ("table",), "setting": "b", "note": "c"}
        for field, value in others.items():
            other = replace(first, **{field: value})
            with pytest.raises(InvalidInput, match=f"trial 'a' is already stored with {field}"):
                store.append_trials(example.runs[0], [Trial("new", 1.0), other])
        assert store.trials(example.runs[0]) == [first]  # all or none: "new" is not there either

    def test_one_call_does_not_contradict_itself(self, store: Store, example: Any) -> None:
        with pytest.raises(InvalidInput, match="given twice"):
            store.append_trials(example.runs[0], [Trial("a", 1.0), Trial("a", 0.0)])
        assert store.trials(example.runs[0]) == []

    def test_a_key_is_the_runs_own(self, store: Store, example: Any) -> None:
        store.append_trials(example.runs[0], [Trial("a", 1.0)])
        assert store.append_trials(example.runs[1], [Trial("a", 0.0)]) == 1

    def test_a_policy_that_was_trained_anew_is_measured_anew(self, store: Store, example: Any, clock: Any) -> None:
        first = taken(store, example.study, "first", 60)
        store.append_trials(first.id, [Trial("by hand", 0.5)])
        store.append_trials(first.id, [Trial("a", 1.0), Trial("b", 1.0)], first.lease_token, policy="one")
        clock.forward(61)
        second = taken(store, example.study, "second", 60)
        assert (second.id, second.policy, second.trials) == (first.id, "one", 3)
        with pytest.raises(InvalidInput, match=r"already stored with score 1\.0, not 0\.0; .* `policy=`"):
            store.append_trials(second.id, [Trial("a", 0.0)], second.lease_token)
        assert store.append_trials(second.id, [Trial("a", 0.0)], second.lease_token, policy="two") == 1
        assert store.trials(second.id) == [Trial("by hand", 0.5), Trial("a", 0.0)]
        assert store.run(second.id).policy == "two"
        for _ in range(2):
            with pytest.raises(LeaseLost):
                store.append_trials(first.id, [Trial("c", 1.0)], first.lease_token, policy="one")
        store.tell(second.id, [Trial("b", 0.0)], lease_token=second.lease_token, policy="two")
        assert [trial.key for trial in store.trials(second.id)] == ["by hand", "a", "b"]

    def test_the_same_policy_goes_on_where_it_stopped(self, store: Store, example: Any, clock: Any) -> None:
        first = taken(store, example.study, "first", 60)
        store.append_trials(first.id, [Trial("unnamed", 1.0)], first.lease_token)
        store.append_trials(first.id, [Trial("a", 1.0)], first.lease_token, policy="one")
        clock.forward(61)
        second = taken(store, example.study, "second", 60)
        assert store.append_trials(second.id, [Trial("a", 1.0), Trial("b", 0.0)], second.lease_token, policy="one") == 1
        assert [trial.key for trial in store.trials(second.id)] == ["unnamed", "a", "b"]

    def test_an_outcome_of_another_policy_replaces_what_was_recorded(
        self, store: Store, example: Any, clock: Any
    ) -> None:
        first = taken(store, example.study, "first", 60)
        store.append_trials(first.id, [Trial("a", 1.0)], first.lease_token, policy="one")
        clock.forward(61)
        second = taken(store, example.study, "second", 60)
        with pytest.raises(InvalidInput, match="no results yet"):  # and then nothing is removed either
            store.tell(second.id, lease_token=second.lease_token, policy="two")
        assert store.run(second.id).policy == "one"
        store.tell(second.id, [Trial("b", 0.0)], lease_token=second.lease_token, policy="two")
        assert store.trials(second.id) == [Trial("b", 0.0)]

    def test_a_policy_is_named_by_who_holds_the_run(self, store: Store, example: Any) -> None:
        with pytest.raises(InvalidInput, match="only the worker that holds a run names its policy"):
            store.append_trials(example.runs[0], [Trial("a", 1.0)], policy="mine")
        run = taken(store, example.study)
        for name in ("", "x" * 500, 7):
            with pytest.raises(InvalidInput, match="a policy's name"):
                store.append_trials(run.id, [Trial("a", 1.0)], run.lease_token, policy=name)  # type: ignore[arg-type]
        store.append_trials(run.id, [Trial("a", 1.0)], run.lease_token, policy="one")
        store.tell(run.id, lease_token=run.lease_token)
        assert store.append_trials(run.id, [Trial("a", 1.0)], run.lease_token, policy="two") == 0  # done stays done
        assert store.run(run.id).policy == "one"

    def test_a_done_run_takes_no_more(self, store: Store, example: Any) -> None:
        store.append_trials(example.runs[0], [Trial("a", 1.0)])
        store.tell(example.runs[0])
        with pytest.raises(InvalidInput, match="a new seed is a new run"):
            store.append_trials(example.runs[0], [Trial("b", 1.0)])
        assert store.append_trials(example.runs[0], [Trial("a", 1.0)]) == 0

    def test_a_pending_or_failed_run_takes_trials_by_hand(self, store: Store, example: Any) -> None:
        assert store.append_trials(example.runs[0], [Trial("a", 1.0)]) == 1
        store.fail(example.runs[0], None, "the gripper broke")
        assert store.append_trials(example.runs[0], [Trial("b", 1.0)]) == 1

    def test_thousands_go_in_together_and_not_one_by_one(self, store: Store, example: Any) -> None:
        told = [Trial(f"{number}", number % 2, ("light",)) for number in range(3000)]
        seen: list[str] = []

        def statement(_connection: object, _cursor: object, sql: str, *_rest: object) -> None:
            seen.append(sql.split()[0])

        def commit(_connection: object) -> None:
            seen.append("COMMIT")

        event.listen(Engine, "before_cursor_execute", statement)
        event.listen(Engine, "commit", commit)
        try:
            assert store.append_trials(example.runs[0], told) == 3000
        finally:
            event.remove(Engine, "before_cursor_execute", statement)
            event.remove(Engine, "commit", commit)
        assert (seen.count("INSERT"), seen.count("COMMIT")) == (1, 1)
        assert len(seen) < 20  # keys are looked up by the hundred
        assert store.append_trials(example.runs[0], told) == 0
        assert store.trials(example.runs[0]) == told

    def test_a_key_that_cannot_be_kept_is_refused(self, store: Store, example: Any) -> None:
        for text in ("nul \0", "half a pair \ud800", "x" * 401):
            with pytest.raises(InvalidInput, match="key"):
                store.append_trials(example.runs[0], [Trial(text, 1.0)])
        assert store.append_trials(example.runs[0], [Trial("☂" * 400, 1.0)]) == 1


class TestScores:
    def test_scores_come_back(self, store: Store, example: Any) -> None:
        told = [
            Measurement(0.5, 600, ("light",), "results.csv"),
            Measurement(0.25, None, (), "results.csv"),
            Measurement(1.0, 20, ("light",), "second lab"),
        ]
        assert store.append_scores(example.runs[0], told) == 3
        assert store.append_scores(example.runs[0], told[1:]) == 0
        assert store.scores(example.runs[0]) == told
        assert store.study_scores(example.study) == {example.runs[0]: told}
        assert store.run(example.runs[0]).scores == 3

    def test_a_stored_score_never_changes(self, store: Store, example: Any) -> None:
        store.append_scores(example.runs[0], [Measurement(0.5, 600, ("light",), "results.csv")])
        with pytest.raises(InvalidInput, match=r"score of light from 'results.csv' is already stored with score 0.5"):
            store.append_scores(example.runs[0], [Measurement(0.6, 600, ("light",), "results.csv")])

    def test_a_score_is_result_enough_and_a_done_run_takes_another_opinion(self, store: Store, example: Any) -> None:
        store.append_scores(example.runs[0], [Measurement(0.5)])
        store.tell(example.runs[0])
        assert store.append_scores(example.runs[0], [Measurement(0.6, source="other lab")]) == 1

    @pytest.mark.parametrize("score", [float("nan"), -0.1, 1.1, "0.5", True])
    def test_a_score_lies_between_0_and_1(self, score: Any) -> None:
        with pytest.raises(InvalidInput, match=r"\[0, 1\]"):
            Measurement(score)

    @pytest.mark.parametrize("trials", [0, -1, 1.5, 2**40])
    def test_trials_are_counted_in_whole_numbers(self, trials: Any) -> None:
        with pytest.raises(InvalidInput, match=r"trials must be (a whole number|at most)"):
            Measurement(0.5, trials)


class TestDocuments:
    def test_the_latest_is_read(self, store: Store, example: Any) -> None:
        store.put_document(example.study, "remix", "round 0", {"light": 0.5})
        store.put_document(example.study, "proxy", "7", [1, None, "x\0y"])
        store.put_document(example.study, "remix", "round 0", {"light": 0.75, "camera": 0.25})
        assert store.document(example.study, "remix", "round 0") == {"light": 0.75, "camera": 0.25}
        assert store.document(example.study, "proxy", "7") == [1, None, "x\0y"]
        assert store.document(example.study, "proxy", "8") is None
        assert [(row.kind, row.key) for row in store.documents(example.study)] == [("remix", "round 0"), ("proxy", "7")]
        assert [row.key for row in store.documents(example.study, "proxy")] == ["7"]
        with pytest.raises(InvalidInput, match="there is already a proxy 7"):
            store.put_documents(example.study, [("proxy", "9", 1), ("proxy", "7", 2)], fresh=True)
        assert store.document(example.study, "proxy", "9") is None
        store.put_documents(example.study, [("proxy", "9", 1)], fresh=True)
        assert store.document(example.study, "proxy", "9") == 1

    def test_only_plain_data_is_kept(self, store: Store, example: Any) -> None:
        for body in ({1, 2}, float("nan"), object()):
            with pytest.raises(InvalidInput, match="not plain data"):
                store.put_document(example.study, "remix", "x", body)


class TestExchange:
    def test_a_study_moves_to_another_place_whole(self, store: Store, example: Any, clock: Any, tmp_path: Any) -> None:
        fill(store, example, clock)
        dumped = json.loads(json.dumps(store.dump(example.study)))
        with Store.open(tmp_path / "other.db") as other:
            again = other.dump(other.load(dumped))
        assert again == dumped
        copy = store.load(dumped)
        assert store.study("example-2").id == copy
        assert store.dump(copy) == {**dumped, "name": "example-2"}
        assert store.dump(store.load(dumped, "mine")) == {**dumped, "name": "mine"}
        with pytest.raises(InvalidInput, match="already a study 'mine'"):
            store.load(dumped, "mine")

    def test_a_loaded_study_goes_on(self, store: Store, example: Any, clock: Any) -> None:
        fill(store, example, clock)
        copy = store.load(store.dump(example.study))
        strip = {"id": 0, "lease_expires": None}
        kept = [vars_of(row, strip) for row in store.runs(copy)]
        assert kept == [vars_of(row, strip) for row in store.runs(example.study)]
        run = taken(store, copy)
        store.append_trials(run.id, [Trial("fresh", 1.0)], run.lease_token)
        store.tell(run.id, lease_token=run.lease_token)

    def test_an_export_of_an_earlier_release_is_read(self, store: Store, example: Any, clock: Any) -> None:
        fill(store, example, clock)
        dumped = store.dump(example.study)
        earlier = copy.deepcopy(dumped)
        del earlier["evaluations"]
        for run in earlier["runs"]:
            for field in ("lease_seconds", "policy"):
                del run[field]
            for trial in run["trials"]:
                del trial["attempt"]
        loaded = store.dump(store.load(earlier, "earlier"))
        for run in loaded["runs"]:
            for trial in run["trials"]:
                assert trial["attempt"] is None  # as if by hand: nobody can say which worker recorded it
        without = [{**run, "trials": []} for run in loaded["runs"]]
        assert without == [{**run, "trials": []} for run in dumped["runs"]]

    def test_a_spoilt_export_is_refused_whole(self, store: Store, example: Any, clock: Any) -> None:
        fill(store, example, clock)
        dumped = json.loads(json.dumps(store.dump(example.study)))
        for path, value, message in SPOILT:
            spoilt = inner = copy.deepcopy(dumped)
            for step in path[:-1]:
                inner = inner[step]
            inner[path[-1]] = value
            with pytest.raises(InvalidInput, match=message):
                store.load(spoilt, "spoilt")
        assert [row.name for row in store.studies()] == ["example"]


SPOILT: list[tuple[list[Any], Any, str]] = [
    (["format"], "something else", "format"),
    (["version"], 2, "format"),
    (["rounds"], [], "rounds"),
    (["rounds"], 3, "the export.rounds"),
    (["rounds", 0, "spec"], {"factors": {}}, r"rounds\[0\].spec"),
    (["rounds", 0, "dataset"], [["a"]], r"rounds\[0\].dataset"),
    (["runs", 0, "digest"], "0000", r"runs\[0\].digest"),
    (["runs", 0, "state"], "asleep", r"runs\[0\].state"),
    (["runs", 0, "created"], "now", r"runs\[0\].created"),
    (["runs", 0, "spec"], {"episodes": []}, r"runs\[0\].spec"),
    (["runs", 0, "placements"], [], r"runs\[0\].placements"),
    (["runs", 0, "placements", 0, "round"], 9, "no round 9"),
    (["runs", 0, "trials", 0, "score"], 7, r"runs\[0\].trials\[0\]: .*score must lie"),
    (["runs", 0, "trials", 1, "key"], "a", "twice"),
    (["runs", 0, "lease_expires"], 5.0, r"runs\[0\].lease_expires"),
    (["documents", 0], {"kind": "x"}, r"documents\[0\]"),
]


def fill(store: Store, example: Any, clock: Any) -> None:
    """Something of everything: two rounds, runs in every state, trials, scores, documents, a history."""
    done = taken(store, example.study, "first")
    store.append_trials(done.id, [Trial("a", 1.0, ("light",), "dim", "n"), Trial("b", 1 / 3)], done.lease_token)
    store.tell(done.id, lease_token=done.lease_token)
    clock.forward(3.25)
    failed = taken(store, example.study, "second")
    store.fail(failed.id, failed.lease_token, "broke")
    store.append_scores(failed.id, [Measurement(0.1, 7, ("light", "table"), "csv"), Measurement(0.2)])
    taken(store, example.study, "third")
    store.tell(taken(store, example.study, "fourth").id, waits=True)
    store.add_round(example.study, example.spec, example.dataset, {"light": 2})
    planned = plan(example.spec, example.dataset)
    store.add_runs(example.study, 1, [planned[0], PlannedRun(RunSpec(("new",)), {"light": 1}, ())])
    store.put_document(example.study, "remix", "x", {"b": 1, "a": [None]})
    store.put_document(example.study, "remix", "x", {"b": 2})


def vars_of(row: RunRow, replaced: dict[str, Any]) -> dict[str, Any]:
    return {field.name: getattr(row, field.name) for field in fields(RunRow)} | replaced
