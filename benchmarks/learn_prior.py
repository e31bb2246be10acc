"""Learn the constants of the response model's prior from tables of trained policies.

    python benchmarks/learn_prior.py results/tables

The model is fitted with a wide prior to all policies around each start of the tables whose role is `tuning`. The centre
of every parameter is the mean of its fitted values over starts and factors, its spread what they differ by, widened.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import fields, replace
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


def one(values: list[Floats], wide: float) -> tuple[float, float]:
    """Centre and spread of a parameter: of samples (last axis) per start."""
    means = [np.atleast_1d(value.mean(-1)) for value in values]
    spread = max(WIDER * float(np.std(np.concatenate(means))), wide / LEAST)
    return round(float(np.mean([mean.mean() for mean in means])), 1), round(spread, 1)


def each(values: list[Floats], wide: tuple[float, float, float]) -> tuple[float, float, float]:
    """Centre, spread that all factors share and each factor's own: of N × samples per start."""
    means = [value.mean(1) for value in values]
    shared = max(WIDER * float(np.std([mean.mean() for mean in means])), wide[1] / LEAST)
    own = max(WIDER * float(np.sqrt(np.mean([mean.var() for mean in means]))), wide[2] / LEAST)
    return round(float(np.mean([mean.mean() for mean in means])), 1), round(shared, 1), round(own, 1)


def learned(found: list[tuple[Parameters, PriorMixture]]) -> Prior:
    """The prior under which the fitted starts look like a sample."""
    every = [parameters for parameters, _ in found]
    off = [~np.eye(len(p.floor), dtype=bool) for p in every]
    repair = [np.log(p.repair) for p in every]
    cross = one([value[mask] for value, mask in zip(repair, off, strict=True)], WIDE.cross_repair[1])
    own = one([value[~mask] for value, mask in zip(repair, off, strict=True)], WIDE.own_repair[1])
    return Prior(
        level=each([p.log_level for p in every], WIDE.level),
        floor=each([_logit(p.floor) for p in every], WIDE.floor),
        scale=each([np.log(p.scale) for p in every], WIDE.scale),
        power=each([np.log(p.power) for p in every], WIDE.power),
        share=one([p.log_share for p in every], WIDE.share)[1],
        weight=one([np.log(p.weight) for p in every], WIDE.weight)[1],
        tilt=one([np.log(p.tilt) for p in every], WIDE.tilt[1]),
        lean=one([p.lean for p in every], WIDE.lean[1]),
        common=one([p.log_common for p in every], WIDE.common[1]),
        common_floor=one([_logit(p.common_floor) for p in every], WIDE.common_floor[1]),
        total_power=one([np.log(p.total_power) for p in every], WIDE.total_power[1]),
        total_offset=one([np.log(p.total_offset) for p in every], WIDE.total_offset[1]),
        own_repair=(0.0, own[1]),
        cross_repair=cross,
        noise_common=one([p.links[0] for p in every], WIDE.noise_common[1]),
        noise_own=one([p.links[1] for p in every], WIDE.noise_own[1]),
        sharpness=one([np.log(mixture.sharpness) for _, mixture in found], WIDE.sharpness[1]),
        offset=one([np.log(mixture.offset) for _, mixture in found], WIDE.offset[1]),
    )


def _logit(value: Floats) -> Floats:
    return np.asarray(np.log(value.clip(min=1e-9)) - np.log1p(-value.clip(max=1 - 1e-9)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path)
    options = parser.parse_args()
    starts = [
        (table, start)
        for table in read_tables(options.tables, "tuning").values()
        for start in sorted(set(table.start.tolist()))
        if ((table.start == start) & (np.array(table.group) == "inside")).sum() >= len(table.factors)
    ]
    prior = learned([fitted(table, start) for table, start in starts])
    print(f"Prior(  # {len(starts)} starts")
    for field in fields(Prior):
        if not field.name.startswith("proxy"):
            print(f"    {field.name}={getattr(prior, field.name)},")
    print(")")


if __name__ == "__main__":
    main()
