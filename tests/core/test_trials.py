"""Trials to scores: intervals held against numbers worked out elsewhere."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factored_scaling import InvalidInput, Trial
from factored_scaling.core.trials import known_result, known_score, result_of, summarise, wilson


def solved_wilson(successes: int, trials: int) -> tuple[float, float]:
    """The two p at which (mean - p)² = z²·p(1-p)/trials, by bisection: Wilson's interval by its definition."""
    z2, mean = 1.959963984540054**2, successes / trials

    def outside(p: float) -> bool:
        return (mean - p) ** 2 > z2 * p * (1 - p) / trials

    def edge(out: float, inside: float) -> float:
        for _ in range(200):
            middle = (out + inside) / 2
            out, inside = (middle, inside) if outside(middle) else (out, middle)
        return inside

    return (edge(0.0, mean) if successes else 0.0), (edge(1.0, mean) if successes < trials else 1.0)


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        # Newcombe (1998), table I, method 3, to the four digits printed there
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_equals_published_numbers(successes: int, trials: int, low: float, high: float) -> None:
    interval = wilson(successes / trials, trials)
    assert interval.low == pytest.approx(low, abs=5e-5)
    assert interval.high == pytest.approx(high, abs=5e-5)


@given(st.integers(1, 3000), st.data())
def test_wilson_solves_its_defining_equation(trials: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, trials))
    low, high = solved_wilson(successes, trials)
    interval = wilson(successes / trials, trials)
    assert interval.low == pytest.approx(low, abs=1e-9)
    assert interval.high == pytest.approx(high, abs=1e-9)
    assert 0.0 <= interval.low <= successes / trials <= interval.high <= 1.0


def test_all_or_nothing_touches_the_edge_exactly() -> None:
    assert wilson(0.0, 7).low == 0.0
    assert wilson(1.0, 7).high == 1.0
    assert wilson(1.0, 1).low == pytest.approx(1 / (1 + 1.959963984540054**2))


@pytest.mark.parametrize(("mean", "trials"), [(0.5, 0), (0.5, -1), (1.1, 5), (-0.1, 5), (math.nan, 5)])
def test_an_interval_of_nothing_is_refused(mean: float, trials: int) -> None:
    with pytest.raises(InvalidInput):
        wilson(mean, trials)


def test_graded_scores_get_nearly_the_normal_interval() -> None:
    scores = [0.0, 0.25, 0.5, 1.0] * 50
    spread = 1.96 * float(np.std(scores)) / math.sqrt(len(scores))
    score = summarise(scores)
    assert score.mean == pytest.approx(0.4375)
    assert score.trials == 200
    assert score.interval.low == pytest.approx(0.4375 - spread, abs=0.01)
    assert score.interval.high == pytest.approx(0.4375 + spread, abs=0.01)
    assert summarise(scores) == score


@pytest.mark.parametrize("counts", [(2, 3, 5, 10, 40), (30, 6, 2, 1, 1), (10, 0, 10, 0, 10), (3, 2, 2, 1, 2)])
def test_the_interval_of_graded_scores_is_that_of_a_bootstrap(counts: tuple[int, ...]) -> None:
    levels = np.linspace(0, 1, 5)
    draws = np.random.default_rng(0).multinomial(sum(counts), np.array(counts) / sum(counts), 20_000) @ levels
    low, high = np.quantile(draws / sum(counts), [0.025, 0.975])
    interval = summarise(np.repeat(levels, counts).tolist()).interval
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=0.3 / sum(counts))


def test_the_interval_of_graded_scores_stays_within_reach_and_holds_their_mean() -> None:
    for scores in ([0.0, 0.5], [1.0, 0.75], [0.0] * 999 + [0.5], [1.0] * 30 + [0.9], [0.0, 1.0, 0.5]):
        score = summarise(scores)
        assert 0.0 <= score.interval.low < score.mean < score.interval.high <= 1.0


def test_whole_scores_get_wilson_whatever_their_type() -> None:
    wanted = wilson(0.75, 4)
    assert summarise([1, 0, 1, 1]).interval == wanted
    assert summarise([1.0, 0.0, 1.0, 1.0]).interval == wanted
    assert summarise([True, False, True, True]).interval == wanted
    array: Any = np.array([1.0, 0.0, 1.0, 1.0])
    assert summarise(array).interval == wanted


def test_graded_scores_that_are_all_alike_still_have_a_width() -> None:
    assert summarise([0.25] * 8).interval == wilson(0.25, 8)


@pytest.mark.parametrize("scores", [[], [0.5, math.nan], [1.5], [-0.1, 0.5]])
def test_what_is_no_score_is_refused(scores: list[float]) -> None:
    with pytest.raises(InvalidInput):
        summarise(scores)


def test_a_result_breaks_down_by_what_was_varied() -> None:
    result = result_of(
        [
            Trial("1", 1.0, ("lighting",)),
            Trial("2", 0.0, ("lighting",)),
            Trial("3", 1.0, ("lighting", "camera")),
            Trial("4", 0.0, ("*",)),
            Trial("5", 0.0),
        ]
    )
    assert (result.overall.mean, result.overall.trials) == (0.4, 5)
    assert {factor: score.mean for factor, score in result.by_factor.items()} == {
        ("lighting",): 0.5,
        ("lighting", "camera"): 1.0,
        ("*",): 0.0,
    }
    with pytest.raises(InvalidInput, match="no trials"):
        result_of([])


@pytest.mark.parametrize("score", [np.float32(0.5), np.float64(0.5), np.array(0.5), 0.5])
def test_a_trial_takes_any_number(score: Any) -> None:
    assert type(Trial("a", score).score) is float
    assert Trial("a", score).score == 0.5
    success: Any = np.int64(1)
    assert Trial("a", success).score == Trial("a", True).score == 1.0


@pytest.mark.parametrize("score", [1.01, -0.01, math.nan, math.inf, "1", None, [1], np.array([0.5, 1]), 10**400, 1j])
def test_a_trial_refuses_other_scores_and_says_which_trial(score: Any) -> None:
    with pytest.raises(InvalidInput, match=r"trial 'tuesday/3': a trial's score must lie in \[0, 1\]"):
        Trial("tuesday/3", score)


@pytest.mark.parametrize("factor", ["lighting", (3,), ("",), 3, None])
def test_a_trial_refuses_what_names_no_factors(factor: Any) -> None:
    with pytest.raises(InvalidInput, match="tuple of names"):
        Trial("a", 1.0, factor)


@pytest.mark.parametrize("key", ["", None, 3])
def test_a_trial_needs_a_key(key: Any) -> None:
    with pytest.raises(InvalidInput, match="needs a key"):
        Trial(key, 1.0)


def test_means_of_one_policy_become_one_result() -> None:
    light, table = ("light",), ("table",)
    result = known_result([(light, 0.2, 10), (table, 0.5, 20), (light, 0.8, 30)])  # two sources told of light
    assert result.overall == known_score(0.6, 60)
    assert result.by_factor == {light: known_score(0.65, 40), table: known_score(0.5, 20)}
    result = known_result([(light, 0.2, 10), ((), 0.5, None), ((), 0.7, 10)])
    assert result.overall == known_score(0.6, None)
    assert result.by_factor == {light: known_score(0.2, 10)}
