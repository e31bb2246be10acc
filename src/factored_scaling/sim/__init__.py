"""Simulators. Importing this loads none of them; `load_task` loads the one that is asked for."""

from __future__ import annotations

from factored_scaling.errors import UnknownTask
from factored_scaling.sim.task import Act, Condition, DemoRequest, Task

TASKS = ("tabletop/pick-place", "tabletop/insert")


def load_task(name: str, image_size: int | None = None) -> Task:
    """The task registered under `name`, e.g. `tabletop/pick-place`."""
    if name not in TASKS:
        raise UnknownTask(name, TASKS)
    from factored_scaling.sim.tabletop import make_task

    return make_task(name, image_size)


__all__ = ["TASKS", "Act", "Condition", "DemoRequest", "Task", "load_task"]
