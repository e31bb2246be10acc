"""An operator's list for an allocation: the factor and value of each demonstration, in the order to record them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from factored_scaling.core.checks import whole
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.values import Span, spread
from factored_scaling.errors import InvalidInput, UnknownFactor

MOST_DEMOS = 5_000  # in one list; a larger number is probably a typing error


@dataclass(frozen=True, slots=True)
class Demo:
    """One demonstration to record. `value` is empty where none are declared: the operator picks a new one."""

    factor: str
    value: str = ""


def demos_to_collect(
    spec: StudySpec, allocation: Mapping[str, int], used: Mapping[str, Sequence[str]]
) -> tuple[Demo, ...]:
    """Every demonstration of `allocation`, ordered to spare set-up changes; `used` are values seen before, by factor.

    A factor's demonstrations stay together, because the scene goes back to normal between factors. Within a factor,
    equal values stay together, and a range is covered from one end to the other.
    """
    for name in allocation:
        if name not in spec.names:
            raise UnknownFactor(str(name), spec.names)
    counts = {name: whole(allocation.get(name, 0), name, what="number of demos") for name in spec.names}
    total = sum(counts.values())
    if not 1 <= total <= MOST_DEMOS:
        raise InvalidInput(f"a list has 1 to {MOST_DEMOS} demonstrations, not {total}")
    made: list[Demo] = []
    for factor in spec.factors:
        count = counts[factor.name]
        values = spread(factor.values, count, used.get(factor.name, ()))
        if not isinstance(factor.values, Span):
            values = sorted(values, key=factor.values.index)
        made += [Demo(factor.name, value) for value in values] or [Demo(factor.name)] * count
    return tuple(made)


def setup_changes(demos: Sequence[Demo]) -> int:
    """The number of scene changes: one for every sequence of equal demonstrations."""
    changes = 0
    for index, demo in enumerate(demos):
        changes += index == 0 or not demo.value or demo != demos[index - 1]
    return changes
