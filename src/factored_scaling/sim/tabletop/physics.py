"""The physics of one control step. Quasi-static: joints follow their targets, the gripper takes and lets go."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from factored_scaling.sim.tabletop import arm
from factored_scaling.sim.tabletop.rules import Rules
from factored_scaling.sim.tabletop.scene import SceneBatch

# The fingers stop this far above the table, and count as open above this opening.
CLEARANCE = 0.02
OPEN = 0.5
# Fingers this far above the object's centre pass over it.
PASSES = 0.04


@dataclass(frozen=True)
class Situation:
    """The state of every environment of a batch."""

    joints: torch.Tensor  # batch × joints
    thing: torch.Tensor  # batch × 3: the centre of the object to pick
    held: torch.Tensor  # batch, bool
    lost: torch.Tensor  # batch, bool: dropped from too high
    done: torch.Tensor  # batch, bool: the task has succeeded

    def take(self, rows: torch.Tensor | slice) -> Situation:
        """Some of the environments."""
        return Situation(self.joints[rows], self.thing[rows], self.held[rows], self.lost[rows], self.done[rows])


def start(rules: Rules, scenes: SceneBatch) -> Situation:
    """Arms at their initial positions, objects at rest on the table."""
    height = scenes.table_height + rules.object_size[2]
    nothing = torch.zeros(len(scenes), dtype=torch.bool, device=height.device)
    return Situation(scenes.joints, torch.cat([scenes.object_place, height], dim=1), nothing, nothing, nothing)


def step(rules: Rules, scenes: SceneBatch, before: Situation, action: torch.Tensor) -> Situation:
    """One control step towards absolute joint targets. A joint with a target of NaN stays."""
    joints = _move(scenes, before.joints, action)
    hand = arm.forward(joints)[2]
    if rules.push_gap:
        return _push(rules, scenes, before, joints, hand)
    opened = joints[:, arm.GRIP] > OPEN
    closes = (before.joints[:, arm.GRIP] > OPEN) & ~opened
    near = _distance(hand, before.thing[:, :2]) < rules.grasp_radius
    level = (joints[:, arm.LIFT] - before.thing[:, 2]).abs() < rules.grasp_height
    held = (before.held | (closes & near & level)) & ~opened
    released = before.held & opened

    bare = scenes.table_height[:, 0] + rules.object_size[2]
    reached = _distance(hand, scenes.target_place) < rules.target_radius
    rest = torch.where(reached, bare + rules.target_rise, bare)
    toppled = released & (joints[:, arm.LIFT] - rest > rules.drop_height)
    carried = torch.cat([hand, joints[:, arm.LIFT : arm.LIFT + 1]], dim=1)
    landed = torch.cat([hand, rest[:, None]], dim=1)
    thing = torch.where(held[:, None], carried, torch.where(released[:, None], landed, before.thing))
    lost = before.lost | toppled
    return Situation(joints, thing, held, lost, before.done | (released & reached & ~lost))


def _push(rules: Rules, scenes: SceneBatch, before: Situation, joints: torch.Tensor, hand: torch.Tensor) -> Situation:
    """Friction is large: a hand that comes too near pushes the object along its path until there is room.

    Success: the object is near the destination and the fingers are above it.
    """
    above = joints[:, arm.LIFT] - before.thing[:, 2] > PASSES
    came = arm.forward(before.joints)[2]
    way = (hand - came) / _distance(hand, came).clamp(min=1e-6)[:, None]
    apart = before.thing[:, :2] - hand
    along = apart[:, 0] * way[:, 0] + apart[:, 1] * way[:, 1]
    squared = apart[:, 0] * apart[:, 0] + apart[:, 1] * apart[:, 1]
    room = rules.push_gap * rules.push_gap - squared  # positive: too near
    distance = torch.sqrt((along * along + room).clamp(min=0)) - along
    touched = ~above & (room > 0)
    place = before.thing[:, :2] + torch.where(touched, distance, torch.zeros_like(distance))[:, None] * way
    reached = _distance(place, scenes.target_place) < rules.target_radius
    thing = torch.cat([place, before.thing[:, 2:]], dim=1)
    return Situation(joints, thing, before.held, before.lost, before.done | (above & reached))


def _move(scenes: SceneBatch, joints: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    limits = joints.new_tensor([arm.LOWER_LIMIT, arm.UPPER_LIMIT, arm.RATE_LIMIT])
    target = torch.where(torch.isfinite(action), action, joints)
    target = torch.minimum(torch.maximum(target, limits[0]), limits[1])
    moved = joints + torch.minimum(torch.maximum(target - joints, -limits[2]), limits[2])
    lift = torch.maximum(moved[:, arm.LIFT], scenes.table_height[:, 0] + CLEARANCE)
    return torch.cat([moved[:, : arm.LIFT], lift[:, None], moved[:, arm.GRIP :]], dim=1)


def _distance(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    # Written out: a reduction may add up in an order that depends on the size of the batch.
    x, y = (first - second).unbind(dim=1)
    return torch.sqrt(x * x + y * y)
