"""Cost of the runs that are left, from the record of those that are finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from factored_scaling.core.dataset import Dataset
from factored_scaling.core.design import plan
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Trial
from factored_scaling.runner.cost import estimate_cost
from factored_scaling.runner.queue import RunQueue
from factored_scaling.store import Store

SPEC = StudySpec({"camera_pose": 20, "lighting": 20}, construction="one", points=6)  # 11 runs


def test_hours_and_time_follow_from_the_runs_that_are_finished(tmp_path: Path) -> None:
    now = 1000.0
    store = Store.open(tmp_path / "study.db", clock=lambda: now)
    dataset = Dataset.of_sizes(SPEC.sizes)
    queue = RunQueue(store, store.create_study("study", SPEC, dataset, plan(SPEC, dataset)))
    nothing = estimate_cost(queue, 4, 1.0)
    assert (nothing.runs, nothing.workers, nothing.measured) == (11, 4, 0)
    assert (nothing.gpu_hours, nothing.wall_seconds) == (None, None)
    for seconds in (3600.0, 1800.0, 7200.0):  # the second in two attempts
        run = queue.ask(1, worker="a:1")[0]
        now += seconds / 2
        if seconds == 1800.0:
            queue.release(run.id)
            run = queue.take(run.id, worker="b:1")
        now += seconds / 2
        queue.conclude(run.id, [Trial("0", 1.0)])
        now += 10
    cost = estimate_cost(queue, 4, 2.0)
    assert (cost.runs, cost.measured, cost.run_seconds, cost.worker_seconds) == (8, 3, 3600.0, 3600.0)
    assert cost.gpu_hours == pytest.approx(8 * 2)
    assert cost.wall_seconds == pytest.approx(2 * 3600)
    assert estimate_cost(queue, 100, 1.0).workers == 8
    # eight that a worker trains together take their time once; others measure four of them, one after the other
    runs = queue.ask(8, worker="c:1")
    now += 4000
    for run in runs[:4]:
        queue.conclude(run.id, [Trial("0", 1.0)])
    for run in runs[4:]:
        queue.hand_over(run.id, "policy")
    for run in runs[4:]:
        queue.take(run.id, worker="d:1", stage="evaluate")
        now += 40
        queue.conclude(run.id, [Trial("0", 1.0)])
    cost = estimate_cost(queue, 4, 1.0)
    assert (cost.runs, cost.run_seconds, cost.worker_seconds) == (0, 4000.0, 540.0)
    assert (cost.gpu_hours, cost.wall_seconds) == (0.0, 0.0)
    store.close()
