"""From a labelled LeRobot dataset to a study, an order, and the next round with what was really recorded."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.data.lerobot_cases import write

from factored_scaling.data.lerobot.dataset import LerobotDataset
from factored_scaling.data.lerobot.identity import episode_ids
from factored_scaling.io.files import read_study
from factored_scaling.runner.run import check_backend
from factored_scaling.study import Study

Answer = subprocess.CompletedProcess[str]
Fsc = Callable[..., Answer]
SCORES = "demos:camera_pose,demos:lighting,score,trials\n0,4,0.3,40\n4,4,0.6,40\n4,0,0.5,40\n"


def done(answer: Answer) -> str:
    assert answer.returncode == 0, answer
    return answer.stdout


@pytest.fixture
def dataset(fsc: Fsc, tmp_path: Path) -> Path:
    """Two nominal demos, four of camera_pose, four of lighting."""
    root = write(tmp_path / "first-day", range(10))
    done(fsc("label", root, "--rule", "0-1: nominal", "--rule", "2-5: camera_pose", "--rule", "6-9: lighting"))
    return root


@pytest.fixture
def study(fsc: Fsc, dataset: Path, tmp_path: Path) -> Path:
    done(fsc("init", tmp_path / "study", "--dataset", dataset, "--construction", "one", "--points", "2"))
    assert not (tmp_path / "study/study.db").exists()  # so that policy and trainer can still be chosen
    done(fsc("runs", tmp_path / "study"))
    return tmp_path / "study"


@pytest.fixture
def ordered(fsc: Fsc, study: Path) -> Path:
    (study / "results.csv").write_text(SCORES)
    done(fsc("import", study, study / "results.csv"))
    order = json.loads(done(fsc("recommend", study, "--budget", "4", "--strategy", "top", "--save", "--json")))
    assert order["allocation"] == {"camera_pose": 4, "lighting": 0}
    return study


def second_day(fsc: Fsc, dataset: Path, seeds: list[int], *rules: str) -> Path:
    """The first day's episodes and new ones, in one dataset, with the first day's labels taken along."""
    root = write(dataset.with_name("both-days"), [*range(10), *seeds])
    done(fsc("label", root, "--from", dataset, *(part for rule in rules for part in ("--rule", rule))))
    return root


def extended(fsc: Fsc, study: Path, root: Path, *more: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(done(fsc("extend", study, "--dataset", root, "--json", *more)))
    return answer


def test_a_study_begins_with_the_labelled_episodes(dataset: Path, study: Path) -> None:
    ids = episode_ids(LerobotDataset.open(dataset))
    with Study.open(study / "study.db") as opened:
        assert opened.spec.sizes == {"camera_pose": 4, "lighting": 4}
        assert opened.spec.nominal == 2
        assert [episode.id for episode in opened.dataset.episodes] == [ids[index] for index in range(10)]
        assert all(set(opened.find_run(run.id).spec.episodes) <= set(ids.values()) for run in opened.runs())


def test_the_study_file_says_where_the_dataset_is(fsc: Fsc, dataset: Path, study: Path) -> None:
    assert f"dataset: {dataset}  # seen from here" in (study / "study.yaml").read_text()
    (study / "study.db").unlink()
    listed = json.loads(done(fsc("runs", study, "--json")))  # the record is made again from the labels
    assert len(listed["runs"]) == 3
    ids = set(episode_ids(LerobotDataset.open(dataset)).values())
    assert set(json.loads(done(fsc("runs", study, "--episodes", "1", "--json")))) == ids


def test_plan_warns_of_what_the_first_run_will_refuse(fsc: Fsc, dataset: Path, study: Path) -> None:
    (study / "study.db").unlink()
    declared, right = study / "study.yaml", (study / "study.yaml").read_text()
    assert fsc("plan", study).stderr == ""
    for wrong, said in (("lighting:    5", "4 demos of lighting, the study says 5"), ("light: 4", "'lighting'")):
        declared.write_text(re.sub("lighting: +4", wrong, right))
        answer, refused = fsc("plan", study), fsc("runs", study)
        assert (answer.returncode, refused.returncode) == (0, 2)
        assert said in answer.stderr
        assert answer.stderr.removeprefix("warning: ") == refused.stderr.removeprefix("fsc: ")
    dataset.rename(dataset.with_name("elsewhere"))  # one may plan without it
    assert fsc("plan", study).stderr == ""


def test_a_relative_path_lets_both_folders_move(fsc: Fsc, dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(dataset.parent)
    done(fsc("init", "study", "--dataset", dataset.name))
    assert f"dataset: ../{dataset.name}" in Path("study/study.yaml").read_text()


def test_what_the_file_only_mentions_is_right_when_it_is_switched_on(fsc: Fsc, dataset: Path, tmp_path: Path) -> None:
    done(fsc("init", tmp_path / "study", "--dataset", dataset))
    declared = tmp_path / "study" / "study.yaml"
    text = declared.read_text()
    mentioned = [line.removeprefix("#   ") for line in text.splitlines() if line.startswith("#   ")]
    settings = [line for line in mentioned if line.split(":")[0] in ("trainer", "policy", "scoring")]
    assert len(settings) == 4
    for setting in settings:
        declared.write_text(f"{text}\n{setting}\n")
        spec = read_study(declared)
        assert spec.scoring_spec().repeats == 2
        if "lerobot" not in setting:  # that Python is not here
            check_backend(spec, declared.parent)


def test_labels_that_are_not_clean_stop_the_beginning(fsc: Fsc, dataset: Path, tmp_path: Path) -> None:
    root = second_day(fsc, dataset, [20, 21], "10: lighting+camera_pose")
    answer = fsc("init", tmp_path / "study", "--dataset", root)
    assert answer.returncode == 2
    assert "unlabelled: episode 11 (and 1 more)" in answer.stderr
    assert not (tmp_path / "study").exists()
    answer = fsc("init", tmp_path / "study", "--dataset", root, "--leave-out")
    assert "left out: doubly varied: episode 10 varies lighting and camera_pose" in answer.stderr
    done(fsc("runs", tmp_path / "study"))
    with Study.open(tmp_path / "study/study.db") as opened:
        assert opened.spec.sizes == {"camera_pose": 4, "lighting": 4}


def test_an_unlabelled_dataset_is_no_study(fsc: Fsc, tmp_path: Path) -> None:
    root = write(tmp_path / "data", [1, 2])
    answer = fsc("init", tmp_path / "study", "--dataset", root, "--leave-out")
    assert answer.returncode == 2
    assert "no episode is labelled with a factor" in answer.stderr
    answer = fsc("init", tmp_path / "study", "--dataset", root, "--factor", "a=3")
    assert "factors and demos come from its labels" in answer.stderr


def test_what_was_recorded_as_recommended_extends_the_study(fsc: Fsc, dataset: Path, ordered: Path) -> None:
    root = second_day(fsc, dataset, [20, 21, 22, 23], "10-13: camera_pose")
    told = done(fsc("extend", ordered, "--dataset", root))
    assert "Round 0 → 1" in told
    assert "•" not in told
    ids = episode_ids(LerobotDataset.open(root))
    with Study.open(ordered / "study.db") as opened:
        assert opened.spec.sizes == {"camera_pose": 8, "lighting": 4}
        assert [episode.id for episode in opened.dataset.episodes] == [ids[index] for index in range(14)]


def test_what_differs_from_the_order_is_named(fsc: Fsc, dataset: Path, ordered: Path) -> None:
    rules = ("10-11: camera_pose", "12: lighting", "13: camera_pose+lighting", "14: table_height", "16: nominal")
    root = second_day(fsc, dataset, [20, 21, 22, 23, 24, 25, 26], *rules)
    told = done(fsc("extend", ordered, "--dataset", root, "--compare"))
    for sentence in (
        "camera_pose: 2 missing of 4 recommended",
        "lighting: 1 not recommended (episode 12); mislabelled camera_pose?",
        "nominal: 1 not recommended (episode 16)",
        "unlabelled and left out: episode 15",
        "varying more than one factor and left out: episode 13",
        "labelled table_height, which is no factor of the study, and left out: episode 14",
        "nothing was changed",
    ):
        assert sentence in told
    with Study.open(ordered / "study.db") as opened:
        assert opened.round.index == 0
    found = extended(fsc, ordered, root)
    assert found["collected"] == {"camera_pose": 2, "lighting": 1, "nominal": 1}
    assert found["missing"] == {"camera_pose": 2}
    assert found["extra"] == {"lighting": 1, "nominal": 1}
    assert (found["round"], found["factors"], found["nominal"]) == (1, {"camera_pose": 6, "lighting": 5}, 3)


def test_episodes_labelled_late_join_in_the_next_extension(fsc: Fsc, dataset: Path, ordered: Path) -> None:
    root = second_day(fsc, dataset, [20, 21], "10: camera_pose")
    assert extended(fsc, ordered, root)["unlabelled"] == [11]
    answer = fsc("extend", ordered, "--dataset", root)
    assert answer.returncode == 2
    assert "no labelled episode is new to the study" in answer.stderr
    done(fsc("label", root, "--rule", "11: camera_pose"))
    found = extended(fsc, ordered, root)
    assert (found["round"], found["factors"]["camera_pose"]) == (2, 6)
    assert found["order"] is None  # an order is followed once


def test_a_label_changed_since_is_told_and_the_study_keeps_its_own(fsc: Fsc, dataset: Path, ordered: Path) -> None:
    root = second_day(fsc, dataset, [20], "10: camera_pose")
    done(fsc("label", root, "--rule", "3: lighting", "--replace"))
    told = done(fsc("extend", ordered, "--dataset", root))
    assert "episode 3 is camera_pose in the study and labelled lighting now; the study keeps camera_pose" in told


def test_a_dataset_of_the_new_episodes_alone_is_told(fsc: Fsc, dataset: Path, ordered: Path) -> None:
    root = write(dataset.with_name("second-day"), [20, 21])
    done(fsc("label", root, "--rule", "all: camera_pose"))
    told = done(fsc("extend", ordered, "--dataset", root))
    assert (
        "10 demos of the study are not in this dataset; training needs one that holds them all: `fsc dataset merge`"
        in told
    )
    assert "names another dataset" not in told


def test_labels_are_held_against_the_operators_list(fsc: Fsc, dataset: Path, ordered: Path) -> None:
    done(fsc("sheet", "collect", ordered, "--out", ordered / "list.csv"))
    lines = (ordered / "list.csv").read_text().splitlines()
    for row, (value, episode) in enumerate([("left", 10), ("right", 11), ("high", 12), ("low", 99)], start=1):
        cells = lines[row].split(",")
        lines[row] = ",".join([*cells[:3], value, "x", str(episode), ""])
    (ordered / "list.csv").write_text("\n".join(lines) + "\n")
    done(fsc("sheet", "import", ordered, ordered / "list.csv"))
    root = second_day(fsc, dataset, [20, 21, 22], "10: camera_pose = left", "11: camera_pose = top", "12: lighting")
    told = done(fsc("extend", ordered, "--dataset", root))
    codes = [line.split(",")[1] for line in lines]
    for sentence in (
        f"mislabelled? episode 11 is camera_pose = right on the list ({codes[2]}) and labelled camera_pose = top",
        f"mislabelled? episode 12 is camera_pose = high on the list ({codes[3]}) and labelled lighting",
        f"episode 99 ({codes[4]} on the list, camera_pose = low) is not in the dataset",
    ):
        assert sentence in told
    assert "episode 10" not in told


def test_a_dataset_elsewhere_is_told_before_training(fsc: Fsc, dataset: Path, ordered: Path) -> None:
    root = second_day(fsc, dataset, [20], "10: camera_pose")
    told = done(fsc("extend", ordered, "--dataset", root))
    where = f"`dataset:` in {ordered / 'study.yaml'} names another dataset"
    assert f"{where}; write `dataset: {root}` there before training" in told


def test_renumbered_episodes_are_the_same_demonstrations(fsc: Fsc, dataset: Path, ordered: Path) -> None:
    root = write(dataset.with_name("shuffled"), [20, *reversed(range(10))])
    done(fsc("label", root, "--from", dataset, "--rule", "0: camera_pose"))
    found = extended(fsc, ordered, root)
    assert (found["collected"], found["gone"]) == ({"camera_pose": 1}, 0)


def test_one_way_of_saying_what_was_collected(fsc: Fsc, ordered: Path, dataset: Path) -> None:
    answer = fsc("extend", ordered, "--dataset", dataset, "--as-recommended")
    assert (answer.returncode, "say what was collected" in answer.stderr) == (2, True)
    assert fsc("extend", ordered, "--as-recommended", "--compare").returncode == 2
    for counted in (["--as-recommended"], ["--ticked"], ["--collected", "lighting=2"]):
        answer = fsc("extend", ordered, *counted)  # would make episodes that nothing can be trained on
        assert (answer.returncode, f"`fsc extend {ordered} --dataset PATH`" in answer.stderr) == (2, True)
    saved = fsc("recommend", ordered, "--budget", "4", "--save")
    assert f"next: `fsc extend {ordered} --dataset PATH` when it is recorded" in saved.stderr
    shutil.rmtree(dataset)
    answer = fsc("extend", ordered, "--dataset", dataset)
    assert (answer.returncode, "is not a LeRobot dataset" in answer.stderr) == (2, True)
