"""fsc stop, fsc runs --watch, and what fsc runs shows of workers."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from factored_scaling.errors import RunFailed
from factored_scaling.runner.queue import Run
from factored_scaling.store.documents import JOBS
from factored_scaling.study import Study

Fsc = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def opened(study: Path, fsc: Fsc) -> Study:
    fsc("runs", study)
    return Study.open(study / "study.db")


def test_stop_ends_workers_after_their_runs_and_the_next_call_goes_on(opened: Study, study: Path, fsc: Fsc) -> None:
    said = list[str]()

    def measure(run: Run) -> float:
        said.append(fsc("stop", study).stdout)
        return 0.5

    summary = opened.run(measure)
    assert summary.stopped
    assert (len(summary.done), len(summary.pending)) == (1, len(opened.runs()) - 1)
    assert said == [
        f"1 run is in progress; workers stop after that (`fsc stop {study} --now` does not wait)\n"
        f"`fsc run {study}` continues from there\n"
    ]
    assert "no run is in progress" in fsc("stop", study, "--now").stdout
    assert opened.stop_requested() == "now"
    assert not opened.run(lambda run: 0.5).pending  # a new call takes the request back
    assert opened.stop_requested() is None
    opened.close()


@pytest.mark.slow
def test_watching_ends_with_the_last_run_and_names_failures(opened: Study, study: Path, fsc: Fsc) -> None:
    def fail(run: Run) -> float:
        if run.id == 2:
            raise RuntimeError("the gripper is broken")
        return 0.5

    worker = threading.Thread(target=_run_with_failures, args=(opened, fail))
    worker.start()
    answer = fsc("runs", study, "--watch")
    worker.join()
    assert answer.returncode == 0
    assert "1 failed" in answer.stdout.splitlines()[-2]
    assert "run 2 failed: RuntimeError: the gripper is broken" in answer.stdout
    assert fsc("runs", study, "--watch", "--json").returncode == 2
    opened.close()


def _run_with_failures(opened: Study, function: Callable[[Run], float]) -> None:
    with pytest.raises(RunFailed):
        opened.run(function, attempts=1)


def test_ctrl_c_on_the_watcher_stops_nothing(
    opened: Study, study: Path, fsc: Fsc, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    opened.ask(1, worker="somebody")
    monkeypatch.setattr("factored_scaling.cli.workers.time.sleep", interrupt)
    answer = fsc("runs", study, "--watch")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "1 running, 6 pending" in answer.stdout
    assert opened.stop_requested() is None
    assert [run.state for run in opened.runs()].count("running") == 1
    opened.close()


def test_policies_that_wait_for_an_evaluator_are_counted(opened: Study, study: Path, fsc: Fsc) -> None:
    first, second = opened.ask(2, stage="train")
    opened.hand_over(first.id, "one")
    assert "1 pending run is trained and waits to be measured\n" in fsc("runs", study).stdout
    opened.hand_over(second.id, "two")
    assert "2 pending runs are trained and wait to be measured\n" in fsc("runs", study).stdout
    opened.close()


def test_a_run_at_work_is_shown_with_its_job_and_the_logs(opened: Study, study: Path, fsc: Fsc) -> None:
    digest = opened.runs()[0].digest
    opened.ask(1, worker="slurm:17_2 node3:4711")
    opened.ask(1, worker="ray:0123456789ab node4:12")
    opened.ask(1, lease_seconds=0.001)
    opened.store.put_document(opened.id, JOBS, "a", {"executor": "slurm", "logs": "/x/a", "ids": ["17_1", "17_2"]})
    opened.store.put_document(opened.id, JOBS, "b", {"executor": "ray", "logs": "/x/b", "ids": ["99"]})
    log = study / "runs" / digest / "log.txt"
    log.parent.mkdir(parents=True)
    log.touch()
    lines = fsc("runs", study).stdout.splitlines()[-3:]
    assert lines[0].startswith("run 1: slurm:17_2 node3:4711, for ")
    assert lines[0].endswith(f"; log: {log}, job: /x/a/17_2_0_log.out")
    assert lines[1].endswith("; job: /x/b/driver.log")
    assert "no heartbeat, another worker takes over" in lines[2]
    assert "slurm:17_2" not in fsc("runs", study, "--state", "pending").stdout
    opened.fail(1, "out of memory")
    assert "run 1 failed: out of memory; job: /x/a/17_2_0_log.out\n" in fsc("runs", study).stdout
    opened.store.put_document(opened.id, JOBS, "c", {"executor": "elsewhere", "logs": "/x/c", "ids": ["9"]})
    opened.ask(1, worker="elsewhere:9 node5:1")
    assert "elsewhere:9 node5:1, for " in fsc("runs", study).stdout
    opened.close()


def test_plan_shows_what_a_cluster_would_take(opened: Study, study: Path, fsc: Fsc) -> None:
    assert fsc("plan", study, "--on", "slurm", "--workers", "3", "--gpus", "1").stdout == (
        "7 runs on slurm: 3 jobs with 1 GPU each\n"
        "no run is finished yet, so nothing is known of the time; `--workers 1` for a first run measures it\n"
    )
    run = opened.ask(1)[0]
    time.sleep(0.01)
    opened.tell(run.id, 0.5)
    lines = fsc("plan", study, "--on", "slurm", "--workers", "3", "--gpus", "1").stdout.splitlines()
    assert lines[0] == "6 runs on slurm: 3 jobs with 1 GPU each"
    assert lines[1] == "0.0 GPU hours, about 1 s once all jobs run (1 s per run at the median of 1 finished)"
    found = json.loads(fsc("plan", study, "--on", "ray", "--json").stdout)
    assert (found["runs"], found["workers"], found["measured"]) == (6, 6, 1)
    with (study / "study.yaml").open("a") as file:
        file.write("executor: {kind: slurm, workers: 2, gpus: 1, evaluators: 4}\n")
    assert (
        "6 runs on slurm: 2 jobs with 1 GPU each, 4 more that evaluate\n" in fsc("plan", study, "--on", "slurm").stdout
    )
    assert fsc("plan", study, "--on", "slrum").returncode == 2
    assert fsc("plan", study, "--workers", "3").returncode == 2
    opened.close()
