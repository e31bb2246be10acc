"""The five settings: objects, the paper's ranges, cameras and timing, in metres and radians."""

from __future__ import annotations

from dataclasses import dataclass

# World frame: the robot's base stands at x = BASE_X, the table's nominal top at z = 0, its middle near the origin.
BASE_X = -0.615
STATE_SIZE = ACTION_SIZE = 8  # seven joints and the gripper, the latter as the place of one finger in metres

VISUAL = ("camera_pose", "distractor", "table_texture", "lighting", "background")
SPATIAL = ("table_height", "object_pose", "robot_pose")


@dataclass(frozen=True, slots=True)
class PoseRange:
    """Where an object may lie on the table: x, y and yaw, uniform around a centre."""

    centre: tuple[float, float, float]
    half: tuple[float, float, float]

    def at(self, unit: tuple[float, ...], widen: float = 1.0) -> tuple[float, float, float]:
        """The pose at `unit` in [-1, 1]³, with the range widened by a factor."""
        x, y, yaw = (c + h * widen * u for c, h, u in zip(self.centre, self.half, unit, strict=True))
        return x, y, yaw


@dataclass(frozen=True, slots=True)
class Rules:
    """One setting."""

    name: str
    # Which environment it plays in: pick, peg or pull.
    stage: str
    factors: tuple[str, ...]
    # The third-person camera, and with two the one on the wrist.
    cameras: int
    image_size: int
    max_steps: int
    manipulated: PoseRange
    goal: PoseRange
    camera_eye: tuple[float, float, float]
    camera_target: tuple[float, float, float]
    camera_view: float
    # How far camera pose moves the eye, robot pose each joint, table height the table.
    eye_half: tuple[float, float, float]
    joint_half: float = 0.0
    height_half: float = 0.0
    # The least distance of the two objects' centres.
    gap: float = 0.0


_PICK = Rules(
    name="maniskill/pick-place",
    stage="pick",
    factors=VISUAL,
    cameras=2,
    image_size=192,
    max_steps=200,
    manipulated=PoseRange((-0.10, 0.0, 0.0), (0.20, 0.20, 0.0)),
    goal=PoseRange((-0.10, 0.0, 0.0), (0.15, 0.20, 0.0)),
    camera_eye=(0.62, 0.0, 0.62),
    camera_target=(-0.15, 0.0, 0.09),
    camera_view=0.80,
    eye_half=(0.05, 0.10, 0.10),
    gap=0.15,
)


def _peg(name: str, factors: tuple[str, ...]) -> Rules:
    return Rules(
        name=name,
        stage="peg",
        factors=factors,
        cameras=2,
        image_size=256,
        max_steps=200,
        manipulated=PoseRange((-0.08, -0.14, 0.0), (0.04, 0.04, 0.13)),
        goal=PoseRange((-0.06, 0.24, 0.0), (0.04, 0.04, 0.13)),
        camera_eye=(0.60, -0.10, 0.52),
        camera_target=(-0.12, 0.06, 0.09),
        camera_view=0.82,
        eye_half=(0.025, 0.025, 0.025),
        joint_half=0.015,
        height_half=0.025,
    )


def _pull(name: str, factors: tuple[str, ...]) -> Rules:
    return Rules(
        name=name,
        stage="pull",
        factors=factors,
        cameras=1,
        image_size=192,
        max_steps=200,
        manipulated=PoseRange((-0.20, -0.16, 0.0), (0.04, 0.08, 0.0)),
        goal=PoseRange((0.16, 0.04, 0.0), (0.04, 0.08, 0.13)),
        camera_eye=(0.70, 0.0, 0.62),
        camera_target=(-0.10, 0.0, 0.09),
        camera_view=0.78,
        eye_half=(0.05, 0.05, 0.05),
        joint_half=0.010,
        height_half=0.025,
    )


SETTINGS: dict[str, Rules] = {
    rules.name: rules
    for rules in (
        _PICK,
        _peg("maniskill/peg-visual", VISUAL),
        _peg("maniskill/peg-spatial", (*VISUAL, *SPATIAL)),
        _pull("maniskill/pull-visual", VISUAL),
        _pull("maniskill/pull-spatial", (*VISUAL, *SPATIAL)),
    )
}
