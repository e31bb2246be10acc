"""A scene: everything about one trial that is fixed before it starts, as numbers; and many scenes as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import NDArray

Vector = NDArray[np.float32]


@dataclass(frozen=True)
class Scene:
    """One trial's scene. Lengths in metres, angles in radians, colours from 0 to 1."""

    camera: Vector  # origin, right, up, forward: 12
    light: Vector  # direction towards the light, colour, ambient share: 7
    table: Vector  # Texture.vector()
    background: Vector  # Texture.vector()
    table_height: Vector  # 1
    object_place: Vector  # x, y
    target_place: Vector  # x, y
    joints: Vector  # initial joint positions
    round_place: Vector  # x, y, cos and sin of the yaw, present (0 or 1)
    round_look: Vector  # half extents, colour
    box_place: Vector
    box_look: Vector


@dataclass(frozen=True)
class SceneBatch:
    """The same fields as `Scene`, each batch × size."""

    camera: torch.Tensor
    light: torch.Tensor
    table: torch.Tensor
    background: torch.Tensor
    table_height: torch.Tensor
    object_place: torch.Tensor
    target_place: torch.Tensor
    joints: torch.Tensor
    round_place: torch.Tensor
    round_look: torch.Tensor
    box_place: torch.Tensor
    box_look: torch.Tensor

    def __len__(self) -> int:
        return len(self.camera)

    @staticmethod
    def stack(scenes: Sequence[Scene], device: str) -> SceneBatch:
        """Scenes as tensors on a device."""
        columns = {}
        for field in fields(Scene):
            rows = np.stack([getattr(scene, field.name) for scene in scenes])
            columns[field.name] = torch.from_numpy(rows).to(device)
        return SceneBatch(**columns)

    def take(self, rows: torch.Tensor | slice) -> SceneBatch:
        """Some of the scenes."""
        return SceneBatch(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})
