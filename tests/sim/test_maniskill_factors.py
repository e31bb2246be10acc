"""Each factor changes the picture or the state where it should, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.sim.maniskill_cases import needs_maniskill

from factored_scaling.errors import InvalidInput, UnknownFactor
from factored_scaling.sim import MANISKILL_TASKS, Condition, DemoRequest
from factored_scaling.sim.drawing import MARGIN
from factored_scaling.sim.maniskill import SETTINGS, ManiSkillTask, factors, layout
from factored_scaling.sim.maniskill.scene import Scene
from factored_scaling.sim.maniskill.task import make_task
from factored_scaling.sim.maniskill.textures import PATTERNS, Texture, paint

pytestmark = pytest.mark.slow  # every one starts simulator processes

SPATIAL_TASKS = ("maniskill/peg-spatial", "maniskill/pull-spatial")
# The parts of a scene that a factor may change.
CHANGES = {
    "camera_pose": {"camera_eye"},
    "distractor": {"distractors"},
    "table_texture": {"table"},
    "lighting": {"light_direction", "light_colour", "ambient"},
    "background": {"background"},
    "table_height": {"table_height"},
    "object_pose": {"manipulated", "goal"},
    "robot_pose": {"joints"},
}
Images = NDArray[np.uint8]


def _different(first: Scene, second: Scene) -> set[str]:
    return {field.name for field in fields(Scene) if getattr(first, field.name) != getattr(second, field.name)}


@pytest.mark.parametrize("name", MANISKILL_TASKS)
def test_a_factor_changes_its_own_part_of_the_scene_only(name: str) -> None:
    rules = SETTINGS[name]
    nominal = factors.make_scene(rules, None, None, ("test",))
    for factor in rules.factors:
        for value in factors.VALUES.held_out(factor):
            changed = _different(nominal, factors.make_scene(rules, factor, value, ("test",)))
            assert changed == CHANGES[factor], factor


@pytest.mark.parametrize("name", MANISKILL_TASKS)
def test_training_never_meets_a_held_out_value(name: str) -> None:
    rules = SETTINGS[name]
    for factor in rules.factors:
        held_out = factors.VALUES.held_out(factor)
        assert len(set(held_out)) == 10
        rng = np.random.default_rng(0)
        drawn = [factors.VALUES.training(factor, rng) for _ in range(300)]
        assert not set(drawn) & set(held_out)
        if factor in factors.DISCRETE:
            assert len(set(drawn)) == 4
        else:
            points = np.array(drawn, dtype=np.float64)
            assert (np.abs(points) <= 1).all()
            assert np.abs(points).max() > 0.98
            gaps = np.abs(points[:, None] - np.array(held_out, dtype=np.float64)).max(axis=2)
            assert gaps.min() > MARGIN


def test_the_ranges_are_the_papers() -> None:
    halves = {
        name.split("/")[1]: (rules.manipulated.half, rules.goal.half, rules.eye_half, rules.joint_half)
        for name, rules in SETTINGS.items()
    }
    peg = ((0.04, 0.04, 0.13), (0.04, 0.04, 0.13), (0.025, 0.025, 0.025), 0.015)
    pull = ((0.04, 0.08, 0.0), (0.04, 0.08, 0.13), (0.05, 0.05, 0.05), 0.01)
    assert halves == {
        "pick-place": ((0.2, 0.2, 0.0), (0.15, 0.2, 0.0), (0.05, 0.1, 0.1), 0.0),
        "peg-visual": peg,
        "peg-spatial": peg,
        "pull-visual": pull,
        "pull-spatial": pull,
    }
    assert {SETTINGS[name].height_half for name in SPATIAL_TASKS} == {0.025}


@pytest.mark.parametrize("name", SPATIAL_TASKS)
def test_object_pose_data_come_from_a_range_a_quarter_wider(name: str) -> None:
    rules = SETTINGS[name]
    centre, half = np.array(rules.manipulated.centre), np.array(rules.manipulated.half)
    usual, wider, held_out = [], [], []
    for seed in range(400):
        usual.append(factors.demo_scene(rules, DemoRequest("", "lighting", seed), 0).manipulated)
        wider.append(factors.demo_scene(rules, DemoRequest("", "object_pose", seed), 0).manipulated)
        held_out.append(factors.trial_scene(rules, Condition("object_pose", seed % 10, seed)).manipulated)
    reach = [np.abs((np.array(poses) - centre)[:, :2] / half[:2]).max() for poses in (usual, wider, held_out)]
    assert 0.98 < reach[0] <= 1.0
    assert 1.22 < reach[1] <= 1.25
    rim = np.abs((np.array(held_out) - centre)[:, :2] / half[:2]).max(axis=1)
    assert (rim > 1).all()
    assert reach[2] < 1.25


@pytest.mark.parametrize("name", MANISKILL_TASKS)
def test_distractors_and_objects_keep_clear_of_each_other(name: str) -> None:
    rules = SETTINGS[name]
    for seed in range(200):
        scene = factors.demo_scene(rules, DemoRequest("", "distractor", seed), 0)
        first, second = scene.distractors
        assert np.hypot(first.x - second.x, first.y - second.y) > max(first.thing.size[:2]) + max(second.thing.size[:2])
        taken = layout.kept_clear(rules, scene.manipulated, scene.goal)
        assert all(layout.clear_of(taken, one.x, one.y, max(one.thing.size[:2])) for one in scene.distractors)
        assert np.hypot(*np.subtract(scene.manipulated[:2], scene.goal[:2])) >= rules.gap


def test_the_same_request_gives_the_same_scene_and_another_attempt_another() -> None:
    rules = SETTINGS["maniskill/pull-spatial"]
    request = DemoRequest("a", "object_pose", 3)
    assert factors.demo_scene(rules, request, 0) == factors.demo_scene(rules, DemoRequest("b", "object_pose", 3), 0)
    assert factors.demo_scene(rules, request, 0) != factors.demo_scene(rules, request, 1)
    visual = SETTINGS["maniskill/pull-visual"]
    nominal = DemoRequest("c", None, 5)
    assert factors.demo_scene(rules, nominal, 0) == factors.demo_scene(visual, nominal, 0)
    with pytest.raises(UnknownFactor):
        factors.demo_scene(visual, request, 0)
    with pytest.raises(InvalidInput, match="settings go from 0 to 9"):
        factors.trial_scene(rules, Condition("lighting", 10, 0))


def test_every_pattern_paints_both_of_its_colours() -> None:
    for pattern in PATTERNS:
        image = paint(Texture(pattern, (1.0, 0.0, 0.0), (0.0, 0.0, 1.0), 8.0, 0.3), 1.0, 1.2)
        assert image.shape == (512, 512, 4)
        assert image[..., 0].std() > 10
        assert (image[..., 1] == 0).all()
        assert (image[..., 3] == 255).all()


# On pixels


@pytest.fixture(scope="module", params=("maniskill/pick-place", *SPATIAL_TASKS))
def task(request: pytest.FixtureRequest) -> Iterator[ManiSkillTask]:
    needs_maniskill()
    made = make_task(request.param, 96, processes=1)
    yield made
    made.close()


def test_a_factor_changes_its_own_pixels(task: ManiSkillTask) -> None:
    nominal = factors.make_scene(task.rules, None, None, ("pixels", 1))
    scenes = [nominal, nominal]
    for factor in task.factors:
        value = factors.VALUES.held_out(factor)[1]
        scenes.append(factors.make_scene(task.rules, factor, value, ("pixels", 1)))
    images = task.preview(scenes).astype(np.int64)
    assert (images[0] == images[1]).all()
    changed = {
        factor: (np.abs(images[2 + index] - images[0]) > 6).any(axis=1) for index, factor in enumerate(task.factors)
    }
    third = {factor: mask[0] for factor, mask in changed.items()}
    assert third["lighting"].mean() > 0.5
    assert third["camera_pose"].mean() > 0.05
    assert 0.2 < third["table_texture"].mean() < 0.8
    assert 0.1 < third["background"].mean() < 0.6
    assert 0.002 < third["distractor"].mean() < 0.1
    # The table and the wall are different parts of the picture, and the robot and the objects belong to neither.
    assert not (third["table_texture"] & third["background"]).any()
    assert (~third["table_texture"] & ~third["background"]).mean() > 0.02
    # A distractor lies on the table.
    assert (third["distractor"] & (third["table_texture"] | third["background"])).sum() > 0.9 * third[
        "distractor"
    ].sum()
    if task.cameras == 2:
        assert not changed["camera_pose"][1].any()
        assert changed["table_texture"][1].mean() > 0.3
    for factor, least in (("table_height", 0.003), ("object_pose", 0.003), ("robot_pose", 0.0003)):
        if factor in task.factors:
            assert third[factor].mean() > least, factor


def test_visual_factors_do_not_change_the_motion(task: ManiSkillTask) -> None:
    from factored_scaling.sim.maniskill.worker import Show, Shown

    visual = ("camera_pose", "distractor", "table_texture", "lighting", "background")
    scenes = [factors.make_scene(task.rules, None, None, ("motion", 2))]
    scenes += [
        factors.make_scene(task.rules, factor, factors.VALUES.held_out(factor)[4], ("motion", 2)) for factor in visual
    ]
    shown = dict(task.pool(False).map([Show(scene, False) for scene in scenes]))
    first = shown[0]
    assert isinstance(first, Shown)
    for answer in shown.values():
        assert isinstance(answer, Shown)
        assert answer.done
        assert np.array_equal(answer.state, first.state)


def test_spatial_factors_change_the_state_where_they_should(task: ManiSkillTask) -> None:
    conditions = [Condition(None, 0, 0)]
    conditions += [Condition(factor, 3, 0) for factor in task.factors]
    _, states = task.first_frames(conditions)
    home = np.array([*layout.HOME, 0.04], dtype=np.float32)
    for condition, state in zip(conditions, states.numpy(), strict=True):
        offset = np.abs(state - home)
        if condition.factor == "robot_pose":
            assert 0.003 < offset[:7].max() <= task.rules.joint_half + 1e-6
            assert offset[7] < 1e-6
        else:
            assert offset.max() < 1e-6, condition


def test_coarse_meshes_look_like_the_stock_ones(task: ManiSkillTask) -> None:
    scene = factors.make_scene(task.rules, None, None, ("coarse", 0))
    stock = make_task(task.name, 96, processes=1, coarse=False)
    try:
        exact = stock.preview([scene]).astype(np.int64)
    finally:
        stock.close()
    difference = np.abs(task.preview([scene]).astype(np.int64) - exact)
    assert difference.mean() < 2.0
    assert (difference.max(axis=2) > 32).mean() < 0.04
