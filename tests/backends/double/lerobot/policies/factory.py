"""A diffusion policy with an image encoder whose features are the means of the picture's colours."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn


class Means(nn.Module):
    """The mean of each colour."""

    def forward(self, pictures: Tensor) -> Tensor:
        return pictures.mean(dim=(2, 3))


class Policy(nn.Module):
    """What the embedding looks at."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        config.image_features = [name for name in config.input_features if "images" in name]
        self.diffusion = nn.Module()
        self.diffusion.rgb_encoder = Means()

    def reset(self) -> None:
        """A new episode."""
        self.seen = 0

    def select_action(self, batch: dict[str, Any]) -> Tensor:
        """How many frames of the episode were seen, and the mean brightness of this one."""
        self.seen += 1
        if batch["task"] == ["break"]:
            raise RuntimeError("inside LeRobot")
        [camera] = self.config.image_features
        return torch.tensor([[float(self.seen), float(batch[camera].mean())]])

    @classmethod
    def from_pretrained(cls, path: str, config: SimpleNamespace) -> Policy:
        return cls(config)


def get_policy_class(kind: str) -> type[Policy]:
    return Policy


def make_pre_post_processors(config: Any, **settings: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    return lambda batch: batch, lambda action: action
