"""Trainers of policies that people or programs outside measure: what a study's `trainer:` names, behind the ports.

`diffusion` is our own policy on a LeRobot dataset. The others run a program in an environment of its own; nothing of it
is imported. Each leaves a policy in the run's folder and says what was measured, if anything was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from factored_scaling.backends.outcome import Outcome
from factored_scaling.backends.protocol import Embedder
from factored_scaling.core.design import RunSpec
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import UnknownName
from factored_scaling.progress import Progress

KINDS = ("command", "diffusion", "lerobot")


class OutsideTrainer(Protocol):
    """A Trainer whose policies are measured by its own program, or by people."""

    # the study's folder
    folder: Path

    @property
    def described(self) -> Mapping[str, Any]:
        """What makes the policies, for the record: two runs whose descriptions differ may not belong on one curve."""
        ...

    def check(self, episodes: Sequence[str]) -> None:
        """An error that says what to do when one of the episodes cannot be had; asked before workers start."""
        ...

    def train(self, run: RunSpec, folder: Path, progress: Progress) -> None:
        """Train and leave the policy in `folder`; called again on the same folder, go on where it stopped."""
        ...

    def outcome(self, run: RunSpec, folder: Path, factors: Sequence[str], progress: Progress) -> Outcome:
        """What came of a trained run; without trials and scores it waits for people."""
        ...

    def embedder(self, progress: Progress) -> HeldOutEmbedder | None:
        """What FSC-Proxy needs of the policies; None where the trainer cannot look inside them."""
        ...


class HeldOutEmbedder(Embedder, Protocol):
    """An Embedder that knows its held-out observations."""

    def factors(self) -> Sequence[str | None]:
        """The factor that each of them varies."""
        ...


class UnknownTrainer(UnknownName):
    """A trainer that there is not."""

    kind = "trainer"


def trainer_settings(spec: StudySpec) -> dict[str, Any]:
    """The study's `trainer:`, told where the study's dataset is unless it names another.

    A study with a dataset and no trainer gets our own policy. Empty when the simulator trains, or nobody.
    """
    settings = dict(spec.trainer)
    if spec.dataset is None or spec.task is not None:
        return settings
    return {"dataset": spec.dataset, **(settings or {"kind": "diffusion"})}


def trained_here(settings: Mapping[str, Any]) -> bool:
    """Whether a worker trains our own policy itself, in the simulator or on a dataset, and no program outside does."""
    return not settings or settings.get("kind") == "diffusion"


def load_trainer(
    settings: Mapping[str, Any],
    policy: Mapping[str, Any],
    home: Path,
    device: str | None,
    evaluation: Mapping[str, Any] = MappingProxyType({}),
) -> OutsideTrainer:
    """The trainer that a study's `trainer:` describes. `home` is the study's folder, from which paths are read."""
    kind = settings.get("kind", "command")
    if kind not in KINDS:
        raise UnknownTrainer(str(kind), KINDS, where="trainer.kind")
    if kind == "lerobot":
        from factored_scaling.backends.lerobot import LerobotPolicy, LerobotSettings, LerobotTrainer

        place = home.resolve()
        read = LerobotSettings.from_mapping(settings, policy, place, evaluation)
        return LerobotTrainer(LerobotPolicy.from_mapping(policy), read, place, device)
    if kind == "diffusion":
        from factored_scaling.backends.diffusion import DiffusionSettings, DiffusionTrainer

        return DiffusionTrainer(DiffusionSettings.from_mapping(settings, policy, home.resolve()), home, device)
    from factored_scaling.backends.command import CommandSettings, CommandTrainer

    return CommandTrainer(CommandSettings.from_mapping(settings, policy, evaluation), home, device)
