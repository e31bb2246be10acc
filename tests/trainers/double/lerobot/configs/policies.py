"""A policy's configuration as its checkpoint keeps it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace


class PreTrainedConfig:
    """Reads config.json."""

    @staticmethod
    def from_pretrained(path: str) -> SimpleNamespace:
        return SimpleNamespace(**json.loads((Path(path) / "config.json").read_text()))
