"""Learn the constants of the response model's prior from tables of trained policies.

    python benchmarks/learn_prior.py results/tables results/task-variants

The model is fitted with a wide prior to all policies around each start of the tables whose role is `tuning`. The centre
of every parameter is the mean of its fitted values over starts and factors, its spread what they differ by, widened.
Every table has the same weight.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from response_models import read_tables

from factored_scaling.bench.policy_tables import PolicyTable
from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.model.likelihood import LogLikelihood
from factored_scaling.model.observations import observe
from factored_scaling.model.prior import Prior, PriorMixture, draw_mixture
from factored_scaling.model.response import Parameters, size_of
from factored_scaling.model.sampler import SamplerSettings, sample

Floats = NDArray[np.float64]
# Weak knowledge: orders of magnitude. What is learned does not depend on the prior that it replaces.
WIDE = Prior(
    level=(-1.5, 1.0, 3.0),
    floor=(-2.5, 2.0, 4.0),
    scale=(0.5, 1.5, 1.5),
    power=(0.3, 0.8, 1.0),
    share=0.5,
    weight=0.8,
    tilt=(-2.5, 1.5),
    lean=(0.3, 1.5),
    common=(-1.5, 2.0),
    common_floor=(-2.0, 2.5),
    total_power=(0.0, 1.5),
    total_offset=(0.0, 1.5),
    own_repair=(0.0, 0.4),
    cross_repair=(-3.0, 1.8),
    noise_common=(-3.1, 0.6),
    noise_own=(-3.5, 0.6),
    sharpness=(0.2, 0.8),
    offset=(0.3, 1.2),
)
SLOW = SamplerSettings(draws=128, moves=3, last=24, n_leapfrog=10, steps=300)
WIDER = 1.3  # spreads than starts and factors differ by: one simulator is not all robots
LEAST = 3.0  # no spread is smaller than this part of the wide prior's
LEAST_NOISE = 2.0  # the same for training noise, of which few policies say little
OUTSIDE = ("unbalanced",)  # groups with starts of their own


def fitted(table: PolicyTable, start: int) -> tuple[Parameters, PriorMixture]:
    """The posterior of one start, given every policy around it."""
    keep = (table.start == start) & (table.nominal == 0) & ~np.isin(np.array(table.group), OUTSIDE)
    most = int(table.demos[keep].max())
    spec = StudySpec(dict.fromkeys(table.factors, most), construction="screen")
    known = observe(spec, Results.from_rows(list(_rows(table.where(keep)))))
    count = len(table.factors)
    known = replace(known, demos=known.demos * known.unit / start, now=np.ones(count), unit=float(start))
    rng = np.random.default_rng(0)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        mixture = draw_mixture(rng, SLOW.draws, count, ((1.0, WIDE),))
        raw, mixture = sample(LogLikelihood(known).given, mixture, size_of(count), rng, SLOW)
    return Parameters.of(raw, mixture), mixture


def _rows(table: PolicyTable) -> Iterator[dict[str, object]]:
    for index in range(len(table)):
        demos = {name: int(number) for name, number in zip(table.factors, table.demos[index], strict=True)}
        for j, name in enumerate(table.factors):
            score, trials = float(table.scores[index, j]), int(table.trials[index, j])
            yield {"demos": demos, "seed": int(table.seed[index]), "factor": name, "score": score, "trials": trials}


@dataclass(frozen=True)
class Fitted:
    """The posterior of one start, and its weight among all."""

    parameters: Parameters
    mixture: PriorMixture
    weight: float


def one(values: list[Floats], weights: list[float], wide: float, least: float = LEAST) -> tuple[float, float]:
    """Centre and spread of a parameter: of samples (last axis) per start."""
    means = [np.atleast_1d(value.mean(-1)) for value in values]
    each_weight = np.concatenate([np.full(mean.size, w / mean.size) for mean, w in zip(means, weights, strict=True)])
    centre, spread = _moments(np.concatenate(means), each_weight)
    return round(centre, 1), round(max(WIDER * spread, wide / least), 1)


def each(values: list[Floats], weights: list[float], wide: tuple[float, float, float]) -> tuple[float, float, float]:
    """Centre, spread that all factors share and each factor's own: of N × samples per start."""
    means = [value.mean(1) for value in values]
    centre, spread = _moments(np.array([mean.mean() for mean in means]), np.array(weights))
    inside = float(np.average([mean.var() for mean in means], weights=weights))
    shared, own = max(WIDER * spread, wide[1] / LEAST), max(WIDER * inside**0.5, wide[2] / LEAST)
    return round(centre, 1), round(shared, 1), round(own, 1)


def _moments(values: Floats, weights: Floats) -> tuple[float, float]:
    """Weighted mean and standard deviation."""
    mean = float(np.average(values, weights=weights))
    return mean, float(np.average((values - mean) ** 2, weights=weights)) ** 0.5


def learned(found: list[Fitted]) -> Prior:
    """The prior under which the fitted starts look like a sample."""
    every, weights = [one.parameters for one in found], [one.weight for one in found]
    off = [~np.eye(len(p.floor), dtype=bool) for p in every]
    repair = [np.log(p.repair) for p in every]

    def single(values: list[Floats], wide: float, least: float = LEAST) -> tuple[float, float]:
        return one(values, weights, wide, least)

    cross = single([value[mask] for value, mask in zip(repair, off, strict=True)], WIDE.cross_repair[1])
    own = single([value[~mask] for value, mask in zip(repair, off, strict=True)], WIDE.own_repair[1])
    return Prior(
        level=each([p.log_level for p in every], weights, WIDE.level),
        floor=each([_logit(p.floor) for p in every], weights, WIDE.floor),
        scale=each([np.log(p.scale) for p in every], weights, WIDE.scale),
        power=each([np.log(p.power) for p in every], weights, WIDE.power),
        share=single([p.log_share for p in every], WIDE.share)[1],
        weight=single([np.log(p.weight) for p in every], WIDE.weight)[1],
        tilt=single([np.log(p.tilt) for p in every], WIDE.tilt[1]),
        lean=single([p.lean for p in every], WIDE.lean[1]),
        common=single([p.log_common for p in every], WIDE.common[1]),
        common_floor=single([_logit(p.common_floor) for p in every], WIDE.common_floor[1]),
        total_power=single([np.log(p.total_power) for p in every], WIDE.total_power[1]),
        total_offset=single([np.log(p.total_offset) for p in every], WIDE.total_offset[1]),
        own_repair=(0.0, own[1]),
        cross_repair=cross,
        noise_common=single([p.links[0] for p in every], WIDE.noise_common[1], LEAST_NOISE),
        noise_own=single([p.links[1] for p in every], WIDE.noise_own[1], LEAST_NOISE),
        sharpness=single([np.log(one.mixture.sharpness) for one in found], WIDE.sharpness[1]),
        offset=single([np.log(one.mixture.offset) for one in found], WIDE.offset[1]),
    )


def _logit(value: Floats) -> Floats:
    return np.asarray(np.log(value.clip(min=1e-9)) - np.log1p(-value.clip(max=1 - 1e-9)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="+", help="folders of tables")
    options = parser.parse_args()
    starts = [
        (table, start)
        for folder in options.tables
        for table in read_tables(folder, "tuning").values()
        for start in sorted(set(table.start.tolist()))
        if ((table.start == start) & (np.array(table.group) == "inside")).sum() >= len(table.factors)
    ]
    share = Counter(id(table) for table, _ in starts)
    prior = learned([Fitted(*fitted(table, start), 1 / share[id(table)]) for table, start in starts])
    print(f"Prior(  # {len(starts)} starts of {len(share)} tables, every table with the same weight")
    for field in fields(Prior):
        if not field.name.startswith("proxy"):
            print(f"    {field.name}={getattr(prior, field.name)},")
    print(")")


if __name__ == "__main__":
    main()
