"""Databases of every version so far can be opened; what cannot be is said plainly and left as it was."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Connection, inspect

from factored_scaling.core.design import PlannedRun, RunSpec
from factored_scaling.core.rubric import RUBRICS
from factored_scaling.core.trial_queue import plan_queue
from factored_scaling.core.trials import Tally, Trial
from factored_scaling.errors import StoreError
from factored_scaling.store import Entry, Measurement, Store, migrations
from factored_scaling.store.connections import Database

DATABASES = sorted((Path(__file__).parent / "databases").glob("v*.db"))


@pytest.fixture(params=DATABASES, ids=lambda path: path.stem)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a database that an earlier release wrote."""
    return Path(shutil.copy(request.param, tmp_path / "old.db"))


def test_there_is_a_database_of_every_version() -> None:
    assert [path.stem for path in DATABASES] == [f"v{version + 1}" for version in range(migrations.newest_version())]


def test_an_old_database_is_read_whole(old: Path) -> None:
    written = int(version(old))
    with Store.open(old, create=False) as store:
        study = store.study("old").id
        first, second = store.rounds(study)
        assert (first.spec.sizes, first.recommendation) == ({"camera": 4, "light": 4}, None)
        assert (second.spec.sizes, second.recommendation) == ({"camera": 4, "light": 5}, {"light": 1})
        assert second.dataset.count("light") == 5
        runs = store.runs(study)
        last = "trained" if written >= 2 else "pending"
        assert [run.state for run in runs] == ["done", "failed", "running", "pending", last]
        assert (runs[0].rounds, runs[0].trials, runs[0].mean, runs[0].worker) == ((0, 1), 2, 0.75, "first")
        assert (runs[1].error, runs[1].finished) == ("out of memory", 1_700_000_000.0)
        assert (runs[2].worker, runs[2].lease_expires) == ("third", 1_700_000_060.0)
        assert runs[0].policy == ("weights" if written >= 4 else None)
        assert {run.seed for run in runs} == {0}
        assert all(run.settings == {"task": None, "policy": {}, "evaluation": {}} for run in runs)
        assert store.tallies(study) == {runs[0].id: [Tally(("light",), 1.0, 1), Tally((), 0.5, 1)]}
        assert store.trials(runs[0].id) == [Trial("a", 1.0, ("light",), "dim", "slipped"), Trial("b", 0.5)]
        assert store.scores(runs[2].id) == [Measurement(0.25, 20, ("camera",), "results.csv")]
        assert [attempt.outcome for attempt in store.attempts(runs[1].id)] == ["failed"]
        assert store.document(study, "remix", "0") == {"light": 0.75}


def test_scores_of_people_are_read_from_version_3_on(old: Path) -> None:
    written = int(version(old))
    with Store.open(old, create=False, clock=lambda: 1_700_000_030.0) as store:
        evaluations = store.evaluations(store.study("old").id)
        if written < 3:
            assert evaluations == []
            return
        (evaluation,) = evaluations
        assert (evaluation.number, evaluation.rubric, evaluation.step_limit) == (1, RUBRICS["success"], 600)
        assert evaluation.closed is None
        queue = store.queue(evaluation.id)
        assert len(queue) == 2 * 20
        told = [(trial.state, trial.score, trial.ending, trial.notes, trial.operator) for trial in queue[:6]]
        assert told == [
            ("scored", 1.0, "", (), "ada"),
            ("scored", 0.0, "hazard", ("hit the table",), "ada"),
            ("open", None, "", (), "ada"),
            ("skipped", None, "", ("the lamp broke",), "ada"),
            ("open", None, "", (), "grace"),
            ("open", None, "", (), None),
        ]
        assert [trial.claimed for trial in queue[:6]] == [False, False, True, False, True, False]
        summary = store.queue_summary(evaluation.id, "ada", recent=5)
        assert (summary.open, summary.scored, summary.skipped, summary.claimed) == (37, 2, 1, 2)
        assert (summary.levels, summary.mine) == ({1.0: 1, 0.0: 1}, 2)
        assert (summary.last, summary.current) == (queue[3], queue[2])
        assert summary.recent == (1_700_000_000.0,) * 3
        assert [row.entry.kind for row in store.entries(evaluation.id)] == ["score", "score", "score", "undo", "skip"]


def test_a_lease_of_an_old_database_is_over_when_the_clock_was_set_back(old: Path) -> None:
    taken = 1_700_000_000.0  # "third" took its run then, for a minute
    for now, over in ((taken + 59, False), (taken + 60, True), (taken - 59, False), (taken - 86_400, True)):
        with Store.open(old, clock=lambda now=now: now) as store:  # type: ignore[misc]
            run = store.runs(store.study("old").id)[2]
            assert run.worker == "third"
            found = store.lease(store.study("old").id, "heir", 60, run_id=run.id)
            assert (found is not None) == over
            if found is not None:
                break
    with Store.open(old, clock=lambda: taken - 86_400) as store:
        trial = next(
            (t for e in store.evaluations(store.study("old").id) for t in store.queue(e.id) if t.claimed), None
        )
        assert trial is None  # who claimed one has gone home


def test_an_old_database_goes_on(old: Path) -> None:
    with Store.open(old) as store:
        study = store.study("old").id
        run = store.lease(study, "today", 60)
        assert run is not None
        assert run.worker == "today"
        assert [attempt.outcome for attempt in store.attempts(run.id)] == ["lost"]  # "third" has been silent for years
        store.append_trials(run.id, [Trial("new", 1.0)], run.lease_token)
        store.tell(run.id, lease_token=run.lease_token)
        scoring = store.rounds(study)[-1].spec.scoring_spec()
        queued = plan_queue(1, scoring, seed=0)
        waiting = store.add_runs(study, 1, [PlannedRun(RunSpec(("light/0",)), {"camera": 0, "light": 1}, ())])
        evaluation = store.add_evaluation(study, waiting, queued, scoring.rubric, scoring.step_limit, seed=0)
        store.append_entries(evaluation, [(trial.code, Entry("score", trial.code, "ada", 1.0)) for trial in queued])
        assert store.close_evaluation(evaluation) == 20
        assert store.run(waiting[0]).mean == 1.0


def test_an_old_database_gets_the_tables_of_a_new_one(old: Path, tmp_path: Path) -> None:
    with Store.open(old), Store.open(tmp_path / "new.db"):
        pass
    assert tables(old) == tables(tmp_path / "new.db")


def test_steps_are_applied_in_order_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "study.db"
    Store.open(path).close()
    applied = []

    def second(connection: Connection) -> None:
        applied.append(2)
        connection.exec_driver_sql("ALTER TABLE fsc_runs ADD COLUMN colour TEXT")

    def third(connection: Connection) -> None:
        applied.append(3)
        connection.exec_driver_sql("UPDATE fsc_runs SET colour = 'red'")

    newest = migrations.newest_version()
    monkeypatch.setattr(migrations, "MIGRATIONS", [*migrations.MIGRATIONS, second, third])
    Store.open(path).close()
    Store.open(path).close()
    assert applied == [2, 3]
    assert version(path) == str(newest + 2)


def test_a_step_that_fails_leaves_the_database_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "study.db"
    Store.open(path).close()
    before = tables(path)

    def second(connection: Connection) -> None:
        connection.exec_driver_sql("ALTER TABLE fsc_runs ADD COLUMN colour TEXT")
        connection.exec_driver_sql("DROP TABLE fsc_trials")
        connection.exec_driver_sql("UPDATE nowhere SET colour = 'red'")

    newest = migrations.newest_version()
    monkeypatch.setattr(migrations, "MIGRATIONS", [*migrations.MIGRATIONS, second])
    with pytest.raises(StoreError, match="no such table"):
        Store.open(path)
    assert tables(path) == before
    assert version(path) == str(newest)


def test_a_database_of_a_newer_release_asks_for_an_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    Store.open(path).close()
    newer = migrations.newest_version() + 6
    change(path, f"UPDATE fsc_meta SET value = '{newer}' WHERE key = 'schema_version'")
    with pytest.raises(StoreError, match=rf"version {newer}, this release knows .* upgrade"):
        Store.open(path)
    assert version(path) == str(newer)


@pytest.mark.parametrize("statement", ["DELETE FROM fsc_meta", "UPDATE fsc_meta SET value = 'one'"])
def test_a_spoilt_version_is_an_error(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "study.db"
    Store.open(path).close()
    change(path, statement)
    with pytest.raises(StoreError, match="the schema version reads"):
        Store.open(path)


def change(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()


def version(path: Path) -> str:
    connection = sqlite3.connect(path)
    (found,) = connection.execute("SELECT value FROM fsc_meta WHERE key = 'schema_version'").fetchone()
    connection.close()
    return str(found)


def tables(path: Path) -> dict[str, object]:
    """Every table with its columns and rules, as far as they matter to a program."""
    database = Database(path, create=False, clock=None, busy_seconds=1.0)
    with database.reading() as connection:
        found = inspect(connection)
        described: dict[str, object] = {
            name: (
                [(column["name"], str(column["type"]), column["nullable"]) for column in found.get_columns(name)],
                found.get_pk_constraint(name)["constrained_columns"],
                sorted(str(unique["column_names"]) for unique in found.get_unique_constraints(name)),
                sorted(str(index["column_names"]) for index in found.get_indexes(name)),
            )
            for name in found.get_table_names()
        }
    database.close()
    return described
