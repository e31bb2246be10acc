"""Demonstrations kept compactly: what was asked for, states and actions; pictures are made from them when needed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from factored_scaling.errors import InvalidInput
from factored_scaling.io.atomic import whole
from factored_scaling.sim.task import DemoRequest


@dataclass(frozen=True)
class Recording:
    """One demonstration without its pictures. `attempt` says which draw succeeded; the ones before were rejected."""

    request: DemoRequest
    attempt: int
    state: NDArray[np.float32]  # steps × 8
    action: NDArray[np.float32]  # steps × 8


@dataclass(frozen=True)
class Recordings:
    """Demonstrations of one setting. `setting` is its name, e.g. maniskill/pull-visual."""

    setting: str
    episodes: tuple[Recording, ...]

    @property
    def rejected(self) -> int:
        """How many attempts of the expert failed and were drawn again."""
        return sum(episode.attempt for episode in self.episodes)

    def save(self, path: Path) -> None:
        """Write everything as one safetensors file, whole or not at all: about 9 kB an episode."""
        from safetensors.numpy import save_file

        arrays: dict[str, NDArray[Any]] = {
            "state": _joined([episode.state for episode in self.episodes]),
            "action": _joined([episode.action for episode in self.episodes]),
            "steps": np.array([len(episode.state) for episode in self.episodes], np.int64),
        }
        labels = [
            [episode.request.id, episode.request.factor, episode.request.seed, episode.attempt]
            for episode in self.episodes
        ]
        with whole(path) as partial:
            save_file(arrays, partial, {"setting": self.setting, "episodes": json.dumps(labels)})

    @classmethod
    def load(cls, path: Path) -> Recordings:
        """Read what `save` wrote."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                labels = json.loads(file.metadata()["episodes"])
                setting = file.metadata()["setting"]
                state, action, steps = (file.get_tensor(name) for name in ("state", "action", "steps"))
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            raise InvalidInput(f"is not a whole file of recordings ({error})", where=str(path)) from None
        ends = np.cumsum(steps)[:-1]
        parts = zip(labels, np.split(state, ends), np.split(action, ends), strict=True)
        return cls(
            setting,
            tuple(
                Recording(DemoRequest(id_, factor, seed), attempt, s, a) for (id_, factor, seed, attempt), s, a in parts
            ),
        )


def _joined(arrays: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    return np.concatenate(arrays) if arrays else np.empty((0, 8), np.float32)
