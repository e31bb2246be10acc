"""A scene: everything about one trial that is fixed before it starts, as plain values that travel between processes."""

from __future__ import annotations

from dataclasses import dataclass

from factored_scaling.sim.maniskill.appearance import Thing
from factored_scaling.sim.maniskill.textures import Texture

Vector = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A distractor on the table; it can be seen but not touched, so that it never changes the motion."""

    thing: Thing
    x: float
    y: float
    yaw: float


@dataclass(frozen=True, slots=True)
class Scene:
    """One trial's scene. Lengths in metres, angles in radians, colours from 0 to 1."""

    camera_eye: Vector
    light_direction: Vector  # the way the light travels
    light_colour: Vector
    ambient: Vector
    table: Texture
    background: Texture
    distractors: tuple[Placed, ...]
    table_height: float
    manipulated: Vector  # x, y, yaw
    goal: Vector  # x, y, yaw
    joints: Vector  # seven initial joint positions
