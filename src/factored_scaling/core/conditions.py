"""What people score: the rubric, the conditions, how often each policy meets each of them."""

from __future__ import annotations

import functools
import itertools
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from factored_scaling.core.checks import check_keys, named, shown, whole
from factored_scaling.core.rubric import Rubric, rubric_of
from factored_scaling.core.values import Values, spread, values_of
from factored_scaling.errors import InvalidInput, UnknownFactor, UnknownName

Order = Literal["by-condition", "mixed"]
ORDERS: tuple[Order, ...] = get_args(Order)
MOST_CONDITIONS = 1000
MOST_REPEATS = 1000
NORMAL = "normal"  # how sheets and pages call the state of a factor that a condition does not vary


@dataclass(frozen=True, slots=True)
class Condition:
    """One scene to set up: the value of every factor that is varied in it."""

    values: tuple[tuple[str, str], ...]

    @property
    def factor(self) -> tuple[str, ...]:
        """The factors that are varied."""
        return tuple(name for name, _ in self.values)

    @property
    def setting(self) -> str:
        """The scene in one line, as trials keep it."""
        return ", ".join(f"{name}={value}" for name, value in self.values)


@dataclass(frozen=True, slots=True)
class SceneItem:
    """One factor of a scene to set up; None stands for its normal state."""

    factor: str
    value: str | None
    # in the scene before this one
    before: str | None
    # whether it has to be set up; always, where the scene before is not known
    changed: bool

    @property
    def back(self) -> bool:
        """Whether the factor goes back to normal."""
        return self.changed and self.value is None


def scene(factors: Sequence[str], condition: Condition, before: Condition | None) -> tuple[SceneItem, ...]:
    """The whole scene of a condition: every factor, with what changes from the condition `before` (None: unknown).

    A condition lists only the factors that it varies. Whoever sets it up also has to put back to normal what the
    condition before varied.
    """
    values = dict(condition.values)
    earlier = {} if before is None else dict(before.values)
    names = dict.fromkeys((*factors, *values, *earlier))
    return tuple(
        SceneItem(name, values.get(name), earlier.get(name), before is None or values.get(name) != earlier.get(name))
        for name in names
    )


@dataclass(frozen=True, slots=True)
class ScoringSpec:
    """How people score a study's policies: `scoring:` in study.yaml."""

    rubric: Rubric
    conditions: tuple[Condition, ...]
    # trials of every policy in every condition
    repeats: int
    # environment steps after which a rollout counts as failed (None: no limit)
    step_limit: int | None = None
    # by-condition: set a scene up once and let every policy have its trial in it; mixed: a new scene for every trial
    order: Order = "by-condition"

    @property
    def trials(self) -> int:
        """Trials per policy."""
        return len(self.conditions) * self.repeats


# The paper's evaluations on real robots: several factors varied at once, a rollout capped at 600 steps.
PRESETS: dict[str, dict[str, Any]] = {
    "pick-place": {"rubric": "success", "combinations": 10, "repeats": 2, "step_limit": 600},
    "fold-towel": {"rubric": "fold-towel", "combinations": 4, "repeats": 3, "step_limit": 600},
    "mouse-in-drawer": {"rubric": "mouse-in-drawer", "combinations": 6, "repeats": 3, "step_limit": 600},
}
_KEYS = ("preset", "rubric", "conditions", "combinations", "repeats", "step_limit", "order", "seed")


def scoring_of(declared: Mapping[str, Any], test_values: Mapping[str, Values]) -> ScoringSpec:
    """Read `scoring:`; `test_values` has every factor of the study with the values to test it at, maybe none.

    What is left out comes from the preset, pick-place where none is named.
    """
    where = "scoring"
    if not isinstance(declared, Mapping):
        raise InvalidInput(f"expected a mapping, not {shown(declared)}", where=where)
    check_keys(declared, _KEYS, where)
    preset = declared.get("preset", "pick-place")
    if not isinstance(preset, str) or preset not in PRESETS:
        raise UnknownName(named(preset), PRESETS, kind="preset", where=f"{where}.preset")
    given = {**PRESETS[preset], "conditions": "together", "order": "by-condition", "seed": 0, **declared}
    limit = given["step_limit"]
    if given["order"] not in ORDERS:
        raise UnknownName(str(given["order"]), ORDERS, where=f"{where}.order")
    if "combinations" in declared and given["conditions"] != "together":
        hint = "drop it, or write `conditions: together`"
        raise InvalidInput("combinations are drawn for together only", where=f"{where}.combinations", hint=hint)
    return ScoringSpec(
        rubric=rubric_of(given["rubric"], f"{where}.rubric"),
        conditions=_conditions(given, test_values, where),
        repeats=_count(given["repeats"], f"{where}.repeats", MOST_REPEATS),
        step_limit=None if limit is None else whole(limit, f"{where}.step_limit", least=1, what="step limit"),
        order=given["order"],
    )


def _conditions(given: Mapping[str, Any], test_values: Mapping[str, Values], where: str) -> tuple[Condition, ...]:
    wanted = given["conditions"]
    if wanted == "each":
        return _each(test_values, where)
    if wanted == "together":
        combinations = _count(given["combinations"], f"{where}.combinations", MOST_CONDITIONS)
        return together(test_values, combinations, whole(given["seed"], f"{where}.seed", what="seed"))
    where = f"{where}.conditions"
    if isinstance(wanted, str) or not isinstance(wanted, Sequence):
        hint = "write each, together, or a list of conditions such as {lighting: dim, camera_pose: left}"
        raise InvalidInput(f"expected conditions, not {shown(wanted)}", where=where, hint=hint)
    made = [_condition(entry, tuple(test_values), f"{where}[{index}]") for index, entry in enumerate(wanted)]
    if not 1 <= len(made) <= MOST_CONDITIONS:
        raise InvalidInput(f"expected 1 to {MOST_CONDITIONS} conditions, not {len(made)}", where=where)
    for index, condition in enumerate(made):
        if condition in made[:index]:
            hint = "`repeats` says how often a condition is tried"
            raise InvalidInput(f"{condition.setting} is listed twice", where=f"{where}[{index}]", hint=hint)
    return tuple(made)


def _condition(entry: object, names: tuple[str, ...], where: str) -> Condition:
    if not isinstance(entry, Mapping) or not entry:
        hint = "write for example {lighting: dim, camera_pose: left}"
        raise InvalidInput(f"expected a value for each varied factor, not {shown(entry)}", where=where, hint=hint)
    for name in entry:
        if name not in names:
            raise UnknownFactor(str(name), names, where=f"{where}.{name}")
    texts: dict[str, str] = {}
    for name, value in entry.items():
        listed = values_of([value], f"{where}.{name}")
        assert isinstance(listed, tuple)
        texts[name] = listed[0]
    return Condition(tuple((name, texts[name]) for name in names if name in texts))


def _each(test_values: Mapping[str, Values], where: str) -> tuple[Condition, ...]:
    """One factor at a time, at each of its values for testing."""
    made: list[Condition] = []
    for name, values in test_values.items():
        if not isinstance(values, tuple) or not values:
            hint = f"list them: `{name}: {{demos: …, test_values: [dim, bright]}}`"
            raise InvalidInput(f"{name} lists no test_values", where=f"{where}.conditions", hint=hint)
        made += [Condition(((name, value),)) for value in values]
    if len(made) > MOST_CONDITIONS:
        raise InvalidInput(f"{len(made)} conditions; at most {MOST_CONDITIONS} fit", where=f"{where}.conditions")
    return tuple(made)


def together(test_values: Mapping[str, Values], combinations: int, seed: int) -> tuple[Condition, ...]:
    """Scenes in which every factor is varied at once; each factor's values come up equally often.

    Of many draws the one is taken in which scenes differ and values of different factors go together least, so that
    one factor's bad value is not always in the company of the same other. The same for every call with the same
    arguments, so that policies of later rounds meet the same scenes. Where a factor has no values declared, the sheet
    asks for new ones, numbered.
    """
    return _together(tuple(test_values.items()), combinations, seed)


@functools.lru_cache(maxsize=64)
def _together(test_values: tuple[tuple[str, Values], ...], combinations: int, seed: int) -> tuple[Condition, ...]:
    generator = random.Random(f"{seed} {combinations}")
    columns = {name: spread(values, combinations) for name, values in test_values}
    declared = [column for column in columns.values() if column]
    best: tuple[float, float] | None = None
    kept = declared
    for _ in range(max(4, min(200, 4000 // combinations))):
        drawn = [generator.sample(column, combinations) for column in declared]
        judged = (-len(set(zip(*drawn, strict=True))), _association(drawn))
        if best is None or judged < best:
            best, kept = judged, drawn
    following = iter(kept)
    fresh = [f"new value {number + 1}" for number in range(combinations)]
    whole_columns = [(name, next(following) if column else fresh) for name, column in columns.items()]
    return tuple(
        Condition(tuple((name, column[index]) for name, column in whole_columns)) for index in range(combinations)
    )


def _association(columns: Sequence[Sequence[str]]) -> float:
    """How far the pairs of values of any two factors are from coming up equally often; 0 is perfectly crossed."""
    total = 0.0
    for first, second in itertools.combinations(columns, 2):
        expected = len(first) / (len(set(first)) * len(set(second)))
        seen = Counter(zip(first, second, strict=True))
        absent = len(set(first)) * len(set(second)) - len(seen)
        total += sum((count - expected) ** 2 for count in seen.values()) + absent * expected**2
    return total


def _count(value: object, where: str, most: int) -> int:
    number = whole(value, where, least=1, what="value")
    if number > most:
        raise InvalidInput(f"at most {most}, not {number}", where=where)
    return number
