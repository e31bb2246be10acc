"""Pick Place: take a round tomato and put it on a plate."""

from __future__ import annotations

import math

import numpy as np
import sapien

from factored_scaling.sim.maniskill import paint, shapes
from factored_scaling.sim.maniskill.expert import Leg
from factored_scaling.sim.maniskill.layout import PLATE_RADIUS, PLATE_RISE, PLATE_THICKNESS, TOMATO_RADIUS
from factored_scaling.sim.maniskill.robot import GRIP_CLOSED, GRIP_OPEN
from factored_scaling.sim.maniskill.rules import BASE_X
from factored_scaling.sim.maniskill.stage import Stage

NEAR = 0.05  # success: the tomato's distance from the plate's middle
LEVEL, SLOW = 0.010, 0.05  # how exactly it must lie at its height (m), and how still (m/s)
HOVER = 0.13
# A ball would roll forever; this damping is that of a soft tomato.
ANGULAR_DAMPING, LINEAR_DAMPING = 20.0, 0.5
TOMATO_COLOUR, STEM_COLOUR, PLATE_COLOUR = (0.86, 0.10, 0.07), (0.16, 0.42, 0.12), (0.72, 0.74, 0.78)
RIM_PIECES = 16
# The fingers lean towards the robot near it and away from it far off, where pointing straight down is out of reach.
LEANS, MIDDLE = (0.0, 0.9, 1.6, 2.2), 0.50


class PickPlace(Stage):
    """Randomised beside the factors: the places of the tomato (manipulated) and of the plate (goal).

    Success: the tomato lies on the plate, let go and at rest, its middle within 5 cm of the plate's.
    """

    def load_objects(self) -> None:
        """The plate, which does not move, and the tomato."""
        self._load_plate()
        x, y, _ = self.layout.manipulated
        builder = self.scene.create_actor_builder()
        builder.add_sphere_collision(radius=TOMATO_RADIUS, density=600)
        self.tomato = paint.build(
            self.scene,
            "tomato",
            sapien.Pose([x, y, self.layout.table_height + TOMATO_RADIUS]),
            lambda: [
                paint.mesh(shapes.ellipsoid((TOMATO_RADIUS,) * 3), paint.material(TOMATO_COLOUR, 0.35, specular=0.5)),
                paint.box((0.012, 0.003, 0.0025), STEM_COLOUR, (0, 0, TOMATO_RADIUS)),
                paint.box((0.003, 0.012, 0.0025), STEM_COLOUR, (0, 0, TOMATO_RADIUS)),
            ],
            builder,
            "dynamic",
        )
        self._body = self.tomato._objs[0].find_component_by_type(sapien.physx.PhysxRigidDynamicComponent)
        self._body.set_angular_damping(ANGULAR_DAMPING)
        self._body.set_linear_damping(LINEAR_DAMPING)

    def _load_plate(self) -> None:
        x, y, _ = self.layout.goal
        builder = self.scene.create_actor_builder()
        half = PLATE_THICKNESS / 2
        builder.add_cylinder_collision(sapien.Pose([0, 0, half], paint.UPRIGHT), 0.8 * PLATE_RADIUS, half)
        radius, rim = 0.9 * PLATE_RADIUS, (0.1 * PLATE_RADIUS, math.pi * PLATE_RADIUS / RIM_PIECES, PLATE_RISE / 2)
        for angle in np.arange(RIM_PIECES) * 2 * math.pi / RIM_PIECES:
            middle = radius * math.cos(angle), radius * math.sin(angle)
            builder.add_box_collision(paint.standing(*middle, angle, PLATE_RISE / 2), rim)
        self.plate = paint.build(
            self.scene,
            "plate",
            sapien.Pose([x, y, self.layout.table_height]),
            lambda: [
                paint.mesh(
                    shapes.plate(PLATE_RADIUS, PLATE_RISE, PLATE_THICKNESS),
                    paint.material(PLATE_COLOUR, roughness=0.3, metallic=0.3, specular=0.6),
                )
            ],
            builder,
        )

    def succeeded(self) -> bool:
        """The tomato lies still on the plate, near its middle, and the fingers are off it."""
        x, y, z = self._body.entity.pose.p
        level = self.layout.table_height + PLATE_THICKNESS + TOMATO_RADIUS
        near = math.dist((x, y), self.layout.goal[:2]) <= NEAR
        free = self.proprioception()[7] > TOMATO_RADIUS + 0.004
        return bool(near and free and abs(z - level) < LEVEL and np.linalg.norm(self._body.linear_velocity) < SLOW)

    def plans(self) -> list[list[Leg]]:
        """Over the tomato, down, close, up, over the plate, down, open, up; leaning where that reaches further."""
        return [self._way(lean) for lean in LEANS]

    def _way(self, lean: float) -> list[Leg]:
        table = self.layout.table_height
        low = table + TOMATO_RADIUS
        drop = table + PLATE_THICKNESS + TOMATO_RADIUS + 0.004
        at, to = self.layout.manipulated[:2], self.layout.goal[:2]

        def leg(steps: int, place: tuple[float, ...], height: float, grip: float) -> Leg:
            away = math.hypot(place[0] - BASE_X, place[1])
            turn, tilt = math.atan2(place[1], place[0] - BASE_X), lean * (away - MIDDLE)
            return Leg(steps, (place[0], place[1], height), grip, turn, tilt)

        return [
            leg(28, at, low + HOVER, GRIP_OPEN),
            leg(16, at, low, GRIP_OPEN),
            leg(7, at, low, GRIP_CLOSED),
            leg(14, at, low + HOVER, GRIP_CLOSED),
            leg(30, to, drop + HOVER, GRIP_CLOSED),
            leg(16, to, drop, GRIP_CLOSED),
            leg(6, to, drop, GRIP_OPEN),
            leg(14, to, drop + HOVER, GRIP_OPEN),
        ]
