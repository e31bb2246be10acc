"""The success surface: how often trials of each factor succeed after training on any numbers of demonstrations.

Trials of factor j succeed when a skill that all trials share does not fail and robustness to j does not fail:

    p_j(n) = (1 − S(D_j·h(n))) · (1 − S(u_j(n)))

    u_j(n) = L_j·(φ_j + (1 − φ_j)·((m_j + s_j)/(m_j* + s_j))^−α_j)        m_j = Σ_i C_ij·n_i
    h(n)   = H·(φ₀ + (1 − φ₀)·(T/T*)^−β·Π_i((n_i + o)/(n_i* + o))^−β_i)   T = t₀ + Σ_i w_i·n_i

where * marks the demonstrations at hand, and S(u) = u·(1 + u^q)^(−1/q) bends failures that would pass 1. Numbers of
demonstrations are counted in units of the mean at hand per factor. Every parameter is a fixed function of standard
normal variables, so that the prior of all of them together is one normal distribution; three things that say which
kind of surface it is (what repairs what, q and o) are drawn once per draw and kept.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]  # single precision is faster, but its rounding makes other draws on other machines

# Globals, by their place: shared tendencies, the common part, noise, and the proxy's link.
(
    _FLOORS,
    _SCALES,
    _POWERS,
    _LEVELS,
    _COMMON,
    _COMMON_FLOOR,
    _TOTAL_POWER,
    _TOTAL_OFFSET,
    _TILTS,
    NOISE_COMMON,
    NOISE_OWN,
    PROXY_SHIFT,
    PROXY_GAIN,
    PROXY_NOISE,
) = range(14)
GLOBALS = 14


@dataclass(frozen=True)
class Prior:
    """What is believed before any score: centre and spread of every parameter, most on a log scale."""

    level: tuple[float, float, float] = (-1.2, 0.5, 1.0)
    floor: tuple[float, float, float] = (-1.0, 1.0, 2.0)
    scale: tuple[float, float, float] = (-0.36, 0.6, 0.6)
    power: tuple[float, float, float] = (-0.22, 0.3, 0.4)
    share: float = 0.3
    weight: float = 0.5
    common: tuple[float, float] = (-1.6, 1.0)
    common_floor: tuple[float, float] = (-1.0, 1.5)
    total_power: tuple[float, float] = (-0.7, 0.8)
    total_offset: tuple[float, float] = (-0.7, 1.0)
    tilt: tuple[float, float] = (-1.9, 1.0)
    tilt_shift: float = 0.3
    tilt_leak: float = 0.3
    noise_common: tuple[float, float] = (-3.2, 0.4)
    noise_own: tuple[float, float] = (-3.9, 0.5)
    own_repair: tuple[float, float] = (0.0, 0.25)
    cross_repair: tuple[float, float] = (-3.0, 1.5)
    any_repair: tuple[float, float] = (-1.2, 1.3)
    # probability that a factor's data need not be what repairs its own trials
    unowned: float = 0.15
    sharpness: tuple[float, float] = (0.92, 0.5)
    offset: tuple[float, float] = (0.4, 1.0)


PRIOR = Prior()


@dataclass(frozen=True)
class Kinds:
    """Of every draw: the centre and spread of what repairs what, how failures bend, the common part's offset."""

    repair_centre: Floats  # N × N × draws
    repair_spread: Floats
    sharpness: Floats  # draws
    offset: Floats  # draws

    def __getitem__(self, chosen: NDArray[np.int64]) -> Kinds:
        return Kinds(*(getattr(self, field.name)[..., chosen] for field in fields(self)))


def draw_kinds(rng: np.random.Generator, draws: int, count: int, prior: Prior) -> Kinds:
    """Stratified, so that few draws hold every kind in its proportion."""
    place = (rng.permutation(draws) + 0.5) / draws
    unowned = place < prior.unowned
    own = np.eye(count, dtype=bool)[:, :, None]
    centre = np.where(own, prior.own_repair[0], prior.cross_repair[0])
    spread = np.where(own, prior.own_repair[1], prior.cross_repair[1])
    return Kinds(
        np.where(unowned, prior.any_repair[0], centre),
        np.where(unowned, prior.any_repair[1], spread),
        np.exp(prior.sharpness[0] + prior.sharpness[1] * rng.standard_normal(draws)),
        np.exp(prior.offset[0] + prior.offset[1] * rng.standard_normal(draws)),
    )


def size_of(count: int) -> int:
    """How many standard normal variables a surface over `count` factors has."""
    return 7 * count + count * count + GLOBALS


@dataclass(frozen=True)
class Parameters:
    """The surface's parameters of every draw. Draws are the last axis everywhere: long rows are fast."""

    level: Floats  # N × draws, as are the next six
    floor: Floats
    scale: Floats
    power: Floats
    share: Floats
    weight: Floats
    tilt: Floats
    repair: Floats  # N × N × draws
    common: Floats  # draws, as are the next four
    common_floor: Floats
    total_power: Floats
    total_offset: Floats
    tilts: Floats
    raw: Floats

    @classmethod
    def of(cls, raw: Floats, kinds: Kinds, prior: Prior) -> Parameters:
        count = len(kinds.repair_centre)
        parts = raw[: 7 * count].reshape(7, count, -1)
        square = raw[7 * count : -GLOBALS].reshape(count, count, -1)
        rest = raw[-GLOBALS:]

        def one(place: int, loc: tuple[float, float]) -> Floats:
            return np.asarray(loc[0] + loc[1] * rest[place])

        def many(part: int, place: int, loc: tuple[float, float, float]) -> Floats:
            return np.asarray(loc[0] + loc[1] * rest[place] + loc[2] * parts[part])

        lean = parts[6] + prior.tilt_shift
        tilts = np.exp(one(_TILTS, prior.tilt))
        return cls(
            level=np.exp(many(0, _LEVELS, prior.level)),
            floor=_logistic(many(1, _FLOORS, prior.floor)),
            scale=np.exp(many(2, _SCALES, prior.scale)),
            power=np.exp(many(3, _POWERS, prior.power)),
            share=np.exp(prior.share * parts[4]),
            weight=np.exp(prior.weight * parts[5]),
            tilt=tilts * np.where(lean > 0, lean, prior.tilt_leak * lean),
            repair=np.exp(kinds.repair_centre + kinds.repair_spread * square),
            common=np.exp(one(_COMMON, prior.common)),
            common_floor=_logistic(one(_COMMON_FLOOR, prior.common_floor)),
            total_power=np.exp(one(_TOTAL_POWER, prior.total_power)),
            total_offset=np.exp(one(_TOTAL_OFFSET, prior.total_offset)),
            tilts=tilts,
            raw=raw,
        )


@dataclass(frozen=True)
class Forward:
    """Successes at given training sets, with what the gradient needs again."""

    success: Floats  # R × N × draws
    robust: Floats  # 1 − S(u)
    skilled: Floats  # 1 − S(D·h)
    hazard: Floats  # h, R × draws
    parts: tuple[Floats, ...]


def forward(parameters: Parameters, kinds: Kinds, demos: Floats, now: Floats) -> Forward:
    """The surface at `demos` (R × N, in units), where `now` (N) are the demonstrations at hand."""
    p, q = parameters, kinds.sharpness
    count, draws = p.level.shape
    rows = np.concatenate([now[None, :], demos])
    reach = (rows @ p.repair.reshape(count, -1)).reshape(-1, count, draws) + p.scale  # m + s
    log_reach = np.log(reach)
    ratio = log_reach[1:] - log_reach[0]
    fallen = np.exp(-p.power * ratio)
    trouble = p.level * (p.floor + (1 - p.floor) * fallen)
    own, own_slope = bend(trouble, q)
    total = p.total_offset + rows @ p.weight
    total_ratio = np.log(total[1:] / total[0])
    tilt_ratio = np.log((demos[:, :, None] + kinds.offset) / (now[:, None] + kinds.offset))
    exponent = -p.total_power * total_ratio - (tilt_ratio * p.tilt).sum(1)
    dropped = np.exp(np.minimum(exponent, 30.0))
    hazard = p.common * (p.common_floor + (1 - p.common_floor) * dropped)
    shared, shared_slope = bend(hazard[:, None, :] * p.share, q)
    robust, skilled = 1 - own, 1 - shared
    parts = (rows, reach, ratio, fallen, own_slope, total, total_ratio, tilt_ratio, dropped, shared_slope)
    return Forward(skilled * robust, robust, skilled, hazard, parts)


def gradient(
    state: Forward,
    parameters: Parameters,
    kinds: Kinds,
    prior: Prior,
    by_robust: Floats,
    by_skilled: Floats,
    by_hazard: Floats | None = None,
) -> Floats:
    """Back through `forward`: from derivatives by `robust` and `skilled` (R × N × draws) to those by `raw`."""
    p = parameters
    rows, reach, ratio, fallen, own_slope, total, total_ratio, tilt_ratio, dropped, shared_slope = state.parts
    count, draws = p.level.shape
    by_trouble = -by_robust * own_slope
    by_fallen = by_trouble * fallen
    sum_trouble, sum_fallen = by_trouble.sum(0), by_fallen.sum(0)
    slack = p.level * (1 - p.floor)
    by_level = p.floor * sum_trouble + (1 - p.floor) * sum_fallen
    by_floor = (sum_trouble - sum_fallen) * p.level
    by_power = -(by_fallen * ratio).sum(0) * slack
    by_ratio = by_fallen * (-slack * p.power)
    by_reach = np.concatenate([-by_ratio.sum(0, keepdims=True), by_ratio]) / reach
    by_repair = (rows.T @ by_reach.reshape(len(rows), -1)).reshape(count, count, draws)
    by_product = -by_skilled * shared_slope
    by_share = (by_product * state.hazard[:, None, :]).sum(0)
    by_h = (by_product * p.share).sum(1)
    if by_hazard is not None:
        by_h = by_h + by_hazard
    by_common = (by_h * state.hazard).sum(0)
    by_common_floor = (by_h * (1 - dropped)).sum(0) * p.common
    by_exponent = by_h * (p.common * (1 - p.common_floor)) * dropped
    by_total_power = -(by_exponent * total_ratio).sum(0)
    by_tilt = -(by_exponent[:, None, :] * tilt_ratio).sum(0)
    by_total_ratio = -p.total_power * by_exponent
    by_total = np.concatenate([-by_total_ratio.sum(0, keepdims=True), by_total_ratio]) / total
    lean = p.raw[6 * count : 7 * count] + prior.tilt_shift
    levels, floors = by_level * p.level, by_floor * p.floor * (1 - p.floor)
    scales, powers = by_reach.sum(0) * p.scale, by_power * p.power
    slope = np.zeros_like(p.raw)
    parts = slope[: 7 * count].reshape(7, count, draws)
    parts[0], parts[1] = prior.level[2] * levels, prior.floor[2] * floors
    parts[2], parts[3] = prior.scale[2] * scales, prior.power[2] * powers
    parts[4] = prior.share * by_share * p.share
    parts[5] = prior.weight * (rows.T @ by_total) * p.weight
    parts[6] = by_tilt * p.tilts * np.where(lean > 0, 1.0, prior.tilt_leak)
    slope[7 * count : -GLOBALS] = (by_repair * p.repair * kinds.repair_spread).reshape(-1, draws)
    rest = slope[-GLOBALS:]
    rest[_LEVELS], rest[_FLOORS] = prior.level[1] * levels.sum(0), prior.floor[1] * floors.sum(0)
    rest[_SCALES], rest[_POWERS] = prior.scale[1] * scales.sum(0), prior.power[1] * powers.sum(0)
    rest[_COMMON] = prior.common[1] * by_common
    rest[_COMMON_FLOOR] = prior.common_floor[1] * by_common_floor * p.common_floor * (1 - p.common_floor)
    rest[_TOTAL_POWER] = prior.total_power[1] * by_total_power * p.total_power
    rest[_TOTAL_OFFSET] = prior.total_offset[1] * by_total.sum(0) * p.total_offset
    rest[_TILTS] = prior.tilt[1] * (by_tilt * p.tilt).sum(0)
    return slope


def bend(trouble: Floats, sharpness: Floats) -> tuple[Floats, Floats]:
    """S(u), a probability: u where it is small, 1 where it is large; and its slope."""
    log = sharpness * np.log(trouble)
    far = np.exp(-np.abs(log))  # never overflows, whichever side of 1
    failure = np.exp((np.minimum(log, 0.0) - np.log1p(far)) / sharpness)
    return failure, failure / trouble * np.where(log > 0, far, 1.0) / (1.0 + far)


def _logistic(value: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-value)))
