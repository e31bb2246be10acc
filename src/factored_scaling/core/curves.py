"""The scaling curve 1 − a·(n + base)^b: the paper's fit, and thousands of refits at once for its uncertainty."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from factored_scaling.core.results import CurvePoints
from factored_scaling.core.spec import Combination
from factored_scaling.errors import InvalidInput, NotEnoughData

Floats = NDArray[np.float64]

FLOOR = 0.001  # of 1 − S where the number of trials is unknown
_LARGEST_LOG = math.log(sys.float_info.max)
_FLAT = 1e-12  # an exponent this near to 0 is rounding of a constant score
_MOST_DRAWS = 1_500_000  # of a curve's scores over all refits
_FEWEST = 100  # refits
_AT_ONCE = 4_000_000  # scores drawn before they are fitted, to bound the memory


@dataclass(frozen=True, slots=True)
class Curve:
    """A fitted curve. `exponent` is the least-squares one; where it is not negative the curve is flat and b is 0.

    It is kept as log a: a steep curve over few of many demonstrations has an a beyond the largest number, though its
    predictions are ordinary.
    """

    combination: Combination
    log_a: float
    b: float
    exponent: float
    points: CurvePoints

    @property
    def a(self) -> float:
        """The curve's factor; the largest number there is where it would be larger."""
        return math.exp(self.log_a) if self.log_a < _LARGEST_LOG else sys.float_info.max

    def at(self, n: float) -> float:
        """Predicted score with `n` demonstrations of the combination's own; −∞ without any demonstration at all."""
        return 1.0 - self._failure(n)

    def slope(self, budget: float) -> float:
        """Mean gain per demonstration over the next `budget` of them."""
        if not budget > 0:
            raise InvalidInput(f"a slope needs a budget above 0, not {budget!r}")
        size = self.combination.size
        # The difference of two predictions, without the digits that subtracting them would lose.
        fall = math.expm1(self.b * math.log1p(budget / (size + self.combination.base)))
        return 0.0 if self.b == 0.0 else -self._failure(size) * fall / budget

    def _failure(self, n: float) -> float:
        demos = n + self.combination.base
        if not demos >= 0:
            raise InvalidInput(f"a curve has no value at n = {n!r}", hint="n counts demonstrations, from 0 up")
        if self.b == 0.0:
            return math.exp(self.log_a)
        log_failure = self.log_a + self.b * math.log(demos) if demos > 0 else math.inf
        return math.exp(log_failure) if log_failure < _LARGEST_LOG else math.inf


def fit_power_law(points: CurvePoints) -> Curve:
    """Least squares of log(1 − S) on log(n + base), one row per point; a rising failure rate makes the curve flat.

    Points with n + base = 0 have no logarithm and are left out.
    """
    _check(points)
    sizes, failures, keep = _arrays([points])
    label, size, base = points.combination.label, points.combination.size, points.combination.base
    have = sorted({n for n in points.n if n + base > 0})
    if len(have) < 2:
        less = 0 if base > 0 else size // 2
        missing = [n for n in (less, size) if n not in have][: 2 - len(have)]
        raise NotEnoughData(
            f"the curve of {label} needs scores at two or more sizes n{'' if base else ' above 0'}"
            + (f"; there is only n = {have[0]}" if have else "; there are none"),
            hint=f"measure {' and '.join(f'n = {n}' for n in missing)}"
            if less + base > 0
            else "collect more demos first",
        )
    log_a, b, exponent = _least_squares(sizes, np.log(failures), keep)
    return Curve(points.combination, float(log_a[0]), float(b[0]), float(exponent[0]), points)


@dataclass(frozen=True)
class Refits:
    """Many refits of the curves to scores redrawn from their uncertainty; replicate by curve."""

    curves: tuple[Curve, ...]
    log_a: Floats
    b: Floats

    def slopes(self, budgets: Sequence[float]) -> Floats:
        """Every replicate's slope of every curve; `budgets[c]` demonstrations of curve c."""
        total = np.array([curve.combination.total for curve in self.curves], dtype=float)
        step = np.asarray(budgets, dtype=float)
        failure = np.exp(self.log_a + self.b * np.log(total))
        gain: Floats = -failure * np.expm1(self.b * np.log1p(step / total)) / step
        return gain

    def at(self, n: Floats) -> Floats:
        """Every replicate's prediction at `n[c]` of curve c."""
        base = np.array([curve.combination.base for curve in self.curves], dtype=float)
        return _predict(self.log_a, self.b, n + base)

    def band(self, curve: int, n: Floats, level: float = 0.95) -> tuple[Floats, Floats]:
        """Lower and upper edge of curve number `curve` at the sizes `n`."""
        base = self.curves[curve].combination.base
        sizes = np.asarray(n, dtype=float)[:, None] + base
        draws = _predict(self.log_a[:, curve], self.b[:, curve], sizes)
        draws = np.maximum(draws, 0.0)  # −∞ would leave nothing to interpolate between quantiles
        low, high = central(draws, level)
        return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


def central(values: Floats, level: float) -> tuple[Floats, Floats]:
    """Ends of the central interval that holds a share `level` of the values along the last axis.

    The same as `np.quantile` computes, which spends most of its time on other cases.
    """
    last = values.shape[-1] - 1
    places = [divmod(share * last, 1.0) for share in ((1 - level) / 2, (1 + level) / 2)]
    kept = [min(int(whole) + more, last) for whole, _ in places for more in (0, 1)]
    ordered = np.partition(values, sorted(set(kept)), axis=-1)
    ends = []
    for index, (_, part) in enumerate(places):
        below, above = ordered[..., kept[2 * index]], ordered[..., kept[2 * index + 1]]
        step = above - below
        ends.append(np.asarray(above - step * (1 - part) if part >= 0.5 else below + step * part))
    return ends[0], ends[1]


def refit(curves: Sequence[Curve], replicates: int = 2000, seed: int = 0) -> Refits:
    """Redraw every score within its uncertainty and fit again; deterministic for a seed.

    A score over known trials is drawn from its Beta posterior (Jeffreys). What scatter around the curves the trials do
    not explain is training noise, estimated over all curves together and added. With neither trials nor a third
    point there is nothing to learn the noise from, and every replicate equals the fit. Where a curve has more
    than 750 scores there are fewer replicates, down to 100, because the band is then narrow.
    """
    rng = np.random.default_rng(seed)
    points = [curve.points for curve in curves]
    sizes, _, keep = _arrays(points)
    scores, trials = (
        _padded(values, keep) for values in ([p.score for p in points], [[t or 0 for t in p.trials] for p in points])
    )
    known = trials > 0
    successes = np.where(known, scores * trials, 1.0)[known]
    failures = np.where(known, trials - scores * trials, 1.0)[known]
    floor = np.where(known, 0.5 / np.maximum(trials, 1.0), FLOOR)
    noise = training_noise(curves)
    replicates = min(replicates, max(_FEWEST, _MOST_DRAWS // keep.shape[1]))
    fits = []
    most = max(1, _AT_ONCE // keep.size)
    for start in range(0, replicates, most):
        count = min(most, replicates - start)
        draws = np.broadcast_to(scores, (count, *scores.shape)).copy()
        draws[:, known] = rng.beta(successes + 0.5, failures + 0.5, size=(count, successes.size))
        if noise > 0:
            draws += noise * rng.standard_normal(draws.shape)
        fits.append(_least_squares(sizes, np.log(np.clip(1.0 - draws, floor, 1.0)), keep))
    return Refits(tuple(curves), np.concatenate([fit[0] for fit in fits]), np.concatenate([fit[1] for fit in fits]))


def training_noise(curves: Sequence[Curve]) -> float:
    """Standard deviation of scores around the curves beyond what the number of trials explains."""
    squares, sampling, freedom, count = 0.0, 0.0, 0, 0
    for curve in curves:
        own = curve.points
        usable = [k for k, n in enumerate(own.n) if n + curve.combination.base > 0]
        freedom += max(0, len(usable) - 2)
        for k in usable:
            squares += (own.score[k] - curve.at(own.n[k])) ** 2
            trials = own.trials[k]
            sampling += own.score[k] * (1 - own.score[k]) / trials if trials else 0.0
            count += 1
    if freedom == 0:
        return 0.0
    return math.sqrt(max(0.0, squares / freedom - sampling / count))


def _check(points: CurvePoints) -> None:
    """What a results file is checked for when read, for points that were made by hand."""
    for index, (n, score, trials) in enumerate(zip(points.n, points.score, points.trials, strict=True)):
        where = f"point {index + 1} of {points.combination.label}"
        if not 0.0 <= score <= 1.0:
            raise InvalidInput(f"a score must lie in [0, 1], not {score!r}", where=where)
        if not 0 <= n <= points.combination.size:
            raise InvalidInput(f"n must lie between 0 and {points.combination.size}, not {n!r}", where=where)
        if trials is not None and trials < 1:
            raise InvalidInput(f"trials must be at least 1, not {trials!r}", where=where)


def _predict(log_a: Floats, b: Floats, demos: Floats) -> Floats:
    """1 − a·demos^b; without any demonstration −∞, or the level of a flat curve."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        power = np.asarray(b * np.log(demos))
        np.copyto(power, 0.0, where=b == 0.0)
        power += log_a
        np.exp(power, out=power)
    return np.subtract(1.0, power, out=power)


def _least_squares(x: Floats, y: Floats, keep: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    """Weighted by `keep` along the last axis: log a and b with flat curves made flat, and the raw exponent."""
    weight = keep.astype(float)
    count = weight.sum(-1)
    x_mean = (x * weight).sum(-1) / count
    y_mean = (y * weight).sum(-1) / count
    x_centred = (x - x_mean[..., None]) * weight
    exponent = (x_centred * (y - y_mean[..., None])).sum(-1) / (x_centred**2).sum(-1)
    b = np.where(exponent > -_FLAT, 0.0, exponent)
    return y_mean - b * x_mean, b, exponent


def _arrays(points: Sequence[CurvePoints]) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """log(n + base) and the floored 1 − S of several curves, padded to one shape, with a mask of the real entries."""
    width = max((len(p.n) for p in points), default=0)
    keep = np.zeros((len(points), max(width, 1)), dtype=bool)
    sizes, failures = np.zeros(keep.shape), np.ones(keep.shape)
    for row, p in enumerate(points):
        for column, (n, score, trials) in enumerate(zip(p.n, p.score, p.trials, strict=True)):
            if n + p.combination.base > 0:
                keep[row, column] = True
                sizes[row, column] = math.log(n + p.combination.base)
                failures[row, column] = max(1.0 - score, 0.5 / trials if trials else FLOOR)
    return sizes, failures, keep


def _padded(values: Sequence[Sequence[float]], keep: NDArray[np.bool_]) -> Floats:
    padded = np.zeros(keep.shape)
    for row, entries in enumerate(values):
        padded[row, : len(entries)] = entries
    return padded
