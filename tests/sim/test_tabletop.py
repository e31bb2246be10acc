"""The tabletop tasks as the rest of the house sees them: the same question always gets the same answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from factored_scaling.data.frames import FrameTable
from factored_scaling.errors import InvalidInput, UnknownFactor, UnknownTask
from factored_scaling.sim import TABLETOP_TASKS, Condition, DemoRequest, Task, load_task
from factored_scaling.sim.tabletop import TabletopTask, arm, expert, factors, make_task
from factored_scaling.sim.tabletop import render as render_module
from factored_scaling.sim.tabletop import task as task_module
from factored_scaling.sim.tabletop.physics import Situation
from factored_scaling.sim.tabletop.rules import Rules
from factored_scaling.sim.tabletop.scene import Scene


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _requests(task: Task, count: int) -> list[DemoRequest]:
    names = (None, *task.factors)
    return [DemoRequest(f"demo-{i}", names[i % len(names)], seed=i) for i in range(count)]


def _conditions(task: Task, count: int) -> list[Condition]:
    names = (None, *task.factors)
    return [Condition(names[i % len(names)], i % task.settings_per_factor, i) for i in range(count)]


def _same(first: FrameTable, second: FrameTable) -> bool:
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in ("images", "state", "action"))


class Replay:
    """A policy that knows the expert's plan of every trial, and counts what it was asked."""

    def __init__(self, task: TabletopTask, conditions: list[Condition], execute: int = 8) -> None:
        scenes = [factors.trial_scene(task.rules, condition) for condition in conditions]
        plans = np.stack([expert.plan(task.rules, scene) for scene in scenes])
        padding = np.repeat(plans[:, -1:], 80, axis=1)
        self.plans = torch.from_numpy(np.concatenate([plans, padding], axis=1))
        self.execute = execute
        self.asked = [0] * len(conditions)
        self.batches: list[int] = []
        self.spoiled: set[int] = set()

    def __call__(self, images: torch.Tensor, state: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        assert images.dtype == torch.uint8
        assert len(images) == len(state) == len(rows)
        self.batches.append(len(rows))
        chunks = []
        for row, joints in zip(rows.tolist(), state, strict=True):
            begin = self.asked[row] * self.execute
            self.asked[row] += 1
            still = joints.expand(16, -1)
            chunks.append(still if row in self.spoiled else self.plans[row, begin : begin + 16])
        return torch.stack(chunks)


@pytest.mark.parametrize(
    ("name", "size"),
    [("tabletop/pick-place", 48), ("tabletop/pick-place", 33), ("tabletop/insert", 33), ("tabletop/push", 33)],
)
def test_a_demonstration_does_not_depend_on_its_neighbours(name: str, size: int) -> None:
    task = load_task(name, size)
    requests = _requests(task, 7)
    together = task.demonstrate(requests)
    assert together.ids == tuple(request.id for request in requests)
    assert together.factors == tuple(request.factor for request in requests)
    assert _same(together, task.demonstrate(requests[::-1]).select(together.ids))
    assert _same(together, FrameTable.concatenate([task.demonstrate([request]) for request in requests]))
    assert not np.array_equal(together.images[0], task.demonstrate([DemoRequest("x", None, 999)]).images[0])


@pytest.mark.parametrize("name", TABLETOP_TASKS)
def test_a_first_frame_does_not_depend_on_its_neighbours(name: str) -> None:
    task = load_task(name, 37)
    conditions = _conditions(task, 41)
    images, states = task.first_frames(conditions)
    assert images.shape == (41, task.cameras, 3, 37, 37)
    assert states.shape == (41, task.state_size)
    backwards, states_backwards = task.first_frames(conditions[::-1])
    assert torch.equal(images, backwards.flip(0))
    assert torch.equal(states, states_backwards.flip(0))
    for index in (0, 5, 40):
        assert torch.equal(images[index], task.first_frames([conditions[index]])[0][0])
    assert len({image.numpy().tobytes() for image in images}) == 41


def test_parts_of_any_size_give_the_same_frames_and_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task("tabletop/pick-place", 32)
    conditions = _conditions(task, 11)
    requests = _requests(task, 5)
    frames, whole = task.first_frames(conditions)[0], task.demonstrate(requests)
    scores = list(task.rollout(Replay(task, conditions), conditions))
    monkeypatch.setattr(task_module, "CPU_BATCH", 3)
    assert torch.equal(frames, task.first_frames(conditions)[0])
    assert _same(whole, task.demonstrate(requests))
    replay = Replay(task, conditions)
    assert list(task.rollout(replay, conditions)) == scores
    assert max(replay.batches) == 3


@pytest.mark.parametrize("name", TABLETOP_TASKS)
def test_shapes_and_ranges_are_what_the_task_says(name: str) -> None:
    task = load_task(name)
    table = task.demonstrate(_requests(task, 9))
    assert task.image_size == 48
    assert table.images.shape[1:] == (task.cameras, 3, 48, 48)
    assert table.state.shape[1] == task.state_size
    assert table.action.shape[1] == task.action_size
    lengths = np.diff(table.starts)
    assert ((lengths >= 24) & (lengths <= 40)).all()
    assert lengths.max() <= task.max_steps
    assert (table.action >= np.array(arm.LOWER_LIMIT)).all()
    assert (table.action <= np.array(arm.UPPER_LIMIT)).all()


@pytest.mark.parametrize("name", TABLETOP_TASKS)
def test_demonstrations_are_smooth_and_their_actions_are_reached(name: str) -> None:
    task = load_task(name, 32)
    table = task.demonstrate(_requests(task, 18))
    for first, last in zip(table.starts[:-1], table.starts[1:], strict=True):
        states, actions = table.state[first:last], table.action[first:last]
        assert np.abs(states[1:] - actions[:-1]).max() < 1e-5
        assert (np.abs(np.diff(actions, axis=0)) < np.array(arm.RATE_LIMIT)).all()


@pytest.mark.parametrize("name", TABLETOP_TASKS)
def test_the_expert_succeeds_under_every_held_out_setting(name: str) -> None:
    task = make_task(name, 16)
    for factor in (None, *task.factors):
        conditions = [Condition(factor, setting, initial) for setting in range(10) for initial in range(4)]
        scores = [score for _, score in task.rollout(Replay(task, conditions), conditions)]
        assert np.mean(scores) >= 0.95, factor


@pytest.mark.parametrize("name", TABLETOP_TASKS)
def test_the_expert_succeeds_at_its_first_attempt_in_training(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = load_task(name, 16)
    attempts: list[int] = []
    real = factors.demo_scene

    def counted(rules: Rules, request: DemoRequest, attempt: int) -> Scene:
        attempts.append(attempt)
        return real(rules, request, attempt)

    monkeypatch.setattr(factors, "demo_scene", counted)
    task.demonstrate([DemoRequest(str(i), factor, i) for factor in (None, *task.factors) for i in range(8)])
    assert np.mean(np.array(attempts) == 0) >= 0.95


def test_a_failed_attempt_is_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task("tabletop/pick-place", 16)
    requests = _requests(task, 4)
    plain = task.demonstrate(requests)
    real: Callable[..., object] = expert.plan
    calls: list[int] = []

    def stumbles_once(*given: object) -> object:
        calls.append(1)
        planned = np.array(real(*given))
        if len(calls) == 2:
            planned[:, arm.GRIP] = 1
        return planned

    monkeypatch.setattr(expert, "plan", stumbles_once)
    redrawn = task.demonstrate(requests)
    assert redrawn.ids == plain.ids
    assert _same(plain.select(["demo-0", "demo-2", "demo-3"]), redrawn.select(["demo-0", "demo-2", "demo-3"]))
    assert not np.array_equal(plain.select(["demo-1"]).action, redrawn.select(["demo-1"]).action)


def test_a_rollout_drops_what_has_succeeded_and_ends_when_all_have() -> None:
    task = make_task("tabletop/pick-place", 16)
    conditions = _conditions(task, 6)
    replay = Replay(task, conditions)
    assert [score for _, score in task.rollout(replay, conditions)] == [1.0] * 6
    needed = -(-(expert.STEPS - expert.LEAVE) // 8)
    assert replay.batches == [6] * needed

    replay = Replay(task, conditions)
    replay.spoiled = {1, 4}
    outcome = list(task.rollout(replay, conditions))
    assert [condition for condition, _ in outcome] == conditions
    assert [score for _, score in outcome] == [1.0, 0.0, 1.0, 1.0, 0.0, 1.0]
    assert replay.batches == [6] * needed + [2] * (task.max_steps // 8 - needed)


def test_a_policy_without_numbers_scores_zero() -> None:
    task = make_task("tabletop/pick-place", 16)
    conditions = _conditions(task, 2)
    nothing = torch.full((2, 16, task.action_size), float("nan"))
    assert [score for _, score in task.rollout(lambda *_: nothing, conditions)] == [0.0, 0.0]


def test_nothing_asked_gives_nothing() -> None:
    task = load_task("tabletop/insert", 16)
    assert len(task.demonstrate([])) == 0
    assert task.first_frames([])[0].shape == (0, 2, 3, 16, 16)
    assert list(task.rollout(lambda *_: torch.empty(0), [])) == []


def test_what_does_not_exist_is_named() -> None:
    with pytest.raises(UnknownTask, match="did you mean tabletop/insert"):
        make_task("tabletop/insrt", None)
    with pytest.raises(InvalidInput, match="image size 4"):
        make_task("tabletop/insert", 4)
    task = make_task("tabletop/pick-place", 16)
    with pytest.raises(UnknownFactor, match="table_height"):
        task.demonstrate([DemoRequest("a", "table_height", 0)])
    with pytest.raises(InvalidInput, match="setting 10"):
        task.first_frames([Condition("lighting", 10, 0)])
    with pytest.raises(InvalidInput, match="shape"):
        list(task.rollout(lambda *_: torch.zeros(1, 4, 5), [Condition(None, 0, 0)]))
    with pytest.raises(InvalidInput, match="execute"):
        list(task.rollout(lambda *_: torch.zeros(1, 4, 5), [Condition(None, 0, 0)], execute=0))


def test_the_camera_at_the_hand_asks_its_device_for_nothing() -> None:
    """Nor for doubles, which Apple's GPUs do not have. Of the meta device nothing can be asked."""
    joints, place, flag = torch.zeros(2, arm.JOINTS), torch.zeros(2, 3), torch.zeros(2, dtype=torch.bool)
    views = []
    for device in ("cpu", "meta"):
        there = Situation(*(value.to(device) for value in (joints, place, flag, flag, flag)))
        views.append(render_module._wrist_view(there, arm.forward(there.joints)[2]))
    assert views[1].device.type == "meta"
    assert views[0].shape == views[1].shape == (2, 12)
