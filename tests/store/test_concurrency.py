"""Several processes and threads on one store."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from factored_scaling.core.dataset import Dataset
from factored_scaling.core.design import PlannedRun, RunSpec
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Trial
from factored_scaling.store import RunRow, Store
from factored_scaling.study import Study

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parent / "programs"
WORKERS = 4
RUNS = 60


def run_program(name: str, *arguments: object) -> str:
    command = [sys.executable, str(PROGRAMS / name), *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout


def test_four_processes_never_take_the_same_run(address: str) -> None:
    with Store.open(address) as store:
        spec = StudySpec({"light": 1})
        study = store.create_study("shared", spec, Dataset.of_sizes(spec.sizes))
        store.add_runs(study, 0, [PlannedRun(RunSpec((), seed=seed), {"light": 1}, ()) for seed in range(RUNS)])
    taken = [line.split() for line in run_program("race.py", "work", address, WORKERS).splitlines()]
    assert len(taken) == len({run for _, run in taken}) == RUNS
    assert len({worker for worker, _ in taken}) > 1, "one worker did everything, so nothing was contended"
    with Store.open(address) as store:
        rows = store.runs(study)
        assert {(row.state, row.attempts, row.trials) for row in rows} == {("done", 1, 3)}
        assert {str(row.id): row.worker for row in rows} == {run: worker for worker, run in taken}
        for row in rows:
            assert {trial.key.split("/")[0] for trial in store.trials(row.id)} == {row.worker}


def test_processes_that_open_a_new_database_at_once_make_it_once(address: str) -> None:
    run_program("race.py", "make", address, 2 * WORKERS)
    with Store.open(address, create=False) as store:
        assert store.studies() == []


def test_files_imported_at_once_into_a_new_study_are_all_there(tmp_path: Path) -> None:
    """Each command makes the record where it finds none; none may take another's away."""
    for number in range(6):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "study.yaml").write_text("name: shared\nfactors: {a: 4, b: 4, c: 4}\nconstruction: one\npoints: 3\n")
        for worker, factor in enumerate("abc"):
            (folder / f"worker-{worker}.csv").write_text(f"combination,n,score\n{factor},0,0.2\n{factor},2,0.3\n")
        before = {path.name for path in folder.iterdir()}
        codes = dict(line.split() for line in run_program("race.py", "import", folder, 3).splitlines())
        assert codes == {"worker-0": "0", "worker-1": "0", "worker-2": "0"}
        with Study.open(folder / "study.db") as study:
            assert len(study.results().rows) == 6
            assert len(study.runs()) == 7
        assert {path.name for path in folder.iterdir()} == before | {"study.db"}


def test_a_whole_study_imported_at_once_into_one_folder_is_there_once(tmp_path: Path) -> None:
    spec = StudySpec({"a": 4, "b": 4}, construction="one", name="whole")
    with Study.create(spec, tmp_path / "made.db") as study:
        dump = study.store.dump(study.id)
    for number in range(6):
        folder = tmp_path / str(number)
        folder.with_suffix(".json").write_text(json.dumps(dump))
        codes = [line.split()[1] for line in run_program("race.py", "import", folder, 3).splitlines()]
        assert sorted(codes) == ["0", "2", "2"]
        with Study.open(folder / "study.db") as study:
            assert study.store.dump(study.id) == dump
        assert {path.name for path in folder.iterdir()} == {"study.db", "study.yaml"}
    assert len(list(tmp_path.iterdir())) == 1 + 2 * 6  # nothing is left beside them


def test_threads_share_a_store(store: Store, example: Any) -> None:
    taken: list[RunRow | None] = []
    barrier = threading.Barrier(8)

    def work(name: str) -> None:
        barrier.wait()
        run = store.lease(example.study, name, 60)
        if run is not None:
            for number in range(10):
                store.append_trials(run.id, [Trial(str(number), 1.0)], run.lease_token)
            store.tell(run.id, lease_token=run.lease_token)
        taken.append(run)

    threads = [threading.Thread(target=work, args=(f"thread {number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # eight threads, seven runs: each run once, and one thread goes without
    assert sorted(run.id for run in taken if run) == sorted(example.runs)
    assert {(row.state, row.trials) for row in store.runs(example.study)} == {("done", 10)}


def test_threads_that_tell_the_same_trials_store_each_once(store: Store, example: Any) -> None:
    barrier = threading.Barrier(4)
    told = [Trial(str(number), 1.0) for number in range(30)]

    def tell(_: int) -> int:
        barrier.wait()
        return sum(store.append_trials(example.runs[0], [trial]) for trial in told)

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(tell, range(4))) == len(told)
    assert sorted(store.trials(example.runs[0]), key=told.index) == told


@pytest.mark.timeout(90)
def test_a_store_survives_a_fork(address: str, example_at: Any) -> None:
    run_id = example_at(address).runs[0]
    run_program("fork.py", address, run_id)
    with Store.open(address) as store:
        writers = Counter(trial.key.split("/")[0] for trial in store.trials(run_id))
    assert writers.pop("thread") >= 10
    assert writers == {"parent": 5, **{f"child {child}": 10 for child in range(5)}}
