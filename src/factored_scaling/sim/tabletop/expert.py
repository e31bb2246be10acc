"""The scripted expert: over the object, down, close, up, over the destination, down, open, up."""

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


def plan(rules: Rules, scene: Scene) -> NDArray[np.float32]:
    """The joint targets of one episode, steps × joints."""
    table = float(scene.table_height[0])
    centre = table + rules.object_size[2]
    over = arm.inverse(*map(float, scene.object_place))
    goal = arm.inverse(*map(float, scene.target_place))
    start = scene.joints.astype(np.float64)
    hover = table + HOVER
    legs = [
        (APPROACH, over, hover, 1.0),
        (DESCEND, over, centre, 1.0),
        (CLOSE, over, centre, 0.0),
        (RAISE, over, hover, 0.0),
        (CARRY, goal, hover, 0.0),
        (LOWER, goal, centre + rules.target_rise + 0.02, 0.0),
        (OPEN, goal, centre + rules.target_rise + 0.02, 1.0),
        (LEAVE, goal, hover, 1.0),
    ]
    path = []
    for steps, angles, height, opening in legs:
        end = np.array([*angles, height, opening])
        path += [start + (end - start) * _ease((i + 1) / steps) for i in range(steps)]
        start = end
    return np.array(path, dtype=np.float32)


def _ease(share: float) -> float:
    """Starts and ends at rest, without a jerk."""
    return share * share * share * (10 - 15 * share + 6 * share * share)
