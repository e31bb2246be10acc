"""Sentences for every kind of answer."""

from __future__ import annotations

import pytest
from tests.report.cases import VISUAL, study

from factored_scaling.core.checks import listed
from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import known_score
from factored_scaling.model.recommend import recommend
from factored_scaling.model.text import choice_sentence, difference_text, percent, versus_equal_sentence
from factored_scaling.report.values import run_lines
from factored_scaling.report.words import (
    answer,
    demo_words,
    gain_words,
    meaning,
    plain,
    score_words,
    strategy_words,
)


def test_gain_words() -> None:
    assert gain_words(0.612, 0.704) == "61.2% to 70.4%, +9.2 points"
    assert gain_words(0.612, 0.612) == "61.2%, flat"


def test_listed() -> None:
    assert [listed(list("abc"[:n])) for n in (1, 2, 3)] == ["a", "a and b", "a, b and c"]


def test_several_curves_name_the_steepest() -> None:
    spec, results = study()
    what, why = answer(spec, recommend(spec, results, 100, "all"))
    assert what.startswith("Collect ")
    assert "background demos." in what
    assert why.startswith("The steepest of their curves, camera pose + distractor, predicts +")
    assert why.endswith("for all 100.")


def test_one_factor_and_one_demo_are_singular() -> None:
    spec, results = study(VISUAL, "one")
    what, why = answer(spec, recommend(spec, results, 1, "top"))
    assert what == "Collect 1 camera pose demo."
    assert why.startswith("Its curve predicts +0.")


def test_a_budget_too_small_for_all_factors_names_the_curve() -> None:
    spec, results = study()
    _, why = answer(spec, recommend(spec, results, 1, "top"))
    assert why.startswith("The curve of camera pose + distractor predicts")


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
    assert given.summary is not None
    likely = max(given.summary.curves, key=lambda curve: curve.best)
    text = strategy_words(given)
    assert "Decided by the response model." in text
    assert f"Best single factor: {plain(likely.factor)}, with a probability of {percent(likely.best, 0)}." in text
    assert f"Expected regret of acting now: {100 * given.regret:.1f} points." in text
    assert choice_sentence(given.summary) in text
    what, why = answer(spec, given)
    assert what.startswith("Collect ")
    low, high = given.prediction.interval(0.95)
    mean, equal = given.prediction.mean, given.summary.alternatives["equal"][1]
    assert why.startswith(f"Predicted success: {percent(mean)} ({100 * low:.0f}–{100 * high:.0f})")
    assert f"; an equal split: {percent(equal.mean)}" in why
    assert why.endswith(versus_equal_sentence(given.summary))
    assert "likely to match or beat an equal split; difference +" in why


def test_another_rule_says_what_decided_and_what_the_response_model_says_of_it() -> None:
    spec, results = study()
    given, top = recommend(spec, results, 100), recommend(spec, results, 100, "top")
    assert given.summary is not None
    text = strategy_words(top, given.summary.compare(top.allocation))
    assert "Decided by the paper's curves. " in text
    predicted = given.summary.alternatives["top"][1]
    assert f"Predicted success by the response model: {percent(predicted.mean)} (" in text
    assert "% likely to match or beat an equal split; difference " in text
    assert "Best single factor" not in text
    assert "Decided by this rule" in strategy_words(recommend(spec, results, 100, "equal"))


THREE = StudySpec(dict.fromkeys(("camera_pose", "lighting", "table_texture"), 30))


def unclear(spec: StudySpec) -> Results:
    """The same score for every factor over few trials: an equal split is recommended."""
    row = {"demos": dict(spec.sizes), "score": 0.5, "trials": 6}
    return Results.from_rows([{**row, "factor": name} for name in spec.names])


def test_an_equal_split_names_the_alternative_that_is_not_likely_enough_to_match_it() -> None:
    spec = THREE
    given = recommend(spec, unclear(spec), 90)
    assert given.summary is not None
    demos, best = given.summary.alternatives["best"]
    chance = given.summary.best_probability
    assert chance is not None
    what, why = answer(spec, given)
    assert what == "Collect 30 demos of each of the 3 factors."
    assert "; an equal split:" not in why
    assert "Recommending an equal split: the best alternative" in why
    assert why.endswith(
        f" ({demo_words(demos)}: {percent(best.mean)}) has only a {percent(chance, 0)} chance of matching it (60% "
        f"required); difference {difference_text(given.summary.gain_over_equal).replace(' (', ' points (')}."
    )
    assert strategy_words(given).startswith("Budget 90: split evenly. ")


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
    ("cap", "budget", "text"),
    [(30, 10, "split evenly"), (30, 2, "split as evenly as possible"), (3, 30, "split as evenly as possible")],
)
def test_an_equal_split_is_not_called_even_where_it_cannot_be(cap: int, budget: int, text: str) -> None:
    spec = StudySpec({"camera_pose": 30, "lighting": {"demos": 30, "cap": cap}, "table_texture": 30})
    results = unclear(spec)
    given, equal = recommend(spec, results, budget), recommend(spec, results, budget, "equal")
    assert given.allocation == equal.allocation
    assert meaning(given) == meaning(equal) == text
    assert text in strategy_words(given)
    assert answer(spec, equal)[1].startswith(f"An equal share for every factor{' as far as possible' * ('as' in text)}")
