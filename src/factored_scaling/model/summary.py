"""What the surface says of a budget, as plain numbers: the order, what to expect of it, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from factored_scaling.core.allocate import Spending, inner_shares
from factored_scaling.model.posterior import SURE, Surface, no_worse
from factored_scaling.model.response import Floats

LEVELS = (0.5, 0.8, 0.95)
SHOWN = 0.95  # of the intervals that are printed and drawn
DOUBT = 0.5  # of a change that was not measured, one standard deviation, beyond what the draws say
_STEPS = 25  # places along a drawn curve


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over the posterior and its central intervals, by their level."""

    mean: float
    intervals: dict[float, tuple[float, float]]

    @classmethod
    def of(cls, draws: Floats, change: Floats | None = None) -> Estimate:
        """From draws; where they are of something that was not measured, `change` is how far it is from what was.

        No real surface is exactly one of the model's. Draws are spread as if the change could be off by half on top.
        """
        mean, variance = float(np.mean(draws)), float(np.var(draws))
        if change is not None:
            wider = (1 + (DOUBT * float(np.mean(change))) ** 2 / max(variance, 1e-12)) ** 0.5
            draws = np.clip(mean + wider * (draws - mean), 0.0, 1.0)
        edges = np.quantile(draws, [(1 + sign * level) / 2 for level in LEVELS for sign in (-1, 1)])
        pairs = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
        return cls(mean, dict(zip(LEVELS, pairs, strict=True)))

    @property
    def low(self) -> float:
        return self.intervals[SHOWN][0]

    @property
    def high(self) -> float:
        return self.intervals[SHOWN][1]

    def to_mapping(self) -> dict[str, Any]:
        return {"mean": self.mean, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class FactorCurve:
    """Success when one factor's demonstrations change and all others stay: over all trials, and on its own."""

    factor: str
    demos: tuple[float, ...]
    overall: tuple[Estimate, ...]
    own: tuple[Estimate, ...]
    # probability that the whole budget, spent on this factor alone, gains more than on any other alone
    best: float
    # what that gains
    gain: Estimate
    # success on the factor's own trials with the demonstrations at hand
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
class SurfaceReport:
    """The surface's answer for one budget."""

    surface: Surface = field(compare=False, repr=False)
    budget: int
    allocation: dict[str, int]
    left: float
    now: Estimate
    predicted: Estimate
    # of the alternatives: allocation and what to expect of it, by name. "equal" is always there; "most" where Equal was
    # chosen, because the order that is expected to give most is not surely enough better
    alternatives: dict[str, tuple[dict[str, int], Estimate]]
    # probability that "most", or where it was chosen the order itself, is no worse than Equal
    sure: float
    # how much better the best order may be than the one chosen, were the surface known, expected
    regret: float
    curves: tuple[FactorCurve, ...]
    # probability that a combination is the best buy, in declared order
    best: tuple[float, ...]
    # standard deviation of the success over training runs, at the success now
    noise: Estimate
    policies: int

    @property
    def digits(self) -> int:
        """Decimals of a percentage with which the order and the others can be told apart: none if that is enough."""
        means = [estimate.mean for order, estimate in self.alternatives.values() if order != self.allocation]
        return int(any(round(100 * mean) == round(100 * self.predicted.mean) for mean in means))

    @property
    def spread(self) -> bool:
        """Equal was given for want of an order that is sure enough."""
        return "most" in self.alternatives

    @property
    def surety(self) -> str:
        """`sure` in percent; with a decimal where a whole number would read as sure enough though it is not."""
        whole = round(100 * self.sure)
        return f"{whole}%" if (whole < 100 * SURE) == (self.sure < SURE) else f"{math.floor(1000 * self.sure) / 10}%"

    def measured(self, factor: str) -> list[Measured]:
        """Scores on this factor's own trials."""
        seen, place = self.surface.observations, self.surface.spec.names.index(factor)
        own = np.flatnonzero((seen.cells.cell % seen.now.size == place) & (seen.cells.share == 1.0))
        others = np.arange(seen.now.size) != place
        return [
            Measured(
                float(seen.demos[run, place] * seen.unit),
                float(seen.score[column]),
                round(float(seen.trials[column])) or None,
                bool((seen.demos[run, others] >= seen.now[others] - 1e-9).all()),
            )
            for run, column in zip(seen.cells.cell[own] // seen.now.size, seen.cells.mean[own], strict=True)
        ]

    def to_mapping(self) -> dict[str, Any]:
        """As `fsc recommend --json` prints it under `surface`."""
        spec = self.surface.spec
        return {
            "level": SHOWN,
            "now": self.now.to_mapping(),
            "predicted": self.predicted.to_mapping(),
            "alternatives": {
                name: {"allocation": dict(order), **estimate.to_mapping()}
                for name, (order, estimate) in self.alternatives.items()
            },
            "sure": self.sure,
            "regret": self.regret,
            "best": {c.label: share for c, share in zip(spec.combinations(), self.best, strict=True)},
            "curves": [curve.to_mapping() for curve in self.curves],
            "training_noise": self.noise.to_mapping(),
            "policies": self.policies,
        }


def report_surface(
    surface: Surface,
    budget: int,
    spending: Spending | None = None,
    alternatives: Mapping[str, Mapping[str, int]] | None = None,
) -> SurfaceReport:
    """Everything about one budget; `spending` is the surface's own choice where it is not given."""
    spec = surface.spec
    orders = {"equal": surface.equal(budget).demos}
    if spending is None:
        choice = surface.choose(budget)
        spent = choice.spending
        orders |= choice.untaken
    else:
        spent = spending
    orders |= {name: dict(order) for name, order in (alternatives or {}).items()}
    every = [spent.demos, *orders.values()]
    rows = surface.orders(budget, every)
    scores = surface.score(np.concatenate([np.zeros((1, len(spec.names))), rows]) + surface.now)
    chosen = scores[1]
    at = {name: scores[2 + place] for place, name in enumerate(orders)}
    singles = _alone(surface, budget)
    gains = surface.score(surface.now + singles) - scores[0]
    groups = _together(surface, budget)
    group_gains = surface.score(surface.now + groups) - scores[0]
    now = np.arcsin(np.sqrt(np.clip(scores[0], 1e-6, 1 - 1e-6)))
    noise = surface.noise_common * np.sin(2 * now)  # from the scale of θ to that of p
    return SurfaceReport(
        surface,
        budget,
        spent.demos,
        spent.left,
        Estimate.of(scores[0]),
        Estimate.of(chosen, chosen - scores[0]),
        {name: (order, Estimate.of(at[name], at[name] - scores[0])) for name, order in orders.items()},
        no_worse(at.get("most", chosen), at["equal"]),
        float(np.mean(scores[1:].max(0) - chosen, dtype=float)),
        _curves(surface, budget, _winners(gains), gains),
        tuple(_winners(group_gains).tolist()),
        Estimate.of(noise),
        len(surface.observations.demos),
    )


def combination_gains(surface: Surface, budget: int) -> list[float]:
    """What each combination is expected to gain for the whole budget, per unit of it; never below 0."""
    scores = surface.score(surface.now + np.concatenate([np.zeros((1, surface.now.size)), _together(surface, budget)]))
    mean = scores.mean(1, dtype=float)
    return [max(0.0, float(value - mean[0]) / budget) for value in mean[1:]]


def _alone(surface: Surface, budget: float) -> Floats:
    """The whole budget on each factor."""
    return np.diag(budget / np.array([factor.cost for factor in surface.spec.factors]))


def _together(surface: Surface, budget: float) -> Floats:
    """The whole budget on each combination, split over its factors as the paper's rule does."""
    spec = surface.spec
    rows = []
    for combination in spec.combinations():
        shares = inner_shares(spec, combination)
        cost = sum(shares.get(factor.name, 0.0) * factor.cost for factor in spec.factors)
        rows.append([shares.get(name, 0.0) * budget / cost for name in spec.names])
    return np.array(rows)


def _winners(gains: Floats) -> Floats:
    """How often each row is the largest, over draws; rows that tie share."""
    best = gains == gains.max(axis=0)
    return np.asarray((best / best.sum(axis=0)).mean(axis=1, dtype=float))


def _curves(surface: Surface, budget: int, best: Floats, gains: Floats) -> tuple[FactorCurve, ...]:
    made = []
    for index, factor in enumerate(surface.spec.factors):
        end = factor.demos + budget / factor.cost
        places = np.unique(np.concatenate([np.linspace(0, end, _STEPS), [float(factor.demos)]]))
        rows = np.repeat(surface.now[None, :], len(places), axis=0)
        rows[:, index] = places
        overall, own = surface.score(rows), surface.by_factor(rows)[:, index]
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
