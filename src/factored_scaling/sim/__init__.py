"""Simulators. Importing this loads none of them; `load_task` loads one.

A task is registered under its name with a factory `make_task(name, image_size)`. Packages add tasks with an entry point
in the group `factored_scaling.tasks`; `package.module:make_task` works without one.
"""

from __future__ import annotations

from typing import cast

from factored_scaling.errors import UnknownTask
from factored_scaling.plugins import Registry
from factored_scaling.sim.task import Act, Condition, DemoRequest, Task

TABLETOP_TASKS = ("tabletop/pick-place", "tabletop/insert", "tabletop/push")
MANISKILL_TASKS = (
    "maniskill/pick-place",
    "maniskill/peg-visual",
    "maniskill/peg-spatial",
    "maniskill/pull-visual",
    "maniskill/pull-spatial",
)
TASKS = Registry(
    "factored_scaling.tasks",
    "task",
    {
        **dict.fromkeys(TABLETOP_TASKS, "factored_scaling.sim.tabletop:make_task"),
        **dict.fromkeys(MANISKILL_TASKS, "factored_scaling.sim.maniskill:make_task"),
    },
)


def load_task(name: str, image_size: int | None = None) -> Task:
    """The task registered under `name`, e.g. `tabletop/pick-place`, with square pictures of `image_size` pixels."""
    return cast(Task, TASKS.load(name, UnknownTask)(name, image_size))


__all__ = ["MANISKILL_TASKS", "TABLETOP_TASKS", "TASKS", "Act", "Condition", "DemoRequest", "Task", "load_task"]
