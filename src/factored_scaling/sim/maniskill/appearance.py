"""Appearances: table tops, walls and distractor sets, four for training and ten held out of it."""

from __future__ import annotations

from dataclasses import dataclass

from factored_scaling.sim.maniskill.textures import Colour, Texture


@dataclass(frozen=True, slots=True)
class Thing:
    """A distractor's look. `shape` is one of those in `shapes.py`; `size` its half extents in metres."""

    shape: str
    size: Colour
    colour: Colour


@dataclass(frozen=True, slots=True)
class DistractorSet:
    """Two objects that do not belong to the task."""

    first: Thing
    second: Thing


NOMINAL_TABLE = Texture("wood", (0.78, 0.62, 0.44), (0.62, 0.46, 0.30), scale=7.0)
TRAINING_TABLES = (
    Texture("granite", (0.40, 0.42, 0.46), (0.62, 0.64, 0.68), scale=14.0, seed=1),
    Texture("checks", (0.86, 0.86, 0.84), (0.26, 0.42, 0.62), scale=9.0),
    Texture("weave", (0.42, 0.58, 0.40), (0.62, 0.74, 0.54), scale=22.0),
    Texture("wood", (0.40, 0.20, 0.14), (0.26, 0.12, 0.08), scale=9.0, angle=1.57, seed=2),
)
HELD_OUT_TABLES = (
    Texture("marble", (0.90, 0.90, 0.92), (0.56, 0.58, 0.64), scale=7.0, seed=3),
    Texture("stripes", (0.86, 0.82, 0.74), (0.70, 0.30, 0.26), scale=8.0, angle=0.5),
    Texture("granite", (0.14, 0.14, 0.16), (0.36, 0.36, 0.38), scale=16.0, seed=4),
    Texture("dots", (0.90, 0.84, 0.56), (0.84, 0.62, 0.20), scale=10.0, angle=0.4),
    Texture("waves", (0.34, 0.64, 0.66), (0.58, 0.80, 0.80), scale=7.0, angle=1.2),
    Texture("bricks", (0.64, 0.32, 0.24), (0.80, 0.76, 0.70), scale=9.0),
    Texture("wood", (0.88, 0.80, 0.66), (0.74, 0.64, 0.50), scale=12.0, angle=0.8, seed=5),
    Texture("checks", (0.50, 0.40, 0.62), (0.66, 0.58, 0.76), scale=12.0, angle=0.78),
    Texture("weave", (0.24, 0.28, 0.44), (0.40, 0.46, 0.66), scale=16.0, angle=0.3),
    Texture("marble", (0.16, 0.30, 0.24), (0.46, 0.62, 0.52), scale=8.0, angle=0.6, seed=6),
)

NOMINAL_BACKGROUND = Texture("plain", (0.80, 0.82, 0.84), (0.74, 0.76, 0.79), scale=2.0)
TRAINING_BACKGROUNDS = (
    Texture("bricks", (0.62, 0.36, 0.28), (0.78, 0.74, 0.70), scale=7.0),
    Texture("stripes", (0.30, 0.40, 0.54), (0.38, 0.50, 0.66), scale=5.0),
    Texture("plain", (0.36, 0.52, 0.34), (0.48, 0.64, 0.42), scale=6.0, seed=1),
    Texture("wood", (0.56, 0.42, 0.28), (0.42, 0.30, 0.18), scale=8.0, angle=1.57, seed=2),
)
HELD_OUT_BACKGROUNDS = (
    Texture("checks", (0.88, 0.88, 0.86), (0.62, 0.66, 0.70), scale=4.0),
    Texture("plain", (0.16, 0.18, 0.24), (0.26, 0.28, 0.36), scale=5.0, seed=3),
    Texture("dots", (0.86, 0.62, 0.66), (0.94, 0.86, 0.86), scale=6.0),
    Texture("waves", (0.22, 0.48, 0.60), (0.40, 0.66, 0.74), scale=3.0, angle=1.57),
    Texture("bricks", (0.84, 0.82, 0.76), (0.60, 0.58, 0.54), scale=10.0),
    Texture("marble", (0.72, 0.64, 0.52), (0.50, 0.40, 0.30), scale=5.0, seed=4),
    Texture("stripes", (0.90, 0.82, 0.50), (0.82, 0.66, 0.26), scale=6.0, angle=0.8),
    Texture("weave", (0.44, 0.26, 0.38), (0.60, 0.40, 0.54), scale=9.0),
    Texture("granite", (0.30, 0.34, 0.28), (0.56, 0.60, 0.50), scale=7.0, seed=5),
    Texture("checks", (0.76, 0.34, 0.20), (0.86, 0.56, 0.36), scale=6.0, angle=0.78),
)

# Sizes near those of the tasks' objects (a red tomato, an orange and blue peg, a green cube and a red tool).
TRAINING_DISTRACTORS = (
    DistractorSet(
        Thing("ellipsoid", (0.060, 0.028, 0.028), (0.30, 0.12, 0.38)),
        Thing("cup", (0.034, 0.034, 0.042), (0.92, 0.92, 0.90)),
    ),
    DistractorSet(
        Thing("capsule", (0.070, 0.018, 0.018), (0.24, 0.52, 0.20)),
        Thing("box", (0.030, 0.020, 0.046), (0.90, 0.76, 0.20)),
    ),
    DistractorSet(
        Thing("ellipsoid", (0.036, 0.036, 0.033), (0.94, 0.58, 0.12)),
        Thing("cylinder", (0.030, 0.030, 0.050), (0.20, 0.42, 0.70)),
    ),
    DistractorSet(
        Thing("bowl", (0.056, 0.056, 0.024), (0.36, 0.62, 0.66)),
        Thing("capsule", (0.064, 0.015, 0.015), (0.96, 0.86, 0.30)),
    ),
)
HELD_OUT_DISTRACTORS = (
    DistractorSet(
        Thing("cup", (0.036, 0.036, 0.038), (0.80, 0.28, 0.24)),
        Thing("ellipsoid", (0.034, 0.034, 0.038), (0.56, 0.74, 0.22)),
    ),
    DistractorSet(
        Thing("box", (0.044, 0.026, 0.022), (0.36, 0.24, 0.56)),
        Thing("cylinder", (0.026, 0.026, 0.058), (0.84, 0.84, 0.86)),
    ),
    DistractorSet(
        Thing("ellipsoid", (0.048, 0.032, 0.030), (0.86, 0.78, 0.56)),
        Thing("capsule", (0.060, 0.020, 0.020), (0.86, 0.36, 0.14)),
    ),
    DistractorSet(
        Thing("bowl", (0.060, 0.060, 0.030), (0.88, 0.88, 0.84)),
        Thing("box", (0.022, 0.022, 0.052), (0.16, 0.54, 0.44)),
    ),
    DistractorSet(
        Thing("cylinder", (0.040, 0.040, 0.024), (0.70, 0.20, 0.34)),
        Thing("cup", (0.030, 0.030, 0.046), (0.22, 0.26, 0.34)),
    ),
    DistractorSet(
        Thing("ellipsoid", (0.030, 0.030, 0.030), (0.94, 0.88, 0.24)),
        Thing("ellipsoid", (0.058, 0.024, 0.024), (0.50, 0.30, 0.16)),
    ),
    DistractorSet(
        Thing("capsule", (0.050, 0.024, 0.024), (0.34, 0.20, 0.44)),
        Thing("bowl", (0.050, 0.050, 0.028), (0.92, 0.66, 0.30)),
    ),
    DistractorSet(
        Thing("box", (0.034, 0.034, 0.034), (0.86, 0.56, 0.62)),
        Thing("capsule", (0.072, 0.014, 0.014), (0.30, 0.34, 0.36)),
    ),
    DistractorSet(
        Thing("cup", (0.032, 0.032, 0.050), (0.30, 0.52, 0.86)),
        Thing("cylinder", (0.034, 0.034, 0.034), (0.58, 0.42, 0.28)),
    ),
    DistractorSet(
        Thing("ellipsoid", (0.040, 0.034, 0.030), (0.72, 0.14, 0.18)),
        Thing("box", (0.050, 0.018, 0.030), (0.78, 0.80, 0.34)),
    ),
)
