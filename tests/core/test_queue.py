"""The order of trials: blind, balanced in blocks, the same for a seed; codes that survive a slip of the pen."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factored_scaling.core.conditions import Condition, Order, ScoringSpec
from factored_scaling.core.rubric import RUBRICS
from factored_scaling.core.trial_queue import (
    ALPHABET,
    MOST_TRIALS,
    PlannedTrial,
    plan_queue,
    policy_labels,
    read_code,
    short_codes,
)
from factored_scaling.errors import InvalidInput


def scoring(conditions: int, repeats: int, order: Order = "by-condition") -> ScoringSpec:
    scenes = tuple(Condition((("lighting", str(number)),)) for number in range(conditions))
    return ScoringSpec(RUBRICS["success"], scenes, repeats, order=order)


@given(
    st.integers(1, 12),
    st.integers(1, 6),
    st.integers(1, 3),
    st.sampled_from(["by-condition", "mixed"]),
    st.integers(0, 2**63),
)
def test_every_policy_meets_every_condition_and_blocks_hold_each_policy_once(
    policies: int, conditions: int, repeats: int, order: Order, seed: int
) -> None:
    planned = plan_queue(policies, scoring(conditions, repeats, order), seed)
    assert planned == plan_queue(policies, scoring(conditions, repeats, order), seed)
    met = Counter((trial.policy, trial.condition, trial.repeat) for trial in planned)
    assert len(met) == len(planned) == policies * conditions * repeats
    for block in blocks(planned, policies):
        assert {trial.policy for trial in block} == set(range(policies))
        if order == "by-condition":
            assert len({trial.condition for trial in block}) == 1
    for pass_ in blocks(planned, policies * conditions):
        assert len({trial.repeat for trial in pass_}) == 1
    assert len({trial.code for trial in planned}) == len(planned)
    assert len({(trial.policy, trial.label) for trial in planned}) == policies == len({t.label for t in planned})


def blocks(items: Sequence[PlannedTrial], size: int) -> list[Sequence[PlannedTrial]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def test_the_order_is_shuffled() -> None:
    first, second = (plan_queue(6, scoring(5, 2), seed) for seed in (0, 1))
    assert [trial.policy for trial in first] != [trial.policy for trial in second]
    assert [trial.policy for trial in first[:6]] != [trial.policy for trial in first[6:12]]
    assert {t.policy: t.label for t in first} != {t.policy: t.label for t in second}


def test_every_policy_comes_first_in_a_block_equally_often() -> None:
    firsts = Counter(plan_queue(4, scoring(2, 1), seed)[0].policy for seed in range(400))
    assert all(70 <= firsts[policy] <= 130 for policy in range(4)), firsts


def test_many_policies_get_longer_labels() -> None:
    assert {len(label) for label in policy_labels(20, random.Random(0))} == {2}
    labels = policy_labels(500, random.Random(0))
    assert len(set(labels)) == 500
    assert {len(label) for label in labels} == {3}


@given(st.integers(0, 1000), st.data())
def test_a_slip_in_a_code_is_noticed(seed: int, data: st.DataObject) -> None:
    (code,) = short_codes(1, random.Random(seed))
    assert read_code(f" {code[:2].lower()}-{code[2:]} ") == code
    place = data.draw(st.integers(0, 3))
    other = data.draw(st.sampled_from([letter for letter in ALPHABET if letter != code[place]]))
    assert read_code(code[:place] + other + code[place + 1 :]) is None
    swap = data.draw(st.integers(0, 2))
    swapped = code[:swap] + code[swap + 1] + code[swap] + code[swap + 2 :]
    assert read_code(swapped) == (code if swapped == code else None)


@pytest.mark.parametrize("text", ["", "O01L", "ABC", "ABCDE", "éééé"])
def test_what_is_no_code(text: str) -> None:
    assert read_code(text) is None


def test_codes_avoid_those_in_use() -> None:
    first = short_codes(2000, random.Random(0))
    second = short_codes(2000, random.Random(0), first)
    assert not set(first) & set(second)
    with pytest.raises(InvalidInput, match="no 21000 short codes left"):
        short_codes(21_000, random.Random(0), first)


def test_no_spreadsheet_takes_a_code_for_something_else() -> None:
    every = short_codes(MOST_TRIALS, random.Random(0))
    assert all(code[0].isalpha() for code in every)
    assert not {code for code in every if code == "TRUE" or (code[:3] in ("DEC", "MAY", "SEP") and code[3].isdigit())}


@pytest.mark.parametrize(("policies", "match"), [(0, "1 to 2000 policies"), (30, "30 policies × 100 conditions")])
def test_what_does_not_fit_is_refused(policies: int, match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        plan_queue(policies, scoring(100, 10), 0)
