"""Shared parts of the three environments: robot, table, walls, lamp, cameras, distractors around a task's objects."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
import sapien
import torch
from mani_skill.envs.sapien_env import BaseEnv
from mani_skill.sensors.camera import CameraConfig
from mani_skill.utils.sapien_utils import look_at
from numpy.typing import NDArray

from factored_scaling.sim.maniskill import paint
from factored_scaling.sim.maniskill.expert import Arm, Leg, follow
from factored_scaling.sim.maniskill.robot import GRIP_OPEN, robot_class
from factored_scaling.sim.maniskill.rules import BASE_X, Rules
from factored_scaling.sim.maniskill.scene import Scene

TABLE_X, TABLE_Y, TABLE_DEPTH = (-0.50, 0.50), (-0.60, 0.60), 0.04
FLOOR = -0.70
WALL_X, WALL_Y, WALL_TOP = -1.15, 1.5, 1.6
# On the hand, in front of it, looking along the fingers and a little away from them.
WRIST_EYE, WRIST_LEAN, WRIST_VIEW = (0.070, 0.0, 0.020), 0.15, 1.40


class Stage(BaseEnv):  # type: ignore[misc]
    """A table in front of a Franka Panda, in a room. Subclasses add the objects, the success rule and the expert.

    Nothing is random here: `play(scene)` builds the scene from its values, independently of earlier scenes.
    Randomised by the values: table texture and height, wall texture, lamp, third-person camera, distractors, initial
    joints and the poses of the two objects.
    """

    def __init__(self, rules: Rules, scene: Scene, image_size: int, render: str | None, coarse: bool = True) -> None:
        self.rules = rules
        self.layout = scene
        self.image_size = image_size
        super().__init__(
            num_envs=1,
            obs_mode="none",
            reward_mode="none",
            control_mode="pd_joint_pos",
            robot_uids=robot_class(render is not None, coarse),
            sim_backend="physx_cpu",
            render_backend=render or "none",
        )

    # What a task adds

    def load_objects(self) -> None:
        """Put the task's objects where the layout says."""
        raise NotImplementedError

    def succeeded(self) -> bool:
        """Whether the task is done as things are now."""
        raise NotImplementedError

    def plans(self) -> list[list[Leg]]:
        """The expert's plans for the task, the preferred one first."""
        raise NotImplementedError

    # What others call

    def play(self, scene: Scene) -> None:
        """Reset to this scene."""
        self.layout = scene
        self.reset(seed=0, options={"reconfigure": True})

    def act(self, action: NDArray[np.float32]) -> None:
        """One control step towards a joint target."""
        # Like ManiSkill's position controllers, but without their tensors, which take as long as the physics.
        targets = [*action.tolist(), float(action[-1])]  # the second finger mirrors the first
        for joint, target in zip(self.agent.robot._objs[0].active_joints, targets, strict=True):
            joint.set_drive_target(target)
        for _ in range(self._sim_steps_per_control):
            self.scene.step()

    def proprioception(self) -> NDArray[np.float32]:
        """Seven joint positions and the place of a finger."""
        return np.asarray(self.agent.robot._objs[0].qpos[:8], dtype=np.float32)

    def look(self) -> NDArray[np.uint8]:
        """Render the current images: cameras × 3 × height × width."""
        self.capture()
        return self.captured()

    def capture(self) -> None:
        """Start rendering the current images; `captured` waits for them."""
        self.scene.update_render(update_sensors=True, update_human_render_cameras=False)
        for sensor in self._sensors.values():
            sensor.capture()

    def captured(self) -> NDArray[np.uint8]:
        """The last captured images: cameras × 3 × height × width.

        They are read through Vulkan. ManiSkill would hand them to CUDA first, for which every simulator process would
        need a CUDA context that takes turns with all others on the GPU.
        """
        views = [sensor.camera._render_cameras[0].get_picture("Color") for sensor in self._sensors.values()]
        return np.ascontiguousarray(np.stack([view[..., :3].transpose(2, 0, 1) for view in views]))

    def plan(self) -> NDArray[np.float32] | None:
        """The expert's actions from the initial joints; None if no plan is within reach."""
        arm = Arm(self.agent.robot._objs[0])
        for legs in self.plans():
            found = follow(arm, self.layout.joints, legs)
            if found is not None:
                return found
        return None

    # What ManiSkill calls

    def _load_agent(self, options: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        super()._load_agent(options, sapien.Pose([BASE_X, 0, 0]))

    def _load_scene(self, options: dict[str, Any]) -> None:
        self._load_room()
        for index, placed in enumerate(self.layout.distractors):
            height = self.layout.table_height + paint.half_height(placed.thing)
            pose = paint.standing(placed.x, placed.y, placed.yaw, height)
            paint.build(self.scene, f"distractor-{index}", pose, partial(paint.thing, placed.thing))
        self.load_objects()

    def _load_room(self) -> None:
        table_x, table_y = (sum(TABLE_X) / 2, sum(TABLE_Y) / 2)
        half = ((TABLE_X[1] - TABLE_X[0]) / 2, (TABLE_Y[1] - TABLE_Y[0]) / 2, TABLE_DEPTH / 2)
        builder = self.scene.create_actor_builder()
        builder.add_box_collision(sapien.Pose(), half)
        look, wall = self.layout.table, self.layout.background
        paint.build(
            self.scene,
            "table",
            sapien.Pose([table_x, table_y, self.layout.table_height - TABLE_DEPTH / 2]),
            lambda: paint.slab(look, half),
            builder,
        )
        height = WALL_TOP - FLOOR
        paint.build(
            self.scene,
            "room",
            sapien.Pose([0, 0, FLOOR]),
            lambda: [
                *paint.wall(wall, 2 * WALL_Y, height, (WALL_X, 0, height / 2), facing=0.0),
                *paint.wall(wall, 3.0, height, (WALL_X + 1.5, -WALL_Y, height / 2), facing=np.pi / 2),
                *paint.wall(wall, 3.0, height, (WALL_X + 1.5, WALL_Y, height / 2), facing=-np.pi / 2),
                *paint.floor((0.34, 0.33, 0.32), 6.0),
                paint.box((0.10, 0.11, -FLOOR / 2 - 0.002), (0.24, 0.25, 0.27), (BASE_X, 0, -FLOOR / 2 - 0.002)),
            ],
        )

    def _load_lighting(self, options: dict[str, Any]) -> None:
        self.scene.set_ambient_light(list(self.layout.ambient))
        self.scene.add_directional_light(list(self.layout.light_direction), list(self.layout.light_colour))

    @property
    def _default_sensor_configs(self) -> list[CameraConfig]:
        size = self.image_size
        common = {"width": size, "height": size, "near": 0.01, "far": 10.0, "shader_pack": "minimal"}
        eye = look_at(self.layout.camera_eye, self.rules.camera_target)
        cameras = [CameraConfig("third_person", eye, fov=self.rules.camera_view, **common)]
        if self.rules.cameras == 2:
            hand = next(link for link in self.agent.robot.links if link.name == "panda_hand")
            lean = np.pi / 2 - WRIST_LEAN
            # A camera looks along its x axis; the fingers point along the hand's z.
            pose = sapien.Pose(WRIST_EYE, _facing_back(-lean))
            cameras.append(CameraConfig("wrist", pose, fov=WRIST_VIEW, mount=hand, **common))
        return cameras

    def _setup_sensors(self, options: dict[str, Any]) -> None:
        super()._setup_sensors(options)
        for sensor in self._sensors.values():
            sensor.camera._render_cameras[0].set_texture("BRDFLUT", _no_reflections())

    def _initialize_episode(self, env_idx: torch.Tensor, options: dict[str, Any]) -> None:
        joints = torch.tensor([[*self.layout.joints, GRIP_OPEN, GRIP_OPEN]], dtype=torch.float32)
        self.agent.reset(joints)

    def evaluate(self) -> dict[str, torch.Tensor]:
        """ManiSkill's form of `succeeded`."""
        return {"success": torch.tensor([self.succeeded()])}


@cache
def _no_reflections() -> sapien.render.RenderTexture:
    """A table of how surfaces reflect the environment map, of which there is none.

    Without it every process would first integrate SAPIEN's own table of 512 by 512 values: five seconds on a CPU.
    """
    return sapien.render.RenderTexture(np.zeros((1, 1, 4), np.float32), 2, "R32G32B32A32Sfloat")


def _facing_back(angle: float) -> list[float]:
    """A turn about y after half a turn about z."""
    return [0.0, -float(np.sin(angle / 2)), 0.0, float(np.cos(angle / 2))]
