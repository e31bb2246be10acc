"""Draws from the posterior: many draws from the prior are led to the scores step by step and moved at every step.

Draws of every kind of surface start together; those that the scores speak against die out on the way, which averages
over kinds by their evidence. The moves are Hamiltonian. Everything is deterministic for a seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from factored_scaling.model.response import Floats, Kinds

Target = Callable[[Floats, Kinds], tuple[Floats, Floats]]
_KEEP = 0.6  # part of the draws that must stay effective from one step to the next


@dataclass(frozen=True)
class Effort:
    """How hard to look: draws that are led, moves at each step, moves in the end, and leapfrog steps of a move.

    Of the last moves every third is kept: draws that moved on are nearly as good as others, and cost nothing.
    """

    draws: int = 128
    moves: int = 2
    last: int = 12
    kept: int = 4
    leaps: int = 6
    steps: int = 60


def sample(target: Target, kinds: Kinds, size: int, rng: np.random.Generator, effort: Effort) -> tuple[Floats, Kinds]:
    """Draws of the standard normal variables, led from the prior to prior × likelihood, and their kinds.

    `effort.kept` times as many as were led.
    """
    raw = rng.standard_normal((size, effort.draws))
    value, slope = target(raw, kinds)
    heat, stride = 0.0, 0.3
    kept: list[Floats] = []
    for _ in range(effort.steps):
        step = _next(value, heat)
        heat += step
        weight = np.exp(step * (value - value.max()))
        chosen = _resampled(weight / weight.sum(), rng)
        raw, value, slope, kinds = raw[:, chosen], value[chosen], slope[:, chosen], kinds[chosen]
        spread = np.sqrt(raw.var(axis=1, keepdims=True) + 1e-3)
        for left in reversed(range(effort.moves if heat < 1 else effort.last)):
            raw, value, slope, taken = _move(target, kinds, raw, value, slope, heat, stride * spread, effort.leaps, rng)
            stride = min(1.0, stride * float(np.exp(0.6 * (taken - 0.75))))
            if heat >= 1 and left % max(1, effort.last // effort.kept) == 0:
                kept.append(raw)
        if heat >= 1:
            break
    return np.concatenate(kept or [raw], axis=1), kinds[np.tile(np.arange(effort.draws), len(kept) or 1)]


def _next(value: Floats, heat: float) -> float:
    """The largest step towards the full likelihood that keeps enough of the draws effective."""

    def effective(step: float) -> float:
        weight = np.exp(step * (value - value.max()))
        return float(weight.sum() ** 2 / (weight**2).sum() / value.size)

    left = 1.0 - heat
    if effective(left) >= _KEEP:
        return left
    low, high = 0.0, left
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if effective(middle) >= _KEEP else (low, middle)
    return max(low, 1e-4)


def _resampled(weight: Floats, rng: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Systematic resampling: every draw in its proportion, to the next whole number."""
    places = (np.arange(weight.size) + rng.random()) / weight.size
    return np.minimum(np.searchsorted(np.cumsum(weight), places), weight.size - 1).astype(np.int64)


def _move(
    target: Target,
    kinds: Kinds,
    raw: Floats,
    value: Floats,
    slope: Floats,
    heat: float,
    stride: Floats,
    leaps: int,
    rng: np.random.Generator,
) -> tuple[Floats, Floats, Floats, float]:
    """One Hamiltonian move of every draw; returns the part that was accepted."""
    stride = stride * rng.uniform(0.7, 1.1, (1, raw.shape[1]))
    momentum: Floats = rng.standard_normal(raw.shape)
    energy = 0.5 * (momentum**2).sum(0) + 0.5 * (raw**2).sum(0) - heat * value
    place, new_value, new_slope = raw, value, slope
    momentum = momentum + 0.5 * stride * (heat * slope - place)
    for leap in range(leaps):
        place = place + stride * momentum
        new_value, new_slope = target(place, kinds)
        half = 0.5 if leap == leaps - 1 else 1.0
        momentum = momentum + half * stride * (heat * new_slope - place)
    after = 0.5 * (momentum**2).sum(0) + 0.5 * (place**2).sum(0) - heat * new_value
    with np.errstate(invalid="ignore", over="ignore"):
        chance = np.where(np.isfinite(after), np.exp(np.minimum(energy - after, 0.0)), 0.0)
    taken = rng.random(chance.size) < chance
    return (
        np.where(taken, place, raw),
        np.where(taken, new_value, value),
        np.where(taken, new_slope, slope),
        float(chance.mean()),
    )
