from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from factored_scaling.errors import CheckpointError
from factored_scaling.policies import checkpoint
from factored_scaling.policies.checkpoint import ResumePoints

TENSORS = {"a.weight": torch.arange(12.0).reshape(3, 4), "b": torch.tensor(3)}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "new" / "folder", "policy", TENSORS, {"seed": 3})
    tensors, description = checkpoint.read(tmp_path / "new" / "folder", "policy")
    assert description["seed"] == 3
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[key], TENSORS[key]) for key in TENSORS)
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == [
        "policy.json",
        "policy.safetensors",
    ]


def test_other_memory_formats_are_kept_by_value(tmp_path: Path) -> None:
    weight = torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)
    checkpoint.write(tmp_path, "policy", {"weight": weight}, {})
    assert torch.equal(checkpoint.read(tmp_path, "policy")[0]["weight"], weight)


def damage_cut(folder: Path) -> None:
    path = folder / "policy.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def damage_flip(folder: Path) -> None:
    path = folder / "policy.safetensors"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


def damage_missing(folder: Path) -> None:
    (folder / "policy.safetensors").unlink()


def damage_description(folder: Path) -> None:
    path = folder / "policy.json"
    path.write_text(path.read_text().replace('"seed": 3', '"seed": 4'))


def damage_cut_description(folder: Path) -> None:
    path = folder / "policy.json"
    path.write_text(path.read_text()[:-10])


def damage_mixed(folder: Path) -> None:
    other = folder / "other"
    checkpoint.write(other, "policy", {"a.weight": torch.zeros(3, 4)}, {"seed": 3})
    (other / "policy.safetensors").replace(folder / "policy.safetensors")


@pytest.mark.parametrize(
    "damage",
    [damage_cut, damage_flip, damage_missing, damage_description, damage_cut_description, damage_mixed],
)
def test_damage_is_noticed_and_the_error_says_what_to_do(tmp_path: Path, damage: object) -> None:
    checkpoint.write(tmp_path, "policy", TENSORS, {"seed": 3})
    assert checkpoint.is_intact(tmp_path, "policy")
    damage(tmp_path)  # type: ignore[operator]
    assert not checkpoint.is_intact(tmp_path, "policy")
    with pytest.raises(CheckpointError, match=r"policy\.(json|safetensors): the file .*; train again"):
        checkpoint.read(tmp_path, "policy", hint="train again")


def test_a_newer_format_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "VERSION", 2)
    checkpoint.write(tmp_path, "policy", TENSORS, {})
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="version 2"):
        checkpoint.read(tmp_path, "policy")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.write(tmp_path, "policy", TENSORS, {"seed": 3})

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        checkpoint.write(tmp_path, "policy", {"a.weight": torch.zeros(1)}, {"seed": 4})
    monkeypatch.undo()
    assert checkpoint.read(tmp_path, "policy")[1]["seed"] == 3


def test_two_states_are_kept_and_a_damaged_one_is_passed_over(tmp_path: Path) -> None:
    points = ResumePoints(tmp_path)
    assert points.newest() is None
    for step in (10, 20, 30):
        points.save(step, {"x": torch.tensor(step)}, {"identity": "i"})
    assert points.steps() == [20, 30]
    path = tmp_path / "resume-000000030.safetensors"
    path.write_bytes(path.read_bytes()[:20])
    found = points.newest()
    assert found is not None
    assert (int(found[0]["x"]), found[1]["step"]) == (20, 20)
    points.clear()
    assert list(tmp_path.iterdir()) == []


def test_what_kills_left_half_written_does_not_pile_up(tmp_path: Path) -> None:
    points = ResumePoints(tmp_path)
    points.save(20, TENSORS, {})
    for name in ("resume-000000040.safetensors", "resume-000000040.safetensors.77.tmp", "policy.safetensors.78.tmp"):
        (tmp_path / name).write_bytes(b"half")
    points.save(60, TENSORS, {})
    assert sorted(path.stem for path in tmp_path.glob("resume-*")) == sorted(
        2 * [f"resume-0000000{n}" for n in (20, 60)]
    )
    points.clear()
    assert not list(tmp_path.iterdir())


def test_the_digest_covers_every_part() -> None:
    one = checkpoint.digest_of({"a": 1}, b"x", torch.ones(2))
    assert one == checkpoint.digest_of({"a": 1}, b"x", torch.ones(2))
    others = [({"a": 2}, b"x", torch.ones(2)), ({"a": 1}, b"y", torch.ones(2)), ({"a": 1}, b"x", torch.zeros(2))]
    assert len({one, *(checkpoint.digest_of(*parts) for parts in others)}) == 4


def test_the_description_is_plain_json(tmp_path: Path) -> None:
    checkpoint.write(tmp_path, "policy", TENSORS, {"episodes": ["a", "b"]})
    assert json.loads((tmp_path / "policy.json").read_text())["episodes"] == ["a", "b"]
