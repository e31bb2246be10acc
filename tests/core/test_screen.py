"""The screening order: balanced, the same everywhere, and every prefix of it a design."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from factored_scaling import Results, StudySpec, plan, recommend
from factored_scaling.core.screen import DEPTHS, screening_order
from factored_scaling.errors import NotEnoughData


def order(count: int, policies: int) -> list[tuple[Fraction, ...]]:
    return list(itertools.islice(screening_order(count), policies))


def screen(policies: int | None = None, **sizes: int) -> StudySpec:
    return StudySpec(sizes, construction="screen", policies=policies)


def test_the_order_is_this_one_for_ever() -> None:
    """A study that is under way must find its runs again after an upgrade."""
    thirds = [[int(3 * part) for part in kept] for kept in order(5, 7)]
    assert thirds == [
        [3, 3, 3, 3, 3],
        [0, 0, 3, 3, 3],
        [3, 3, 0, 0, 0],
        [3, 0, 0, 3, 3],
        [0, 3, 3, 0, 0],
        [3, 0, 3, 0, 3],
        [0, 3, 0, 3, 0],
    ]


@pytest.mark.parametrize("count", range(1, 14))
def test_each_policy_thins_half_of_the_factors_to_a_known_depth(count: int) -> None:
    first, *others = order(count, 20)
    assert set(first) == {Fraction(1)}
    for kept in others:
        thinned = [part for part in kept if part < 1]
        assert set(thinned) <= set(DEPTHS)
        assert len(thinned) in {max(1, count // 2), (count + 1) // 2}


@pytest.mark.parametrize("count", [4, 5, 8, 12])
@pytest.mark.parametrize("policies", [5, 9, 17])
def test_every_prefix_is_balanced(count: int, policies: int) -> None:
    thinned = np.array([[part < 1 for part in kept] for kept in order(count, policies)])
    times = thinned.sum(axis=0)
    assert times.max() - times.min() <= 1
    if policies >= 9:
        signs = np.where(thinned, -1.0, 1.0)
        together = signs.T @ signs / policies
        np.fill_diagonal(together, 0)
        assert np.abs(together).mean() < 0.3  # random halves of as many policies are no better


def test_a_pattern_that_comes_up_again_keeps_more() -> None:
    alternating = [((kept, 1), (1, kept)) for kept in DEPTHS]
    assert order(2, 7) == [(1, 1), *itertools.chain.from_iterable(alternating)]
    assert len(set(order(3, 19))) == 19


def test_plan_trains_the_full_data_policy_first_and_may_stop_anywhere() -> None:
    longest = [run.demos for run in plan(screen(9, a=30, b=20, c=10, d=7, e=1))]
    assert longest[0] == {"a": 30, "b": 20, "c": 10, "d": 7, "e": 1}
    assert len(longest) == 9
    assert len({tuple(demos.values()) for demos in longest}) == 9
    for policies in range(1, 9):
        assert [run.demos for run in plan(screen(policies, a=30, b=20, c=10, d=7, e=1))] == longest[:policies]
    assert len(plan(screen(a=30, b=20, c=10, d=7, e=1))) == 6


def test_training_sets_are_nested_per_factor() -> None:
    runs = plan(screen(8, a=30, b=30, c=30, d=30))
    for first, second in itertools.combinations(runs, 2):
        for name in "abcd":
            one, other = ({e for e in run.spec.episodes if e.startswith(f"{name}/")} for run in (first, second))
            assert one <= other or other <= one


def test_seeds_repeat_the_whole_design_and_empty_sets_are_left_out() -> None:
    twice = plan(StudySpec({"a": 30, "b": 30, "c": 30}, construction="screen", policies=5, seeds=2))
    assert [run.spec.seed for run in twice] == [0] * 5 + [1] * 5
    alone = plan(screen(9, a=3))
    assert [run.demos["a"] for run in alone] == [3, 1, 2]


def test_policies_cut_the_plan_of_any_construction() -> None:
    spec = StudySpec({"a": 30, "b": 30, "c": 30}, construction="one")
    assert plan(spec.changed(policies=4)) == plan(spec)[:4]
    assert StudySpec.from_mapping(spec.changed(policies=4).to_mapping()).policies == 4
    assert "policies" not in spec.to_mapping()


def test_a_power_law_needs_curves() -> None:
    spec = screen(5, a=30, b=30, c=30, d=30)
    rows = [{"demos": run.demos, "factor": name, "score": 0.5, "trials": 20} for run in plan(spec) for name in "abcd"]
    results = Results.from_rows(rows)
    with pytest.raises(NotEnoughData, match="construction screen has no curves"):
        recommend(spec, results, 20, "top", "power-law")
    assert sum(recommend(spec, results, 20, "cubed-failure", "power-law").allocation.values()) == 20
