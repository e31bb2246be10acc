"""The arm reaches where it is sent, and only a good grasp and a good release count."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from factored_scaling.sim import Condition
from factored_scaling.sim.tabletop import arm, expert, factors
from factored_scaling.sim.tabletop.physics import CLEARANCE, Situation, start, step
from factored_scaling.sim.tabletop.rules import INSERT, PICK_PLACE, PUSH, Rules
from factored_scaling.sim.tabletop.scene import SceneBatch


def _play(rules: Rules, change: np.ndarray | None = None, factor: str | None = None, setting: int = 0) -> Situation:
    """The expert's plan in one trial, with a change added to it."""
    scene = factors.trial_scene(rules, Condition(factor, setting, 0))
    plan = expert.plan(rules, scene) + (0 if change is None else change)
    scenes = SceneBatch.stack([scene], "cpu")
    now = start(rules, scenes)
    for action in torch.from_numpy(plan.astype(np.float32)):
        now = step(rules, scenes, now, action[None])
    return now


def _change(joint: int, amount: float, first: int = 0, last: int = expert.STEPS) -> np.ndarray:
    change = np.zeros((expert.STEPS, arm.JOINTS))
    change[first:last, joint] = amount
    return change


def test_inverse_and_forward_agree() -> None:
    places = [(x, y) for x in np.linspace(0.32, 0.60, 6) for y in np.linspace(-0.27, 0.27, 7)]
    joints = torch.tensor(np.array([[*arm.inverse(x, y), 0.2, 1.0] for x, y in places]), dtype=torch.float32)
    hand = arm.forward(joints)[2].numpy()
    assert np.abs(hand - np.array(places)).max() < 1e-5


def test_forward_is_trigonometry_for_any_angle() -> None:
    angles = torch.linspace(-9, 9, 501)
    joints = torch.stack([angles, *[torch.zeros_like(angles)] * 4], dim=1)
    elbow = arm.forward(joints)[0].numpy() / arm.UPPER
    expected = np.array([[math.cos(angle), math.sin(angle)] for angle in angles.tolist()])
    assert np.abs(elbow - expected).max() < 2e-5


def test_a_joint_moves_at_most_its_rate_and_stops_at_its_limits() -> None:
    scenes = SceneBatch.stack([factors.trial_scene(PICK_PLACE, Condition(None, 0, 0))], "cpu")
    now = start(PICK_PLACE, scenes)
    far = torch.full((1, arm.JOINTS), -99.0)
    after = step(PICK_PLACE, scenes, now, far)
    moved = (now.joints - after.joints)[0].tolist()
    assert moved == pytest.approx(arm.RATE_LIMIT, abs=1e-6)
    for _ in range(30):
        after = step(PICK_PLACE, scenes, after, far)
    lowest = [*arm.LOWER_LIMIT[: arm.LIFT], CLEARANCE, arm.LOWER_LIMIT[arm.GRIP]]
    assert after.joints[0].tolist() == pytest.approx(lowest, abs=1e-6)


@pytest.mark.parametrize("setting", [0, 5])
def test_the_fingers_do_not_pass_through_the_table(setting: int) -> None:
    scene = factors.trial_scene(INSERT, Condition("table_height", setting, 0))
    scenes = SceneBatch.stack([scene], "cpu")
    now = start(INSERT, scenes)
    down = now.joints.clone()
    down[:, arm.LIFT] = -1
    for _ in range(10):
        now = step(INSERT, scenes, now, down)
    assert float(now.joints[0, arm.LIFT]) == pytest.approx(float(scene.table_height[0]) + CLEARANCE, abs=1e-6)


@pytest.mark.parametrize("rules", [PICK_PLACE, INSERT], ids=lambda rules: rules.name)
def test_the_plan_as_it_is_succeeds(rules: Rules) -> None:
    end = _play(rules)
    assert bool(end.done)
    assert not bool(end.held)


@pytest.mark.parametrize("rules", [PICK_PLACE, INSERT], ids=lambda rules: rules.name)
@pytest.mark.parametrize(
    ("why", "change"),
    [
        ("beside the object", _change(0, 0.25, 0, 18)),
        ("closing too high", _change(arm.LIFT, 0.07, 0, 18)),
        ("never closing", _change(arm.GRIP, 1.0)),
        ("never opening", _change(arm.GRIP, -1.0, expert.APPROACH + 1)),
        ("beside the destination", _change(0, 0.30, 20)),
        ("letting go too high", _change(arm.LIFT, 0.15, 22)),
    ],
)
def test_a_spoiled_plan_fails(rules: Rules, why: str, change: np.ndarray) -> None:
    assert not bool(_play(rules, change).done), why


def test_inserting_is_less_forgiving_than_placing() -> None:
    slip = _change(0, 0.075, 20)
    assert bool(_play(PICK_PLACE, slip).done)
    assert not bool(_play(INSERT, slip).done)


def test_a_lower_table_is_out_of_reach_for_the_nominal_plan() -> None:
    heights = [value[0] for value in factors.VALUES.held_out("table_height") if isinstance(value, tuple)]
    lowest = int(np.argmin(heights))
    down = float(factors.CONTINUOUS["table_height"][0] * heights[lowest])
    assert bool(_play(INSERT, factor="table_height", setting=lowest).done)
    assert not bool(_play(INSERT, _change(arm.LIFT, -down), "table_height", lowest).done)


@pytest.mark.parametrize("factor", [None, *PUSH.factors])
def test_the_expert_pushes_the_puck_onto_the_plate(factor: str | None) -> None:
    assert all(bool(_play(PUSH, factor=factor, setting=setting).done) for setting in range(10))


def test_a_puck_is_moved_only_by_a_low_hand_and_counts_only_once_it_is_left_alone() -> None:
    steps = expert.BEHIND + expert.DOWN + expert.PUSH + expert.UP + expert.REST
    high, stays = np.zeros((steps, arm.JOINTS)), np.zeros((steps, arm.JOINTS))
    high[:, arm.LIFT] = 0.15
    passed = _play(PUSH, high)
    scene = factors.trial_scene(PUSH, Condition(None, 0, 0))
    assert passed.thing[0, :2].tolist() == scene.object_place.tolist()
    assert not passed.done
    stays[-expert.UP - expert.REST :, arm.LIFT] = -1.0
    pressed = _play(PUSH, stays)
    assert np.hypot(*(pressed.thing[0, :2].numpy() - scene.target_place)) < PUSH.target_radius
    assert not pressed.done


def test_a_push_past_the_side_moves_the_puck_along_the_hand_and_no_further_than_needed() -> None:
    scene = factors.trial_scene(PUSH, Condition(None, 0, 0))
    scenes = SceneBatch.stack([scene], "cpu")
    x, y = map(float, scene.object_place)
    aside, low = 0.03, PUSH.object_size[2]

    def joints(at: float) -> torch.Tensor:
        return torch.tensor([[*arm.inverse(x + aside, at), low, 0.0]], dtype=torch.float32)

    flag = torch.zeros(1, dtype=torch.bool)
    now = Situation(joints(y - 0.08), torch.tensor([[x, y, low]]), flag, flag, flag)
    for at in np.linspace(y - 0.08, y + 0.05, 12):
        now = step(PUSH, scenes, now, joints(float(at)))
    place = now.thing[0].tolist()
    assert place[0] == pytest.approx(x, abs=2e-3)  # no swerving
    gap = math.hypot(place[0] - x - aside, place[1] - y - 0.05)
    assert gap == pytest.approx(PUSH.push_gap, abs=2e-3)
