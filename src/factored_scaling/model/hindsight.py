"""How the prediction for the last round compares with what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from factored_scaling.core.results import Results, resolve
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import known_score, pooled
from factored_scaling.model.estimate import Estimate
from factored_scaling.model.posterior import fit_posterior


@dataclass(frozen=True, slots=True)
class Hindsight:
    """The response model fitted to earlier rounds, compared with policies trained on everything since."""

    expected: Estimate
    measured: float
    # policies trained on everything, one per seed
    policies: int
    # factors whose trials both numbers cover, where not every factor was measured
    only: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        low, high = 100 * self.expected.low, 100 * self.expected.high
        expected = f"{100 * self.expected.mean:.1f}% ({low:.0f}–{high:.0f})"
        trained = "one policy" if self.policies == 1 else f"{self.policies} policies"
        return (
            f"the last round was predicted to reach {expected}{self._where}; "
            f"{trained} trained on everything scored {100 * self.measured:.1f}%"
        )

    def to_mapping(self) -> dict[str, Any]:
        data = {"expected": self.expected.to_mapping(), "measured": self.measured, "policies": self.policies}
        return data | ({"factors": list(self.only)} if self.only else {})

    @property
    def _where(self) -> str:
        *some, last = self.only or ("",)
        return f" on the trials of {', '.join(some)}{' and ' if some else ''}{last}" if last else ""


def hindsight(before: StudySpec, earlier: Results, now: StudySpec, later: Results) -> Hindsight | None:
    """None where earlier rounds have no scores, or no policy trained on everything since has."""
    whole = tuple(now.sizes.values())
    rows = [row for row in later.rows if resolve(now, row)[0] == whole]
    if not rows or not earlier.rows:
        return None
    posterior = fit_posterior(before, earlier)
    demos = np.array([list(before.sizes.values()), whole], dtype=float)
    single = [row for row in rows if len(row.factor) == 1 and row.factor != ("*",)]
    measured = [name for name in now.names if any(row.factor == (name,) for row in single)]
    only = tuple(measured) if len(measured) < len(now.names) else ()
    places = [now.names.index(name) for name in measured]
    # Both as the response model counts: the mean over the factors' trials where there are such, else over all.
    old, new = posterior.by_factor(demos)[:, places].mean(1) if measured else posterior.score(demos)
    parts = [[row for row in single if row.factor == (name,)] for name in measured] or [rows]
    score = float(np.mean([pooled([known_score(row.score, row.trials) for row in part]).mean for part in parts]))
    return Hindsight(Estimate.of(new, new - old), score, len({row.seed for row in rows}), only)
