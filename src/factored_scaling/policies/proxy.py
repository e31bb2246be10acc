"""The embedding side of FSC-Proxy; the arithmetic is in `factored_scaling.core.proxy`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

    from factored_scaling.data.frames import FrameTable
    from factored_scaling.policies.diffusion import DiffusionPolicy


def embed(policy: DiffusionPolicy, images: NDArray[np.uint8] | Tensor) -> NDArray[np.float32]:
    """φ: the vision encoders' output for initial observations (samples × cameras × 3 × height × width, uint8)."""
    return policy.embed(images)


def embed_training(policy: DiffusionPolicy, table: FrameTable) -> NDArray[np.float32]:
    """φ of the first frame of every episode that the policy was trained on, in the order of its description."""
    subset = table.select(policy.description["episodes"])
    return embed(policy, subset.images[subset.starts[:-1]])
