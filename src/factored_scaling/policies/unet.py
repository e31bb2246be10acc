"""A 1-D U-Net over the action horizon, conditioned by a vector at every block (FiLM)."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from factored_scaling.policies.config import NORM_GROUPS, DiffusionConfig


class TimeEmbedding(nn.Module):
    """The diffusion step as sines and cosines of geometric frequencies, then two layers."""

    frequencies: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        frequencies = torch.exp(-math.log(10_000) * torch.arange(size // 2) / max(1, size // 2 - 1))
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.layers = nn.Sequential(nn.Linear(size // 2 * 2, 4 * size), nn.SiLU(), nn.Linear(4 * size, size))

    def forward(self, step: Tensor) -> Tensor:
        angles = step[:, None].float() * self.frequencies
        return cast(Tensor, self.layers(torch.cat([angles.sin(), angles.cos()], -1)))


class FilmBlock(nn.Module):
    """Two convolutions along time; between them the condition scales and shifts every channel."""

    def __init__(self, inputs: int, outputs: int, condition: int, kernel: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(inputs, outputs, kernel, padding=kernel // 2)
        self.norm1 = nn.GroupNorm(NORM_GROUPS, outputs)
        self.film = nn.Linear(condition, 2 * outputs)
        self.conv2 = nn.Conv1d(outputs, outputs, kernel, padding=kernel // 2)
        self.norm2 = nn.GroupNorm(NORM_GROUPS, outputs)
        self.shortcut = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        scale, shift = self.film(condition)[:, :, None].chunk(2, 1)
        hidden = functional.silu(self.norm1(self.conv1(x))) * (1 + scale) + shift
        hidden = functional.silu(self.norm2(self.conv2(hidden)))
        return cast(Tensor, hidden + self.shortcut(x))


class UNet(nn.Module):
    """Noisy actions (samples × horizon × size), diffusion step and observation → the same shape as the actions."""

    def __init__(self, size: int, observation: int, config: DiffusionConfig) -> None:
        super().__init__()
        widths = config.widths
        self.time = TimeEmbedding(config.time_embedding)
        condition = observation + config.time_embedding

        def level(inputs: int, outputs: int) -> nn.ModuleList:
            entries = [inputs] + [outputs] * (config.blocks - 1)
            return nn.ModuleList(FilmBlock(entry, outputs, condition, config.kernel) for entry in entries)

        self.down = nn.ModuleList(level(a, b) for a, b in zip([size, *widths[:-1]], widths, strict=True))
        self.shrink = nn.ModuleList(nn.Conv1d(width, width, 3, 2, 1) for width in widths[:-1])
        self.middle = level(widths[-1], widths[-1])
        upward = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.grow = nn.ModuleList(nn.ConvTranspose1d(a, b, 4, 2, 1) for a, b in upward)
        self.up = nn.ModuleList(level(2 * b, b) for _, b in upward)
        self.head = nn.Conv1d(widths[0], size, 1)

    def forward(self, actions: Tensor, step: Tensor, observation: Tensor) -> Tensor:
        condition = functional.silu(torch.cat([self.time(step), observation], -1))
        x = actions.transpose(1, 2)
        skips: list[Tensor] = []
        for number, blocks in enumerate(self.down):
            x = _through(blocks, x, condition)
            if number < len(self.shrink):
                skips.append(x)
                x = self.shrink[number](x)
        x = _through(self.middle, x, condition)
        for grow, blocks in zip(self.grow, self.up, strict=True):
            x = _through(blocks, torch.cat([grow(x), skips.pop()], 1), condition)
        return cast(Tensor, self.head(x)).transpose(1, 2)


def _through(blocks: nn.Module, x: Tensor, condition: Tensor) -> Tensor:
    for block in cast(nn.ModuleList, blocks):
        x = block(x, condition)
    return x
