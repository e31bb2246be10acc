"""Summary of the posterior for a budget: the allocation, its predicted success and intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from factored_scaling.core.allocation import Spending, inner_shares
from factored_scaling.model.estimate import SHOWN, Estimate
from factored_scaling.model.posterior import Choice, Posterior, probability_at_least
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
    """A policy's score over all trials: its demonstrations of one factor, the score, and the trials."""

    demos: float
    score: float
    # None where their number is unknown
    trials: int | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the response model says of any allocation of a budget."""

    predicted: Estimate
    # posterior of its success minus that of an equal split
    difference: Estimate
    # probability that it matches or beats an equal split
    probability: float


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
    # posterior of the success of the best allocation minus that of an equal split
    gain_over_equal: Estimate
    # expected regret: how much more the best allocation would give if the response were known
    regret: float
    curves: tuple[FactorCurve, ...]
    # P(best combination), in declared order
    best: tuple[float, ...]
    # training noise: standard deviation of the success over training runs, at the current success
    noise: Estimate
    policies: int

    @property
    def is_equal(self) -> bool:
        """Whether an equal split is recommended because no other allocation is likely enough to match it."""
        return "best" in self.alternatives

    def compare(self, allocation: Mapping[str, int]) -> Comparison:
        """Another allocation of the same budget, by the same samples."""
        return compare(self.posterior, self.budget, allocation)

    def is_measured(self, factor: str) -> bool:
        """Whether there are scores on this factor's own trials."""
        data, place = self.posterior.observations, self.posterior.spec.names.index(factor)
        return bool(((data.cells.cell % data.now.size == place) & (data.cells.share == 1.0)).any())

    def measured(self, factor: str) -> list[Measured]:
        """Scores over all trials of the policies that lie on this factor's curve: trained on all other demos."""
        data, place = self.posterior.observations, self.posterior.spec.names.index(factor)
        others = np.arange(data.now.size) != place
        complete = (data.demos[:, others] >= data.now[others] - 1e-9).all(1)
        return [
            Measured(float(data.demos[policy, place] * data.unit), *known)
            for policy, known in self._overall.items()
            if complete[policy]
        ]

    @cached_property
    def _overall(self) -> dict[int, tuple[float, int | None]]:
        """By policy, its mean score as the response model counts: over all factors' trials, or several at once."""
        data, count = self.posterior.observations, self.posterior.now.size
        singles = len(data.cells.start)
        sizes = np.append(data.cells.start, data.cells.cell.size)
        parts: dict[int, dict[int, list[int]]] = {}
        for column, policy in enumerate(data.policy.tolist()):
            if column >= singles:  # several factors at once count where no trial varied one alone
                if not singles:
                    parts.setdefault(policy, {}).setdefault(-1, []).append(column)
            elif sizes[column + 1] - sizes[column] == count:
                parts.setdefault(policy, {}).setdefault(-1, []).append(column)
            elif sizes[column + 1] - sizes[column] == 1:
                factor = int(data.cells.cell[sizes[column]] % count)
                parts.setdefault(policy, {}).setdefault(factor, []).append(column)
        found = {}
        for policy, columns in parts.items():
            used = [columns[-1]] if -1 in columns else list(columns.values()) if len(columns) == count else []
            if used:
                means = [float(np.average(data.score[own], weights=np.maximum(data.trials[own], 1))) for own in used]
                every = np.concatenate([data.trials[own] for own in used])
                found[policy] = (float(np.mean(means)), round(float(every.sum())) if (every > 0).all() else None)
        return found

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
            "gain_over_equal": self.gain_over_equal.to_mapping(),
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
    choice: Choice | None = None,
) -> ModelSummary:
    """Everything about one budget; without `spending`, for the allocation that the posterior recommends.

    `choice` is what the posterior recommends, where that is known already.
    """
    spec = posterior.spec
    others = {"equal": posterior.equal(budget).demos}
    choice = choice if choice is not None else posterior.choose(budget)
    if spending is None:
        spending = choice.spending
        others |= choice.rejected
    others |= {name: dict(demos) for name, demos in (alternatives or {}).items()}
    rows = posterior.candidates(budget, [spending.demos, *others.values()])
    scores = posterior.score(np.concatenate([np.zeros((1, len(spec.names))), rows]) + posterior.now)
    current, chosen = scores[0], scores[1]
    at = {name: scores[2 + place] for place, name in enumerate(others)}
    best = next(
        (
            scores[1 + place]
            for place, demos in enumerate([spending.demos, *others.values()])
            if demos == choice.best.demos
        ),
        None,
    )
    if best is None:
        best = posterior.score(posterior.now + np.array([list(choice.best.demos.values())], dtype=float))[0]
    gain = best - at["equal"]
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
        Estimate.of(gain, gain, (-1.0, 1.0)),
        float(np.mean(scores[1:].max(0) - chosen, dtype=float)),
        _curves(posterior, budget, _winners(gains), gains),
        tuple(_winners(group_gains).tolist()),
        Estimate.of(noise),
        len(posterior.observations.demos),
    )


def compare(posterior: Posterior, budget: int, allocation: Mapping[str, int]) -> Comparison:
    """An allocation of a budget against an equal split of it; the same numbers as in `summarize_posterior`."""
    equal = posterior.equal(budget).demos
    extra = [[float(demos[name]) for name in posterior.spec.names] for demos in (allocation, equal)]
    current, then, even = posterior.score(posterior.now + np.array([[0.0] * len(posterior.spec.names), *extra]))
    difference = then - even
    return Comparison(
        Estimate.of(then, then - current),
        Estimate.of(difference, difference, (-1.0, 1.0)),
        probability_at_least(then, even),
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
        places = np.array(sorted({*np.linspace(0, end, _STEPS).tolist(), float(factor.demos)}))
        rows = np.repeat(posterior.now[None, :], len(places), axis=0)
        rows[:, index] = places
        by_factor = posterior.by_factor(rows)
        overall, own = posterior.score(rows, by_factor), by_factor[:, index]
        at = int(np.searchsorted(places, factor.demos))
        made.append(
            FactorCurve(
                factor.name,
                tuple(places.tolist()),
                Estimate.each(overall, overall - overall[at]),
                Estimate.each(own, own - own[at]),
                float(best[index]),
                Estimate.of(gains[index]),
                Estimate.of(own[at]),
            )
        )
    return tuple(made)
