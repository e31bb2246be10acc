"""Frames on disk: any selection is what the whole would give, in memory or mapped from a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from factored_scaling.data import shelf as shelf_module
from factored_scaling.data.frames import FrameTable
from factored_scaling.data.shelf import FrameShelf
from factored_scaling.errors import InvalidInput
from factored_scaling.policies.windows import DeviceFrames


def made(first: int, count: int, size: int = 6) -> FrameTable:
    """Episodes of different lengths, full of noise."""
    random = np.random.default_rng(first)
    starts = np.concatenate([[0], np.cumsum(3 + np.arange(count))]).astype(np.int64)
    frames = int(starts[-1])
    return FrameTable(
        random.integers(0, 256, (frames, 2, 3, size, size), dtype=np.uint8),
        random.standard_normal((frames, 4)).astype(np.float32),
        random.standard_normal((frames, 4)).astype(np.float32),
        starts,
        tuple(f"lighting/{first + index}" for index in range(count)),
        ("lighting",) * count,
    )


def same(one: FrameTable, other: FrameTable) -> bool:
    arrays = all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in ("images", "state", "action", "starts")
    )
    return arrays and (one.ids, one.factors) == (other.ids, other.factors)


def test_a_saved_table_is_read_back(tmp_path: Path) -> None:
    table = made(0, 3)
    table.save(tmp_path / "a.safetensors")
    assert same(FrameTable.load(tmp_path / "a.safetensors"), table)
    outline = table.outline(table.ids[::-1])
    assert same(outline, FrameTable(outline.images, *_rest(table.select(table.ids[::-1]))))
    assert not outline.images.any()
    whole = (tmp_path / "a.safetensors").read_bytes()
    (tmp_path / "a.safetensors").write_bytes(whole[:-20])
    with pytest.raises(InvalidInput, match=r"a\.safetensors: is not a whole frame table"):
        FrameTable.load(tmp_path / "a.safetensors")


def _rest(table: FrameTable) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[str, ...], tuple[str | None, ...]]:
    return table.state, table.action, table.starts, table.ids, table.factors


@pytest.mark.parametrize("most", [1 << 30, 0])
def test_a_selection_is_that_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(shelf_module, "IN_MEMORY", most)
    tables = [made(0, 4), made(10, 3)]
    shelf = FrameShelf(tmp_path)
    for index, table in enumerate(tables):
        shelf.add(table, str(index))
    ids = ["lighting/12", "lighting/3", "lighting/10", "lighting/0"]
    chosen = shelf.select(ids)
    assert isinstance(chosen.images, np.memmap) == (most == 0)
    assert same(chosen, FrameTable.concatenate(tables).select(ids))
    assert np.array_equal(shelf.first_images(ids), chosen.images[chosen.starts[:-1]])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.safetensors", "1.safetensors"]
    on_device = DeviceFrames.of(chosen, "cpu").images
    assert on_device.data_ptr() == chosen.images.ctypes.data  # no copy, of a map neither
    assert torch.equal(on_device, torch.from_numpy(np.array(chosen.images)))


def test_tables_of_others_are_found_and_mistakes_told(tmp_path: Path) -> None:
    ours, theirs = FrameShelf(tmp_path), FrameShelf(tmp_path)
    assert ours.missing(["lighting/0", "lighting/9"]) == ["lighting/0", "lighting/9"]
    theirs.add(made(0, 2), "a")
    assert ours.missing(["lighting/0", "lighting/9"]) == ["lighting/9"]
    with pytest.raises(InvalidInput, match="no frames for episode 'lighting/9'"):
        ours.select(["lighting/0", "lighting/9"])
    with pytest.raises(InvalidInput, match="no episodes named"):
        ours.select([])
    theirs.add(made(20, 1, size=8), "b")
    with pytest.raises(InvalidInput, match="different shapes"):
        ours.select(["lighting/0", "lighting/20"])
    path = tmp_path / "a.safetensors"
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(InvalidInput, match="cut short since it was opened"):
        ours.select(["lighting/1"])


def test_one_table_is_kept_and_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_module, "IN_MEMORY", 0)
    shelf, table = FrameShelf(tmp_path), made(0, 3)
    shelf.add(table, "a")
    first = shelf.holding(table.ids[:2])
    assert first.ids == table.ids[:2]
    assert shelf.holding(table.ids[:1]) is first
    whole = shelf.holding([*table.ids[1:], *table.ids[1:]])  # named twice, held once
    assert same(whole, table)


def test_an_episode_that_is_missing_is_named_once(tmp_path: Path) -> None:
    assert FrameShelf(tmp_path).missing(["lighting/1", "lighting/0", "lighting/1"]) == ["lighting/1", "lighting/0"]
