"""Study as a library: callers own the loop, several of them at once, and none loses what was told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from factored_scaling import Dataset, Episode, Results, Study, StudySpec, Trial
from factored_scaling.errors import (
    FscError,
    InvalidInput,
    LeaseLost,
    NotEnoughData,
    StudyExists,
    StudyMissing,
    UnknownFactor,
)
from factored_scaling.store import Store

SPEC = StudySpec({"camera_pose": 6, "lighting": 6, "table": 3}, construction="one", points=3, name="lab")
SHORT = 0.3  # seconds of a lease that is meant to run out


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A study.db with a planned first round."""
    Study.create(SPEC, tmp_path / "study.db").close()
    return tmp_path / "study.db"


def my_robot_lab(episodes: tuple[str, ...]) -> float:
    """More demonstrations, better policy; lighting helps most."""
    light = sum(id_.startswith("lighting") for id_ in episodes)
    return 0.3 + 0.02 * len(episodes) + 0.03 * light


def test_ask_and_tell(path: Path) -> None:
    with Study.open(path) as study:
        first = study.ask()[0]
        assert len(first.episodes) == 15
        assert first.demos == {"camera_pose": 6, "lighting": 6, "table": 3}
        assert first.seed == 0
        study.tell(first.id, my_robot_lab(first.episodes))
        told = 1
        while runs := study.ask(2):
            assert len(runs) <= 2
            for run in runs:
                study.tell(run.id, my_robot_lab(run.episodes))
                told += 1
        assert told == len(study.runs()) == 7
        assert {run.state for run in study.runs()} == {"done"}
        answer = study.recommend(12, "top")
    assert answer.allocation == {"camera_pose": 0, "lighting": 12, "table": 0}
    with Study.open(path) as again:  # and it is all still there
        assert again.ask() == []
        assert again.recommend(12, "top") == answer
        assert [curve.combination.label for curve in again.fit()] == ["camera_pose", "lighting", "table"]


def test_what_may_be_told(path: Path) -> None:
    with Study.open(path) as study:
        runs = study.ask(7)
        assert study.tell(runs[0].id, 1) is None
        single, several = cast(float, np.float32(0.5)), cast(list[float], np.array([0.0, 1.0]))  # numpy's are welcome
        assert study.tell(runs[1].id, single) is None
        result = study.tell(runs[2].id, [1, 0, True, np.float64(0.5)])
        assert result is not None
        assert (result.overall.mean, result.overall.trials) == (0.625, 4)
        result = study.tell(runs[3].id, {"lighting": [1.0, 0.0], "camera_pose+table": [0.5], "*": 0.25})
        assert result is not None
        assert {name: score.mean for name, score in result.by_factor.items()} == {
            ("lighting",): 0.5,
            ("camera_pose", "table"): 0.5,
        }
        study.tell(runs[4].id, [Trial("a", 1.0, ("table",), "oak", "by hand")])
        study.tell(runs[5].id, several)
        assert study.store.trials(runs[4].id)[0].setting == "oak"
        rows = [(row.place, row.factor, row.score, row.trials) for row in study.results().rows]
    assert rows == [
        (f"run {runs[0].id}", (), 1.0, None),
        (f"run {runs[1].id}", (), 0.5, None),
        (f"run {runs[2].id}", (), 0.625, 4),
        (f"run {runs[3].id}", ("lighting",), 0.5, 2),
        (f"run {runs[3].id}", ("camera_pose", "table"), 0.5, 1),
        (f"run {runs[3].id}", ("*",), 0.25, None),
        (f"run {runs[4].id}", ("table",), 1.0, 1),
        (f"run {runs[5].id}", (), 0.5, 2),
    ]


@pytest.mark.parametrize(
    "outcome",
    [
        1.5,
        -0.1,
        float("nan"),
        [0.5, 2.0],
        [],
        {},
        "0.5",
        None,
        {"lihgting": 0.5},
        {"lighting": "good"},
        {"lighting": {}},
    ],
)
def test_what_may_not_be_told(outcome: object, path: Path) -> None:
    with Study.open(path) as study:
        run = study.ask()[0]
        with pytest.raises(InvalidInput):
            study.tell(run.id, outcome)  # type: ignore[arg-type]
        row = study.find_run(run.id)
        assert (row.state, row.trials, row.scores) == ("running", 0, 0)
        study.tell(run.id, 0.5)


def test_finished_rows_never_change(path: Path) -> None:
    with Study.open(path) as study:
        run = study.ask()[0]
        study.tell(run.id, [1.0, 0.0])
        with pytest.raises(InvalidInput, match="done"):
            study.tell(run.id, [1.0, 0.0, 1.0])
        with pytest.raises(InvalidInput, match="already stored"):
            study.tell(run.id, [0.0, 0.0])
        with pytest.raises(LeaseLost, match="finished rows never change"):
            study.take(run.id)
        study.tell(run.id, [1.0, 0.0])  # the same again is no news
        assert study.find_run(run.id).trials == 2


def test_trials_arrive_over_a_day(path: Path) -> None:
    with Study.open(path) as study:
        study.record(1, [Trial("morning", 1.0, ("lighting",))])
    with Study.open(path) as study:
        assert study.record(1, [Trial("morning", 1.0, ("lighting",)), Trial("evening", 0.0, ("lighting",))]) == 1
        with pytest.raises(UnknownFactor, match="did you mean lighting"):
            study.record(1, [Trial("night", 0.0, ("lightning",))])
        assert study.results().rows == ()
        assert [run.id for run in study.unfinished()] == [1]
        assert study.results(partial=True).rows[0].trials == 2
        study.finish(1)
        assert study.results().rows[0].score == 0.5
        with pytest.raises(InvalidInput):
            study.finish(2)  # nothing was measured


def test_two_studies_on_one_file_never_share_a_run(path: Path) -> None:
    with Study.open(path) as one, Study.open(path) as two:
        taken = [one.ask(2), two.ask(3), one.ask(9), two.ask(9)]
        ids = [run.id for runs in taken for run in runs]
        assert [len(runs) for runs in taken] == [2, 3, 2, 0]
        assert len(set(ids)) == 7
        with pytest.raises(LeaseLost, match="not taken"):
            two.heartbeat(taken[0][0].id)
        with pytest.raises(LeaseLost):
            two.take(taken[0][0].id)
        one.release(taken[0][0].id)
        assert two.ask()[0].id == taken[0][0].id
        with pytest.raises(LeaseLost):
            one.release(taken[0][0].id)
        one.fail(taken[0][1].id, "gripper broke")
        assert one.find_run(taken[0][1].id).error == "gripper broke"
        assert two.ask() == []


WORKER = """
import sys
from factored_scaling import Study
with Study.open(sys.argv[1]) as study:
    print("ready", flush=True)
    sys.stdin.readline()
    while runs := study.ask():
        print(runs[0].id, flush=True)
        study.tell(runs[0].id, 0.5)
"""


def test_two_processes_never_share_a_run(path: Path) -> None:
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    with Study.open(path) as study:
        for seed in range(1, 14):
            study.add({"camera_pose": 6, "lighting": 6, "table": 3}, seed)
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    done = [worker.communicate()[0].split() for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    assert sorted(int(id_) for ids in done for id_ in ids) == list(range(1, 21))


DOOMED = """
import sys, time
from factored_scaling import Study, Trial
with Study.open(sys.argv[1]) as study:
    run = study.ask(lease_seconds=float(sys.argv[2]))[0]
    study.record(run.id, [Trial("first", 1.0)])
    print(run.id, flush=True)
    time.sleep(60)
"""


def test_a_killed_workers_run_comes_back_with_its_trials(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DOOMED, str(path), "1.0"], stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        run_id = int(worker.stdout.readline())
        os.kill(worker.pid, signal.SIGKILL)
    with Study.open(path) as study:
        assert study.find_run(run_id).state == "running"
        deadline = time.monotonic() + 20
        mine = study.ask()
        while run_id not in [run.id for run in mine] and time.monotonic() < deadline:
            time.sleep(0.05)
            mine += study.ask()
        assert run_id in [run.id for run in mine]
        assert [trial.key for trial in study.store.trials(run_id)] == ["first"]
        study.record(run_id, [Trial("second", 0.0)])
        study.finish(run_id)
        assert study.find_run(run_id).mean == 0.5


def test_a_heartbeat_keeps_a_run(path: Path) -> None:
    with Study.open(path) as slow, Study.open(path) as quick:
        run = slow.ask(lease_seconds=SHORT)[0]
        slow.heartbeat(run.id, lease_seconds=60)
        time.sleep(SHORT * 1.2)
        assert run.id not in [other.id for other in quick.ask(9)]
        slow.heartbeat(run.id, lease_seconds=SHORT / 10)
        time.sleep(SHORT)
        assert quick.ask()[0].id == run.id
        with pytest.raises(LeaseLost, match="taken away"):
            slow.record(run.id, [Trial("late", 1.0)])
        with pytest.raises(LeaseLost):
            slow.tell(run.id, [1.0])
        quick.tell(run.id, 0.25)
        assert [row.score for row in quick.results().rows] == [0.25]


def test_rounds_share_runs_and_keep_rows(path: Path) -> None:
    with Study.open(path, settings=SPEC) as study:
        for run in study.ask(99):
            study.tell(run.id, my_robot_lab(run.episodes))
        before = {run.digest: run for run in study.runs()}
        row = study.extend({"lighting": 4, "nominal": 0}, recommendation=study.recommend(4, "top").to_mapping())
        assert (row.index, row.spec.sizes) == (1, {"camera_pose": 6, "lighting": 10, "table": 3})
        assert row.recommendation is not None
        pending = study.ask(99)
        assert pending
        assert not {run.spec.digest for run in pending} & set(before)
        # lighting at n = 0 trains on what it trained on before
        shared = [run for run in study.runs() if run.rounds == (0, 1)]
        assert [run.demos for run in shared] == [{"camera_pose": 6, "lighting": 0, "table": 3}]
        for digest, old in before.items():
            new = study.find_run(digest)
            assert (new.id, new.state, new.scores, new.finished) == (old.id, "done", old.scores, old.finished)
        for run in pending:
            study.tell(run.id, my_robot_lab(run.episodes))
        assert sum(study.recommend(10, "all").allocation.values()) == 10
        said = study.recommend(10).summary
        assert said is not None
        assert said.policies == len(study.runs())  # those of the first, smaller dataset too
        with pytest.raises(InvalidInput, match="no new demonstrations"):
            study.extend({"lighting": 0})
        with pytest.raises(UnknownFactor, match="did you mean lighting"):
            study.extend({"lightning": 1})
        for count in (-1, 1.5, True, "3", 10**9):
            with pytest.raises(InvalidInput, match="lighting"):
                study.extend({"lighting": cast(int, count)})


def test_an_order_is_followed_once(path: Path) -> None:
    with Study.open(path) as study:
        assert study.saved_recommendation() is None
        study.store.put_document(study.id, "recommendation", "latest", {"allocation": {"table": 2}})
        assert study.saved_recommendation() == {"allocation": {"table": 2}}
        study.extend({"table": 2}, study.saved_recommendation())
        assert study.saved_recommendation() is None


def test_real_episodes(tmp_path: Path) -> None:
    spec = StudySpec({"light": 2, "table": 1}, construction="one", points=2)
    episodes = (Episode("monday-1", "light"), Episode("monday-2", "light"), Episode("tuesday-1", "table"))
    with Study.create(spec, tmp_path / "a.db", Dataset(episodes)) as study:
        assert set(study.ask()[0].episodes) == {"monday-1", "monday-2", "tuesday-1"}
        study.extend([Episode("friday-1", "table"), Episode("friday-2")])
        assert (study.spec.sizes, study.spec.nominal) == ({"light": 2, "table": 2}, 1)
        with pytest.raises(InvalidInput, match="listed twice"):
            study.extend([Episode("friday-1", "table")])
        with pytest.raises(UnknownFactor):
            study.extend([Episode("friday-3", "tabel")])
    with pytest.raises(InvalidInput, match="2 demos of light, the study says 3; write `light: 2`, or label the rest"):
        Study.create(StudySpec({"light": 3, "table": 1}), tmp_path / "b.db", Dataset(episodes))
    with pytest.raises(
        UnknownFactor, match="a label of the dataset: unknown factor 'light'; `factors:` has lamp, table"
    ):
        Study.create(StudySpec({"lamp": 2, "table": 1}), tmp_path / "b.db", Dataset(episodes))
    assert not (tmp_path / "b.db").exists()


def test_two_who_extend_at_once_lose_nothing(path: Path) -> None:
    def recorded() -> Iterator[Episode]:
        """Somebody else's round begins while this one is being put together."""
        with Study.open(path) as other:
            other.extend({"lighting": 4})
        yield Episode("friday-1", "table")

    with Study.open(path) as study:
        with pytest.raises(InvalidInput, match="round 1 cannot be added, the next one is round 2"):
            study.extend(recorded())
        assert study.spec.sizes == {"camera_pose": 6, "lighting": 10, "table": 3}
        study.extend([Episode("friday-1", "table")])
        assert study.spec.sizes == {"camera_pose": 6, "lighting": 10, "table": 4}
        assert study.dataset.count("lighting") == 10


def test_a_study_that_cannot_be_made_leaves_no_file(tmp_path: Path) -> None:
    for address in (tmp_path / "study.db", str(tmp_path / "study.db"), f"sqlite:///{tmp_path}/study.db"):
        with pytest.raises(InvalidInput, match="500 characters"):
            Study.create(SPEC.changed(name="x" * 500), address)
        assert list(tmp_path.iterdir()) == []
    Study.create(SPEC, tmp_path / "study.db").close()
    assert [path.name for path in tmp_path.iterdir()] == ["study.db"]


def test_a_study_that_cannot_be_made_leaves_other_files_alone(tmp_path: Path) -> None:
    (tmp_path / "study.db.old").write_bytes(b"put aside")
    with pytest.raises(InvalidInput):
        Study.create(SPEC.changed(name="x" * 500), tmp_path / "study.db")
    assert [path.name for path in tmp_path.iterdir()] == ["study.db.old"]


def test_a_study_that_somebody_else_made_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, path = Store.open, tmp_path / "study.db"

    def late(address: Path, **options: Any) -> Store:
        """Another process makes the study after this one has seen that there is none."""
        monkeypatch.setattr(Store, "open", opened)
        Study.create(SPEC, path).close()
        return opened(address, **options)

    monkeypatch.setattr(Store, "open", late)
    with pytest.raises(StudyExists, match="already a study 'lab'"):
        Study.create(SPEC, path)
    with Study.open(path) as study:
        assert len(study.runs()) == 7
    with pytest.raises(StudyExists, match="already a study"):
        Study.create(SPEC, str(path))
    with Study.open(path) as study:  # the one that was there is untouched
        assert len(study.runs()) == 7
    assert [path.name for path in tmp_path.iterdir()] == ["study.db"]


def test_opening(path: Path, tmp_path: Path) -> None:
    with pytest.raises(StudyMissing):
        Study.open(tmp_path / "none.db")
    with pytest.raises(StudyMissing, match="did you mean lab"):
        Study.open(path, "lap")
    Study.create(SPEC.changed(name="second"), path).close()
    with pytest.raises(StudyMissing, match="lab, second"):
        Study.open(path)
    with Study.open(path, "second") as study, pytest.raises(FscError):
        study.recommend(5)
    with pytest.raises(InvalidInput, match="nothing is recorded yet: remove"):
        Study.open(path, "lab", SPEC.with_demos({"table": 1}))
    with Study.open(path, "lab") as study:
        study.tell(study.runs()[0].id, 0.5)
    with pytest.raises(InvalidInput, match="fsc extend"):
        Study.open(path, "lab", SPEC.with_demos({"table": 1}))
    with Study.open(path, "lab", SPEC.changed(construction="pair")) as study:
        assert [combination.label for combination in study.spec.combinations()][-1] == "lighting+table"
        known = {run.digest for run in study.runs()}
        assert {run.spec.digest for run in study.plan()} - known  # new policies, and the old ones are kept
        assert known < {run.digest for run in study.runs()}


def test_imports_are_whole_or_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows: list[dict[str, Any]] = [
        {"combination": "lighting", "n": n, "score": 0.3 + n / 20, "trials": 20} for n in (0, 3, 6)
    ]
    with Study.open(path) as study:
        assert study.import_results(Results.from_rows(rows), "monday") == 3
        assert study.import_results(Results.from_rows(rows), "monday") == 0
        assert study.import_results(Results.from_rows(rows), "again") == 0  # the same under another name is no news
        said = "3 rows are stored already and were not added (again:1, again:2, again:3); if they are new measurements"
        assert caplog.messages == [f"{said}, give another seed"]
        before = study.store.dump(study.id)
        worse = [{"combination": "table", "n": 1, "score": 0.1}, *rows[1:], {**rows[0], "score": 0.9}]
        clash = [{**rows[0], "score": 0.9}, {"combination": "table", "n": 1, "score": 0.1}]
        with pytest.raises(InvalidInput, match=r"monday:1: is stored already .* not 0\.9; the stored score stays;"):
            study.import_results(Results.from_rows(clash), "monday")
        assert study.store.dump(study.id) == before
        assert study.import_results(Results.from_rows(worse), "tuesday") == 2
        with pytest.raises(UnknownFactor):
            study.import_results(Results.from_rows([rows[0], {**rows[0], "combination": "lamp"}]), "wednesday")
        with pytest.raises(NotEnoughData):
            study.recommend(5, "top")


def test_a_file_of_an_earlier_round_is_no_news_after_the_next(path: Path) -> None:
    full = {"camera_pose": 6, "lighting": 6, "table": 3}
    rows = [{"demos": {**full, "lighting": n}, "score": 0.3 + n / 20, "trials": 20} for n in (0, 3, 6)]
    with Study.open(path) as study:
        assert study.spec.sizes == full
        assert study.import_results(Results.from_rows(rows), "all.csv") == 3
        done = [run.id for run in study.runs() if run.state == "done"]
        study.extend({"lighting": 6, "camera_pose": 2})
        rows.append({"demos": {"camera_pose": 8, "lighting": 12, "table": 3}, "score": 0.7, "trials": 20})
        # the same counts would now be drawn from more demonstrations, and be other policies
        assert study.import_results(Results.from_rows(rows), "all.csv") == 1
        assert {run.id for run in study.runs() if run.state == "done" and run.rounds[0] == 0} == set(done)
        pending = [run.id for run in study.runs() if run.state == "pending"]
        with Study.open(path) as other:
            assert [run.id for run in other.ask(len(pending))] == pending
            for id_ in pending:
                other.release(id_)
        assert len(study.results().rows) == 4
        # the scores of a policy that was planned and not measured before the round go to it
        waiting = next(run for run in study.runs() if run.state == "pending" and run.rounds == (0,))
        more = [{"demos": waiting.demos, "score": 0.25, "trials": 20}]
        assert study.import_results(Results.from_rows(more), "more.csv") == 1
        assert study.find_run(waiting.id).state == "done"


def test_what_a_study_exported_is_no_news_to_it(path: Path) -> None:
    counts = {"camera_pose": 6, "lighting": 0, "table": 3}
    with Study.open(path) as study:
        for run in study.ask(3):
            study.tell(run.id, {"lighting": [1, 0, 0], "table": [1, 1, 0]})
        study.extend({"lighting": 6, "camera_pose": 2})
        study.tell(study.add(counts), [1, 0, 0, 1])  # drawn anew: now there are two policies with these counts
        assert sum(run.demos == counts and run.state == "done" for run in study.runs()) == 2
        exported = study.results()
        assert study.import_results(exported, "exported.csv") == 0
        assert study.results() == exported


def test_trials_without_a_factor_beside_others_are_a_warning_wherever_curves_are(path: Path) -> None:
    with Study.open(path) as study:
        for run in study.ask(7):
            study.tell(run.id, {"lighting": [1, 0], "table": [1, 1], "": [0] * 6} if run.id == 2 else [1, 0, 0])
        said = "run 2 has 6 trials without a factor and 4 with one: the paper's curves use those without a factor only"
        now = study.snapshot()
        assert now.curves.warnings == (said,)
        for strategy, fit in (("auto", None), ("auto", "power-law"), ("top", None), ("top", "response-model")):
            assert said in now.recommend(20, strategy, fit).warnings
        assert said in study.report(path.with_name("report.html"), 20).read_text().replace("&#39;", "'")


def test_runs_outside_the_plan(path: Path) -> None:
    with Study.open(path) as study:
        run_id = study.add({"camera_pose": 1, "lighting": 2, "table": 3}, seed=7)
        assert study.add({"camera_pose": 1, "lighting": 2, "table": 3}, seed=7) == run_id
        assert study.find_run(study.find_run(run_id).digest[:6]).id == run_id
        with pytest.raises(InvalidInput, match="more than the 3"):
            study.add({"camera_pose": 1, "lighting": 2, "table": 4})
        with pytest.raises(InvalidInput, match="every factor"):
            study.add({"camera_pose": 1})
        with pytest.raises(StudyMissing, match="no run 'zzzz'"):
            study.find_run("zzzz")


def test_a_plan_that_was_changed_takes_back_what_it_no_longer_has(tmp_path: Path) -> None:
    """`fsc init` plans before study.yaml is finished: all that was planned until then would be trained as well."""
    spec, path = StudySpec({"camera": 4, "light": 4, "table": 4}, construction="one"), tmp_path / "study.db"
    Study.create(spec, path).close()
    for policy in ({"steps": 10}, {"steps": 20}, {}, {"steps": 30}):
        with Study.open(path, settings=replace(spec, policy=policy)) as study:
            assert len(study.replan()) == 10
            assert study.replan() == []
            assert [run.settings["policy"] for run in study.runs()] == [policy] * 10
    fewer = replace(spec, policy={"steps": 30}, points=2)
    with Study.open(path, settings=fewer) as study:
        own = study.add({"camera": 1, "light": 1, "table": 1})
        first, working, stopped = study.ask(3)
        study.tell(first.id, 0.5)
        study.release(stopped.id)
        assert len(study.replan()) == 6
    with Study.open(path, settings=replace(fewer, policy={"steps": 40})) as study:
        assert len(study.replan()) == 2
        assert {run.id for run in study.runs()} >= {own, first.id, working.id}
        assert [run.settings["policy"]["steps"] for run in study.runs()].count(40) == 4
    with Study.open(path, settings=replace(fewer, policy={"steps": 40})) as study:
        study.store.release(working.id)  # it was with somebody when the plan changed
        assert study.replan() == [working.id]


def test_hindsight_compares_the_prediction_for_the_last_round_with_its_outcome(tmp_path: Path) -> None:
    spec = StudySpec({"camera": 20, "light": 20}, construction="one", points=3, seeds=2)

    def measure(study: Study) -> None:
        while runs := study.ask():
            for run in runs:
                scores = {name: 1 - 0.9 * (1 + demos) ** -0.3 for name, demos in run.demos.items()}
                study.tell(
                    run.id, {name: [1] * round(400 * s) + [0] * (400 - round(400 * s)) for name, s in scores.items()}
                )

    with Study.create(spec, tmp_path / "study.db") as study:
        measure(study)
        assert study.hindsight() is None
        study.extend({"camera": 40})
        assert study.hindsight() is None
        study.tell(study.ask(1)[0].id, {"camera": 0.9, "light": 0.1})
        found = study.hindsight()
        assert found is not None
        assert found.measured == pytest.approx(0.5)  # the mean over factors
        assert found.policies == 1
        assert 0.6 < found.expected.mean < 0.75  # the truth of the rule above is 0.69
        assert found.expected.low < found.expected.mean < found.expected.high
        assert "; one policy trained on everything scored 50.0%" in found.sentence
        measure(study)
        later = study.hindsight()
        assert later is not None
        assert (later.policies, "factors" in later.to_mapping()) == (2, False)
        assert later.expected == found.expected  # scores measured since do not change the prediction
        assert later.measured > found.measured


def test_hindsight_compares_the_same_trials(tmp_path: Path) -> None:
    with Study.create(StudySpec({"camera": 20, "light": 20, "table": 20}), tmp_path / "study.db") as study:
        study.tell(study.ask(1)[0].id, {"camera": [1] * 40, "light": [1] * 38 + [0] * 2, "table": [0] * 40})
        study.extend({"table": 5})
        study.tell(study.ask(1)[0].id, {"camera": [1] * 20, "light": [1] * 20})
        found = study.hindsight()
        assert found is not None
        assert found.measured == 1.0
        assert found.expected.mean > 0.85  # on those trials; over all factors it would be about two thirds
        assert " on the trials of camera and light; one policy" in found.sentence
        assert found.to_mapping()["factors"] == ["camera", "light"]
