"""Emulators of policy tables: success on each factor's trials, and its noise, at any composition.

One Gaussian process per factor on θ = arcsin √success, over the logarithms of all counts and of their total. The noise
of a policy has three parts: the counting noise of its trials, a part common to all trials and a part for each factor.
The last two shrink with the size of the training set.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from factored_scaling.bench.policy_tables import PolicyTable, read_table
from factored_scaling.io.text import read_json

Floats = NDArray[np.float64]
OFFSET = 2.0  # demonstrations added to a count before the logarithm, which makes 0 finite
_EDGE = 0.25  # successes and failures added, which keeps θ inside its range
FOLDS = 5
FILE = "emulator.json"


def angle(successes: NDArray[np.int64] | Floats, trials: NDArray[np.int64] | Floats) -> Floats:
    """θ of the successes; its counting noise is about 1/(4·trials) at any success."""
    return np.asarray(np.arcsin(np.sqrt((successes + _EDGE) / (trials + 2 * _EDGE))))


def success(theta: Floats) -> Floats:
    """The success at θ."""
    return np.asarray(np.sin(np.clip(theta, 0.0, np.pi / 2)) ** 2)


def features(demos: NDArray[np.int64] | Floats, nominal: NDArray[np.int64] | Floats | float) -> Floats:
    """Columns: every factor's count, the nominal ones and the total, as logarithms."""
    nominal = np.broadcast_to(np.asarray(nominal, dtype=float), np.shape(demos)[:-1])
    every = np.concatenate([demos, nominal[..., None]], axis=-1)
    return np.asarray(np.log(np.concatenate([every, every.sum(axis=-1, keepdims=True)], axis=-1) + OFFSET))


@dataclass(frozen=True)
class Process:
    """A Gaussian process: a linear function of the features and smooth departures from it."""

    hyper: Floats  # logarithms: noise at the mean total, its slope, linear variance, amplitude, a length per feature
    points: Floats  # features of the rows
    known: Floats  # known variance of the rows
    values: Floats  # θ less its mean
    middle: float

    @classmethod
    def fit(cls, points: Floats, values: Floats, known: Floats, hyper: Floats | None = None) -> Process:
        """Fit the process. Without `hyper`, hyperparameters of maximum likelihood are used."""
        middle = float(values.mean())
        centred = values - middle
        if hyper is None:
            first = np.concatenate([[-6.0, -0.5, -1.0, -2.0], np.full(points.shape[1], 1.0)])

            def loss(at: Floats) -> tuple[float, Floats]:
                return _negative_evidence(at, points, centred, known)

            bounds = [(-12.0, -2.0), (-3.0, 1.0), (-8.0, 2.0), (-8.0, 2.0), *[(-1.5, 3.5)] * points.shape[1]]
            hyper = minimize(loss, first, jac=True, bounds=bounds, method="L-BFGS-B", options={"maxiter": 60}).x
        return cls(np.asarray(hyper), points, known, centred, middle)

    @cached_property
    def _solved(self) -> Floats:
        matrix = self.covariance(self.points, self.points) + np.diag(self.noise(self.points) + self.known)
        return np.asarray(cho_solve(cho_factor(matrix, lower=True), self.values))

    def covariance(self, left: Floats, right: Floats) -> Floats:
        """Prior covariance of θ between two sets of points."""
        return _kernel(self.hyper, left, right, self.points.mean(0))

    def variance(self, points: Floats) -> Floats:
        """Prior variance of θ at every point."""
        straight = ((points - self.points.mean(0)) ** 2).mean(1)
        return np.asarray(np.exp(self.hyper[2]) * straight + np.exp(self.hyper[3]))

    def noise(self, points: Floats) -> Floats:
        """Variance of θ over training runs."""
        return np.asarray(np.exp(self.hyper[0] + self.hyper[1] * (points[..., -1] - _total(self.points))))

    def mean(self, points: Floats) -> Floats:
        """Expected θ."""
        flat = points.reshape(-1, points.shape[-1])
        found = self.middle + self.covariance(flat, self.points) @ self._solved
        return np.asarray(found.reshape(points.shape[:-1]))


def _total(points: Floats) -> float:
    return float(points[:, -1].mean())


def _kernel(hyper: Floats, left: Floats, right: Floats, centre: Floats) -> Floats:
    linear, amplitude, lengths = np.exp(hyper[2]), np.exp(hyper[3]), np.exp(hyper[4:])
    scaled_left, scaled_right = left / lengths, right / lengths
    squares = (scaled_left**2).sum(1)[:, None] + (scaled_right**2).sum(1) - 2 * scaled_left @ scaled_right.T
    straight = ((left - centre) @ (right - centre).T) / left.shape[1]
    return np.asarray(linear * straight + amplitude * np.exp(-0.5 * squares.clip(min=0)))


def _negative_evidence(hyper: Floats, points: Floats, values: Floats, known: Floats) -> tuple[float, Floats]:
    count, size = points.shape
    lengths = np.exp(hyper[4:])
    centred = points - points.mean(0)
    linear = np.exp(hyper[2]) * (centred @ centred.T) / size
    apart = (points[:, None, :] - points[None, :, :]) ** 2
    smooth = np.exp(hyper[3]) * np.exp(-0.5 * (apart / lengths**2).sum(-1))
    along = points[:, -1] - points[:, -1].mean()
    noise = np.exp(hyper[0] + hyper[1] * along)
    factor = cho_factor(linear + smooth + np.diag(noise + known), lower=True)
    solved = cho_solve(factor, values)
    inverse = cho_solve(factor, np.eye(count))
    value = 0.5 * values @ solved + np.log(np.diagonal(factor[0])).sum()
    outer = inverse - np.outer(solved, solved)  # twice the derivative by the matrix
    on_smooth = outer * smooth
    slopes = [
        (np.diagonal(outer) * noise).sum(),
        (np.diagonal(outer) * noise * along).sum(),
        (outer * linear).sum(),
        on_smooth.sum(),
        *(np.einsum("ab,abd->d", on_smooth, apart) / lengths**2),
    ]
    # weak prior on every length, because rows do not determine those of nearly constant features
    pull = 0.5 * (hyper[4:] - 1.0) ** 2
    gradient = 0.5 * np.array(slopes)
    gradient[4:] += hyper[4:] - 1.0
    return float(value + pull.sum()), gradient


@dataclass(frozen=True, eq=False)
class Emulator:
    """Success of training on any composition, learned from a table."""

    table: PolicyTable
    hyper: Floats  # factors × hyperparameters of the processes
    common: float  # share of the training noise's variance that all trials of a policy have in common

    @classmethod
    def fit(cls, table: PolicyTable) -> Emulator:
        """Fit the emulator to the table by maximum likelihood."""
        points, theta, known = _rows(table)
        columns = range(len(table.factors))
        processes = [Process.fit(points, theta[:, j], known[:, j]) for j in columns]
        emulator = cls(table, np.array([process.hyper for process in processes]), 0.0)
        return replace(emulator, common=_common_part(emulator))

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """One per factor."""
        points, theta, known = _rows(self.table)
        columns = range(len(self.table.factors))
        return tuple(Process.fit(points, theta[:, j], known[:, j], self.hyper[j]) for j in columns)

    def theta(self, demos: Floats, nominal: Floats | float = 0.0) -> Floats:
        """Expected θ on each factor's trials at `demos` (..., N): (..., N)."""
        points = features(demos, nominal)
        return np.stack([process.mean(points) for process in self.processes], axis=-1)

    def spread(self, demos: NDArray[np.int64] | Floats, nominal: NDArray[np.int64] | Floats | float = 0.0) -> Floats:
        """Standard deviation of θ over training runs at `demos` (..., N): (..., N)."""
        points = features(demos, nominal)
        return np.sqrt(np.stack([process.noise(points) for process in self.processes], axis=-1))

    def success(self, demos: Floats, nominal: Floats | float = 0.0) -> Floats:
        """Expected success on each factor's trials at `demos` (..., N): (..., N)."""
        return success(self.theta(demos, nominal))

    def trained(self, demos: Floats, nominal: float, rng: np.random.Generator) -> Floats:
        """True success on each factor's trials of one policy that is trained on `demos`."""
        theta, spread = self.theta(demos, nominal), self.spread(demos, nominal)
        together, own = rng.standard_normal(), rng.standard_normal(theta.shape[-1])
        return success(theta + spread * (np.sqrt(self.common) * together + np.sqrt(1 - self.common) * own))

    def resampled(self, number: int) -> Emulator:
        """The emulator of rows drawn with replacement, with the same hyperparameters; number 0 has all rows."""
        if number == 0:
            return self
        rng = np.random.default_rng(number)
        chosen = np.sort(rng.integers(0, len(self.table), len(self.table)))
        rows = self.table.rows(chosen)
        return replace(self, table=rows)

    def held_out(self) -> Floats:
        """Cross-validated θ of every row; repeated compositions are held out together."""
        points, theta, known = _rows(self.table)
        which = np.column_stack([self.table.demos, self.table.nominal])
        composition = np.unique(which, axis=0, return_inverse=True)[1].ravel()
        fold = np.random.default_rng(0).permutation(composition.max() + 1)[composition] % FOLDS
        predicted = np.empty_like(theta)
        for j, number in itertools.product(range(len(self.table.factors)), range(FOLDS)):
            inside = fold != number
            process = Process.fit(points[inside], theta[inside, j], known[inside, j], self.hyper[j])
            predicted[~inside, j] = process.mean(points[~inside])
        return predicted

    def to_mapping(self) -> dict[str, Any]:
        """Plain data for `read_emulator`, which also needs the table."""
        return {"rows": len(self.table), "hyper": np.round(self.hyper, 4).tolist(), "common": round(self.common, 4)}


def read_emulator(folder: str | Path) -> Emulator:
    """The emulator of the table in `folder`. It is fitted if `emulator.json` is missing or belongs to other rows."""
    table = read_table(folder)
    path = Path(folder) / FILE
    if path.exists():
        data = read_json(path)
        if data.get("rows") == len(table):
            return Emulator(table, np.array(data["hyper"], dtype=float), float(data["common"]))
    return Emulator.fit(table)


def _rows(table: PolicyTable) -> tuple[Floats, Floats, Floats]:
    """Features, θ and its counting noise."""
    return (
        features(table.demos, table.nominal),
        angle(table.successes, table.trials),
        np.asarray(0.25 / (table.trials + 2 * _EDGE), dtype=float),
    )


def _common_part(emulator: Emulator) -> float:
    """How far the cross-validated residuals of a policy's factors agree, in units of the training noise."""
    table = emulator.table
    spread = emulator.spread(table.demos, table.nominal)
    residual = angle(table.successes, table.trials) - emulator.held_out()
    pairs = residual.sum(1) ** 2 - (residual**2).sum(1)
    expected = spread.sum(1) ** 2 - (spread**2).sum(1)
    return float(np.clip(pairs.sum() / expected.sum(), 0.0, 1.0))
