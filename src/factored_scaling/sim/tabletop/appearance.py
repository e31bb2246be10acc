"""Appearances: procedural textures and distractor sets, four for training and ten held out of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Colour = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Texture:
    """Two colours mixed by a pattern of triangle waves. `scale` is in waves per metre."""

    first: Colour
    second: Colour
    scale: float = 6.0
    angle: float = 0.0
    # How much of the pattern is stripes, checks, and how strongly the waves bend each other (a wood or cloud look).
    stripes: float = 1.0
    checks: float = 0.0
    bend: float = 0.0
    # 1 blends the two colours smoothly, 8 gives hard edges.
    sharpness: float = 1.0

    def vector(self) -> NDArray[np.float32]:
        """The numbers that the renderer reads, in its order."""
        direction = (self.scale * np.cos(self.angle), self.scale * np.sin(self.angle))
        rest = (self.stripes, self.checks, self.bend, self.sharpness)
        return np.array([*self.first, *self.second, *direction, *rest], dtype=np.float32)


@dataclass(frozen=True, slots=True)
class DistractorSet:
    """Two objects that do not belong to the task: a round one and a box. Sizes are half extents in metres."""

    round_size: Colour
    round_colour: Colour
    box_size: Colour
    box_colour: Colour


NOMINAL_TABLE = Texture((0.80, 0.68, 0.50), (0.70, 0.57, 0.40), scale=5.0, bend=0.25)
TRAINING_TABLES = (
    Texture((0.22, 0.32, 0.56), (0.66, 0.72, 0.80), scale=7.0, angle=0.2, checks=1.0, stripes=0.0, sharpness=8.0),
    Texture((0.22, 0.46, 0.26), (0.46, 0.66, 0.34), scale=6.0, angle=0.6, bend=0.3, sharpness=4.0),
    Texture((0.90, 0.90, 0.88), (0.56, 0.40, 0.56), scale=7.0, angle=1.2, sharpness=8.0),
    Texture((0.60, 0.26, 0.22), (0.28, 0.14, 0.12), scale=5.0, bend=0.5, sharpness=4.0),
)
HELD_OUT_TABLES = (
    Texture((0.24, 0.26, 0.62), (0.16, 0.16, 0.40), scale=6.0, angle=0.9, bend=0.4, sharpness=2.0),
    Texture((0.82, 0.40, 0.48), (0.62, 0.26, 0.36), scale=7.0, angle=0.3, sharpness=8.0),
    Texture((0.14, 0.14, 0.16), (0.78, 0.78, 0.76), scale=6.0, angle=0.8, checks=1.0, stripes=0.0, sharpness=8.0),
    Texture((0.90, 0.76, 0.26), (0.76, 0.56, 0.14), scale=5.0, angle=1.3, bend=0.2),
    Texture((0.24, 0.58, 0.60), (0.52, 0.82, 0.78), scale=5.0, checks=1.0, stripes=0.0, sharpness=4.0),
    Texture((0.62, 0.20, 0.16), (0.86, 0.46, 0.34), scale=6.0, angle=0.7, sharpness=8.0),
    Texture((0.42, 0.26, 0.58), (0.62, 0.50, 0.78), scale=5.0, angle=0.2, bend=0.5, sharpness=4.0),
    Texture((0.92, 0.94, 0.96), (0.78, 0.84, 0.92), scale=8.0, angle=0.4, checks=1.0, stripes=0.0, sharpness=8.0),
    Texture((0.16, 0.36, 0.20), (0.62, 0.72, 0.34), scale=6.0, angle=1.5, sharpness=8.0),
    Texture((0.64, 0.46, 0.34), (0.26, 0.16, 0.12), scale=7.0, angle=0.5, checks=1.0, stripes=0.0, sharpness=8.0),
)

NOMINAL_BACKGROUND = Texture((0.72, 0.76, 0.80), (0.66, 0.70, 0.75), scale=1.5)
TRAINING_BACKGROUNDS = (
    Texture((0.24, 0.34, 0.46), (0.18, 0.26, 0.36), scale=3.0, angle=1.57, sharpness=4.0),
    Texture((0.80, 0.62, 0.36), (0.66, 0.48, 0.26), scale=4.0, sharpness=8.0),
    Texture((0.40, 0.58, 0.42), (0.54, 0.70, 0.50), scale=4.0, angle=0.8, checks=1.0, stripes=0.0, sharpness=8.0),
    Texture((0.54, 0.30, 0.34), (0.42, 0.22, 0.26), scale=3.0, angle=0.5, bend=0.6),
)
HELD_OUT_BACKGROUNDS = (
    Texture((0.16, 0.16, 0.18), (0.24, 0.24, 0.26), scale=4.0, angle=0.4, sharpness=4.0),
    Texture((0.86, 0.82, 0.52), (0.92, 0.90, 0.72), scale=5.0, checks=1.0, stripes=0.0, sharpness=8.0),
    Texture((0.34, 0.62, 0.72), (0.22, 0.48, 0.62), scale=3.0, angle=0.9, bend=0.4),
    Texture((0.70, 0.42, 0.58), (0.58, 0.32, 0.48), scale=4.0, angle=1.2, sharpness=8.0),
    Texture((0.30, 0.42, 0.24), (0.20, 0.30, 0.16), scale=5.0, angle=0.2, bend=0.7, sharpness=2.0),
    Texture((0.94, 0.94, 0.94), (0.84, 0.84, 0.86), scale=2.0, angle=0.8),
    Texture((0.48, 0.36, 0.62), (0.36, 0.26, 0.50), scale=5.0, angle=0.8, checks=1.0, stripes=0.0, sharpness=8.0),
    Texture((0.76, 0.34, 0.20), (0.62, 0.24, 0.14), scale=3.0, angle=1.5, sharpness=2.0),
    Texture((0.44, 0.32, 0.22), (0.60, 0.46, 0.32), scale=6.0, angle=1.57, bend=0.3, sharpness=4.0),
    Texture((0.20, 0.28, 0.58), (0.72, 0.74, 0.82), scale=3.0, angle=0.3, sharpness=8.0),
)

# Sizes and colours near those of the objects to pick (a red ball, a blue peg) without ever being them.
TRAINING_DISTRACTORS = (
    DistractorSet((0.040, 0.040, 0.040), (0.92, 0.56, 0.08), (0.026, 0.026, 0.050), (0.14, 0.56, 0.50)),
    DistractorSet((0.038, 0.038, 0.044), (0.58, 0.08, 0.46), (0.040, 0.030, 0.026), (0.86, 0.22, 0.16)),
    DistractorSet((0.042, 0.042, 0.036), (0.92, 0.66, 0.60), (0.024, 0.024, 0.056), (0.42, 0.26, 0.74)),
    DistractorSet((0.050, 0.036, 0.036), (0.36, 0.16, 0.08), (0.036, 0.036, 0.024), (0.30, 0.56, 0.88)),
)
HELD_OUT_DISTRACTORS = (
    DistractorSet((0.042, 0.042, 0.042), (0.90, 0.48, 0.06), (0.024, 0.024, 0.050), (0.10, 0.40, 0.66)),
    DistractorSet((0.040, 0.040, 0.040), (0.72, 0.10, 0.52), (0.038, 0.030, 0.030), (0.90, 0.24, 0.10)),
    DistractorSet((0.052, 0.038, 0.038), (0.94, 0.74, 0.14), (0.026, 0.026, 0.052), (0.26, 0.18, 0.60)),
    DistractorSet((0.038, 0.038, 0.046), (0.90, 0.54, 0.56), (0.024, 0.024, 0.046), (0.22, 0.50, 0.90)),
    DistractorSet((0.044, 0.044, 0.038), (0.40, 0.08, 0.10), (0.024, 0.024, 0.054), (0.12, 0.18, 0.44)),
    DistractorSet((0.054, 0.032, 0.032), (0.84, 0.44, 0.20), (0.030, 0.030, 0.042), (0.46, 0.36, 0.86)),
    DistractorSet((0.040, 0.040, 0.040), (0.48, 0.26, 0.10), (0.026, 0.026, 0.048), (0.10, 0.60, 0.72)),
    DistractorSet((0.042, 0.042, 0.034), (0.96, 0.62, 0.50), (0.034, 0.028, 0.044), (0.80, 0.10, 0.18)),
    DistractorSet((0.038, 0.038, 0.044), (0.66, 0.26, 0.60), (0.036, 0.036, 0.030), (0.72, 0.14, 0.08)),
    DistractorSet((0.044, 0.044, 0.044), (0.56, 0.60, 0.14), (0.024, 0.024, 0.052), (0.34, 0.34, 0.80)),
)
