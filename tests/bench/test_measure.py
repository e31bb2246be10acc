"""Measurements: the right spread, the right mean, and the same for everybody who asks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic_worlds import TUNING

from factored_scaling.bench.measure import REGIMES, Regime, measure, results
from factored_scaling.bench.worlds import World, draw_world
from factored_scaling.core.design import plan
from factored_scaling.core.results import factor_scores
from factored_scaling.model.recommend import recommend


@pytest.fixture(scope="module")
def world() -> World:
    return draw_world(TUNING[1], 5, 0)


def _full(world: World) -> dict[str, int]:
    return world.spec().sizes


def test_trials_are_spread_over_the_factors() -> None:
    assert REGIMES["simulation"].trials(8).sum() == 4800
    assert REGIMES["real"].trials(5).tolist() == [4, 4, 4, 3, 3]
    assert REGIMES["real"].trials(8).tolist() == [3, 3, 2, 2, 2, 2, 2, 2]


def test_whoever_measures_a_policy_measures_the_same(world: World) -> None:
    real = REGIMES["real"]
    first, again = measure(world, _full(world), real), measure(world, _full(world), real)
    np.testing.assert_array_equal(first.scores, again.scores)
    assert any(measure(world, _full(world), real, seed).scores.mean() != first.scores.mean() for seed in range(1, 6))
    rows = results(world, [run.demos for run in plan(world.spec())], real)
    kept = factor_scores(world.spec(), rows)
    np.testing.assert_allclose([kept[name] for name in world.factors], first.scores)


@pytest.mark.parametrize("graded", [False, True])
def test_measurements_scatter_about_the_truth_as_declared(world: World, graded: bool) -> None:
    world = replace(world, graded=graded)
    truth = world.factor_success(world.now)
    many = Regime(in_all=500_000, graded=True)
    scores = np.array([measure(world, _full(world), many, seed).scores for seed in range(400)])
    np.testing.assert_allclose(scores.mean(axis=0), truth, atol=0.01)
    noise = np.hypot(world.common_noise, world.own_noise)
    assert np.sqrt((scores - truth).var(axis=0).mean()) == pytest.approx(noise, rel=0.15)
    together = (scores - truth).mean(axis=1).std()
    assert together == pytest.approx(np.hypot(world.common_noise, world.own_noise / np.sqrt(5)), rel=0.15)


def test_graded_trials_give_quarters(world: World) -> None:
    world = replace(world, graded=True)
    seen = [measure(world, _full(world), REGIMES["real"], seed) for seed in range(50)]
    quarters = np.array([4 * m.scores * m.trials for m in seen])
    np.testing.assert_allclose(quarters, quarters.round(), atol=1e-9)
    assert (quarters % 4 != 0).any()


def test_mean_rows_hold_the_mean_of_the_same_trials(world: World) -> None:
    sets = [run.demos for run in plan(world.spec())]
    every, means = (results(world, sets, REGIMES[name]) for name in ("real", "real-means"))
    assert len(means.rows) == len(sets)
    for index, row in enumerate(means.rows):
        own = every.rows[5 * index : 5 * index + 5]
        total = sum(r.trials or 0 for r in own)
        assert row.trials == total
        assert row.score == pytest.approx(sum(r.score * (r.trials or 0) for r in own) / total)
        assert row.factor == ()


@pytest.mark.parametrize("strategy", ["top", "all", "auto", "greedy"])
def test_rows_go_through_the_public_path(world: World, strategy: str) -> None:
    rows = results(world, [run.demos for run in plan(world.spec())], REGIMES["simulation"])
    answer = recommend(world.spec(), rows, 100, strategy)
    assert sum(answer.allocation.values()) == 100
