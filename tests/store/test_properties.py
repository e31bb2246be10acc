"""Whatever happens, in whatever order: the store agrees with a model of it that fits on a page."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from factored_scaling.core.dataset import Dataset
from factored_scaling.core.design import PlannedRun, RunSpec
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Trial
from factored_scaling.errors import InvalidInput
from factored_scaling.store import Store

RUNS = 3
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
trials = st.builds(
    Trial,
    key=texts.filter(bool),
    score=st.floats(0, 1),
    factor=st.lists(texts.filter(bool), max_size=3).map(tuple),
    setting=texts,
    note=texts,
)


def with_runs(store: Store, count: int) -> tuple[int, list[int]]:
    spec = StudySpec({"light": 1})
    study = store.create_study("study", spec, Dataset.of_sizes(spec.sizes))
    planned = [PlannedRun(RunSpec((), seed=seed), {"light": 1}, ()) for seed in range(count)]
    return study, store.add_runs(study, 0, planned)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(trials, max_size=6), max_size=5))
def test_told_in_any_batches_each_key_counts_once(store: Store, batches: list[list[Trial]]) -> None:
    """Also the round trip: what such a study dumps, it loads, texts of any kind included."""
    study, (run_id,) = with_fresh_study(store)
    told: dict[str, Trial] = {}
    for batch in batches:
        merged = dict(told)
        contradicts = any(merged.setdefault(trial.key, trial) != trial for trial in batch)
        if contradicts:
            with pytest.raises(InvalidInput):
                store.append_trials(run_id, batch)
        else:
            assert store.append_trials(run_id, batch) == len(merged) - len(told)
            told = merged
    assert store.trials(run_id) == list(told.values())
    dumped = json.loads(json.dumps(store.dump(study)))
    copy = store.load(dumped)
    assert store.dump(copy) == {**dumped, "name": dumped["name"] + "-2"}
    (copied,) = store.runs(copy)
    assert store.trials(copied.id) == list(told.values())


def with_fresh_study(store: Store) -> tuple[int, list[int]]:
    spec = StudySpec({"light": 1})
    study = store.create_study(f"study {len(store.studies())}", spec, Dataset.of_sizes(spec.sizes))
    return study, store.add_runs(study, 0, [PlannedRun(RunSpec(()), {"light": 1}, ())])
