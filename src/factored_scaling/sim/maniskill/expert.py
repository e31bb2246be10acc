"""The scripted expert: straight lines of the hand with smooth timing, made joint targets by inverse kinematics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import sapien
from numpy.typing import NDArray

from factored_scaling.sim.maniskill.rules import BASE_X

HAND = "panda_hand_tcp"  # the point between the fingertips
# Joint limits, slightly inside the robot's.
LOWEST = np.array([-2.89, -1.76, -2.89, -3.06, -2.89, -0.01, -2.89])
HIGHEST = np.array([2.89, 1.76, 2.89, -0.07, 2.89, 3.74, 2.89])
FASTEST = 0.35  # radians in one control step; a straight line near a singularity would ask for more

Array = NDArray[np.float64]
BASE = np.array([BASE_X, 0.0, 0.0])


@dataclass(frozen=True, slots=True)
class Leg:
    """A part of a path: to a hand pose in so many control steps, with the fingers at `grip` metres.

    The hand points down; `yaw` turns it about the vertical, `tilt` leans the fingers away from the robot.
    """

    steps: int
    position: tuple[float, float, float]
    grip: float
    yaw: float = 0.0
    tilt: float = 0.0


class Kinematics(Protocol):
    """The part of SAPIEN's Pinocchio model that is used here."""

    def compute_forward_kinematics(self, qpos: Array) -> None: ...
    def get_link_pose(self, link: int) -> Any: ...
    def compute_inverse_kinematics(
        self, link: int, pose: Any, qpos: Array, mask: NDArray[np.int32], **options: Any
    ) -> Any: ...


class Arm:
    """Forward and inverse kinematics of the robot in the world frame."""

    def __init__(self, articulation: Any) -> None:
        self.model: Kinematics = articulation.create_pinocchio_model()
        names = [link.name for link in articulation.links]
        self.link = next(index for index, name in enumerate(names) if name.endswith(HAND))

    def pose(self, joints: Array) -> tuple[Array, Array]:
        """Pose of the hand: position and quaternion (w first)."""
        self.model.compute_forward_kinematics(np.concatenate([joints, [0.0, 0.0]]))
        pose = self.model.get_link_pose(self.link)
        return np.asarray(pose.p, np.float64) + BASE, np.asarray(pose.q, np.float64)

    def reach(self, position: Array, quaternion: Array, near: Array) -> Array | None:
        """Joints that reach the hand pose, searched from `near`; None if it is out of reach."""
        pose = sapien.Pose(position - BASE, quaternion)
        start = np.concatenate([near, [0.0, 0.0]])
        mask = np.array([1] * 7 + [0, 0], np.int32)
        found, success, _ = self.model.compute_inverse_kinematics(self.link, pose, start, mask, max_iterations=200)
        joints = np.asarray(found, np.float64)[:7]
        inside = bool(((joints > LOWEST) & (joints < HIGHEST)).all())
        return joints if success and inside and np.abs(joints - near).max() < FASTEST else None


def follow(arm: Arm, joints: Sequence[float], legs: Sequence[Leg]) -> NDArray[np.float32] | None:
    """Joint targets, steps × 8, that lead from `joints` along the legs; None when a part is out of reach."""
    now = np.asarray(joints, np.float64)
    position, quaternion = arm.pose(now)
    path: list[Array] = []
    for leg in legs:
        to, turned = np.asarray(leg.position, np.float64), _pointing_down(leg.yaw, leg.tilt)
        turned = turned if turned @ quaternion >= 0 else -turned
        for step in range(leg.steps):
            share = _ease((step + 1) / leg.steps)
            found = arm.reach(position + share * (to - position), _between(quaternion, turned, share), now)
            if found is None:
                return None
            now = found
            path.append(np.append(now, leg.grip))
        position, quaternion = to, turned
    return np.array(path, dtype=np.float32)


def _pointing_down(yaw: float, tilt: float) -> Array:
    """The quaternion of a hand that points down, turned by `yaw`, leaning by `tilt`."""
    half, lean = yaw / 2, -tilt / 2
    turn = np.array([np.cos(half), 0, 0, np.sin(half)])
    sway = np.array([np.cos(lean), 0, np.sin(lean), 0])
    return _product(_product(turn, sway), np.array([0.0, 1.0, 0.0, 0.0]))


def _product(a: Array, b: Array) -> Array:
    """Hamilton's product."""
    w = a[0] * b[0] - a[1:] @ b[1:]
    return np.concatenate([[w], a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:])])


def _between(a: Array, b: Array, share: float) -> Array:
    """Along the great circle from one quaternion to another."""
    angle = np.arccos(np.clip(a @ b, -1, 1))
    if angle < 1e-6:
        return b
    return np.asarray((np.sin((1 - share) * angle) * a + np.sin(share * angle) * b) / np.sin(angle))


def _ease(share: float) -> float:
    """Smooth timing that starts and ends at rest."""
    return share * share * share * (10 - 15 * share + 6 * share * share)
