"""Summary of the posterior for a budget: the allocation, its predicted success and intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from factored_scaling.core.allocation import Spending, inner_shares
from factored_scaling.model.estimate import SHOWN, Estimate
from factored_scaling.model.posterior import REQUIRED_PROBABILITY, Posterior, probability_at_least
from factored_scaling.model.prior import Floats

_STEPS = 25  # points along a drawn curve


@dataclass(frozen=True, slots=True)
class FactorCurve:
    """Success against one factor's demonstrations, all others as they are: over all trials, and on its own trials."""

    factor: str
    demos: tuple[float, ...]
    overall: tuple[Estimate, ...]
    own: tuple[Estimate, ...]
    # P(best single factor): the whole budget gains more here than on any other factor alone
    best: float
    # gain if the whole budget goes here
    gain: Estimate
    # current success on the factor's own trials
    now: Estimate

    def to_mapping(self) -> dict[str, Any]:
        return {
            "factor": self.factor,
            "best": self.best,
            "gain": self.gain.to_mapping(),
            "now": self.now.to_mapping(),
            "demos": list(self.demos),
            "overall": _band(self.overall),
            "own": _band(self.own),
        }


def _band(estimates: Sequence[Estimate]) -> dict[str, list[float]]:
    return {key: [getattr(estimate, key) for estimate in estimates] for key in ("mean", "low", "high")}


class Measured(NamedTuple):
    """A score on one factor's own trials: that factor's demonstrations in training, the score, and the trials."""

    demos: float
    score: float
    trials: int | None
    # all demonstrations of the other factors were in training too, as along the factor's curve
    alone: bool


@dataclass(frozen=True)
class ModelSummary:
    """The response model's answer for one budget."""

    posterior: Posterior = field(compare=False, repr=False)
    budget: int
    allocation: dict[str, int]
    left: float
    now: Estimate
    predicted: Estimate
    # allocation and predicted success of the alternatives, by name. "equal" is always there; "best" has the largest
    # expected success and is there where it is not likely enough to match an equal split
    alternatives: dict[str, tuple[dict[str, int], Estimate]]
    # posterior of the recommended allocation's success minus that of each alternative
    differences: dict[str, Estimate]
    # probability that the recommended allocation matches or beats an equal split
    probability_at_least_equal: float
    # the same for the alternative "best"; None where there is none
    best_probability: float | None
    # expected regret: how much more the best allocation would give if the response were known
    regret: float
    curves: tuple[FactorCurve, ...]
    # P(best combination), in declared order
    best: tuple[float, ...]
    # training noise: standard deviation of the success over training runs, at the current success
    noise: Estimate
    policies: int

    @property
    def digits(self) -> int:
        """Decimals of a percentage that tell the allocation from its alternatives: 0 if that is enough, else 1."""
        means = [estimate.mean for demos, estimate in self.alternatives.values() if demos != self.allocation]
        return int(any(round(100 * mean) == round(100 * self.predicted.mean) for mean in means))

    @property
    def is_equal(self) -> bool:
        """Whether an equal split is recommended because no other allocation is likely enough to match it."""
        return "best" in self.alternatives

    @property
    def probability(self) -> str:
        """Probability, in percent, of matching or beating an equal split: of "best" where that was rejected.

        With a decimal where rounding would move it across the required probability.
        """
        value = self.probability_at_least_equal if self.best_probability is None else self.best_probability
        whole, enough = round(100 * value), value >= REQUIRED_PROBABILITY
        return f"{whole}%" if (whole >= 100 * REQUIRED_PROBABILITY) == enough else f"{math.floor(1000 * value) / 10}%"

    def _own(self, factor: str) -> tuple[int, np.ndarray[tuple[int], np.dtype[np.int64]]]:
        data, place = self.posterior.observations, self.posterior.spec.names.index(factor)
        return place, np.flatnonzero((data.cells.cell % data.now.size == place) & (data.cells.share == 1.0))

    def is_measured(self, factor: str) -> bool:
        """Whether there are scores on this factor's own trials."""
        return bool(self._own(factor)[1].size)

    def measured(self, factor: str) -> list[Measured]:
        """Scores on this factor's own trials."""
        data, (place, own) = self.posterior.observations, self._own(factor)
        others = np.arange(data.now.size) != place
        return [
            Measured(
                float(data.demos[run, place] * data.unit),
                float(data.score[column]),
                round(float(data.trials[column])) or None,
                bool((data.demos[run, others] >= data.now[others] - 1e-9).all()),
            )
            for run, column in zip(data.cells.cell[own] // data.now.size, data.cells.mean[own], strict=True)
        ]

    def to_mapping(self) -> dict[str, Any]:
        """As `fsc recommend --json` prints it under `response_model`."""
        spec = self.posterior.spec
        alternatives = {
            name: {"allocation": dict(demos), **estimate.to_mapping()}
            for name, (demos, estimate) in self.alternatives.items()
        }
        if self.best_probability is not None:
            alternatives["best"]["probability_at_least_equal"] = self.best_probability
        return {
            "level": SHOWN,
            "now": self.now.to_mapping(),
            "predicted": self.predicted.to_mapping(),
            "alternatives": alternatives,
            "versus": {name: difference.to_mapping() for name, difference in self.differences.items()},
            "probability_at_least_equal": self.probability_at_least_equal,
            "regret": self.regret,
            "best": {c.label: share for c, share in zip(spec.combinations(), self.best, strict=True)},
            "curves": [curve.to_mapping() for curve in self.curves],
            "training_noise": self.noise.to_mapping(),
            "policies": self.policies,
        }


def summarize_posterior(
    posterior: Posterior,
    budget: int,
    spending: Spending | None = None,
    alternatives: Mapping[str, Mapping[str, int]] | None = None,
) -> ModelSummary:
    """Everything about one budget; without `spending`, for the allocation that the posterior recommends."""
    spec = posterior.spec
    others = {"equal": posterior.equal(budget).demos}
    if spending is None:
        choice = posterior.choose(budget)
        spending = choice.spending
        others |= choice.rejected
    others |= {name: dict(demos) for name, demos in (alternatives or {}).items()}
    rows = posterior.candidates(budget, [spending.demos, *others.values()])
    scores = posterior.score(np.concatenate([np.zeros((1, len(spec.names))), rows]) + posterior.now)
    current, chosen = scores[0], scores[1]
    at = {name: scores[2 + place] for place, name in enumerate(others)}
    gains = posterior.score(posterior.now + _alone(posterior, budget)) - current
    group_gains = posterior.score(posterior.now + _together(posterior, budget)) - current
    theta = np.arcsin(np.sqrt(np.clip(current, 1e-6, 1 - 1e-6)))
    noise = posterior.noise_common * np.sin(2 * theta)  # from the scale of θ to that of success
    return ModelSummary(
        posterior,
        budget,
        spending.demos,
        spending.left,
        Estimate.of(current),
        Estimate.of(chosen, chosen - current),
        {name: (demos, Estimate.of(at[name], at[name] - current)) for name, demos in others.items()},
        {name: Estimate.of(chosen - other, chosen - other, (-1.0, 1.0)) for name, other in at.items()},
        probability_at_least(chosen, at["equal"]),
        probability_at_least(at["best"], at["equal"]) if "best" in at else None,
        float(np.mean(scores[1:].max(0) - chosen, dtype=float)),
        _curves(posterior, budget, _winners(gains), gains),
        tuple(_winners(group_gains).tolist()),
        Estimate.of(noise),
        len(posterior.observations.demos),
    )


def combination_gains(posterior: Posterior, budget: int) -> list[float]:
    """What each combination is expected to gain for the whole budget, per unit of it; never below 0."""
    scores = posterior.score(
        posterior.now + np.concatenate([np.zeros((1, posterior.now.size)), _together(posterior, budget)])
    )
    mean = scores.mean(1, dtype=float)
    return [max(0.0, float(value - mean[0]) / budget) for value in mean[1:]]


def _alone(posterior: Posterior, budget: float) -> Floats:
    """The whole budget on each factor."""
    return np.diag(budget / np.array([factor.cost for factor in posterior.spec.factors]))


def _together(posterior: Posterior, budget: float) -> Floats:
    """The whole budget on each combination, split over its factors as the paper's rule does."""
    spec = posterior.spec
    rows = []
    for combination in spec.combinations():
        shares = inner_shares(spec, combination)
        cost = sum(shares.get(factor.name, 0.0) * factor.cost for factor in spec.factors)
        rows.append([shares.get(name, 0.0) * budget / cost for name in spec.names])
    return np.array(rows)


def _winners(gains: Floats) -> Floats:
    """How often each row is the largest, over samples; rows that tie share."""
    best = gains == gains.max(axis=0)
    return np.asarray((best / best.sum(axis=0)).mean(axis=1, dtype=float))


def _curves(posterior: Posterior, budget: int, best: Floats, gains: Floats) -> tuple[FactorCurve, ...]:
    made = []
    for index, factor in enumerate(posterior.spec.factors):
        end = factor.demos + budget / factor.cost
        places = np.unique(np.concatenate([np.linspace(0, end, _STEPS), [float(factor.demos)]]))
        rows = np.repeat(posterior.now[None, :], len(places), axis=0)
        rows[:, index] = places
        overall, own = posterior.score(rows), posterior.by_factor(rows)[:, index]
        at = int(np.searchsorted(places, factor.demos))
        made.append(
            FactorCurve(
                factor.name,
                tuple(places.tolist()),
                tuple(Estimate.of(row, row - overall[at]) for row in overall),
                tuple(Estimate.of(row, row - own[at]) for row in own),
                float(best[index]),
                Estimate.of(gains[index]),
                Estimate.of(own[at]),
            )
        )
    return tuple(made)
