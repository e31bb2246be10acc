"""Our datasets in LeRobot's own reader, and LeRobot's in ours. Needs LeRobot: `make test-lerobot`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from factored_scaling.data.lerobot import statistics
from factored_scaling.data.lerobot.dataset import LerobotDataset
from factored_scaling.data.lerobot.identity import episode_ids
from factored_scaling.data.lerobot.labels import Label, check_labels, read_labels, write_labels
from factored_scaling.data.lerobot.layout import Feature
from factored_scaling.data.lerobot.pictures import read_episodes, read_pictures
from factored_scaling.data.lerobot.rows import vectors
from factored_scaling.data.lerobot.select import merge_datasets, select_episodes
from factored_scaling.data.lerobot.write import DatasetWriter

lerobot_dataset = pytest.importorskip("lerobot.datasets.lerobot_dataset")

CAMERAS = ("observation.images.front", "observation.images.wrist")
LENGTHS = (7, 12, 5, 9)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("SVT_LOG", "1")


def episodes(seed: int = 0) -> list[dict[str, NDArray[Any]]]:
    rng = np.random.default_rng(seed)
    return [
        {
            "observation.state": rng.normal(size=(length, 4)).astype(np.float32),
            "action": rng.normal(size=(length, 3)).astype(np.float32),
            CAMERAS[0]: rng.integers(0, 256, (length, 64, 96, 3)).astype(np.uint8),
            CAMERAS[1]: rng.integers(0, 256, (length, 96, 64, 3)).astype(np.uint8),
        }
        for length in LENGTHS
    ]


def features(kind: str) -> dict[str, Feature]:
    names = ["height", "width", "channels"]
    return {
        "observation.state": Feature("float32", (4,), list("abcd")),
        "action": Feature("float32", (3,), list("xyz")),
        CAMERAS[0]: Feature(kind, (64, 96, 3), names),
        CAMERAS[1]: Feature(kind, (96, 64, 3), names),
    }


def ours(root: Path, kind: str) -> Path:
    with DatasetWriter(root, 20, features(kind), "so100") as writer:
        for number, columns in enumerate(episodes()):
            writer.add(columns, f"task {number % 2}")
    return root


def theirs(root: Path, kind: str) -> Path:
    described = {name: {"dtype": f.dtype, "shape": f.shape, "names": f.names} for name, f in features(kind).items()}
    made = lerobot_dataset.LeRobotDataset.create("fsc/test", 20, described, root=root, use_videos=kind == "video")
    for number, columns in enumerate(episodes()):
        for step in range(LENGTHS[number]):
            made.add_frame({**{name: column[step] for name, column in columns.items()}, "task": f"task {number % 2}"})
        made.save_episode()
    made.finalize()
    return root


def opened(root: Path, chosen: list[int] | None = None) -> Any:
    return lerobot_dataset.LeRobotDataset("fsc/test", root=root, episodes=chosen, video_backend="pyav")


def compare(root: Path) -> int:
    """Hold every frame that LeRobot reads against ours; returns how many there were."""
    mine, other, compared = LerobotDataset.open(root), opened(root), 0
    for entry, table in read_episodes(mine, None, ("observation.state", "action", "task_index"), CAMERAS):
        first = other.meta.episodes[entry.index]["dataset_from_index"]
        pictures = {camera: list(read_pictures(mine, entry, table, camera)) for camera in CAMERAS}
        for step in range(entry.length):
            item = other[first + step]
            for name in ("observation.state", "action"):
                assert np.array_equal(item[name].numpy(), vectors(table.column(name), entry.length, "")[step])
            for camera in CAMERAS:
                pixels = (item[camera].numpy() * 255).round().astype(np.uint8).transpose(1, 2, 0)
                assert np.array_equal(pixels, pictures[camera][step])
            assert item["task"] == entry.tasks[0]
            assert int(item["episode_index"]) == entry.index
            compared += 1
    assert compared == len(other)
    return compared


@pytest.mark.parametrize("kind", ["image", "video"])
def test_lerobot_loads_what_we_write(kind: str, tmp_path: Path) -> None:
    assert compare(ours(tmp_path / "data", kind)) == sum(LENGTHS)


@pytest.mark.parametrize("kind", ["image", "video"])
def test_we_load_what_lerobot_writes(kind: str, tmp_path: Path) -> None:
    assert compare(theirs(tmp_path / "data", kind)) == sum(LENGTHS)


@pytest.mark.parametrize("kind", ["image", "video"])
def test_images_that_we_write_reach_lerobot_without_a_changed_pixel(kind: str, tmp_path: Path) -> None:
    item = opened(ours(tmp_path / "data", kind))[LENGTHS[0] + 3]
    shown = (item[CAMERAS[1]].numpy() * 255).round().astype(np.uint8).transpose(1, 2, 0)
    same = np.array_equal(shown, episodes()[1][CAMERAS[1]][3])
    assert same == (kind == "image")  # video loses some, as LeRobot's own does


@pytest.mark.parametrize("kind", ["image", "video"])
@pytest.mark.parametrize("writer", [ours, theirs])
def test_lerobot_loads_a_selection(kind: str, writer: Any, tmp_path: Path) -> None:
    source = LerobotDataset.open(writer(tmp_path / "source", kind))
    select_episodes(source, [3, 1], tmp_path / "chosen")
    assert compare(tmp_path / "chosen") == LENGTHS[1] + LENGTHS[3]
    whole, part = opened(tmp_path / "source"), opened(tmp_path / "chosen")
    for step in (0, LENGTHS[1] - 1, LENGTHS[1], LENGTHS[1] + LENGTHS[3] - 1):
        old = step + LENGTHS[0] if step < LENGTHS[1] else step + LENGTHS[0] + LENGTHS[2]
        assert np.array_equal(part[step][CAMERAS[0]].numpy(), whole[old][CAMERAS[0]].numpy())
        assert np.array_equal(part[step]["action"].numpy(), whole[old]["action"].numpy())


def test_lerobot_goes_on_recording_into_a_dataset_of_ours(tmp_path: Path) -> None:
    root = ours(tmp_path / "data", "video")
    before = episode_ids(LerobotDataset.open(root))
    made = opened(root)
    columns = episodes(seed=1)[0]
    for step in range(LENGTHS[0]):
        made.add_frame({**{name: column[step] for name, column in columns.items()}, "task": "task 9"})
    made.save_episode()
    made.finalize()
    assert compare(root) == sum(LENGTHS) + LENGTHS[0]
    after = episode_ids(LerobotDataset.open(root))
    assert {index: after[index] for index in before} == before


def test_statistics_of_a_selection_are_what_lerobot_would_put_together(tmp_path: Path) -> None:
    compute = pytest.importorskip("lerobot.datasets.compute_stats")
    root = theirs(tmp_path / "data", "image")
    recorded = statistics.recorded(LerobotDataset.open(root), [0, 2])
    numbers = [{n: s for n, s in recorded[index].items() if "images" not in n} for index in (0, 2)]
    expected = compute.aggregate_stats(numbers)
    found = statistics.put_together(numbers)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        for key, value in values.items():
            assert found[name][key] == pytest.approx(value), (name, key)


def test_lerobot_records_picture_deviations_that_are_too_small(tmp_path: Path) -> None:
    """Why ours are computed anew. When this fails, LeRobot has mended it, and `_usable` can go."""
    root = theirs(tmp_path / "data", "image")
    recorded = opened(root).meta.stats[CAMERAS[0]]["std"].ravel()
    right = np.concatenate([columns[CAMERAS[0]].reshape(-1, 3) for columns in episodes()]).std(0) / 255
    assert np.all(recorded < right / 5)


def test_labels_follow_episodes_through_lerobots_own_editing(tmp_path: Path) -> None:
    tools = pytest.importorskip("lerobot.datasets.dataset_tools")
    root = theirs(tmp_path / "data", "video")
    ids = episode_ids(LerobotDataset.open(root))
    write_labels(root, [Label(id_, index, ("camera_pose",) if index else ()) for index, id_ in ids.items()])
    edited = tools.delete_episodes(opened(root), [1], output_dir=tmp_path / "fewer", repo_id="fsc/fewer")
    fewer = LerobotDataset.open(edited.root)
    check = check_labels(episode_ids(fewer), read_labels(root))
    assert check.renumbered == ((2, 1), (3, 2))
    assert [label.index for label in check.gone] == [1]
    assert not check.unlabelled
    merged = tools.merge_datasets([edited, opened(root)], output_repo_id="fsc/both", output_dir=tmp_path / "both")
    both = check_labels(episode_ids(LerobotDataset.open(merged.root)), read_labels(root))
    assert len(both.twins) == 3  # the three that were in both


@pytest.mark.parametrize("kind", ["image", "video"])
def test_lerobot_loads_what_we_merge(kind: str, tmp_path: Path) -> None:
    first = select_episodes(LerobotDataset.open(ours(tmp_path / "ours", kind)), [0, 1], tmp_path / "first")
    merged, left_out = merge_datasets([first, LerobotDataset.open(theirs(tmp_path / "theirs", kind))], tmp_path / "all")
    assert left_out == 2  # both hold the same demonstrations
    assert compare(merged.root) == sum(LENGTHS)


def test_lerobot_loads_every_kind_of_number(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    made = {
        "action": Feature("float32", (3,), list("xyz")),
        "force": Feature("float32", (1,), None),
        "grid": Feature("float32", (2, 2), None),
        "count": Feature("int64", (2,), None),
        "next.done": Feature("bool", (1,), None),
        "note": Feature("string", (1,), None),
    }
    rows: dict[str, NDArray[Any]] = {
        "action": rng.normal(size=(4, 3)).astype(np.float32),
        "force": rng.normal(size=(4, 1)).astype(np.float32),
        "grid": rng.normal(size=(4, 2, 2)).astype(np.float32),
        "count": rng.integers(0, 9, (4, 2)),
        "next.done": np.array([False, False, False, True]),
        "note": np.array(["a", "b", "c", "d"]),
    }
    with DatasetWriter(tmp_path / "data", 20, made) as writer:
        writer.add(rows, "count")
    read = opened(tmp_path / "data")
    for step in range(4):
        item = read[step]
        for name in ("action", "grid", "count"):
            assert np.array_equal(item[name].numpy(), rows[name][step]), name
        assert float(item["force"]) == rows["force"][step, 0]
        assert bool(item["next.done"]) == bool(rows["next.done"][step])
        assert item["note"] == rows["note"][step]


def test_ids_survive_lerobots_converter(tmp_path: Path) -> None:
    converter = pytest.importorskip("lerobot.datasets.v30.convert_dataset_v21_to_v30")
    older = Path(__file__).parents[1] / "data/lerobot/v21-video"
    root = Path(shutil.copytree(older, tmp_path / "fsc/old"))
    converter.convert_dataset("fsc/old", root=str(tmp_path), push_to_hub=False)
    newer = LerobotDataset.open(root)
    assert newer.version == "v3.0"
    assert episode_ids(newer) == episode_ids(LerobotDataset.open(older))


def test_lerobot_ignores_the_sidecar(tmp_path: Path) -> None:
    root = ours(tmp_path / "data", "image")
    write_labels(root, [Label("0" * 16, 0, ())])
    assert len(opened(root)) == sum(LENGTHS)
