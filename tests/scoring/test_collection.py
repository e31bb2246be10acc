"""An operator's list: the whole allocation, values that were seen least, few set-up changes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput, UnknownFactor
from factored_scaling.scoring.collection import Demo, demos_to_collect, setup_changes

SPEC = StudySpec(
    {
        "camera_pose": {"demos": 30, "values": {"from": 0, "to": 10, "unit": "cm"}},
        "lighting": {"demos": 30, "values": ["dim", "warm", "cold"]},
        "table": 30,
    }
)


def test_factors_and_equal_values_stay_together() -> None:
    demos = demos_to_collect(SPEC, {"table": 2, "lighting": 5, "camera_pose": 2}, {})
    assert demos == (
        Demo("camera_pose", "2.5 cm"),
        Demo("camera_pose", "7.5 cm"),
        Demo("lighting", "dim"),
        Demo("lighting", "dim"),
        Demo("lighting", "warm"),
        Demo("lighting", "warm"),
        Demo("lighting", "cold"),
        Demo("table"),
        Demo("table"),
    )
    assert setup_changes(demos) == 2 + 3 + 2


def test_values_shown_before_wait() -> None:
    used = {"lighting": ["dim", "dim", "warm"], "camera_pose": ["5 cm"]}
    demos = demos_to_collect(SPEC, {"lighting": 3, "camera_pose": 2}, used)
    assert [demo.value for demo in demos] == ["0 cm", "10 cm", "warm", "cold", "cold"]


@given(st.fixed_dictionaries({name: st.integers(0, 30) for name in SPEC.names}))
def test_the_list_is_the_allocation(allocation: dict[str, int]) -> None:
    if not any(allocation.values()):
        return
    demos = demos_to_collect(SPEC, allocation, {})
    assert Counter(demo.factor for demo in demos) == Counter({k: v for k, v in allocation.items() if v})
    light = Counter(demo.value for demo in demos if demo.factor == "lighting")
    assert max(light.values(), default=0) - min(light[value] for value in ("dim", "warm", "cold")) <= 1
    # nothing can be ordered with fewer changes: one per distinct set-up
    named = {(demo.factor, demo.value) for demo in demos if demo.value}
    assert setup_changes(demos) == len(named) + allocation["table"]


def test_what_cannot_be_listed() -> None:
    with pytest.raises(UnknownFactor, match="did you mean lighting"):
        demos_to_collect(SPEC, {"lightning": 3}, {})
    with pytest.raises(InvalidInput, match="a list has 1 to 5000 demonstrations, not 0"):
        demos_to_collect(SPEC, {}, {})
    with pytest.raises(InvalidInput, match="not 5001"):
        demos_to_collect(SPEC, {"table": 5001}, {})
