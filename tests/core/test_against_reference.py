"""The package and the separately written reference give the same numbers, on thousands of random studies."""

from __future__ import annotations

import math

import pytest
from tests.core import reference
from tests.core.cases import Case, case, fittable

from factored_scaling import Results, StudySpec, fit_curves, plan, recommend
from factored_scaling.core.allocation import curve_tiers, included, spend
from factored_scaling.core.baselines import equal_tiers
from factored_scaling.core.curves import Curve
from factored_scaling.core.design import curve_sizes, split
from factored_scaling.errors import NotEnoughData

CASES = 2400
BLOCK = 300
STRATEGIES = ("top", "top-half", "all")


def expected(made: Case) -> tuple[list[reference.Fit], list[float]]:
    fits, slopes = [], []
    for combination, rows in zip(made.spec.combinations(), made.points, strict=True):
        base = made.spec.total - sum(made.spec.sizes[name] for name in combination.factors)
        size = made.spec.total - base
        fits.append(reference.fit(rows, base))
        slopes.append(reference.slope(fits[-1], size, base, made.budget))
    return fits, slopes


def allocation(spec: StudySpec, curves: tuple[Curve, ...], budget: int, strategy: str) -> dict[str, int]:
    """What `recommend` does with fitted curves, without its thousands of refits."""
    gains = [curve.slope(budget) for curve in curves]
    picked = included(gains, strategy)
    tiers = curve_tiers(spec, gains, picked) if any(gains[index] > 0 for index in picked) else equal_tiers(spec)
    return spend(spec.factors, tiers, budget).demos


def assert_same(made: Case, number: int) -> None:
    curves, _ = fit_curves(made.spec, Results.from_rows(made.rows))
    fits, slopes = expected(made)
    for curve, fit, slope in zip(curves, fits, slopes, strict=True):
        assert curve.b == pytest.approx(fit.b, rel=1e-9, abs=1e-15), number
        if fit.log_a < 700:
            assert curve.a == pytest.approx(math.exp(fit.log_a), rel=1e-9), number
        # the reference subtracts two predictions as the definition says, which costs it digits of a small slope
        assert curve.slope(made.budget) == pytest.approx(slope, rel=1e-9, abs=4e-15 / made.budget), number
        assert (curve.slope(made.budget) == 0.0) == (fit.b == 0.0 or slope == 0.0), number
    combos = [combination.factors for combination in made.spec.combinations()]
    for strategy in STRATEGIES:
        wanted = reference.allocate(made.spec.sizes, combos, made.spec.construction, slopes, made.budget, strategy)
        assert allocation(made.spec, curves, made.budget, strategy) == wanted, (number, strategy)
        assert sum(wanted.values()) == made.budget


@pytest.mark.parametrize("start", range(0, CASES, BLOCK))
def test_curves_slopes_and_allocations_equal_the_reference(start: int) -> None:
    compared = 0
    for number in range(start, start + BLOCK):
        made = case(number)
        if fittable(made):
            assert_same(made, number)
            compared += 1
        else:
            with pytest.raises(NotEnoughData):
                fit_curves(made.spec, Results.from_rows(made.rows))
    assert compared > BLOCK / 2


@pytest.mark.parametrize("number", range(0, CASES, 60))
def test_recommend_as_a_whole_equals_the_reference(number: int) -> None:
    made = case(number)
    if not fittable(made):
        pytest.skip("a curve with one usable size")
    _, slopes = expected(made)
    combos = [combination.factors for combination in made.spec.combinations()]
    for strategy in STRATEGIES:
        got = recommend(made.spec, Results.from_rows(made.rows), made.budget, strategy)
        wanted = reference.allocate(made.spec.sizes, combos, made.spec.construction, slopes, made.budget, strategy)
        assert got.allocation == wanted
        assert any("split equally" in warning for warning in got.warnings) == (
            max(slopes[index] for index in reference.included(slopes, strategy)) == 0
        )
    equal = recommend(made.spec, Results.from_rows(made.rows), made.budget, "equal")
    assert equal.allocation == reference.equal(list(made.spec.sizes), made.budget)


def test_the_cases_cover_what_they_should() -> None:
    made = [case(number) for number in range(CASES // 4)]
    for construction in ("one", "pair", "group"):
        assert {len(m.spec.factors) for m in made if m.spec.construction == construction} >= set(range(2, 9))
    assert {len(c.factors) for m in made for c in m.spec.combinations()} >= {1, 2, 3, 4}
    fits = [fit for m in made if fittable(m) for fit in expected(m)[0]]
    assert sum(fit.b == 0 for fit in fits) > 300
    assert sum(fit.b < 0 for fit in fits) > 300
    assert any(fit.log_a > 710 for fit in fits)
    everything = [slopes for m in made if fittable(m) for slopes in [expected(m)[1]]]
    assert sum(max(slopes) == 0 for slopes in everything) > 12
    assert sum(len(set(slopes)) < len(slopes) and max(slopes) > 0 for slopes in everything) > 12


@pytest.mark.parametrize("construction", ["one", "pair", "group"])
@pytest.mark.parametrize("count", range(1, 9))
@pytest.mark.parametrize("nominal", [0, 7])
def test_plan_counts_the_policies_of_the_reference(construction: str, count: int, nominal: int) -> None:
    if construction == "pair" and count == 1:
        pytest.skip("no pair of one")
    sizes = {f"f{index}": 9 + 2 * index for index in range(count)}
    for points in (2, 4, 5):
        spec = StudySpec(sizes, nominal=nominal, construction=construction, points=points)
        combos = [combination.factors for combination in spec.combinations()]
        assert combos == reference.combine(list(sizes), construction)
        wanted = reference.training_sets(sizes, nominal, combos, points)
        runs = plan(spec)
        assert {tuple(run.demos.values()) for run in runs} == wanted
        assert len(runs) == len(wanted)


def test_sizes_and_splits_equal_the_reference() -> None:
    for size in range(1, 70):
        for points in range(2, 12):
            assert list(curve_sizes(size, points)) == reference.point_sizes(size, points)
    for first in range(1, 25):
        for second in range(1, 25):
            for n in range(first + second + 1):
                assert list(split(n, {"a": first, "b": second}).values()) == reference.split(n, [first, second])
