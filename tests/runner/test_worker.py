"""Simulated runs carried out for real at toy size: done, resumed, retried, shared, with the same rows every time."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import spearmanr

from factored_scaling.backends.protocol import Context
from factored_scaling.backends.simulation import Lab, evaluation_sizes
from factored_scaling.core.dataset import Dataset
from factored_scaling.core.design import RunSpec
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Trial
from factored_scaling.errors import InvalidInput, UnknownFactor, UnknownTask
from factored_scaling.io.files import read_study, write_study
from factored_scaling.policies import checkpoint
from factored_scaling.progress import Progress
from factored_scaling.runner.carry_out import _Group, _member, carry_out, carry_out_together
from factored_scaling.runner.events import Event, RunEnded, RunProgress
from factored_scaling.runner.line import Stopped
from factored_scaling.runner.options import WorkOptions, run_folder
from factored_scaling.runner.worker import take_alike, work
from factored_scaling.study import Study
from factored_scaling.study.proxy import proxy_of_runs, proxy_results, proxy_trust

TASK = "tabletop/pick-place"
POLICY = {"preset": "small", "updates": 4, "inference_steps": 2, "image_size": 32, "batch": 8}


def brief(event: Event) -> tuple[Any, ...]:
    """An event as a tuple: stage or state, runs, done, total, note."""
    if isinstance(event, RunProgress):
        return event.stage, event.runs, event.done, event.total, event.note
    assert isinstance(event, RunEnded)
    return event.state, (event.run,), 1, 1, event.note


class QuietLine:
    """A line nobody listens to; stops the work at the given stage."""

    def __init__(self, stop_at: str = "") -> None:
        self.heard: list[Any] = []
        self._stop_at = stop_at

    stopping = False
    training = False

    def say(self, event: Event) -> None:
        self.heard.append(brief(event))

    def check(self) -> None:
        if self._stop_at and any(message[0] == self._stop_at for message in self.heard):
            raise Stopped


def make_study(folder: Path, **changes: Any) -> Study:
    torch.set_num_threads(1)
    spec = StudySpec(
        factors={"camera_pose": 2, "lighting": 2},
        construction="one",
        points=2,
        task=TASK,
        policy=changes.pop("policy", POLICY),
        evaluation={"settings": 2, "initial_states": 2},
        name="toy",
        **changes,
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_study(spec, folder / "study.yaml")
    return Study.create(spec, folder / "study.db")


def work_all(study: Study, folder: Path, **options: Any) -> QuietLine:
    line = QuietLine()
    lab = Lab(TASK, folder, image_size=32)
    while taken := study.ask(1):
        carry_out(study, taken[0], lab, line, WorkOptions(**options))
    return line


def rows(study: Study) -> dict[str, list[Any]]:
    return {run.digest: sorted((t.key, t.score, t.factor) for t in study.store.trials(run.id)) for run in study.runs()}


def test_every_run_ends_with_its_trials_and_similarities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with make_study(tmp_path) as study:
        work_all(study, tmp_path)
        assert {run.state for run in study.runs()} == {"done"}
        assert [run.trials for run in study.runs()] == [2 * 2 * 2] * 3
        assert {trial.factor for trial in study.store.trials(1)} == {("camera_pose",), ("lighting",)}
        found = proxy_of_runs(study, 1)
        scores = [score.overall for _, score in found]
        assert len(scores) == 3
        assert all(0 <= score <= 1 for score in scores)
        assert len(proxy_results(study, 5).rows) == 3
        with pytest.raises(InvalidInput, match="not 2"):
            proxy_results(study, 2)
        # Policies this small all fail alike; as if they had not:
        pairs = [(replace(run, mean=mean), one) for (run, one), mean in zip(found, (0.2, 0.9, 0.5), strict=True)]
        monkeypatch.setattr("factored_scaling.study.proxy.proxy_of_runs", lambda *_: pairs)
        assert proxy_trust(study).spearman == pytest.approx(spearmanr(scores, [0.2, 0.9, 0.5]).statistic)


def test_held_out_observations_are_drawn_once_for_all_runs(tmp_path: Path, one_by_one: tuple[Path, Any]) -> None:
    folder, drawn = one_by_one[0], []
    with Study.open(folder / "study.db") as study:
        runs = list(study.store.specs([run.id for run in study.runs()]).values())
    lab = Lab(TASK, tmp_path, image_size=32)
    draw = lab.task.first_frames

    def counted(conditions: Any, device: str = "cpu") -> Any:
        drawn.append(len(conditions))
        return draw(conditions, device)

    lab.task.first_frames = counted  # type: ignore[method-assign]
    for run in [*runs, replace(runs[0], evaluation={**runs[0].evaluation, "initial_states": 1})]:
        alone = Lab(TASK, tmp_path, image_size=32).embed(run, run_folder(folder, runs[0].digest), Context())
        found = lab.embed(run, run_folder(folder, runs[0].digest), Context())
        assert (found.held_out == alone.held_out).all()
    assert drawn == [2 * 2 * 2, 2 * 2]


def test_a_stop_gives_the_run_back_and_the_rows_are_the_same(
    tmp_path: Path, one_by_one: tuple[Path, dict[str, list[Any]]]
) -> None:
    with make_study(tmp_path) as study:
        lab = Lab(TASK, tmp_path, image_size=32)
        for stage in ("train", "evaluate"):
            run = study.ask(1)[0]
            with pytest.raises(Stopped):
                carry_out(study, run, lab, QuietLine(stage), WorkOptions())
            assert study.find_run(run.id).state == "pending"
        work_all(study, tmp_path)
        assert rows(study) == one_by_one[1]


def test_trials_of_a_policy_trained_elsewhere_are_not_mixed_with_ours(
    tmp_path: Path, one_by_one: tuple[Path, dict[str, list[Any]]]
) -> None:
    with make_study(tmp_path) as study:
        run = study.ask(lease_seconds=0.01)[0]
        other = [Trial(key, 1 - score, factor) for key, score, factor in one_by_one[1][run.spec.digest]]
        assert study.record(run.id, [*other[:4], Trial("of its own", 1.0)], "weights of another machine") == 5
        time.sleep(0.02)
        work_all(study, tmp_path)
        assert {run.state for run in study.runs()} == {"done"}
        assert rows(study) == one_by_one[1]
        folders = [run_folder(tmp_path, run.digest) for run in study.runs()]
        lab = Lab(TASK, tmp_path, image_size=32)
        assert [run.policy for run in study.runs()] == [lab.fingerprint(folder) for folder in folders]


def test_a_corrupt_policy_is_trained_again(tmp_path: Path) -> None:
    with make_study(tmp_path) as study:
        lab = Lab(TASK, tmp_path, image_size=32)
        run = study.ask(1)[0]
        with pytest.raises(Stopped):
            carry_out(study, run, lab, QuietLine("evaluate"), WorkOptions())
        policy = run_folder(tmp_path, run.spec.digest) / "policy.safetensors"
        policy.write_bytes(policy.read_bytes()[:100])
        work_all(study, tmp_path)
        assert {row.state for row in study.runs()} == {"done"}


def test_what_fails_for_everybody_is_not_tried_with_every_run(tmp_path: Path) -> None:
    with make_study(tmp_path, policy={**POLICY, "learning_rate": 1e30, "gradient_clip": 0.0, "updates": 40}) as study:
        for seed in (1, 2, 3):
            study.add(study.spec.sizes, seed)
        work(QuietLine(), tmp_path / "study.db", study.id, tmp_path, WorkOptions(attempts=1))
        assert sorted(run.state for run in study.runs()) == [*["failed"] * 3, *["pending"] * 3]


def test_an_error_is_kept_with_the_run(tmp_path: Path) -> None:
    with make_study(tmp_path, policy={**POLICY, "learning_rate": 1e30, "gradient_clip": 0.0, "updates": 40}) as study:
        line = work_all(study, tmp_path, attempts=2)
        failed = study.runs()[0]
        assert failed.state == "failed"
        assert failed.error is not None
        assert "log.txt" in failed.error
        assert [attempt.outcome for attempt in study.store.attempts(failed.id)] == ["failed", "failed"]
        assert {"retry", "failed"} <= {message[0] for message in line.heard}
        assert "Traceback" in (run_folder(tmp_path, failed.digest) / "log.txt").read_text()


def work_together(study: Study, folder: Path, count: int, lab: Lab | None = None, **options: Any) -> QuietLine:
    line = QuietLine()
    while taken := study.ask(count):
        carry_out_together(study, taken, lab or Lab(TASK, folder, image_size=32), line, WorkOptions(**options))
    return line


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[Any]]]:
    """A study carried out run by run: its folder and rows."""
    folder = tmp_path_factory.mktemp("one-by-one")
    with make_study(folder) as study:
        work_all(study, folder)
        return folder, rows(study)


def same_policies(one: Path, other: Path) -> bool:
    digests = [path.name for path in (one / "runs").iterdir()]
    pairs = [[checkpoint.read(place / "runs" / digest, "policy") for place in (one, other)] for digest in digests]
    return all(
        first["final_loss"] == second["final_loss"] and all(torch.equal(tensors[key], others[key]) for key in tensors)
        for (tensors, first), (others, second) in pairs
    )


def test_together_is_as_one_by_one(tmp_path: Path, one_by_one: tuple[Path, dict[str, list[Any]]]) -> None:
    folder, expected = one_by_one
    with make_study(tmp_path) as study:
        line = work_together(study, tmp_path, 3)
        assert rows(study) == expected
        assert {run.state for run in study.runs()} == {"done"}
        assert len(proxy_of_runs(study, 1)) == 3
    assert same_policies(folder, tmp_path)
    assert {message[1] for message in line.heard if message[0] in ("train", "evaluate")} == {(1, 2, 3)}
    assert [message[1] for message in line.heard if message[0] == "done"] == [(1,), (2,), (3,)]


@pytest.mark.parametrize("stage", ["train", "evaluate"])
def test_a_stopped_group_goes_on(tmp_path: Path, one_by_one: tuple[Path, dict[str, list[Any]]], stage: str) -> None:
    with make_study(tmp_path) as study:
        lab = Lab(TASK, tmp_path, image_size=32)
        with pytest.raises(Stopped):
            carry_out_together(study, study.ask(3), lab, QuietLine(stage), WorkOptions())
        assert {run.state for run in study.runs()} == {"pending"}
        work_together(study, tmp_path, 2)
        assert rows(study) == one_by_one[1]
    assert same_policies(one_by_one[0], tmp_path)


def test_one_that_diverges_fails_alone(tmp_path: Path, one_by_one: tuple[Path, dict[str, list[Any]]]) -> None:
    wild = {**POLICY, "learning_rate": 1e30, "gradient_clip": 0.0, "updates": 40}
    with make_study(tmp_path) as study:
        taken = study.ask(3)
        taken[1] = replace(taken[1], spec=replace(taken[1].spec, policy=wild))
        lab = Lab(TASK, tmp_path, image_size=32)
        carry_out_together(study, taken, lab, QuietLine(), WorkOptions(attempts=1))
        assert [run.state for run in study.runs()] == ["done", "failed", "done"]
        error = study.find_run(taken[1].id).error
        assert error is not None
        assert "loss is" in error
        assert "log.txt" in error
        measured = {digest: trials for digest, trials in rows(study).items() if trials}
        assert len(measured) == 2
        assert measured.items() <= one_by_one[1].items()


class CrampedLab(Lab):
    """Has room for one policy at a time, and counts what it was asked for."""

    asked: tuple[int, ...] = ()

    def train_many(
        self, runs: Sequence[RunSpec], folders: Sequence[Path], progress: Progress, at_once: int | None = None
    ) -> dict[Path, str]:
        self.asked += (len(runs),)
        raise MemoryError("no room")


def test_a_group_that_fails_as_a_whole_is_halved(tmp_path: Path, one_by_one: tuple[Path, dict[str, list[Any]]]) -> None:
    with make_study(tmp_path) as study:
        lab = CrampedLab(TASK, tmp_path, image_size=32)
        work_together(study, tmp_path, 3, lab)
        assert lab.asked == (3, 2)
        assert rows(study) == one_by_one[1]
        assert "no room" in (run_folder(tmp_path, study.runs()[0].digest) / "log.txt").read_text()


def test_what_a_failed_group_held_is_free_before_its_halves_begin(tmp_path: Path) -> None:
    class Pictures:
        """Stands for what a group has on a GPU."""

    held: list[weakref.ref[Pictures]] = []

    class GreedyLab(Lab):
        def train_many(self, *_: Any) -> dict[Path, str]:
            assert not any(one() for one in held), "the larger group's memory is still taken"
            pictures = Pictures()
            held.append(weakref.ref(pictures))
            raise MemoryError("no room")

    with make_study(tmp_path) as study:
        work_together(study, tmp_path, 3, GreedyLab(TASK, tmp_path, image_size=32))
        logs = [(run_folder(tmp_path, run.digest) / "log.txt").read_text() for run in study.runs()]
        assert len(held) == 2
        assert not any("still taken" in log for log in logs)


def test_a_run_that_somebody_else_took_leaves_the_group(tmp_path: Path) -> None:
    class Thief(QuietLine):
        def say(self, event: Event) -> None:
            super().say(event)
            if self.heard[-1][0] == "evaluate" and not hasattr(self, "other"):
                self.other = Study.open(tmp_path / "study.db")
                self.other.take(2)

    with make_study(tmp_path) as study:
        line = Thief()
        taken = study.ask(3)
        study.store.heartbeat(2, taken[1].lease_token, 0.01)  # the last one that is heard of it
        options = WorkOptions(lease_seconds=600)  # no heartbeat comes in time
        carry_out_together(study, taken, Lab(TASK, tmp_path, image_size=32), line, options)
        assert [run.state for run in study.runs()] == ["done", "running", "done"]
        assert [run.trials for run in study.runs()] == [8, 0, 8]
        line.other.close()


def test_a_stop_gives_a_group_back_although_one_of_it_was_taken_over(tmp_path: Path) -> None:
    class Thief(QuietLine):
        def say(self, event: Event) -> None:
            super().say(event)
            if self.heard[-1][0] == "train" and not hasattr(self, "other"):
                self.other = Study.open(tmp_path / "study.db")
                self.other.take(1)

    with make_study(tmp_path) as study:
        line, lab = Thief("train"), Lab(TASK, tmp_path, image_size=32)
        taken = study.ask(3)
        study.store.heartbeat(1, taken[0].lease_token, 0.01)
        with pytest.raises(Stopped):
            carry_out_together(study, taken, lab, line, WorkOptions(lease_seconds=600))
        assert [run.state for run in study.runs()] == ["running", "pending", "pending"]
        line.other.close()


def test_a_run_whose_workers_died_is_no_longer_taken_with_others(tmp_path: Path) -> None:
    with make_study(tmp_path) as study:
        for _ in range(3):
            study.take(2, lease_seconds=0.01)
            time.sleep(0.02)
        line = work_together(study, tmp_path, 3)
        assert {message[1] for message in line.heard if message[0] == "train"} == {(1, 3), (2,)}
        assert {run.state for run in study.runs()} == {"done"}


def test_how_many_runs_a_worker_takes() -> None:
    assert WorkOptions().runs_at_once == 1
    assert WorkOptions(device="mps").runs_at_once == 1
    assert WorkOptions(device="cuda:1").runs_at_once > 4
    assert WorkOptions(device="cuda", together=2).runs_at_once == 2


def test_runs_from_before_a_change_of_the_policy_are_left_alone(tmp_path: Path) -> None:
    """Only runs with the settings of the first are taken with it; the others are not even touched."""
    make_study(tmp_path).close()
    write_study(replace(read_study(tmp_path / "study.yaml"), policy={**POLICY, "updates": 6}), tmp_path / "study.yaml")
    with Study.open(tmp_path / "study.db", settings=read_study(tmp_path / "study.yaml")) as study:
        study.plan()
        assert [run.id for run in study.runs()] == [1, 2, 3, 4, 5, 6]
        study.take(2, worker="dead", lease_seconds=0.01)
        study.take(3, worker="busy")
        time.sleep(0.05)
        assert [run.id for run in take_alike(study, WorkOptions(together=4))] == [1, 2]
        assert [run.id for run in take_alike(study, WorkOptions(together=2))] == [4, 5]
        assert [run.id for run in take_alike(study, WorkOptions(together=2))] == [6]
        assert [study.store.run(id_).attempts for id_ in range(1, 7)] == [1, 2, 1, 1, 1, 1]


@pytest.mark.slow
def test_stops_are_not_counted_as_attempts(tmp_path: Path) -> None:
    with make_study(tmp_path, policy={**POLICY, "learning_rate": 1e30, "gradient_clip": 0.0, "updates": 40}) as study:
        for _ in range(3):
            study.release(study.ask(1)[0].id)  # what Ctrl-C does
        work_all(study, tmp_path, attempts=2)
        outcomes = [attempt.outcome for attempt in study.store.attempts(1)]
        assert outcomes == [*3 * ["released"], *2 * ["failed"]]


def test_unknown_names_are_told_before_anything_is_spent(tmp_path: Path) -> None:
    with pytest.raises(UnknownTask, match="tabletop/pick-place"):
        Lab("tabletop/pick-plaice", tmp_path)
    lab = Lab(TASK, tmp_path, image_size=32)
    with pytest.raises(UnknownFactor, match="lighting"):
        lab.collect({"lightning": 3}, 0, lambda done, total, note="": None)
    with pytest.raises(InvalidInput, match="initial_state"):
        evaluation_sizes({"initial_state": 3}, 10)
    with pytest.raises(InvalidInput, match="at most 10"):
        evaluation_sizes({"settings": 11}, 10)


def test_episodes_are_a_cache(tmp_path: Path) -> None:
    def silent(done: int, total: int, note: str = "") -> None: ...

    first = Lab(TASK, tmp_path / "a", image_size=32).collect({"lighting": 3, "nominal": 1}, 5, silent)
    assert [episode.id for episode in first] == ["lighting/5", "lighting/6", "lighting/7", "nominal/5"]
    ids = [episode.id for episode in first]
    one = Lab(TASK, tmp_path / "a", image_size=32).frames(ids, silent)
    shutil.rmtree(tmp_path / "a")
    two = Lab(TASK, tmp_path / "b", image_size=32).frames(ids, silent)
    assert (one.images == two.images).all()
    assert (one.action == two.action).all()
    assert Dataset(tuple(first)).count("lighting") == 3


@pytest.mark.slow
def test_two_commands_share_a_study_and_kill_9_changes_no_row(tmp_path: Path) -> None:
    policy = {**POLICY, "updates": 60}
    with make_study(tmp_path / "whole", policy=policy) as study:
        work_all(study, tmp_path / "whole")
        expected = rows(study)
    folder = tmp_path / "killed"
    make_study(folder, policy=policy).close()
    command = [sys.executable, "-m", "factored_scaling", "run", str(folder), "--workers", "1", "--lease", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for patience in (6.0, 9.0):
        process = subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)
        time.sleep(patience)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    both = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) for _ in range(2)]
    for process in both:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors.decode()
    with Study.open(folder / "study.db") as study:
        assert rows(study) == expected
        assert {run.state for run in study.runs()} == {"done"}


def test_a_run_that_kills_its_workers_is_not_taken_for_ever(tmp_path: Path) -> None:
    with make_study(tmp_path) as study:
        first = study.runs()[0].id
        for _ in range(5):
            study.take(first, lease_seconds=0.01)
            time.sleep(0.02)
        work_all(study, tmp_path)
        row = study.find_run(first)
        assert row.state == "failed"
        assert row.error is not None
        assert "crashed 5 workers" in row.error
        study.store.retry(first)
        work_all(study, tmp_path)
        assert study.find_run(first).state == "done"


def test_a_run_that_gets_further_may_lose_any_number_of_workers(tmp_path: Path) -> None:
    with make_study(tmp_path) as study:
        first = study.runs()[0]
        state = run_folder(tmp_path, first.digest)
        for number in range(6):
            study.take(first.id, lease_seconds=0.01)
            time.sleep(0.02)
            if number == 3:  # the fourth worker leaves a checkpoint before its machine is taken away
                checkpoint.ResumePoints(state).save(0, {"nothing": torch.zeros(1)}, {"identity": "other"})
        group = _Group(study, Lab(TASK, tmp_path, image_size=32), QuietLine(), WorkOptions())
        run = study.take(first.id)
        assert [attempt.outcome for attempt in study.store.attempts(first.id)].count("lost") == 6
        assert group.deaths(_member(run, tmp_path)) == 2
