"""Sentences for every kind of answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.report.cases import VISUAL, study

from factored_scaling.core.results import Results
from factored_scaling.core.scores import known_score
from factored_scaling.core.spec import StudySpec
from factored_scaling.model.recommend import recommend
from factored_scaling.report.values import run_lines
from factored_scaling.report.words import (
    answer,
    demo_words,
    gain_points,
    gain_words,
    listed,
    meaning,
    percent,
    plain,
    score_words,
    strategy_words,
)


@pytest.mark.parametrize(
    ("value", "digits", "text"), [(0.614, 0, "61%"), (0.614, 1, "61.4%"), (1.0, 0, "100%"), (-0.0001, 0, "0%")]
)
def test_percent(value: float, digits: int, text: str) -> None:
    assert percent(value, digits) == text


@pytest.mark.parametrize(
    ("now", "later", "text"), [(0.61, 0.70, "+9"), (0.61, 0.617, "+0.7"), (0.5, 0.5, "±0"), (0.7, 0.61, "−9")]
)
def test_gains(now: float, later: float, text: str) -> None:
    assert gain_points(now, later) == text


def test_gain_words() -> None:
    assert gain_words(0.612, 0.704) == "61.2% to 70.4%, +9 points"
    assert gain_words(0.612, 0.612) == "61.2%, flat"


def test_listed() -> None:
    assert [listed(list("abc"[:n])) for n in (1, 2, 3)] == ["a", "a and b", "a, b and c"]


def test_several_curves_name_the_steepest() -> None:
    spec, results = study()
    what, why = answer(spec, recommend(spec, results, 100, "all"))
    assert what.startswith("Collect ")
    assert "background demos." in what
    assert why.startswith("The steepest of their curves, camera pose + distractor, would promise +")
    assert why.endswith("for all 100.")


def test_one_factor_and_one_demo_are_singular() -> None:
    spec, results = study(VISUAL, "one")
    what, why = answer(spec, recommend(spec, results, 1, "top"))
    assert what == "Collect 1 camera pose demo."
    assert why.startswith("Its curve promises +0.")


def test_a_budget_too_small_for_all_factors_names_the_curve() -> None:
    spec, results = study()
    _, why = answer(spec, recommend(spec, results, 1, "top"))
    assert why.startswith("The curve of camera pose + distractor promises")


def test_baselines_say_what_they_follow() -> None:
    spec, results = study(per_factor=True)
    assert answer(spec, recommend(spec, results, 100, "greedy"))[1] == (
        "The policy trained on everything scores lowest there."
    )
    weighted = recommend(spec, results, 100, "remix", weights={**dict.fromkeys(VISUAL, 1.0), "lighting": 6.0})
    assert answer(spec, weighted) == (
        "Collect 10 table texture, 60 lighting, 10 camera pose, 10 distractor and 10 background demos.",
        "The shares are the weights that Re-Mix learned.",
    )


def test_auto_says_why() -> None:
    spec, results = study()
    given = recommend(spec, results, 100, "auto")
    assert given.surface is not None
    likely = max(given.surface.curves, key=lambda curve: curve.best)
    said = strategy_words(given)
    assert f"Alone, {plain(likely.factor)} is the best buy with a probability of {percent(likely.best)}." in said
    assert f"expected to cost {100 * given.surface.regret:.1f} points" in said
    assert "best buy" not in strategy_words(recommend(spec, results, 100, "top"))
    what, why = answer(spec, given)
    assert what.startswith("Collect ")
    digits = given.surface.digits
    expected, equal = given.surface.predicted, given.surface.alternatives["equal"][1]
    assert why.startswith(
        f"Expected: {percent(expected.mean, digits)} ({100 * expected.low:.0f}–{100 * expected.high:.0f})"
    )
    assert f"Equal would give {percent(equal.mean, digits)}" in why


def test_an_even_order_says_what_was_not_sure_enough() -> None:
    spec = StudySpec(dict.fromkeys(("camera_pose", "lighting", "table_texture"), 30))
    told = {"demos": dict(spec.sizes), "score": 0.5, "trials": 6}
    given = recommend(spec, Results.from_rows([{**told, "factor": name} for name in spec.names]), 90)
    assert given.surface is not None
    order, most = given.surface.alternatives["most"]
    what, why = answer(spec, given)
    assert what == "Collect 30 demos of each of the 3 factors."
    assert "; " not in why
    assert why.endswith(
        f" Spread evenly: what is expected to give most, {demo_words(order)} for {percent(most.mean, 1)}, is no worse "
        f"than that with a probability of {percent(given.surface.sure)} only."
    )
    assert strategy_words(given).startswith("90 in all: spread evenly. ")


def test_run_lines_pool_what_belongs_to_one_policy() -> None:
    spec = StudySpec(factors={"camera_pose": 30, "lighting": 30}, construction="one")
    full = {"camera_pose": 30, "lighting": 30}
    rows = [
        {"demos": full, "score": 0.4, "trials": 100, "factor": "camera_pose"},
        {"demos": full, "score": 0.7, "trials": 50, "factor": "lighting"},
        {"combination": "lighting", "n": 0, "score": 0.3},
    ]
    first, second = run_lines(spec, Results.from_rows(rows))
    assert (first.score, first.demos) == (known_score(0.5, 150), full)
    assert first.by_factor == {"camera_pose": known_score(0.4, 100), "lighting": known_score(0.7, 50)}
    assert second.demos == {"camera_pose": 30, "lighting": 0}
    assert second.score is not None
    assert score_words(second.score) == "30.0%"


def test_run_lines_count_a_policy_that_is_listed_under_every_curve_once() -> None:
    spec = StudySpec({"a": 4, "b": 4}, construction="one")
    rows = [{"combination": name, "n": 4, "score": 0.6, "trials": 50} for name in spec.names]
    (line,) = run_lines(spec, Results.from_rows(rows))
    assert line.score == known_score(0.6, 50)


@pytest.mark.parametrize(
    ("sure", "said"), [(0.599609375, "59.9%"), (0.59999, "59.9%"), (0.594, "59%"), (0.6171875, "62%"), (0.6, "60%")]
)
def test_what_is_not_sure_enough_does_not_read_as_if_it_were(sure: float, said: str) -> None:
    spec = StudySpec(dict.fromkeys(("camera_pose", "lighting", "table_texture"), 30))
    told = {"demos": dict(spec.sizes), "score": 0.5, "trials": 6}
    given = recommend(spec, Results.from_rows([{**told, "factor": name} for name in spec.names]), 90)
    assert given.surface is not None
    given = replace(given, surface=replace(given.surface, sure=sure))
    assert f"but is only {said} sure" in given.sentence
    assert answer(spec, given)[1].endswith(f"with a probability of {said} only.")


@pytest.mark.parametrize(
    ("cap", "budget", "said"),
    [(30, 10, "spread evenly"), (30, 2, "spread as evenly as can be"), (2, 30, "spread as evenly as can be")],
)
def test_equal_is_not_called_even_where_it_cannot_be(cap: int, budget: int, said: str) -> None:
    spec = StudySpec({"camera_pose": 30, "lighting": {"demos": 30, "cap": cap}, "table_texture": 30})
    told = {"demos": dict(spec.sizes), "score": 0.5, "trials": 6}
    results = Results.from_rows([{**told, "factor": name} for name in spec.names])
    given, equal = recommend(spec, results, budget), recommend(spec, results, budget, "equal")
    assert given.allocation == equal.allocation
    assert meaning(given) == meaning(equal) == said
    assert said.capitalize() in answer(spec, given)[1]
    assert answer(spec, equal)[1].startswith(f"An equal share for every factor{' as far as can be' * ('as' in said)}")
