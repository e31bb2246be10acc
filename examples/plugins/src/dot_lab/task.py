"""The task `dot/reach`: a pointer has to reach a dot. Colour of the dot and of the background vary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from factored_scaling.data.frames import FrameTable
from factored_scaling.sim import Act, Condition, DemoRequest

STEPS = 8  # of a demonstration
NEAR = 0.15  # of the picture's width: the dot is reached


def make_task(name: str, image_size: int | None = None) -> DotTask:
    """The factory that the entry point names."""
    return DotTask(name, image_size or 32)


class DotTask:
    """A `factored_scaling.sim.Task`: everything follows from the requests and conditions that it is given."""

    factors = ("dot_colour", "background")
    cameras, state_size, action_size, max_steps, settings_per_factor = 1, 2, 2, 16, 4

    def __init__(self, name: str, image_size: int) -> None:
        self.name = name
        self.image_size = image_size

    def demonstrate(self, requests: Sequence[DemoRequest], device: str = "cpu") -> FrameTable:
        """A straight line to the dot for each request."""
        images, states, actions = [], [], []
        for request in requests:
            scene = Scene(request.factor, np.random.default_rng([7, request.seed]))
            path = np.linspace(scene.start, scene.goal, STEPS + 1).astype(np.float32)
            images += [scene.picture(self.image_size)] * STEPS
            states.append(path[:-1])
            actions.append(path[1:])
        starts = np.arange(len(requests) + 1, dtype=np.int64) * STEPS
        ids, varied = tuple(r.id for r in requests), tuple(r.factor for r in requests)
        return FrameTable(
            np.stack(images)[:, None], np.concatenate(states), np.concatenate(actions), starts, ids, varied
        )

    def first_frames(self, conditions: Sequence[Condition], device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
        """Initial pictures and states of the conditions."""
        scenes = [_scene(condition) for condition in conditions]
        images = torch.from_numpy(np.stack([scene.picture(self.image_size) for scene in scenes])[:, None])
        return images.to(device), torch.from_numpy(np.stack([scene.start for scene in scenes])).to(device)

    def rollout(
        self, act: Act, conditions: Sequence[Condition], execute: int = 8, device: str = "cpu"
    ) -> Iterator[tuple[Condition, float]]:
        """Run the policy under every condition; 1 where it reaches the dot."""
        for row, score in self.rollout_many(act, 1, conditions, execute, device):
            yield conditions[row], score

    def rollout_many(
        self, act: Act, policies: int, conditions: Sequence[Condition], execute: int = 8, device: str = "cpu"
    ) -> Iterator[tuple[int, float]]:
        """Several policies side by side; yields (row, score)."""
        images, state = self.first_frames(list(conditions) * policies, device)
        goals = torch.from_numpy(np.stack([_scene(c).goal for c in conditions] * policies)).to(device)
        rows = torch.arange(len(state), device=device)
        for _ in range(0, self.max_steps, execute):
            actions = act(images, state, rows)
            state = actions[:, min(execute, actions.shape[1]) - 1].to(state)
        reached = (state - goals).norm(dim=1) < NEAR
        yield from enumerate(reached.float().tolist())


class Scene:
    """A dot, a pointer and their colours. `factor` says which colour is drawn; the other is the nominal one."""

    def __init__(self, factor: str | None, rng: np.random.Generator) -> None:
        self.start, self.goal = rng.uniform(0.1, 0.9, (2, 2)).astype(np.float32)
        drawn = rng.integers(0, 256, 3)
        self.dot = drawn if factor == "dot_colour" else np.array([200, 30, 30])
        self.background = drawn if factor == "background" else np.array([40, 40, 40])

    def picture(self, size: int) -> NDArray[np.uint8]:
        """3 × size × size."""
        y, x = (np.mgrid[:size, :size] + 0.5) / size
        inside = (x - self.goal[0]) ** 2 + (y - self.goal[1]) ** 2 < 0.1**2
        return np.where(inside, self.dot[:, None, None], self.background[:, None, None]).astype(np.uint8)


def _scene(condition: Condition) -> Scene:
    """Held-out scenes: seeds that no demonstration has."""
    return Scene(condition.factor, np.random.default_rng([11, condition.setting, condition.initial]))
