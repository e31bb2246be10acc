"""Peg Insertion: take a rectangular peg from the table and push it into a hole in the side of a box."""

from __future__ import annotations

import math

import numpy as np
import sapien

from factored_scaling.sim.maniskill import paint, shapes
from factored_scaling.sim.maniskill.expert import Leg
from factored_scaling.sim.maniskill.layout import (
    BOX_HALF_DEPTH,
    BOX_HALF_WIDTH,
    HOLE_HEIGHT,
    PEG_BEVEL,
    PEG_BEVEL_LENGTH,
    PEG_HALF_LENGTH,
    PEG_HALF_WIDTH,
    PEG_PLAY,
)
from factored_scaling.sim.maniskill.robot import GRIP_CLOSED, GRIP_OPEN
from factored_scaling.sim.maniskill.stage import Stage

GRASP = -0.050  # along the peg, from its middle towards its tail
BEFORE, PAST = 0.030, 0.012  # how far the peg's head waits before the box, and how far past the half it is pushed
HOVER = 0.12
DENSITY = 400  # of the peg
HEAD_COLOUR, TAIL_COLOUR, BOX_COLOUR = (0.92, 0.44, 0.10), (0.16, 0.34, 0.74), (0.86, 0.76, 0.42)
INNER_COLOUR = (0.30, 0.24, 0.12)


class PegInsertion(Stage):
    """Randomised beside the factors: the places and yaws of the peg (manipulated) and of the box (goal).

    Success: the peg's head is in the hole and at least half of the peg's length is inside. The hole leaves 3 mm on
    each side of the peg. The peg's head is bevelled, so that an error of a few millimetres does not end the trial.
    """

    def load_objects(self) -> None:
        """The box, which does not move, and the peg, whose axis points to +y at yaw 0."""
        self._load_box()
        x, y, yaw = self.layout.manipulated
        width, neck = PEG_HALF_WIDTH, PEG_HALF_LENGTH - PEG_BEVEL_LENGTH  # the bevel begins at the neck
        bevel = shapes.frustum(width, width - PEG_BEVEL, neck, PEG_HALF_LENGTH)
        self.peg = paint.build(
            self.scene,
            "peg",
            paint.standing(x, y, yaw, self.layout.table_height + width),
            lambda: [
                paint.box((width, neck / 2, width), HEAD_COLOUR, (0, neck / 2, 0)),
                paint.box((width, PEG_HALF_LENGTH / 2, width), TAIL_COLOUR, (0, -PEG_HALF_LENGTH / 2, 0)),
                paint.mesh(bevel, paint.material(HEAD_COLOUR)),
            ],
            kind="dynamic",
        )
        # One convex body. A box and a bevel would catch on the hole's edge where they meet.
        tail = [(x, -PEG_HALF_LENGTH, z) for x in (-width, width) for z in (-width, width)]
        body = sapien.physx.PhysxCollisionShapeConvexMesh(
            vertices=np.concatenate([bevel.vertices, tail]).astype(np.float32),
            scale=np.ones(3, np.float32),
            material=sapien.physx.get_default_material(),
        )
        body.set_density(DENSITY)
        self.peg._objs[0].find_component_by_type(sapien.physx.PhysxRigidDynamicComponent).attach(body)

    def _load_box(self) -> None:
        """Four blocks around the hole."""
        x, y, yaw = self.layout.goal
        hole = PEG_HALF_WIDTH + PEG_PLAY
        side, above = (BOX_HALF_WIDTH - hole) / 2, (HOLE_HEIGHT - hole) / 2
        blocks = [
            ((side, BOX_HALF_DEPTH, HOLE_HEIGHT), (hole + side, 0, 0)),
            ((side, BOX_HALF_DEPTH, HOLE_HEIGHT), (-hole - side, 0, 0)),
            ((hole, BOX_HALF_DEPTH, above), (0, 0, hole + above)),
            ((hole, BOX_HALF_DEPTH, above), (0, 0, -hole - above)),
        ]
        skin = 0.0003  # a dark lining, so that the hole can be seen
        lining = [
            *(((skin, BOX_HALF_DEPTH, hole), (sign * hole, 0, 0)) for sign in (-1, 1)),
            *(((hole, BOX_HALF_DEPTH, skin), (0, 0, sign * hole)) for sign in (-1, 1)),
        ]
        builder = self.scene.create_actor_builder()
        for half, middle in blocks:
            builder.add_box_collision(sapien.Pose(middle), half)
        self.box = paint.build(
            self.scene,
            "box",
            paint.standing(x, y, yaw, self.layout.table_height + HOLE_HEIGHT),
            lambda: [
                *(paint.box(half, BOX_COLOUR, middle) for half, middle in blocks),
                *(paint.box(half, INNER_COLOUR, middle) for half, middle in lining),
            ],
            builder,
        )

    def succeeded(self) -> bool:
        """Half of the peg is inside, and its head is in the hole rather than beside it."""
        inside = self.box._objs[0].pose.inv() * self.peg._objs[0].pose
        head = np.asarray((inside * sapien.Pose([0, PEG_HALF_LENGTH, 0])).p)
        aligned = abs(head[0]) < PEG_PLAY + 0.002 and abs(head[2]) < PEG_PLAY + 0.002
        return bool(aligned and head[1] + BOX_HALF_DEPTH >= PEG_HALF_LENGTH)

    def plans(self) -> list[list[Leg]]:
        """Over the peg's tail, down, close, up, before the hole, in; the wrist camera before the hand or behind it."""
        return [self._way(turn) for turn in (math.pi / 2, -math.pi / 2)]

    def _way(self, turn: float) -> list[Leg]:
        x, y, yaw = self.layout.manipulated
        low, level = self.layout.table_height + PEG_HALF_WIDTH, self.layout.table_height + HOLE_HEIGHT
        box_x, box_y, box_yaw = self.layout.goal
        at = x - GRASP * math.sin(yaw), y + GRASP * math.cos(yaw)

        def along(depth: float) -> tuple[float, float, float]:
            """The hand when the peg's middle is `depth` inside the box."""
            way = depth - BOX_HALF_DEPTH + GRASP
            return box_x - way * math.sin(box_yaw), box_y + way * math.cos(box_yaw), level

        before = along(-PEG_HALF_LENGTH - BEFORE)
        return [
            Leg(28, (*at, low + HOVER), GRIP_OPEN, yaw + turn),
            Leg(14, (*at, low), GRIP_OPEN, yaw + turn),
            Leg(8, (*at, low), GRIP_CLOSED, yaw + turn),
            Leg(14, (*at, level), GRIP_CLOSED, yaw + turn),
            Leg(30, before, GRIP_CLOSED, box_yaw + turn),
            Leg(6, before, GRIP_CLOSED, box_yaw + turn),
            Leg(36, along(PAST), GRIP_CLOSED, box_yaw + turn),
            Leg(6, along(PAST), GRIP_CLOSED, box_yaw + turn),
        ]
