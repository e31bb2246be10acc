"""Rubrics say which scores there are, and refuse all others."""

from __future__ import annotations

from typing import Any

import pytest

from factored_scaling.core.rubric import RUBRICS, Rubric, rubric_of
from factored_scaling.errors import InvalidInput

OWN = [
    {"score": 1, "name": "in the bin", "means": "upright"},
    {"score": 0},
    {"score": 0.4, "name": "lifted", "means": "  off the table\n for a second "},
]


@pytest.mark.parametrize(
    ("name", "scores"),
    [
        ("success", (0.0, 1.0)),
        ("fold-towel", (0.0, 0.25, 0.5, 1.0)),
        ("mouse-in-drawer", (0.0, 0.25, 0.5, 1.0)),
    ],
)
def test_the_papers_rubrics(name: str, scores: tuple[float, ...]) -> None:
    rubric = rubric_of(name)
    assert tuple(level.score for level in rubric.levels) == scores
    assert all(level.means for level in rubric.levels)
    assert Rubric.from_mapping(rubric.to_mapping()) == rubric


def test_levels_of_ones_own_are_sorted_and_named() -> None:
    rubric = rubric_of(OWN)
    assert [(level.score, level.name) for level in rubric.levels] == [(0.0, "0"), (0.4, "lifted"), (1.0, "in the bin")]
    assert rubric.level(0.4).means == "off the table for a second"
    assert Rubric.from_mapping(rubric.to_mapping()) == rubric


@pytest.mark.parametrize("score", [0.3, 1.5, -1, float("nan"), None, "1", True])
def test_other_scores_are_refused(score: Any) -> None:
    with pytest.raises(InvalidInput, match=r"its scores are 0, 0\.25, 0\.5, 1"):
        RUBRICS["fold-towel"].level(score)


@pytest.mark.parametrize(
    ("declared", "match"),
    [
        ("fold-towl", "did you mean fold-towel"),
        (3, "expected a rubric's name or its levels"),
        ([{"score": 0}], "2 to 12 levels, not 1"),
        ([{"score": k / 20} for k in range(13)], "2 to 12 levels, not 13"),
        ([{"score": 0.5}, {"score": 1}], "no level has the score 0"),
        ([{"score": 0}, {"score": 2}], r"rubric\[1\].score: a score must lie in \[0, 1\], not 2"),
        ([{"score": 0}, {"score": 0, "name": "zero"}], r"rubric\[1\].score: two levels have the score"),
        ([{"score": 0, "name": "a"}, {"score": 1, "name": "a"}], r"rubric\[1\].name: two levels have the name"),
        ([{"score": 0}, {"score": 1, "name": ""}], r"rubric\[1\].name: expected a text"),
        ([{"score": 0}, {"score": 1, "mean": "x"}], "did you mean means"),
        ([0, 1], r"rubric\[0\]: expected a level, not 0"),
    ],
)
def test_mistakes_are_placed(declared: Any, match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        rubric_of(declared)
