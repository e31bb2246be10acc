"""From single trials to a run's score: means, intervals, and the breakdown by factor."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from factored_scaling.core.checks import percentage, real, shown, whole
from factored_scaling.errors import InvalidInput

Z95 = 1.959963984540054  # the 97.5% point of the standard normal
ALL_FACTORS = "*"  # a trial in which every factor was varied at once
MOST_TRIALS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Trial:
    """One scored rollout and the condition it ran in.

    `key` names the trial within its run: recording the same key twice counts once. `factor` holds the names of the
    factors that were varied: one, several, `("*",)` for all at once, or none when unknown.
    """

    key: str
    score: float
    factor: tuple[str, ...] = ()
    setting: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.key, str) or not self.key:
            raise InvalidInput("a trial needs a key, so that recording it twice counts once")
        where = f"trial {self.key!r}"
        score = float(self.score) if isinstance(self.score, bool) else real(self.score)
        if score is None or not 0.0 <= score <= 1.0:
            what = f"a trial's score must lie in [0, 1], not {shown(self.score)}"
            raise InvalidInput(what, where=where, hint=percentage(score or 0.0))
        object.__setattr__(self, "score", score)
        object.__setattr__(self, "factor", _factor_names(self.factor, "a trial's factor", where))


@dataclass(frozen=True, slots=True)
class Measurement:
    """A mean score whose trials are not known one by one. `source` says where it is from.

    `factor` holds the names of the factors that were varied, as in a `Trial`; a run has one mean per `factor` and
    `source`.
    """

    score: float
    trials: int | None = None
    factor: tuple[str, ...] = ()
    source: str = ""

    def __post_init__(self) -> None:
        score = real(self.score)
        if score is None or not 0.0 <= score <= 1.0:
            hint = percentage(score or 0.0, self.trials if type(self.trials) is int else None)
            raise InvalidInput(f"a score must lie in [0, 1], not {shown(self.score)}", hint=hint)
        object.__setattr__(self, "score", score)
        if self.trials is not None:
            object.__setattr__(self, "trials", whole(self.trials, "", least=1, most=MOST_TRIALS, what="trials"))
        object.__setattr__(self, "factor", _factor_names(self.factor, "a mean's factor"))


def _factor_names(factor: object, what: str, where: str = "") -> tuple[str, ...]:
    names: object = None if isinstance(factor, str) else factor
    if not isinstance(names, Sequence) or not all(isinstance(name, str) and name for name in names):
        text = f"{what} is a tuple of names, not {shown(factor)}"
        raise InvalidInput(text, where=where, hint='write for example ("lighting",)')
    return tuple(names)


class Tally(NamedTuple):
    """How many trials in which `factor` was varied had this score; all that a result needs to know of them."""

    factor: tuple[str, ...]
    score: float
    trials: int


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
    """The mean score of a run, overall and for every factor (or set of factors) that was varied."""

    overall: Score
    by_factor: dict[tuple[str, ...], Score] = field(default_factory=dict)


def wilson(mean: float, trials: int) -> Interval:
    """Wilson's 95% score interval for `mean` successes out of `trials` 0/1 trials."""
    if trials < 1:
        raise InvalidInput(f"an interval needs at least one trial, not {trials}")
    if not 0.0 <= mean <= 1.0:
        raise InvalidInput(f"a mean score must lie in [0, 1], not {mean!r}")
    spread = Z95 * Z95 / trials
    centre = (mean + spread / 2) / (1 + spread)
    half = Z95 * math.sqrt(mean * (1 - mean) / trials + spread / (4 * trials)) / (1 + spread)
    low = 0.0 if mean == 0 else max(0.0, centre - half)
    high = 1.0 if mean == 1 else min(1.0, centre + half)
    return Interval(low, high)


def _graded(mean: float, levels: Mapping[float, int]) -> Interval:
    """The normal interval of a mean of graded scores, moved by their skewness, as a bootstrap's would be."""
    trials = sum(levels.values())
    variance, skew = (
        math.fsum(count * (score - mean) ** power for score, count in levels.items()) / trials for power in (2, 3)
    )
    half, shift = Z95 * math.sqrt(variance / trials), (Z95 * Z95 - 1) / 6 * skew / (variance * trials)
    return Interval(max(0.0, mean + shift - half), min(1.0, mean + shift + half))


def _levels(scores: Sequence[float]) -> Counter[float]:
    values = np.asarray(scores, dtype=float)
    if not values.size:
        raise InvalidInput("no trials to summarise")
    if not ((values >= 0) & (values <= 1)).all():
        raise InvalidInput("scores must lie in [0, 1]")
    return Counter(values.tolist())


def summarise(scores: Sequence[float]) -> Score:
    """Mean and interval: Wilson's when every score is 0 or 1, normal with a correction for skewness when any is graded.

    Graded scores that are all alike have no sample spread, so they too get Wilson's interval, which is the
    widest that scores in [0, 1] with this mean can need.
    """
    return _summary(_levels(scores))


def _summary(levels: Mapping[float, int]) -> Score:
    mean, trials = mean_of(levels.items())
    graded = len(levels) > 1 and not levels.keys() <= {0.0, 1.0}
    return Score(mean, trials, _graded(mean, levels) if graded else wilson(mean, trials))


def mean_of(levels: Iterable[tuple[float, int]]) -> tuple[float, int]:
    """Mean of scores that occur so often each, and how many there are; rounded once, whatever their order."""
    known = list(levels)
    trials = sum(count for _, count in known)
    every = itertools.chain.from_iterable(itertools.repeat(score, count) for score, count in known)
    return math.fsum(every) / trials, trials


def tally(trials: Iterable[Trial]) -> list[Tally]:
    """How many trials of each kind had each score, in order of first appearance."""
    counts = Counter((trial.factor, trial.score) for trial in trials)
    return [Tally(factor, score, count) for (factor, score), count in counts.items()]


def result_of(trials: Iterable[Trial]) -> Result:
    """Overall score and the score per varied factor, in order of first appearance."""
    return result_of_tallies(tally(trials))


def result_of_tallies(tallies: Iterable[Tally]) -> Result:
    """`result_of`, from how many trials had each score."""
    known = list(tallies)
    by_factor: dict[tuple[str, ...], list[Tally]] = {}
    for one in known:
        if one.factor:
            by_factor.setdefault(one.factor, []).append(one)
    return Result(score_of_tallies(known), {factor: score_of_tallies(own) for factor, own in by_factor.items()})


def score_of_tallies(tallies: Iterable[Tally]) -> Score:
    """`summarise`, from how many trials had each score, whichever factors they varied."""
    levels: dict[float, int] = {}
    for _, score, trials in tallies:
        levels[score] = levels.get(score, 0) + trials
    if not levels:
        raise InvalidInput("no trials to summarise")
    return _summary(levels)


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
    """A result from means of one policy; each is the factors varied, the score, and its trials where they are known.

    Means that name no factor are over everything. Where there are none, all together stand for it.
    """
    scores = [(factor, known_score(mean, trials)) for factor, mean, trials in means]
    overall = [score for factor, score in scores if not factor] or [score for _, score in scores]
    by_factor = {factor: pooled([s for f, s in scores if f == factor]) for factor, _ in scores if factor}
    return Result(pooled(overall), by_factor)
