"""The scripted expert.

To pick and place: over the object, down, close, up, over the destination, down, open, up. To push: behind the object,
down, straight towards the destination, up.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from factored_scaling.sim.tabletop import arm
from factored_scaling.sim.tabletop.rules import Rules
from factored_scaling.sim.tabletop.scene import Scene

# How high the tip travels above the table, and control steps per leg of the way.
HOVER = 0.20
APPROACH, DESCEND, CLOSE, RAISE, CARRY, LOWER, OPEN, LEAVE = 9, 4, 2, 3, 8, 3, 2, 2
STEPS = APPROACH + DESCEND + CLOSE + RAISE + CARRY + LOWER + OPEN + LEAVE
# Of a push, and the hand's distance to the object before it
BEHIND, DOWN, PUSH, UP, REST = 10, 4, 13, 4, 2
BEFORE = 0.02


def plan(rules: Rules, scene: Scene) -> NDArray[np.float32]:
    """The joint targets of one episode, steps × joints."""
    path = _push(rules, scene) if rules.push_gap else _pick_and_place(rules, scene)
    return np.array(path, dtype=np.float32)


def _pick_and_place(rules: Rules, scene: Scene) -> list[NDArray[np.float64]]:
    table = float(scene.table_height[0])
    centre = table + rules.object_size[2]
    over = arm.inverse(*map(float, scene.object_place))
    goal = arm.inverse(*map(float, scene.target_place))
    hover = table + HOVER
    return _through(
        scene.joints.astype(np.float64),
        (APPROACH, over, hover, 1.0),
        (DESCEND, over, centre, 1.0),
        (CLOSE, over, centre, 0.0),
        (RAISE, over, hover, 0.0),
        (CARRY, goal, hover, 0.0),
        (LOWER, goal, centre + rules.target_rise + 0.02, 0.0),
        (OPEN, goal, centre + rules.target_rise + 0.02, 1.0),
        (LEAVE, goal, hover, 1.0),
    )


def _push(rules: Rules, scene: Scene) -> list[NDArray[np.float64]]:
    table = float(scene.table_height[0])
    centre, hover = table + rules.object_size[2], table + HOVER
    thing, target = scene.object_place.astype(np.float64), scene.target_place.astype(np.float64)
    way = (target - thing) / np.hypot(*(target - thing))
    first, last = thing - (rules.push_gap + BEFORE) * way, target - rules.push_gap * way
    behind, end = arm.inverse(*first), arm.inverse(*last)
    approach = _through(scene.joints.astype(np.float64), (BEHIND, behind, hover, 0.0), (DOWN, behind, centre, 0.0))
    line = [first + (last - first) * _ease((i + 1) / PUSH) for i in range(PUSH)]
    straight = [np.array([*arm.inverse(*place), centre, 0.0]) for place in line]
    return [*approach, *straight, *_through(straight[-1], (UP, end, hover, 0.0), (REST, end, hover, 0.0))]


Leg = tuple[int, NDArray[np.float64], float, float]  # steps; angles, height and opening at its end


def _through(start: NDArray[np.float64], *legs: Leg) -> list[NDArray[np.float64]]:
    path = []
    for steps, angles, height, opening in legs:
        end = np.array([*angles, height, opening])
        path += [start + (end - start) * _ease((i + 1) / steps) for i in range(steps)]
        start = end
    return path


def _ease(share: float) -> float:
    """Starts and ends at rest, without a jerk."""
    return share * share * share * (10 - 15 * share + 6 * share * share)
