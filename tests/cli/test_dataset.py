"""fsc dataset: show, select, merge."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.data.lerobot_cases import HOME, write

from factored_scaling.data.lerobot.dataset import LerobotDataset
from factored_scaling.data.lerobot.identity import episode_ids

Answer = subprocess.CompletedProcess[str]
Fsc = Callable[..., Answer]


def done(answer: Answer) -> str:
    assert answer.returncode == 0, answer
    return answer.stdout


@pytest.fixture
def dataset(fsc: Fsc, tmp_path: Path) -> Path:
    root = write(tmp_path / "data", range(6))
    done(fsc("label", root, "--rule", "0-1: nominal", "--rule", "2-3: camera_pose", "--rule", "4-5: lighting"))
    return root


def test_show_tells_features_and_tasks(fsc: Fsc) -> None:
    told = done(fsc("dataset", "show", HOME / "v30-video"))
    assert "v30-video: LeRobot v3.0, 3 episodes, 0.0 minutes" in told
    assert "observation.images.front  video      64 × 64 × 3" in told
    assert json.loads(done(fsc("dataset", "show", HOME / "v21-video", "--json")))["frames"] == 15


@pytest.mark.parametrize(
    ("options", "episodes"),
    [
        (["--episodes", "0-1,4"], [0, 1, 4]),
        (["--factor", "nominal", "--factor", "lighting"], [0, 1, 4, 5]),
    ],
)
def test_select_by_number_or_label(
    fsc: Fsc, dataset: Path, tmp_path: Path, options: list[str], episodes: list[int]
) -> None:
    told = done(fsc("dataset", "select", dataset, *options, "--out", tmp_path / "new"))
    assert f"({len(episodes)} episodes" in told
    ids = episode_ids(LerobotDataset.open(dataset))
    assert list(episode_ids(LerobotDataset.open(tmp_path / "new")).values()) == [ids[index] for index in episodes]


def test_select_what_a_run_is_trained_on(fsc: Fsc, dataset: Path, tmp_path: Path) -> None:
    done(fsc("init", tmp_path / "study", "--dataset", dataset, "--construction", "one", "--points", "2"))
    wanted = json.loads(done(fsc("runs", tmp_path / "study", "--episodes", "2", "--json")))
    done(fsc("dataset", "select", dataset, "--run", tmp_path / "study", "2", "--out", tmp_path / "run-2"))
    assert sorted(episode_ids(LerobotDataset.open(tmp_path / "run-2")).values()) == sorted(wanted)
    assert len(wanted) == 4


def test_merge_takes_labels_along(fsc: Fsc, dataset: Path, tmp_path: Path) -> None:
    second = write(tmp_path / "second", [5, 20])
    done(fsc("label", second, "--rule", "all: lighting"))
    told = done(fsc("dataset", "merge", dataset, second, "--out", tmp_path / "all"))
    assert "(7 episodes, 28 frames; 1 of a later dataset were there already)" in told
    counts = json.loads(done(fsc("label", tmp_path / "all", "--json")))["counts"]
    assert counts == {"nominal": 2, "camera_pose": 2, "lighting": 3}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "say which episodes"),
        (["--episodes", "0", "--factor", "nominal"], "say which episodes"),
        (["--episodes", "9"], "no episode 9"),
        (["--factor", "lightning"], "unknown factor 'lightning'; did you mean lighting?"),
    ],
)
def test_mistakes_are_one_line(fsc: Fsc, dataset: Path, tmp_path: Path, options: list[str], said: str) -> None:
    answer = fsc("dataset", "select", dataset, *options, "--out", tmp_path / "new")
    assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (2, "", 1), answer
    assert said in answer.stderr
    assert not (tmp_path / "new").exists()


def test_an_existing_folder_is_left_alone(fsc: Fsc, dataset: Path) -> None:
    answer = fsc("dataset", "merge", dataset, "--out", dataset)
    assert (answer.returncode, "is already there" in answer.stderr) == (2, True)
