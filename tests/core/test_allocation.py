"""Whole numbers out of slopes: properties that hold for every budget, cost, cap and minimum."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.core import reference

from factored_scaling import Factor, InvalidInput, StudySpec
from factored_scaling.core.allocation import check_budget, curve_tiers, included, mean_cost, ranked, spend

BUDGETS = st.integers(1, 500)
WEIGHTS = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1.0)), min_size=1, max_size=8)


def plain(count: int) -> list[Factor]:
    return [Factor(f"f{index}", 30) for index in range(count)]


def tier(weights: list[float]) -> dict[str, float]:
    return {f"f{index}": weight for index, weight in enumerate(weights)}


@given(WEIGHTS, BUDGETS)
def test_whole_numbers_sum_to_the_budget_and_follow_the_weights(weights: list[float], budget: int) -> None:
    spending = spend(plain(len(weights)), [tier(weights)], budget)
    counts = list(spending.demos.values())
    assert sum(counts) == budget
    assert spending.left == 0.0
    assert all(type(count) is int and count >= 0 for count in counts)
    if sum(weights):
        for count, weight in zip(counts, weights, strict=True):
            assert abs(count - budget * weight / sum(weights)) < 1 + 1e-9
            assert weight > 0 or count == 0


@given(WEIGHTS, BUDGETS)
def test_largest_remainders_equal_exact_arithmetic(weights: list[float], budget: int) -> None:
    assume(sum(weights) > 0)
    exact = [Fraction(weight) for weight in weights]
    quotas = [budget * weight / sum(exact) for weight in exact]
    remainders = sorted(quota % 1 for quota in quotas)
    # nearer than a billionth of a demonstration counts as a tie
    assume(all(high - low > Fraction(1, 10**8) or high == low for low, high in itertools.pairwise(remainders)))
    assume(all(r == 0 or Fraction(1, 10**8) < r < 1 - Fraction(1, 10**8) for r in remainders))
    wanted = reference.largest_remainder(quotas, budget)
    assert list(spend(plain(len(weights)), [tier(weights)], budget).demos.values()) == wanted


@given(st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=8, unique=True), BUDGETS, st.randoms())
def test_the_order_of_the_factors_does_not_matter_where_nothing_ties(
    slopes: list[float], budget: int, rng: Any
) -> None:
    quotas = [budget * slope / sum(slopes) for slope in slopes]
    remainders = sorted(quota % 1 for quota in quotas)
    assume(all(high - low > 1e-8 for low, high in zip([-1.0, *remainders], [*remainders, 1.0], strict=True)))
    names = [f"f{index}" for index in range(len(slopes))]
    mixed = rng.sample(names, len(names))
    for strategy in ("top", "top-half", "all"):
        amounts = []
        for order in (names, mixed):
            spec = StudySpec(dict.fromkeys(order, 30), construction="one")
            gains = [slopes[names.index(name)] for name in order]
            picked = included(gains, strategy)
            kept = sorted((budget * gains[i] / sum(gains[j] for j in picked)) % 1 for i in picked)
            assume(len(kept) == 1 or all(b - a > 1e-8 for a, b in itertools.pairwise(kept)))
            amounts.append(spend(spec.factors, curve_tiers(spec, gains, picked), budget).demos)
        assert amounts[0] == amounts[1]


def test_ties_go_to_the_factor_declared_first() -> None:
    assert list(spend(plain(3), [tier([1.0, 1.0, 1.0])], 5).demos.values()) == [2, 2, 1]
    assert list(spend(plain(4), [tier([0.1, 0.3, 0.3, 0.3])], 5).demos.values()) == [1, 2, 1, 1]
    # 0.5 and 2.5 of three demonstrations in thirds that floats cannot hold
    assert list(spend(plain(2), [tier([1 / 3, 5 / 3])], 3).demos.values()) == [1, 2]


def test_ranks_keep_the_declared_order_of_equal_gains() -> None:
    assert ranked([0.1, 0.3, 0.3, 0.2]) == [1, 2, 3, 0]
    assert ranked([0.3, 0.1 + 0.2, 0.3]) == [0, 1, 2]  # 0.1 + 0.2 is the larger float
    assert ranked([0.0, 0.0]) == [0, 1]
    assert ranked([]) == []


@pytest.mark.parametrize(
    ("count", "strategy", "size"),
    [
        (1, "top-half", 1),
        (2, "top-half", 1),
        (3, "top-half", 1),
        (4, "top-half", 2),
        (28, "top-half", 14),
        (5, "top", 1),
        (5, "all", 5),
    ],
)
def test_how_many_combinations_are_included(count: int, strategy: str, size: int) -> None:
    gains = [float(index) for index in range(count)]
    picked = included(gains, strategy)
    assert picked == sorted(range(count), reverse=True)[:size]


def test_a_group_is_shared_by_size_and_a_pair_in_halves() -> None:
    group = StudySpec({"a": 30, "b": 10, "c": 5})
    assert spend(group.factors, curve_tiers(group, [0.2, 0.1], [0]), 100).demos == {"a": 75, "b": 25, "c": 0}
    pair = StudySpec({"a": 30, "b": 10, "c": 5}, construction="pair")
    assert spend(pair.factors, curve_tiers(pair, [0.2, 0.1, 0.1], [0]), 100).demos == {"a": 50, "b": 50, "c": 0}
    # a: (0.2 + 0.1)/0.8, b: (0.2 + 0.1)/0.8, c: (0.1 + 0.1)/0.8
    every = spend(pair.factors, curve_tiers(pair, [0.2, 0.1, 0.1], [0, 1, 2]), 80).demos
    assert every == {"a": 30, "b": 30, "c": 20}


PRICED = st.lists(
    st.builds(
        lambda cost, cap, minimum: (cost, None if cap is None else cap + minimum, minimum),
        st.sampled_from([0.1, 0.25, 1.0, 1.5, 3.0, 7.0]),
        st.one_of(st.none(), st.integers(0, 60)),
        st.integers(0, 5),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=300, deadline=None)
@given(PRICED, st.integers(1, 500), st.data())
def test_costs_caps_and_minimums_are_kept(
    priced: list[tuple[float, int | None, int]], budget: int, data: st.DataObject
) -> None:
    factors = [Factor(f"f{index}", 30, *rest) for index, rest in enumerate(priced)]
    weight = st.one_of(st.just(0.0), st.floats(1e-6, 1.0))
    tiers = [
        tier(data.draw(st.lists(weight, min_size=len(factors), max_size=len(factors))))
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    if math.fsum(factor.cost * factor.minimum for factor in factors) > budget:
        with pytest.raises(InvalidInput, match="minimums alone cost"):
            spend(factors, tiers, budget)
        return
    spending = spend(factors, tiers, budget)
    cost = math.fsum(factor.cost * spending.demos[factor.name] for factor in factors)
    assert cost <= budget * (1 + 1e-9)
    assert spending.left == pytest.approx(budget - cost, abs=1e-9 * budget)
    for factor in factors:
        assert factor.minimum <= spending.demos[factor.name]
        assert factor.cap is None or spending.demos[factor.name] <= factor.cap
    room = [f.cost for f in factors if f.cap is None or spending.demos[f.name] < f.cap]
    assert not room or spending.left < min(room)
    if all(factor.cost == 1.0 for factor in factors) and any(factor.cap is None for factor in factors):
        assert sum(spending.demos.values()) == budget


def test_bounds_move_the_others_in_proportion() -> None:
    factors = [Factor("a", 30, cap=10), Factor("b", 30), Factor("c", 30), Factor("d", 30, minimum=7)]
    weights = [{"a": 0.5, "b": 0.2, "c": 0.1, "d": 0.0}]
    assert spend(factors, weights, 47).demos == {"a": 10, "b": 20, "c": 10, "d": 7}


def test_what_caps_leave_over_goes_to_the_next_tier() -> None:
    factors = [Factor("a", 30, cap=10), Factor("b", 30, cap=5), Factor("c", 30)]
    tiers = [{"a": 1.0, "b": 0.0, "c": 0.0}, {"a": 0.0, "b": 1.0, "c": 0.0}]
    assert spend(factors, tiers, 20).demos == {"a": 10, "b": 5, "c": 5}


def test_a_budget_that_caps_cannot_take_is_left_over() -> None:
    factors = [Factor("a", 30, cap=3), Factor("b", 30, cap=4)]
    spending = spend(factors, [{"a": 1.0, "b": 1.0}], 20)
    assert (spending.demos, spending.left) == ({"a": 3, "b": 4}, 13.0)


def test_costs_that_floats_cannot_hold_leave_no_dust() -> None:
    factors = [Factor("a", 30, cost=0.1), Factor("b", 30, cost=0.7)]
    spending = spend(factors, [{"a": 1.0, "b": 1.0}], 4)
    assert (spending.demos, spending.left) == ({"a": 5, "b": 5}, 0.0)


def test_very_unlike_costs_take_no_time() -> None:
    factors = [Factor("a", 30, cost=1e6), Factor("b", 30, cost=1e-6)]
    assert spend(factors, [{"a": 1.0, "b": 1.0}], 500).demos == {"a": 0, "b": 500_000_000}


@pytest.mark.parametrize("budget", [10**9, 10**11 + 1, 10**12])
def test_a_very_large_budget_is_still_spent_to_the_last_one(budget: int) -> None:
    counts = spend(plain(3), [tier([0.1, 0.2, 0.4])], budget).demos.values()
    assert sum(counts) == budget
    assert max(counts) == pytest.approx(budget * 4 / 7, abs=1)


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e200, 1.7e308])
def test_only_the_ratios_of_weights_count(scale: float) -> None:
    assert list(spend(plain(2), [tier([scale, scale])], 7).demos.values()) == [4, 3]


def test_a_combinations_cost_is_that_of_its_mixture() -> None:
    spec = StudySpec({"a": {"demos": 30, "cost": 3}, "b": 10})
    assert mean_cost(spec, spec.combinations()[0]) == pytest.approx(0.75 * 3 + 0.25)


def test_a_budget_is_a_whole_number_above_zero() -> None:
    assert check_budget(5) == 5
    assert type(check_budget(np.int64(5))) is int
    wrong: list[Any] = [0, -3, 1.0, 2.5, "5", None, True, np.True_, math.nan, [5], np.array([5, 6])]
    wrong += [10**400, -(10**5000)]
    for budget in wrong:
        with pytest.raises(InvalidInput, match="budget"):
            check_budget(budget)
