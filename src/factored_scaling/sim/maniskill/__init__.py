"""The paper's tasks in ManiSkill 3 on a Franka Panda, with all eight factors. Importing this loads no ManiSkill."""

from __future__ import annotations

from importlib.util import find_spec

from factored_scaling.errors import FscError, installs
from factored_scaling.sim.maniskill.rules import SETTINGS
from factored_scaling.sim.maniskill.task import ManiSkillTask
from factored_scaling.sim.maniskill.task import make_task as _make_task

__all__ = ["SETTINGS", "ManiSkillTask", "make_task"]


def make_task(
    name: str, image_size: int | None = None, processes: int | None = None, coarse: bool = True
) -> ManiSkillTask:
    """The setting of that name; see `task.make_task`. FscError where ManiSkill is not installed."""
    for package in ("mani_skill", "sapien"):
        if find_spec(package) is None:
            raise FscError(f"{name} needs the package {package}", hint=installs("maniskill"))
    return _make_task(name, image_size, processes, coarse)
