"""The backend `nearest-colour`: learns which colours are dots and which are backgrounds, and looks where a dot is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dot_lab.task import NEAR, make_task
from factored_scaling import Context, RunSpec, Trial
from factored_scaling.sim import Condition, DemoRequest


class NearestColour:
    """A `factored_scaling.Backend`. Settings of `backend:` in study.yaml arrive as keywords."""

    def __init__(self, trials: int = 40) -> None:
        self.trials = trials
        self.task = make_task("dot/reach")

    def train(self, run: RunSpec, folder: Path, context: Context) -> None:
        """Keep the colours of the dot and of the background of every demonstration."""
        requests = [DemoRequest(id_, _factor(id_), int(id_.rpartition("/")[2])) for id_ in run.episodes]
        table = self.task.demonstrate(requests)
        dots, backgrounds = [], []
        for episode, start in enumerate(table.starts[:-1]):
            picture, goal = table.images[start, 0], table.action[table.starts[episode + 1] - 1]
            column, row = np.minimum((goal * picture.shape[1]).astype(int), picture.shape[1] - 1)
            dots.append(picture[:, row, column])
            backgrounds.append(np.median(picture.reshape(3, -1), axis=1))
            context(episode + 1, len(requests), "training")
        np.savez(folder / "policy.npz", dots=dots, backgrounds=backgrounds)
        context.policy = "policy.npz"

    def evaluate(self, run: RunSpec, folder: Path, context: Context) -> Iterator[Trial]:
        """Trials of each factor: does the policy point at the dot?"""
        with np.load(folder / "policy.npz") as policy:
            dots, backgrounds = policy["dots"].astype(float), policy["backgrounds"].astype(float)
        for index in range(self.trials):
            condition = Condition(self.task.factors[index % 2], index % 4, index)
            picture, goal = self._scene(condition)
            pixels = picture.reshape(3, -1).T.astype(float)
            nearest = [np.min(((pixels[:, None] - known) ** 2).sum(-1), axis=1) for known in (dots, backgrounds)]
            best = int(np.argmax(nearest[1] - nearest[0]))
            row, column = divmod(best, picture.shape[1])
            there = (np.array([column, row]) + 0.5) / picture.shape[1]
            yield Trial(condition.key, float(np.linalg.norm(there - goal) < NEAR), (str(condition.factor),))
            context(index + 1, self.trials, "evaluating")

    def _scene(self, condition: Condition) -> tuple[np.ndarray, np.ndarray]:
        from dot_lab.task import _scene

        scene = _scene(condition)
        return scene.picture(self.task.image_size), scene.goal


def _factor(id_: str) -> str | None:
    name = id_.rpartition("/")[0]
    return None if name == "nominal" else name
