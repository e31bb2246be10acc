"""Workers on a real Slurm cluster: nodes, jobs, workers, the database and the scheduler fail; no trial is lost."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.conftest import (
    LEASE,
    Rows,
    Slurm,
    command,
    counting,
    fsc,
    measuring,
    outcomes,
    rows,
    tabletop,
    training,
    until,
)

from factored_scaling.errors import RunFailed, StoreUnreachable
from factored_scaling.runner.events import Warned
from factored_scaling.store.documents import JOBS
from factored_scaling.study import Study

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
ON = ("--on", "slurm", "--time", "00:20:00", "--lease", LEASE)


def all_done(study: Study) -> bool | None:
    return all(run.state == "done" for run in study.runs()) or None


def test_nodes_die_in_mid_training_and_in_mid_evaluation(tmp_path: Path, slurm: Slurm, tabletop_rows: Rows) -> None:
    with tabletop(tmp_path) as study:
        assert "workers keep running" in fsc("run", tmp_path, *ON, "--workers", "3", "--detach")
        first = until(training(study, tmp_path), "a run is trained")
        assert str(first.worker).startswith("slurm:")
        listed = fsc("runs", tmp_path)
        found = re.search(rf"run {first.id}: {first.worker}, for .*; log: (\S+), job: (\S+)", listed)
        assert found, listed
        assert "attempt 1" in Path(found[1]).read_text()
        assert "submitit" in Path(found[2]).read_text()
        one = slurm.node_of(first.worker)
        slurm.script("node-down", one)
        two = until(lambda: _node_measuring(study, slurm, one), "another run is measured")
        slurm.script("node-down", two)
        for node in (one, two):
            slurm.script("node-up", node)
        until(lambda: all_done(study), "all runs are done", 200)
        assert rows(study) == tabletop_rows
        assert outcomes(study).count("lost") >= 2


def _node_measuring(study: Study, slurm: Slurm, dead: str) -> str | None:
    run = measuring(study)()
    node = slurm.node_of(run.worker) if run is not None else dead
    return node if node != dead else None


def test_a_job_is_queued_again_and_one_that_is_signalled_continues_at_the_saved_update(
    tmp_path: Path, slurm: Slurm, tabletop_rows: Rows
) -> None:
    with tabletop(tmp_path) as study:
        fsc("run", tmp_path, *ON, "--workers", "1", "--detach")
        job = slurm.jobs()[0].split()[0]
        first = until(training(study, tmp_path), "a run is trained")
        place = tmp_path / "runs" / first.digest
        slurm.ask("scancel", "--signal=USR2", job)  # what comes before the time limit, and before preemption
        until(lambda: "stopped" in (place / "log.txt").read_text() or None, "the run is given back")
        saved = max(int(path.stem.removeprefix("resume-")) for path in place.glob("resume-*.json"))
        assert 200 <= saved < 400
        until(lambda: study.store.run(first.id).attempts == 2 or None, "the job starts again")
        begins = until(lambda: re.findall(r"train (\d+) of 400", _log(tmp_path)) or None, "it trains again")
        assert saved < int(begins[0]) <= saved + 20
        slurm.ask("scontrol", "requeue", job)
        until(lambda: all_done(study), "all runs are done", 200)
        assert rows(study) == tabletop_rows
        assert {"released", "done"} <= set(outcomes(study))


def test_a_job_that_reaches_its_time_limit_is_queued_again_and_continues_at_the_saved_update(
    tmp_path: Path, slurm: Slurm, counting_rows: Rows
) -> None:
    with counting(tmp_path, updates=250) as study:  # 80 s, and a job gets 60
        fsc("run", tmp_path, "--on", "slurm", "--time", "00:01:00", "--lease", LEASE, "--workers", "1", "--detach")
        job = slurm.jobs()[0].split()[0]
        until(lambda: all_done(study), "all runs are done", 420)  # Slurm takes its time to start a job again
        assert rows(study) == counting_rows
        assert "Caught signal SIGUSR2" in _log(tmp_path)  # nobody but slurmctld sends it here
        assert f"slurm:{job} " in str(study.runs()[-1].worker)  # under the same number
        assert {"done", "released"} == set(outcomes(study))  # no worker was lost: each gave its run back in time
        begun = [(tmp_path / "runs" / run.digest / "steps.txt").read_text().split()[1::2] for run in study.runs()]
        assert [steps[0] for steps in begun] == ["0"] * 3
        assert all(int(step) > 0 for steps in begun for step in steps[1:])  # none began anew
        assert any(0 < int(step) < 250 for steps in begun for step in steps[1:])  # in mid-training


def test_a_preempted_job_with_a_grace_period_is_queued_again(tmp_path: Path, slurm: Slurm, counting_rows: Rows) -> None:
    with counting(tmp_path, updates=100) as study:
        own = ("--workers", "1", "--cpus", "2", "--resources", "nodelist=n1")
        fsc("run", tmp_path, *ON, *own, "--detach")
        job = slurm.jobs()[0].split()[0]
        until(training(study, tmp_path), "a run is trained")
        other = ("sbatch", "--parsable", "--partition=preempts", "--nodelist=n1", "--cpus-per-task=2")
        (preempting,) = slurm.ask(*other, f"--output={tmp_path}/other.log", "--wrap=sleep 3")
        until(lambda: "released" in outcomes(study) or None, "the run is given back")
        until(lambda: f"{preempting} RUNNING" in slurm.jobs() or None, "the other job starts")
        until(lambda: f"{job} PENDING" in slurm.jobs() or None, "the job is queued again")
        until(lambda: all_done(study), "all runs are done", 200)
        assert rows(study) == counting_rows
        assert f"slurm:{job} " in str(study.runs()[-1].worker)
        assert {"done", "released"} == set(outcomes(study))


def _log(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted(folder.glob("jobs/*/*_log.out")))


def test_a_killed_worker_and_an_unreachable_scheduler_stop_nobody(
    tmp_path: Path, slurm: Slurm, counting_rows: Rows
) -> None:
    events: list[Any] = []
    with counting(tmp_path, updates=100) as study:
        follower = threading.Thread(
            target=lambda: Study.open(tmp_path / "study.db").run(
                executor="slurm", workers=2, time="00:20:00", lease_seconds=4.0, on_event=events.append
            )
        )
        follower.start()
        first = until(training(study, tmp_path), "a run is trained")
        os.kill(int(str(first.worker).rpartition(":")[2]), signal.SIGKILL)
        slurm.script("controller-down")
        until(lambda: any("Slurm cannot be reached" in str(event) for event in events) or None, "the follower says so")
        slurm.script("controller-up")
        follower.join(200)
        assert not follower.is_alive()
        assert rows(study) == counting_rows
        assert "lost" in outcomes(study)
        assert "the worker was killed by signal 9; another one starts" in _log(tmp_path)
        steps = (tmp_path / "runs" / first.digest / "steps.txt").read_text().split()[1::2]
        assert int(steps[1]) > 0  # the second process went on where the first was
        assert [event for event in events if isinstance(event, Warned)]


def test_evaluators_measure_what_others_train_and_one_loses_its_node(
    tmp_path: Path, slurm: Slurm, tabletop_rows: Rows
) -> None:
    with tabletop(tmp_path) as study:
        split = ("--workers", "1", "--evaluators", "2", "--evaluator-resources", "cpus=2")
        fsc("run", tmp_path, *ON, *split, "--detach")
        jobs = slurm.ask("squeue", "--noheader", "--array", "--format=%F %C %E")
        (trainers, evaluators), cores = sorted({job.split()[0] for job in jobs}), [job.split()[1] for job in jobs]
        assert sorted(cores) == ["1", "2", "2"]
        assert sum(f"after:{trainers}" in job for job in jobs) in (0, 2)  # none once the first has started
        run = until(measuring(study), "a run is measured")
        assert str(run.worker).startswith(f"slurm:{evaluators}_")
        node = slurm.node_of(run.worker)
        slurm.script("node-down", node)
        slurm.script("node-up", node)
        until(lambda: all_done(study), "all runs are done", 200)
        assert rows(study) == tabletop_rows
        assert "lost" in outcomes(study)
        attempts = [one for run in study.runs() for one in study.store.attempts(run.id)]
        by = {found[0] for one in attempts if (found := re.match(r"slurm:\d+", str(one.worker)))}
        assert by == {f"slurm:{trainers}", f"slurm:{evaluators}"}
        until(lambda: not slurm.jobs() or None, "the jobs end")


def test_those_that_train_end_first_and_a_killed_evaluator_loses_nothing(
    tmp_path: Path, slurm: Slurm, counting_rows: Rows
) -> None:
    with counting(tmp_path, updates=5, seconds=0.3) as study:
        study.run(executor="slurm", workers=1, evaluators=1, time="00:20:00", lease_seconds=4.0, detach=True)
        trainers = min(job.partition(" ")[0] for job in slurm.jobs())
        run = until(measuring(study), "a run is measured")
        os.kill(int(str(run.worker).rpartition(":")[2]), signal.SIGKILL)
        until(lambda: not any(job.startswith(trainers) for job in slurm.jobs()) or None, "the training job ends")
        assert not all_done(study)
        until(lambda: all_done(study), "all runs are done")
        assert rows(study) == counting_rows
        assert outcomes(study) == ["done"] * 3 + ["lost"] + ["released"] * 3
        until(lambda: not slurm.jobs() or None, "the evaluators end")


def test_evaluators_end_when_nobody_trains_any_more(tmp_path: Path, slurm: Slurm) -> None:
    with counting(tmp_path, updates=1000) as study:
        with pytest.raises(RunFailed, match=r"Slurm refused the jobs: .*[Ii]nvalid partition"):
            study.run(executor="slurm", workers=1, evaluators=1, evaluator_resources={"partition": "nowhere"})
        until(lambda: not slurm.jobs() or None, "the jobs that train are cancelled, too")
        study.run(executor="slurm", workers=1, evaluators=1, time="00:20:00", lease_seconds=4.0, detach=True)
        trainers, evaluators = sorted(job.partition(" ")[0] for job in slurm.jobs())
        until(lambda: f"{evaluators} RUNNING" in slurm.jobs() or None, "the evaluator starts")
        slurm.ask("scancel", trainers)
        until(lambda: not slurm.jobs() or None, "the evaluator ends")
        assert {run.state for run in study.runs()} <= {
            "pending",
            "running",
        }  # the killed worker's lease is not over yet


def test_a_scheduler_that_is_away_is_one_sentence(
    tmp_path: Path, slurm: Slurm, capfd: pytest.CaptureFixture[str]
) -> None:
    with counting(tmp_path) as study:
        slurm.script("controller-down")
        try:
            with pytest.raises(
                RunFailed, match=r"Slurm cannot be reached \(.*; nothing was submitted; try again later"
            ):
                study.run(executor="slurm", workers=1)
        finally:
            slurm.script("controller-up")
        assert capfd.readouterr().err == ""
        assert {run.state for run in study.runs()} == {"pending"}
        assert not study.store.documents(study.id, JOBS)


def test_the_database_restarts_twice(
    tmp_path: Path, slurm: Slurm, counting_rows: Rows, postgres: tuple[str, Callable[[], None]]
) -> None:
    address, restart = postgres
    with counting(tmp_path, address) as study:
        study.run(executor="slurm", workers=2, time="00:20:00", lease_seconds=4.0, folder=tmp_path, detach=True)
        until(training(study, tmp_path), "a run is trained")
        restart()
        until(measuring(study), "a run is measured")
        restart()
        until(lambda: all_done(study), "all runs are done")
        assert rows(study) == counting_rows
        assert "failed" not in outcomes(study)


def test_stopping_in_three_forms_and_ctrl_c_on_the_one_who_follows(
    tmp_path: Path, slurm: Slurm, counting_rows: Rows
) -> None:
    with counting(tmp_path) as study:
        follower = subprocess.Popen(
            command("run", tmp_path, *ON, "--workers", "1"), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        first = until(training(study, tmp_path), "a run is trained")
        follower.send_signal(signal.SIGINT)
        _, said = follower.communicate(timeout=60)
        assert follower.returncode == 130, said
        follow, stop = f"`fsc runs {tmp_path} --watch` follows them", f"`fsc stop {tmp_path}` stops them"
        assert f"workers keep running: {follow}, {stop}" in said
        assert slurm.jobs()
        assert study.stop_requested() is None
        assert "1 run is in progress; workers stop after that" in fsc("stop", tmp_path)
        until(lambda: not slurm.jobs() or None, "the job ends")
        assert study.store.run(first.id).state == "done"
        assert sorted(run.state for run in study.runs()) == ["done", "pending", "pending"]

        fsc("run", tmp_path, *ON, "--workers", "1", "--detach")
        second = until(training(study, tmp_path), "another run is trained")
        assert "at the next safe point" in fsc("stop", tmp_path, "--now")
        until(lambda: not slurm.jobs() or None, "the job ends")
        assert study.store.run(second.id).state == "pending"
        assert "released" in outcomes(study)

        # one of these waits in the queue: a node has two cores
        fsc("run", tmp_path, *ON, "--workers", "2", "--cpus", "2", "--resources", "nodelist=n1", "--detach")
        until(training(study, tmp_path), "it is trained again")
        answer = fsc("stop", tmp_path, "--cancel")
        assert re.search(r"cancelled: slurm \d+", answer), answer
        until(lambda: not slurm.jobs() or None, "the jobs are gone")
        until(lambda: all(run.state != "running" for run in study.runs()) or None, "the runs are given back")
        assert fsc("stop", tmp_path, "--cancel").count("cancelled") == 0
        study.run(workers=1)  # on this machine, from where they are
        assert rows(study) == counting_rows


def test_cancelled_jobs_get_the_time_to_reach_a_safe_point(tmp_path: Path, slurm: Slurm) -> None:
    with counting(tmp_path, seconds=10.0) as study:  # twice the time after which Slurm kills cancelled jobs here
        fsc("run", tmp_path, *ON, "--workers", "1", "--detach")
        until(training(study, tmp_path), "a run is trained")
        assert "cancelled: slurm" in fsc("stop", tmp_path, "--cancel")
        assert {run.state for run in study.runs()} == {"pending"}
        assert outcomes(study) == ["released"]
        until(lambda: not slurm.jobs() or None, "the job is gone", 10)


def test_a_full_disk_is_the_reason_of_the_runs_and_of_the_submission(
    tmp_path: Path, slurm: Slurm, counting_rows: Rows
) -> None:
    folder, fill = tmp_path / "small", tmp_path / "small" / "fill"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        with counting(tmp_path) as study:
            given: dict[str, Any] = {"executor": "slurm", "workers": 1, "time": "00:20:00", "folder": folder}
            study.run(**given, lease_seconds=4.0, detach=True)
            until(training(study, folder), "a run is trained")
            _fill(fill)
            until(lambda: all(run.state == "failed" for run in study.runs()) or None, "all runs fail")
            until(lambda: not slurm.jobs() or None, "the job ends")
            assert {(run.error or "").partition(" (")[0] for run in study.runs()} == {
                "OSError: [Errno 28] No space left on device"
            }
            _fill(fill)
            with pytest.raises(RunFailed, match=r"small/jobs: the files of the jobs cannot be written \(No space left"):
                study.run(**given, retry_failed=True)
            fill.unlink()
            study.run(**given, lease_seconds=4.0)
            assert rows(study) == counting_rows
    finally:
        slurm.clear()
        subprocess.run(["umount", folder], check=True)


def _fill(path: Path) -> None:
    with suppress(OSError), path.open("ab", buffering=0) as file:
        while True:
            file.write(b"x" * 512)


@pytest.mark.parametrize("evaluators", [0, 1])
def test_jobs_that_cannot_be_recorded_are_cancelled(
    tmp_path: Path, slurm: Slurm, monkeypatch: pytest.MonkeyPatch, evaluators: int
) -> None:
    def fail(*_: object) -> None:
        assert len(slurm.jobs()) == 1 + evaluators
        raise StoreUnreachable("the server does not answer")

    monkeypatch.setattr("factored_scaling.runner.executors.slurm.record", fail)
    with counting(tmp_path) as study:
        with pytest.raises(StoreUnreachable):
            study.run(executor="slurm", partition="waits", workers=1, evaluators=evaluators, detach=True)
        until(lambda: not slurm.jobs() or None, "the jobs are gone", 10)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"partition": "refuses"}, "Required partition not available"),
        ({"partition": "nowhere"}, "Invalid partition name specified"),
        ({"gpus": 1}, "Invalid generic resource"),
        ({"resources": {"qos": "x", "no-such-option": 1}}, "no-such-option"),
    ],
)
def test_a_queue_that_refuses_the_jobs_is_one_sentence(
    tmp_path: Path, slurm: Slurm, given: dict[str, Any], reason: str
) -> None:
    with counting(tmp_path) as study:
        with pytest.raises(RunFailed, match="Slurm refused the jobs: ") as error:
            study.run(executor="slurm", device="cpu", **given)
        assert reason in str(error.value)
        assert {run.state for run in study.runs()} == {"pending"}
        assert not study.store.documents(study.id, JOBS)


def test_jobs_that_wait_and_workers_of_another_version_are_reported(
    tmp_path: Path, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []

    def hear(event: object) -> None:
        if isinstance(event, Warned):
            heard.append(event.message)
            raise KeyboardInterrupt

    with counting(tmp_path) as study:
        with pytest.raises(KeyboardInterrupt):
            study.run(executor="slurm", partition="waits", on_event=hear)
        assert heard == ["the jobs wait in Slurm's queue: PartitionDown"]
        study.stop(cancel=True)
        monkeypatch.setattr("factored_scaling.runner.remote.__version__", "0.0.1")
        with pytest.raises(RunFailed, match=r"no Slurm job of this study is left: .* the one that submitted the job"):
            study.run(executor="slurm", workers=1, time="00:20:00")
