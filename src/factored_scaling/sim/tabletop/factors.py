"""What each factor varies: values for training, ten held-out settings, and the scene that follows from them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from factored_scaling.sim.drawing import EXAMPLES, SETTINGS, FactorValues, generator, known_factor, known_setting
from factored_scaling.sim.tabletop import appearance, arm
from factored_scaling.sim.tabletop.appearance import DistractorSet, Texture
from factored_scaling.sim.tabletop.rules import Rules
from factored_scaling.sim.tabletop.scene import Scene, Vector
from factored_scaling.sim.task import Condition, DemoRequest

# A continuous factor's value is a point in [-1, 1]^d, nominal at 0. What 1 means, per dimension:
CONTINUOUS: dict[str, tuple[float, ...]] = {
    "camera_pose": (0.50, 0.10, 0.08, 0.03),  # azimuth and elevation (rad), distance, sideways shift (m)
    "lighting": (2.2, 0.40, 1.0, 0.55),  # azimuth and elevation (rad), warm to cool, brightness
    "table_height": (0.06,),  # m
    "object_pose": (1.25, 1.25),  # of the nominal range
    "robot_pose": (0.20, 0.30, 0.30, 0.05),  # shoulder, elbow, wrist (rad), height (m)
}
DISCRETE: dict[str, tuple[tuple[Texture | DistractorSet, ...], tuple[Texture | DistractorSet, ...]]] = {
    "table_texture": (appearance.TRAINING_TABLES, appearance.HELD_OUT_TABLES),
    "background": (appearance.TRAINING_BACKGROUNDS, appearance.HELD_OUT_BACKGROUNDS),
    "distractor": (appearance.TRAINING_DISTRACTORS, appearance.HELD_OUT_DISTRACTORS),
}

Value = Texture | DistractorSet | tuple[float, ...]
VALUES = FactorValues(DISCRETE, {name: len(sizes) for name, sizes in CONTINUOUS.items()})

CAMERA_TARGET = (0.34, 0.0, 0.06)
CAMERA_DISTANCE, CAMERA_ELEVATION = 1.0, 0.76
LIGHT_AZIMUTH, LIGHT_ELEVATION, AMBIENT = 0.7, 1.05, 0.45
HOME_PLACE, HOME_HEIGHT = (0.32, 0.0), 0.22
# Every episode starts slightly off home, so that no joint is constant in the data.
HOME_NOISE = (0.02, 0.02, 0.02, 0.005)
DISTRACTOR_RANGE = ((0.32, 0.60), (-0.27, 0.27))
DISTRACTOR_GAP = 0.115
ARRANGEMENT = 46  # a seed under which nothing on the table hides anything else


def demo_scene(rules: Rules, request: DemoRequest, attempt: int) -> Scene:
    """The scene of a demonstration; another one per attempt."""
    factor = known_factor(request.factor, rules.factors, rules.name)
    rng = generator(rules.name, "demo", factor, request.seed, attempt)
    return compose(rules, factor, VALUES.training(factor, rng) if factor else None, rng)


def trial_scene(rules: Rules, condition: Condition) -> Scene:
    """The scene of an evaluation trial."""
    factor = known_factor(condition.factor, rules.factors, rules.name)
    value = VALUES.held_out(factor)[known_setting(condition.setting)] if factor else None
    return compose(rules, factor, value, generator(rules.name, "trial", factor, condition.setting, condition.initial))


def examples(rules: Rules, factor: str | None) -> list[Scene]:
    """Scenes for a contact sheet: a factor's training values and held-out settings, or as many nominal scenes."""
    if factor is None:
        return [compose(rules, None, None, np.random.default_rng(seed)) for seed in range(EXAMPLES + SETTINGS)]
    return [compose(rules, factor, value, np.random.default_rng(ARRANGEMENT)) for value in VALUES.examples(factor)]


def compose(rules: Rules, factor: str | None, value: Value | None, rng: np.random.Generator) -> Scene:
    """Nominal everywhere except for the factor. What is drawn, and in what order, does not depend on the factor."""
    amounts = {name: (0.0,) * len(size) for name, size in CONTINUOUS.items()}
    if factor and isinstance(value, tuple):
        amounts[factor] = tuple(share * size for share, size in zip(value, CONTINUOUS[factor], strict=True))
    table = value if factor == "table_texture" and isinstance(value, Texture) else appearance.NOMINAL_TABLE
    background = value if factor == "background" and isinstance(value, Texture) else appearance.NOMINAL_BACKGROUND
    drawn = rng.uniform(-1, 1, 2)
    unit = amounts["object_pose"] if factor == "object_pose" else tuple(drawn.tolist())
    object_place = np.array(rules.object_range.at((unit[0], unit[1])))
    across, along = rng.uniform(-1, 1, 2).tolist()
    target_place = np.array(rules.target_range.at((across, along)))
    joints = _initial_joints(amounts["robot_pose"], rng)
    distractors = value if isinstance(value, DistractorSet) else None
    places = _distractor_places([object_place, target_place], rng)
    look = distractors or appearance.TRAINING_DISTRACTORS[0]
    present = [1.0 if distractors else 0.0]
    return Scene(
        camera=_camera(amounts["camera_pose"]),
        light=_light(amounts["lighting"]),
        table=table.vector(),
        background=background.vector(),
        table_height=_vector(amounts["table_height"]),
        object_place=_vector(object_place),
        target_place=_vector(target_place),
        joints=_vector(joints),
        round_place=_vector([*places[0], *present]),
        round_look=_vector([*look.round_size, *look.round_colour]),
        box_place=_vector([*places[1], *present]),
        box_look=_vector([*look.box_size, *look.box_colour]),
    )


def _vector(numbers: object) -> Vector:
    return np.asarray(numbers, dtype=np.float32)


def _initial_joints(offsets: tuple[float, ...], rng: np.random.Generator) -> NDArray[np.float64]:
    home = np.array([*arm.inverse(*HOME_PLACE), HOME_HEIGHT])
    noise = rng.uniform(-1, 1, 4) * np.array(HOME_NOISE)
    return np.array([*(home + noise + np.array(offsets)), 1.0])


def _distractor_places(taken: list[NDArray[np.float64]], rng: np.random.Generator) -> list[tuple[float, ...]]:
    """Two places (x, y, cos, sin of a yaw) clear of what is already on the table."""
    low, high = np.array(DISTRACTOR_RANGE).T
    places: list[tuple[float, ...]] = []
    for _ in range(2):
        while True:
            spot = rng.uniform(low, high)
            if all(np.hypot(*(spot - other)) > DISTRACTOR_GAP for other in taken):
                break
        taken = [*taken, spot]
        yaw = rng.uniform(0, math.pi)
        places.append((spot[0], spot[1], math.cos(yaw), math.sin(yaw)))
    return places


def _camera(offsets: tuple[float, ...]) -> Vector:
    """Origin, right, up and forward of the third-person camera, which faces the robot across the table."""
    azimuth, elevation = offsets[0], CAMERA_ELEVATION + offsets[1]
    back = np.array(
        [math.cos(elevation) * math.cos(azimuth), math.cos(elevation) * math.sin(azimuth), math.sin(elevation)]
    )
    right = np.array([-math.sin(azimuth), math.cos(azimuth), 0.0])
    origin = np.array(CAMERA_TARGET) + (CAMERA_DISTANCE + offsets[2]) * back + offsets[3] * right
    return _vector(np.concatenate([origin, right, np.cross(back, right), -back]))


def _light(offsets: tuple[float, ...]) -> Vector:
    azimuth, elevation = LIGHT_AZIMUTH + offsets[0], LIGHT_ELEVATION + offsets[1]
    warmth, brightness = offsets[2], 1.0 + offsets[3]
    direction = (
        math.cos(elevation) * math.cos(azimuth),
        math.cos(elevation) * math.sin(azimuth),
        math.sin(elevation),
    )
    colour = (1 + 0.45 * warmth, 1.0, 1 - 0.55 * warmth)
    return _vector([*direction, *(brightness * channel for channel in colour), AMBIENT])
