"""A synthetic task that needs eyes: a dot in the image says where to go, the state says where one is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from factored_scaling.data.frames import FrameTable
from factored_scaling.policies.config import DiffusionConfig

FACTORS = ("dot_colour", "background")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def dots(episodes: int, seed: int = 0, length: int = 20, size: int = 24) -> FrameTable:
    """Episodes that walk from the centre to the dot, at most 0.1 per step and axis."""
    random = np.random.default_rng(seed)
    images = np.full((episodes * length, 1, 3, size, size), 60, dtype=np.uint8)
    state = np.zeros((episodes * length, 2), dtype=np.float32)
    action = np.zeros((episodes * length, 2), dtype=np.float32)
    for episode in range(episodes):
        goal, place = random.uniform(-0.8, 0.8, 2), np.zeros(2)
        column, row = ((goal + 1) / 2 * (size - 1)).round().astype(int)
        for frame in range(episode * length, (episode + 1) * length):
            images[frame, 0, 0, max(0, row - 2) : row + 3, max(0, column - 2) : column + 3] = 220
            state[frame] = place
            place = place + np.clip(goal - place, -0.1, 0.1)
            action[frame] = place
    return FrameTable(
        images,
        state,
        action,
        np.arange(episodes + 1) * length,
        tuple(f"{FACTORS[episode % 2]}/{seed}/{episode}" for episode in range(episodes)),
        tuple(FACTORS[episode % 2] for episode in range(episodes)),
    )


@pytest.fixture(scope="session")
def make_dots() -> Callable[..., FrameTable]:
    return dots


@pytest.fixture(scope="session")
def table() -> FrameTable:
    return dots(12)


@pytest.fixture(scope="session")
def tiny() -> DiffusionConfig:
    """The smallest policy that still has every part."""
    return DiffusionConfig.preset(
        "small", encoder_width=4, widths=[8, 16], batch=8, noise_samples=2, updates=60, warmup=10, inference_steps=3
    )


@pytest.fixture
def silent() -> Callable[..., None]:
    def progress(done: int, total: int, note: str = "") -> None:
        pass

    return progress
