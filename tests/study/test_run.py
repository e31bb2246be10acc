"""Study.run: functions, workers, backends, failures and stops."""

from __future__ import annotations

import _thread
import multiprocessing
import re
import signal
import subprocess
import sys
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


class Returns(OwnBackend):
    def evaluate(self, run: RunSpec, folder: Path, context: Context) -> Any:
        return 0.5


def test_an_evaluation_that_returns_a_score_says_what_to_yield(study: Study) -> None:
    with pytest.raises(RunFailed, match=r"evaluate must yield Trials or Measurements, not return 0\.5"):
        study.run(backend=Returns())


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
    events: list[Any] = []

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
            study.run(slow, workers=2, on_event=events.append)
    finally:
        watcher.join()
        signal.signal(signal.SIGINT, before)
    (said,) = (event.message for event in events if isinstance(event, Warned))
    assert said == "the study stops after the calls in progress; Ctrl-C again does not wait for them"
    states = [run.state for run in study.runs()]
    assert states.count("done") in (1, 2)
    assert states.count("pending") == len(states) - states.count("done")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("error", [ValueError("callback bug"), SystemExit(3)])
def test_an_error_of_the_callback_is_no_error_of_the_runs(study: Study, workers: int, error: BaseException) -> None:
    def callback(event: Event) -> None:
        if isinstance(event, RunEnded | RunProgress):
            raise error

    before = threading.active_count()
    with pytest.raises(type(error)) as caught:
        study.run(backend=OwnBackend(), workers=workers, on_event=callback)
    assert caught.value is error
    assert threading.active_count() == before
    states = [run.state for run in study.runs()]
    assert set(states) <= {"done", "pending"}
    assert "pending" in states
    assert {one.outcome for run in study.runs() for one in study.store.attempts(run.id)} <= {"done", "released"}


def test_a_thread_that_cannot_be_started_stops_the_others(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def second_fails(thread: threading.Thread) -> None:
        if thread.name == "worker-2":
            raise RuntimeError("can't start new thread")
        start(thread)

    def slow(run: Run) -> float:
        time.sleep(0.2)
        return 0.5

    monkeypatch.setattr(threading.Thread, "start", second_fails)
    with pytest.raises(RuntimeError, match="can't start"):
        study.run(slow, workers=2)
    for thread in threading.enumerate():
        if thread.name == "worker-1":
            thread.join(30)
    assert [run.state for run in study.runs()].count("done") <= 1


def test_a_folder_that_cannot_be_made_leaves_no_run_leased(study: Study, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file is in the way")
    with pytest.raises(RunFailed, match=r"runs/\w+: the folder of run 1 cannot be made \(Not a directory\)"):
        study.run(lab)
    assert {run.state for run in study.runs()} == {"pending"}
    with pytest.raises(RunFailed, match="Not a directory"):
        study.run(lab, workers=2)
    assert {run.state for run in study.runs()} == {"pending"}


def test_a_function_that_ends_the_process_has_failed(study: Study) -> None:
    last = study.runs()[-1]

    def leave(run: Run) -> float:
        if run.id == last.id:
            sys.exit("no robot here")
        return 0.5

    with pytest.raises(RunFailed, match=r"called sys.exit\('no robot here'\); return the scores, or raise"):
        study.run(leave)
    assert [run.state for run in study.runs()].count("done") == len(study.runs()) - 1
    assert [one.outcome for one in study.store.attempts(last.id)] == ["failed", "failed"]


class Unmakeable(OwnBackend):
    """Cannot be made by workers; the check before they start makes one as well."""

    def __init__(self, error: str) -> None:
        if multiprocessing.parent_process() is not None:
            raise SystemExit(2) if error == "exit" else OSError("no GPU here")


@pytest.mark.parametrize(
    ("error", "message", "states"),
    [("exit", r"called sys.exit\(2\)", {"failed", "pending"}), ("other", "OSError: no GPU here", {"pending"})],
)
def test_a_backend_that_cannot_be_made_leaves_no_run_leased(
    study: Study, error: str, message: str, states: set[str]
) -> None:
    with pytest.raises(RunFailed, match=message):
        study.run(backend={"kind": "tests.study.test_run:Unmakeable", "error": error}, workers=1)
    assert {run.state for run in study.runs()} == states


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


def test_an_exception_releases_what_was_asked_for(tmp_path: Path) -> None:
    def interrupted() -> None:
        with Study.create(SPEC, tmp_path / "towel.db") as study:
            ids.extend(run.id for run in study.ask(2))
            study.tell(ids[0], 0.5)
            raise KeyboardInterrupt

    ids: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with Study.open(tmp_path / "towel.db") as study:
        states = {run.id: run.state for run in study.runs()}
        assert [states[id_] for id_ in ids] == ["done", "pending"]
        assert [one.outcome for one in study.store.attempts(ids[1])] == ["released"]
        (again,) = study.ask()
    with Study.open(tmp_path / "towel.db") as study:  # leaving the block in order keeps the lease
        assert study.store.run(again.id).state == "running"


def test_runs_that_nobody_works_on_are_named_and_can_be_released(tmp_path: Path) -> None:
    script = "import sys; from factored_scaling import Study; Study.open(sys.argv[1]).ask()"
    with Study.create(SPEC, tmp_path / "towel.db") as study:
        subprocess.run([sys.executable, "-c", script, tmp_path / "towel.db"], check=True)
        events: list[Any] = []
        (held,) = (run for run in study.runs() if run.state == "running")
        thread = threading.Timer(1.0, study.release, [held.id])
        thread.start()
        assert len(study.run(lab, on_event=events.append).done) == len(study.runs())
        thread.join()
        (said,) = (event.message for event in events if isinstance(event, Warned))
        assert said.startswith(f"run {held.id} is leased by {held.worker}, which has ended, until 20")
        assert said.endswith(f"unless `Study.release({held.id})` returns it to the queue")


SCRIPT = """
import factored_scaling as fsc

class Lab:
    def train(self, run, folder, context): pass
    def evaluate(self, run, folder, context): yield fsc.Trial("t", 1.0, ("camera",))

spec = fsc.StudySpec({"camera": 4, "light": 4}, construction="one", points=2)
"""


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ('study.run(backend="script:Lab")', "the module of the backend runs the study when it is imported; put the"),
        ('study.run(backend="__main__:Lab")', "'__main__:Lab' is in the script that runs, which workers do not import"),
        ('print(len(study.run(backend="script:Lab", workers=2).done))', "3"),
    ],
)
def test_a_backend_of_the_script_that_runs(tmp_path: Path, call: str, expected: str) -> None:
    opened = f'with fsc.Study.load_or_create(spec, "lab.db") as study:\n    {call}\n'
    if expected == "3":
        opened = 'if __name__ == "__main__":\n' + "".join(f"    {line}\n" for line in opened.splitlines())
    (tmp_path / "script.py").write_text(SCRIPT + opened)
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert expected in (done.stdout + done.stderr).splitlines()[-1]
