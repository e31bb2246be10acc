"""Worlds: the same for the same arguments, inside their promised ranges, of the kind they say."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from synthetic_worlds import HELD_OUT, TUNING, families

from factored_scaling.bench.oracle import best_allocation
from factored_scaling.bench.worlds import INITIAL, WORTH, Family, Floats, Response, Setting, World, draw_world
from factored_scaling.errors import FscError

each_family = pytest.mark.parametrize("family", families, ids=lambda family: family.name)


@each_family
@pytest.mark.parametrize("count", [5, 8])
def test_worlds_keep_the_promised_ranges(family: Family, count: int) -> None:
    for index in range(4):
        world = draw_world(family, count, index)
        before = float(world.score(world.now))
        gain = float(world.score(world.now + best_allocation(world.score, world.now, 100))) - before
        assert INITIAL[0] <= before <= INITIAL[1]
        assert gain >= WORTH
        total_noise = np.hypot(world.common_noise, world.own_noise)
        assert 0.02 <= total_noise <= 0.06
        assert world.common_noise > world.own_noise


@each_family
def test_a_world_is_the_same_again_and_maps_any_shape(family: Family) -> None:
    world, again, other = (draw_world(family, 5, index) for index in (3, 3, 4))
    demos = np.random.default_rng(0).integers(0, 500, size=(4, 3, 5)).astype(float)
    success = world.factor_success(demos)
    assert success.shape == demos.shape
    assert np.isfinite(success).all()
    assert ((success >= 0) & (success <= 1)).all()
    np.testing.assert_array_equal(success, again.factor_success(demos))
    np.testing.assert_allclose(success[2, 1], world.factor_success(demos[2, 1]), rtol=1e-12)
    assert not np.allclose(success, other.factor_success(demos))
    assert np.isfinite(world.factor_success(np.zeros(5))).all()


def test_roles_say_which_families_rules_were_tuned_on() -> None:
    assert {family.role for family in TUNING} == {"tuning"}
    assert {family.role for family in HELD_OUT} == {"held_out"}
    assert len({family.name for family in families}) == len(families)


def test_in_shifted_worlds_data_repair_the_next_factors_trials() -> None:
    family = next(family for family in TUNING if family.name == "shifted")
    own, following = [], []
    for index in range(20):
        world = draw_world(family, 5, index)
        more = world.factor_success(world.now + 100 * np.eye(5)) - world.factor_success(world.now)
        own.append(more[np.arange(5), np.arange(5)].mean())
        following.append(more[np.arange(5), (np.arange(5) + 1) % 5].mean())
    assert np.mean(following) > 3 * np.mean(own)


def test_power_law_worlds_follow_the_papers_curve_along_one_combination() -> None:
    exact = 0
    for index in range(40):
        world = draw_world(TUNING[0], 5, index)
        sizes = np.array([10.0, 20.0, 30.0, 60.0])
        demos = np.broadcast_to(world.now, (4, 5)).copy()
        demos[:, :2] = sizes[:, None]  # factors 1 and 2 are a group where the world has groups
        log_failure = np.log(1.0 - world.score(demos))
        if (world.factor_success(demos) == 0).any() or np.ptp(log_failure) < 0.02:
            continue  # trials that always fail bend the mean; flat curves show nothing
        x = np.log(2 * sizes + world.setting.total - 60)
        line = np.polyval(np.polyfit(x, log_failure, 1), x)
        exact += bool(np.abs(line - log_failure).max() < 1e-9)
    assert exact >= 5


def test_a_family_without_anything_to_decide_is_an_error() -> None:
    def flat(setting: Setting, rng: np.random.Generator) -> Response:
        return lambda demos: np.full_like(demos, 0.5)

    with pytest.raises(FscError, match="no world worth deciding"):
        draw_world(Family("flat", flat), 3, 0)


def _every_allocation(count: int, budget: int) -> Floats:
    bars = itertools.combinations(range(budget + count - 1), count - 1)
    return np.array([np.diff([-1, *bar, budget + count - 1]) - 1 for bar in bars], dtype=float)


@each_family
@pytest.mark.parametrize(("count", "budget"), [(3, 40), (4, 24), (5, 12)])
def test_the_oracle_finds_what_trying_everything_finds(family: Family, count: int, budget: int) -> None:
    everything = _every_allocation(count, budget)
    for index in range(3):
        world = draw_world(family, count, index)
        best = best_allocation(world.score, world.now, budget)
        assert best.sum() == budget
        assert (best >= 0).all()
        assert float(world.score(world.now + best)) >= world.score(world.now + everything).max() - 1e-9


def test_the_oracle_is_not_fooled_by_a_gain_that_comes_late() -> None:
    def late(demos: Floats) -> Floats:
        return np.asarray(0.3 + 0.001 * demos[..., 0] + 0.6 / (1 + np.exp(-(demos[..., 1] - 110))))

    best = best_allocation(late, np.full(4, 30.0), 100)
    assert best[1] > 80


def test_a_worlds_study_declares_the_current_demonstrations() -> None:
    world: World = draw_world(TUNING[1], 8, 0)
    spec = world.spec("one")
    assert spec.names == world.factors
    assert list(spec.sizes.values()) == world.now.tolist()
    assert spec.total == world.setting.total
