"""From single trials to a run's score: means, intervals, and the breakdown by factor."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from factored_scaling.core.checks import percentage, real, shown
from factored_scaling.errors import InvalidInput

Z95 = 1.959963984540054  # the 97.5% point of the standard normal
ALL_FACTORS = "*"  # a trial in which every factor was varied at once


@dataclass(frozen=True, slots=True)
class Trial:
    """One scored rollout and the condition it ran in.

    `key` names the trial within its run: telling the same key twice counts once. `factor` holds the names of the
    factors that were varied: one, several, `("*",)` for all at once, or none when unknown.
    """

    key: str
    score: float
    factor: tuple[str, ...] = ()
    setting: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.key, str) or not self.key:
            raise InvalidInput("a trial needs a key, so that telling it twice counts once")
        where = f"trial {self.key!r}"
        score = float(self.score) if isinstance(self.score, bool) else real(self.score)
        if score is None or not 0.0 <= score <= 1.0:
            what = f"a trial's score must lie in [0, 1], not {shown(self.score)}"
            raise InvalidInput(what, where=where, hint=percentage(score or 0.0))
        names: object = None if isinstance(self.factor, str) else self.factor
        if not isinstance(names, Sequence) or not all(isinstance(name, str) and name for name in names):
            what = f"a trial's factor is a tuple of names, not {shown(self.factor)}"
            raise InvalidInput(what, where=where, hint='write for example ("lighting",)')
        object.__setattr__(self, "score", score)
        object.__setattr__(self, "factor", tuple(self.factor))


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95% interval."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Score:
    """A mean over `trials` trials with its interval."""

    mean: float
    trials: int
    interval: Interval


@dataclass(frozen=True, slots=True)
class Result:
    """What a run's trials say: overall, and for every factor (or set of factors) that was varied."""

    overall: Score
    by_factor: dict[tuple[str, ...], Score] = field(default_factory=dict)


def wilson(mean: float, trials: int, z: float = Z95) -> Interval:
    """Wilson's score interval for `mean` successes out of `trials` 0/1 trials."""
    if trials < 1:
        raise InvalidInput(f"an interval needs at least one trial, not {trials}")
    if not 0.0 <= mean <= 1.0:
        raise InvalidInput(f"a mean score must lie in [0, 1], not {mean!r}")
    spread = z * z / trials
    centre = (mean + spread / 2) / (1 + spread)
    half = z * math.sqrt(mean * (1 - mean) / trials + spread / (4 * trials)) / (1 + spread)
    low = 0.0 if mean == 0 else max(0.0, centre - half)
    high = 1.0 if mean == 1 else min(1.0, centre + half)
    return Interval(low, high)


def bootstrap_mean(scores: Sequence[float], replicates: int = 2000, seed: int = 0) -> Interval:
    """Percentile bootstrap of the mean, for graded scores; deterministic for a seed."""
    values = _scores(scores)
    levels, counts = np.unique(values, return_counts=True)
    draws = np.random.default_rng(seed).multinomial(values.size, counts / values.size, size=replicates)
    low, high = np.quantile(draws @ levels / values.size, [0.025, 0.975])
    return Interval(float(low), float(high))


def _scores(scores: Sequence[float]) -> NDArray[np.float64]:
    values = np.asarray(scores, dtype=float)
    if not values.size:
        raise InvalidInput("no trials to summarise")
    if not ((values >= 0) & (values <= 1)).all():
        raise InvalidInput("scores must lie in [0, 1]")
    return values


def summarise(scores: Sequence[float]) -> Score:
    """Mean and interval: Wilson when every score is 0 or 1, bootstrap when any is graded.

    Graded scores that are all alike say nothing of their spread, so they too get Wilson's interval, which is the
    widest that scores in [0, 1] with this mean can need.
    """
    values = _scores(scores)
    mean = float(values.mean())
    levels = set(values.tolist())
    graded = bool(levels - {0.0, 1.0}) and len(levels) > 1
    return Score(mean, values.size, bootstrap_mean(scores) if graded else wilson(mean, values.size))


def result_of(trials: Iterable[Trial]) -> Result:
    """Overall score and the score per varied factor, in order of first appearance."""
    every: list[float] = []
    by_factor: dict[tuple[str, ...], list[float]] = {}
    for trial in trials:
        every.append(trial.score)
        if trial.factor:
            by_factor.setdefault(trial.factor, []).append(trial.score)
    return Result(summarise(every), {factor: summarise(scores) for factor, scores in by_factor.items()})


def known_score(mean: float, trials: int | None) -> Score:
    """A mean as read from a file, with Wilson's interval where the number of trials is known."""
    if not trials:
        return Score(mean, 0, Interval(mean, mean))
    return Score(mean, trials, wilson(mean, trials))


def pooled(scores: Sequence[Score]) -> Score:
    """Several scores of one policy as one: over all trials where every number is known, else the plain mean."""
    if all(score.trials for score in scores):
        trials = sum(score.trials for score in scores)
        return known_score(sum(score.mean * score.trials for score in scores) / trials, trials)
    return known_score(sum(score.mean for score in scores) / len(scores), None)


def known_result(means: Iterable[tuple[tuple[str, ...], float, int | None]]) -> Result:
    """What means say of one policy; each is the factors varied, the score, and its trials where they are known.

    Means that name no factor are over everything. Where there are none, all together stand for it.
    """
    scores = [(factor, known_score(mean, trials)) for factor, mean, trials in means]
    overall = [score for factor, score in scores if not factor] or [score for _, score in scores]
    by_factor = {factor: pooled([s for f, s in scores if f == factor]) for factor, _ in scores if factor}
    return Result(pooled(overall), by_factor)
