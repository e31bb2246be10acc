"""Decision makers that know more than a study tells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ceilings import (
    CEILINGS,
    Belief,
    Scores,
    laplace,
    log_likelihood,
    names_unknown,
    orders_given,
    other_starts,
)
from scipy.stats import binom

from factored_scaling.bench.emulator import Emulator, success
from factored_scaling.bench.measure import REGIMES
from factored_scaling.bench.methods import parse_method
from factored_scaling.bench.policy_tables import read_table
from factored_scaling.bench.table_worlds import TableFamily, TableWorld, table_families
from factored_scaling.bench.worlds import Floats

TABLES = Path(__file__).resolve().parents[2] / "results" / "tables"
SMALL = TABLES / "pick-place-no-jitter"


def _study(kind: str, regime: str = "rollouts", number: int = 0) -> tuple[TableFamily, TableWorld, Scores]:
    family = next(family for family in table_families(SMALL) if family.kind == kind)
    world = family.world(5, number)
    policies = parse_method("response-model:auto@screen:6/8").training_sets(world, 0)
    return family, world, Scores.measured(world, policies, REGIMES[regime])


def _regret(world: TableWorld, given: Floats) -> float:
    best, before = float(world.score(world.now + world.best(100))), float(world.score(world.now))
    return (best - float(world.score(world.now + given))) / (best - before)


def test_the_likelihood_is_that_of_the_emulated_training_noise() -> None:
    _, world, scores = _study("unbalanced", "real")
    one = Scores(*(getattr(scores, name)[1:2] for name in ("demos", "nominal", "good", "trials")))
    orders = np.array([[0, 1, 2, 3, 4], [4, 2, 0, 1, 3]])
    rng = np.random.default_rng(0)
    theta, expected = [], []
    for order in orders:
        demos = one.demos[0][np.argsort(order)].astype(float)
        theta.append(world.emulator.theta(demos)[order])
        drawn = np.array([world.emulator.trained(demos, 0.0, rng)[order] for _ in range(4000)])
        chance = binom.pmf(one.good[0], one.trials[0], drawn) / binom.pmf(one.good[0], one.trials[0], 0.5)
        expected.append(np.log(chance.prod(1).mean()))
    found = log_likelihood(world.emulator, one, np.array([theta]), orders)
    assert np.diff(found) == pytest.approx(np.diff(expected), abs=0.08)


def test_many_trials_tell_which_factor_is_which() -> None:
    _, world, scores = _study("10", "simulation")
    orders, weight = orders_given(world, scores)
    assert orders[weight.argmax()].tolist() == [0, 1, 2, 3, 4]
    assert _regret(world, names_unknown(world, scores, 100)) < 0.01


def test_no_trials_leave_every_order_possible() -> None:
    _, world, scores = _study("10", "real")
    nothing = Scores(scores.demos, scores.nominal, 0 * scores.good, 0 * scores.trials)
    orders, weight = orders_given(world, nothing)
    assert len(orders) == 120
    assert weight == pytest.approx(1 / 120)


def test_laplace_finds_the_mean_of_a_binomial_posterior() -> None:
    emulator, count = Emulator.fit(read_table(SMALL).rows(np.arange(40))), 5
    demos = np.full((1, count), 10)
    good, trials = np.array([[30, 5, 20, 39, 12]]), np.full((1, count), 40)
    scores = Scores(demos, np.array([0]), good, trials)
    prior = np.zeros((count, 1, count, 1))
    prior[range(count), 0, range(count), 0] = 0.2**2
    mean = np.full((count, 1), 0.8)
    alone = Emulator(emulator.table, emulator.hyper, 0.0)  # no common noise: factors are independent
    weights, inverse = laplace(alone, scores, mean, prior)
    spread = alone.spread(demos[0].astype(float))
    grid = np.linspace(-0.5, 2.2, 4001)
    for j in range(count):
        latent = np.exp(-0.5 * (grid - 0.8) ** 2 / (0.2**2 + spread[j] ** 2))
        posterior = latent * binom.pmf(good[0, j], 40, success(grid))
        posterior /= posterior.sum()
        share = 0.2**2 / (0.2**2 + spread[j] ** 2)  # of the way that θ without noise goes with θ
        expected = 0.8 + share * ((posterior * grid).sum() - 0.8)
        variance = 0.2**2 * (1 - share) + share**2 * ((posterior * grid**2).sum() - (posterior * grid).sum() ** 2)
        assert 0.8 + 0.2**2 * weights[j, 0] == pytest.approx(expected, abs=0.012)
        assert 0.2**2 - 0.2**4 * inverse[j, 0, j, 0] == pytest.approx(variance, rel=0.25)


def test_given_every_row_the_processes_are_the_emulator() -> None:
    _, world, _ = _study("10")
    belief = Belief.of(world.emulator, Scores.rows(world.emulator.table))
    demos = np.array([[10.0] * 5, [30.0] * 5, [110.0, 10, 10, 10, 10]])
    assert belief.success(demos, 0.0) == pytest.approx(world.emulator.success(demos), abs=0.03)


@pytest.mark.parametrize("kind", ["10", "nominal-heavy"])
def test_half_of_the_rows_of_other_starts_are_known(kind: str) -> None:
    table = read_table(SMALL)
    group = np.array(table.group)
    plain = (table.start == 10) & (group != "unbalanced") & (group != "nominal-heavy")
    own = plain if kind == "10" else group == kind
    rows = {tuple(row) for row in np.column_stack([table.demos, table.nominal, table.successes])[own].tolist()}
    chosen = other_starts(table, kind, 3)
    assert len(chosen.demos) == (~own).sum() // 2
    found = {tuple(row) for row in np.column_stack([chosen.demos, chosen.nominal, chosen.good]).tolist()}
    assert not found & rows
    assert chosen.good.tolist() == other_starts(table, kind, 3).good.tolist()
    assert chosen.good.tolist() != other_starts(table, kind, 4).good.tolist()


@pytest.mark.parametrize("name", list(CEILINGS))
def test_every_decision_maker_spends_the_budget_and_does_better_than_nothing(name: str) -> None:
    family, world, scores = _study("unbalanced", number=5)
    given = CEILINGS[name](world, family, 5, scores, 100)
    assert given.sum() == 100
    assert (given >= 0).all()
    assert _regret(world, given) < 0.5
