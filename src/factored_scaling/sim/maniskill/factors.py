"""What each factor varies: values for training, ten held-out settings, and the scene that follows from them."""

from __future__ import annotations

import math

import numpy as np

from factored_scaling.sim.drawing import EXAMPLES, SETTINGS, FactorValues, generator, known_factor, known_setting
from factored_scaling.sim.maniskill import appearance
from factored_scaling.sim.maniskill.appearance import DistractorSet
from factored_scaling.sim.maniskill.layout import HOME, clear_of, kept_clear
from factored_scaling.sim.maniskill.rules import Rules
from factored_scaling.sim.maniskill.scene import Placed, Scene, Vector
from factored_scaling.sim.maniskill.textures import Texture
from factored_scaling.sim.task import Condition, DemoRequest

# A continuous factor's value is a point in [-1, 1]^d with nominal at 0; how many dimensions each has:
CONTINUOUS = {"camera_pose": 3, "lighting": 4, "table_height": 1, "object_pose": 3, "robot_pose": 7}
DISCRETE: dict[str, tuple[tuple[Texture | DistractorSet, ...], tuple[Texture | DistractorSet, ...]]] = {
    "table_texture": (appearance.TRAINING_TABLES, appearance.HELD_OUT_TABLES),
    "background": (appearance.TRAINING_BACKGROUNDS, appearance.HELD_OUT_BACKGROUNDS),
    "distractor": (appearance.TRAINING_DISTRACTORS, appearance.HELD_OUT_DISTRACTORS),
}
WIDER = 1.25  # the object range of object-pose data

# Lighting, which the paper shows in pictures only: azimuth and elevation of the lamp, warm to cool, brightness.
LIGHT_HALF = (1.4, 0.35, 1.0, 0.35)
LIGHT_AZIMUTH, LIGHT_ELEVATION, BRIGHTNESS, AMBIENT = 0.6, 1.05, 1.9, 0.40

DISTRACTOR_RANGE = ((-0.36, 0.14), (-0.30, 0.30))  # where the third-person camera sees them

Value = Texture | DistractorSet | tuple[float, ...]
VALUES = FactorValues(DISCRETE, CONTINUOUS)


def demo_scene(rules: Rules, request: DemoRequest, attempt: int) -> Scene:
    """The scene of a demonstration; another one per attempt."""
    factor = known_factor(request.factor, rules.factors, rules.name)
    key = (_family(rules), "demo", factor, request.seed, attempt)
    return make_scene(rules, factor, VALUES.training(factor, generator(*key, "value")) if factor else None, key)


def trial_scene(rules: Rules, condition: Condition) -> Scene:
    """The scene of an evaluation trial."""
    factor = known_factor(condition.factor, rules.factors, rules.name)
    value = VALUES.held_out(factor)[known_setting(condition.setting)] if factor else None
    return make_scene(rules, factor, value, (_family(rules), "trial", factor, condition.setting, condition.initial))


def examples(rules: Rules, factor: str | None) -> list[Scene]:
    """Scenes for a contact sheet: a factor's training values and held-out settings, or as many nominal scenes."""
    if factor is None:
        return [make_scene(rules, None, None, ("sheet", seed)) for seed in range(EXAMPLES + SETTINGS)]
    # One key for all: what a value does not set is the same in all scenes.
    return [make_scene(rules, factor, value, ("sheet", 0)) for value in VALUES.examples(factor)]


def make_scene(rules: Rules, factor: str | None, value: Value | None, key: tuple[object, ...]) -> Scene:
    """Nominal everywhere except for the factor. Every part draws from a generator of its own, named by `key`."""
    amount = {name: (0.0,) * size for name, size in CONTINUOUS.items()}
    if factor in CONTINUOUS and isinstance(value, tuple):
        amount[factor] = value
    table = value if factor == "table_texture" and isinstance(value, Texture) else appearance.NOMINAL_TABLE
    background = value if factor == "background" and isinstance(value, Texture) else appearance.NOMINAL_BACKGROUND
    manipulated, goal = _poses(rules, amount["object_pose"] if factor == "object_pose" else None, key)
    direction, colour, ambient = _light(amount["lighting"])
    return Scene(
        camera_eye=_shifted(rules.camera_eye, amount["camera_pose"], rules.eye_half),
        light_direction=direction,
        light_colour=colour,
        ambient=ambient,
        table=table,
        background=background,
        distractors=_distractors(rules, value, manipulated, goal, key) if isinstance(value, DistractorSet) else (),
        table_height=amount["table_height"][0] * rules.height_half,
        manipulated=manipulated,
        goal=goal,
        joints=_shifted(HOME, amount["robot_pose"], (rules.joint_half,) * 7),
    )


def _poses(rules: Rules, fixed: Vector | None, key: tuple[object, ...]) -> tuple[Vector, Vector]:
    """Where the two objects lie: drawn evenly, or from the wider range with the manipulated one at the given place."""
    rng = generator(*key, "poses")
    widen = WIDER if fixed is not None else 1.0
    manipulated = rules.manipulated.at(fixed if fixed is not None else tuple(rng.uniform(-1, 1, 3).tolist()), widen)
    while True:
        goal = rules.goal.at(tuple(rng.uniform(-1, 1, 3).tolist()), widen)
        if math.dist(manipulated[:2], goal[:2]) >= rules.gap:
            return manipulated, goal


def _light(offsets: Vector) -> tuple[Vector, Vector, Vector]:
    """Direction and colour of the lamp, and the ambient light."""
    turn, rise, warm, bright = (share * half for share, half in zip(offsets, LIGHT_HALF, strict=True))
    azimuth, elevation, strength = LIGHT_AZIMUTH + turn, LIGHT_ELEVATION + rise, 1.0 + bright
    direction = (
        -math.cos(elevation) * math.cos(azimuth),
        -math.cos(elevation) * math.sin(azimuth),
        -math.sin(elevation),
    )
    tint = (1 + 0.28 * warm, 1.0, 1 - 0.38 * warm)
    lamp = tuple(BRIGHTNESS * strength * channel for channel in tint)
    return direction, lamp, tuple(AMBIENT * (0.4 + 0.6 * strength) * channel for channel in tint)


def _distractors(
    rules: Rules, chosen: DistractorSet, manipulated: Vector, goal: Vector, key: tuple[object, ...]
) -> tuple[Placed, ...]:
    """The two things at places clear of the objects, of the way between them and of each other."""
    rng = generator(*key, "distractors")
    low, high = np.array(DISTRACTOR_RANGE).T
    taken = kept_clear(rules, manipulated, goal)
    placed: list[Placed] = []
    for thing in (chosen.first, chosen.second):
        room = max(thing.size[:2])
        while True:
            x, y = rng.uniform(low, high).tolist()
            if clear_of(taken, x, y, room):
                break
        taken = [*taken, ((x, y), (x, y), room)]
        placed.append(Placed(thing, x, y, float(rng.uniform(0, math.pi))))
    return tuple(placed)


def _shifted(nominal: Vector, unit: Vector, half: Vector) -> Vector:
    return tuple(n + u * h for n, u, h in zip(nominal, unit, half, strict=True))


def _family(rules: Rules) -> str:
    """Visual and spatial settings of a task share their draws, so that a demo of both is the same demo."""
    return rules.stage
