"""Simulators. Importing this loads none of them; `load_task` loads the one that is asked for."""

from __future__ import annotations

from factored_scaling.errors import UnknownTask
from factored_scaling.sim.task import Act, Condition, DemoRequest, Task

TASKS = ("tabletop/pick-place", "tabletop/insert")
MANISKILL_TASKS = (
    "maniskill/pick-place",
    "maniskill/peg-visual",
    "maniskill/peg-spatial",
    "maniskill/pull-visual",
    "maniskill/pull-spatial",
)


def load_task(name: str, image_size: int | None = None) -> Task:
    """The task registered under `name`, e.g. `tabletop/pick-place` or `maniskill/pull-visual`."""
    if name in MANISKILL_TASKS:
        from factored_scaling.sim.maniskill import make_task as make_maniskill_task

        return make_maniskill_task(name, image_size)
    if name not in TASKS:
        raise UnknownTask(name, (*TASKS, *MANISKILL_TASKS))
    from factored_scaling.sim.tabletop import make_task

    return make_task(name, image_size)


__all__ = ["MANISKILL_TASKS", "TASKS", "Act", "Condition", "DemoRequest", "Task", "load_task"]
