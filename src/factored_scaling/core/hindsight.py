"""What was to be expected of the demonstrations that a round added, beside what was measured with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from factored_scaling.core.results import Results, Row, resolve
from factored_scaling.core.scores import known_score, pooled
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.surface import fit_surface
from factored_scaling.core.surface_report import Estimate


@dataclass(frozen=True, slots=True)
class Hindsight:
    """The surface fitted to earlier rounds' policies, held against those trained on everything since."""

    expected: Estimate
    measured: float
    # that were trained on everything, one per seed
    policies: int

    @property
    def sentence(self) -> str:
        low, high = 100 * self.expected.low, 100 * self.expected.high
        expected = f"{100 * self.expected.mean:.1f}% ({low:.0f}–{high:.0f})"
        trained = "one policy" if self.policies == 1 else f"{self.policies} policies"
        return (
            f"{expected} was to be expected of what the last round added; "
            f"{trained} trained on everything came out at {100 * self.measured:.1f}%"
        )

    def to_mapping(self) -> dict[str, Any]:
        return {"expected": self.expected.to_mapping(), "measured": self.measured, "policies": self.policies}


def hindsight(before: StudySpec, earlier: Results, now: StudySpec, later: Results) -> Hindsight | None:
    """None where earlier rounds have no scores, or no policy trained on everything since has."""
    whole = tuple(now.sizes.values())
    rows = [row for row in later.rows if resolve(now, row)[0] == whole]
    if not rows or not earlier.rows:
        return None
    surface = fit_surface(before, earlier)
    old, new = surface.score(np.array([list(before.sizes.values()), whole], dtype=float))
    return Hindsight(Estimate.of(new, new - old), _mean(rows), len({row.seed for row in rows}))


def _mean(rows: list[Row]) -> float:
    """As the surface counts: the mean over factors' trials where there are such, else over all."""
    single = [row for row in rows if len(row.factor) == 1 and row.factor != ("*",)]
    factors = dict.fromkeys(row.factor for row in single)
    parts = [[row for row in single if row.factor == factor] for factor in factors] or [rows]
    means = [pooled([known_score(row.score, row.trials) for row in part]).mean for part in parts]
    return float(np.mean(means))
