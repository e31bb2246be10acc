"""The values a factor may take, as people declare them: a list, or a range with a unit."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from factored_scaling.core.checks import check_keys, real, shown
from factored_scaling.errors import InvalidInput

LONGEST_VALUE = 80
MOST_VALUES = 1000


@dataclass(frozen=True, slots=True)
class Span:
    """Every value from `low` to `high`."""

    low: float
    high: float
    unit: str = ""

    def shown(self, value: float) -> str:
        """A value for people: no more digits than the span can be set to."""
        digits = max(0, 2 - math.floor(math.log10(self.high - self.low)))
        text = f"{value:.{digits}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return f"{'0' if text == '-0' else text}{self.unit}"

    def read(self, text: str) -> float | None:
        """The number in what `shown` wrote; None for anything else."""
        try:
            value = float(text.removesuffix(self.unit))
        except ValueError:
            return None
        return value if math.isfinite(value) else None


Values = tuple[str, ...] | Span


def values_of(declared: object, where: str) -> Values:
    """`[dim, bright]` or `{from: -10, to: 10, unit: cm}` as declared in study.yaml; nothing declared is `()`."""
    if declared is None or isinstance(declared, Span):
        return () if declared is None else declared
    if isinstance(declared, Mapping):
        return _span(declared, where)
    if isinstance(declared, str) or not isinstance(declared, Sequence):
        hint = "write a list, or {from: 0, to: 10, unit: cm}"
        raise InvalidInput(f"expected values, not {shown(declared)}", where=where, hint=hint)
    if len(declared) > MOST_VALUES:
        raise InvalidInput(f"at most {MOST_VALUES} values can be listed, not {len(declared)}", where=where)
    texts = [_value(value, f"{where}[{index}]") for index, value in enumerate(declared)]
    for index, text in enumerate(texts):
        if text in texts[:index]:
            raise InvalidInput(f"value {text!r} is listed twice", where=f"{where}[{index}]")
    return tuple(texts)


def plain(values: Values) -> Any:
    """What `values_of` reads back."""
    if not isinstance(values, Span):
        return list(values)
    data: dict[str, Any] = {"from": values.low, "to": values.high}
    return {**data, "unit": values.unit} if values.unit else data


def spread(values: Values, count: int, used: Iterable[str] = ()) -> list[str]:
    """`count` values: the least used of a list, the widest gaps of a range; none where none are declared.

    `used` are the values of demonstrations made before. A list shorter than `count` is gone through again.
    """
    if isinstance(values, Span):
        return _spread_span(values, count, used)
    if not values:
        return []
    times = Counter(dict.fromkeys(values, 0))
    times.update(value for value in used if value in times)
    taken = []
    for _ in range(count):
        least = min(values, key=lambda value: times[value])  # ties in declared order
        times[least] += 1
        taken.append(least)
    return taken


def _spread_span(span: Span, count: int, used: Iterable[str]) -> list[str]:
    known = [value for text in used if (value := span.read(text)) is not None and span.low <= value <= span.high]
    if not known:  # evenly, each in the middle of its share
        step = (span.high - span.low) / max(count, 1)
        return [span.shown(span.low + (index + 0.5) * step) for index in range(count)]
    places = sorted(known)
    # the ends count double: a value may go to the very end, where it has a neighbour on one side only
    gaps = [(2 * (span.low - places[0]), span.low, span.low, places[0])]
    gaps += [(2 * (places[-1] - span.high), span.high, places[-1], span.high)]
    gaps += [(low - high, (low + high) / 2, low, high) for low, high in itertools.pairwise(places)]
    heapq.heapify(gaps)
    taken: list[float] = []
    for _ in range(count):
        _, value, low, high = heapq.heappop(gaps)
        taken.append(value)
        for start, end in ((low, value), (value, high)):
            heapq.heappush(gaps, (start - end, (start + end) / 2, start, end))
    return [span.shown(value) for value in sorted(taken)]


def _span(declared: Mapping[str, Any], where: str) -> Span:
    known = ("from", "to", "unit")
    check_keys(declared, known, where)
    low, high = real(declared.get("from")), real(declared.get("to"))
    for key, end in (("from", low), ("to", high)):
        if end is None or not math.isfinite(end) or abs(end) > 1e9:
            what = f"expected a number, not {shown(declared.get(key))}"
            raise InvalidInput(what, where=f"{where}.{key}", hint="write for example {from: -10, to: 10, unit: cm}")
    assert low is not None
    assert high is not None
    if not high - low > 1e-9:
        raise InvalidInput(f"the range from {low:g} to {high:g} is empty", where=where)
    unit = declared.get("unit", "")
    if not isinstance(unit, str) or len(unit) > 12 or any(character.isdigit() for character in unit):
        raise InvalidInput(f"expected a short unit without digits, not {shown(unit)}", where=f"{where}.unit")
    unit = unit.strip()
    return Span(low, high, f" {unit}" if unit[:1].isalpha() else unit)


def _value(value: object, where: str) -> str:
    if isinstance(value, bool):
        raise InvalidInput(f"{shown(value)} is read as yes or no", where=where, hint='put it in quotes, as in "on"')
    number = real(value)
    text = f"{number:g}" if number is not None and math.isfinite(number) else value
    if not isinstance(text, str) or not text.strip() or len(text) > LONGEST_VALUE:
        what = f"expected a text of at most {LONGEST_VALUE} characters or a number, not {shown(value)}"
        raise InvalidInput(what, where=where)
    return " ".join(text.split())
