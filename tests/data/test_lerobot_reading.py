"""Reading LeRobot datasets, held against what LeRobot itself wrote and read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.data.lerobot_cases import BY_LEROBOT, CAMERA, HOME, expected, write

from factored_scaling.data.lerobot.dataset import LerobotDataset
from factored_scaling.data.lerobot.identity import episode_ids, indices_of
from factored_scaling.data.lerobot.pictures import first_pictures, read_episodes, read_pictures
from factored_scaling.data.lerobot.rows import read_rows, vectors
from factored_scaling.data.lerobot.select import select_episodes
from factored_scaling.data.lerobot.table import frame_table
from factored_scaling.errors import InvalidInput


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A dataset that may be damaged."""
    return Path(shutil.copytree(HOME / "v30-video", tmp_path / "copy"))


@pytest.mark.parametrize("name", BY_LEROBOT)
def test_episodes_are_listed_as_lerobot_wrote_them(name: str) -> None:
    dataset = LerobotDataset.open(HOME / name)
    assert [entry.length for entry in dataset.episodes] == [4, 6, 5]
    assert [entry.tasks for entry in dataset.episodes] == [(text,) for text in dataset.tasks().values()]
    assert (dataset.fps, dataset.cameras, dataset.version) == (10, (CAMERA,), f"v{name[1]}.{name[2]}")


@pytest.mark.parametrize("name", BY_LEROBOT)
def test_every_pixel_and_number_is_what_lerobot_reads(name: str) -> None:
    dataset, truth = LerobotDataset.open(HOME / name), expected(name)
    for entry, table in read_episodes(dataset, None, ("observation.state", "action"), (CAMERA,)):
        rows = truth["episode"] == entry.index
        assert np.array_equal(vectors(table.column("action"), entry.length, ""), truth["action"][rows])
        assert np.array_equal(vectors(table.column("observation.state"), entry.length, ""), truth["state"][rows])
        pictures = np.stack(list(read_pictures(dataset, entry, table, CAMERA)))
        assert np.array_equal(pictures, truth["pixels"][rows])


@pytest.mark.parametrize("name", BY_LEROBOT)
def test_single_frames_out_of_the_middle_are_the_same_as_in_a_row(name: str) -> None:
    dataset, truth = LerobotDataset.open(HOME / name), expected(name)
    for entry, table in read_episodes(dataset, [1], cameras=(CAMERA,)):
        chosen = list(read_pictures(dataset, entry, table, CAMERA, [3, 5]))
    assert np.array_equal(np.stack(chosen), truth["pixels"][truth["episode"] == 1][[3, 5]])


def test_ids_come_from_content_and_not_from_the_layout() -> None:
    found = [episode_ids(LerobotDataset.open(HOME / name)) for name in BY_LEROBOT]
    assert found[0] == found[1] == found[2]  # the same demonstrations, as images, video, and in the older layout
    assert len(set(found[0].values())) == 3


def test_numbers_are_found_by_ids() -> None:
    dataset = LerobotDataset.open(HOME / "v30-image")
    ids = episode_ids(dataset)
    assert indices_of(dataset, [ids[2], ids[0]]) == [2, 0]
    with pytest.raises(InvalidInput, match=r"no episode with id nothing \(1 of 2 missing\)"):
        indices_of(dataset, [ids[1], "nothing"])


def test_equal_demonstrations_get_ids_that_differ(tmp_path: Path) -> None:
    ids = episode_ids(LerobotDataset.open(write(tmp_path / "data", [1, 2, 1, 1])))
    assert ids[2] == f"{ids[0]}-2"
    assert ids[3] == f"{ids[0]}-3"


def test_only_the_wanted_episodes_are_read() -> None:
    dataset = LerobotDataset.open(HOME / "v30-image")
    assert [entry.index for entry, _ in read_rows(dataset, [2, 0])] == [0, 2]


def test_episodes_that_share_a_row_group_are_told_apart(copy: Path) -> None:
    path = copy / "data/chunk-000/file-000.parquet"
    pq.write_table(pq.read_table(path), path)  # as pandas would write it
    assert episode_ids(LerobotDataset.open(copy)) == episode_ids(LerobotDataset.open(HOME / "v30-video"))


def test_a_frame_table_holds_the_dataset_for_training() -> None:
    dataset, truth = LerobotDataset.open(HOME / "v30-image"), expected("v30-image")
    table = frame_table(dataset, {2: ("c", "lighting"), 0: ("a", None)}, 64)
    rows = np.concatenate([np.flatnonzero(truth["episode"] == 2), np.flatnonzero(truth["episode"] == 0)])
    assert np.array_equal(table.images[:, 0], truth["pixels"][rows].transpose(0, 3, 1, 2))
    assert np.array_equal(table.action, truth["action"][rows])
    assert table.starts.tolist() == [0, 5, 9]
    assert table.factors == ("lighting", None)
    assert frame_table(dataset, {1: ("b", None)}, 8).images.shape == (6, 1, 3, 8, 8)


def test_first_pictures_are_the_first_frames() -> None:
    dataset, truth = LerobotDataset.open(HOME / "v30-video"), expected("v30-video")
    for index, picture in first_pictures(dataset, CAMERA).items():
        assert np.array_equal(picture, truth["pixels"][truth["episode"] == index][0])


def test_columns_of_the_episodes_can_be_asked_for() -> None:
    dataset = LerobotDataset.open(HOME / "v30-image")
    assert dataset.column("length") == [4, 6, 5]
    assert dataset.column("task")[1] == "pick up the cube, camera moved"
    with pytest.raises(InvalidInput, match="no column 'operator'"):
        dataset.column("operator")


def test_a_folder_that_is_no_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"is not a LeRobot dataset \(no meta/info.json\)"):
        LerobotDataset.open(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"codebase_version": "v2.0"}, "of version v2.0"),
        ({"total_episodes": 5}, "info.json counts 5 episodes, the metadata lists 3"),
        ({"data_path": "../{chunk_index}/{file_index}"}, "leads out of the dataset"),
        ({"data_path": "{nothing}"}, "cannot fill in the path"),
        ({"features": {"action": {}}}, "features.action: expected an object with dtype and shape"),
        ({"fps": None}, "fps is None, not a number above 0"),
    ],
)
def test_a_dataset_that_makes_no_sense_is_refused(copy: Path, change: dict[str, object], message: str) -> None:
    path = copy / "meta/info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InvalidInput, match=message):
        LerobotDataset.open(copy)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("episodes.jsonl", '{"episode_index": null, "tasks": 3, "length": "x"}'),
        ("episodes.jsonl", '{"episode_index": 0, "tasks": {}, "length": []}'),
        ("tasks.jsonl", '{"task": "no number"}'),
        ("episodes_stats.jsonl", '{"episode_index": 0, "stats": [1]}'),
    ],
)
def test_metadata_of_another_build_is_refused_with_its_place(name: str, line: str, tmp_path: Path) -> None:
    root = Path(shutil.copytree(HOME / "v21-video", tmp_path / "copy"))
    path = root / "meta" / name
    path.write_text("\n".join([line, *path.read_text().splitlines()[1:]]))
    with pytest.raises(InvalidInput, match=r"meta.*is not built as LeRobot builds it"):
        select_episodes(LerobotDataset.open(root), [0], tmp_path / "chosen")


def test_a_file_without_its_end_says_what_happened(copy: Path) -> None:
    path = copy / "data/chunk-000/file-000.parquet"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InvalidInput, match=r"cannot be read as parquet .*finalize"):
        episode_ids(LerobotDataset.open(copy))


def test_missing_rows_are_noticed(copy: Path) -> None:
    path = copy / "data/chunk-000/file-000.parquet"
    pq.write_table(pq.read_table(path).slice(0, 13), path)
    with pytest.raises(InvalidInput, match="3 rows of episode 2, the metadata says 5"):
        episode_ids(LerobotDataset.open(copy))


def test_a_missing_video_is_named(copy: Path) -> None:
    shutil.rmtree(copy / "videos")
    with pytest.raises(InvalidInput, match=r"file-000.mp4: is missing"):
        first_pictures(LerobotDataset.open(copy), CAMERA)


def test_a_video_that_is_cut_short_is_noticed(copy: Path) -> None:
    path = next((copy / "videos").rglob("*.mp4"))
    path.write_bytes(path.read_bytes()[:1500])
    with pytest.raises(InvalidInput, match=r"file-000.mp4: (has no frame at|cannot be read as a video)"):
        first_pictures(LerobotDataset.open(copy), CAMERA)
