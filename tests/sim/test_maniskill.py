"""The ManiSkill settings as the rest of the house sees them: the same question always gets the same answer."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.sim.maniskill_cases import Wanderer, needs_maniskill, spread

import factored_scaling.sim.maniskill as maniskill
from factored_scaling.data.frames import FrameTable
from factored_scaling.errors import FscError, InvalidInput, UnknownFactor, UnknownTask
from factored_scaling.sim import MANISKILL_TASKS, Condition, DemoRequest, load_task
from factored_scaling.sim.maniskill import SETTINGS, ManiSkillTask, factors, shapes
from factored_scaling.sim.maniskill.task import make_task
from factored_scaling.sim.maniskill.worker import Show, Shown

pytestmark = pytest.mark.slow  # every one starts simulator processes

# The three tasks, each in its setting with the most factors.
TASKS = ("maniskill/pick-place", "maniskill/peg-spatial", "maniskill/pull-spatial")
SIZE = 48


@pytest.fixture(scope="module", params=TASKS)
def task(request: pytest.FixtureRequest) -> Iterator[ManiSkillTask]:
    needs_maniskill()
    made = make_task(request.param, SIZE, processes=2)
    yield made
    made.close()


def _same(first: FrameTable, second: FrameTable) -> bool:
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in ("images", "state", "action"))


def test_the_names_are_registered_and_mistakes_in_them_are_told() -> None:
    assert tuple(SETTINGS) == MANISKILL_TASKS
    with pytest.raises(UnknownTask, match="did you mean maniskill/pull-visual"):
        load_task("maniskill/pul-visual")
    with pytest.raises(InvalidInput, match="image size 8"):
        make_task("maniskill/pull-visual", 8)
    with pytest.raises(InvalidInput, match="processes"):
        make_task("maniskill/pull-visual", processes=0)


def test_the_number_of_processes_can_be_told_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSC_SIM_PROCESSES", "3")
    assert make_task("maniskill/pull-visual").processes == 3
    monkeypatch.setenv("FSC_SIM_PROCESSES", "many")
    with pytest.raises(InvalidInput, match="FSC_SIM_PROCESSES"):
        make_task("maniskill/pull-visual")


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maniskill, "find_spec", lambda name: None)
    with pytest.raises(FscError, match=r"pip install '\.\[maniskill\]'"):
        load_task("maniskill/pull-visual")


def test_the_settings_are_the_papers() -> None:
    sizes = {name: (rules.cameras, rules.image_size, len(rules.factors)) for name, rules in SETTINGS.items()}
    assert sizes == {
        "maniskill/pick-place": (2, 192, 5),
        "maniskill/peg-visual": (2, 256, 5),
        "maniskill/peg-spatial": (2, 256, 8),
        "maniskill/pull-visual": (1, 192, 5),
        "maniskill/pull-spatial": (1, 192, 8),
    }


def test_a_demonstration_does_not_depend_on_neighbours_order_or_process(task: ManiSkillTask) -> None:
    names = ("distractor", task.factors[-1])
    requests = [DemoRequest(f"demo-{i}", name, seed=i) for i, name in enumerate(names)]
    together = task.demonstrate(requests)
    assert together.images.shape[1:] == (task.cameras, 3, SIZE, SIZE)
    assert together.state.shape[1] == together.action.shape[1] == 8
    lengths = np.diff(together.starts)
    assert ((lengths >= 122) & (lengths <= 158)).all()
    backwards = task.demonstrate(requests[:0:-1])
    assert _same(together.select(backwards.ids), backwards)
    # the same states without a renderer
    shown = [episode for _, episode in task.attempt(requests, pictures=False)]
    assert np.array_equal(np.concatenate([episode.state for episode in shown]), together.state)


def test_rollouts_do_not_depend_on_processes_order_or_what_ran_before(task: ManiSkillTask) -> None:
    conditions = spread(task.factors, 5)
    task.max_steps = 24
    try:
        first, second, third = Wanderer(), Wanderer(), Wanderer()
        scores = list(task.rollout(first, conditions))
        assert [condition for condition, _ in scores] == conditions
        assert list(task.rollout(second, conditions)) == scores
        assert first.seen == second.seen
        assert first.batches == second.batches
        list(task.rollout(third, conditions[::-1]))
        assert {4 - row: seen for row, seen in third.seen.items()} == first.seen
        assert all(len(seen) == 3 for seen in first.seen.values())
        images, states = task.first_frames(conditions)
        fresh = make_task(task.name, SIZE, processes=1)
        alone, state = fresh.first_frames(conditions[1:2])
        fresh.close()
        assert torch.equal(images[1], alone[0])
        assert torch.equal(states[1], state[0])
    finally:
        task.max_steps = task.rules.max_steps


def test_the_expert_succeeds_in_held_out_scenes_and_rollouts_stop_at_success(task: ManiSkillTask) -> None:
    hardest = "object_pose" if "object_pose" in task.factors else "camera_pose"
    conditions = [Condition(hardest, setting, 0) for setting in range(10)]
    scenes = [factors.trial_scene(task.rules, condition) for condition in conditions]
    shown = dict(task.pool(False).map([Show(scene, False) for scene in scenes]))
    plans = []
    for index in range(10):
        answer = shown[index]
        assert isinstance(answer, Shown)
        assert answer.done
        plans.append(answer.actions)
    asked = [0, 0]

    def replay(images: torch.Tensor, state: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        chunks = []
        for row in rows.tolist():
            begin = 8 * asked[row]
            asked[row] += 1
            padded = np.concatenate([plans[row], np.repeat(plans[row][-1:], 80, axis=0)])
            chunks.append(torch.from_numpy(padded[begin : begin + 16]))
        return torch.stack(chunks)

    assert [score for _, score in task.rollout(replay, conditions[:2])] == [1.0, 1.0]
    assert all(count <= -(-len(plan) // 8) for count, plan in zip(asked, plans[:2], strict=True))


AGAINST_STOCK = """
import sys
import numpy, torch
from factored_scaling.sim import Condition
from factored_scaling.sim.maniskill import factors
from factored_scaling.sim.maniskill.stages import stage_class
from factored_scaling.sim.maniskill.task import make_task

rules = make_task(sys.argv[1]).rules
scene = factors.trial_scene(rules, Condition("lighting", 0, 0))
stage = stage_class(rules)(rules, scene, 48, None)
stage.play(scene)
plan = stage.plan()
plan = (plan + numpy.random.default_rng(0).normal(0, 0.01, plan.shape)).astype(numpy.float32)
paths = []
for act in (stage.act, lambda action: stage._step_action(torch.from_numpy(action)[None])):
    stage.play(scene)
    paths.append([(act(action), stage.agent.robot._objs[0].qpos.tolist())[1] for action in plan])
assert len(paths[0]) > 100
assert paths[0] == paths[1]
"""


@pytest.mark.parametrize("name", TASKS)
def test_control_steps_are_those_of_maniskills_controllers(name: str) -> None:
    """In a process of its own, as everywhere: the simulator's libraries stay out of the tests' process."""
    needs_maniskill()
    done = subprocess.run([sys.executable, "-c", AGAINST_STOCK, name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_policy_that_answers_nonsense_is_told_so(task: ManiSkillTask) -> None:
    condition = Condition(None, 0, 0)
    with pytest.raises(InvalidInput, match="shape"):
        list(task.rollout(lambda images, state, rows: state, [condition]))
    with pytest.raises(InvalidInput, match="not finite"):
        list(task.rollout(lambda images, state, rows: torch.full((len(rows), 16, 8), torch.nan), [condition]))
    with pytest.raises(InvalidInput, match="at least 1"):
        list(task.rollout(Wanderer(), [condition], execute=0))
    with pytest.raises(UnknownFactor, match="did you mean"):
        list(task.rollout(Wanderer(), [Condition("camera_pos", 0, 0)]))
    assert list(task.rollout(Wanderer(), [])) == []
    assert len(task.demonstrate([])) == 0


UNGUARDED = """
from factored_scaling.sim import Condition, load_task

print(load_task("maniskill/pull-visual", 32).first_frames([Condition("lighting", 0, 0)])[0].shape)
"""


def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    needs_maniskill()
    (tmp_path / "script.py").write_text(UNGUARDED)
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=False)
    assert done.stdout == "torch.Size([1, 1, 3, 32, 32])\n", done.stderr


REFLECTING = """
import hashlib, sys
from mani_skill.envs.sapien_env import BaseEnv
from factored_scaling.sim import Condition
from factored_scaling.sim.maniskill import factors
from factored_scaling.sim.maniskill.rules import SETTINGS
from factored_scaling.sim.maniskill.stage import Stage
from factored_scaling.sim.maniskill.worker import Options, Simulator

def digest():
    found = hashlib.sha256()
    for name in sys.argv[1:]:
        rules = SETTINGS[name]
        simulator = Simulator(Options(rules, 64))
        for setting in range(4):
            scene = factors.trial_scene(rules, Condition(rules.factors[setting], setting, 0))
            found.update(simulator.stage(0, scene).look().tobytes())
    return found.hexdigest()

ours = digest()
Stage._setup_sensors = BaseEnv._setup_sensors
assert ours == digest()
"""


def test_pictures_are_the_same_with_sapiens_own_table_of_reflections() -> None:
    needs_maniskill()
    script = [sys.executable, "-c", REFLECTING, *TASKS]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


INSERTED_WITH_ERRORS = """
import numpy
from factored_scaling.sim import DemoRequest
from factored_scaling.sim.maniskill import factors
from factored_scaling.sim.maniskill.rules import SETTINGS
from factored_scaling.sim.maniskill.worker import Options, Simulator

rules = SETTINGS["maniskill/peg-visual"]
simulator, done = Simulator(Options(rules, rules.image_size, render=False)), 0
for number in range(10):
    stage = simulator.stage(0, factors.demo_scene(rules, DemoRequest("", None, number), 0))
    plan = stage.plan()
    errors = numpy.random.default_rng(number).normal(0, 0.004, (len(plan) // 8 + 1, 7))
    plan[:, :7] += numpy.repeat(errors, 8, axis=0)[: len(plan)]
    success = False
    for action in plan:
        stage.act(action)
        success = success or stage.succeeded()
    done += success
assert done >= 8, done
"""


def test_the_pegs_bevel_forgives_errors_of_a_few_millimetres() -> None:
    """Without the bevel one of these 10 insertions succeeds."""
    needs_maniskill()
    done = subprocess.run([sys.executable, "-c", INSERTED_WITH_ERRORS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_frustum_narrows_and_its_faces_look_outwards() -> None:
    needs_maniskill()
    mesh = shapes.frustum(0.02, 0.01, 0.1, 0.3)
    for y, half in ((0.1, 0.02), (0.3, 0.01)):
        ends = mesh.vertices[np.isclose(mesh.vertices[:, 1], y)]
        assert len(ends) >= 8
        assert np.abs(ends[:, [0, 2]]) == pytest.approx(half)
    corners = mesh.vertices[mesh.triangles]
    facing = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert ((facing * (corners.mean(1) - [0, 0.2, 0])).sum(1) > 0).all()
    assert ((facing[:, None] * mesh.normals[mesh.triangles]).sum(-1) > 0).all()
