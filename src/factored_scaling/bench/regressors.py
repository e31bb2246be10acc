"""Regressors of the data-mixing literature: success as a function of the numbers of demonstrations.

Each is fitted to the mean success of every policy and gives the allocation with the largest predicted success.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from factored_scaling.bench.emulator import Process
from factored_scaling.bench.oracle import best_allocation
from factored_scaling.bench.worlds import Floats
from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec

RIDGE = 1.0  # of the slopes, in units of the spread of a feature
NOISE = 0.05  # standard deviation of a policy's mean success on the scale of arcsin √p

Predict = Callable[[Floats], Floats]  # demonstrations (..., N) to a number that grows with success (...)


def log_linear(demos: Floats, success: Floats) -> Predict:
    """arcsin √success as a ridge regression on the logarithms of the numbers."""
    points, values = np.log1p(demos), np.arcsin(np.sqrt(success))
    centre = points.mean(0)
    square = (points - centre).T @ (points - centre) + RIDGE * np.eye(demos.shape[1])
    slopes = np.linalg.solve(square, (points - centre).T @ (values - values.mean()))
    return lambda at: np.asarray((np.log1p(at) - centre) @ slopes)


def gaussian_process(demos: Floats, success: Floats) -> Predict:
    """arcsin √success as a Gaussian process on the logarithms, its hyperparameters those of largest evidence."""
    total = demos.sum(1, keepdims=True)
    points = np.log1p(np.concatenate([demos, total], axis=1))
    process = Process.fit(points, np.arcsin(np.sqrt(success)), np.full(len(demos), NOISE**2))

    def predict(at: Floats) -> Floats:
        return process.mean(np.log1p(np.concatenate([at, at.sum(-1, keepdims=True)], axis=-1)))

    return predict


REGRESSORS = {"log-linear": log_linear, "gaussian-process": gaussian_process}


def decide(name: str, spec: StudySpec, results: Results, budget: int) -> Mapping[str, int]:
    """The allocation with the largest predicted success."""
    found: dict[tuple[int, ...], list[tuple[float, int]]] = {}
    for row in results.rows:
        assert row.demos is not None
        key = tuple(row.demos[factor] for factor in spec.names)
        found.setdefault(key, []).append((float(row.score), row.trials or 1))
    demos = np.array(list(found), dtype=float)
    success = np.array([sum(s * t for s, t in rows) / sum(t for _, t in rows) for rows in found.values()])
    now = np.array(list(spec.sizes.values()), dtype=float)
    given = best_allocation(REGRESSORS[name](demos, success), now, budget)
    return {factor: round(float(number)) for factor, number in zip(spec.names, given, strict=True)}
