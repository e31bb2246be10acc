"""Sizes of the tasks' objects, and the parts of the table that distractors must leave free."""

from __future__ import annotations

import math

from factored_scaling.sim.maniskill.rules import Rules

# Initial joints: the hand points down from 31 cm above the table, near the robot, where it hides little.
HOME = (0.0, -0.6, 0.0, -2.7, 0.0, 2.1, math.pi / 4)

# Pick and place.
TOMATO_RADIUS = 0.030
PLATE_RADIUS, PLATE_RISE, PLATE_THICKNESS = 0.085, 0.010, 0.006
# Peg insertion: half extents of the peg, its play in the hole and the bevel of its head; the box with the hole in its
# middle.
PEG_HALF_LENGTH, PEG_HALF_WIDTH, PEG_PLAY = 0.095, 0.018, 0.003
PEG_BEVEL, PEG_BEVEL_LENGTH = 0.006, 0.010
BOX_HALF_WIDTH, BOX_HALF_DEPTH, HOLE_HEIGHT = 0.070, 0.060, 0.060
# Pull cube: the cube; the tool's handle along x with a hook at its far end that points to +y.
CUBE_HALF = 0.020
HANDLE_HALF, TOOL_HALF_WIDTH, TOOL_HALF_HEIGHT, HOOK_LENGTH = 0.110, 0.012, 0.012, 0.085

# A round-ended stretch of the table: from, to, radius.
Stretch = tuple[tuple[float, float], tuple[float, float], float]
SPARE = 0.030


def kept_clear(rules: Rules, manipulated: tuple[float, ...], goal: tuple[float, ...]) -> list[Stretch]:
    """Stretches of the table that the task uses."""
    thing, place = (manipulated[0], manipulated[1]), (goal[0], goal[1])
    if rules.stage == "pick":
        return [(thing, thing, TOMATO_RADIUS + 0.02), (place, place, PLATE_RADIUS)]
    if rules.stage == "peg":
        return [
            _along(thing, manipulated[2] + math.pi / 2, PEG_HALF_LENGTH, 0.05),
            _along(place, goal[2] + math.pi / 2, BOX_HALF_DEPTH + 0.05, BOX_HALF_WIDTH),
        ]
    return [
        _along(thing, manipulated[2], HANDLE_HALF, 0.05),
        ((thing[0] + HANDLE_HALF, thing[1]), (thing[0] + HANDLE_HALF, thing[1] + HOOK_LENGTH), 0.04),
        (place, (-0.30, place[1]), 0.06),
    ]


def clear_of(taken: list[Stretch], x: float, y: float, room: float) -> bool:
    """Whether a disc of radius `room` at (x, y) touches none of the stretches, with a little to spare."""
    return all(_distance((x, y), start, end) > radius + room + SPARE for start, end, radius in taken)


def _along(middle: tuple[float, float], yaw: float, half: float, radius: float) -> Stretch:
    dx, dy = half * math.cos(yaw), half * math.sin(yaw)
    return (middle[0] - dx, middle[1] - dy), (middle[0] + dx, middle[1] + dy), radius


def _distance(point: tuple[float, float], start: tuple[float, float], end: tuple[float, float]) -> float:
    along = (end[0] - start[0], end[1] - start[1])
    length = along[0] ** 2 + along[1] ** 2
    share = 0.0
    if length > 0:
        share = ((point[0] - start[0]) * along[0] + (point[1] - start[1]) * along[1]) / length
    share = min(1.0, max(0.0, share))
    return math.dist(point, (start[0] + share * along[0], start[1] + share * along[1]))
