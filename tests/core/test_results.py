"""Rows to the points of curves: which row serves which curve, and what is refused with which words."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas
import pytest

from factored_scaling import InvalidInput, Results, StudySpec
from factored_scaling.core.results import curve_points, factor_scores, resolve

SPEC = StudySpec({"camera": 30, "lighting": 30, "table": 20}, nominal=5)  # camera+lighting, table


def points(rows: list[dict[str, Any]], spec: StudySpec = SPEC) -> list[list[tuple[int, float, int | None]]]:
    curves, _ = curve_points(spec, Results.from_rows(rows))
    return [list(zip(curve.n, curve.score, curve.trials, strict=True)) for curve in curves]


def under(label: str, n: int, score: float, **more: Any) -> dict[str, Any]:
    return {"combination": label, "n": n, "score": score, **more}


def on(camera: int, lighting: int, table: int, score: float, **more: Any) -> dict[str, Any]:
    return {"demos": {"camera": camera, "lighting": lighting, "table": table}, "score": score, **more}


def test_a_row_serves_the_combination_it_names_in_any_order() -> None:
    rows = [under("lighting+camera", 20, 0.4), under("camera+lighting", 60, 0.6), under("table", 20, 0.5)]
    assert points(rows) == [[(20, 0.4, None), (60, 0.6, None)], [(20, 0.5, None)]]


def test_a_curve_without_its_full_data_point_takes_it_from_the_others() -> None:
    rows = [under("camera+lighting", 0, 0.2), under("camera+lighting", 60, 0.6, trials=50), under("table", 0, 0.5)]
    assert points(rows)[1] == [(0, 0.5, None), (20, 0.6, 50)]


def test_a_full_data_point_lent_by_two_curves_counts_once_unless_it_differs() -> None:
    spec = StudySpec({"a": 10, "b": 10, "c": 10}, construction="one")
    same = [under("a", 10, 0.6, seed=0), under("b", 10, 0.6, seed=0), under("c", 0, 0.1)]
    assert points(same, spec)[2] == [(0, 0.1, None), (10, 0.6, None)]
    differing = [under("a", 10, 0.6, seed=0), under("b", 10, 0.7, seed=1), under("c", 0, 0.1)]
    assert points(differing, spec)[2] == [(0, 0.1, None), (10, 0.6, None), (10, 0.7, None)]


def test_a_training_set_serves_every_curve_it_lies_on() -> None:
    rows = [on(30, 30, 20, 0.6), on(30, 30, 5, 0.5), on(10, 10, 20, 0.3)]
    assert points(rows) == [[(20, 0.3, None), (60, 0.6, None)], [(5, 0.5, None), (20, 0.6, None)]]


@pytest.mark.parametrize(("camera", "lighting", "kept"), [(8, 7, True), (7, 8, True), (9, 7, False), (15, 0, False)])
def test_only_splits_in_proportion_lie_on_a_curve(camera: int, lighting: int, kept: bool) -> None:
    rows = [on(camera, lighting, 20, 0.3), on(30, 30, 20, 0.6)]
    curves, warnings = curve_points(SPEC, Results.from_rows(rows))
    assert (len(curves[0].n) == 2) == kept
    wanted = () if kept else ("1 measured policy lies on no curve of construction group: left out of the fit",)
    assert warnings == wanted


def test_uneven_subsets_are_cut_in_proportion_to_their_sizes() -> None:
    spec = StudySpec({"a": 30, "b": 10})
    assert resolve(spec, Results.from_rows([under("a+b", 20, 0.5)]).rows[0])[0] == (15, 5)
    assert points([{"demos": {"a": 15, "b": 5}, "score": 0.5}], spec)[0] == [(20, 0.5, None)]


def test_repeats_and_seeds_are_separate_points() -> None:
    rows = [
        under("table", 5, 0.4),
        under("table", 5, 0.4),
        under("table", 5, 0.6, seed=1),
        under("table", 5, 0.5, seed=1),
    ]
    assert [score for _, score, _ in points(rows)[1]] == [0.4, 0.4, 0.6, 0.5]


def test_scores_per_factor_are_pooled_by_their_trials() -> None:
    rows = [
        on(30, 30, 5, 0.2, factor="camera", trials=10, seed=0),
        on(30, 30, 5, 0.5, factor="lighting+table", trials=30, seed=0),
        on(30, 30, 5, 0.9, factor="camera", trials=10, seed=1),
    ]
    pooled = points(rows)[1]
    assert pooled == [(5, pytest.approx((2 + 15) / 40), 40), (5, 0.9, 10)]


def test_scores_per_factor_are_pooled_alike_where_trials_are_unknown() -> None:
    rows = [on(30, 30, 5, 0.2, factor="camera", trials=10), on(30, 30, 5, 0.5, factor="table")]
    assert points(rows)[1] == [(5, 0.35, None)]


def test_an_overall_score_comes_before_its_own_breakdown() -> None:
    rows = [on(30, 30, 5, 0.2, factor="camera"), on(30, 30, 5, 0.5), on(30, 30, 5, 0.9, factor="table")]
    assert points(rows)[1] == [(5, 0.5, None)]


def test_scores_with_everything_varied_are_overall_scores() -> None:
    rows = [on(30, 30, 5, 0.2, factor="*", trials=4), on(30, 30, 5, 0.6, factor="*", trials=4)]
    assert points(rows)[1] == [(5, 0.2, 4), (5, 0.6, 4)]


def test_factor_scores_are_those_of_the_full_data_policy() -> None:
    rows = [
        on(30, 30, 20, 0.2, factor="camera", trials=10),
        on(30, 30, 20, 0.6, factor="camera", trials=30, seed=1),
        on(30, 30, 20, 0.4, factor="lighting"),
        on(30, 30, 20, 0.1, factor="lighting+table"),
        on(30, 30, 20, 0.1, factor="*"),
        on(30, 30, 19, 0.1, factor="table"),
        under("table", 20, 0.7, factor="table"),
    ]
    scores = factor_scores(SPEC, Results.from_rows(rows))
    assert list(scores) == ["camera", "lighting", "table"]
    assert scores == pytest.approx({"camera": 0.5, "lighting": 0.4, "table": 0.7})


def test_factor_scores_count_a_policy_that_is_listed_under_every_curve_once() -> None:
    first = {"factor": "table", "trials": 10, "seed": 0}
    rows = [
        under("table", 20, 0.2, **first),
        under("camera+lighting", 60, 0.2, **first),
        under("table", 20, 0.8, **first | {"seed": 1}),
    ]
    assert factor_scores(SPEC, Results.from_rows(rows)) == pytest.approx({"table": 0.5})


@pytest.mark.parametrize("score", [np.float32(0.5), np.float64(0.5), Fraction(1, 2), Decimal("0.5"), np.array(0.5)])
def test_a_row_takes_numbers_of_other_kinds(score: Any) -> None:
    row = Results.from_rows([{"combination": "table", "n": np.int64(5), "score": score, "trials": np.uint16(7)}]).rows[
        0
    ]
    assert (row.n, row.score, row.trials) == (5, 0.5, 7)
    assert (type(row.n), type(row.score), type(row.trials)) == (int, float, int)


GOOD: dict[str, Any] = {"combination": "table", "n": 5, "score": 0.5}
DEMOS = {"camera": 1, "lighting": 1, "table": 1}
BAD_ROWS: list[tuple[Any, str]] = [
    (3, "row 2: expected a mapping"),
    (None, "row 2: expected a mapping"),
    ({**GOOD, "scroe": 1}, "row 2: unknown column 'scroe'; did you mean score?"),
    ({**GOOD, 3: 1}, "row 2: unknown column 3"),
    ({"combination": "table", "n": 5}, "row 2, column score: missing"),
    ({**GOOD, "score": None}, "row 2, column score: missing"),
    ({**GOOD, "score": math.nan}, "row 2, column score: a score must lie in [0, 1], not nan"),
    ({**GOOD, "score": math.inf}, "row 2, column score"),
    ({**GOOD, "score": 1.0001}, "row 2, column score: a score must lie in [0, 1], not 1.0001"),
    ({**GOOD, "score": -1e-9}, "row 2, column score"),
    ({**GOOD, "score": 61}, "row 2, column score"),
    ({**GOOD, "score": 10**400}, "row 2, column score"),
    ({**GOOD, "score": "0.5"}, "row 2, column score: expected a number in [0, 1], not '0.5'"),
    ({**GOOD, "score": True}, "row 2, column score"),
    ({**GOOD, "score": np.True_}, "row 2, column score"),
    ({**GOOD, "score": np.array([0.5, 0.5])}, "row 2, column score"),
    ({**GOOD, "score": [0.5]}, "row 2, column score"),
    ({**GOOD, "score": 1j}, "row 2, column score"),
    ({**GOOD, "score": Decimal("sNaN")}, "row 2, column score"),
    ({**GOOD, "n": -1}, "row 2, column n: expected a whole number of at least 0, not -1"),
    ({**GOOD, "n": 5.0}, "row 2, column n"),
    ({**GOOD, "n": "5"}, "row 2, column n"),
    ({**GOOD, "n": True}, "row 2, column n"),
    ({**GOOD, "n": None}, "row 2, column n: missing"),
    ({**GOOD, "n": 21}, "row 2, column n: n = 21 is more than the 20 demos of table"),
    ({**GOOD, "n": 10**5000}, "row 2, column n"),
    ({**GOOD, "trials": 0}, "row 2, column trials: expected a whole number of at least 1, not 0"),
    ({**GOOD, "trials": 2.5}, "row 2, column trials"),
    ({**GOOD, "trials": math.inf}, "row 2, column trials"),
    ({**GOOD, "trials": 10**400}, "row 2, column trials"),
    ({**GOOD, "seed": -1}, "row 2, column seed"),
    ({**GOOD, "seed": "a"}, "row 2, column seed"),
    ({**GOOD, "factor": "tabel"}, "row 2, column factor: unknown factor 'tabel'; did you mean table?"),
    ({**GOOD, "factor": "table+"}, "row 2, column factor: expected factor names joined by +"),
    ({**GOOD, "factor": "table+table"}, "row 2, column factor: a factor is named twice"),
    ({**GOOD, "factor": "*+table"}, "row 2, column factor: * stands alone"),
    ({**GOOD, "factor": 3}, "row 2, column factor"),
    ({**GOOD, "factor": np.array(["table", "camera"])}, "row 2, column factor"),
    ({**GOOD, "combination": ""}, "row 2, column combination: missing"),
    ({**GOOD, "combination": None}, "row 2, column combination: missing"),
    ({**GOOD, "combination": 3}, "row 2, column combination"),
    ({**GOOD, "combination": "tabel"}, "row 2, column combination: unknown factor 'tabel'; did you mean table?"),
    ({**GOOD, "combination": "camera"}, "row 2, column combination: unknown combination 'camera'"),
    ({**GOOD, "combination": "camera+table"}, "construction group has: camera+lighting, table"),
    ({"score": 0.5}, "row 2: no training set"),
    ({**GOOD, "demos": DEMOS}, "row 2: both demos and combination"),
    ({"demos": [1, 2], "score": 0.5}, "row 2, column demos: expected demos per factor"),
    ({"demos": {"camera": 1}, "score": 0.5}, "row 2, column demos:lighting: missing"),
    ({"demos": {**DEMOS, "tabel": 1}, "score": 0.5}, "row 2, column demos:tabel: unknown factor 'tabel'"),
    ({"demos": {**DEMOS, 3: 1}, "score": 0.5}, "row 2, column demos:3: unknown factor '3'"),
    ({"demos": {**DEMOS, "table": 21}, "score": 0.5}, "row 2, column demos:table: 21 demos is more than the 20"),
    ({"demos": {**DEMOS, "table": -1}, "score": 0.5}, "row 2, column demos:table: expected a whole number"),
    ({"demos": {**DEMOS, "table": 1.5}, "score": 0.5}, "row 2, column demos:table: expected a whole number"),
]


@pytest.mark.parametrize(("row", "message"), BAD_ROWS, ids=[str(index) for index in range(len(BAD_ROWS))])
def test_a_bad_row_is_named_with_its_column(row: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        curve_points(SPEC, Results.from_rows([GOOD, row]))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_places_are_those_of_the_file_where_given() -> None:
    with pytest.raises(InvalidInput, match=r"results\.csv, row 7, column score"):
        Results.from_rows([{**GOOD, "score": 2}], places=["results.csv, row 7"])


def test_no_rows_are_no_points() -> None:
    assert points([]) == [[], []]


def test_a_score_in_percent_is_told_apart_from_one_that_is_wrong() -> None:
    for score, said in ((45.0, r"not 45; write 45% as 0\.45$"), (450.0, "not 450$"), (-0.2, r"not -0\.2$")):
        with pytest.raises(InvalidInput, match=said):
            Results.from_rows([under("table", 0, score)])


def test_a_number_of_successes_is_told_apart_from_a_percentage() -> None:
    for score, trials, said in (
        (7, 20, r"not 7; if 7 of 20 succeeded, write 0\.35$"),
        (150, 600, r"not 150; if 150 of 600 succeeded, write 0\.25$"),
        (45, 20, r"not 45; write 45% as 0\.45$"),
        (7.5, 20, r"not 7\.5; write 7\.5% as 0\.075$"),
    ):
        with pytest.raises(InvalidInput, match=said):
            Results.from_rows([under("table", 0, score) | {"trials": trials}])


def test_rows_of_a_data_frame() -> None:
    frame = pandas.DataFrame({"combination": "table", "n": [0, 30], "score": [0.2, 0.4], "trials": [10, None]})
    rows = Results.from_rows(frame.to_dict("records")).rows
    assert [row.trials for row in rows] == [10, None]
    with pytest.raises(
        InvalidInput, match=r'row 1: expected a mapping, not .combination.; pass df\.to_dict\("records"\)'
    ):
        Results.from_rows(frame)
    with pytest.raises(InvalidInput, match=r"column trials: .* not 10\.5"):
        Results.from_rows([under("table", 0, 0.5) | {"trials": 10.5}])


def test_overall_trials_that_replace_those_of_factors_are_a_warning() -> None:
    full = {"camera": 30, "lighting": 30, "table": 20}
    parts = [
        {"demos": full, "factor": name, "score": score, "trials": 2} for name, score in (("camera", 0.5), ("table", 1))
    ]

    def warned(*rows: dict[str, Any], place: str = "run 2") -> tuple[str, ...]:
        every = [*parts, *rows]
        return curve_points(SPEC, Results.from_rows(every, places=[place] * len(every)))[1]

    said = "has 6 trials without a factor and 4 with one: the paper's curves use those without a factor only"
    assert warned({"demos": full, "score": 0.5, "trials": 6}) == (f"run 2 {said}",)
    assert warned({"demos": full, "score": 0.5, "trials": 6}, place="row 3") == (f"the policy of row 3 {said}",)
    assert warned({"demos": full, "score": 0.5, "trials": 4}) != ()  # as many, but others
    assert warned({"demos": full, "score": 0.75, "trials": 4}) == ()  # their total
    assert warned({"demos": full, "score": 0.5}) == ()
    assert warned() == ()
    less = {"demos": full | {"table": 0}, "trials": 3}
    more = [{**less, "score": 0.5}, {**less, "score": 0.1, "factor": "table"}]
    assert "4 with one, and so have 1 more: " in warned({"demos": full, "score": 0.5, "trials": 6}, *more)[0]


def test_nominal_trials_are_refused_with_what_to_do() -> None:
    row = {"demos": {"camera_pose": 30}, "factor": "nominal", "score": 0.9}
    spec = StudySpec({"camera_pose": 30}, construction="one")
    with pytest.raises(InvalidInput, match="unknown factor 'nominal'; leave out trials of the nominal scene"):
        curve_points(spec, Results.from_rows([row]))


def test_means_over_different_trials_are_told() -> None:
    def told(*rows: dict[str, Any]) -> tuple[str, ...]:
        return curve_points(SPEC, Results.from_rows(rows))[1]

    whole = [on(30, 30, 20, 0.6, factor="table"), on(30, 30, 20, 0.5, factor="camera")]
    less = on(30, 30, 0, 0.2, factor="table")
    (warning,) = told(*whole, less)
    assert warning.startswith("1 measured policy has no trials of some factors (camera)")
    assert told(*whole, less, on(30, 30, 0, 0.4, factor="camera")) == ()
    assert told(*whole, on(30, 30, 0, 0.3)) == ()  # one score over all trials
    # of another curve, which has its own trials
    assert (
        told(
            under("table", 0, 0.2, factor="table"),
            under("table", 20, 0.5, factor="table"),
            under("camera+lighting", 0, 0.1, factor="camera"),
            under("camera+lighting", 60, 0.4, factor="camera"),
        )
        == ()
    )
