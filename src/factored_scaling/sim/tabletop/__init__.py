"""A small manipulation world in torch."""

from __future__ import annotations

from factored_scaling.sim.tabletop.task import TabletopTask, make_task

__all__ = ["TabletopTask", "make_task"]
