"""Every flag fires where it should, and only there."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from factored_scaling import Combination, Curve, fit_power_law
from factored_scaling.core.diagnostics import back_test, diagnose
from factored_scaling.core.results import CurvePoints


def curve_of(n: Sequence[int], score: Sequence[float], size: int = 60, base: int = 60) -> Curve:
    combination = Combination(("a", "b"), size, size + base)
    return fit_power_law(CurvePoints(combination, tuple(n), tuple(score), (None,) * len(n)))


def good(b: float = -1.0) -> Curve:
    n = [0, 20, 40, 60]
    return curve_of(n, [1 - 0.8 * ((value + 60) / 60) ** b for value in n])


def kinds(curve: Curve, budget: int) -> list[str]:
    flags = diagnose(curve, budget).flags
    for flag in flags:
        assert "a+b" in flag.sentence
        assert flag.sentence.endswith(".")
        assert "\n" not in flag.sentence
    return [flag.kind for flag in flags]


def test_a_good_curve_has_no_flags_and_no_residuals() -> None:
    diagnosis = diagnose(good(), 60)
    assert diagnosis.flags == ()
    assert diagnosis.residuals == pytest.approx((0.0,) * 4, abs=1e-12)
    assert diagnosis.back_test is not None
    assert diagnosis.back_test.error == pytest.approx(0.0, abs=1e-12)


def test_a_budget_beyond_the_fitted_range_is_far() -> None:
    assert kinds(good(), 60) == []
    assert kinds(good(), 61) == ["far"]
    assert "2.0 times the 60" in diagnose(good(), 120).flags[0].sentence


def test_flat_is_told_from_falling_by_five_points() -> None:
    assert kinds(curve_of([0, 60], [0.5, 0.5]), 10) == ["flat"]
    assert kinds(curve_of([0, 60], [0.54, 0.5]), 10) == ["flat"]
    assert kinds(curve_of([0, 60], [0.56, 0.5]), 10) == ["falling"]


def test_falling_looks_at_the_points_that_were_fitted() -> None:
    # the score without any training data is left out of the fit, so it does not make the curve fall
    assert kinds(curve_of([0, 20, 60], [0.9, 0.51, 0.5], base=0), 10) == ["flat"]


def test_saturated_is_near_one_or_gains_less_than_a_point() -> None:
    assert kinds(curve_of([0, 60], [0.90, 0.96]), 60) == ["saturated"]
    assert kinds(curve_of([0, 60], [0.90, 0.94]), 60) == []
    assert kinds(good(-0.01), 20) == ["saturated"]
    assert kinds(good(-0.5), 20) == []


def test_noisy_means_more_scatter_than_predicted_gain() -> None:
    assert "noisy" in kinds(curve_of([0, 20, 40, 60], [0.2, 0.5, 0.2, 0.4]), 20)
    assert "noisy" not in kinds(curve_of([0, 20, 40, 60], [0.2, 0.41, 0.5, 0.6]), 60)
    assert "noisy" not in kinds(curve_of([0, 60], [0.2, 0.3]), 20)
    assert "noisy" not in kinds(curve_of([0, 20, 40, 60], [0.95, 0.9501, 0.95, 0.9501]), 20), "rounding"


def test_scatter_is_told_in_points_that_are_not_rounded_to_zero() -> None:
    curve = curve_of([0, 20, 40, 60], [0.9, 0.904, 0.9, 0.904])
    (sentence,) = (flag.sentence for flag in diagnose(curve, 20).flags if flag.kind == "noisy")
    assert re.search(r"scatter by 0\.[1-9] points of success around the curve, more than its .* of 0\.\d\.$", sentence)


def test_the_back_test_predicts_the_largest_size_from_the_others() -> None:
    surprising = curve_of([0, 20, 40, 60, 60], [0.2, 0.4, 0.5, 0.2, 0.3])
    test = back_test(surprising)
    assert test is not None
    earlier = curve_of([0, 20, 40], [0.2, 0.4, 0.5])
    assert (test.n, test.measured) == (60, 0.25)
    assert test.predicted == pytest.approx(earlier.at(60))
    assert test.error == pytest.approx(earlier.at(60) - 0.25)
    assert "back-test" in kinds(surprising, 20)
    assert any("overestimated" in flag.sentence for flag in diagnose(surprising, 20).flags)
    jump = curve_of([0, 20, 40, 60], [0.2, 0.21, 0.22, 0.6])
    assert any("underestimated" in flag.sentence for flag in diagnose(jump, 20).flags)
    assert "back-test" not in kinds(good(), 20)


def test_two_sizes_leave_nothing_to_test() -> None:
    assert back_test(curve_of([0, 60], [0.2, 0.6])) is None
    assert back_test(curve_of([0, 20, 60], [0.2, 0.3, 0.6], base=0)) is None


def test_residuals_are_measured_minus_fitted_in_the_order_of_the_points() -> None:
    curve = curve_of([0, 20, 60], [0.2, 0.5, 0.6])
    residuals = diagnose(curve, 20).residuals
    assert residuals == pytest.approx([0.2 - curve.at(0), 0.5 - curve.at(20), 0.6 - curve.at(60)])
    assert diagnose(curve_of([0, 20, 60], [0.2, 0.5, 0.6], base=0), 20).residuals[0] == 0.0
