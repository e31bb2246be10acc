"""Writing and selecting: what was put in comes out, statistics are of the selection, nothing half-made stays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.data.lerobot_cases import BY_LEROBOT, CAMERA, HOME, episode, expected, features, write

from factored_scaling.data.lerobot import statistics
from factored_scaling.data.lerobot.dataset import LerobotDataset
from factored_scaling.data.lerobot.identity import episode_ids
from factored_scaling.data.lerobot.labels import Label, check_labels, read_labels, write_labels
from factored_scaling.data.lerobot.layout import Feature
from factored_scaling.data.lerobot.pictures import read_episodes, read_pictures
from factored_scaling.data.lerobot.rows import read_rows, vectors
from factored_scaling.data.lerobot.select import SELECTION, merge_datasets, select_episodes
from factored_scaling.data.lerobot.video import VideoWriter
from factored_scaling.data.lerobot.write import DatasetWriter
from factored_scaling.errors import InvalidInput


def pictures_of(root: Path, index: int) -> np.ndarray:
    dataset = LerobotDataset.open(root)
    ((entry, table),) = read_episodes(dataset, [index], cameras=[CAMERA])
    return np.stack(list(read_pictures(dataset, entry, table, CAMERA)))


def test_images_come_back_to_the_pixel(tmp_path: Path) -> None:
    root = write(tmp_path / "data", [5, 6])
    for index, seed in enumerate((5, 6)):
        assert np.array_equal(pictures_of(root, index), episode(seed, 3 + seed % 4)[CAMERA])


def test_numbers_of_any_shape_come_back(tmp_path: Path) -> None:
    made = {"force": Feature("float32", (1,)), "grid": Feature("float64", (2, 3)), "count": Feature("int64", (2,))}
    rng = np.random.default_rng(0)
    rows: dict[str, NDArray[Any]] = {
        "force": rng.normal(size=(4, 1)).astype(np.float32),
        "grid": rng.normal(size=(4, 2, 3)),
        "count": rng.integers(0, 9, (4, 2)),
    }
    with DatasetWriter(tmp_path / "data", 10, made) as writer:
        writer.add(rows, ["reach", "reach", "grasp", "grasp"])
    dataset = LerobotDataset.open(tmp_path / "data")
    ((entry, table),) = read_rows(dataset, None)
    for name, values in rows.items():
        assert np.array_equal(vectors(table.column(name), 4, ""), values.reshape(4, -1))
    assert entry.tasks == ("reach", "grasp")
    assert table.column("task_index").to_pylist() == [0, 0, 1, 1]


def test_texts_and_truth_values_come_back(tmp_path: Path) -> None:
    made = {"action": Feature("float32", (1,)), "next.done": Feature("bool", (1,)), "note": Feature("string", (1,))}
    rows: dict[str, NDArray[Any]] = {
        "action": np.zeros((3, 1), dtype=np.float32),
        "next.done": np.array([False, False, True]),
        "note": np.array(["reach", "grasp", "lift ü"]),
    }
    with DatasetWriter(tmp_path / "data", 10, made) as writer:
        writer.add(rows, "lift")
    ((_, table),) = read_rows(LerobotDataset.open(tmp_path / "data"), None)
    assert table.column("next.done").to_pylist() == [False, False, True]
    assert table.column("note").to_pylist() == ["reach", "grasp", "lift ü"]
    stats = json.loads((tmp_path / "data/meta/stats.json").read_text())
    assert "note" not in stats
    assert stats["next.done"]["mean"] == pytest.approx([1 / 3])
    chosen = select_episodes(LerobotDataset.open(tmp_path / "data"), [0], tmp_path / "chosen")
    ((_, table),) = read_rows(chosen, None)
    assert table.column("note").to_pylist()[2] == "lift ü"


@pytest.mark.parametrize(
    "feature",
    [Feature("video", (16, 16)), Feature("string", (2,)), Feature("colour", (1,)), Feature("complex64", (1,))],
)
def test_a_feature_that_cannot_be_stored_is_refused(feature: Feature, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="odd: cannot store"):
        DatasetWriter(tmp_path / "data", 10, {"odd": feature})
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=6),
    st.lists(st.tuples(st.sampled_from(["float32", "float64", "int64"]), st.integers(1, 4)), min_size=1, max_size=3),
    st.randoms(use_true_random=False),
)
def test_any_selection_of_anything_written_is_what_was_put_in(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    kinds: list[tuple[str, int]],
    random: Random,
) -> None:
    home = tmp_path_factory.mktemp("any")
    made = {f"f{place}": Feature(dtype, (size,)) for place, (dtype, size) in enumerate(kinds)}
    rng = np.random.default_rng(random.randrange(1000))
    written: list[dict[str, NDArray[Any]]] = []
    with DatasetWriter(home / "data", 10, made) as writer:
        for length in lengths:
            written.append({n: (9 * rng.normal(size=(length, *f.shape))).astype(f.dtype) for n, f in made.items()})
            writer.add(written[-1], "any")
    chosen = sorted(random.sample(range(len(lengths)), random.randint(1, len(lengths))))
    select_episodes(LerobotDataset.open(home / "data"), chosen, home / "chosen")
    stats = json.loads((home / "chosen/meta/stats.json").read_text())
    for name in made:
        whole = np.concatenate([written[index][name] for index in chosen]).astype(np.float64)
        assert stats[name]["mean"] == pytest.approx(whole.mean(0), abs=1e-9)
        assert stats[name]["std"] == pytest.approx(whole.std(0), abs=1e-6)
    for new, (entry, table) in enumerate(read_rows(LerobotDataset.open(home / "chosen"), None)):
        for name in made:
            assert np.array_equal(vectors(table.column(name), entry.length, ""), written[chosen[new]][name])


def test_video_shows_what_was_filmed(tmp_path: Path) -> None:
    grey = np.stack([np.full((64, 64, 3), 40 * level, dtype=np.uint8) for level in range(6)])
    with DatasetWriter(tmp_path / "data", 10, features("video", 64)) as writer:
        for seed in range(3):
            writer.add({**episode(seed, 6, 64), CAMERA: grey if seed != 1 else 255 - grey}, "pick")
    dataset = LerobotDataset.open(tmp_path / "data")
    assert [entry.videos[CAMERA].start for entry in dataset.episodes] == pytest.approx([0.0, 0.6, 1.2])
    assert np.abs(pictures_of(tmp_path / "data", 2).astype(int) - grey).max() < 10
    assert np.abs(pictures_of(tmp_path / "data", 1).astype(int) - (255 - grey)).max() < 10


@pytest.mark.parametrize("codec", ["libsvtav1", "h264"])
def test_no_episode_owes_its_first_picture_to_the_one_before(codec: str, tmp_path: Path) -> None:
    import av

    with DatasetWriter(tmp_path / "data", 10, features("video", 64), codec=codec) as writer:
        for seed in range(4):
            writer.add(episode(seed, 3, 64), "pick")
    with av.open(str(next((tmp_path / "data").rglob("*.mp4")))) as container:
        found = [packet for packet in container.demux(video=0) if packet.is_keyframe and packet.pts is not None]
        keys = {round((packet.pts or 0) * packet.time_base * 10) for packet in found}
    assert {0, 3, 6, 9} <= keys


def test_files_are_split_when_they_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("factored_scaling.data.lerobot.layout.DATA_MEGABYTES", 0)
    monkeypatch.setattr("factored_scaling.data.lerobot.layout.VIDEO_MEGABYTES", 0)
    root = write(tmp_path / "data", [0, 1, 2], "video", 64)
    dataset = LerobotDataset.open(root)
    assert len({entry.data for entry in dataset.episodes}) == 3
    assert len({entry.videos[CAMERA].path for entry in dataset.episodes}) == 3
    assert len(pictures_of(root, 2)) == 5


def test_nothing_is_left_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput), DatasetWriter(tmp_path / "data", 10, features("video", 64)) as writer:
        _spoil(writer)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("spoilt", [False, True])
def test_nothing_is_left_when_a_video_cannot_be_finished(
    spoilt: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = VideoWriter.close

    def full(writer: VideoWriter) -> None:
        close(writer)
        raise OSError("no space left on device")

    monkeypatch.setattr(VideoWriter, "close", full)
    writer = DatasetWriter(tmp_path / "data", 10, features("video", 64))
    with pytest.raises(OSError, match="no space"), writer:
        _spoil(writer) if spoilt else writer.add(episode(1, 3, 64), "pick")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action": np.zeros((3, 7))}, r"episode 0, action: has shape \(7,\), not \(2,\)"),
        ({"action": np.zeros((2, 2))}, "episode 0: the columns have different lengths"),
        ({CAMERA: np.zeros((3, 16, 16, 3))}, r"pictures are bytes"),
        ({"reward": np.zeros(3)}, "episode 0, reward: is not a feature of this dataset"),
    ],
)
def test_an_episode_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InvalidInput, match=message), DatasetWriter(tmp_path / "data", 10, features()) as writer:
        writer.add({**episode(1, 3), **change}, "pick")


def test_an_existing_dataset_is_never_written_over(tmp_path: Path) -> None:
    root = write(tmp_path / "data", [1])
    with pytest.raises(InvalidInput, match="is already there; nothing was changed"):
        write(root, [2])
    assert len(LerobotDataset.open(root)) == 1


@pytest.mark.parametrize("name", BY_LEROBOT)
def test_a_selection_holds_the_chosen_episodes_to_the_pixel(name: str, tmp_path: Path) -> None:
    source, truth = LerobotDataset.open(HOME / name), expected(name)
    chosen = select_episodes(source, [2, 0], tmp_path / "chosen")
    ids = episode_ids(source)
    assert list(episode_ids(chosen).values()) == [ids[0], ids[2]]
    assert chosen.version == "v3.0"
    for new, old in enumerate((0, 2)):
        assert np.array_equal(pictures_of(tmp_path / "chosen", new), truth["pixels"][truth["episode"] == old])
        assert chosen.episodes[new].tasks == source.episodes[old].tasks
    table = [table for _, table in read_rows(chosen, None)]
    assert np.concatenate([t.column("index").to_numpy() for t in table]).tolist() == list(range(9))
    note = json.loads((tmp_path / "chosen" / SELECTION).read_text())
    assert note["episodes"] == [0, 2]
    assert note["ids"] == [ids[0], ids[2]]


def test_videos_of_a_selection_are_the_very_same_bytes(tmp_path: Path) -> None:
    source = Path(shutil.copytree(HOME / "v30-video", tmp_path / "source"))
    select_episodes(LerobotDataset.open(source), [1], tmp_path / "chosen")
    (old,), (new,) = source.rglob("*.mp4"), (tmp_path / "chosen").rglob("*.mp4")
    assert old.samefile(new)


@pytest.mark.parametrize("name", BY_LEROBOT)
def test_statistics_are_those_of_the_selected_rows(name: str, tmp_path: Path) -> None:
    truth = expected(name)
    select_episodes(LerobotDataset.open(HOME / name), [0, 2], tmp_path / "chosen")
    stats = json.loads((tmp_path / "chosen/meta/stats.json").read_text())
    rows = truth["episode"] != 1
    for feature, values in (("action", truth["action"][rows]), ("observation.state", truth["state"][rows])):
        assert stats[feature]["mean"] == pytest.approx(values.mean(0), abs=1e-6)
        assert stats[feature]["std"] == pytest.approx(values.std(0), abs=1e-6)
        assert stats[feature]["min"] == pytest.approx(values.min(0))
        assert stats[feature]["max"] == pytest.approx(values.max(0))
        assert stats[feature]["count"] == [9]
    assert stats["episode_index"]["max"] == [1]


def test_impossible_picture_statistics_are_computed_anew(tmp_path: Path) -> None:
    """LeRobot 0.4 records a deviation of 0 for pictures of many colours; 0.3 records the right one."""
    wrong = json.loads((HOME / "v30-image/meta/stats.json").read_text())[CAMERA]["std"]
    truth = expected("v30-image")["pixels"] / 255.0
    right = truth.std((0, 1, 2)).reshape(3, 1, 1)
    assert np.all(np.array(wrong) < right / 2)
    select_episodes(LerobotDataset.open(HOME / "v30-image"), [0, 1, 2], tmp_path / "all")
    stats = json.loads((tmp_path / "all/meta/stats.json").read_text())
    assert np.array(stats[CAMERA]["std"]) == pytest.approx(right, abs=1e-6)
    sources = json.loads((tmp_path / "all" / SELECTION).read_text())["statistics"]["features"]
    assert sources[CAMERA] == statistics.COMPUTED
    assert sources["action"] == statistics.RECORDED


def test_statistics_put_together_are_those_of_everything() -> None:
    rng = np.random.default_rng(3)
    parts = [rng.normal(size=(length, 2)) * length for length in (3, 8, 5)]
    together = statistics.put_together([{"x": statistics.of_rows(part)} for part in parts])["x"]
    whole = statistics.of_rows(np.concatenate(parts))
    for key in ("min", "max", "mean", "std", "count"):
        assert together[key] == pytest.approx(whole[key])


def test_picture_statistics_are_exact() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (5, 20, 30, 3)).astype(np.uint8)
    found, values = statistics.of_pictures(pictures), pictures.reshape(-1, 3) / 255.0
    assert found["mean"].ravel() == pytest.approx(values.mean(0))
    assert found["std"].ravel() == pytest.approx(values.std(0))
    assert found["q50"].ravel() == pytest.approx(np.quantile(values, 0.5, axis=0, method="inverted_cdf"))
    assert found["count"].tolist() == [5]


def test_merged_datasets_hold_every_episode_once(tmp_path: Path) -> None:
    first = write(tmp_path / "first", [1, 2, 3], "video", 64, tasks=["a", "b", "a"])
    second = write(tmp_path / "second", [4, 2, 5], "video", 64, tasks=["c", "b", "a"])
    for root, name in ((first, "lighting"), (second, "camera_pose")):
        ids = episode_ids(LerobotDataset.open(root))
        write_labels(root, [Label(id_, index, (name,)) for index, id_ in ids.items()])
    merged, left_out = merge_datasets([LerobotDataset.open(first), LerobotDataset.open(second)], tmp_path / "both")
    assert left_out == 1
    alone = [episode_ids(LerobotDataset.open(root)) for root in (first, second)]
    assert list(episode_ids(merged).values()) == [*alone[0].values(), alone[1][0], alone[1][2]]
    assert [entry.tasks[0] for entry in merged.episodes] == ["a", "b", "a", "c", "a"]
    rows = [table.column("task_index").to_pylist()[0] for _, table in read_rows(merged, None)]
    assert [merged.tasks()[number] for number in rows] == ["a", "b", "a", "c", "a"]
    assert np.array_equal(pictures_of(merged.root, 4), pictures_of(second, 2))
    assert np.array_equal(pictures_of(merged.root, 1), pictures_of(first, 1))
    labels = check_labels(episode_ids(merged), read_labels(merged.root))
    assert labels.counts == {"lighting": 3, "camera_pose": 2}
    assert not labels.renumbered
    note = json.loads((merged.root / SELECTION).read_text())
    assert [source["episodes"] for source in note["sources"]] == [[0, 1, 2], [0, 2]]
    stats = json.loads((merged.root / "meta/stats.json").read_text())
    actions = np.concatenate([episode(seed, 3 + seed % 4, 64)["action"] for seed in (1, 2, 3, 4, 5)])
    assert stats["action"]["std"] == pytest.approx(actions.std(0), abs=1e-6)


def test_older_and_newer_layouts_merge(tmp_path: Path) -> None:
    source = select_episodes(LerobotDataset.open(HOME / "v30-video"), [0, 1], tmp_path / "newer")
    merged, left_out = merge_datasets([source, LerobotDataset.open(HOME / "v21-video")], tmp_path / "both")
    assert (len(merged), left_out) == (3, 2)
    truth = expected("v21-video")
    assert np.array_equal(pictures_of(merged.root, 2), truth["pixels"][truth["episode"] == 2])


def test_datasets_that_differ_are_not_merged(tmp_path: Path) -> None:
    first = LerobotDataset.open(write(tmp_path / "first", [1]))
    for other, message in (
        (write(tmp_path / "size", [2], size=32), r"image of shape \(32, 32, 3\) here and image of shape \(16, 16, 3\)"),
        (write(tmp_path / "kind", [2], "video", 64), "is video of shape"),
        (write(tmp_path / "rate", [2], fps=20), "has 20 frames per second"),
    ):
        with pytest.raises(InvalidInput, match=message):
            merge_datasets([first, LerobotDataset.open(other)], tmp_path / "both")
    assert not (tmp_path / "both").exists()


def test_a_twin_keeps_its_label_when_it_is_selected_alone(tmp_path: Path) -> None:
    root = write(tmp_path / "data", [1, 2, 1])
    ids = episode_ids(LerobotDataset.open(root))
    write_labels(root, [Label(ids[0], 0, ()), Label(ids[2], 2, ("lighting",))])
    chosen = select_episodes(LerobotDataset.open(root), [1, 2], tmp_path / "chosen")
    assert check_labels(episode_ids(chosen), read_labels(chosen.root)).labels[1].factors == ("lighting",)


def test_a_selection_of_nothing_is_refused(tmp_path: Path) -> None:
    dataset = LerobotDataset.open(HOME / "v30-image")
    with pytest.raises(InvalidInput, match="no episodes are selected"):
        select_episodes(dataset, [], tmp_path / "chosen")
    with pytest.raises(InvalidInput, match="no episode 7"):
        select_episodes(dataset, [7], tmp_path / "chosen")
    assert list(tmp_path.iterdir()) == []


def _spoil(writer: DatasetWriter) -> None:
    writer.add(episode(1, 3, 64), "pick")
    writer.add({}, "pick")
