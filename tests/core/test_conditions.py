"""`scoring:` in study.yaml, and the scenes that come of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from factored_scaling.core.conditions import Condition, scene
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput

FACTORS: dict[str, Any] = {
    "camera_pose": {"demos": 30, "test_values": [-15, 15]},
    "lighting": {"demos": 30, "test_values": ["dusk", "strobe", "red"]},
}


def spec(scoring: Any, factors: dict[str, Any] = FACTORS) -> StudySpec:
    return StudySpec(factors, scoring=scoring)


@pytest.mark.parametrize(
    ("preset", "rubric", "conditions", "repeats"),
    [
        ("pick-place", "success", 10, 2),
        ("fold-towel", "fold-towel", 4, 3),
        ("mouse-in-drawer", "mouse-in-drawer", 6, 3),
    ],
)
def test_the_papers_evaluations(preset: str, rubric: str, conditions: int, repeats: int) -> None:
    scoring = spec({"preset": preset}).scoring_spec()
    assert (scoring.rubric.name, len(scoring.conditions), scoring.repeats) == (rubric, conditions, repeats)
    assert scoring.trials == conditions * repeats
    assert scoring.step_limit == 600
    assert all(condition.factor == ("camera_pose", "lighting") for condition in scoring.conditions)


def test_without_anything_it_is_the_first_preset() -> None:
    assert spec(None).scoring_spec() == spec({"preset": "pick-place"}).scoring_spec()


def test_scenes_are_the_same_every_time_and_balanced() -> None:
    first = spec({"combinations": 6}).scoring_spec().conditions
    assert first == spec({"combinations": 6}).scoring_spec().conditions
    assert len(set(first)) == 6  # two values × three values, each pair once
    for name, times in (("camera_pose", 3), ("lighting", 2)):
        values = Counter(dict(condition.values)[name] for condition in first)
        assert set(values.values()) == {times}
    assert first != spec({"combinations": 6, "seed": 1}).scoring_spec().conditions


def test_values_of_different_factors_do_not_go_together() -> None:
    factors = {name: {"demos": 1, "test_values": ["low", "high"]} for name in ("a", "b", "c")}
    conditions = spec({"combinations": 4}, factors).scoring_spec().conditions
    for first, second in (("a", "b"), ("a", "c"), ("b", "c")):  # every pair of values in exactly one of four scenes
        pairs = {(dict(condition.values)[first], dict(condition.values)[second]) for condition in conditions}
        assert len(pairs) == 4


def test_a_factor_without_values_gets_new_ones_to_choose() -> None:
    conditions = spec({"combinations": 2}, {"table": 4}).scoring_spec().conditions
    assert [condition.setting for condition in conditions] == ["table=new value 1", "table=new value 2"]


def test_one_factor_at_a_time() -> None:
    scoring = spec({"conditions": "each", "repeats": 4}).scoring_spec()
    assert [condition.setting for condition in scoring.conditions] == [
        "camera_pose=-15",
        "camera_pose=15",
        "lighting=dusk",
        "lighting=strobe",
        "lighting=red",
    ]
    assert [condition.factor for condition in scoring.conditions][2] == ("lighting",)
    assert scoring.trials == 20


def test_conditions_of_ones_own() -> None:
    declared = {"conditions": [{"lighting": "dusk", "camera_pose": -15}, {"lighting": "red"}], "repeats": 3}
    conditions = spec(declared).scoring_spec().conditions
    assert [condition.setting for condition in conditions] == ["camera_pose=-15, lighting=dusk", "lighting=red"]


def test_a_spec_with_scoring_comes_back() -> None:
    declared = spec({"preset": "fold-towel", "rubric": [{"score": 0}, {"score": 1}], "order": "mixed"})
    assert StudySpec.from_mapping(declared.to_mapping()) == declared
    assert declared.scoring_spec().rubric.name == "own"


@pytest.mark.parametrize(
    ("scoring", "match"),
    [
        ([], "scoring: expected a mapping"),
        ({"rubrik": "success"}, "scoring.rubrik: unknown key 'rubrik'; did you mean rubric"),
        ({"preset": "fold-towels"}, "scoring.preset: unknown preset 'fold-towels'; did you mean fold-towel"),
        ({"rubric": "sucess"}, "scoring.rubric: unknown rubric"),
        ({"repeats": 0}, "scoring.repeats: value must be a whole number of at least 1"),
        ({"repeats": 5000}, "scoring.repeats: at most 1000"),
        ({"step_limit": 0}, "scoring.step_limit"),
        ({"order": "random"}, "scoring.order: unknown name 'random'"),
        ({"conditions": "all"}, "scoring.conditions: expected conditions, not 'all'; write each, together"),
        ({"conditions": []}, "expected 1 to 1000 conditions, not 0"),
        ({"conditions": [{"lightning": "red"}]}, r"scoring.conditions\[0\].lightning: unknown factor"),
        ({"conditions": [{}]}, r"scoring.conditions\[0\]: expected a value for each varied factor"),
        ({"conditions": [{"lighting": "red"}] * 2}, r"conditions\[1\]: lighting=red is listed twice; `repeats`"),
        ({"conditions": [{"lighting": True}]}, "is read as yes or no"),
        ({"conditions": "each", "combinations": 3}, "combinations are drawn for together only"),
    ],
)
def test_mistakes_are_placed(scoring: Any, match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        spec(scoring)


def test_each_needs_values() -> None:
    with pytest.raises(InvalidInput, match="table lists no test_values"):
        spec({"conditions": "each"}, {"table": 4})


def test_a_scene_lists_every_factor_and_what_goes_back_to_normal() -> None:
    names = ("camera_pose", "lighting", "table")
    red, left = Condition((("lighting", "red"),)), Condition((("camera_pose", "left"),))
    after = scene(names, left, red)
    assert [(item.factor, item.value, item.before) for item in after] == [
        ("camera_pose", "left", None),
        ("lighting", None, "red"),
        ("table", None, None),
    ]
    assert [item.changed for item in after] == [True, True, False]
    assert [item.back for item in after] == [False, True, False]
    assert not any(item.changed for item in scene(names, red, red))
    assert all(item.changed for item in scene(names, red, None)), "nothing is known of the bench"
    removed = scene(("camera_pose",), left, red)
    assert [item.factor for item in removed] == ["camera_pose", "lighting"], "a factor that the study no longer has"
