"""The fit, its edges, and whether thousands of refits say how sure one may be."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from factored_scaling import Combination, Curve, InvalidInput, fit_power_law
from factored_scaling.core.curves import central, refit, training_noise
from factored_scaling.core.results import CurvePoints
from factored_scaling.errors import NotEnoughData


def points_of(
    n: Sequence[int],
    score: Sequence[float],
    trials: Sequence[int | None] | int | None = None,
    size: int = 60,
    base: int = 60,
) -> CurvePoints:
    each = tuple(trials) if isinstance(trials, Sequence) else (trials,) * len(n)
    return CurvePoints(Combination(("a", "b"), size, size + base), tuple(n), tuple(score), each)


def law(a: float, b: float, n: Sequence[int], base: int) -> list[float]:
    return [1 - a * (value + base) ** b for value in n]


@settings(deadline=None)
@given(st.floats(-1.5, -0.01), st.floats(0.05, 0.95), st.integers(1, 300), st.integers(3, 200))
def test_a_curve_without_noise_is_found_again(b: float, failure: float, base: int, size: int) -> None:
    a = failure * base**-b
    n = [0, size // 3, size]
    assume(a * (size + base) ** b > 0.001)
    curve = fit_power_law(points_of(n, law(a, b, n, base), size=size, base=base))
    assert curve.b == pytest.approx(b, rel=1e-6)
    assert curve.a == pytest.approx(a, rel=1e-6)
    assert curve.at(size + 100) == pytest.approx(1 - a * (size + 100 + base) ** b, abs=1e-9)
    wanted = (curve.at(size + 100) - curve.at(size)) / 100
    assert curve.slope(100) == pytest.approx(wanted, rel=1e-6, abs=1e-15)


def test_by_hand() -> None:
    # 1-S = 0.8, 0.4 at 60 and 120: b = -1, a = 48; with 60 more 1-S = 48/180
    curve = fit_power_law(points_of([0, 60], [0.2, 0.6]))
    assert curve.b == pytest.approx(-1.0)
    assert curve.a == pytest.approx(48.0)
    assert curve.at(60) == pytest.approx(0.6)
    assert curve.at(120) == pytest.approx(1 - 48 / 180)
    assert curve.slope(60) == pytest.approx((0.4 - 48 / 180) / 60)


def test_a_score_of_one_is_floored_by_its_trials() -> None:
    few = fit_power_law(points_of([0, 60], [0.5, 1.0], trials=20))
    assert few.at(60) == pytest.approx(1 - 1 / 40)
    many = fit_power_law(points_of([0, 60], [0.5, 1.0], trials=600))
    assert many.at(60) == pytest.approx(1 - 1 / 1200)
    unknown = fit_power_law(points_of([0, 60], [0.5, 1.0]))
    assert unknown.at(60) == pytest.approx(0.999)
    mixed = fit_power_law(points_of([0, 60, 60], [0.5, 1.0, 1.0], trials=[None, 20, None]))
    assert mixed.at(60) == pytest.approx(1 - math.sqrt(0.025 * 0.001))


def test_the_floor_also_lifts_scores_just_below_one() -> None:
    curve = fit_power_law(points_of([0, 60], [0.5, 0.9999]))
    assert curve.at(60) == pytest.approx(0.999)


@pytest.mark.parametrize("score", [0.0, 0.1, 1 / 3, 0.7, 1.0])
@pytest.mark.parametrize("count", [2, 3, 7, 30])
def test_a_constant_score_is_exactly_flat(score: float, count: int) -> None:
    curve = fit_power_law(points_of(list(range(count)), [score] * count, size=29))
    assert (curve.b, curve.slope(100)) == (0.0, 0.0)
    assert curve.at(0) == curve.at(1000) == pytest.approx(min(score, 0.999))


def test_a_falling_score_is_flat_at_its_geometric_mean() -> None:
    curve = fit_power_law(points_of([0, 60], [0.8, 0.2]))
    assert curve.exponent > 0
    assert (curve.b, curve.slope(1)) == (0.0, 0.0)
    assert curve.a == pytest.approx(math.sqrt(0.2 * 0.8))


def test_a_point_without_training_data_is_left_out() -> None:
    with_zero = fit_power_law(points_of([0, 20, 60], [0.9, 0.2, 0.6], base=0))
    without = fit_power_law(points_of([20, 60], [0.2, 0.6], base=0))
    assert (with_zero.a, with_zero.b) == (without.a, without.b)
    assert with_zero.at(0) == -math.inf


@pytest.mark.parametrize(
    ("n", "base", "message"),
    [
        ([], 60, "two or more sizes n; there are none; measure n = 0 and n = 60"),
        ([20, 20], 60, "two or more sizes n; there is only n = 20; measure n = 0"),
        ([0, 60], 0, "two or more sizes n above 0; there is only n = 60; measure n = 30"),
        ([0], 0, "above 0; there are none"),
    ],
)
def test_one_size_is_no_curve(n: list[int], base: int, message: str) -> None:
    with pytest.raises(NotEnoughData, match=message):
        fit_power_law(points_of(n, [0.5] * len(n), base=base))


def test_a_single_demonstration_can_have_no_curve_alone() -> None:
    with pytest.raises(NotEnoughData, match="collect more demos first"):
        fit_power_law(points_of([0, 1], [0.1, 0.5], size=1, base=0))


@pytest.mark.parametrize(
    ("n", "score", "trials", "message"),
    [
        ([0, 60], [0.5, math.nan], None, r"point 2 of a\+b: a score must lie in \[0, 1\], not nan"),
        ([0, 60], [-0.1, 0.5], None, r"point 1 of a\+b: a score"),
        ([0, 61], [0.1, 0.5], None, "point 2 of .*: n must lie between 0 and 60, not 61"),
        ([-1, 60], [0.1, 0.5], None, "point 1 of .*: n must lie"),
        ([0, 60], [0.1, 0.5], 0, "point 1 of .*: trials must be at least 1"),
    ],
)
def test_points_made_by_hand_are_checked(n: list[int], score: list[float], trials: int | None, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        fit_power_law(points_of(n, score, trials))


def test_a_steep_curve_over_few_of_many_demos_stays_a_number() -> None:
    curve = fit_power_law(points_of([0, 1], [0.5, 0.9], size=1, base=240))
    assert curve.b < -300
    assert curve.a == sys.float_info.max
    assert curve.at(0) == pytest.approx(0.5)
    assert curve.at(1) == pytest.approx(0.9)
    assert curve.at(1000) == 1.0
    assert curve.slope(100) == pytest.approx(0.1 / 100)
    assert math.isfinite(refit([curve]).slopes([100]).max())


def test_a_curve_answers_only_where_it_is_defined() -> None:
    curve = fit_power_law(points_of([0, 60], [0.2, 0.6]))
    assert curve.at(-60) == -math.inf
    for n in (-61, math.nan):
        with pytest.raises(InvalidInput, match="no value at n"):
            curve.at(n)
    for budget in (0, -5, math.nan):
        with pytest.raises(InvalidInput, match="budget above 0"):
            curve.slope(budget)


def noisy(rng: np.random.Generator, count: int, trials: int, size: int, base: int, truth: list[float]) -> list[Curve]:
    n = [0, size // 3, 2 * size // 3, size]
    scores = rng.binomial(trials, truth, size=(count, len(n))) / trials
    return [fit_power_law(points_of(n, row.tolist(), trials, size, base)) for row in scores]


def test_the_band_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    size, base = 60, 120
    truth = law(1.5, -0.3, [0, 20, 40, 60], base)
    now, later = law(1.5, -0.3, [size, size + 100], base)
    covered = np.zeros(2)
    studies, curves = 200, 4
    for study in range(studies):
        refits = refit(noisy(rng, curves, 100, size, base, truth), replicates=500, seed=study)
        for curve in range(curves):
            low, high = refits.band(curve, np.array([size, size + 100]))
            covered += (low <= [now, later]) & ([now, later] <= high)
    share = covered / (studies * curves)
    assert 0.92 < share[0] < 0.985
    assert 0.92 < share[1] < 0.99


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.999])
@pytest.mark.parametrize("count", [1, 2, 100, 2000])
def test_central_intervals_are_quantiles(level: float, count: int) -> None:
    values = np.random.default_rng(count).standard_normal((3, count))
    wanted = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=-1)
    assert np.array_equal(central(values, level), wanted)


def test_a_wider_level_gives_a_wider_band() -> None:
    curve = noisy(np.random.default_rng(1), 1, 50, 60, 60, [0.3, 0.4, 0.5, 0.6])
    sizes = np.array([0.0, 60.0, 160.0])
    narrow, wide = (refit(curve).band(0, sizes, level) for level in (0.5, 0.95))
    assert (wide[0] < narrow[0]).all()
    assert (narrow[1] < wide[1]).all()


def test_more_trials_give_a_narrower_band() -> None:
    widths = []
    for trials in (20, 200, 2000):
        curve = fit_power_law(points_of([0, 60], [0.3, 0.6], trials))
        low, high = refit([curve]).band(0, np.array([60.0]))
        widths.append(float(high[0] - low[0]))
    assert widths[0] > 2 * widths[1] > 4 * widths[2]


def test_refits_are_the_same_for_the_same_seed() -> None:
    curves = noisy(np.random.default_rng(2), 3, 50, 60, 60, [0.3, 0.4, 0.5, 0.6])
    first, again, other = refit(curves, 100, seed=7), refit(curves, 100, seed=7), refit(curves, 100, seed=8)
    assert (first.b == again.b).all()
    assert (first.log_a == again.log_a).all()
    assert (first.b != other.b).any()
    assert first.b.shape == (100, 3)


def test_many_scores_are_redrawn_less_often() -> None:
    def crowded(count: int) -> Curve:
        n = [0, 20, 40, 60] * (count // 4)
        scores = np.random.default_rng(count).binomial(50, [0.3, 0.4, 0.5, 0.6] * (count // 4)) / 50
        return fit_power_law(points_of(n, scores.tolist(), 50))

    few, many, most = crowded(740), crowded(7500), crowded(40_000)
    assert [refit([curve]).b.shape for curve in (few, many, most)] == [(2000, 1), (200, 1), (100, 1)]
    assert refit([many]).b.mean() == pytest.approx(many.b, abs=3 * float(refit([many]).b.std()))
    assert refit([many]).b.std() == pytest.approx(refit([few]).b.std() * (740 / 7500) ** 0.5, rel=0.25)


def test_refits_without_any_noise_repeat_the_fit() -> None:
    curves = [fit_power_law(points_of([0, 60], [0.3, 0.6])), fit_power_law(points_of([0, 60], [0.6, 0.3]))]
    refits = refit(curves, 5)
    assert training_noise(curves) == 0.0
    np.testing.assert_allclose(refits.b, [[curve.b for curve in curves]] * 5)
    np.testing.assert_allclose(refits.slopes([50, 50]), [[curve.slope(50) for curve in curves]] * 5)
    assert (refits.slopes([50, 50])[:, 1] == 0.0).all()
    sizes = np.array([60.0, 10.0])
    np.testing.assert_allclose(refits.at(sizes), [[curves[0].at(60), curves[1].at(10)]] * 5)


def test_curves_of_different_lengths_do_not_mix() -> None:
    short = fit_power_law(points_of([0, 60], [0.3, 0.6]))
    long = fit_power_law(points_of([0, 20, 40, 60], law(3.0, -0.4, [0, 20, 40, 60], 60)))
    refits = refit([short, long], 3)
    np.testing.assert_allclose(refits.b[0], [short.b, long.b], rtol=1e-6)


def test_refits_where_a_point_has_no_training_data() -> None:
    rising = fit_power_law(points_of([0, 20, 60], [0.0, 0.2, 0.6], 50, base=0))
    flat = fit_power_law(points_of([0, 20, 60], [0.0, 0.6, 0.2], base=0))
    refits = refit([rising, flat], 50)
    low, high = refits.band(0, np.array([0.0, 60.0]))
    assert (low[0], high[0]) == (0.0, 0.0)
    assert 0 < low[1] < high[1] < 1
    assert (refits.at(np.zeros(2))[:, 0] == -np.inf).all()
    assert np.isfinite(refits.at(np.zeros(2))[:, 1]).all()


def test_scatter_beyond_the_trials_counts_as_training_noise() -> None:
    rng = np.random.default_rng(3)
    n = [0, 20, 40, 60]
    truth = np.array(law(1.5, -0.3, n, 120))
    curves = [
        fit_power_law(points_of(n, np.clip(truth + 0.05 * rng.standard_normal(4), 0, 1).tolist(), 10**6, base=120))
        for _ in range(200)
    ]
    assert training_noise(curves) == pytest.approx(0.05, rel=0.1)
    only_trials = noisy(rng, 200, 100, 60, 120, truth.tolist())
    assert training_noise(only_trials) < 0.02  # scores of 100 trials scatter by 0.05
