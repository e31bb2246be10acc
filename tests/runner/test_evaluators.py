"""Workers that only train beside workers that only evaluate, as processes and threads of this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.conftest import Rows, command, counting, fsc, outcomes, rows, training, until
from tests.runner.test_worker import QuietLine, make_study, one_by_one

from factored_scaling.backends import Context
from factored_scaling.core.design import RunSpec
from factored_scaling.core.trials import Trial
from factored_scaling.errors import InvalidInput
from factored_scaling.runner.executors import split_stages
from factored_scaling.runner.options import WorkOptions, run_folder
from factored_scaling.runner.worker import work
from factored_scaling.study import Study

__all__ = ["one_by_one"]
SETTINGS = {"kind": "tests.cluster.steps:Steps", "updates": 1, "trials": 300}


class Trains(QuietLine):
    """A line whose other end says for how many looks others still train."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks

    @property
    def training(self) -> bool:  # type: ignore[override]
        self._looks -= 1
        return self._looks >= 0


def test_what_one_trains_another_evaluates_with_the_same_rows(
    tmp_path: Path, one_by_one: tuple[Path, dict[str, list[Any]]]
) -> None:
    with make_study(tmp_path) as study:
        train, evaluate = WorkOptions(stage="train"), WorkOptions(stage="evaluate")
        work(QuietLine(), tmp_path / "study.db", study.id, tmp_path, train)
        assert [(run.state, run.trials, run.policy is None) for run in study.runs()] == [("pending", 0, False)] * 3
        work(QuietLine(), tmp_path / "study.db", study.id, tmp_path, train)  # has nothing to do
        line = QuietLine()
        work(line, tmp_path / "study.db", study.id, tmp_path, evaluate)
        assert {stage for stage, *_ in line.heard} == {"evaluate", "done"}
        assert outcomes(study) == ["done"] * 3 + ["released"] * 3
        assert rows(study) == one_by_one[1]


def test_a_damaged_policy_goes_back_to_those_that_train(tmp_path: Path) -> None:
    with make_study(tmp_path) as study:
        work(QuietLine(), tmp_path / "study.db", study.id, tmp_path, WorkOptions(stage="train"))
        first, second, _ = study.runs()
        (run_folder(tmp_path, first.digest) / "policy.safetensors").write_bytes(b"no")
        shutil.rmtree(run_folder(tmp_path, second.digest))
        work(QuietLine(), tmp_path / "study.db", study.id, tmp_path, WorkOptions(stage="evaluate"))
        assert [run.state for run in study.runs()] == ["pending", "pending", "done"]
        assert {run.policy for run in study.runs()[:2]} == {None}
        work(QuietLine(), tmp_path / "study.db", study.id, tmp_path, WorkOptions(stage="train"))
        work(QuietLine(), tmp_path / "study.db", study.id, tmp_path, WorkOptions(stage="evaluate"))
        assert {run.state for run in study.runs()} == {"done"}


def test_an_evaluator_waits_while_others_train_and_not_longer(tmp_path: Path) -> None:
    options = WorkOptions(stage="evaluate", backend=SETTINGS, idle_seconds=0.1)
    with counting(tmp_path) as study:
        for looks in (0, 2):
            line = Trains(looks)
            work(line, tmp_path / "study.db", study.id, tmp_path, options)
            assert line._looks == -1  # asked until the answer was no
            assert not line.heard
        assert {run.state for run in study.runs()} == {"pending"}


def test_an_evaluator_takes_what_the_last_one_hands_over_before_it_ends(tmp_path: Path) -> None:
    """Between the evaluator's look at the runs and the answer that nobody trains any more."""

    class HandsOver(QuietLine):
        @property
        def training(self) -> bool:  # type: ignore[override]
            work(QuietLine(), address, study.id, tmp_path, WorkOptions(stage="train", backend=SETTINGS))
            return False

    address = tmp_path / "study.db"
    with counting(tmp_path) as study:
        work(HandsOver(), address, study.id, tmp_path, WorkOptions(stage="evaluate", backend=SETTINGS))
        assert {run.state for run in study.runs()} == {"done"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_evaluators_are_processes_that_outlive_those_that_train(
    tmp_path: Path, one_by_one: tuple[Path, dict[str, list[Any]]]
) -> None:
    with make_study(tmp_path) as study:
        summary = study.run(workers=1, evaluators=1)
        assert len(summary.done) == 3
        assert rows(study) == one_by_one[1]
        attempts = [study.store.attempts(run.id) for run in study.runs()]
        trainers, evaluators = ({one[place].worker for one in attempts} for place in (0, 1))
        assert len(trainers) == len(evaluators) == 1
        assert trainers.isdisjoint(evaluators)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_evaluator_loses_nothing_and_the_command_goes_on(tmp_path: Path) -> None:
    expected = _expected(tmp_path / "plain")
    with counting(tmp_path, updates=5) as study:
        killed: list[int] = []

        def kill() -> None:
            run = until(lambda: next((r for r in study.runs() if r.state == "running" and r.trials), None), "measuring")
            killed.append(run.id)
            os.kill(int(str(run.worker).rpartition(":")[2]), signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        said = fsc("run", tmp_path, "--workers", "1", "--evaluators", "2", "--lease", "2")
        thread.join()
        assert "all runs are done" in said
        assert rows(study) == expected
        assert [one.outcome for one in study.store.attempts(killed[0])] == ["released", "lost", "done"]
        assert outcomes(study).count("done") == 3


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_interrupted_command_is_continued_with_or_without_evaluators(tmp_path: Path) -> None:
    expected = _expected(tmp_path / "plain")
    with counting(tmp_path, updates=20) as study:
        words = command("run", tmp_path, "--workers", "1", "--evaluators", "1")
        both = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until(lambda: any(run.trials for run in study.runs()) or None, "one is measured")
        until(training(study, tmp_path), "another is trained")
        both.send_signal(signal.SIGINT)
        said = both.communicate(timeout=60)
        assert both.returncode == 130, said
        assert {run.state for run in study.runs()} == {"pending"}
        assert "all runs are done" in fsc("run", tmp_path, "--workers", "1")
        assert rows(study) == expected


def _expected(folder: Path) -> Rows:
    with counting(folder, updates=1, seconds=0.0) as study:
        study.run(workers=1)
        return rows(study)


class Measures:
    """An object as a backend. Its evaluation waits until another run is trained meanwhile."""

    def __init__(self) -> None:
        self.trained: list[str] = []
        self.second = threading.Event()

    def train(self, run: RunSpec, folder: Path, context: Context) -> None:
        self.trained.append(threading.current_thread().name)
        if len(self.trained) > 1:
            self.second.set()

    def evaluate(self, run: RunSpec, folder: Path, context: Context) -> Iterator[Trial]:
        assert self.second.wait(30)
        yield Trial(f"{threading.current_thread().name}", 1.0, ("lighting",))


def test_objects_are_trained_and_measured_in_threads_of_their_own(tmp_path: Path) -> None:
    backend = Measures()
    with counting(tmp_path) as study:
        assert len(study.run(backend=backend, workers=1, evaluators=1).done) == 3
        assert backend.trained == ["worker-1"] * 3
        assert {trial.key for run in study.runs() for trial in study.store.trials(run.id)} == {"worker-2"}


def test_the_number_of_evaluators_is_checked_and_may_stand_in_study_yaml(tmp_path: Path) -> None:
    with counting(tmp_path) as study:
        for wrong in (-1, 1.5, "two", True):
            with pytest.raises(InvalidInput, match="number of evaluators must be a whole number of at least 0"):
                study.run(evaluators=wrong)
        with pytest.raises(InvalidInput, match="executor 'local' does not take evaluator_resources"):
            study.run(evaluators=1, evaluator_resources={"cpus": 2})
        settings = study.spec.changed(executor={"kind": "local", "workers": 1, "evaluators": 1})
    with Study.open(tmp_path / "study.db", settings=settings) as declared:
        assert len(declared.run(backend=Measures()).done) == 3


def test_policies_wait_for_evaluators_on_the_cpu_wherever_they_were_trained() -> None:
    own, theirs = split_stages(WorkOptions(device="cuda:1", together=4), 2)
    assert (own.stage, own.device, own.together) == ("train", "cuda:1", 4)
    assert (theirs.stage, theirs.device, theirs.together) == ("evaluate", "cpu", None)
    assert split_stages(WorkOptions(device=""), 2)[1].device == ""
    assert split_stages(WorkOptions(), 0)[0].stage is None
