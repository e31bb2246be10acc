"""Policies to serve: a tiny one of ours, and one that only counts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from factored_scaling.backends.simulation import Lab, policy_config
from factored_scaling.errors import InvalidInput
from factored_scaling.policies.diffusion import train_diffusion

TASK = "tabletop/pick-place"
POLICY: dict[str, Any] = {"preset": "small", "updates": 4, "image_size": 32, "batch": 8}


class Counting:
    """Answers with the number of observations of this connection; refuses and breaks when told to."""

    metadata: Mapping[str, Any] = {"kind": "counting"}

    def session(self) -> CountingSession:
        return CountingSession()


class CountingSession:
    """One connection."""

    def __init__(self) -> None:
        self._count = 0

    def infer(self, observation: Mapping[str, Any]) -> Mapping[str, Any]:
        if "refuse" in observation:
            raise InvalidInput(f"no such thing: {observation['refuse']}", where="observation.refuse")
        if "break" in observation:
            raise ZeroDivisionError(f"inside the policy: {observation['break']}")
        self._count += 1
        return {"actions": np.full((4, 2), self._count, dtype=np.float32)}


def trained(folder: Path) -> tuple[Path, Lab]:
    """A policy of a few updates, and the lab it was trained in."""
    lab = Lab(TASK, folder, image_size=POLICY["image_size"])

    def silent(done: int, total: int, note: str = "") -> None: ...

    table = lab.frames(["lighting/0", "camera_pose/0"], silent)
    train_diffusion(table, policy_config(POLICY), 0, folder / "policy", silent)
    return folder / "policy", lab
