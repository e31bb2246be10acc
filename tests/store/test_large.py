"""What stays quick when a study is large: answers come from indexes, lists leave out what nobody asked for."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, make_url, text

from factored_scaling.core.design import PlannedRun, RunSpec, plan
from factored_scaling.core.trials import Tally, Trial, result_of, result_of_tallies, tally
from factored_scaling.store import RunOutline, Store

TRIALS = [
    Trial("a", 1.0, ("light",)),
    Trial("b", 0.0, ("camera", "light")),
    Trial("c", 1 / 3, ("light",)),
    Trial("d", 1.0, ("light",)),
    Trial("e", 0.7),
    Trial("f", 0.0, ("camera", "light")),
]


def test_trials_are_counted_by_score(store: Store, example: Any) -> None:
    first, second, third = example.runs[:3]
    for trial in TRIALS:  # one at a time: the order in which scores came must not get lost
        store.append_trials(first, [trial])
    store.append_trials(third, TRIALS[:2])
    counted = store.tallies(example.study)
    assert counted == {first: tally(TRIALS), third: tally(TRIALS[:2])}
    assert counted[first] == [
        Tally(("light",), 1.0, 2),
        Tally(("camera", "light"), 0.0, 2),
        Tally(("light",), 1 / 3, 1),
        Tally((), 0.7, 1),
    ]
    assert store.tallies(example.study, [third, second]) == {third: counted[third]}
    assert store.tallies(example.study, []) == {}
    assert result_of_tallies(counted[first]) == result_of(TRIALS)


def test_other_studies_trials_are_not_counted(store: Store, example: Any) -> None:
    other = store.create_study("other", example.spec, example.dataset)
    (run,) = store.add_runs(other, 0, plan(example.spec, example.dataset)[:1])
    store.append_trials(run, TRIALS)
    assert store.tallies(example.study) == {}
    assert store.tallies(other) == {run: tally(TRIALS)}


def test_an_outline_says_how_far_every_run_is(store: Store, example: Any, clock: Any) -> None:
    working, failing = store.lease(example.study, "a", 60), store.lease(example.study, "b", 60)
    assert working is not None
    assert failing is not None
    store.fail(failing.id, failing.lease_token, "broke")
    store.tell(example.runs[2], waits=True)
    store.add_round(example.study, example.spec, example.dataset, None)
    store.add_runs(example.study, 1, [PlannedRun(RunSpec(("new",)), {}, ()), plan(example.spec, example.dataset)[0]])
    outline = store.outline(example.study)
    rows = store.runs(example.study)
    assert [one.id for one in outline] == [row.id for row in rows]
    assert [one.rounds[-1] for one in outline] == [1, 1] + [0] * (len(outline) - 2)  # the latest round first
    assert outline[1:4] == [
        RunOutline(working.id, "running", (0, 1), clock.time + 60, clock.time, None, None, None),
        RunOutline(failing.id, "failed", (0,), None, clock.time, clock.time, None, None),
        RunOutline(example.runs[2], "trained", (0,), None, None, None, clock.time, None),
    ]
    assert [(one.state, one.rounds) for one in outline] == [(row.state, row.rounds) for row in rows]


def test_some_runs_come_in_the_order_asked_for(store: Store, example: Any) -> None:
    first, second, third = example.runs[:3]
    rows = {row.id: row for row in store.runs(example.study)}
    assert store.some_runs([third, first, 10**6, second]) == [rows[third], rows[first], rows[second]]
    assert store.some_runs([]) == []
    specs = store.specs([third, first])
    assert list(specs) == [third, first]
    assert specs[first].digest == rows[first].digest


def test_a_row_knows_its_seed_and_settings(store: Store, example: Any) -> None:
    spec = RunSpec(("one",), {"steps": 3}, {"settings": 2}, seed=10**12, task="lift")
    (id_,) = store.add_runs(example.study, 0, [PlannedRun(spec, {"light": 1}, ())])
    row = store.some_runs([id_])[0]
    assert (row.seed, row.settings) == (10**12, spec.settings)
    loaded = store.load(store.dump(example.study))
    moved = next(row for row in store.runs(loaded) if row.digest == spec.digest)
    assert (moved.seed, moved.settings) == (10**12, spec.settings)


def test_runs_are_found_by_id_and_by_digest(store: Store, example: Any) -> None:
    row = store.runs(example.study)[1]
    assert store.find_runs(example.study, str(row.id)) == [row.id]
    assert store.find_runs(example.study, row.digest) == [row.id]
    assert store.find_runs(example.study, row.digest[:10]) == [row.id]
    other = store.create_study("other", example.spec, example.dataset)
    assert store.find_runs(other, str(row.id)) == store.find_runs(other, row.digest) == []
    for nonsense in ("", "0", "abc", f"0{row.id}", "%%%%", "____", "99999999999999999999", "²"):
        assert store.find_runs(example.study, nonsense) == []


class TestTheOrderOfLeases:
    def test_a_run_taken_out_of_the_latest_round_waits_again(self, store: Store, example: Any) -> None:
        store.add_round(example.study, example.spec, example.dataset, None)
        last = plan(example.spec, example.dataset)[-1]
        store.add_runs(example.study, 1, [last])
        assert store.withdraw_runs(example.study, 1, {last.spec.digest}) == []
        taken = [store.lease(example.study, "worker", 60) for _ in example.runs]
        assert [run.id for run in taken if run is not None] == example.runs

    def test_a_run_added_to_an_earlier_round_keeps_its_turn(self, store: Store, example: Any) -> None:
        store.add_round(example.study, example.spec, example.dataset, None)
        new = PlannedRun(RunSpec(("new",)), {}, ())
        (first,) = store.add_runs(example.study, 1, [new])
        assert store.add_runs(example.study, 0, [new]) == [first]
        run = store.lease(example.study, "worker", 60)
        assert run is not None
        assert run.id == first

    def test_a_dead_workers_run_of_an_earlier_round_waits_for_the_latest(
        self, store: Store, example: Any, clock: Any
    ) -> None:
        dead = store.lease(example.study, "dead", 1)
        clock.forward(10)
        store.add_round(example.study, example.spec, example.dataset, None)
        (new,) = store.add_runs(example.study, 1, [PlannedRun(RunSpec(("new",)), {}, ())])
        assert dead is not None
        order = [store.lease(example.study, "worker", 60) for _ in range(3)]
        assert [run.id for run in order if run is not None] == [new, dead.id, example.runs[1]]

    def test_a_loaded_study_keeps_it(self, store: Store, example: Any) -> None:
        store.add_round(example.study, example.spec, example.dataset, None)
        again = plan(example.spec, example.dataset)
        store.add_runs(example.study, 1, [PlannedRun(RunSpec(("new",)), {}, ()), again[2], again[1]])
        loaded = store.load(store.dump(example.study))

        def order(study: int) -> list[str]:
            taken = [store.lease(study, "worker", 60) for _ in range(len(again) + 1)]
            return [run.digest for run in taken if run is not None]

        assert order(loaded) == order(example.study)


class TestIndexes:
    def test_taking_a_run_looks_at_no_others(self, tmp_path: Path, example_at: Callable[[str], Any]) -> None:
        address = f"sqlite:///{tmp_path}/study.db"
        example = example_at(address)
        with Store.open(address) as store, statements() as seen:
            run = store.lease(example.study, "worker", 60)
            assert run is not None
            store.append_trials(run.id, TRIALS, run.lease_token)
            store.tell(run.id, lease_token=run.lease_token)
        plans = [step for statement in seen for step in explained(tmp_path / "study.db", *statement)]
        assert any("fsc_runs_waiting" in step for step in plans)
        assert any("fsc_runs_running" in step for step in plans)
        for table in ("fsc_runs", "fsc_trials", "fsc_scores", "fsc_attempts", "fsc_placements"):
            assert not [step for step in plans if step == f"SCAN {table}"]

    def test_scores_are_counted_from_an_index(self, tmp_path: Path, example_at: Callable[[str], Any]) -> None:
        address = f"sqlite:///{tmp_path}/study.db"
        example = example_at(address)
        with Store.open(address) as store, statements() as seen:
            store.tallies(example.study)
            store.tallies(example.study, example.runs[:2])
        plans = [step for statement in seen for step in explained(tmp_path / "study.db", *statement)]
        reads = [step for step in plans if " fsc_trials" in step]
        assert len(reads) == 2
        assert all("USING COVERING INDEX fsc_trials_by_score" in step for step in reads)
        assert not [step for step in plans if "TEMP B-TREE" in step]

    def test_lists_of_runs_leave_out_their_episodes(self, store: Store, example: Any) -> None:
        with statements() as seen:
            store.runs(example.study)
            store.outline(example.study)
            store.tallies(example.study)
        assert not [statement for statement, _ in seen if "fsc_runs.spec" in statement]


@contextmanager
def statements() -> Iterator[list[tuple[str, Any]]]:
    """Every query that is made meanwhile, with its parameters."""
    seen: list[tuple[str, Any]] = []

    def look(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
        if statement.startswith("SELECT"):
            seen.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", look)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", look)


def explained(path: Path, statement: str, parameters: Any) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        return [row[-1] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    finally:
        connection.close()


class TestLocks:
    """On PostgreSQL, where several processes write at once."""

    @pytest.fixture
    def other(self, postgres_address: str) -> Iterator[Engine]:
        engine = create_engine(make_url(postgres_address).set(drivername="postgresql+psycopg"))
        yield engine
        engine.dispose()

    def test_a_run_that_is_being_taken_is_not_waited_for(
        self, postgres_address: str, example_at: Callable[[str], Any], other: Engine
    ) -> None:
        example = example_at(postgres_address)
        with Store.open(postgres_address) as store, other.begin() as connection:
            connection.execute(
                text("SELECT id FROM fsc_runs WHERE id = ANY(:ids) FOR UPDATE"), {"ids": example.runs[:2]}
            )
            run = store.lease(example.study, "worker", 60)
        assert run is not None
        assert run.id == example.runs[2]

    def test_the_last_run_is_waited_for(
        self, postgres_address: str, example_at: Callable[[str], Any], other: Engine
    ) -> None:
        """Whoever is taking it may die before the run is theirs; it must not be left behind then."""
        example = example_at(postgres_address)
        found: list[Any] = []
        with Store.open(postgres_address) as store:
            for _ in example.runs[1:]:
                store.lease(example.study, "busy", 60)
            with other.connect() as connection:
                connection.execute(text("SELECT id FROM fsc_runs FOR UPDATE"))
                worker = threading.Thread(target=lambda: found.append(store.lease(example.study, "patient", 60)))
                worker.start()
                worker.join(0.5)
                assert worker.is_alive()
                connection.rollback()
            worker.join(20)
        assert [run.id for run in found] == example.runs[-1:]
