from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from factored_scaling.errors import InvalidInput, UnknownName
from factored_scaling.policies.config import Configuration, DiffusionConfig, RemixConfig

CONFIGS = (DiffusionConfig, RemixConfig)


@pytest.mark.parametrize("kind", CONFIGS)
def test_every_preset_is_valid_and_survives_plain_data(kind: type[Configuration]) -> None:
    for name in kind.PRESETS:
        config = kind.preset(name)
        assert kind.from_mapping({"preset": "paper", **config.to_mapping()}) == config


def test_the_documentation_lists_every_setting_with_its_presets() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "simulator.md").read_text(encoding="utf-8")
    paper, small = (DiffusionConfig.preset(name).to_mapping() for name in ("paper", "small"))
    for key, value in paper.items():
        other = json.dumps(small[key]) if small[key] != value else ""
        assert f"| `{key}` | {json.dumps(value)} | {other} |" in page


def test_the_paper_preset_is_the_papers() -> None:
    config = DiffusionConfig.preset("paper")
    assert (config.encoder, config.widths, config.time_embedding) == ("resnet18", (128, 256, 512), 128)
    assert (config.horizon, config.execute, config.diffusion_steps) == (16, 8, 100)
    assert (config.updates, config.batch) == (50_000, 64)


def test_an_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean learning_rate"):
        DiffusionConfig.from_mapping({"learning_rat": 0.1})


def test_an_unknown_preset_lists_the_known() -> None:
    with pytest.raises(UnknownName, match=r"unknown policy preset 'huge'.*small"):
        DiffusionConfig.from_mapping({"preset": "huge"})


def test_an_unknown_choice_names_the_setting() -> None:
    with pytest.raises(UnknownName, match=r"encoder: unknown value 'resnet'; did you mean resnet18"):
        DiffusionConfig.from_mapping({"encoder": "resnet"})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"updates": "many"}, "updates: must be int"),
        ({"updates": True}, "updates: must be int"),
        ({"updates": -1}, "updates: must not be negative"),
        ({"updates": 0}, "updates: must be at least 1, is 0"),
        ({"batch": 0}, "batch: must be at least 1, is 0"),
        ({"noise_samples": 0}, "noise_samples: must be at least 1, is 0"),
        ({"widths": 32}, "widths: must be tuple"),
        ({"widths": [20, 40]}, r"widths: must be multiples of 8, is \[20, 40\]"),
        ({"widths": []}, "widths: must be multiples of 8"),
        ({"kernel": 4}, "kernel: must be odd, is 4"),
        ({"blocks": 0}, "blocks: must be at least 1"),
        ({"encoder_width": 0}, "encoder_width: must be at least 1"),
        ({"time_embedding": 1}, "time_embedding: must be at least 2"),
        ({"learning_rate": float("nan")}, "learning_rate: must be a finite number, is nan"),
        ({"widths": [8, 16, 32], "horizon": 10}, "horizon: must be a multiple of 4"),
        ({"execute": 17}, "execute: must lie between"),
        ({"inference_steps": 101}, "inference_steps: must lie between"),
    ],
)
def test_a_wrong_value_names_its_setting(data: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        DiffusionConfig.from_mapping(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"validate_every": 0}, "validate_every: must be at least 1, is 0"),
        ({"bins": 0}, "bins: must be at least 1, is 0"),
        ({"dropout": 1.0}, "dropout: must lie below 1"),
        ({"hidden": [64, 0]}, "hidden: must be layers of at least 1"),
    ],
)
def test_a_wrong_value_of_remix_names_its_setting(data: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        RemixConfig.from_mapping(data)


def test_the_room_opens_without_torch() -> None:
    code = "import sys, factored_scaling.policies, factored_scaling.policies.config; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
