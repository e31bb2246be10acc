"""Settings of the tasks: shapes, ranges, tolerances and timing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A range of places on the table."""

    centre: tuple[float, float]
    half: tuple[float, float]

    def at(self, unit: tuple[float, float]) -> tuple[float, float]:
        """The place at `unit`, which goes from -1 to 1 in both directions; beyond that it lies outside."""
        return self.centre[0] + self.half[0] * unit[0], self.centre[1] + self.half[1] * unit[1]


@dataclass(frozen=True, slots=True)
class Rules:
    """One task."""

    name: str
    factors: tuple[str, ...]
    cameras: int
    max_steps: int
    # Half extents of the object to pick; a ball if `ball`, else an upright box.
    object_size: tuple[float, float, float]
    object_colour: tuple[float, float, float]
    ball: bool
    # Where the object and its destination start.
    object_range: Rectangle
    target_range: Rectangle
    # The gripper takes the object when it closes this near to the object's centre, sideways and in height.
    grasp_radius: float
    grasp_height: float
    # Success: the object was let go this near to the destination's centre …
    target_radius: float
    # … from at most this far above where it comes to rest; from higher up it topples and is lost.
    drop_height: float
    # Where the object's centre rests on the destination, above its centre's height on the bare table.
    target_rise: float
    # The object is pushed instead: it keeps this far from the hand, sideways, while the fingers are low.
    push_gap: float = 0.0


VISUAL = ("camera_pose", "distractor", "table_texture", "lighting", "background")
SPATIAL = ("table_height", "object_pose", "robot_pose")
# Neighbours share a curve in the default grouping, so all tasks list factors that belong together side by side.

PICK_PLACE = Rules(
    name="tabletop/pick-place",
    factors=VISUAL,
    cameras=1,
    max_steps=56,
    object_size=(0.042, 0.042, 0.042),
    object_colour=(0.86, 0.12, 0.10),
    ball=True,
    object_range=Rectangle((0.46, -0.13), (0.09, 0.10)),
    target_range=Rectangle((0.47, 0.15), (0.06, 0.05)),
    grasp_radius=0.032,
    grasp_height=0.040,
    target_radius=0.050,
    drop_height=0.12,
    target_rise=0.008,
)
INSERT = Rules(
    name="tabletop/insert",
    factors=(*VISUAL, *SPATIAL),
    cameras=2,
    max_steps=56,
    object_size=(0.024, 0.024, 0.055),
    object_colour=(0.12, 0.30, 0.86),
    ball=False,
    object_range=Rectangle((0.46, -0.13), (0.08, 0.09)),
    target_range=Rectangle((0.47, 0.15), (0.05, 0.05)),
    grasp_radius=0.032,
    grasp_height=0.035,
    target_radius=0.030,
    drop_height=0.07,
    target_rise=0.010,
)
PUSH = Rules(
    name="tabletop/push",
    factors=("camera_pose", "table_texture", "lighting", "object_pose", "robot_pose"),
    cameras=1,
    max_steps=56,
    object_size=(0.048, 0.048, 0.024),
    object_colour=(0.10, 0.62, 0.22),
    ball=True,
    object_range=Rectangle((0.46, -0.08), (0.08, 0.06)),
    target_range=Rectangle((0.46, 0.15), (0.06, 0.04)),
    grasp_radius=0.0,
    grasp_height=0.0,
    target_radius=0.032,
    drop_height=0.0,
    target_rise=0.0,
    push_gap=0.060,
)
TASKS = {rules.name: rules for rules in (PICK_PLACE, INSERT, PUSH)}
