"""Choosing episodes from a pool: caps from its sizes, nested choices, nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from factored_scaling import Dataset, Episode, Results, StudySpec, recommend
from factored_scaling.core.pool import capped, chosen_episodes, without
from factored_scaling.errors import InvalidInput, NotEnoughData
from factored_scaling.io.files import read_episodes

POOL = Dataset.of_sizes({"a": 5, "b": 200, "other": 9}, nominal=3)


def test_the_pools_sizes_are_caps() -> None:
    spec = StudySpec({"a": 30, "b": {"demos": 30, "cap": 40}, "c": 30})
    assert [factor.cap for factor in capped(spec, POOL).factors] == [5, 40, 0]
    with pytest.raises(InvalidInput, match="fewer than its minimum of 6"):
        capped(StudySpec({"a": {"demos": 30, "minimum": 6}}), POOL)
    with pytest.raises(NotEnoughData, match="holds no demo"):
        capped(StudySpec({"c": 30, "d": 30}), POOL)


def test_what_collecting_costs_does_not_count_where_nothing_is_collected() -> None:
    spec = StudySpec({"a": {"demos": 30, "cost": 3}, "b": {"demos": 30, "cost": 0.5}})
    chosen = recommend(capped(spec, POOL), Results(), 40, "equal").allocation
    assert chosen == {"a": 5, "b": 35}


def test_a_larger_choice_holds_a_smaller_one() -> None:
    small, large = (chosen_episodes(POOL, {"a": count, "b": 10 * count}) for count in (2, 4))
    assert set(small["a"]) < set(large["a"])
    assert set(small["b"]) < set(large["b"])
    assert [len(large["a"]), len(large["b"])] == [4, 40]
    assert all(id_.startswith("b/") for id_ in large["b"])
    assert chosen_episodes(POOL, {"b": 20}, seed=1)["b"] != chosen_episodes(POOL, {"b": 20}, seed=0)["b"]


def test_what_the_study_has_is_left_out() -> None:
    left = without(POOL, ["a/0", "a/1", "elsewhere"])
    assert left.count("a") == 3
    assert left.count("b") == 200


def test_a_pool_is_read_from_a_table(tmp_path: Path) -> None:
    path = tmp_path / "pool.csv"
    path.write_text("episode, factor,camera\ne1,a,left\ne2,,left\ne3,nominal,right\n")
    assert read_episodes(path).episodes == (Episode("e1", "a"), Episode("e2"), Episode("e3"))
    path.write_text("id,factor\n7,a\n")
    assert read_episodes(path).episodes == (Episode("7", "a"),)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("name,factor\n1,a\n", "header (line 1): no column 'episode'"),
        ("episode\n1\n", "no column 'factor'"),
        ("id,factor,factor\n1,a,b\n", "column 'factor' appears twice"),
        ("episode,factor\n,a\n", "row 1 (line 2), column episode: missing"),
        ("episode,factor\ne1,a\n\ne2\n", "row 2 (line 4), column factor: 1 cells where the header has 2"),
        ("episode,factor\ne1,a,b\n", "3 cells where the header has 2"),
        ("episode,factor\n", "has a header but no rows"),
        ("episode,factor\ne1,a\ne1,b\n", "'e1' is listed twice"),
        ("", "is empty"),
    ],
)
def test_mistakes_in_a_pool_are_placed(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "pool.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=r"pool\.csv") as caught:
        read_episodes(path)
    assert what in str(caught.value)
