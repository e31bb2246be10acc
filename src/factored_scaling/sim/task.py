"""The interface of a simulator: named tasks with factors, an expert and held-out conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from factored_scaling.data.frames import FrameTable

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class DemoRequest:
    """A request for one demonstration. The same request gives the same episode in any batch."""

    id: str
    factor: str | None
    seed: int


@dataclass(frozen=True, slots=True)
class Condition:
    """One evaluation trial: which factor is varied, to which held-out setting, from which initial state."""

    factor: str | None
    setting: int
    initial: int

    @property
    def key(self) -> str:
        """The trial's name within a run."""
        return f"{self.factor or 'nominal'}/{self.setting}/{self.initial}"


# (images: batch × cameras × 3 × height × width uint8, state: batch × state size, rows) → batch × horizon × action size.
# `rows` are indices into the conditions of the rollout, so that a policy can draw its noise per trial.
Act = Callable[["torch.Tensor", "torch.Tensor", "torch.Tensor"], "torch.Tensor"]


class Task(Protocol):
    """A task of a simulator. All randomness comes from the requests and conditions passed in."""

    name: str
    factors: tuple[str, ...]
    cameras: int
    state_size: int
    action_size: int
    max_steps: int
    image_size: int
    settings_per_factor: int

    def demonstrate(self, requests: Sequence[DemoRequest], device: str = "cpu") -> FrameTable:
        """The expert's episodes for the requests; failed attempts are redrawn."""
        ...

    def first_frames(self, conditions: Sequence[Condition], device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
        """Initial images and states of the conditions, without rolling anything out."""
        ...

    def rollout(
        self, act: Act, conditions: Sequence[Condition], execute: int = 8, device: str = "cpu"
    ) -> Iterator[tuple[Condition, float]]:
        """Run the policy under every condition and yield each one's score, in the order of the conditions."""
        ...

    def rollout_many(
        self, act: Act, policies: int, conditions: Sequence[Condition], execute: int = 8, device: str = "cpu"
    ) -> Iterator[tuple[int, float]]:
        """Several policies behind one `act`, side by side: row r is condition r mod n of policy r div n.

        Yields (row, score), each policy's rows in order. Batches of a policy are the same as without the others.
        """
        ...
