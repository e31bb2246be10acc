"""What backends do: collect demonstrations, train policies, evaluate and embed them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from factored_scaling.core.dataset import Episode
from factored_scaling.core.design import RunSpec
from factored_scaling.core.trials import Trial
from factored_scaling.progress import Progress


class Collector(Protocol):
    """Makes demonstrations: a simulator's expert, or people with a robot."""

    def collect(self, order: Mapping[str, int], seed: int, progress: Progress) -> Sequence[Episode]:
        """Collect `order[factor]` demonstrations per factor (key "nominal" for none) and return their index entries."""
        ...


class Trainer(Protocol):
    """Turns a run's episodes into a policy."""

    def train(self, run: RunSpec, folder: Path, progress: Progress) -> None:
        """Train and leave the policy in `folder`; called again on the same folder, go on where it stopped."""
        ...


class Evaluator(Protocol):
    """Measures a trained policy."""

    def evaluate(self, run: RunSpec, folder: Path, done: Collection[str], progress: Progress) -> Iterator[Trial]:
        """Yield the run's trials; keys are the same every time, and those in `done` may be left out."""
        ...


class Embedder(Protocol):
    """φ of the policy in `folder`, for the offline proxy."""

    def embed(self, folder: Path, episodes: Sequence[str]) -> NDArray[np.float32]:
        """One row per episode: the embedding of its first observation."""
        ...

    def embed_held_out(self, folder: Path, run: RunSpec) -> NDArray[np.float32]:
        """One row per held-out initial observation of the run's evaluation."""
        ...
