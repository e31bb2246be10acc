"""Numbers from outside: whole ones and scores, as plain Python values or as errors that say what would be right."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import SupportsIndex, cast

from factored_scaling.errors import InvalidInput, UnknownName

# No study counts further; beyond it whole numbers lose digits as floats.
LARGEST = 10**12
LARGEST_SEED = 2**63 - 1


def whole(value: object, where: str, *, least: int = 0, what: str = "", most: int = LARGEST) -> int:
    """`value` as an int from `least` to `most`; numpy's whole numbers are welcome, bools and floats are not."""
    try:
        number = None if isinstance(value, bool) else operator.index(cast(SupportsIndex, value))
    except TypeError:
        number = None
    if number is None or number < least:
        must = f"{what} must be" if what else "expected"
        raise InvalidInput(f"{must} a whole number of at least {least}, not {shown(value)}", where=where)
    if number > most:
        raise InvalidInput(f"{what or 'the number'} must be at most {most}", where=where)
    return number


_MADE_BY = {
    "StudySpec": "`read_study(path)` reads a study.yaml",
    "Results": "`Results.from_rows(rows)` takes rows, `read_results(path)` a results.csv",
    "Dataset": "`Dataset.of_sizes(sizes)` makes one of counts",
}


def expect(value: object, kind: type, where: str) -> None:
    """Refuse what is not a `kind`, and say where to get one."""
    if not isinstance(value, kind):
        what = f"expected a {kind.__name__}, not {shown(value)}"
        raise InvalidInput(what, where=where, hint=_MADE_BY.get(kind.__name__, ""))


def real(value: object) -> float | None:
    """`value` as a float where it is one number (numpy's too), else None; texts and bools are no numbers."""
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__") or getattr(value, "shape", ()) != ():
        return None
    if getattr(getattr(value, "dtype", None), "kind", "f") not in "fiu":
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def percentage(score: float, trials: int | None = None) -> str:
    """What to write instead of a score that looks like a percentage or a number of successes; else nothing."""
    if trials is not None and 1 < score <= trials and score == int(score):
        return f"if {score:g} of {trials} succeeded, write {score / trials:.4g}"
    return f"write {score:g}% as {score / 100:g}" if 2 <= score <= 100 else ""


def check_keys(data: Iterable[object], known: Sequence[str], where: str = "", hint: str = "") -> None:
    """Refuse keys that are not known, naming the place and the nearest known one."""
    for key in data:
        if key not in known:
            raise UnknownName(str(key), known, kind="key", where=f"{where}.{key}" if where else str(key), hint=hint)


def named(value: object) -> str:
    """`value` where it is a text; anything else as messages show it, which is nobody's name."""
    return value if isinstance(value, str) else shown(value)


def shown(value: object) -> str:
    """`value` for a message, short enough for one line."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print whole numbers of many thousand digits
        return "so long a number"
    return text if len(text) <= 60 else f"{text[:57]}..."


def listed(items: Sequence[str]) -> str:
    """a, b and c."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
