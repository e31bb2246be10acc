"""Shared code to draw scenes: generators from names, checks, and the held-out rim."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Generic, TypeVar

import numpy as np

from factored_scaling.errors import InvalidInput, UnknownFactor

T = TypeVar("T")

SETTINGS = 10  # held-out settings per factor
EXAMPLES = 4  # training values that a contact sheet shows
MARGIN = 0.01  # training never comes nearer than this to a held-out point, in all of its dimensions at once
_INSIDE = 0.92  # where the held-out places lie in the widened range, as a share


def generator(*parts: object) -> np.random.Generator:
    """A generator seeded by the parts alone, independent of process and order."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


def known_factor(factor: str | None, factors: Sequence[str], task: str) -> str | None:
    """The factor; an error if the task does not vary it."""
    if factor is not None and factor not in factors:
        raise UnknownFactor(factor, factors, where=task)
    return factor


def known_setting(setting: int) -> int:
    """The setting; an error if there is none with that number."""
    if not 0 <= setting < SETTINGS:
        raise InvalidInput(f"no held-out setting {setting}", hint=f"settings go from 0 to {SETTINGS - 1}")
    return setting


def spread(factor: str, dimensions: int) -> list[tuple[float, ...]]:
    """Ten held-out points in [-1, 1]^d, a Latin hypercube: they cover the range of every dimension evenly."""
    rng = generator("held-out", factor)
    columns = [(rng.permutation(SETTINGS) + 0.5) / SETTINGS * 2 - 1 for _ in range(dimensions)]
    return [tuple(float(column[i]) for column in columns) for i in range(SETTINGS)]


def point_clear_of(held_out: Sequence[object], dimensions: int, rng: np.random.Generator) -> tuple[float, ...]:
    """A training value of a continuous factor: a point in [-1, 1]^d that is none of the held-out ones."""
    forbidden = np.array(held_out)
    while True:
        point = rng.uniform(-1, 1, dimensions)
        if (np.abs(forbidden - point).max(axis=1) > MARGIN).all():
            return tuple(point.tolist())


def rim() -> tuple[tuple[float, float], ...]:
    """Ten places in the rim that widening adds around the nominal range, in units of the widened half range."""
    places = []
    for index in range(SETTINGS):
        angle = 2 * math.pi * (index + 0.25) / SETTINGS
        x, y = math.cos(angle), math.sin(angle)
        stretch = _INSIDE / max(abs(x), abs(y))
        places.append((x * stretch, y * stretch))
    return tuple(places)


class FactorValues(Generic[T]):
    """The values of a simulator's factors. A continuous one's are points in [-1, 1]^d, nominal at 0.

    `discrete` has training and held-out values of the other factors, `dimensions` the d of each continuous factor.
    """

    def __init__(
        self, discrete: Mapping[str, tuple[tuple[T, ...], tuple[T, ...]]], dimensions: Mapping[str, int]
    ) -> None:
        self._discrete, self._dimensions = discrete, dimensions
        self.held_out = cache(self._held_out)

    def training(self, factor: str, rng: np.random.Generator) -> T | tuple[float, ...]:
        """A value of the factor for a demonstration."""
        if factor in self._discrete:
            values = self._discrete[factor][0]
            return values[int(rng.integers(len(values)))]
        return point_clear_of(self.held_out(factor), self._dimensions[factor], rng)

    def examples(self, factor: str) -> list[T | tuple[float, ...]]:
        """The values that a contact sheet shows: four for training, then the held-out settings."""
        if factor in self._discrete:
            return [value for values in self._discrete[factor] for value in values]
        rng = np.random.default_rng(1)
        return [*(self.training(factor, rng) for _ in range(EXAMPLES)), *self.held_out(factor)]

    def _held_out(self, factor: str) -> tuple[T | tuple[float, ...], ...]:
        """The ten settings that evaluation uses and training never does."""
        if factor in self._discrete:
            return self._discrete[factor][1]
        if factor not in self._dimensions:
            raise UnknownFactor(factor, (*self._discrete, *self._dimensions))
        points = spread(factor, self._dimensions[factor])
        if factor == "object_pose":  # tested in the part of the range that widening adds
            return tuple((*place, *point[2:]) for place, point in zip(rim(), points, strict=True))
        return tuple(points)
