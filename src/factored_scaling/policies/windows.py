"""Frames on the device: windows gathered by index, colours jittered, states and actions normalised. No data loader."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from factored_scaling.data.frames import FrameTable
from factored_scaling.errors import NotEnoughData

JITTERS = 4  # brightness, contrast, saturation, hue
_MASK = (1 << 64) - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class DeviceFrames:
    """A frame table as tensors. Several policies can share one; each then has its own list of frames to sample."""

    images: Tensor  # frames × cameras × 3 × height × width, uint8
    state: Tensor  # frames × state size
    action: Tensor  # frames × action size
    last: Tensor  # for every frame, the last frame of its episode

    @classmethod
    def of(cls, table: FrameTable, device: str) -> Self:
        """The table's frames on `device`, not copied on the CPU."""
        lengths = np.diff(table.starts)
        last = np.repeat(table.starts[1:] - 1, lengths)
        if not len(last):
            raise NotEnoughData("there are no frames to train on")
        arrays = (table.images, table.state, table.action, last)
        # A read-only array (a memory map, say) must be copied before torch may hold it.
        writable = (np.require(array, requirements=["C", "W"]) for array in arrays)
        return cls(*(torch.from_numpy(array).to(device) for array in writable))

    def actions_from(self, frames: Tensor, horizon: int) -> Tensor:
        """The next `horizon` actions from each frame; beyond the end of the episode its last action repeats."""
        steps = torch.arange(horizon, device=frames.device)
        return self.action[torch.minimum(frames[:, None] + steps, self.last[frames, None])]


class Scaling(nn.Module):
    """An affine map fitted to the training data, and its inverse; part of the policy's weights."""

    offset: Tensor
    scale: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("offset", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))

    def fit(self, values: Tensor, method: str) -> None:
        """Fit to `values` (… × size): `min-max` to ±1, or `mean-std`. A constant dimension is only shifted."""
        rows = values.reshape(-1, values.shape[-1]).cpu().double()  # on the CPU: not every device has doubles
        if method == "min-max":
            low, high = rows.amin(0), rows.amax(0)
            offset, scale = (low + high) / 2, (high - low) / 2
        else:
            offset, scale = rows.mean(0), rows.std(0, correction=0)
        self.offset.copy_(offset)
        self.scale.copy_(torch.where(scale > 1e-6, scale, torch.ones_like(scale)))

    def forward(self, values: Tensor) -> Tensor:
        return (values - self.offset) / self.scale

    def inverse(self, values: Tensor) -> Tensor:
        """Back to the units of the data."""
        return values * self.scale + self.offset

    def to_mapping(self) -> dict[str, Any]:
        """Plain numbers for the policy's description."""
        return {"offset": self.offset.tolist(), "scale": self.scale.tolist()}


class ColourJitter:
    """Changes the colours of images per sample and camera, on their device and without a host copy.

    Brightness, saturation and hue are one 3×3 matrix (hue turns the two colour axes of YIQ); contrast pulls towards the
    mean brightness of the image. One matrix product instead of conversions to HSV and back.
    """

    def __init__(self, light: float, saturation: float, hue: float, device: torch.device) -> None:
        self.light, self.saturation, self.hue = light, saturation, hue
        to_yiq = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
        self.to_yiq, self.from_yiq = to_yiq.to(device), torch.linalg.inv(to_yiq).to(device)

    def __call__(self, images: Tensor, uniform: Tensor) -> Tensor:
        """Float images in [0, 1] (samples × cameras × 3 × height × width); `uniform` (… × 4, ±1) is the randomness."""
        brightness, contrast = 1 + self.light * uniform[..., 0], 1 + self.light * uniform[..., 1]
        colourful, turn = 1 + self.saturation * uniform[..., 2], 2 * math.pi * self.hue * uniform[..., 3]
        rotation = images.new_zeros(*uniform.shape[:-1], 3, 3)
        rotation[..., 0, 0] = 1
        rotation[..., 1, 1] = rotation[..., 2, 2] = colourful * turn.cos()
        rotation[..., 2, 1] = colourful * turn.sin()
        rotation[..., 1, 2] = -rotation[..., 2, 1]
        matrix = self.from_yiq @ rotation @ self.to_yiq * (brightness * contrast)[..., None, None]
        pixels = images.flatten(-2)
        grey = self.to_yiq[0] @ pixels.mean(-1)[..., None]  # mean brightness per image
        shift = grey * (brightness * (1 - contrast))[..., None]
        jittered: Tensor = (matrix @ pixels + shift[..., None]).clamp_(0, 1)
        return jittered.view_as(images)


def shifted(images: Tensor, offsets: Tensor) -> Tensor:
    """Images (samples × cameras × channels × height × width) moved by whole pixels, borders repeated.

    `offsets` (samples × cameras × 2) count pixels: down, across.
    """
    for dim, offset in ((3, offsets[..., 0]), (4, offsets[..., 1])):
        size = images.shape[dim]
        source = (torch.arange(size, device=images.device) + offset[..., None]).clamp(0, size - 1)
        shape = [*images.shape[:2], 1, 1, 1]
        shape[dim] = size
        images = images.gather(dim, source.view(shape).expand(images.shape))
    return images


def generator(*words: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator seeded by these words alone, e.g. (seed, step)."""
    return torch.Generator(device).manual_seed(mix(*words))


def mix(*words: int) -> int:
    """The words hashed to 63 bits (splitmix64's finaliser, chained)."""
    value = 0
    for word in words:
        value = (value + (word & _MASK) + 0x9E3779B97F4A7C15) & _MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
        value ^= value >> 31
    return value >> 1


def trial_noise(seed: int, rows: NDArray[np.int64], decisions: NDArray[np.int64], count: int) -> NDArray[np.float32]:
    """Standard normal numbers, `count` per trial, from (seed, row, decision) alone."""
    with np.errstate(over="ignore"):
        key = _finalise(np.uint64(mix(seed)) + rows.astype(np.uint64) * _GOLDEN)
        key = _finalise(key + decisions.astype(np.uint64) * _GOLDEN)
        counter = np.arange(1, 2 * count + 1, dtype=np.uint64) * _GOLDEN
        bits = _finalise(key[:, None] + counter)
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53  # strictly between 0 and 1
    radius, angle = np.sqrt(-2 * np.log(uniform[:, :count])), 2 * np.pi * uniform[:, count:]
    normal: NDArray[np.float32] = (radius * np.cos(angle)).astype(np.float32)
    return normal


def _finalise(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
