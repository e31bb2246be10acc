"""From rows to a recommended allocation, as a user calls it."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from factored_scaling import InvalidInput, Results, StudySpec, fit_curves, recommend
from factored_scaling.core.baselines import BASELINES
from factored_scaling.core.spec import Factor
from factored_scaling.errors import NotEnoughData, UnknownFactor
from factored_scaling.model.posterior import REQUIRED_PROBABILITY
from factored_scaling.model.recommend import STRATEGIES
from factored_scaling.model.text import versus_equal_sentence

FOUR = StudySpec(
    {"camera_pose": 30, "distractor": 30, "table_texture": 30, "lighting": 30},
    groups=[["camera_pose", "distractor"], ["table_texture", "lighting"]],
)


def rows(spec: StudySpec, ends: list[tuple[float, float]], trials: int | None = 600) -> Results:
    """Each curve with a power law through its two ends, at n = 0 and n = size."""
    scores = []
    for combination, (first, last) in zip(spec.combinations(), ends, strict=True):
        base, total = combination.base, combination.total
        b = math.log((1 - last) / (1 - first)) / math.log(total / base)
        for k in range(4):
            n = round(combination.size * k / 3)
            score = 1 - (1 - first) * ((n + base) / base) ** b
            scores.append({"combination": combination.label, "n": n, "score": score, "trials": trials})
    return Results.from_rows(scores)


CLEAR = rows(FOUR, [(0.2, 0.6), (0.58, 0.6)])
ALIKE = rows(FOUR, [(0.5, 0.6), (0.5, 0.6)])
FLAT = rows(FOUR, [(0.6, 0.6), (0.7, 0.6)])
UNCLEAR = Results.from_rows(
    [{"demos": dict(FOUR.sizes), "score": 0.5, "trials": 6, "factor": name} for name in FOUR.names]
)


def test_the_object_has_exactly_the_documented_keys() -> None:
    data = recommend(FOUR, CLEAR, budget=100, strategy="top").to_mapping()
    assert list(data) == ["budget", "strategy", "fit", "curves", "allocation", "warnings"]
    assert [list(curve) for curve in data["curves"]] == [
        ["combination", "size", "base", "a", "b", "now", "predicted", "slope"]
    ] * 2
    assert data["curves"][0]["combination"] == ["camera_pose", "distractor"]
    assert (data["budget"], data["strategy"], data["fit"]) == (100, "top", "power-law")
    assert data["allocation"] == {"camera_pose": 50, "distractor": 50, "table_texture": 0, "lighting": 0}
    assert data["warnings"] == []
    assert json.loads(json.dumps(data, allow_nan=False)) == data


def test_answers_are_short_in_an_interactive_session() -> None:
    answer = recommend(FOUR, CLEAR, budget=100)
    assert answer.summary is not None
    assert repr(answer).startswith("Recommendation(budget=100, strategy='auto', fit='response-model', allocation={")
    assert len(repr(answer)) < 700
    assert "array" not in repr(answer.summary.posterior)


def test_a_curve_reports_what_it_predicts() -> None:
    curve = recommend(FOUR, CLEAR, budget=100, strategy="top").to_mapping()["curves"][0]
    assert (curve["size"], curve["base"]) == (60, 60)
    assert curve["b"] == pytest.approx(-1.0)
    assert curve["now"] == pytest.approx(0.6)
    assert curve["predicted"] == pytest.approx(1 - curve["a"] * 220 ** curve["b"])
    assert curve["slope"] == pytest.approx((curve["predicted"] - curve["now"]) / 100)


def test_auto_follows_the_response_model() -> None:
    clear = recommend(FOUR, CLEAR, budget=100)
    assert (clear.strategy, clear.fit) == ("auto", "response-model")
    assert clear.summary is not None
    best = clear.allocation["camera_pose"] + clear.allocation["distractor"]
    assert best >= 70  # their curve rises, the other is flat
    assert sum(clear.allocation.values()) == 100
    assert clear.summary.predicted.mean > clear.summary.alternatives["equal"][1].mean > clear.summary.now.mean
    assert clear.summary.best[0] > 0.8


def test_every_number_of_the_sentence_stands_in_the_json() -> None:
    answer = recommend(FOUR, CLEAR, budget=100)
    data = answer.to_mapping()
    assert data["answer"] == answer.sentence
    predicted, others = data["response_model"]["predicted"], data["response_model"]["alternatives"]
    given = ", ".join(f"{count} {name}" for name, count in data["allocation"].items() if count)
    means = [100 * entry["mean"] for entry in (predicted, others["equal"], others["top"])]
    assert answer.sentence == (
        f"Collect {given}. Predicted success: {means[0]:.1f}% ({100 * predicted['low']:.0f}–"
        f"{100 * predicted['high']:.0f}); an equal split: {means[1]:.1f}%; the paper's Top: {means[2]:.1f}%."
    )
    assert json.loads(json.dumps(data, allow_nan=False)) == data


def test_an_allocation_that_is_not_likely_enough_to_match_an_equal_split_is_an_alternative() -> None:
    answer = recommend(FOUR, UNCLEAR, budget=100)
    assert answer.allocation == dict.fromkeys(FOUR.names, 25)
    data = answer.to_mapping()["response_model"]
    best = data["alternatives"]["best"]
    assert best["allocation"] != answer.allocation
    assert best["mean"] >= data["predicted"]["mean"] == data["alternatives"]["equal"]["mean"]
    assert best["probability_at_least_equal"] < REQUIRED_PROBABILITY
    assert data["probability_at_least_equal"] == 1.0
    assert answer.summary is not None
    given = ", ".join(f"{count} {name}" for name, count in best["allocation"].items() if count)
    chance = f"{100 * best['probability_at_least_equal']:.0f}% chance of matching it (60% required)"
    text = versus_equal_sentence(answer.summary)
    assert f"the best alternative ({given}: {100 * best['mean']:.1f}%) has only a {chance}; difference " in text
    assert data["gain_over_equal"]["mean"] == pytest.approx(-data["versus"]["best"]["mean"])
    assert "; an equal split:" not in answer.sentence
    clear = recommend(FOUR, CLEAR, budget=100)
    assert clear.summary is not None
    assert "best" not in clear.summary.alternatives
    assert clear.probability_at_least_equal > 0.8


def test_the_papers_rules_stay_one_flag_away() -> None:
    assert recommend(FOUR, CLEAR, 100, "top").summary is None
    top = recommend(FOUR, CLEAR, 100, "top", "response-model")
    assert top.summary is not None
    assert top.allocation == {"camera_pose": 50, "distractor": 50, "table_texture": 0, "lighting": 0}


def test_on_power_law_curves_auto_is_top_where_one_stands_out_and_all_otherwise() -> None:
    clear = recommend(FOUR, CLEAR, 100, "auto", "power-law")
    assert (clear.chosen, clear.to_mapping()["chosen"]) == ("top", "top")
    assert clear.allocation == recommend(FOUR, CLEAR, 100, "top").allocation
    alike = recommend(FOUR, ALIKE, 100, "auto", "power-law")
    assert alike.chosen == "all"
    assert alike.allocation == recommend(FOUR, ALIKE, 100, "all").allocation


def test_the_same_seed_gives_the_same_answer() -> None:
    assert recommend(FOUR, ALIKE, 50, seed=3) == recommend(FOUR, ALIKE, 50, seed=3)
    assert recommend(FOUR, ALIKE, 50, seed=3).curves[0].best != recommend(FOUR, ALIKE, 50, seed=4).curves[0].best


def test_an_equal_split_too_small_for_every_factor_is_a_warning() -> None:
    for answer in (recommend(FOUR, UNCLEAR, 3), recommend(FOUR, UNCLEAR, 3, "equal"), recommend(FOUR, FLAT, 3, "all")):
        assert list(answer.allocation.values()) == [1, 1, 1, 0]
        [text] = [text for text in answer.to_mapping()["warnings"] if "for every factor" in text]
        assert text.startswith("a budget of 3 is too small for every factor: an equal split leaves none for lighting;")
    capped = StudySpec([Factor("a", 3, cap=0), Factor("b", 3)])
    for answer in (
        recommend(FOUR, UNCLEAR, 4, "equal"),  # one each
        recommend(FOUR, CLEAR, 1, "top"),  # not an equal split
        recommend(capped, Results.from_rows([]), 1, "equal"),  # nobody wants any of a
    ):
        assert not [text for text in answer.warnings if "for every factor" in text]


@pytest.mark.parametrize("strategy", ["top", "top-half", "all"])
def test_flat_curves_split_the_budget_equally_with_a_warning(strategy: str) -> None:
    got = recommend(FOUR, FLAT, budget=10, strategy=strategy)
    assert got.allocation == {"camera_pose": 3, "distractor": 3, "table_texture": 2, "lighting": 2}
    assert got.warnings == ("no curve rises, so the curves do not rank factors; the budget is split equally",)
    assert all(report.slope == 0.0 for report in got.curves)


def test_top_half_of_three_is_one() -> None:
    spec = StudySpec({"a": 30, "b": 30, "c": 30}, construction="one")
    results = rows(spec, [(0.5, 0.6), (0.4, 0.6), (0.55, 0.6)])
    down = recommend(spec, results, 100, "top-half")
    assert down.allocation == recommend(spec, results, 100, "top").allocation == {"a": 0, "b": 100, "c": 0}


def test_a_point_without_training_data_is_left_out_with_a_warning() -> None:
    spec = StudySpec({"a": 30, "b": 30})
    scores = [{"combination": "a+b", "n": n, "score": s} for n, s in [(0, 0.9), (20, 0.2), (60, 0.5)]]
    got = recommend(spec, Results.from_rows(scores), 10, "top")
    assert got.allocation == {"a": 5, "b": 5}
    left_out, one_curve = got.warnings
    assert left_out == "the point n = 0 of a+b has no training data and is left out of the fit"
    assert "construction one" in one_curve
    curves, _ = fit_curves(spec, Results.from_rows(scores[1:]))
    assert got.curves[0].curve.b == curves[0].b


def per_factor(scores: dict[str, float], n: int = 60) -> list[dict[str, Any]]:
    return [
        {"combination": "camera_pose+distractor", "n": n, "factor": name, "score": score, "trials": 10}
        for name, score in scores.items()
    ]


def test_greedy_gives_everything_to_the_lowest_score() -> None:
    scores = {"camera_pose": 0.5, "distractor": 0.3, "table_texture": 0.3, "lighting": 0.9}
    got = recommend(FOUR, Results.from_rows(per_factor(scores)), 20, "greedy")
    assert got.allocation == {"camera_pose": 0, "distractor": 20, "table_texture": 0, "lighting": 0}
    assert got.curves == ()
    assert got.warnings == ()  # it needs none


def test_greedy_needs_every_factors_score_on_the_full_data_policy() -> None:
    scores = per_factor({"camera_pose": 0.5, "distractor": 0.3, "table_texture": 0.3})
    scores += per_factor({"lighting": 0.1}, n=20)
    with pytest.raises(NotEnoughData, match="none for lighting"):
        recommend(FOUR, Results.from_rows(scores), 20, "greedy")


def test_cubed_failure_splits_by_the_third_power() -> None:
    scores = {"camera_pose": 0.5, "distractor": 0.0, "table_texture": 1.0, "lighting": 0.5}
    got = recommend(FOUR, Results.from_rows(per_factor(scores)), 20, "cubed-failure")
    assert got.allocation == {"camera_pose": 2, "distractor": 16, "table_texture": 0, "lighting": 2}
    perfect = recommend(FOUR, Results.from_rows(per_factor(dict.fromkeys(scores, 1.0))), 20, "cubed-failure")
    assert set(perfect.allocation.values()) == {5}
    with pytest.raises(NotEnoughData, match="cubed-failure needs"):
        recommend(FOUR, Results.from_rows(per_factor({"camera_pose": 0.5})), 20, "cubed-failure")


def test_equal_needs_no_results() -> None:
    got = recommend(FOUR, Results(), 7, "equal")
    assert got.allocation == {"camera_pose": 2, "distractor": 2, "table_texture": 2, "lighting": 1}
    assert got.warnings == ()
    assert got.to_mapping()["curves"] == []


def test_remix_follows_its_weights() -> None:
    weights: Any = {"camera_pose": np.float32(0.5), "distractor": 0.25, "table_texture": 0.25, "lighting": 0}
    got = recommend(FOUR, Results(), 100, "remix", weights=weights)
    assert got.allocation == {"camera_pose": 50, "distractor": 25, "table_texture": 25, "lighting": 0}


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (None, "remix needs the weights"),
        ([0.5], "weights: expected a weight per factor"),
        ({"camera_pose": 1}, "weights: no weight for factor 'distractor'"),
        (dict.fromkeys(FOUR.names, 0), "weights: every weight is 0"),
        ({**dict.fromkeys(FOUR.names, 1), "lighting": -1}, "weights.lighting: a weight must be a number of at least 0"),
        ({**dict.fromkeys(FOUR.names, 1), "lighting": math.nan}, "weights.lighting"),
        ({**dict.fromkeys(FOUR.names, 1), "lighting": math.inf}, "weights.lighting"),
        ({**dict.fromkeys(FOUR.names, 1), "lighting": "1"}, "weights.lighting"),
        ({**dict.fromkeys(FOUR.names, 1), "lighting": True}, "weights.lighting"),
        ({**dict.fromkeys(FOUR.names, 1), "lihgting": 1}, "did you mean lighting"),
        ({3: 1}, "unknown factor '3'"),
    ],
)
def test_remix_refuses_weights_that_are_none(weights: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        recommend(FOUR, Results(), 10, "remix", weights=weights)
    assert message in str(caught.value)


def test_a_dear_factor_is_bought_less() -> None:
    plain = StudySpec({"a": 30, "b": 30}, construction="one")
    dear = StudySpec({"a": {"demos": 30, "cost": 3}, "b": 30}, construction="one")
    ends = [(0.4, 0.6), (0.4, 0.6)]
    assert recommend(plain, rows(plain, ends), 90, "all").allocation == {"a": 45, "b": 45}
    got = recommend(dear, rows(dear, ends), 90, "all")
    assert 3 * got.allocation["a"] + got.allocation["b"] <= 90
    assert got.allocation["a"] < got.allocation["b"] < 45
    assert recommend(dear, rows(dear, ends), 90, "top").allocation == {"a": 0, "b": 90}


def test_caps_pass_the_budget_on_and_what_nobody_may_take_is_left() -> None:
    spec = StudySpec({"a": {"demos": 30, "cap": 10}, "b": {"demos": 30, "cap": 4}}, construction="one")
    got = recommend(spec, rows(spec, [(0.2, 0.6), (0.5, 0.6)]), 12, "top")
    assert (got.allocation, got.left, got.warnings) == ({"a": 10, "b": 2}, 0.0, ())
    full = recommend(spec, rows(spec, [(0.2, 0.6), (0.5, 0.6)]), 20, "top")
    assert (full.allocation, full.left) == ({"a": 10, "b": 4}, 6.0)
    assert full.to_mapping()["left"] == 6.0
    assert full.warnings == ("6 of the budget is left unspent: every factor is at its cap or costs more than that",)


def test_a_steep_curve_still_prints_plain_json() -> None:
    spec = StudySpec({"a": 1, "b": 240}, construction="one")
    scores = [{"combination": "a", "n": n, "score": s} for n, s in [(0, 0.5), (1, 0.9)]]
    scores += [{"combination": "b", "n": n, "score": s} for n, s in [(0, 0.2), (240, 0.9)]]
    for strategy in ("top", "all", "auto"):
        got = recommend(spec, Results.from_rows(scores), 100, strategy)
        assert sum(got.allocation.values()) == 100
        json.dumps(got.to_mapping(), allow_nan=False)


def test_one_factor_gets_everything() -> None:
    spec = StudySpec({"a": 30}, nominal=10, construction="one")
    for strategy in ("top", "top-half", "all", "auto", "equal"):
        assert recommend(spec, rows(spec, [(0.2, 0.5)]), 13, strategy).allocation == {"a": 13}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_results_that_do_not_fit_the_study_are_refused_whatever_the_strategy(strategy: str) -> None:
    scores = Results.from_rows([{"combination": "camera_pose+distractor", "n": 61, "score": 0.5}])
    with pytest.raises(InvalidInput, match="row 1, column n"):
        recommend(FOUR, scores, 10, strategy, weights=dict.fromkeys(FOUR.names, 1))
    unknown = Results.from_rows([{"combination": "camera_pose+tabel", "n": 6, "score": 0.5}])
    with pytest.raises(UnknownFactor, match="row 1, column combination"):
        recommend(FOUR, unknown, 10, strategy, weights=dict.fromkeys(FOUR.names, 1))


def test_the_response_model_needs_one_policy() -> None:
    with pytest.raises(NotEnoughData, match="needs scores of at least one policy"):
        recommend(FOUR, Results(), 10)


@pytest.mark.parametrize("strategy", sorted(set(STRATEGIES) - set(BASELINES) - {"auto"}))
def test_too_few_results_name_the_curve(strategy: str) -> None:
    with pytest.raises(
        NotEnoughData, match=r"camera_pose\+distractor needs scores at two or more sizes n; there are none"
    ):
        recommend(FOUR, Results(), 10, strategy)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget": 0}, "budget: the budget must be a whole number"),
        ({"budget": 2.5}, "budget: the budget must be a whole number"),
        ({"budget": "many"}, "budget: the budget must be a whole number"),
        ({"budget": 10**400}, "budget: the budget must be at most"),
        ({"strategy": "topp"}, "strategy: unknown strategy 'topp'; did you mean top?"),
        ({"strategy": None}, "strategy: unknown strategy 'None'"),
        ({"fit": "powerlaw"}, "fit: unknown fit 'powerlaw'; did you mean power-law?"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        recommend(FOUR, CLEAR, **{"budget": 10, "strategy": "top", **arguments})
    assert message in str(caught.value)


@pytest.mark.parametrize("budget", [1, 10**6, 10**12])
def test_any_budget_is_spent_whole(budget: int) -> None:
    for strategy in ("top", "all", "auto", "equal"):
        assert sum(recommend(FOUR, CLEAR, budget, strategy).allocation.values()) == budget
