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

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]  # single precision is faster, but its rounding makes other draws on other machines

# Places among the variables that are one for all factors: first what level, floor, scale and power share.
_COMMON, _COMMON_FLOOR, _TOTAL_POWER, _TOTAL_OFFSET, _TILT = range(4, 9)
NOISE_COMMON, NOISE_OWN, PROXY_SHIFT, PROXY_GAIN, PROXY_NOISE = range(5)  # among the links, which come last
GLOBALS = 14
_UNTHREADED = 150_000  # multiplications; larger products are spread over threads
LEAK = 0.3  # data that harm do so less than data that help


@dataclass(frozen=True)
class Prior:
    """What is believed before any score: centre and spread of every parameter, most on a log scale.

    Of three numbers the second is the spread that all factors share, the third each factor's own.
    """

    level: tuple[float, float, float] = (-2.2, 0.5, 1.6)
    floor: tuple[float, float, float] = (-1.2, 1.2, 3.5)
    scale: tuple[float, float, float] = (0.6, 0.7, 0.8)
    power: tuple[float, float, float] = (0.4, 0.4, 0.5)
    share: float = 0.2
    weight: float = 0.4
    # how strongly single factors' data move all trials, and which: most help, some harm
    tilt: tuple[float, float] = (-2.1, 0.8)
    lean: tuple[float, float] = (0.35, 0.9)
    common: tuple[float, float] = (-1.6, 1.0)
    common_floor: tuple[float, float] = (-0.5, 1.6)
    total_power: tuple[float, float] = (-1.1, 1.0)
    total_offset: tuple[float, float] = (-0.3, 0.8)
    # what a demonstration is worth for trials of its own factor, of those declared before and after it, and of others
    own_repair: tuple[float, float] = (0.0, 0.25)
    near_repair: tuple[float, float] = (-4.0, 1.2)
    cross_repair: tuple[float, float] = (-4.0, 1.2)
    noise_common: tuple[float, float] = (-3.1, 0.4)
    noise_own: tuple[float, float] = (-3.6, 0.5)
    sharpness: tuple[float, float] = (0.3, 0.5)
    offset: tuple[float, float] = (0.4, 1.0)
    # the proxy's line and the scatter around it
    proxy_shift: tuple[float, float] = (0.0, 0.5)
    proxy_gain: tuple[float, float] = (0.0, 1.0)
    proxy_noise: tuple[float, float] = (-1.5, 1.0)


# Kinds of surfaces. The first: a factor's demonstrations repair its own trials most of all.
OWN = Prior()
# The paper's law: all trials move together, and differ by a constant.
TOGETHER = Prior(
    level=(-3.2, 0.6, 1.5),
    floor=(0.3, 1.0, 2.0),
    power=(0.05, 0.4, 0.5),
    cross_repair=(-3.2, 1.2),
    near_repair=(-3.2, 1.2),
    common=(-1.0, 0.6),
    common_floor=(-1.7, 1.5),
    share=0.35,
    tilt=(-1.6, 0.8),
    lean=(0.3, 1.0),
    total_power=(-1.4, 1.0),
    sharpness=(1.1, 0.5),
    offset=(0.7, 0.8),
)
# A factor's demonstrations may repair its neighbours' trials more than its own: what fails need not be what to collect.
NEAR = Prior(own_repair=(-2.5, 1.0), near_repair=(-0.7, 1.2), cross_repair=(-3.2, 1.2))
# Any factor's demonstrations may repair any trials.
ANY = Prior(own_repair=(-1.3, 1.4), near_repair=(-1.3, 1.4), cross_repair=(-1.3, 1.4))
# How likely each is believed to be before any score.
PRIORS: tuple[tuple[float, Prior], ...] = ((0.62, OWN), (0.1, TOGETHER), (0.23, NEAR), (0.05, ANY))


@dataclass(frozen=True)
class Kinds:
    """Of every draw: centre and spread of its variables, and what is drawn once and kept."""

    centre: Floats  # variables × draws
    spread: Floats
    shared: Floats  # 4 × draws: the spreads that level, floor, scale and power share over factors
    sharpness: Floats  # draws
    offset: Floats  # draws
    kind: NDArray[np.int64]  # draws: place in the priors

    def __getitem__(self, chosen: NDArray[np.int64]) -> Kinds:
        return Kinds(*(getattr(self, field.name)[..., chosen] for field in fields(self)))


def draw_kinds(
    rng: np.random.Generator, draws: int, count: int, priors: Sequence[tuple[float, Prior]] = PRIORS
) -> Kinds:
    """Stratified, so that few draws hold every kind in its proportion."""
    edges = np.cumsum([weight for weight, _ in priors])
    kind = np.searchsorted(edges[:-1] / edges[-1], (np.arange(draws) + 0.5) / draws).astype(np.int64)
    kind = kind[rng.permutation(draws)]
    columns = [_variables(prior, count) for _, prior in priors]
    shared = np.array([[prior.level[1], prior.floor[1], prior.scale[1], prior.power[1]] for _, prior in priors])
    bends = np.array([prior.sharpness for _, prior in priors])[kind]
    offsets = np.array([prior.offset for _, prior in priors])[kind]
    return Kinds(
        np.stack([centre for centre, _ in columns], axis=1)[:, kind],
        np.stack([spread for _, spread in columns], axis=1)[:, kind],
        shared[kind].T,
        np.exp(bends[:, 0] + bends[:, 1] * rng.standard_normal(draws)),
        np.exp(offsets[:, 0] + offsets[:, 1] * rng.standard_normal(draws)),
        kind,
    )


def _variables(prior: Prior, count: int) -> tuple[Floats, Floats]:
    """Centre and spread of every variable, in the order of `Parameters.of`."""
    apart = np.abs(np.subtract.outer(np.arange(count), np.arange(count))).ravel()
    factors = [
        (prior.level[0], prior.level[2]),
        (prior.floor[0], prior.floor[2]),
        (prior.scale[0], prior.scale[2]),
        (prior.power[0], prior.power[2]),
        (0.0, prior.share),
        (0.0, prior.weight),
        prior.lean,
    ]
    rest = [
        *[(0.0, 1.0)] * 4,
        prior.common,
        prior.common_floor,
        prior.total_power,
        prior.total_offset,
        prior.tilt,
        prior.noise_common,
        prior.noise_own,
        prior.proxy_shift,
        prior.proxy_gain,
        prior.proxy_noise,
    ]
    made = []
    for place in (0, 1):
        repairs = (prior.own_repair[place], prior.near_repair[place], prior.cross_repair[place])
        square = np.select([apart == 0, apart == 1], repairs[:2], repairs[2])
        made.append(np.concatenate([np.repeat([f[place] for f in factors], count), square, [r[place] for r in rest]]))
    return made[0], made[1]


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
    lean: Floats
    repair: Floats  # N × N × draws
    common: Floats  # draws, as are the next four
    common_floor: Floats
    total_power: Floats
    total_offset: Floats
    tilt: Floats
    # logarithms of noise, and the proxy's link: 5 × draws
    links: Floats

    @classmethod
    def of(cls, raw: Floats, kinds: Kinds) -> Parameters:
        value = kinds.centre + kinds.spread * raw
        count = round((len(raw) - GLOBALS + 12.25) ** 0.5 - 3.5)
        parts = value[: 7 * count].reshape(7, count, -1)
        rest = value[-GLOBALS:]
        moved = parts[:4] + (kinds.shared * rest[:4])[:, None, :]
        level, scale, power = np.exp(moved[0]), np.exp(moved[2]), np.exp(moved[3])
        share, weight = np.exp(parts[4:6])
        return cls(
            level=level,
            floor=_logistic(moved[1]),
            scale=scale,
            power=power,
            share=share,
            weight=weight,
            lean=parts[6],
            repair=np.exp(value[7 * count : -GLOBALS]).reshape(count, count, -1),
            common=np.exp(rest[_COMMON]),
            common_floor=_logistic(rest[_COMMON_FLOOR]),
            total_power=np.exp(rest[_TOTAL_POWER]),
            total_offset=np.exp(rest[_TOTAL_OFFSET]),
            tilt=np.exp(rest[_TILT]),
            links=rest[-5:],
        )

    @property
    def tilts(self) -> Floats:
        """The exponents by which single factors' data move all trials: N × draws."""
        return self.tilt * np.where(self.lean > 0, self.lean, LEAK * self.lean)


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
    reach = product(rows, p.repair.reshape(count, -1)).reshape(-1, count, draws) + p.scale  # m + s
    log_reach = np.log(reach)
    ratio = log_reach[1:] - log_reach[0]
    fallen = np.exp(-p.power * ratio)
    trouble = p.level * (p.floor + (1 - p.floor) * fallen)
    own, own_slope = bend(trouble, q)
    total = p.total_offset + rows @ p.weight
    total_ratio = np.log(total[1:] / total[0])
    tilt_ratio = np.log((demos[:, :, None] + kinds.offset) / (now[:, None] + kinds.offset))
    exponent = -p.total_power * total_ratio - (tilt_ratio * p.tilts).sum(1)
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
    by_robust: Floats,
    by_skilled: Floats,
    by_hazard: Floats | None,
    by_links: Floats,
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
    by_repair = product(rows.T, by_reach.reshape(len(rows), -1)).reshape(count, count, draws)
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
    slope = np.empty_like(kinds.centre)
    parts = slope[: 7 * count].reshape(7, count, draws)
    parts[0], parts[1] = by_level * p.level, by_floor * p.floor * (1 - p.floor)
    parts[2], parts[3] = by_reach.sum(0) * p.scale, by_power * p.power
    parts[4], parts[5] = by_share * p.share, (rows.T @ by_total) * p.weight
    parts[6] = by_tilt * p.tilt * np.where(p.lean > 0, 1.0, LEAK)
    slope[7 * count : -GLOBALS] = (by_repair * p.repair).reshape(-1, draws)
    rest = slope[-GLOBALS:]
    rest[:4] = parts[:4].sum(1) * kinds.shared
    rest[_COMMON] = by_common
    rest[_COMMON_FLOOR] = by_common_floor * p.common_floor * (1 - p.common_floor)
    rest[_TOTAL_POWER] = by_total_power * p.total_power
    rest[_TOTAL_OFFSET] = by_total.sum(0) * p.total_offset
    rest[_TILT] = (by_tilt * p.tilts).sum(0)
    rest[-5:] = by_links
    return slope * kinds.spread


def product(left: Floats, right: Floats) -> Floats:
    """left @ right in blocks so small that the linear algebra library starts no threads, which cost more here."""
    width = max(1, _UNTHREADED // left.size)
    if right.shape[1] <= width:
        return left @ right
    return np.concatenate([left @ right[:, at : at + width] for at in range(0, right.shape[1], width)], axis=1)


def bend(trouble: Floats, sharpness: Floats) -> tuple[Floats, Floats]:
    """S(u), a probability: u where it is small, 1 where it is large; and its slope."""
    log = sharpness * np.log(trouble)
    far = np.exp(-np.abs(log))  # never overflows, whichever side of 1
    failure = np.exp((np.minimum(log, 0.0) - np.log1p(far)) / sharpness)
    return failure, failure / trouble * np.where(log > 0, far, 1.0) / (1.0 + far)


def _logistic(value: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-value)))
