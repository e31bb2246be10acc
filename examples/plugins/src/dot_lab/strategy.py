"""The strategy `weakest-two`: half of the budget to each of the two factors on which the policy succeeds least."""

from __future__ import annotations

from factored_scaling import StrategyInput
from factored_scaling.core.results import factor_scores


def weakest_two(given: StrategyInput) -> dict[str, float]:
    """A weight per factor; the budget is spent in proportion, within the study's costs, caps and minimums."""
    scores = factor_scores(given.spec, given.results)
    weakest = sorted(given.spec.names, key=lambda name: scores.get(name, 0.0))[:2]
    return {name: float(name in weakest) for name in given.spec.names}
