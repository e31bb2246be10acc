"""The order in which trials are run: blind, randomised in blocks, the same for the same seed."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from factored_scaling.core.conditions import Condition, ScoringSpec
from factored_scaling.errors import InvalidInput

# No 0, 1, I, L, O: they are mistaken for each other. 31 is prime, so the check character finds every wrong
# character and every two neighbours that changed places.
ALPHABET = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
_LETTERS, _DIGITS = ALPHABET[8:], ALPHABET[:8]
# What spreadsheets would turn into a date or a truth value; codes begin with a letter, so 2E34 cannot be one.
_SPOILT = re.compile(r"(JAN|FEB|MAR|APR|MAY|JUN|AUG|SEP|DEC)[2-9]|TRUE")
_MOST_CODES = 22_000  # of the 22,103 that begin with a letter; some three dozen of them are spoilt
MOST_TRIALS = 20_000
MOST_POLICIES = 2_000


@dataclass(frozen=True, slots=True)
class PlannedTrial:
    """One trial of the queue: which policy (by its place in the list and by its label) runs in which scene."""

    code: str
    policy: int
    label: str
    condition: Condition
    # 1 for the policy's first trial in this condition
    repeat: int


def plan_queue(policies: int, scoring: ScoringSpec, seed: int) -> tuple[PlannedTrial, ...]:
    """Every trial of `policies` policies in the order to run them.

    The order is made of blocks in which every policy has exactly one trial, in random order: whatever drifts over
    the day (light, battery, patience) hits all policies alike. `by-condition`, a block is one scene, set up once;
    every scene comes once before any comes again. `mixed`, each policy goes through the scenes in an order of its
    own.
    """
    if not 1 <= policies <= MOST_POLICIES:
        raise InvalidInput(f"expected 1 to {MOST_POLICIES} policies to evaluate, not {policies}")
    count = policies * scoring.trials
    if count > MOST_TRIALS:
        what = (
            f"{policies} policies × {len(scoring.conditions)} conditions × {scoring.repeats} repeats = {count} trials"
        )
        raise InvalidInput(what, hint=f"at most {MOST_TRIALS} fit one evaluation")
    generator = random.Random(f"queue {seed}")
    labels = policy_labels(policies, generator)
    codes = short_codes(count, generator)
    order = (_mixed if scoring.order == "mixed" else _by_condition)(policies, scoring, generator)
    return tuple(
        PlannedTrial(code, policy, labels[policy], scoring.conditions[condition], repeat)
        for code, (policy, condition, repeat) in zip(codes, order, strict=True)
    )


def policy_labels(count: int, generator: random.Random) -> list[str]:
    """Opaque names such as A7, in an order unrelated to the policies."""
    length = 1 if count <= len(_LETTERS) * len(_DIGITS) // 2 else 2
    letters = ("".join(pair) for pair in itertools.product(_LETTERS, repeat=length))
    every = [f"{letter}{digit}" for letter in letters for digit in _DIGITS]
    return generator.sample(every, count)


def short_codes(count: int, generator: random.Random, taken: Sequence[str] = ()) -> list[str]:
    """Codes of three characters and a check character, none of them twice."""
    known, found = set(taken), list[str]()
    if count + len(known) > _MOST_CODES:
        raise InvalidInput(f"there are no {count} short codes left")
    while len(found) < count:
        start = generator.choice(_LETTERS) + generator.choice(ALPHABET) + generator.choice(ALPHABET)
        code = start + _check(start)
        if code not in known and not _SPOILT.fullmatch(code):
            known.add(code)
            found.append(code)
    return found


def read_code(text: str) -> str | None:
    """A code as people type it (lower case, spaces or hyphens inside), or None when it cannot be one."""
    code = "".join(text.upper().replace("-", " ").split())
    well_formed = len(code) == 4 and all(character in ALPHABET for character in code)
    return code if well_formed and code[3] == _check(code[:3]) else None


def _check(code: str) -> str:
    return ALPHABET[sum((place + 2) * ALPHABET.index(character) for place, character in enumerate(code)) % 31]


def _by_condition(policies: int, scoring: ScoringSpec, generator: random.Random) -> list[tuple[int, int, int]]:
    order = []
    for repeat in range(1, scoring.repeats + 1):
        for condition in _shuffled(len(scoring.conditions), generator):
            order += [(policy, condition, repeat) for policy in _shuffled(policies, generator)]
    return order


def _mixed(policies: int, scoring: ScoringSpec, generator: random.Random) -> list[tuple[int, int, int]]:
    order = []
    for repeat in range(1, scoring.repeats + 1):
        own = [_shuffled(len(scoring.conditions), generator) for _ in range(policies)]
        for block in range(len(scoring.conditions)):
            order += [(policy, own[policy][block], repeat) for policy in _shuffled(policies, generator)]
    return order


def _shuffled(count: int, generator: random.Random) -> list[int]:
    numbers = list(range(count))
    generator.shuffle(numbers)
    return numbers
