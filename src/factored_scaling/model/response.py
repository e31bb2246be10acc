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
_MOST = 300.0  # of a logarithm, so that its exponential squared is finite
LEAK = 0.3  # demonstrations that harm other trials do so less than those that help


def size_of(count: int) -> int:
    """The number of standard normal variables in the model of `count` factors."""
    return 7 * count + count * count + GLOBALS


@dataclass(frozen=True)
class Parameters:
    """The parameters of every posterior sample."""

    log_level: Floats  # N × samples, as are the next six
    floor: Floats
    scale: Floats
    power: Floats
    log_share: Floats
    weight: Floats
    lean: Floats
    repair: Floats  # N × N × samples
    log_common: Floats  # samples, as are the next four
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
        return cls(
            log_level=moved[0],
            floor=_logistic(moved[1]),
            scale=np.exp(moved[2]),
            power=np.exp(moved[3]),
            log_share=parts[4],
            weight=np.exp(parts[5]),
            lean=parts[6],
            repair=np.exp(value[7 * count : -GLOBALS]).reshape(count, count, -1),
            log_common=rest[_COMMON],
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
    hazard: Floats  # h^q, R × samples
    parts: tuple[Floats, ...]


def tilt_ratios(mixture: PriorMixture, demos: Floats, now: Floats) -> Floats:
    """Logarithms of (n_i + o)/(n_i* + o), which do not depend on the parameters."""
    by_sample = demos[:, :, None] if demos.ndim == 2 else demos
    return np.log((by_sample + mixture.offset) / (now[:, None] + mixture.offset))


def forward(
    parameters: Parameters,
    mixture: PriorMixture,
    demos: Floats,
    now: Floats,
    nominal: float = 0.0,
    tilt_ratio: Floats | None = None,
) -> Forward:
    """Success at the training sets `demos` (R × N, in units).

    `now` (N) are the current demonstrations and `nominal` the nominal ones. With separate training sets for each
    sample, `demos` is R × N × samples. `tilt_ratio` is the value of `tilt_ratios`, if it is already computed.
    """
    p, q = parameters, mixture.sharpness
    if tilt_ratio is None:
        tilt_ratio = tilt_ratios(mixture, demos, now)
    reach = np.concatenate([_repaired(now[None], p.repair), _repaired(demos, p.repair)])
    reach += p.scale  # m + s
    log_reach = np.log(reach)
    ratio = log_reach[1:]
    ratio -= log_reach[0]
    total = np.concatenate([now[None] @ p.weight, _weighted(demos, p.weight)]) + (p.total_offset + nominal)
    total_ratio = np.log(total[1:] / total[0])
    reducible = -p.power * ratio
    np.exp(np.minimum(reducible, _MOST, out=reducible), out=reducible)
    reducible *= 1 - p.floor
    own_hazard = p.floor + reducible
    reducible /= own_hazard  # share of the hazard that demonstrations reduce
    own, own_slope = saturate(_power(own_hazard, p.log_level, q), q)
    shared_reducible = np.exp(np.minimum(-p.total_power * total_ratio - (tilt_ratio * p.tilts).sum(1), 30.0))
    shared_reducible *= 1 - p.common_floor
    shared_hazard = p.common_floor + shared_reducible
    shared_reducible /= shared_hazard
    hazard = _power(shared_hazard, p.log_common, q)
    shared, shared_slope = saturate(hazard[:, None, :] * np.exp(q * p.log_share), q)
    robust, skilled = np.subtract(1, own, out=own), np.subtract(1, shared, out=shared)
    parts = (reach, ratio, reducible, own_slope, total, total_ratio, shared_reducible, shared_slope)
    return Forward(skilled * robust, robust, skilled, hazard, parts)


def gradient(
    state: Forward,
    parameters: Parameters,
    mixture: PriorMixture,
    rows: Floats,
    tilt_ratio: Floats,
    by_robust: Floats,
    by_skilled: Floats,
    by_hazard: Floats | None,
    by_links: Floats,
) -> Floats:
    """The derivatives by `raw`, from those by `robust` and `skilled` (R × N × samples) and by log h (R × samples).

    `rows` are the current demonstrations and those of every training set.
    """
    p = parameters
    reach, ratio, reducible, own_slope, total, total_ratio, shared_reducible, shared_slope = state.parts
    count, draws = p.floor.shape
    by_own_hazard = by_robust * own_slope  # by −log u, as all of these are by logarithms
    by_reducible = by_own_hazard * reducible
    sum_own_hazard, sum_reducible = by_own_hazard.sum(0), by_reducible.sum(0)
    by_reach = np.empty_like(reach)
    np.multiply(by_reducible, p.power, out=by_reach[1:])
    np.negative(by_reach[1:].sum(0), out=by_reach[0])
    by_reach /= reach
    by_repair = product(rows.T, by_reach.reshape(len(rows), -1)).reshape(count, count, draws)
    by_reducible *= ratio
    by_share = by_skilled * shared_slope
    by_h = by_share.sum(1)
    if by_hazard is not None:
        by_h = by_h - by_hazard
    by_exponent = by_h * shared_reducible
    sum_h, sum_exponent = by_h.sum(0), by_exponent.sum(0)
    by_tilt = (by_exponent[:, None, :] * tilt_ratio).sum(0)
    by_total = by_exponent * p.total_power
    by_total = np.concatenate([-by_total.sum(0, keepdims=True), by_total]) / total
    slope = np.empty_like(mixture.centre)
    parts = slope[: 7 * count].reshape(7, count, draws)
    parts[0], parts[1] = -sum_own_hazard, sum_reducible - (1 - p.floor) * sum_own_hazard
    parts[2], parts[3] = by_reach.sum(0) * p.scale, by_reducible.sum(0) * p.power
    parts[4], parts[5] = -by_share.sum(0), (rows.T @ by_total) * p.weight
    parts[6] = by_tilt * p.tilt * np.where(p.lean > 0, 1.0, LEAK)
    np.multiply(by_repair, p.repair, out=slope[7 * count : -GLOBALS].reshape(count, count, draws))
    rest = slope[-GLOBALS:]
    rest[:4] = parts[:4].sum(1) * mixture.shared
    rest[_COMMON] = -sum_h
    rest[_COMMON_FLOOR] = sum_exponent - (1 - p.common_floor) * sum_h
    rest[_TOTAL_POWER] = (by_exponent * total_ratio).sum(0) * p.total_power
    rest[_TOTAL_OFFSET] = by_total.sum(0) * p.total_offset
    rest[_TILT] = (by_tilt * p.tilts).sum(0)
    rest[-5:] = by_links
    slope *= mixture.spread
    return slope


def _repaired(demos: Floats, repair: Floats) -> Floats:
    """Σ_i C_ij·n_i: R × N × samples."""
    if demos.ndim == 2:
        return product(demos, repair.reshape(len(repair), -1)).reshape(-1, *repair.shape[1:])
    repaired: Floats = demos[:, 0, None] * repair[0]
    for place in range(1, len(repair)):
        repaired += demos[:, place, None] * repair[place]
    return repaired


def _weighted(demos: Floats, weight: Floats) -> Floats:
    """Σ_i w_i·n_i: R × samples."""
    return demos @ weight if demos.ndim == 2 else (demos * weight).sum(1)


def product(left: Floats, right: Floats) -> Floats:
    """left @ right, in blocks too small for the linear algebra library to start threads, which are slower here."""
    width = max(1, _UNTHREADED // left.size)
    if right.shape[1] <= width:
        return left @ right
    return np.concatenate([left @ right[:, at : at + width] for at in range(0, right.shape[1], width)], axis=1)


def _power(base: Floats, log_scale: Floats, sharpness: Floats) -> Floats:
    """(scale · base)^q, computed in place and clipped so that its square is finite."""
    power: Floats = np.log(base, out=base)
    power += log_scale
    power *= sharpness
    np.clip(power, -_MOST, _MOST, out=power)
    return np.exp(power, out=power)


def saturate(power: Floats, sharpness: Floats) -> tuple[Floats, Floats]:
    """S(u) and its derivative by log u, from `power` = u^q. S(u) is near u for small u and near 1 for large u."""
    share = 1.0 + power
    np.divide(power, share, out=share)
    failure = np.log(share)
    failure /= sharpness
    np.exp(failure, out=failure)
    slope = np.subtract(1.0, share, out=share)
    slope *= failure
    return failure, slope


def _logistic(value: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-value)))
