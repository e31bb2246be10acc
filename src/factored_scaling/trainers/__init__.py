"""Trainers for other people's stacks: what a study's `trainer:` names, behind the ports.

A trainer here runs a program in an environment of its own; nothing of it is imported. It leaves a policy in the run's
folder, and says in a small JSON what was measured, if anything was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from factored_scaling.core.design import RunSpec
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import UnknownName
from factored_scaling.ports import Progress
from factored_scaling.trainers.outcome import Outcome

KINDS = ("command", "lerobot")


class OutsideTrainer(Protocol):
    """A Trainer whose policies are measured by its own program, or by people."""

    # the study's folder
    folder: Path

    @property
    def described(self) -> Mapping[str, Any]:
        """What makes the policies, for the record: two runs whose descriptions differ may not belong on one curve."""
        ...

    def train(self, run: RunSpec, folder: Path, progress: Progress) -> None:
        """Train and leave the policy in `folder`; called again on the same folder, go on where it stopped."""
        ...

    def outcome(self, run: RunSpec, folder: Path, factors: Sequence[str], progress: Progress) -> Outcome:
        """What came of a trained run; without trials and scores it waits for people."""
        ...


class UnknownTrainer(UnknownName):
    """A trainer that there is not."""

    kind = "trainer"


def trainer_settings(spec: StudySpec) -> dict[str, Any]:
    """The study's `trainer:`; LeRobot's takes its episodes from the study's `dataset:` unless it names another."""
    settings = dict(spec.trainer)
    if settings.get("kind") == "lerobot" and spec.dataset is not None:
        settings.setdefault("dataset", spec.dataset)
    return settings


def load_trainer(
    settings: Mapping[str, Any], policy: Mapping[str, Any], home: Path, device: str | None
) -> OutsideTrainer:
    """The trainer that a study's `trainer:` describes. `home` is the study's folder, from which paths are read."""
    kind = settings.get("kind", "command")
    if kind not in KINDS:
        raise UnknownTrainer(str(kind), KINDS, where="trainer.kind")
    if kind == "lerobot":
        from factored_scaling.trainers.lerobot import LerobotPolicy, LerobotSettings, LerobotTrainer

        place = home.resolve()
        return LerobotTrainer(
            LerobotPolicy.from_mapping(policy), LerobotSettings.from_mapping(settings, policy, place), place, device
        )
    from factored_scaling.trainers.command import CommandSettings, CommandTrainer

    return CommandTrainer(CommandSettings.from_mapping(settings, policy), home, device)
