"""Whatever a caller passes, the answer is a value or an error of ours: never another exception."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from factored_scaling import FscError, Results, StudySpec, Trial, plan, recommend
from factored_scaling.model.recommend import STRATEGIES

LETTERS = st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"])
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70),
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(0, 1),
    st.text(LETTERS, max_size=4),
    st.binary(max_size=3),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(LETTERS, max_size=2), st.integers(), max_size=2),
    st.sampled_from(
        [
            10**400,
            -(10**5000),
            1e308,
            5e-324,
            math.nan,
            1j,
            Decimal("NaN"),
            Decimal("0.5"),
            np.float32(0.5),
            np.int8(3),
            np.True_,
            np.array([1, 2]),
            np.array(3),
            np.array("a"),
            np.str_("a"),
            np.datetime64("2020-01-01"),
            {"a"},
            ("a", "b"),
            "a+b",
            "*",
            object(),
            int,
            range(3),
        ]
    ),
)
SPEC = StudySpec({"a": 30, "b": 10, "c": 1})
FIELDS = ("demos", "combination", "n", "score", "trials", "seed", "factor")
RELAXED = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])


def whole_rows() -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = [{"combination": "a+b", "n": n, "score": n / 50} for n in (0, 20, 40)]
    told += [{"combination": "c", "n": n, "score": 0.2 + n / 2, "trials": 20} for n in (0, 1)]
    full = {"a": 30, "b": 10, "c": 1}
    return told + [{"demos": full, "score": 0.5, "factor": name} for name in "abc"]


def refusal(call: Callable[[], object]) -> str:
    """What the call was refused with, or nothing; any other exception passes through and fails the test."""
    try:
        call()
    except FscError as error:
        return str(error)
    return ""


@RELAXED
@given(
    st.integers(0, 7),
    st.dictionaries(st.sampled_from(FIELDS), ODD, min_size=1, max_size=3),
    st.sampled_from(STRATEGIES),
)
def test_rows(which: int, odd: dict[str, Any], strategy: str) -> None:
    rows = whole_rows()
    rows[which] |= odd

    def call() -> None:
        got = recommend(SPEC, Results.from_rows(rows), 10, strategy, weights={"a": 1, "b": 1, "c": 1})
        assert sum(got.allocation.values()) == 10

    assert "\n" not in refusal(call)


@RELAXED
@given(st.dictionaries(st.sampled_from(FIELDS), ODD, max_size=7))
def test_rows_of_anything(row: dict[str, Any]) -> None:
    message = refusal(lambda: recommend(SPEC, Results.from_rows([*whole_rows(), row]), 10, "top"))
    assert not message or message.startswith("row 9")


@RELAXED
@given(
    st.dictionaries(st.sampled_from(tuple(StudySpec.__dataclass_fields__)), ODD, max_size=3),
    st.dictionaries(st.sampled_from(["demos", "cost", "cap", "minimum"]), ODD, max_size=4),
)
def test_specs(odd: dict[str, Any], factor: dict[str, Any]) -> None:
    def call() -> None:
        spec = StudySpec.from_mapping({"factors": {"a": factor or 3, "b": 20}, **odd})
        assert StudySpec.from_mapping(spec.to_mapping()) == spec
        if spec.total < 1000 and spec.seeds < 10:
            assert plan(spec)

    assert "\n" not in refusal(call)


@RELAXED
@given(ODD, ODD, ODD)
def test_trials_and_arguments(first: Any, second: Any, third: Any) -> None:
    results = Results.from_rows(whole_rows())
    weights = {"a": first, "b": second, "c": third}
    calls: list[Callable[[], object]] = [
        lambda: Trial(first, second, third),
        lambda: Trial("key", second),
        lambda: Trial("key", 1.0, third),
        lambda: recommend(SPEC, results, first, "top"),
        lambda: recommend(SPEC, results, 10, "remix", weights=second),
        lambda: recommend(SPEC, results, 10, "remix", weights=weights),
        lambda: Results.from_rows([first]),
        lambda: StudySpec.from_mapping(first),
        lambda: StudySpec(first),
        lambda: StudySpec({"a": second}),
        lambda: SPEC.with_demos({"a": first}, second),
    ]
    for call in calls:
        assert "\n" not in refusal(call)


NAMES: list[Callable[[], object]] = [
    lambda: recommend(SPEC, Results.from_rows([{"demos": {"a\nb": 1}, "score": 0.5}]), 10, "top"),
    lambda: StudySpec.from_mapping({"factors": {"a": 3}, "poi\nts": 3}),
    lambda: StudySpec({"a\nb": {"demoss": 3}}),
]


@pytest.mark.parametrize("call", NAMES, ids=["column", "key", "factor"])
def test_a_line_break_in_a_name_stays_one_line(call: Callable[[], object]) -> None:
    message = refusal(call)
    assert message
    assert "\n" not in message


@pytest.mark.parametrize("odd", [np.array([1, 2]), 10**5000, None, ["top"]], ids=["array", "digits", "none", "list"])
def test_a_name_that_is_no_text(odd: Any) -> None:
    assert "unknown construction" in refusal(lambda: StudySpec({"a": 3, "b": 3}, construction=odd))
    assert "unknown strategy" in refusal(lambda: recommend(StudySpec({"a": 3}), Results(), 5, odd))
    if odd is not None:  # None is the strategy's own
        assert "unknown fit" in refusal(lambda: recommend(StudySpec({"a": 3}), Results(), 5, "top", odd))
