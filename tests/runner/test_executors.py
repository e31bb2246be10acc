"""Settings of executors, times, file systems, and the job file of a worker on another machine."""

from __future__ import annotations

import json
import shutil
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput, StoreUnreachable
from factored_scaling.io.files import read_study, write_study
from factored_scaling.runner import remote
from factored_scaling.runner.executors import Job, executor_settings, ray
from factored_scaling.runner.executors.cluster import check_shared, file_system
from factored_scaling.runner.executors.slurm import minutes
from factored_scaling.runner.options import WorkOptions
from factored_scaling.study import Study
from factored_scaling.version import __version__

FACTORS = {"camera_pose": 2, "lighting": 2}


def test_study_yaml_may_name_the_executor_and_it_is_not_part_of_a_runs_identity(tmp_path: Path) -> None:
    settings = {"kind": "slurm", "workers": 16, "gpus": 1, "time": "04:00:00", "resources": {"constraint": "a100"}}
    spec = StudySpec(FACTORS, executor=settings)
    write_study(spec, tmp_path / "study.yaml")
    assert read_study(tmp_path / "study.yaml") == spec
    assert StudySpec(FACTORS, executor="ray").executor == {"kind": "ray"}
    with Study.create(spec, tmp_path / "a.db") as one, Study.create(StudySpec(FACTORS), tmp_path / "b.db") as two:
        assert [run.digest for run in one.runs()] == [run.digest for run in two.runs()]
        assert one.spec.executor == settings


def test_what_is_given_replaces_what_is_declared_and_another_executor_replaces_all() -> None:
    declared = {"kind": "slurm", "workers": 16, "gpus": 1, "partition": "gpu"}
    assert executor_settings({}, None, None, {}) == ("local", None, {})
    assert executor_settings(declared, None, None, {}) == ("slurm", 16, {"gpus": 1, "partition": "gpu"})
    given = {"gpus": 2, "time": None}
    assert executor_settings(declared, "slurm", 4, given) == ("slurm", 4, {"gpus": 2, "partition": "gpu"})
    assert executor_settings(declared, "ray", None, given) == ("ray", None, {"gpus": 2})
    assert executor_settings(declared, "local", None, {}) == ("local", None, {})


def test_times_are_read_as_slurm_reads_them() -> None:
    assert [minutes(time) for time in (30, "30", "04:00:00", "00:00:30", "1-00:00:00", "2-12", "01:30")] == [
        30,
        30,
        240,
        1,
        1440,
        3600,
        90,
    ]


def test_sqlite_on_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/sda1 / ext4 rw 0 0\n"
        f"server:/home {tmp_path} nfs4 rw 0 0\n"
        f"tmpfs {tmp_path}/local tmpfs rw 0 0\n"
        f"server:/my {tmp_path}/my\\040disk fuse.sshfs rw 0 0\n"
    )
    assert file_system(tmp_path / "study.db", mounts) == "nfs4"
    assert file_system(tmp_path / "local" / "study.db", mounts) == "tmpfs"
    assert file_system(tmp_path / "my disk" / "study.db", mounts) == "fuse.sshfs"
    assert file_system(Path("/study.db"), mounts) == "ext4"
    assert file_system(tmp_path, tmp_path / "missing") == ""
    with Study.create(StudySpec(FACTORS), tmp_path / "study.db") as study:
        job = Job(study.store.address, study.id, tmp_path, WorkOptions())
    check_shared(job)
    found = file_system
    monkeypatch.setattr(
        "factored_scaling.runner.executors.cluster.file_system", lambda path: found(path, mounts), raising=True
    )
    with pytest.raises(InvalidInput, match=r"SQLite file is on a network file system \(nfs4\).*PostgreSQL"):
        check_shared(job)


def test_a_worker_of_another_version_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Study.create(StudySpec(FACTORS), tmp_path / "study.db") as study:
        job = Job(study.store.address, study.id, tmp_path, WorkOptions(together=3))
    path = tmp_path / "job.json"
    remote.write_job(job, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600  # the address may hold a password
    assert remote.read_job(path) == job
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": "0.0.1"}))
    assert remote.main(path) == 1
    said = capfd.readouterr().err
    assert f"has factored-scaling {__version__}, the one that submitted the job 0.0.1; install the same" in said
    assert (tmp_path / remote.REASON).read_text() == said


def test_tasks_that_cannot_be_recorded_are_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")

    def fail(*_: object) -> None:
        raise StoreUnreachable("the server does not answer")

    monkeypatch.setattr(ray, "record", fail)
    with Study.create(StudySpec(FACTORS), tmp_path / "study.db") as study:
        job = Job(study.store.address, study.id, tmp_path, WorkOptions())
    with pytest.raises(StoreUnreachable):
        ray.RayExecutor(address="nowhere").submit(job, 1)
    assert ray._DRIVERS[-1].wait(20) == -signal.SIGTERM


class FakeRay:
    """As much of Ray as a driver needs: one task, which ends at the third look at it."""

    exceptions = SimpleNamespace(RayError=RuntimeError)

    def __init__(self, at_first_look: Callable[[], None]) -> None:
        self.looks = 0
        self.cancelled: list[str] = []
        self._at_first_look = at_first_look

    def init(self, **_: object) -> None: ...

    def remote(self, **_: object) -> Callable[..., Any]:
        return lambda task: SimpleNamespace(remote=lambda path: path)

    def wait(self, tasks: list[str], **_: object) -> tuple[list[str], list[str]]:
        self.looks += 1
        if self.looks == 1:
            self._at_first_look()
        return ([], tasks) if self.looks < 3 else (tasks, [])

    def get(self, task: str) -> str:
        return "no run is left"

    def cancel(self, task: str) -> None:
        self.cancelled.append(task)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a driver with one task."""
    monkeypatch.setattr(ray, "LOOK_FOR_CANCEL", 0.0)
    folder = tmp_path / "ray"
    folder.mkdir()
    tasks = [{"path": "job.json", "count": 1, "options": {}}]
    (folder / "ray.json").write_text(json.dumps({"address": "auto", "tasks": tasks}))
    with Study.create(StudySpec(FACTORS), tmp_path / "study.db") as study:
        remote.write_job(Job(study.store.address, study.id, tmp_path, WorkOptions()), folder / "job.json")
    before = signal.getsignal(signal.SIGTERM)
    yield folder
    signal.signal(signal.SIGTERM, before)


def test_the_driver_of_tasks_survives_the_removal_of_its_folder(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay(lambda: shutil.rmtree(plan))
    monkeypatch.setitem(sys.modules, "ray", fake)
    assert ray.drive(plan) == 0
    assert fake.looks == 3
    assert not fake.cancelled


def test_the_driver_of_tasks_cancels_them_after_sigterm(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay(lambda: signal.raise_signal(signal.SIGTERM))
    monkeypatch.setitem(sys.modules, "ray", fake)
    assert ray.drive(plan) == 1
    assert fake.cancelled == ["job.json"]


def test_jobs_are_named_as_squeue_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JOB_ID", "ARRAY_JOB_ID", "ARRAY_TASK_ID"):
        monkeypatch.delenv(f"SLURM_{name}", raising=False)
    assert remote.slurm_job() == ""
    monkeypatch.setenv("SLURM_JOB_ID", "19")
    assert remote.slurm_job() == "slurm:19"
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "17")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "2")
    assert remote.slurm_job() == "slurm:17_2"
