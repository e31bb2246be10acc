"""A policy's configuration as its checkpoint keeps it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace


class PreTrainedConfig:
    """Reads config.json."""

    @staticmethod
    def from_pretrained(path: str) -> SimpleNamespace:
        config = json.loads((Path(path) / "config.json").read_text())
        for features in ("input_features", "output_features"):
            config[features] = {name: SimpleNamespace(shape=tuple(shape)) for name, shape in config[features].items()}
        return SimpleNamespace(**config)
