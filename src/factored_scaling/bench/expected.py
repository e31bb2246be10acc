"""Expected regret of a plan before training: a table of mean regret in emulated studies."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

MANY_TRIALS = 100  # per policy; from here on the table for many rollouts is used instead of the one for 18 trials


@functools.cache
def table() -> dict[str, Any]:
    """`source` says how it was computed; `regret[regime][construction][N]` lists policies, regret and its error."""
    text = resources.files("factored_scaling.bench").joinpath("expected.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


def regime_for(trials: int | None) -> str:
    """The regime nearest to an evaluation with this many trials per policy."""
    return "simulation" if trials is not None and trials >= MANY_TRIALS else "real"


def expected_regret(construction: str, count: int, policies: int, regime: str) -> float | None:
    """Expected regret of the response model on the first policies, interpolated between the measured numbers.

    Other numbers of factors use the nearest; None for constructions without a table.
    """
    known = table()["regret"][regime].get(construction)
    if known is None:
        return None
    counts = sorted(int(key) for key in known)
    values = [_between([(row[0], row[1]) for row in known[str(key)]], policies) for key in counts]
    return _between(list(zip(counts, values, strict=True)), count)


def expected_equal(count: int) -> float:
    """Regret of an equal split, which needs no policy."""
    known = table()["equal"]
    return _between([(int(key), known[key]) for key in sorted(known, key=int)], count)


def _between(points: Sequence[tuple[float, float]], place: float) -> float:
    """Linear interpolation, constant beyond the ends."""
    before = [point for point in points if point[0] <= place]
    after = [point for point in points if point[0] >= place]
    if not before or not after:
        return (after or before)[0 if after else -1][1]
    (low, first), (high, second) = before[-1], after[0]
    return first if high == low else first + (second - first) * (place - low) / (high - low)
