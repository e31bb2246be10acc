"""Our own diffusion policy on the episodes of a LeRobot dataset."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.backends.made import backend_of
from tests.cli.conftest import run_fsc
from tests.data.lerobot_cases import CAMERA, episode, features, write

from factored_scaling.backends import backend_settings
from factored_scaling.backends.diffusion import DiffusionBackend
from factored_scaling.backends.protocol import Context
from factored_scaling.cli.offline import all_frames
from factored_scaling.core.design import RunSpec
from factored_scaling.core.spec import StudySpec
from factored_scaling.data.lerobot.dataset import LerobotDataset
from factored_scaling.data.lerobot.identity import episode_ids
from factored_scaling.data.lerobot.layout import Feature
from factored_scaling.data.lerobot.write import DatasetWriter
from factored_scaling.errors import InvalidInput
from factored_scaling.policies.diffusion import load_policy
from factored_scaling.study import Study

TINY: dict[str, Any] = {
    "widths": [8, 8],
    "encoder_width": 2,
    "updates": 3,
    "batch": 4,
    "horizon": 4,
    "execute": 2,
    "image_size": 16,
}


def silent(done: int, total: int, note: str = "") -> None: ...


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return write(tmp_path / "data", range(6))


def trainer(dataset: Path, home: Path, **policy: Any) -> DiffusionBackend:
    made = backend_of({"kind": "diffusion", "dataset": str(dataset)}, {**TINY, **policy}, home, "cpu")
    assert isinstance(made, DiffusionBackend)
    return made


def done(answer: subprocess.CompletedProcess[str]) -> str:
    assert answer.returncode == 0, answer
    return answer.stdout


def test_frames_are_those_of_the_episodes_and_are_kept(dataset: Path, tmp_path: Path) -> None:
    ids, made = episode_ids(LerobotDataset.open(dataset)), trainer(dataset, tmp_path)
    table = made.frames([ids[4], ids[1]], silent)
    assert np.array_equal(table.images[:3, 0], episode(4, 3)[CAMERA].transpose(0, 3, 1, 2))
    assert np.array_equal(table.action[3:], episode(1, 4)["action"])
    shutil.rmtree(dataset)
    again = trainer(dataset, tmp_path).frames([ids[1]], silent)
    assert np.array_equal(again.images, table.images[3:])


def test_the_checkpoint_says_whose_statistics_it_has(dataset: Path, tmp_path: Path) -> None:
    ids = episode_ids(LerobotDataset.open(dataset))
    chosen = (ids[0], ids[3])
    trainer(dataset, tmp_path).train(RunSpec(chosen, TINY), tmp_path / "run", silent)
    described = load_policy(tmp_path / "run").description
    assert described["statistics"]["of"] == "the episodes listed here, and no others"
    assert described["episodes"] == list(chosen)
    actions = np.concatenate([episode(seed, 3 + seed % 4)["action"] for seed in (0, 3)])
    middle = (actions.min(0) + actions.max(0)) / 2
    assert described["statistics"]["action"]["offset"] == pytest.approx(middle, abs=1e-6)


def test_episodes_that_the_dataset_lost_are_named(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no episode with id 0{16} \(1 of 1 missing\)"):
        trainer(dataset, tmp_path).frames(["0" * 16], silent)


@pytest.mark.parametrize(
    ("settings", "policy", "message"),
    [
        ({}, {}, "dataset: no dataset"),
        ({"dataset": "x", "python": "y"}, {}, "unknown key 'python'"),
        ({"dataset": "x"}, {"image_size": 2}, "policy.image_size"),
        ({"dataset": "x"}, {"cameras": "top"}, "policy.cameras: expected a list of cameras"),
        ({"dataset": "x"}, {"widths": "wide"}, "policy: widths"),
    ],
)
def test_mistakes_are_told_before_training(
    settings: dict[str, Any], policy: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=message):
        backend_of({"kind": "diffusion", **settings}, policy, tmp_path, "cpu")


def test_differences_from_the_state_need_the_same_quantities(dataset: Path, tmp_path: Path) -> None:
    ids = episode_ids(LerobotDataset.open(dataset))
    with pytest.raises(InvalidInput, match="states have 3 numbers, actions 2"):
        trainer(dataset, tmp_path, relative_actions=True).train(RunSpec((ids[0],)), tmp_path / "run", silent)


def test_a_study_with_a_dataset_needs_no_trainer() -> None:
    spec = StudySpec({"lighting": 3}, dataset="data")
    assert backend_settings(spec) == {"dataset": "data", "kind": "diffusion"}
    assert backend_settings(spec.changed(trainer={"kind": "lerobot"})) == {"dataset": "data", "kind": "lerobot"}
    own = {"dataset": "data", "kind": "command", "command": "mine"}
    assert backend_settings(spec.changed(trainer={"command": "mine"})) == own
    assert backend_settings(spec.changed(task="tabletop/insert")) == {"kind": "simulation"}
    assert backend_settings(StudySpec({"lighting": 3})) == {}


def test_remix_gets_the_recorded_demonstrations_by_factor(dataset: Path, tmp_path: Path) -> None:
    done(run_fsc("label", dataset, "--rule", "0-1: nominal", "--rule", "2-3: camera_pose", "--rule", "4-5: lighting"))
    done(run_fsc("init", tmp_path / "study", "--dataset", dataset))
    with (tmp_path / "study/study.yaml").open("a") as file:
        file.write("policy: {image_size: 16}\n")
    done(run_fsc("runs", tmp_path / "study"))
    done(run_fsc("label", dataset, "--rule", "4: camera_pose", "--replace"))  # the record's own labels count
    with Study.open(tmp_path / "study/study.db") as opened:
        table = all_frames(opened, tmp_path / "study", "cpu")
    assert table.factors == (None, None, "camera_pose", "camera_pose", "lighting", "lighting")
    assert table.images.shape[1:] == (1, 3, 16, 16)


def test_remix_computes_on_one_core(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done(run_fsc("label", dataset, "--rule", "0-2: camera_pose", "--rule", "3-5: lighting"))
    done(run_fsc("init", tmp_path / "study", "--dataset", dataset))
    torch.set_num_threads(2)
    seen: list[int] = []

    def train(*_: object) -> None:
        seen.append(torch.get_num_threads())
        raise InvalidInput("enough")

    monkeypatch.setattr("factored_scaling.policies.remix.train_remix", train)
    assert "enough" in run_fsc("remix", tmp_path / "study").stderr
    assert seen == [1]


def test_remix_without_demonstrations_is_told(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("factors: {camera_pose: 3}\n")
    answer = run_fsc("remix", tmp_path)
    assert (answer.returncode, "names no dataset and no simulator task" in answer.stderr) == (2, True)


@pytest.mark.slow
def test_fsc_run_trains_and_leaves_the_measuring_to_people(dataset: Path, tmp_path: Path) -> None:
    done(run_fsc("label", dataset, "--rule", "0-2: camera_pose", "--rule", "3-5: lighting"))
    study = tmp_path / "study"
    done(run_fsc("init", study, "--dataset", dataset, "--construction", "one", "--points", "2"))
    with (study / "study.yaml").open("a") as file:
        file.write(f"policy: {json.dumps(TINY)}\n")
    assert "3 policies are trained and wait for trials" in done(run_fsc("run", study, "--workers", "1"))
    with Study.open(study / "study.db") as opened:
        assert [run.state for run in opened.runs()] == ["trained"] * 3
        for run in opened.runs():
            assert set(load_policy(study / "runs" / run.digest).description["episodes"]) == set(
                opened.find_run(run.id).spec.episodes
            )
    for number in ("1", "2", "3"):
        done(run_fsc("record", study, number, "1", "0", "1", "--done"))
    assert "camera_pose" in done(run_fsc("recommend", study, "--budget", "10"))


def test_held_out_scenes_are_embedded_as_the_policy_sees_them(dataset: Path, tmp_path: Path) -> None:
    settings = {"kind": "diffusion", "dataset": str(dataset), "proxy": {"held_out": "data"}}
    made = backend_of(settings, TINY, tmp_path, "cpu")
    assert isinstance(made, DiffusionBackend)
    ids = episode_ids(LerobotDataset.open(dataset))
    run = RunSpec((ids[4], ids[1]), policy=TINY)
    made.train(run, tmp_path / "run", silent)
    found = made.embed(run, tmp_path / "run", Context())
    assert found is not None
    trained, held_out = found.trained, found.held_out
    assert len(held_out) == 6
    assert np.allclose(held_out[[4, 1]], trained, atol=1e-5)
    assert not np.allclose(held_out[0], held_out[1])
    assert found.factors == (None,) * 6
    assert trainer(dataset, tmp_path).embed(run, tmp_path / "run", Context()) is None


def test_wide_held_out_scenes_are_embedded_at_the_shape_that_the_policy_was_trained_at(tmp_path: Path) -> None:
    wide = {**features(), CAMERA: Feature("image", (12, 20, 3), ["height", "width", "channels"])}
    rng = np.random.default_rng(0)
    with DatasetWriter(tmp_path / "data", 10, wide) as writer:
        for seed in range(3):
            writer.add({**episode(seed, 4), CAMERA: rng.integers(0, 256, (4, 12, 20, 3)).astype(np.uint8)}, "pick")
    settings = {"kind": "diffusion", "dataset": "data", "proxy": {"held_out": "data"}}
    # a mean over the feature map takes pictures of any shape, and would hide a wrong one
    made = backend_of(settings, {**TINY, "pool": "mean"}, tmp_path, "cpu")
    run = RunSpec(tuple(episode_ids(LerobotDataset.open(tmp_path / "data")).values()), policy=TINY)
    made.train(run, tmp_path / "run", silent)
    found = made.embed(run, tmp_path / "run", Context())
    assert found is not None
    assert np.allclose(found.held_out, found.trained, atol=1e-5)
