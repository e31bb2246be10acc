"""Procedural textures: patterns painted with numpy from a few numbers, so that nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Colour = tuple[float, float, float]
Field = NDArray[np.float64]
PIXELS = 512


@dataclass(frozen=True, slots=True)
class Texture:
    """A pattern between two colours. `scale` is how many repeats fit in a metre."""

    pattern: str
    first: Colour
    second: Colour
    scale: float = 8.0
    angle: float = 0.0
    seed: int = 0


@lru_cache(maxsize=64)
def paint(texture: Texture, width: float, height: float) -> NDArray[np.uint8]:
    """The texture on a surface of `width` × `height` metres: PIXELS × PIXELS × RGBA."""
    across, down = np.meshgrid((np.arange(PIXELS) + 0.5) / PIXELS * width, (np.arange(PIXELS) + 0.5) / PIXELS * height)
    cos, sin = np.cos(texture.angle), np.sin(texture.angle)
    u, v = texture.scale * (cos * across + sin * down), texture.scale * (cos * down - sin * across)
    share = np.clip(PATTERNS[texture.pattern](u, v, np.random.default_rng(texture.seed)), 0, 1)[..., None]
    colour = np.array(texture.first) * (1 - share) + np.array(texture.second) * share
    opaque = np.ones((PIXELS, PIXELS, 1))
    return np.ascontiguousarray(np.round(np.concatenate([colour, opaque], axis=2) * 255).astype(np.uint8))


def _noise(u: Field, v: Field, rng: np.random.Generator, octaves: int = 4) -> Field:
    """Smooth noise around 0: plane waves of rising frequency in random directions."""
    total = np.zeros_like(u)
    for octave in range(octaves):
        for _ in range(4):
            angle, phase = rng.uniform(0, 2 * np.pi, 2)
            total += np.sin(2**octave * (np.cos(angle) * u + np.sin(angle) * v) + phase) / 2**octave
    return total / 4


def _plain(u: Field, v: Field, rng: np.random.Generator) -> Field:
    return 0.5 + 0.5 * _noise(u, v, rng, 2)


def _stripes(u: Field, v: Field, rng: np.random.Generator) -> Field:
    return (np.mod(u, 1) < 0.5).astype(np.float64)


def _checks(u: Field, v: Field, rng: np.random.Generator) -> Field:
    return np.asarray(np.mod(np.floor(u) + np.floor(v), 2))


def _dots(u: Field, v: Field, rng: np.random.Generator) -> Field:
    return (np.hypot(np.mod(u, 1) - 0.5, np.mod(v, 1) - 0.5) < 0.28).astype(np.float64)


def _wood(u: Field, v: Field, rng: np.random.Generator) -> Field:
    """Planks along v, each with its own shade and bent grain."""
    plank = np.floor(u / 2)
    shade = np.sin(plank * 12.9898 + 4.1) * 0.18
    grain = np.sin(14 * (u + 0.25 * _noise(0.3 * u + 3 * plank, 0.9 * v, rng, 3)))
    seam = np.mod(u / 2, 1) < 0.03
    return np.where(seam, 1.0, 0.42 + shade + 0.22 * grain)


def _marble(u: Field, v: Field, rng: np.random.Generator) -> Field:
    return np.abs(np.sin(u + 2.2 * _noise(u, v, rng))) ** 0.6


def _granite(u: Field, v: Field, rng: np.random.Generator) -> Field:
    return 0.5 + 1.1 * _noise(4 * u, 4 * v, rng, 3)


def _bricks(u: Field, v: Field, rng: np.random.Generator) -> Field:
    row = np.floor(v)
    along = np.mod(u / 2 + 0.5 * np.mod(row, 2), 1)
    return ((along < 0.05) | (np.mod(v, 1) < 0.1)).astype(np.float64)


def _weave(u: Field, v: Field, rng: np.random.Generator) -> Field:
    over = np.mod(np.floor(u) + np.floor(v), 2)
    bulge = np.where(over > 0, np.sin(np.pi * np.mod(u, 1)), np.sin(np.pi * np.mod(v, 1)))
    return np.asarray(0.6 * bulge + 0.4 * over)


def _waves(u: Field, v: Field, rng: np.random.Generator) -> Field:
    return 0.5 + 0.5 * np.sin(2 * np.pi * (u + 0.3 * np.sin(2 * np.pi * 0.5 * v)))


PATTERNS: dict[str, Callable[[Field, Field, np.random.Generator], Field]] = {
    "plain": _plain,
    "stripes": _stripes,
    "checks": _checks,
    "dots": _dots,
    "wood": _wood,
    "marble": _marble,
    "granite": _granite,
    "bricks": _bricks,
    "weave": _weave,
    "waves": _waves,
}
