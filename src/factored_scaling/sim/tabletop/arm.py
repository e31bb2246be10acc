"""The arm: three revolute joints that sweep a plane above the table, a quill that goes up and down, a gripper."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

# Joint positions and actions share one order: shoulder, elbow, wrist (radians), quill tip height (metres), opening.
LIFT, GRIP = 3, 4
JOINTS = 5
UPPER, FORE, HAND = 0.32, 0.32, 0.10
ARM_HEIGHT = 0.30

LOWER_LIMIT = (-2.9, -2.9, -2.9, -0.10, 0.0)
UPPER_LIMIT = (2.9, 2.9, 2.9, 0.28, 1.0)
# The most a joint moves in one control step. The expert stays below it, so its actions are reached exactly.
RATE_LIMIT = (0.40, 0.50, 0.40, 0.10, 0.55)


def inverse(x: float, y: float) -> NDArray[np.float64]:
    """Shoulder, elbow and wrist angles that put the hand at (x, y), pointing forward, elbow to the right."""
    wrist_x, wrist_y = x - HAND, y
    squared = wrist_x * wrist_x + wrist_y * wrist_y
    bend = (squared - UPPER * UPPER - FORE * FORE) / (2 * UPPER * FORE)
    elbow = math.acos(min(1.0, max(-1.0, bend)))
    shoulder = math.atan2(wrist_y, wrist_x) - math.atan2(FORE * math.sin(elbow), UPPER + FORE * math.cos(elbow))
    return np.array([shoulder, elbow, -shoulder - elbow])


def forward(joints: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Elbow, wrist and hand positions in the plane, each batch × 2."""
    first = joints[:, 0]
    second = first + joints[:, 1]
    third = second + joints[:, 2]
    elbow = UPPER * _direction(first)
    wrist = elbow + FORE * _direction(second)
    return elbow, wrist, wrist + HAND * _direction(third)


def _direction(angle: torch.Tensor) -> torch.Tensor:
    """(cos, sin) from sums and products only.

    torch.sin may round differently in the last elements of a batch than in the first ones, which would make an
    environment's path depend on its neighbours.
    """
    turns = torch.floor(angle / (2 * math.pi) + 0.5)
    reduced = angle - turns * (2 * math.pi)
    squared = reduced * reduced
    sine = cosine = torch.ones_like(angle)
    # Horner's form of both Taylor series; nine terms leave less than a float's rounding over half a turn.
    for term in range(9, 0, -1):
        sine = 1 - sine * squared / ((2 * term) * (2 * term + 1))
        cosine = 1 - cosine * squared / ((2 * term - 1) * (2 * term))
    return torch.stack([cosine, sine * reduced], dim=1)
