"""Pooled policies: the likelihood is that of every policy by itself, at the price of a few."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from factored_scaling import Results, StudySpec
from factored_scaling.model.likelihood import LogLikelihood, Pooled
from factored_scaling.model.observations import FEW, Observations, observe
from factored_scaling.model.prior import Floats, PriorMixture, draw_mixture
from factored_scaling.model.response import (
    NOISE_COMMON,
    NOISE_OWN,
    PROXY_GAIN,
    PROXY_NOISE,
    PROXY_SHIFT,
    Parameters,
    forward,
    saturate,
    size_of,
)

NAMES = ("camera", "light", "table")
SPEC = StudySpec(dict.fromkeys(NAMES, 30))
DESIGN = ((30, 30, 30), (0, 10, 30), (30, 0, 10))


def measured(seeds: int, trials: tuple[int, ...], factors: tuple[str, ...] = NAMES) -> list[dict[str, Any]]:
    """Scores of every training set of the design with every seed, the number of trials drawn from `trials`."""
    rng = np.random.default_rng(seeds)
    return [
        {"demos": dict(zip(NAMES, demos, strict=True)), "seed": seed, "factor": factor}
        | {"trials": count, "score": float(rng.binomial(count, 0.2 + 0.01 * demos[0]) / count)}
        for seed in range(seeds)
        for demos in DESIGN
        for factor in factors
        for count in [int(rng.choice(trials))]
    ]


def one_by_one(data: Observations, raw: Floats, mixture: PriorMixture) -> list[float]:
    """The likelihood of every policy by itself, written down as what it is: normal and binomial densities."""
    parameters = Parameters.of(raw, mixture)
    state = forward(parameters, mixture, data.demos, data.now)
    singles = data.cells.means(state.success.reshape(-1, raw.shape[1]))
    skilled = 1 - saturate(state.hazard, mixture.sharpness)[0]
    values = []
    for draw in range(raw.shape[1]):
        joint = [
            skilled[run, draw] * np.prod(np.where(varied > 0, state.robust[run, :, draw], 1.0))
            for run, varied in zip(data.joint_run, data.joint, strict=True)
        ]
        success = np.concatenate([singles[:, draw], joint])
        common, own = np.exp(2 * parameters.links[[NOISE_COMMON, NOISE_OWN], draw])
        value = 0.0
        for policy in np.unique(data.policy):
            many = np.flatnonzero((data.policy == policy) & (data.many > 0))
            if many.size:
                covariance = np.diag(data.variance[many] + data.own_share[many] * own) + common
                value += multivariate_normal(np.arcsin(np.sqrt(success[many])), covariance).logpdf(data.theta[many])
                value += 0.5 * many.size * np.log(2 * np.pi)  # left out of the model, where it is the same everywhere
            few = np.flatnonzero((data.policy == policy) & (data.many == 0))
            hits = data.few[few] * data.score[few]
            value += (hits * np.log(success[few]) + (data.few[few] - hits) * np.log(1 - success[few])).sum()
        if data.proxy.size:
            shift, gain, spread = parameters.links[[PROXY_SHIFT, PROXY_GAIN, PROXY_NOISE], draw]
            around = shift + gain * data.proxy_cells.means(state.success.reshape(-1, raw.shape[1]))[:, draw]
            value += norm(around, np.exp(spread)).logpdf(data.proxy).sum() + 0.5 * data.proxy.size * np.log(2 * np.pi)
        values.append(float(value))
    return values


CASES: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]] | None]] = {
    "one policy each": (measured(1, (40,)), None),
    "several seeds": (measured(5, (40,)), None),
    "different numbers of trials": (measured(6, (20, 40)), None),
    "few trials": (measured(5, (3, 5)), None),
    "few and many trials": (measured(6, (3, 40)), None),
    "overall scores": (measured(4, (60,), ("",)), None),
    "several factors at once": (measured(4, (40,), ("camera+light", "*")), None),
    "some factors at once": (measured(4, (40,), ("camera+light", "table")), None),
    "a score told twice": ([*measured(4, (40,)), *measured(4, (50,))], None),
    "without seeds": ([{**row, "seed": None} for row in measured(3, (40,))], None),
    "unknown numbers of trials": ([{**row, "trials": None} for row in measured(3, (40,))], None),
    "stand-ins": (measured(3, (40,)), [{**row, "trials": None} for row in measured(4, (40,), ("", "light"))]),
}


@pytest.mark.parametrize("case", CASES)
def test_pooled_policies_are_as_likely_as_one_by_one(case: str) -> None:
    rows, proxy = CASES[case]
    data = observe(SPEC, Results.from_rows(rows), None if proxy is None else Results.from_rows(proxy))
    rng = np.random.default_rng(0)
    mixture = draw_mixture(rng, 3, 3)
    raw = rng.standard_normal((size_of(3), 3))
    value, _ = LogLikelihood(data)(raw, mixture)
    assert value == pytest.approx(one_by_one(data, raw, mixture), rel=1e-10)


@pytest.mark.parametrize("case", CASES)
def test_the_gradient_of_pooled_policies_is_the_likelihoods(case: str) -> None:
    rows, proxy = CASES[case]
    stand_ins = None if proxy is None else Results.from_rows(proxy)
    likelihood = LogLikelihood(observe(SPEC, Results.from_rows(rows), stand_ins))
    rng = np.random.default_rng(1)
    mixture = draw_mixture(rng, 2, 3)
    raw = rng.standard_normal((size_of(3), 2))
    _, slope = likelihood(raw, mixture)
    for place in range(size_of(3)):
        step = np.zeros_like(raw)
        step[place] = 1e-4
        numeric = (likelihood(raw + step, mixture)[0] - likelihood(raw - step, mixture)[0]) / 2e-4
        assert slope[place] == pytest.approx(numeric, rel=2e-4, abs=2e-3 * np.abs(slope).max())


def test_policies_that_differ_in_their_scores_alone_cost_no_more_than_one() -> None:
    one, many = (Pooled.of(observe(SPEC, Results.from_rows(measured(seeds, (40,))))) for seeds in (1, 200))
    assert (many.demos.shape, many.theta.shape) == (one.demos.shape, one.theta.shape) == ((3, 3), (9,))
    assert many.count.tolist() == [200.0] * 9
    mixed = Pooled.of(observe(SPEC, Results.from_rows(measured(200, (20, 40)))))
    assert len(mixed.demos) == 3
    assert len(mixed.theta) == 3 * 3 * 2**3  # training sets × scores × ways to draw the trials of three scores
    few = Pooled.of(observe(SPEC, Results.from_rows(measured(200, tuple(range(1, FEW))))))
    assert len(few.theta) == 9  # few trials add up, whatever their number


def test_a_policy_that_is_like_no_other_is_taken_as_it_is() -> None:
    data = observe(SPEC, Results.from_rows(measured(1, (40,))))
    alone = Pooled.of(data)
    assert (alone.theta == data.theta).all()
    assert (alone.demos == data.demos).all()
    assert alone.cells.plain
    assert alone.scatter == ()
