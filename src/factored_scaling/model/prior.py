"""The prior of the response model: what trained policies did, and a broad component for all else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]  # single precision is faster, but its rounding gives other samples on other machines
GLOBALS = 14  # variables that are common to all factors


@dataclass(frozen=True)
class Prior:
    """One component of the prior: centre and spread of every parameter, most of them on a log scale.

    Of three numbers the second is the spread that all factors share, the third each factor's own.
    """

    level: tuple[float, float, float] = (-0.5, 1.3, 2.8)
    floor: tuple[float, float, float] = (-4.0, 1.3, 3.0)
    scale: tuple[float, float, float] = (0.3, 1.4, 0.9)
    power: tuple[float, float, float] = (0.8, 0.3, 0.5)
    share: float = 0.4
    weight: float = 0.6
    # how strongly each factor's demonstrations move all trials; most help, some harm
    tilt: tuple[float, float] = (-2.7, 0.5)
    lean: tuple[float, float] = (0.3, 0.6)
    common: tuple[float, float] = (-1.1, 2.1)
    common_floor: tuple[float, float] = (-5.2, 1.0)
    total_power: tuple[float, float] = (1.2, 0.5)
    total_offset: tuple[float, float] = (0.3, 1.2)
    # effect of a demonstration on trials of its own factor, and of the others
    own_repair: tuple[float, float] = (0.0, 0.2)
    cross_repair: tuple[float, float] = (-3.0, 1.4)
    noise_common: tuple[float, float] = (-3.2, 0.3)
    noise_own: tuple[float, float] = (-3.5, 0.4)
    sharpness: tuple[float, float] = (-0.5, 0.3)
    offset: tuple[float, float] = (0.1, 0.5)
    # the proxy's line and the scatter around it
    proxy_shift: tuple[float, float] = (0.0, 0.5)
    proxy_gain: tuple[float, float] = (0.0, 1.0)
    proxy_noise: tuple[float, float] = (-1.5, 1.0)


# Constants that benchmarks/learn_prior.py learned from trained policies. The floor is an exception: demonstrations
# repaired every failure there (-5.6, 1.3, 1.5), and may not do so elsewhere.
LEARNED = Prior()
# Where those do not hold: any demonstrations may help any trials, failures may stay, the shared skill may grow slowly.
BROAD = Prior(
    floor=(-1.2, 1.2, 3.5),
    common_floor=(-0.5, 1.6),
    total_power=(0.0, 1.2),
    own_repair=(-1.3, 1.4),
    cross_repair=(-1.3, 1.4),
    sharpness=(0.2, 0.6),
    tilt=(-2.1, 0.8),
    lean=(0.3, 0.9),
    offset=(0.4, 1.0),
)
# Prior probability of each component.
PRIORS: tuple[tuple[float, Prior], ...] = ((0.9, LEARNED), (0.1, BROAD))


@dataclass(frozen=True)
class PriorMixture:
    """For every sample: its component's centre and spread of the variables, and what stays fixed while sampling."""

    centre: Floats  # variables × samples
    spread: Floats
    shared: Floats  # 4 × samples: the spreads that level, floor, scale and power share over factors
    sharpness: Floats  # samples
    offset: Floats  # samples
    component: NDArray[np.int64]  # samples: index of the component

    def __getitem__(self, chosen: NDArray[np.int64]) -> PriorMixture:
        return PriorMixture(*(getattr(self, field.name)[..., chosen] for field in fields(self)))


def draw_mixture(
    rng: np.random.Generator, draws: int, count: int, priors: Sequence[tuple[float, Prior]] = PRIORS
) -> PriorMixture:
    """Components of `draws` samples, stratified: every component occurs in its proportion."""
    edges = np.cumsum([weight for weight, _ in priors])
    component = np.searchsorted(edges[:-1] / edges[-1], (np.arange(draws) + 0.5) / draws).astype(np.int64)
    component = component[rng.permutation(draws)]
    columns = [_variables(prior, count) for _, prior in priors]
    shared = np.array([[prior.level[1], prior.floor[1], prior.scale[1], prior.power[1]] for _, prior in priors])
    sharpness = np.array([prior.sharpness for _, prior in priors])[component]
    offsets = np.array([prior.offset for _, prior in priors])[component]
    return PriorMixture(
        np.stack([centre for centre, _ in columns], axis=1)[:, component],
        np.stack([spread for _, spread in columns], axis=1)[:, component],
        shared[component].T,
        np.exp(sharpness[:, 0] + sharpness[:, 1] * rng.standard_normal(draws)),
        np.exp(offsets[:, 0] + offsets[:, 1] * rng.standard_normal(draws)),
        component,
    )


def _variables(prior: Prior, count: int) -> tuple[Floats, Floats]:
    """Centre and spread of every variable, in the order of `Parameters.of`."""
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
        square = np.where(np.eye(count, dtype=bool), prior.own_repair[place], prior.cross_repair[place]).ravel()
        made.append(np.concatenate([np.repeat([f[place] for f in factors], count), square, [r[place] for r in rest]]))
    return made[0], made[1]
