"""StudySpec: what may be declared, what is refused, and with which words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from factored_scaling import Factor, InvalidInput, StudySpec
from factored_scaling.errors import UnknownFactor

FOUR = {"camera_pose": 30, "distractor": 20, "table_texture": 30, "lighting": 10}


def test_groups_are_formed_in_declared_order_and_the_last_may_be_smaller() -> None:
    five = StudySpec(dict.fromkeys("abcde", 30))
    assert [c.factors for c in five.combinations()] == [("a", "b"), ("c", "d"), ("e",)]
    threes = StudySpec(dict.fromkeys("abcde", 30), group_size=3)
    assert [c.factors for c in threes.combinations()] == [("a", "b", "c"), ("d", "e")]
    one = StudySpec(dict.fromkeys("ab", 30), group_size=9)
    assert [c.factors for c in one.combinations()] == [("a", "b")]


def test_pairs_are_all_pairs_in_declared_order() -> None:
    spec = StudySpec(dict.fromkeys("cab", 30), construction="pair")
    assert [c.label for c in spec.combinations()] == ["c+a", "c+b", "a+b"]


def test_given_groups_keep_their_order() -> None:
    spec = StudySpec(FOUR, groups=[["lighting", "camera_pose"], ["distractor"], ["table_texture"]])
    assert [c.label for c in spec.combinations()] == ["lighting+camera_pose", "distractor", "table_texture"]


def test_size_and_base_count_the_nominal_demos() -> None:
    first, second = StudySpec(FOUR, nominal=7).combinations()
    assert (first.size, first.base, first.total) == (50, 47, 97)
    assert (second.size, second.base) == (40, 57)


def test_a_spec_survives_the_way_through_plain_data() -> None:
    spec = StudySpec(
        {"a": {"demos": 30, "cost": 3, "cap": 5, "minimum": 2}, "b": 4},
        nominal=2,
        construction="group",
        groups=[["b", "a"]],
        points=5,
        seeds=3,
        name="fold towel",
        task="pick-place",
        policy={"steps": 10},
        evaluation={"settings": 2},
    )
    assert StudySpec.from_mapping(spec.to_mapping()) == spec
    plain = StudySpec({"a": 3}, construction="one")
    assert StudySpec.from_mapping(plain.to_mapping()) == plain
    assert plain.to_mapping()["factors"] == {"a": 3}


def test_with_demos_adds_and_leaves_the_rest() -> None:
    grown = StudySpec(FOUR, nominal=1, points=6).with_demos({"lighting": 5}, nominal=2)
    assert grown.sizes == {**FOUR, "lighting": 15}
    assert (grown.nominal, grown.points) == (3, 6)


@pytest.mark.parametrize("added", [{"lighting": -1}, {"lighting": 1.5}, {"lighting": "x"}, {"lihgting": 1}, {3: 1}])
def test_with_demos_refuses_what_cannot_be_added(added: dict[Any, Any]) -> None:
    with pytest.raises(InvalidInput):
        StudySpec(FOUR).with_demos(added)


def test_whole_numbers_of_numpy_become_plain_ones() -> None:
    given = {"factors": {"a": np.int64(30), "b": np.uint8(3)}, "nominal": np.int32(2), "points": np.int64(5)}
    spec = StudySpec.from_mapping(given)
    assert spec == StudySpec({"a": 30, "b": 3}, nominal=2, points=5)
    assert all(type(value) is int for value in [*spec.sizes.values(), spec.nominal, spec.points])


@pytest.mark.parametrize("name", ["höhe", "高さ", "a.b-c", "_x", "поза2"])
def test_names_may_use_letters_of_any_script(name: str) -> None:
    assert StudySpec({name: 3}, construction="one").names == (name,)


@pytest.mark.parametrize("name", ["", "a+b", "*", "a b", "demos:a", "3d", "a\n", 3, None, True, "nominal", "\ud800"])
def test_names_that_files_could_not_hold_are_refused(name: Any) -> None:
    with pytest.raises(InvalidInput, match="cannot name a factor"):
        StudySpec({name: 3}, construction="one")


HUGE = 10**5000

WRONG: list[tuple[dict[Any, Any], str]] = [
    ({"factors": {}}, "factors: no factors"),
    ({"factors": None}, "factors: expected a mapping"),
    ({"factors": [1, 2]}, "factors: expected a mapping"),
    ({"factors": "abc"}, "factors: expected a mapping"),
    ({"factors": {"a": 0}}, "factors.a: number of demos must be a whole number of at least 1, not 0"),
    ({"factors": {"a": True}}, "factors.a: number of demos must be a whole number of at least 1, not True"),
    ({"factors": {"a": 2.0}}, "not 2.0"),
    ({"factors": {"a": "30"}}, "not '30'"),
    ({"factors": {"a": None}}, "factors.a: number of demos"),
    ({"factors": {"a": np.array([1, 2])}}, "factors.a: number of demos"),
    ({"factors": {"a": np.True_}}, "factors.a: number of demos"),
    ({"factors": {"a": HUGE}}, "factors.a: number of demos must be at most"),
    ({"factors": {"a": -HUGE}}, "factors.a: number of demos must be a whole number"),
    ({"factors": {"a": {}}}, "factors.a: no number of demos"),
    ({"factors": {"a": {"demos": 3, "kost": 1}}}, "factors.a.kost: unknown key 'kost'; did you mean cost?"),
    ({"factors": {"a": {"demos": 3, "cost": 0}}}, "factors.a.cost: cost must be a number above 0, not 0"),
    ({"factors": {"a": {"demos": 3, "cost": float("nan")}}}, "factors.a.cost"),
    ({"factors": {"a": {"demos": 3, "cost": float("inf")}}}, "factors.a.cost"),
    ({"factors": {"a": {"demos": 3, "cost": 1e-300}}}, "factors.a.cost: cost must lie between"),
    ({"factors": {"a": {"demos": 3, "cost": True}}}, "factors.a.cost"),
    ({"factors": {"a": {"demos": 3, "cap": -1}}}, "factors.a.cap"),
    ({"factors": {"a": {"demos": 3, "minimum": 1.5}}}, "factors.a.minimum"),
    ({"factors": {"a": {"demos": 3, "cap": 2, "minimum": 3}}}, "factors.a.minimum: minimum 3 is above cap 2"),
    ({"factors": [Factor("a", 1), Factor("a", 2)]}, "factors: factor 'a' is declared twice"),
    ({"nominal": -1}, "nominal: value must be a whole number of at least 0, not -1"),
    ({"nominal": 1.5}, "nominal"),
    ({"points": 1}, "points: value must be a whole number of at least 2, not 1"),
    ({"seeds": 0}, "seeds"),
    ({"group_size": 0}, "group_size"),
    ({"name": ""}, "name: expected a text"),
    ({"name": 3}, "name: expected a text"),
    ({"task": 3}, "task: expected a text"),
    ({"construction": "pairs"}, "construction: unknown construction 'pairs'; did you mean pair?"),
    ({"construction": ["pair"]}, "construction"),
    ({"construction": "pair", "factors": {"a": 3}}, "construction: construction pair needs at least two factors"),
    ({"groups": "ab"}, "groups: expected a list of lists"),
    ({"groups": ["a", "b"]}, "groups[0]: expected a list of factors"),
    ({"groups": [["a", "b"], []]}, "groups[1]: an empty group"),
    ({"groups": [["a", "a"], ["b"]]}, "groups[0]: factor 'a' is named twice"),
    ({"groups": [["a", "b"], ["a"]]}, "groups[1]: factor 'a' is already in groups[0]"),
    ({"groups": [["a"]]}, "groups: factor 'b' is in no group"),
    ({"groups": [["a", ["b"]]]}, "groups[0]: unknown factor"),
    ({"policy": {"x": object()}}, "policy: holds a value that is not plain data"),
    ({"policy": {"x": float("nan")}}, "policy"),
    ({"evaluation": [1]}, "evaluation: expected a mapping"),
    ({"points_": 4}, "points_: unknown key 'points_'; did you mean points?"),
    ({3: 4}, "3: unknown key '3'"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[message[:50] for _, message in WRONG])
def test_what_is_wrong_is_named_with_its_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        StudySpec.from_mapping({"factors": {"a": 30, "b": 30}, **change})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [None, 3, "factors", [1], [["factors", 1]]])
def test_a_study_that_is_no_mapping_is_refused(data: Any) -> None:
    with pytest.raises(InvalidInput, match="expected a mapping"):
        StudySpec.from_mapping(data)
    with pytest.raises(InvalidInput, match="no factors"):
        StudySpec.from_mapping({})


def test_an_unknown_factor_in_a_group_gets_the_nearest_name() -> None:
    with pytest.raises(UnknownFactor, match="did you mean lighting"):
        StudySpec(FOUR, groups=[["camera_pose", "distractor"], ["table_texture", "lihgting"]])
