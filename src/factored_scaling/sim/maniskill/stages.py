"""Which environment class plays a setting. Importing this loads ManiSkill."""

from __future__ import annotations

from factored_scaling.sim.maniskill.peg import PegInsertion
from factored_scaling.sim.maniskill.pick import PickPlace
from factored_scaling.sim.maniskill.pull import PullCubeTool
from factored_scaling.sim.maniskill.rules import Rules
from factored_scaling.sim.maniskill.stage import Stage

STAGES: dict[str, type[Stage]] = {"pick": PickPlace, "peg": PegInsertion, "pull": PullCubeTool}


def stage_class(rules: Rules) -> type[Stage]:
    """The environment class of the setting."""
    return STAGES[rules.stage]
