"""Regressors of the data-mixing literature: success as a function of the numbers of demonstrations.

Each is fitted to the mean success of every policy and gives the allocation with the largest predicted success; with
LightGBM, whose predictions are piecewise constant, it is the mean of the best of many random allocations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec

import numpy as np

from factored_scaling.bench.emulator import Process
from factored_scaling.bench.oracle import best_allocation
from factored_scaling.bench.worlds import Floats
from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput, installs

RIDGE = 1.0  # of the slopes, in units of the spread of a feature
NOISE = 0.05  # standard deviation of a policy's mean success on the scale of arcsin √p
# Settings of the trees. Number and rate are those of RegMix; with LightGBM's default of 20 rows per leaf, no study
# would have a split.
TREES, RATE, LEAST_ROWS = 1000, 0.01, 1
RANDOM, AVERAGED = 5000, 100  # number of predicted allocations, and of the best ones that are averaged

Predict = Callable[[Floats], Floats]  # demonstrations (..., N) to a number that grows with success (...)


def log_linear(demos: Floats, success: Floats) -> Predict:
    """arcsin √success as a ridge regression on the logarithms of the numbers."""
    points, values = np.log1p(demos), np.arcsin(np.sqrt(success))
    centre = points.mean(0)
    square = (points - centre).T @ (points - centre) + RIDGE * np.eye(demos.shape[1])
    slopes = np.linalg.solve(square, (points - centre).T @ (values - values.mean()))
    return lambda at: np.asarray((np.log1p(at) - centre) @ slopes)


def gaussian_process(demos: Floats, success: Floats) -> Predict:
    """arcsin √success as a Gaussian process on the logarithms, with hyperparameters of maximum evidence."""
    total = demos.sum(1, keepdims=True)
    points = np.log1p(np.concatenate([demos, total], axis=1))
    process = Process.fit(points, np.arcsin(np.sqrt(success)), np.full(len(demos), NOISE**2))

    def predict(at: Floats) -> Floats:
        return process.mean(np.log1p(np.concatenate([at, at.sum(-1, keepdims=True)], axis=-1)))

    return predict


def lightgbm(demos: Floats, success: Floats) -> Predict:
    """Boosted trees on each factor's share and the total. They are constant beyond the largest measured total."""
    import lightgbm as library

    def points(at: Floats) -> Floats:
        total = at.sum(-1, keepdims=True)
        return np.concatenate([at / total.clip(min=1.0), total], axis=-1)

    quiet = {"verbosity": -1, "num_threads": 1, "min_data_in_bin": LEAST_ROWS, "feature_pre_filter": False}
    settings = quiet | {"objective": "regression", "learning_rate": RATE, "min_data_in_leaf": LEAST_ROWS, "seed": 0}
    booster = library.train(settings, library.Dataset(points(demos), success, params=quiet), num_boost_round=TREES)

    def predict(at: Floats) -> Floats:
        flat = points(at).reshape(-1, at.shape[-1] + 1)
        return np.asarray(booster.predict(flat, num_threads=1), dtype=float).reshape(at.shape[:-1])

    return predict


def mean_of_best(predict: Predict, now: Floats, budget: int) -> Floats:
    """The mean of the random allocations that are predicted best, in whole demonstrations. Ties have equal weight."""
    allocations = budget * np.random.default_rng(0).dirichlet(np.ones(now.size), RANDOM)
    predicted = predict(now + allocations)
    mean = allocations[predicted >= np.partition(predicted, -AVERAGED)[-AVERAGED]].mean(0)
    whole = np.floor(mean)
    left = round(budget - whole.sum())
    whole[np.argsort(whole - mean, kind="stable")[:left]] += 1
    return np.asarray(whole)


REGRESSORS = {"log-linear": log_linear, "gaussian-process": gaussian_process, "lightgbm": lightgbm}


def check_installed(name: str, where: str) -> None:
    """Raise InvalidInput if a regressor needs a missing package."""
    if name == "lightgbm" and find_spec("lightgbm") is None:
        raise InvalidInput("this needs LightGBM, which is not installed", where=where, hint=installs("bench"))


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
    search = mean_of_best if name == "lightgbm" else best_allocation
    given = search(REGRESSORS[name](demos, success), now, budget)
    return {factor: round(float(number)) for factor, number in zip(spec.names, given, strict=True)}
