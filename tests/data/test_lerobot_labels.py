"""Labels: they follow the content, rules and tables say what they mean, and every slip is named."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.data.lerobot_cases import HOME, write

from factored_scaling.core.dataset import Episode
from factored_scaling.data.lerobot.dataset import LerobotDataset
from factored_scaling.data.lerobot.identity import episode_ids
from factored_scaling.data.lerobot.labels import (
    SIDECAR,
    Check,
    Label,
    check_labels,
    drawn_together,
    read_labels,
    write_labels,
)
from factored_scaling.data.lerobot.pictures import fitted
from factored_scaling.data.lerobot.rules import by_rules, by_table, merged, numbers_in
from factored_scaling.data.lerobot.select import select_episodes
from factored_scaling.data.lerobot.sheet import sheet_of
from factored_scaling.errors import InvalidInput

TASKS = ("cube", "cube, camera left", "cube, camera right", "cube, lamp on", "cube", "cube")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("labels") / "data", range(6), tasks=TASKS)


def checked(root: Path) -> Check:
    return check_labels(episode_ids(LerobotDataset.open(root)), read_labels(root))


def say(root: Path, *rules: str, replace: bool = False) -> Check:
    check = checked(root)
    write_labels(root, merged(check, by_rules(LerobotDataset.open(root), rules, check), replace))
    return checked(root)


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


def test_rules_label_by_task_number_and_rest(copy: Path) -> None:
    check = say(copy, 'task ~ "Camera": camera_pose', "3: lighting = lamp on", "rest: nominal")
    assert check.counts == {"nominal": 3, "camera_pose": 2, "lighting": 1}
    assert check.labels[3].value == "lamp on"
    assert check.problems() == []
    ids = check.ids
    assert check.dataset().episodes[:2] == (Episode(ids[0]), Episode(ids[1], "camera_pose"))


@pytest.mark.parametrize(
    ("rule", "episodes"),
    [
        ("all: a", [0, 1, 2, 3, 4, 5]),
        ("0-2,5: a", [0, 1, 2, 5]),
        ("length > 4: a", [2, 3]),
        ("length = 3: a", [0, 4]),
        ('task = "cube": a', [0, 4, 5]),
        ("task != cube: a", [1, 2, 3]),
        ("task ~ (left|lamp): a", [1, 3]),
    ],
)
def test_rules_mean_these_episodes(made: Path, rule: str, episodes: list[int]) -> None:
    assert sorted(by_rules(LerobotDataset.open(made), [rule], checked(made))) == episodes


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("0-29", "expected EPISODES: FACTOR"),
        ("0-29: a", "no episode 6; they go from 0 to 5"),
        ("task ~ [: a", "is not a regular expression"),
        ("task < b: a", "holds texts, which < does not compare"),
        ("length > long: a", "holds numbers, 'long' is none"),
        ("operator = anna: a", "has no column 'operator'"),
        ("task ~ rain: a", "no episode is meant by it"),
        ("0: table height", "'table height' cannot name a factor"),
        ("here and there: a", "cannot tell which episodes"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(made: Path, rule: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        by_rules(LerobotDataset.open(made), [rule], checked(made))


def test_episodes_that_two_rules_claim_are_named_as_doubly_varied(copy: Path) -> None:
    check = say(copy, "1-2: camera_pose", "task ~ left: lighting")
    assert check.doubly_varied == (1,)
    assert "doubly varied: episode 1 varies camera_pose and lighting; every demonstration may vary one factor" in (
        check.problems()
    )
    assert "unlabelled: episodes 0, 3–5" in check.problems()
    assert [episode.id for episode in check.dataset().episodes] == [check.ids[2]]


def test_an_episode_cannot_be_nominal_and_varied(made: Path) -> None:
    with pytest.raises(InvalidInput, match="episode 1 would be nominal and vary camera_pose"):
        by_rules(LerobotDataset.open(made), ["0-3: nominal", "1: camera_pose"], checked(made))


def test_labels_are_not_changed_by_accident(copy: Path) -> None:
    say(copy, "0-3: lighting")
    with pytest.raises(InvalidInput, match="episode 1 is labelled lighting already, not camera_pose"):
        say(copy, "1: camera_pose")
    assert say(copy, "1: camera_pose", replace=True).labels[1].factors == ("camera_pose",)


def test_a_table_labels_by_number_range_or_id(made: Path) -> None:
    dataset, check = LerobotDataset.open(made), checked(made)
    said = by_table(dataset, "episode,factor,value\n0-1,nominal,\n3,lighting,dim\n", "labels.csv", check)
    assert {index: (words.factors, words.value) for index, words in said.items()} == {
        0: ((), ""),
        1: ((), ""),
        3: (("lighting",), "dim"),
    }
    assert list(by_table(dataset, f"id,factor\n{check.ids[4]},lighting\n", "labels.csv", check)) == [4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "episode,factr\n0,a\n",
            r"labels.csv: header \(line 1\), column 2: unknown column 'factr'; did you mean factor",
        ),
        ("factor\na\n", "needs a column factor, and either episode or id"),
        ("episode,factor\n7,a\n", r"labels.csv: row 1 \(line 2\), column episode: .*no episode 7"),
        ("episode,factor\none,a\n", r"row 1 \(line 2\), column episode: expected numbers of episodes"),
        ("episode,factor\n1,a b\n", r"row 1 \(line 2\), column factor: 'a b' cannot name a factor"),
        ("episode,factor\n1\n", r"row 1 \(line 2\), column factor: 1 cells where the header has 2"),
        (
            "episode,factor\n1,lighting = dim\n",
            r"row 1 \(line 2\), column factor: 'lighting = dim' cannot name a factor",
        ),
        ("id,factor\nxyz,a\n", "no episode with id 'xyz'"),
        ("episode,factor\n", "labels.csv: has a header but no rows"),
        ("episode,episode,factor\n0,0,a\n", r"header \(line 1\), column 2: column 'episode' appears twice"),
    ],
)
def test_a_table_that_is_wrong_is_refused_with_the_place(made: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        by_table(LerobotDataset.open(made), text, "labels.csv", checked(made))


def test_labels_follow_renumbered_episodes_and_name_those_that_are_gone(copy: Path) -> None:
    say(copy, "1-2: camera_pose", "3: lighting", "rest: nominal")
    fewer = select_episodes(LerobotDataset.open(copy), [0, 2, 3, 5], copy.with_name("fewer")).root
    shutil.copy(copy / SIDECAR, fewer / SIDECAR)  # as if the numbers had moved under the labels
    check = checked(fewer)
    assert {index: label.text for index, label in check.labels.items()} == {
        0: "nominal",
        1: "camera_pose",
        2: "lighting",
        3: "nominal",
    }
    assert check.renumbered == ((2, 1), (3, 2), (5, 3))
    assert [label.index for label in check.gone] == [1, 4]
    assert check.problems() == []
    assert check.remarks() == [
        "re-indexed since they were labelled: episode 2 is now 1, 3 is now 2, 5 is now 3",
        "labelled but no longer in the dataset: episodes 1, 4 (numbers of that time)",
    ]


def test_a_selection_takes_its_labels_along(copy: Path) -> None:
    say(copy, "1-2: camera_pose = left", "3: lighting")
    chosen = select_episodes(LerobotDataset.open(copy), [0, 2, 3], copy.with_name("chosen")).root
    assert [(label.index, label.text, label.value) for label in read_labels(chosen).values()] == [
        (1, "camera_pose", "left"),
        (2, "lighting", ""),
    ]


def test_the_same_demonstration_twice_is_named(tmp_path: Path) -> None:
    check = checked(write(tmp_path / "data", [1, 2, 1]))
    assert "twice there: episodes 0, 2 hold the same states and actions" in check.problems()


def test_a_sidecar_of_another_version_is_refused(copy: Path) -> None:
    pq.write_table(pa.table({"id": ["x"]}), copy / SIDECAR)
    with pytest.raises(InvalidInput, match="is a label file of version unknown"):
        read_labels(copy)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(["camera_pose", "licht", "高さ"]), unique=True, max_size=2), st.text(max_size=9)
        ),
        max_size=8,
    )
)
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[list[str], str]]
) -> None:
    root = tmp_path_factory.mktemp("sidecar")
    (root / "meta").mkdir()
    labels = [Label(f"{index:016x}", index, tuple(names), value) for index, (names, value) in enumerate(rows)]
    write_labels(root, labels)
    assert list(read_labels(root).values()) == labels


@given(st.lists(st.integers(0, 60), min_size=1, max_size=30))
def test_numbers_drawn_together_mean_the_same_numbers(numbers: list[int]) -> None:
    text = drawn_together(numbers)
    if "…" not in text:
        assert numbers_in(text, "") == sorted(set(numbers))


def test_sheets_show_every_episode(copy: Path) -> None:
    check = say(copy, "1-2: camera_pose = <left>")
    dataset = LerobotDataset.open(copy)
    page = sheet_of(dataset, check, Path("sheet.html")).decode()
    assert page.count("<img") == 6
    assert "unlabelled (4)" in page
    assert "&lt;left&gt;" in page
    assert "http" not in page
    with Image.open(io.BytesIO(sheet_of(dataset, check, Path("sheet.png")))) as image:
        assert np.asarray(image).std() > 10
    with pytest.raises(InvalidInput, match=r"must end in \.html or \.png"):
        sheet_of(dataset, check, Path("sheet.pdf"))
    with pytest.raises(InvalidInput, match="unknown camera 'top'"):
        sheet_of(dataset, check, Path("sheet.png"), "top")


@pytest.mark.parametrize(("shape", "shown"), [((48, 64), (108, 144)), ((64, 32), (144, 72)), ((16, 16), (144, 144))])
def test_thumbnails_keep_their_proportions(shape: tuple[int, int], shown: tuple[int, int]) -> None:
    assert fitted(np.zeros((*shape, 3), dtype=np.uint8), 144).shape == (*shown, 3)


def test_datasets_of_the_older_layout_can_be_labelled(tmp_path: Path) -> None:
    root = Path(shutil.copytree(HOME / "v21-video", tmp_path / "copy"))
    assert say(root, "task ~ lamp: lighting").counts == {"lighting": 1}
