"""Each factor varies what it says, and training never sees a held-out setting."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from factored_scaling.sim import Condition, DemoRequest, drawing
from factored_scaling.sim.drawing import MARGIN
from factored_scaling.sim.tabletop import factors
from factored_scaling.sim.tabletop.rules import INSERT, PICK_PLACE, Rules
from factored_scaling.sim.tabletop.scene import Scene, SceneBatch
from factored_scaling.sim.tabletop.task import TabletopTask

EIGHT = {
    "table_texture", "lighting", "camera_pose", "distractor", "background", "table_height", "object_pose", "robot_pose",
}  # fmt: skip
# The part of a scene that a factor alone may move away from nominal.
MOVES = {
    "table_texture": {"table"},
    "lighting": {"light"},
    "camera_pose": {"camera"},
    "distractor": {"round_place", "round_look", "box_place", "box_look"},
    "background": {"background"},
    "table_height": {"table_height"},
    "object_pose": {"object_place"},
    "robot_pose": {"joints"},
}
ALWAYS_DRAWN = {"object_place", "target_place", "joints", "round_place", "box_place"}


def _demos(rules: Rules, factor: str | None, count: int) -> list[Scene]:
    return [factors.demo_scene(rules, DemoRequest("", factor, seed), 0) for seed in range(count)]


def test_the_tasks_have_the_factors_of_the_paper() -> None:
    assert set(INSERT.factors) == EIGHT
    assert set(PICK_PLACE.factors) == EIGHT - {"table_height", "object_pose", "robot_pose"}
    assert set(factors.CONTINUOUS) | set(factors.DISCRETE) == EIGHT


@pytest.mark.parametrize("factor", sorted(EIGHT))
def test_there_are_ten_different_held_out_settings(factor: str) -> None:
    assert len(factors.VALUES.held_out(factor)) == drawing.SETTINGS == len(set(factors.VALUES.held_out(factor)))


@pytest.mark.parametrize("factor", sorted(factors.DISCRETE))
def test_a_discrete_factor_trains_on_four_values_none_of_them_held_out(factor: str) -> None:
    rng = np.random.default_rng(0)
    seen = {factors.VALUES.training(factor, rng) for _ in range(200)}
    assert len(seen) == 4
    assert not seen & set(factors.VALUES.held_out(factor))


@pytest.mark.parametrize("factor", sorted(factors.CONTINUOUS))
def test_a_continuous_factor_trains_within_its_range_away_from_what_is_held_out(factor: str) -> None:
    rng = np.random.default_rng(0)
    drawn = np.array([factors.VALUES.training(factor, rng) for _ in range(2000)])
    held_out = np.array(factors.VALUES.held_out(factor))
    assert np.abs(drawn).max() <= 1
    assert np.abs(drawn).max() > 0.95
    assert np.abs(held_out).max() <= 1
    distances = np.abs(drawn[:, None] - held_out[None]).max(axis=2)
    assert distances.min() > MARGIN


@pytest.mark.parametrize("factor", sorted(EIGHT))
def test_the_scenes_of_held_out_settings_never_occur_in_demonstrations(factor: str) -> None:
    def looks(scenes: list[Scene]) -> set[bytes]:
        names = sorted(MOVES[factor] - {"round_place", "box_place"})
        return {b"".join(getattr(scene, name).tobytes() for name in names) for scene in scenes}

    trials = [factors.trial_scene(INSERT, Condition(factor, setting, 0)) for setting in range(10)]
    assert len(looks(trials)) == 10
    assert not looks(trials) & looks(_demos(INSERT, factor, 200))


def test_object_pose_widens_the_range_by_a_quarter_and_is_tested_in_the_rim() -> None:
    def units(scenes: list[Scene]) -> NDArray[np.float64]:
        places = np.array([scene.object_place for scene in scenes])
        return np.asarray((places - INSERT.object_range.centre) / np.array(INSERT.object_range.half), np.float64)

    nominal = np.abs(units(_demos(INSERT, None, 400)))
    wide = np.abs(units(_demos(INSERT, "object_pose", 400)))
    trials = np.abs(units([factors.trial_scene(INSERT, Condition("object_pose", i, 0)) for i in range(10)]))
    assert 0.97 < nominal.max() <= 1 + 1e-5
    assert 1.2 < wide.max() <= 1.25 + 1e-5
    assert (trials.max(axis=1) > 1).all()
    assert trials.max() <= 1.25


@pytest.mark.parametrize("factor", sorted(EIGHT))
def test_a_factor_moves_only_its_own_part_of_the_scene(factor: str) -> None:
    nominal, varied = _demos(INSERT, None, 1)[0], _demos(INSERT, factor, 20)
    for field in dataclasses.fields(Scene):
        moved = any(not np.array_equal(getattr(nominal, field.name), getattr(scene, field.name)) for scene in varied)
        assert moved == (field.name in MOVES[factor] | ALWAYS_DRAWN), field.name


@pytest.mark.parametrize("factor", sorted(EIGHT))
def test_every_factor_can_be_seen_or_felt(factor: str) -> None:
    """The same trial with the factor at its setting and at nominal gives other images; nothing else changes."""
    task = TabletopTask(INSERT, 48)
    for setting in range(drawing.SETTINGS):
        scene = factors.trial_scene(INSERT, Condition(factor, setting, 0))
        plain = factors.trial_scene(INSERT, Condition(None, setting, 0))
        own = {name: getattr(plain, name) for name in MOVES[factor]}
        before, after = (
            task.frames(SceneBatch.stack([one], "cpu"))[0].float() for one in (dataclasses.replace(scene, **own), scene)
        )
        changed = ((before - after).abs().amax(dim=2)[0, 0] > 12).float().mean()
        assert changed > 0.005, setting


def test_distractors_keep_clear_of_the_object_and_the_target() -> None:
    for scene in _demos(PICK_PLACE, "distractor", 200):
        taken = [scene.object_place, scene.target_place, scene.round_place[:2], scene.box_place[:2]]
        gaps = [np.hypot(*(taken[i] - taken[j])) for i in range(4) for j in range(i)]
        assert min(gaps) > factors.DISTRACTOR_GAP - 1e-5
        assert scene.round_place[4] == scene.box_place[4] == 1


def test_every_trial_shows_the_object() -> None:
    task = TabletopTask(PICK_PLACE, 48)
    conditions = [Condition(factor, setting, 0) for factor in (None, *task.factors) for setting in range(10)]
    scenes = [factors.trial_scene(PICK_PLACE, condition) for condition in conditions]
    far = [dataclasses.replace(scene, object_place=scene.object_place + np.float32(9)) for scene in scenes]
    with_object = task.frames(SceneBatch.stack(scenes, "cpu"))
    without = task.frames(SceneBatch.stack(far, "cpu"))
    pixels = ((with_object.int() - without.int()).abs().amax(dim=2)[:, 0] > 20).flatten(1).sum(dim=1)
    assert int(pixels.min()) >= 10
    assert torch.median(pixels) >= 16
