"""Values of factors: declared once, spread so that what was seen least comes next."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factored_scaling.core.values import Span, plain, spread, values_of
from factored_scaling.errors import InvalidInput


@pytest.mark.parametrize(
    ("declared", "values"),
    [
        (None, ()),
        (["dim", 3, 2.50], ("dim", "3", "2.5")),
        ({"from": -10, "to": 10, "unit": "cm"}, Span(-10.0, 10.0, " cm")),
        ({"from": 0, "to": 30, "unit": "°"}, Span(0.0, 30.0, "°")),
        ({"from": 0, "to": 1}, Span(0.0, 1.0)),
    ],
)
def test_what_is_declared_comes_back(declared: Any, values: Any) -> None:
    read = values_of(declared, "values")
    assert read == values
    assert values_of(plain(read), "values") == read


@pytest.mark.parametrize(
    ("declared", "match"),
    [
        ("dim", "expected values, not 'dim'"),
        ([True], r'values\[0\]: True is read as yes or no; put it in quotes, as in "on"'),
        (["dim", "dim"], r"values\[1\]: value 'dim' is listed twice"),
        ([""], "expected a text"),
        ({"from": 1}, "values.to: expected a number, not None"),
        ({"from": 1, "to": 1}, "from 1 to 1 is empty"),
        ({"from": 1, "to": 2, "units": "cm"}, "did you mean unit"),
        ({"from": 1, "to": 2, "unit": "cm2"}, "without digits"),
    ],
)
def test_mistakes_are_placed(declared: Any, match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        values_of(declared, "values")


def test_the_least_used_of_a_list_come_first() -> None:
    assert spread(("dim", "warm", "cold"), 4) == ["dim", "warm", "cold", "dim"]
    assert spread(("dim", "warm", "cold"), 4, ["dim", "dim", "warm", "gone"]) == ["cold", "warm", "cold", "dim"]
    assert spread((), 4) == []


def test_a_range_is_filled_evenly() -> None:
    assert spread(Span(0.0, 10.0, " cm"), 5) == ["1 cm", "3 cm", "5 cm", "7 cm", "9 cm"]
    assert spread(Span(-1.0, 1.0), 2) == ["-0.5", "0.5"]


def test_a_range_is_filled_where_nothing_was_yet() -> None:
    span = Span(0.0, 10.0, " cm")
    assert spread(span, 2, ["1 cm", "3 cm", "5 cm"]) == ["7.5 cm", "10 cm"]
    assert spread(span, 1, ["1 cm", "9 cm", "elsewhere", "70 cm"]) == ["5 cm"]


@given(st.integers(0, 40), st.lists(st.floats(0, 10), max_size=20))
def test_a_range_gives_what_is_asked_for_inside_it(count: int, used: list[float]) -> None:
    span = Span(0.0, 10.0)
    values = spread(span, count, [span.shown(value) for value in used])
    assert len(values) == count
    assert all(0.0 <= float(value) <= 10.0 for value in values)
