"""Pull Cube Tool: take an L-shaped tool and pull a cube from beyond the arm's reach."""

from __future__ import annotations

import math

import sapien

from factored_scaling.sim.maniskill import paint
from factored_scaling.sim.maniskill.expert import Leg
from factored_scaling.sim.maniskill.layout import (
    CUBE_HALF,
    HANDLE_HALF,
    HOOK_LENGTH,
    TOOL_HALF_HEIGHT,
    TOOL_HALF_WIDTH,
)
from factored_scaling.sim.maniskill.robot import GRIP_CLOSED, GRIP_OPEN
from factored_scaling.sim.maniskill.rules import BASE_X
from factored_scaling.sim.maniskill.stage import Stage

NEAR = 0.45  # success: the cube's distance from the robot's base
AIM = 0.42  # where the expert brings it
GRASP = -0.03  # along the handle, from its middle
HOVER, CARRY = 0.12, 0.09
CUBE_COLOUR, TOOL_COLOUR = (0.16, 0.62, 0.24), (0.80, 0.16, 0.14)


class PullCubeTool(Stage):
    """Randomised beside the factors: the place of the tool (manipulated), the place and yaw of the cube (goal).

    Success: the cube's middle is within 45 cm of the robot's base, measured on the table.
    """

    def load_objects(self) -> None:
        """The tool and the cube."""
        table = self.layout.table_height
        x, y, yaw = self.layout.manipulated
        hook = (TOOL_HALF_WIDTH, HOOK_LENGTH / 2, TOOL_HALF_HEIGHT)
        middle = (HANDLE_HALF - TOOL_HALF_WIDTH, HOOK_LENGTH / 2 + TOOL_HALF_WIDTH, 0.0)
        handle = (HANDLE_HALF, TOOL_HALF_WIDTH, TOOL_HALF_HEIGHT)
        builder = self.scene.create_actor_builder()
        builder.add_box_collision(sapien.Pose(), handle, density=400)
        builder.add_box_collision(sapien.Pose(middle), hook, density=400)
        self.tool = paint.build(
            self.scene,
            "tool",
            paint.standing(x, y, yaw, table + TOOL_HALF_HEIGHT),
            lambda: [paint.box(handle, TOOL_COLOUR), paint.box(hook, TOOL_COLOUR, middle)],
            builder,
            "dynamic",
        )
        x, y, yaw = self.layout.goal
        cube = (CUBE_HALF,) * 3
        builder = self.scene.create_actor_builder()
        builder.add_box_collision(sapien.Pose(), cube, density=400)
        self.cube = paint.build(
            self.scene,
            "cube",
            paint.standing(x, y, yaw, table + CUBE_HALF),
            lambda: [paint.box(cube, CUBE_COLOUR)],
            builder,
            "dynamic",
        )

    def succeeded(self) -> bool:
        """The cube is near enough to the base."""
        x, y, _ = self.cube._objs[0].pose.p
        return math.hypot(x - BASE_X, y) <= NEAR

    def plans(self) -> list[list[Leg]]:
        """Over the handle, down, close, lift, over the far side of the cube, down, pull."""
        table = self.layout.table_height
        tool_x, tool_y, _ = self.layout.manipulated
        cube_x, cube_y, _ = self.layout.goal
        low = table + TOOL_HALF_HEIGHT
        grasp_x = tool_x + GRASP
        ahead = HANDLE_HALF - 2 * TOOL_HALF_WIDTH - GRASP  # from the grasp to the hook's inner side
        beside = cube_y - HOOK_LENGTH / 2 - TOOL_HALF_WIDTH  # so that the hook's middle is behind the cube
        behind_x = cube_x + 1.5 * CUBE_HALF + 0.015 - ahead
        end_x = BASE_X + math.sqrt(AIM**2 - cube_y**2) + CUBE_HALF - ahead
        return [
            [
                Leg(26, (grasp_x, tool_y, low + HOVER), GRIP_OPEN),
                Leg(14, (grasp_x, tool_y, low), GRIP_OPEN),
                Leg(7, (grasp_x, tool_y, low), GRIP_CLOSED),
                Leg(12, (grasp_x, tool_y, low + CARRY), GRIP_CLOSED),
                Leg(28, (behind_x, beside, low + CARRY), GRIP_CLOSED),
                Leg(14, (behind_x, beside, low + 0.004), GRIP_CLOSED),
                Leg(40, (end_x, beside, low + 0.004), GRIP_CLOSED),
            ]
        ]
