"""What becomes of a run: told by its worker, by a worker that lost it, and by hand; on both databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from factored_scaling.core.dataset import Dataset
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Trial
from factored_scaling.errors import InvalidInput, LeaseLost
from factored_scaling.store import Measurement, Store
from factored_scaling.study import Study

SPEC = StudySpec({"camera": 4, "light": 4}, construction="one", points=2, name="shared")
Opened = Callable[[], Study]


@pytest.fixture
def opened(address: str, clock: Any) -> Iterator[Opened]:
    """One study as several processes would open it, all by the clock of the test."""
    with ExitStack() as stack:

        def another() -> Study:
            return Study(stack.enter_context(Store.open(address, clock=clock)), 1)

        Study.create(SPEC, address, Dataset.of_sizes(SPEC.sizes)).close()
        yield another


def taken_over(opened: Opened, clock: Any) -> tuple[Study, Study, int]:
    """A worker that lost its run, the one that has it now, and the run."""
    stale, rightful = opened(), opened()
    run = stale.ask(1, "stale", 60)[0]
    clock.forward(61)
    assert rightful.ask(1, "rightful", 60)[0].id == run.id
    return stale, rightful, run.id


@pytest.mark.parametrize("told", [0.9, [0.9, 0.9], {"light": 0.9}, {"light": [0.9], "camera": 0.9}])
def test_what_a_stale_worker_tells_is_refused_every_time_and_blocks_nobody(
    opened: Opened, clock: Any, told: Any
) -> None:
    stale, rightful, run = taken_over(opened, clock)

    def refused() -> None:
        for _ in range(3):
            with pytest.raises(LeaseLost):
                stale.tell(run, told)

    refused()
    row = rightful.find_run(run)
    assert (row.state, row.worker, row.trials, row.scores) == ("running", "rightful", 0, 0)
    rightful.tell(run, 0.1)
    refused()
    assert [row.score for row in rightful.results().rows] == [0.1]


STALE_CALLS: dict[str, Callable[[Study, int], object]] = {
    "finish": lambda study, run: study.finish(run),
    "trained": lambda study, run: study.trained(run),
    "tell": lambda study, run: study.tell(run, 0.9),
    "record": lambda study, run: study.record(run, [Trial("late", 0.9)]),
    "fail": lambda study, run: study.fail(run, "late"),
    "release": lambda study, run: study.release(run),
    "heartbeat": lambda study, run: study.heartbeat(run),
}


@pytest.mark.parametrize("first", STALE_CALLS)
def test_a_stale_worker_never_counts_as_a_person(opened: Opened, clock: Any, first: str) -> None:
    stale, rightful, run = taken_over(opened, clock)
    rightful.record(run, [Trial("mine", 0.1)])
    for call in (STALE_CALLS[first], *STALE_CALLS.values(), *STALE_CALLS.values()):
        with pytest.raises(LeaseLost):
            call(stale, run)
    row = rightful.find_run(run)
    assert (row.state, row.worker, row.trials, row.mean) == ("running", "rightful", 1, 0.1)
    rightful.finish(run)


@pytest.mark.parametrize("ending", ["fail", "release"])
def test_a_worker_that_gave_its_run_up_has_to_ask_again(opened: Opened, clock: Any, ending: str) -> None:
    former, rightful = opened(), opened()
    run = former.ask(1, "former", 60)[0].id
    STALE_CALLS[ending](former, run)
    if ending == "fail":
        former.store.retry(run)
    assert rightful.ask(1, "rightful", 60)[0].id == run
    with pytest.raises(LeaseLost):
        former.tell(run, 0.9)
    rightful.release(run)
    assert former.ask(1, "former", 60)[0].id == run
    former.tell(run, 0.9)
    assert [row.score for row in former.results().rows] == [0.9]


def test_who_never_asked_decides_by_hand(opened: Opened, clock: Any) -> None:
    worker, person = opened(), opened()
    run = worker.ask(1, "worker", 60)[0].id
    person.tell(run, 0.3)
    for _ in range(2):
        with pytest.raises((LeaseLost, InvalidInput)):
            worker.tell(run, 0.9)
    assert [row.score for row in person.results().rows] == [0.3]


def test_after_training_the_same_object_tells_by_hand(opened: Opened, clock: Any) -> None:
    study = opened()
    run = study.ask(1, "worker", 60)[0].id
    study.trained(run)
    assert study.find_run(run).state == "trained"
    study.record(run, [Trial("a", 1.0)])
    study.finish(run)
    assert study.find_run(run).state == "done"


def test_an_outcome_is_stored_whole_or_not_at_all(store: Store, example: Any) -> None:
    run = store.lease(example.study, "worker", 60)
    assert run is not None
    store.append_scores(run.id, [Measurement(0.5, source="told")], run.lease_token)
    trials, wrong, right = [Trial("a", 1.0)], [Measurement(0.4, source="told")], [Measurement(0.5, source="told")]
    documents = [("kept", "one", {"a": 1})]
    before = store.dump(example.study)
    with pytest.raises(InvalidInput, match="already stored with score"):
        store.tell(run.id, trials, wrong, run.lease_token, documents=documents)
    with pytest.raises(LeaseLost):
        store.tell(run.id, trials, right, run.lease_token + 1, documents=documents)
    assert store.dump(example.study) == before
    for new in (1, 0):  # sent again, because the first answer did not arrive
        assert store.tell(run.id, trials, right, run.lease_token, documents=documents) == new
        row = store.run(run.id)
        assert (row.state, row.trials, row.scores) == ("done", 1, 1)
        assert store.document(example.study, "kept", "one") == {"a": 1}
        assert len(store.attempts(run.id)) == 1


def test_an_outcome_without_results_waits_for_people(store: Store, example: Any) -> None:
    run = store.lease(example.study, "worker", 60)
    assert run is not None
    with pytest.raises(InvalidInput, match="no results yet"):
        store.tell(run.id, lease_token=run.lease_token, documents=[("kept", "one", 1)])
    assert store.document(example.study, "kept", "one") is None
    store.tell(run.id, lease_token=run.lease_token, documents=[("kept", "one", 1)], waits=True)
    assert (store.run(run.id).state, store.document(example.study, "kept", "one")) == ("trained", 1)
