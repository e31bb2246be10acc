"""The response model: success on the trials of each factor as a function of the demonstrations in training.

Trials of factor j succeed when a skill that all trials share does not fail and robustness to j does not fail:

    p_j(n) = (1 − S(D_j·h(n))) · (1 − S(u_j(n)))

    u_j(n) = L_j·(φ_j + (1 − φ_j)·((m_j + s_j)/(m_j* + s_j))^−α_j)        m_j = Σ_i C_ij·n_i
    h(n)   = H·(φ₀ + (1 − φ₀)·(T/T*)^−β·Π_i((n_i + o)/(n_i* + o))^−β_i)   T = t₀ + n₀ + Σ_i w_i·n_i

where * marks the current demonstrations, n₀ the nominal ones, and S(u) = u·(1 + u^q)^(−1/q) saturates at 1. All are
counted in units of the current mean per factor. Every parameter is a fixed function of standard normal variables, so
the joint prior is one normal distribution. The component of the prior, q and o are drawn once per sample and do not
change.

Array axes: R training sets, N factors, samples last (long rows are fast).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from factored_scaling.model.prior import GLOBALS, Floats, PriorMixture

# Indices of the variables that are common to all factors, after the four that level, floor, scale and power share.
_COMMON, _COMMON_FLOOR, _TOTAL_POWER, _TOTAL_OFFSET, _TILT = range(4, 9)
NOISE_COMMON, NOISE_OWN, PROXY_SHIFT, PROXY_GAIN, PROXY_NOISE = range(5)  # among the links, which come last
_UNTHREADED = 150_000  # multiplications; larger products are spread over threads
LEAK = 0.3  # demonstrations that harm other trials do so less than those that help


def size_of(count: int) -> int:
    """How many standard normal variables the model of `count` factors has."""
    return 7 * count + count * count + GLOBALS


@dataclass(frozen=True)
class Parameters:
    """The parameters of every posterior sample."""

    level: Floats  # N × samples, as are the next six
    floor: Floats
    scale: Floats
    power: Floats
    share: Floats
    weight: Floats
    lean: Floats
    repair: Floats  # N × N × samples
    common: Floats  # samples, as are the next four
    common_floor: Floats
    total_power: Floats
    total_offset: Floats
    tilt: Floats
    # logarithms of noise, and the proxy's link: 5 × samples
    links: Floats

    @classmethod
    def of(cls, raw: Floats, mixture: PriorMixture) -> Parameters:
        value = mixture.centre + mixture.spread * raw
        count = round((len(raw) - GLOBALS + 12.25) ** 0.5 - 3.5)
        parts = value[: 7 * count].reshape(7, count, -1)
        rest = value[-GLOBALS:]
        moved = parts[:4] + (mixture.shared * rest[:4])[:, None, :]
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
        """The exponents by which each factor's demonstrations move all trials: N × samples."""
        return self.tilt * np.where(self.lean > 0, self.lean, LEAK * self.lean)


@dataclass(frozen=True)
class Forward:
    """Success at given training sets, and the intermediate values that the gradient needs."""

    success: Floats  # R × N × samples
    robust: Floats  # 1 − S(u)
    skilled: Floats  # 1 − S(D·h)
    hazard: Floats  # h, R × samples
    parts: tuple[Floats, ...]


def forward(parameters: Parameters, mixture: PriorMixture, demos: Floats, now: Floats, nominal: float = 0.0) -> Forward:
    """Success at `demos` (R × N, in units), where `now` (N) are the current demonstrations and `nominal` the others."""
    p, q = parameters, mixture.sharpness
    count, draws = p.level.shape
    rows = np.concatenate([now[None, :], demos])
    reach = product(rows, p.repair.reshape(count, -1)).reshape(-1, count, draws) + p.scale  # m + s
    log_reach = np.log(reach)
    total = p.total_offset + nominal + rows @ p.weight
    total_ratio = np.log(total[1:] / total[0])
    ratio = log_reach[1:] - log_reach[0]
    fallen = np.exp(-p.power * ratio)
    trouble = p.level * (p.floor + (1 - p.floor) * fallen)
    own, own_slope = saturate(trouble, q)
    tilt_ratio = np.log((demos[:, :, None] + mixture.offset) / (now[:, None] + mixture.offset))
    exponent = -p.total_power * total_ratio - (tilt_ratio * p.tilts).sum(1)
    dropped = np.exp(np.minimum(exponent, 30.0))
    hazard = p.common * (p.common_floor + (1 - p.common_floor) * dropped)
    shared, shared_slope = saturate(hazard[:, None, :] * p.share, q)
    robust, skilled = 1 - own, 1 - shared
    parts = (rows, reach, ratio, fallen, own_slope, total, total_ratio, tilt_ratio, dropped, shared_slope)
    return Forward(skilled * robust, robust, skilled, hazard, parts)


def gradient(
    state: Forward,
    parameters: Parameters,
    mixture: PriorMixture,
    by_robust: Floats,
    by_skilled: Floats,
    by_hazard: Floats | None,
    by_links: Floats,
) -> Floats:
    """The derivatives by `raw`, from those by `robust` and `skilled` (R × N × samples)."""
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
    slope = np.empty_like(mixture.centre)
    parts = slope[: 7 * count].reshape(7, count, draws)
    parts[0], parts[1] = by_level * p.level, by_floor * p.floor * (1 - p.floor)
    parts[2], parts[3] = by_reach.sum(0) * p.scale, by_power * p.power
    parts[4], parts[5] = by_share * p.share, (rows.T @ by_total) * p.weight
    parts[6] = by_tilt * p.tilt * np.where(p.lean > 0, 1.0, LEAK)
    slope[7 * count : -GLOBALS] = (by_repair * p.repair).reshape(-1, draws)
    rest = slope[-GLOBALS:]
    rest[:4] = parts[:4].sum(1) * mixture.shared
    rest[_COMMON] = by_common
    rest[_COMMON_FLOOR] = by_common_floor * p.common_floor * (1 - p.common_floor)
    rest[_TOTAL_POWER] = by_total_power * p.total_power
    rest[_TOTAL_OFFSET] = by_total.sum(0) * p.total_offset
    rest[_TILT] = (by_tilt * p.tilts).sum(0)
    rest[-5:] = by_links
    return slope * mixture.spread


def product(left: Floats, right: Floats) -> Floats:
    """left @ right in blocks so small that the linear algebra library starts no threads, which cost more here."""
    width = max(1, _UNTHREADED // left.size)
    if right.shape[1] <= width:
        return left @ right
    return np.concatenate([left @ right[:, at : at + width] for at in range(0, right.shape[1], width)], axis=1)


def saturate(trouble: Floats, sharpness: Floats) -> tuple[Floats, Floats]:
    """S(u) and its derivative: u where it is small, 1 where it is large."""
    log = sharpness * np.log(trouble)
    far = np.exp(-np.abs(log))  # never overflows, whichever side of 1
    failure = np.exp((np.minimum(log, 0.0) - np.log1p(far)) / sharpness)
    return failure, failure / trouble * np.where(log > 0, far, 1.0) / (1.0 + far)


def _logistic(value: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-value)))
