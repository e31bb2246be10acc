"""Which policies are planned: nested, shared, in a useful order, with identities that last."""

from __future__ import annotations

import itertools
import random
from math import ceil, comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factored_scaling import Dataset, Episode, InvalidInput, RunSpec, StudySpec, plan
from factored_scaling.core.design import (
    count_policies,
    curve_sizes,
    demos_at,
    nested_order,
    split,
    training_sets,
    trials_per_policy,
)


def factors(count: int, demos: int = 30) -> dict[str, int]:
    return {f"f{index}": demos for index in range(count)}


@pytest.mark.parametrize(
    ("construction", "count", "points", "policies"),
    [
        # by hand: every curve has m - 1 policies of its own, and all share the full-data one
        ("group", 5, 4, 3 * 3 + 1),
        ("group", 8, 4, 4 * 3 + 1),
        ("pair", 5, 4, 10 * 3 + 1),
        ("pair", 8, 4, 28 * 3 + 1),
        ("one", 5, 4, 5 * 3 + 1),
        ("one", 8, 5, 8 * 4 + 1),
        ("group", 5, 2, 4),
        ("pair", 3, 3, 7),
    ],
)
def test_shared_policies_count_once(construction: str, count: int, points: int, policies: int) -> None:
    assert len(plan(StudySpec(factors(count), construction=construction, points=points))) == policies
    curves = {"one": count, "pair": comb(count, 2), "group": ceil(count / 2)}[construction]
    assert policies == curves * (points - 1) + 1


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.sampled_from(["one", "pair", "group", "screen"]),
    st.integers(2, 8),
    st.integers(0, 2),
    st.integers(1, 2),
    st.none() | st.integers(1, 12),
)
@settings(deadline=None, max_examples=300)
def test_policies_are_counted_as_they_are_planned(
    sizes: list[int], construction: str, points: int, nominal: int, seeds: int, policies: int | None
) -> None:
    """Small factors are where different combinations come to the same training set."""
    if construction == "pair" and len(sizes) < 2:
        construction = "one"
    named = {f"f{index}": size for index, size in enumerate(sizes)}
    spec = StudySpec(
        named, nominal=nominal, construction=construction, points=points, seeds=seeds, policies=policies, group_size=3
    )
    assert count_policies(spec) == len(plan(spec))


def test_policies_of_many_factors_are_counted() -> None:
    spec = StudySpec(factors(100))
    counts = {name: count_policies(spec.changed(construction=name)) for name in ("one", "pair", "group", "screen")}
    assert counts == {"one": 301, "pair": comb(100, 2) * 3 + 1, "group": 151, "screen": 101}


def test_every_seed_trains_its_own_policies() -> None:
    assert len(plan(StudySpec(factors(5), seeds=3))) == 3 * 10
    assert [run.spec.seed for run in plan(StudySpec(factors(5), seeds=3))] == [0] * 10 + [1] * 10 + [2] * 10


def test_the_full_data_policy_comes_first_and_serves_every_curve() -> None:
    spec = StudySpec(factors(5), nominal=4)
    first, *others = plan(spec)
    assert first.demos == spec.sizes
    assert len(first.spec.episodes) == spec.total
    assert {point.combination for point in first.points} == {c.factors for c in spec.combinations()}
    assert all(point.n == sum(spec.sizes[name] for name in point.combination) for point in first.points)
    assert all(len(run.points) == 1 for run in others)


def test_far_ends_are_trained_before_the_sizes_between() -> None:
    runs = plan(StudySpec(factors(4), points=5))
    assert [run.points[0].n for run in runs] == [60, 0, 0, 30, 30, 45, 45, 15, 15]


def test_an_odd_group_has_its_own_sizes() -> None:
    runs = plan(StudySpec(factors(3)))
    own = sorted(run.demos["f2"] for run in runs if run.points[0].combination == ("f2",))
    assert own == [0, 10, 20]


def test_a_policy_without_any_demonstration_is_not_planned() -> None:
    assert [sum(run.demos.values()) for run in plan(StudySpec(factors(2)))] == [60, 40, 20]
    assert len(plan(StudySpec(factors(2), nominal=1))) == 4
    assert len(plan(StudySpec({"a": 1}, construction="one"))) == 1


@pytest.mark.parametrize("points", [2, 3, 4, 7, 10**9])
def test_sizes_never_repeat_and_span_the_whole(points: int) -> None:
    for size in (1, 2, 3, 10, 31):
        sizes = curve_sizes(size, points)
        assert list(sizes) == sorted(set(sizes))
        assert (sizes[0], sizes[-1]) == (0, size)
        assert len(sizes) == min(points, size + 1)


def test_sizes_are_those_of_the_method() -> None:
    assert curve_sizes(60, 4) == (0, 20, 40, 60)
    assert curve_sizes(50, 4) == (0, 17, 33, 50)
    assert curve_sizes(30, 5) == (0, 8, 15, 22, 30)  # 7.5 and 22.5 go to their even neighbours


SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=6).map(
    lambda sizes: {f"f{index}": size for index, size in enumerate(sizes)}
)


@given(SIZES)
def test_splits_are_nested_and_proportional(sizes: dict[str, int]) -> None:
    total = sum(sizes.values())
    before = dict.fromkeys(sizes, 0)
    for n in range(total + 1):
        now = split(n, sizes)
        assert sum(now.values()) == n
        assert all(before[name] <= now[name] <= sizes[name] for name in sizes)
        if len(sizes) == 2:
            assert all(abs(now[name] - n * sizes[name] / total) <= 0.5 for name in sizes)
        before = now
    assert before == sizes


def test_a_split_of_a_very_large_dataset_is_as_quick() -> None:
    assert split(10**11, {"a": 10**12, "b": 10**12, "c": 2 * 10**12}) == {
        "a": 25 * 10**9,
        "b": 25 * 10**9,
        "c": 5 * 10**10,
    }


@pytest.mark.parametrize("n", [-1, 61])
def test_more_than_there_is_cannot_be_taken(n: int) -> None:
    with pytest.raises(InvalidInput, match=f"cannot take {n} of 60"):
        split(n, {"a": 30, "b": 30})


@settings(max_examples=40, deadline=None)
@given(SIZES, st.integers(0, 5), st.sampled_from(["one", "group"]), st.integers(2, 6), st.integers(1, 4))
def test_training_sets_of_a_curve_are_nested_for_one_seed(
    sizes: dict[str, int], nominal: int, construction: str, points: int, group_size: int
) -> None:
    spec = StudySpec(sizes, nominal=nominal, construction=construction, points=points, group_size=group_size, seeds=2)
    runs = plan(spec)
    for combination, seed in itertools.product(spec.combinations(), range(2)):
        ladder = {
            point.n: set(run.spec.episodes)
            for run in runs
            for point in run.points
            if run.spec.seed == seed and point.combination == combination.factors
        }
        for small, large in itertools.pairwise(sorted(ladder)):
            assert ladder[small] < ladder[large]
            assert len(ladder[large]) == large + combination.base


def test_other_seeds_draw_other_demonstrations() -> None:
    spec = StudySpec(factors(4), seeds=2)
    cut = [run.spec.episodes for run in plan(spec) if run.demos == demos_at(spec, spec.combinations()[0], 20)]
    assert len(cut) == 2
    assert set(cut[0]) != set(cut[1])


def test_the_order_of_the_index_does_not_matter() -> None:
    data = Dataset.of_sizes(factors(4), nominal=5)
    mixed = list(data.episodes)
    random.Random(0).shuffle(mixed)
    spec = StudySpec(factors(4), nominal=5)
    assert [run.spec.digest for run in plan(spec, data)] == [
        run.spec.digest for run in plan(spec, Dataset(tuple(mixed)))
    ]


def test_demonstrations_of_other_factors_do_not_change_a_factors_order() -> None:
    data = Dataset.of_sizes({"a": 20, "b": 20})
    more = data.extended([Episode("b/new", "b"), Episode("nominal/new")])
    assert nested_order(more, "a", 3) == nested_order(data, "a", 3)
    assert set(nested_order(data, "b", 3)) < set(nested_order(more, "b", 3))


def test_a_digest_is_the_content_and_the_same_everywhere() -> None:
    run = RunSpec(("b/1", "a/0"), {"steps": 10}, {"settings": 2}, seed=3, task="pick-place")
    assert run.digest == "f0262cf505492ffd"
    assert RunSpec(("a/0", "b/1"), {"steps": 10}, {"settings": 2}, seed=3, task="pick-place").digest == run.digest
    assert RunSpec.from_mapping(run.to_mapping()).digest == run.digest
    others = [
        RunSpec(("a/0",), run.policy, run.evaluation, 3, run.task),
        RunSpec(run.episodes, {"steps": 11}, run.evaluation, 3, run.task),
        RunSpec(run.episodes, run.policy, {}, 3, run.task),
        RunSpec(run.episodes, run.policy, run.evaluation, 4, run.task),
        RunSpec(run.episodes, run.policy, run.evaluation, 3, None),
    ]
    assert len({run.digest, *(other.digest for other in others)}) == 6


def test_a_plan_is_the_same_everywhere() -> None:
    runs = plan(StudySpec({"camera_pose": 30, "höhe": 7, "lighting": 30}, nominal=2, seeds=2))
    assert runs[0].spec.digest == "2521f3a9c5e2f50d"
    assert runs[-1].spec.digest == "46c9318b627e493f"


def test_a_training_set_needs_the_episodes_it_names() -> None:
    with pytest.raises(InvalidInput, match="31 demos of 'f0' asked for, there are 30"):
        training_sets(Dataset.of_sizes(factors(1)), [({"f0": 31}, 0)])
    with pytest.raises(InvalidInput, match="asked for"):
        plan(StudySpec(factors(2)), Dataset.of_sizes(factors(2, demos=29)))


def test_an_episode_is_listed_once() -> None:
    with pytest.raises(InvalidInput, match="'a/0' is listed twice"):
        Dataset((Episode("a/0", "a"), Episode("a/0", "b")))
    data = Dataset.of_sizes({"a": 2, "b": 3}, nominal=1)
    assert (data.count("a"), data.count("b"), data.count(None), data.count("c")) == (2, 3, 1, 0)


def test_rollouts_per_policy_are_counted_where_they_are_stated() -> None:
    assert trials_per_policy(StudySpec(factors(5), evaluation={"initial_states": 60})) == 3000
    assert trials_per_policy(StudySpec(factors(5), evaluation={"initial_states": 6, "settings": 2})) == 60
    assert trials_per_policy(StudySpec(factors(5))) is None
    assert trials_per_policy(StudySpec(factors(5), evaluation={"initial_states": 6, "settings": "all"})) is None
