"""Our own policy on a LeRobot dataset: the runs of a study as one job; on a GPU by captured graphs."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.backends.made import backend_of
from tests.backends.test_diffusion import TINY
from tests.cli.conftest import run_fsc
from tests.data.lerobot_cases import episode, features, write
from tests.runner.test_worker import QuietLine, same_policies

from factored_scaling.backends import backend_settings
from factored_scaling.backends.diffusion import DiffusionBackend
from factored_scaling.data.lerobot.write import DatasetWriter
from factored_scaling.errors import LeaseLost
from factored_scaling.io.files import read_study
from factored_scaling.policies.checkpoint import read_description
from factored_scaling.runner.carry_out import carry_out_together
from factored_scaling.runner.events import Event
from factored_scaling.runner.line import Stopped
from factored_scaling.runner.options import WorkOptions, run_folder
from factored_scaling.runner.worker import work
from factored_scaling.study import Study
from factored_scaling.study.proxy import proxy_of_runs


def make_study(folder: Path, dataset: Path, **policy: Any) -> Study:
    """Three runs: on all episodes, without the first three, without the last three."""
    for args in (
        ("label", dataset, "--rule", "0-2: camera_pose", "--rule", "3-5: lighting"),
        ("init", folder, "--dataset", dataset, "--construction", "one", "--points", "2"),
    ):
        answer = run_fsc(*args)
        assert answer.returncode == 0, answer
    with (folder / "study.yaml").open("a") as file:
        file.write(f"trainer: {{kind: diffusion, proxy: {{held_out: {dataset}}}}}\n")
    set_policy(folder, **policy)
    assert run_fsc("runs", folder).returncode == 0
    return Study.open(folder / "study.db")


def set_policy(folder: Path, **policy: Any) -> None:
    path = folder / "study.yaml"
    declared = [line for line in path.read_text().splitlines() if not line.startswith("policy:")]
    path.write_text("\n".join([*declared, f"policy: {json.dumps({**TINY, **policy})}", ""]))


def options_of(folder: Path, **options: Any) -> WorkOptions:
    return WorkOptions(backend=backend_settings(read_study(folder / "study.yaml")), **options)


def trainer_of(folder: Path, device: str = "cpu") -> DiffusionBackend:
    spec = read_study(folder / "study.yaml")
    made = backend_of(backend_settings(spec), spec.policy, folder, device)
    assert isinstance(made, DiffusionBackend)
    return made


def together(study: Study, folder: Path, line: QuietLine, device: str = "cpu", **options: Any) -> None:
    chosen = options_of(folder, device=device, **options)
    carry_out_together(study, study.ask(3), trainer_of(folder, device), line, chosen)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    torch.set_num_threads(1)
    return write(tmp_path / "data", range(6))


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study whose runs were trained each by a trainer of its own, on a table of its own."""
    torch.set_num_threads(1)
    home = tmp_path_factory.mktemp("one-by-one")
    folder = home / "study"
    with make_study(folder, write(home / "data", range(6)), updates=60) as study:
        for run in study.runs():
            trainer_of(folder).train(
                study.find_run(run.id).spec, run_folder(folder, run.digest), lambda done, total, note="": None
            )
    return folder


def test_together_is_as_one_by_one(tmp_path: Path, dataset: Path, one_by_one: Path) -> None:
    folder, line = tmp_path / "together", QuietLine()
    with make_study(folder, dataset, updates=60) as study:
        together(study, folder, line)
        assert [run.state for run in study.runs()] == ["trained"] * 3
        assert len(proxy_of_runs(study, 1)) == 3
        log = (run_folder(folder, study.runs()[1].digest) / "log.txt").read_text()
    assert same_policies(one_by_one, folder)
    assert {message[1] for message in line.heard if message[0] == "train"} == {(1, 2, 3)}
    reading = {message[0] for message in line.heard if message[4] == "reading frames"}
    assert reading == {"prepare"}  # how far that is says nothing of the training
    assert [message[1] for message in line.heard if message[0] == "trained"] == [(1,), (2,), (3,)]
    assert "trained, one of 3 together" in log


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_losses_are_those_of_one_by_one(tmp_path: Path, dataset: Path, one_by_one: Path) -> None:
    folder = tmp_path / "gpu"
    with make_study(folder, dataset, updates=60) as study:
        together(study, folder, QuietLine(), device="cuda")
        assert [run.state for run in study.runs()] == ["trained"] * 3
        for run in study.runs():
            losses = [
                read_description(run_folder(at, run.digest), "policy")["final_loss"] for at in (one_by_one, folder)
            ]
            assert losses[1] == pytest.approx(losses[0], rel=0.02)


def test_a_stopped_group_goes_on(tmp_path: Path, dataset: Path, one_by_one: Path) -> None:
    class InTheMiddle(QuietLine):
        def check(self) -> None:
            if any(message[0] == "train" and message[2] == 80 for message in self.heard):
                raise Stopped

    folder = tmp_path / "stopped"
    with make_study(folder, dataset, updates=60) as study:
        with pytest.raises(Stopped):
            together(study, folder, InTheMiddle())
        assert {run.state for run in study.runs()} == {"pending"}
        kept = [sorted(path.name for path in run_folder(folder, run.digest).iterdir()) for run in study.runs()]
        assert ["policy.json" in names for names in kept] == [True, False, False]
        assert kept[1][1:] == ["resume-000000040.json", "resume-000000040.safetensors"]
        together(study, folder, QuietLine())
        assert [run.state for run in study.runs()] == ["trained"] * 3
    assert same_policies(one_by_one, folder)


def test_a_run_whose_data_cannot_be_learnt_fails_alone(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    with DatasetWriter(tmp_path / "data", 10, features(), "so100") as writer:
        for seed in range(6):
            columns = episode(seed, 5)
            if seed == 4:  # of lighting: the third run does without
                columns["action"][2] = np.nan
            writer.add(columns, "pick up the cube")
    folder, line = tmp_path / "study", QuietLine()
    with make_study(folder, tmp_path / "data") as study:
        together(study, folder, line, attempts=1)
        runs = study.runs()
    clean = [run for run in runs if not run.demos["lighting"]]
    assert [run.state for run in clean] == ["trained"]
    for run in runs:
        if run not in clean:
            assert run.state == "failed"
            assert "loss is nan" in (run.error or "")
            assert "demonstrations hold states or actions that are not finite" in (run.error or "")
    assert "one of 3 together" in (run_folder(folder, clean[0].digest) / "log.txt").read_text()


def test_a_group_that_fails_as_a_whole_is_halved(tmp_path: Path, dataset: Path) -> None:
    folder = tmp_path / "study"
    with make_study(folder, dataset) as study:
        first, second, _ = (run_folder(folder, run.digest) for run in study.runs())
        trainer_of(folder).train(
            study.find_run(study.runs()[0].id).spec, second, lambda done, total, note="": None
        )  # not its own
        together(study, folder, QuietLine(), attempts=1)
        assert [run.state for run in study.runs()] == ["trained", "failed", "trained"]
        assert "a training with other data" in (study.runs()[1].error or "")
        assert (first / "policy.json").exists()
        assert not (second / "policy.json").exists()  # the next attempt trains its own


def test_a_run_that_somebody_else_took_leaves_the_others_to_be_trained(tmp_path: Path, dataset: Path) -> None:
    folder, lease = tmp_path / "study", 2.0

    class Thief(QuietLine):
        def say(self, event: Event) -> None:
            super().say(event)
            if self.heard[-1][:3] != ("train", (1, 2, 3), 3):  # the first policy is trained
                return
            while True:
                other.store.heartbeat(2, 1, 0.001)  # the last one that is heard of it
                time.sleep(0.01)
                try:
                    other.take(2)
                    break
                except LeaseLost:  # the heartbeat was quicker
                    continue
            time.sleep(lease / 2)  # until a heartbeat is refused

    with make_study(folder, dataset) as study, Study.open(folder / "study.db") as other:
        together(study, folder, Thief(), lease_seconds=lease)
        assert [run.state for run in study.runs()] == ["trained", "running", "trained"]


def test_runs_from_before_a_change_of_the_policy_keep_theirs(tmp_path: Path, dataset: Path) -> None:
    folder = tmp_path / "study"
    make_study(folder, dataset).close()
    set_policy(folder, updates=5, image_size=8)  # the command line would take the untouched runs back first
    line = QuietLine()
    with Study.open(folder / "study.db", settings=read_study(folder / "study.yaml")) as study:
        study.plan()
        work(line, folder / "study.db", study.id, folder, options_of(folder, together=4))
        made = [read_description(run_folder(folder, run.digest), "policy") for run in study.runs()]
    assert [(one["updates"], one["shape"][1]) for one in made] == [(3, 16)] * 3 + [(5, 8)] * 3
    assert {message[1] for message in line.heard if message[0] == "train"} == {(1, 2, 3), (4, 5, 6)}


def test_runs_whose_policy_cannot_be_read_any_more_fail_with_the_reason(tmp_path: Path, dataset: Path) -> None:
    folder = tmp_path / "study"
    make_study(folder, dataset, widths="wide").close()
    set_policy(folder)
    with Study.open(folder / "study.db", settings=read_study(folder / "study.yaml")) as study:
        study.plan()
        work(QuietLine(), folder / "study.db", study.id, folder, options_of(folder, together=4))
        assert [run.state for run in study.runs()] == ["failed"] * 3 + ["trained"] * 3
        assert "policy: widths" in (study.runs()[0].error or "")


def test_a_worker_takes_several_runs_of_our_own_policy_only() -> None:
    own: dict[str, Any] = {"kind": "diffusion", "dataset": "data"}
    assert WorkOptions(backend=own).runs_at_once == 1
    assert WorkOptions(backend=own, device="cuda").runs_at_once == WorkOptions(device="cuda").runs_at_once > 4
    assert WorkOptions(backend=own, together=3).runs_at_once == 3
    for outside in ({"command": "mine"}, {"kind": "command", "command": "mine"}, {"kind": "lerobot", "python": "x"}):
        assert WorkOptions(backend=outside, device="cuda", together=3).runs_at_once == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_told_before_a_worker_starts(tmp_path: Path, dataset: Path) -> None:
    folder = tmp_path / "study"
    make_study(folder, dataset).close()
    answer = run_fsc("run", folder, "--device", "cuda")
    assert answer.returncode == 2
    assert "this machine has no cuda device that torch can use; try cpu" in answer.stderr
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(("workers", "together", "share"), [(1, 1, 8), (2, 1, 4), (3, 1, 2), (2, 3, 8)])
def test_workers_share_the_cores(
    tmp_path: Path, dataset: Path, monkeypatch: pytest.MonkeyPatch, workers: int, together: int, share: int
) -> None:
    seen: list[tuple[int, int, str]] = []

    def start(count: int, entry: object, arguments: tuple[Any, ...], hear: object, **_: object) -> bool:
        seen.append((count, arguments[-1].threads, os.environ["OMP_WAIT_POLICY"]))
        return True

    make_study(tmp_path / "study", dataset).close()
    monkeypatch.setattr("factored_scaling.runner.executors.local.run_workers", start)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    run_fsc("run", tmp_path / "study", "--workers", str(workers), "--together", str(together))
    assert seen == [(8 // share if together > 1 else workers, share, "passive")]
    assert "OMP_WAIT_POLICY" not in os.environ  # later work in this process may want another
