"""Simulated measurements of policies in a world: training noise, trials and grades; results as rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from factored_scaling.bench.oracle import even
from factored_scaling.bench.worlds import World
from factored_scaling.core.results import Results

Floats = NDArray[np.float64]
_STAGES = np.linspace(0.0, 1.0, 1001)
_CREDIT = 0.25 * _STAGES + 0.25 * _STAGES**2 + 0.5 * _STAGES**3


@dataclass(frozen=True, slots=True)
class Regime:
    """How policies are evaluated."""

    # trials per factor (simulation), or in all (real robot)
    per_factor: int = 0
    in_all: int = 0
    # use partial credit in worlds that have it
    graded: bool = False
    # only each policy's mean score is kept
    mean_only: bool = False
    # regimes with the same number have the same training noise and trials
    stream: int = 0

    def trials(self, count: int) -> NDArray[np.int64]:
        """Trials of each of `count` factors; the remainder goes to the first ones."""
        if self.per_factor:
            return np.full(count, self.per_factor, dtype=np.int64)
        return even(self.in_all, count)


REGIMES = {
    "simulation": Regime(per_factor=600, stream=1),
    "rollouts": Regime(per_factor=60, stream=2),
    "real": Regime(in_all=18, graded=True),
    "simulation-means": Regime(per_factor=600, mean_only=True, stream=1),
    "real-means": Regime(in_all=18, graded=True, mean_only=True),
}


@dataclass(frozen=True, slots=True)
class Measured:
    """One trained policy's mean score on each factor's trials."""

    scores: Floats
    trials: NDArray[np.int64]


def measure(world: World, demos: Mapping[str, int], regime: Regime, seed: int = 0) -> Measured:
    """Train once and evaluate. The same training set, seed and regime give the same measurement."""
    counts = [demos[name] for name in world.factors]
    rng = np.random.default_rng([world.seed, regime.stream, seed, *counts])
    chance = world.trained(np.array(counts, dtype=float), rng)
    trials = regime.trials(chance.size)
    if regime.graded and world.graded:
        return Measured(_graded(chance, trials, rng), trials)
    return Measured(rng.binomial(trials, chance) / trials, trials)


def results(world: World, training_sets: Iterable[Mapping[str, int]], regime: Regime) -> Results:
    """Rows as `results.csv` would hold them: a score per factor and policy, or only each policy's mean."""
    rows: list[dict[str, Any]] = []
    for demos in training_sets:
        rows += policy_rows(world, demos, regime, {"demos": dict(demos)})
    return Results.from_rows(rows)


def policy_rows(
    world: World, demos: Mapping[str, int], regime: Regime, names: Mapping[str, Any], seed: int = 0
) -> list[dict[str, Any]]:
    """Train once, evaluate, and the policy's rows; `names` holds the columns that name its training set."""
    measured, names = measure(world, demos, regime, seed), {**names, "seed": seed}
    if regime.mean_only:
        total = int(measured.trials.sum())
        mean = float(measured.scores @ measured.trials) / total
        return [{**names, "score": min(1.0, mean), "trials": total}]
    return [
        {**names, "factor": name, "score": float(score), "trials": int(trials)}
        for name, score, trials in zip(world.factors, measured.scores, measured.trials, strict=True)
    ]


def stage_chance(chance: Floats) -> Floats:
    """The probability of passing one of three stages when the mean credit is `chance`."""
    return np.interp(chance, _CREDIT, _STAGES)


def _graded(chance: Floats, trials: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """Three stages passed one after another, each with the same probability, worth ¼, ¼ and ½."""
    stage = stage_chance(chance)
    passed = trials
    credit = np.zeros(chance.size)
    for worth in (0.25, 0.25, 0.5):
        passed = rng.binomial(passed, stage)
        credit += worth * passed
    mean: Floats = credit / trials
    return mean
