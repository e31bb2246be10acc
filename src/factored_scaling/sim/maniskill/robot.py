"""The Franka Panda with one control mode: absolute joint positions, the gripper's in metres."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from mani_skill.agents.controllers import PDJointPosControllerConfig, PDJointPosMimicControllerConfig
from mani_skill.agents.robots.panda import Panda

from factored_scaling.sim.maniskill.meshes import bare_urdf, coarse_urdf

GRIP_OPEN, GRIP_CLOSED = 0.04, -0.01  # a finger's target; below zero so that thin things are held with force


class PositionPanda(Panda):  # type: ignore[misc]
    """Actions are eight targets in the units of the state: seven joints in radians, one finger in metres."""

    uid = "fsc_panda"

    @property
    def _controller_configs(self) -> dict[str, Any]:
        arm = PDJointPosControllerConfig(
            self.arm_joint_names,
            lower=None,
            upper=None,
            stiffness=self.arm_stiffness,
            damping=self.arm_damping,
            force_limit=self.arm_force_limit,
            normalize_action=False,
        )
        first, second = self.gripper_joint_names
        gripper = PDJointPosMimicControllerConfig(
            [first, second],
            lower=GRIP_CLOSED,
            upper=GRIP_OPEN,
            stiffness=self.gripper_stiffness,
            damping=self.gripper_damping,
            force_limit=self.gripper_force_limit,
            normalize_action=False,
            mimic={second: {"joint": first}},
        )
        return {"pd_joint_pos": {"arm": arm, "gripper": gripper}}


@cache
def robot_class(render: bool, coarse: bool) -> type[PositionPanda]:
    """The robot with stock or coarse visual meshes, or with none where nothing is rendered."""
    stock = Path(Panda.urdf_path)
    variant = (coarse_urdf if coarse else Path) if render else bare_urdf
    urdf = variant(stock)
    return type("PositionPanda", (PositionPanda,), {"urdf_path": str(urdf)})
