"""What the ManiSkill tests share: whether this machine can run them, and policies to roll out."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache

import pytest
import torch

from factored_scaling.sim import Condition

ASK = "from factored_scaling.sim.maniskill.renderer import find_renderer; import mani_skill; print(find_renderer())"


@cache
def _obstacle() -> str:
    """Why ManiSkill cannot render here; empty when it can. Asked in another process, which may crash."""
    asked = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=False, timeout=240)
    lines = (asked.stderr.strip() or f"exit code {asked.returncode}").splitlines()
    return "" if asked.returncode == 0 else lines[-1]


def needs_maniskill() -> None:
    """Skip the test where ManiSkill cannot render; on CI that is a failure."""
    obstacle = _obstacle()
    if obstacle and os.environ.get("CI") == "true":
        pytest.fail(f"ManiSkill cannot run: {obstacle}")
    if obstacle:
        pytest.skip(f"ManiSkill cannot run: {obstacle}")


class Wanderer:
    """A policy that moves with what it sees, so that one changed pixel changes the motion; it keeps what it saw."""

    def __init__(self, interrupt: Callable[[int], None] | None = None) -> None:
        self.seen: dict[int, list[str]] = {}
        self.batches: list[list[int]] = []
        self.interrupt = interrupt

    def __call__(self, images: torch.Tensor, state: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        self.batches.append([int(row) for row in rows])
        if self.interrupt is not None:
            self.interrupt(len(self.batches))
        actions = []
        for picture, joints, row in zip(images, state, rows.tolist(), strict=True):
            digest = hashlib.sha256(picture.numpy().tobytes() + joints.numpy().tobytes())
            self.seen.setdefault(row, []).append(digest.hexdigest()[:16])
            nudge = torch.tensor([byte / 255 - 0.5 for byte in digest.digest()[:8]])
            nudge[7] = 0.0
            ahead = torch.linspace(0.1, 1, 16)[:, None] * nudge * 0.4
            actions.append(joints + ahead)
        return torch.stack(actions)


def spread(factors: tuple[str, ...], count: int) -> list[Condition]:
    """Conditions that take turns among nominal and the factors."""
    names = (None, *factors)
    return [Condition(names[i % len(names)], i % 10, i) for i in range(count)]
