"""Study.run: functions, workers, backends, failures and stops."""

from __future__ import annotations

import _thread
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from factored_scaling import Backend, Context, Measurement, RunSpec, Study, StudySpec, Trial
from factored_scaling.errors import InvalidInput, RunFailed
from factored_scaling.runner.events import Event, Finished, RunEnded, RunProgress, Started, Warned
from factored_scaling.study import Run

SPEC = StudySpec({"camera_pose": 6, "lighting": 6}, construction="one", points=3)


def lab(run: Run) -> dict[str, list[float]]:
    """More demonstrations of a factor, more successes in its trials."""
    return {name: [1.0] * run.demos[name] + [0.0] * (10 - run.demos[name]) for name in SPEC.names}


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    with Study.create(SPEC, tmp_path / "towel.db") as opened:
        yield opened


def test_a_function_measures_every_run(study: Study) -> None:
    events: list[Any] = []
    summary = study.run(lab, on_event=events.append)
    assert summary.done == tuple(run.id for run in study.runs())
    assert not summary.pending
    assert events[0] == Started(0, len(study.runs()), 1)
    assert [event.run for event in events if isinstance(event, RunEnded)] == list(summary.done)
    assert events[-1] == Finished(stopped=False)
    assert study.recommend(20).allocation
    for run in study.runs():
        assert run.mean == pytest.approx(sum(run.demos.values()) / 20)
    again = study.run(lab, on_event=events.append)  # nothing is left: no worker starts
    assert again.done == summary.done
    assert events[-1] == Finished(stopped=False)
    assert len([event for event in events if isinstance(event, Started)]) == 1


def test_workers_of_a_function_are_threads_that_share_the_runs(study: Study) -> None:
    both, seen = threading.Barrier(2, timeout=30), list[str]()

    def wait(run: Run) -> float:
        if len(seen) < 2:
            seen.append(threading.current_thread().name)
            both.wait()  # only with two at a time does this end
        return 0.5

    summary = study.run(wait, workers=2)
    assert len(summary.done) == len(study.runs())
    assert len(set(seen)) == 2
    assert {len(study.store.attempts(run.id)) for run in study.runs()} == {1}


def test_a_function_that_fails_is_an_error_and_the_others_are_done(study: Study, tmp_path: Path) -> None:
    broken = study.runs()[1]

    def lab_with_a_defect(run: Run) -> float:
        if run.id == broken.id:
            raise ValueError("the gripper is stuck")
        return 0.5

    with pytest.raises(RunFailed, match=f"run {broken.id} failed, the first: ValueError: the gripper is stuck"):
        study.run(lab_with_a_defect)
    assert [run.state for run in study.runs()].count("done") == len(study.runs()) - 1
    assert "Traceback" in (tmp_path / "runs" / broken.digest / "log.txt").read_text()
    with pytest.raises(RunFailed):
        study.run(lambda run: 0.5)
    assert not study.run(lambda run: 0.5, retry_failed=True).failed


@pytest.mark.parametrize(("outcome", "message"), [([], "returned no scores"), ("good", "expected a score")])
def test_a_wrong_outcome_says_what_is_wrong(study: Study, outcome: Any, message: str) -> None:
    with pytest.raises(RunFailed, match=message):
        study.run(lambda run: outcome)


def test_ctrl_c_gives_the_run_back(study: Study) -> None:
    def interrupted(run: Run) -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.run(interrupted)
    assert {run.state for run in study.runs()} == {"pending"}
    study.run(lab)
    assert {run.state for run in study.runs()} == {"done"}


class OwnBackend:
    """Trains in a file and measures from it."""

    def train(self, run: RunSpec, folder: Path, context: Context) -> None:
        context(1, 2, "training")
        (folder / "policy.txt").write_text(str(len(run.episodes)))
        context.policy = "policy.txt"

    def evaluate(self, run: RunSpec, folder: Path, context: Context) -> Iterator[Trial]:
        assert set(context.demos) == set(context.factors) == set(SPEC.names)
        score = int((folder / "policy.txt").read_text()) / 12
        for name in context.factors:
            yield Trial(f"{name}/0", score, (name,))


def test_a_backend_object_and_its_name_give_the_same(tmp_path: Path) -> None:
    own: Backend = OwnBackend()
    means = []
    for name, backend in (("object", own), ("name", "tests.study.test_run:OwnBackend")):
        (tmp_path / name).mkdir()
        with Study.create(SPEC, tmp_path / name / "study.db") as study:
            events: list[Any] = []
            study.run(backend=backend, on_event=events.append, workers=1)
            means.append([run.mean for run in study.runs()])
            assert any(isinstance(event, RunProgress) and event.note == "training" for event in events)
    assert means[0] == means[1]
    assert None not in means[0]


class Measures(OwnBackend):
    """Yields what it was made with."""

    def __init__(self, *items: Any) -> None:
        self.items = items

    def evaluate(self, run: RunSpec, folder: Path, context: Context) -> Iterator[Any]:
        yield from self.items


def test_a_backend_may_yield_means(study: Study) -> None:
    half, many = cast(Any, np.float32(0.5)), cast(Any, np.int64(20))
    means = [Measurement(half, many, ("lighting",)), Measurement(0.25, factor=("camera_pose",))]
    study.run(backend=Measures(*means))
    rows = {(row.factor, row.score, row.trials) for row in study.results().rows}
    assert rows == {(("lighting",), 0.5, 20), (("camera_pose",), 0.25, None)}


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (0.5, "expected a Trial, not 0.5; give each rollout as Trial(key, score), and a mean as Measurement(score)"),
        ([0.5], "expected a Trial, not [0.5]; give each"),
        (Measurement(0.5, None, ("light",)), "unknown factor 'light'; did you mean lighting?"),
    ],
)
def test_what_is_neither_trial_nor_mean_says_so(study: Study, item: Any, message: str) -> None:
    with pytest.raises(RunFailed, match=f"the first: {re.escape(message)}"):
        study.run(backend=Measures(item))


class OnlyTrains:
    def train(self, run: RunSpec, folder: Path, context: Context) -> None:
        raise AssertionError


def test_what_is_no_backend_is_refused_before_anything_runs(study: Study) -> None:
    for backend, message in (
        (5, "backend: 5 has no method train; a backend has train(run, folder, context) and evaluate"),
        (OwnBackend, "backend: expected an object, not the class OwnBackend; pass OwnBackend(…)"),
        (OnlyTrains(), "OnlyTrains object at .* has no method evaluate"),
        ("tests.study.test_run:OnlyTrains", "has no method evaluate"),
    ):
        wrong: Any = backend
        with pytest.raises(InvalidInput, match=message if "*" in message else re.escape(message)):
            study.run(backend=wrong)
    for function in (5, OwnBackend, OwnBackend()):
        wrong = function
        with pytest.raises(
            InvalidInput, match=r"expected a function of a run, not .*; pass a backend as run\(backend="
        ):
            study.run(wrong)
    assert {run.state for run in study.runs()} == {"pending"}
    assert {run.attempts for run in study.runs()} == {0}


def test_mistakes_are_found_before_a_worker_starts(study: Study) -> None:
    with pytest.raises(InvalidInput, match="names no dataset, no trainer and no simulator task"):
        study.run()
    with pytest.raises(InvalidInput, match="give one of the two"):
        study.run(lab, backend="simulation")
    with pytest.raises(InvalidInput, match="unknown executor 'locla'; did you mean local"):
        study.run(lab, executor="locla")
    with pytest.raises(InvalidInput, match="executor 'local' does not take gpus; `--on slurm` and `--on ray` take"):
        study.run(lab, gpus=1)
    with pytest.raises(InvalidInput, match="executor 'slurm' does not take gpu and speed; it takes gpus, cpus"):
        study.run(lab, executor="slurm", gpu=1, speed=3)
    with pytest.raises(InvalidInput, match="workers of executor 'local' end with the command"):
        study.run(lab, detach=True)
    with pytest.raises(InvalidInput, match="cannot be sent to other machines"):
        study.run(lab, executor="ray")
    with pytest.raises(InvalidInput, match="cannot be loaded"):
        study.run(backend="nowhere:Backend")
    with pytest.raises(InvalidInput, match="does not take these settings"):
        study.run(backend={"kind": "tests.study.test_run:OwnBackend", "speed": 3})
    assert {run.state for run in study.runs()} == {"pending"}


def test_a_warning_is_printed_by_the_logger_or_by_who_listens(
    study: Study, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("factored_scaling.runner.run._mixed", lambda queue: ["mixed"])
    events: list[Event] = []
    study.run(lambda run: 0.5, on_event=events.append)
    assert events[0] == Warned("mixed")
    assert not caplog.messages  # at the level of warnings, which Python prints where logging is not set up
    study.run(lambda run: 0.5)
    assert caplog.messages == ["mixed"]


def test_several_threads_stop_after_the_runs_they_have(study: Study) -> None:
    started = threading.Event()

    def slow(run: Run) -> float:
        started.set()
        time.sleep(0.5)
        return 0.5

    def interrupt() -> None:
        started.wait(30)
        time.sleep(0.1)
        _thread.interrupt_main()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever tests before this one left
    watcher = threading.Thread(target=interrupt)
    watcher.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            study.run(slow, workers=2)
    finally:
        watcher.join()
        signal.signal(signal.SIGINT, before)
    states = [run.state for run in study.runs()]
    assert states.count("done") in (1, 2)
    assert states.count("pending") == len(states) - states.count("done")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_a_full_disk_is_the_reason_why_a_run_failed(study: Study, tmp_path: Path) -> None:
    for run in study.runs():
        log = tmp_path / "runs" / run.digest / "log.txt"
        log.parent.mkdir(parents=True)
        log.symlink_to("/dev/full")

    def write(run: Run) -> float:
        Path("/dev/full").write_text("a checkpoint")
        return 0.5

    with pytest.raises(RunFailed, match="No space left on device"):
        study.run(write, attempts=1)
    assert "running" not in {run.state for run in study.runs()}
