"""Whatever happens, in whatever order: the store agrees with a model of it that fits on a page."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from factored_scaling.core.dataset import Dataset
from factored_scaling.core.design import PlannedRun, RunSpec
from factored_scaling.core.scores import Trial
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput, LeaseLost
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


@dataclass
class Model:
    """What one run should be."""

    state: str = "pending"
    token: int = 0
    expires: float = 0.0
    trials: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)


class Leasing(RuleBasedStateMachine):
    """Workers with old and new tokens do whatever comes to mind while the clock moves."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.time = 1000.0
        self.store = Store.open(Path(self.folder.name) / "study.db", clock=lambda: self.time)
        self.study, ids = with_runs(self.store, RUNS)
        self.runs = {id_: Model() for id_ in ids}
        self.tokens: list[tuple[int, int]] = []

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    @rule(seconds=st.sampled_from([1.0, 5.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.time += seconds

    @rule(seconds=st.sampled_from([2.0, 10.0]))
    def lease(self, seconds: float) -> None:
        free = [
            id_
            for id_, run in self.runs.items()
            if run.state == "pending" or (run.state == "running" and run.expires <= self.time)
        ]
        row = self.store.lease(self.study, "worker", seconds)
        assert (row.id if row else None) == (free[0] if free else None)
        if row is not None:
            run = self.runs[row.id]
            if run.state == "running":
                run.ended.append("lost")
            run.state, run.token, run.expires = "running", run.token + 1, self.time + seconds
            assert row.lease_token == run.token
            self.tokens.append((row.id, row.lease_token))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), action=st.sampled_from(["heartbeat", "append", "finish", "fail", "release"]))
    def act(self, data: st.DataObject, action: str) -> None:
        id_, token = data.draw(st.sampled_from(self.tokens))
        run = self.runs[id_]
        holds = run.state == "running" and run.token == token
        twice = action == "finish" and run.state == "done" and run.token == token
        if holds or twice:
            getattr(self, f"_{action}")(id_, token, data)
        elif run.state == "done" and run.token == token:
            with pytest.raises((LeaseLost, InvalidInput)):
                self._call(action, id_, token, "never told")
        else:
            with pytest.raises(LeaseLost):
                self._call(action, id_, token, "never told")

    def _call(self, action: str, id_: int, token: int, key: str) -> Any:
        calls: dict[str, Callable[[], Any]] = {
            "heartbeat": lambda: self.store.heartbeat(id_, token, 10),
            "append": lambda: self.store.append_trials(id_, [Trial(key, 0.5)], token),
            "finish": lambda: self.store.finish(id_, token),
            "fail": lambda: self.store.fail(id_, token, "broke"),
            "release": lambda: self.store.release(id_, token),
        }
        return calls[action]()

    def _heartbeat(self, id_: int, token: int, data: st.DataObject) -> None:
        self._call("heartbeat", id_, token, "")
        self.runs[id_].expires = self.time + 10

    def _append(self, id_: int, token: int, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from("abc"))
        told = self.runs[id_].trials
        assert self._call("append", id_, token, key) == (key not in told)
        if key not in told:
            told.append(key)

    def _finish(self, id_: int, token: int, data: st.DataObject) -> None:
        run = self.runs[id_]
        if run.trials:
            self._call("finish", id_, token, "")
            if run.state != "done":
                run.ended.append("done")
            run.state = "done"
        else:
            with pytest.raises(InvalidInput, match="no results"):
                self._call("finish", id_, token, "")

    def _fail(self, id_: int, token: int, data: st.DataObject) -> None:
        self._call("fail", id_, token, "")
        self.runs[id_].state = "failed"
        self.runs[id_].ended.append("failed")

    def _release(self, id_: int, token: int, data: st.DataObject) -> None:
        self._call("release", id_, token, "")
        self.runs[id_].state = "pending"
        self.runs[id_].ended.append("released")

    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        id_ = data.draw(st.sampled_from(list(self.runs)))
        if self.runs[id_].state == "failed":
            self.store.retry(id_)
            self.runs[id_].state = "pending"
        else:
            with pytest.raises(InvalidInput):
                self.store.retry(id_)

    @invariant()
    def the_store_agrees_with_the_model(self) -> None:
        for row, run in zip(self.store.dump(self.study)["runs"], self.runs.values(), strict=True):
            assert (row["state"], row["attempts"]) == (run.state, run.token)
            assert row["lease_expires"] == (run.expires if run.state == "running" else None)
            assert [trial["key"] for trial in row["trials"]] == run.trials
            assert [attempt["outcome"] for attempt in row["history"]] == run.ended


TestLeasing = Leasing.TestCase
TestLeasing.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
