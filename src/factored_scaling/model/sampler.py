"""Sequential Monte Carlo from the prior to the posterior by tempering, with Hamiltonian moves at every step.

Samples of every component of the prior start together; resampling averages over components by their evidence.
Everything is deterministic for a seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from factored_scaling.model.prior import Floats, PriorMixture

# Maps samples (variables × samples) to their log-probabilities and the gradient.
Density = Callable[[Floats], tuple[Floats, Floats]]
Target = Callable[[PriorMixture], Density]
_KEEP = 0.6  # share of the samples that must stay effective from one temperature to the next


@dataclass(frozen=True)
class SamplerSettings:
    """Computational settings: samples, moves at each temperature, final moves, and leapfrog steps of a move.

    Of the final moves `kept` are recorded, evenly spaced, so the posterior has `kept` times `draws` samples.
    """

    draws: int = 128
    moves: int = 2
    last: int = 12
    kept: int = 4
    n_leapfrog: int = 6
    steps: int = 60


def sample(
    target: Target, mixture: PriorMixture, size: int, rng: np.random.Generator, settings: SamplerSettings
) -> tuple[Floats, PriorMixture]:
    """Samples of the standard normal variables (variables × samples) and their components."""
    raw = rng.standard_normal((size, settings.draws))
    value, slope = target(mixture)(raw)
    inverse_temperature, step_size = 0.0, 0.3
    recorded: list[Floats] = []
    for _ in range(settings.steps):
        step = _next(value, inverse_temperature)
        inverse_temperature += step
        weight = np.exp(step * (value - value.max()))
        chosen = _resampled(weight / weight.sum(), rng)
        raw, value, slope, mixture = raw[:, chosen], value[chosen], slope[:, chosen], mixture[chosen]
        density = target(mixture)
        spread = np.sqrt(raw.var(axis=1, keepdims=True) + 1e-3)
        for left in reversed(range(settings.moves if inverse_temperature < 1 else settings.last)):
            raw, value, slope, accepted = _move(
                density, raw, value, slope, inverse_temperature, step_size * spread, settings.n_leapfrog, rng
            )
            step_size = min(1.0, step_size * float(np.exp(0.6 * (accepted - 0.75))))
            if inverse_temperature >= 1 and left % max(1, settings.last // settings.kept) == 0:
                recorded.append(raw)
        if inverse_temperature >= 1:
            break
    return np.concatenate(recorded or [raw], axis=1), mixture[np.tile(np.arange(settings.draws), len(recorded) or 1)]


def _next(value: Floats, inverse_temperature: float) -> float:
    """The largest step of the inverse temperature that keeps enough of the samples effective."""

    below = value - value.max()

    def effective(step: float) -> float:
        weight = np.exp(step * below)
        return float(weight.sum() ** 2 / (weight @ weight) / value.size)

    left = 1.0 - inverse_temperature
    if effective(left) >= _KEEP:
        return left
    low, high = 0.0, left
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if effective(middle) >= _KEEP else (low, middle)
    return max(low, 1e-4)


def _resampled(weight: Floats, rng: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Systematic resampling: indices of the samples to continue with."""
    places = (np.arange(weight.size) + rng.random()) / weight.size
    return np.minimum(np.searchsorted(np.cumsum(weight), places), weight.size - 1).astype(np.int64)


def _move(
    density: Density,
    raw: Floats,
    value: Floats,
    slope: Floats,
    inverse_temperature: float,
    step_size: Floats,
    n_leapfrog: int,
    rng: np.random.Generator,
) -> tuple[Floats, Floats, Floats, float]:
    """One Hamiltonian move of every sample; returns the mean acceptance probability last."""
    step_size = step_size * rng.uniform(0.7, 1.1, (1, raw.shape[1]))
    momentum: Floats = rng.standard_normal(raw.shape)
    energy = 0.5 * (momentum**2).sum(0) + 0.5 * (raw**2).sum(0) - inverse_temperature * value
    place, new_value, new_slope = raw, value, slope
    momentum = momentum + 0.5 * step_size * (inverse_temperature * slope - place)
    for step in range(n_leapfrog):
        place = place + step_size * momentum
        new_value, new_slope = density(place)
        half = 0.5 if step == n_leapfrog - 1 else 1.0
        momentum = momentum + half * step_size * (inverse_temperature * new_slope - place)
    after = 0.5 * (momentum**2).sum(0) + 0.5 * (place**2).sum(0) - inverse_temperature * new_value
    with np.errstate(invalid="ignore", over="ignore"):
        chance = np.where(np.isfinite(after), np.exp(np.minimum(energy - after, 0.0)), 0.0)
    accepted = rng.random(chance.size) < chance
    return (
        np.where(accepted, place, raw),
        np.where(accepted, new_value, value),
        np.where(accepted, new_slope, slope),
        float(chance.mean()),
    )
