"""The rules to beat: Equal, Greedy, Cubed-failure and Re-Mix, as weights over factors."""

from __future__ import annotations

import math
from collections.abc import Mapping

from factored_scaling.core.checks import real, shown
from factored_scaling.core.results import Results, factor_scores
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput, NotEnoughData, UnknownFactor

BASELINES = ("equal", "greedy", "cubed-failure", "remix")


def equal_tiers(spec: StudySpec) -> list[dict[str, float]]:
    """K/N to each factor (the L-shape strategy)."""
    return [dict.fromkeys(spec.names, 1.0)]


def greedy_tiers(spec: StudySpec, results: Results) -> list[dict[str, float]]:
    """All of K to the factor on whose variations the full-data policy scores lowest; the next lowest when capped."""
    scores = _full_data_scores(spec, results, "greedy")
    order = sorted(spec.names, key=lambda name: scores[name])
    return [{name: float(name == worst) for name in spec.names} for worst in order]


def cubed_failure_tiers(spec: StudySpec, results: Results) -> list[dict[str, float]]:
    """K in proportion to the third power of the full-data policy's failure rate on each factor's variations.

    Between Equal (power 0) and Greedy (endless power); one policy is all it needs. Equal where nothing fails.
    """
    scores = _full_data_scores(spec, results, "cubed-failure")
    weights = {name: (1.0 - scores[name]) ** 3 for name in spec.names}
    return [weights] if any(weights.values()) else equal_tiers(spec)


def _full_data_scores(spec: StudySpec, results: Results, rule: str) -> dict[str, float]:
    scores = factor_scores(spec, results)
    missing = [name for name in spec.names if name not in scores]
    if missing:
        raise NotEnoughData(
            f"{rule} needs the full-data policy's score on each factor; none for {', '.join(missing)}",
            hint="give rows with all demos and the column factor",
        )
    return scores


def remix_tiers(spec: StudySpec, weights: Mapping[str, float] | None) -> list[dict[str, float]]:
    """K in proportion to the domain weights that Re-Mix learned."""
    if weights is None:
        raise NotEnoughData("remix needs the weights that Re-Mix learned", hint="pass --weights FILE.json")
    if not isinstance(weights, Mapping):
        raise InvalidInput(f"expected a weight per factor, not {shown(weights)}", where="weights")
    for name, weight in weights.items():
        if name not in spec.names:
            raise UnknownFactor(str(name), spec.names, where="weights")
        number = real(weight)
        if number is None or not (math.isfinite(number) and number >= 0):
            what = f"a weight must be a number of at least 0, not {shown(weight)}"
            raise InvalidInput(what, where=f"weights.{name}")
    for name in spec.names:
        if name not in weights:
            raise InvalidInput(f"no weight for factor {name!r}", where="weights")
    if not any(float(weight) for weight in weights.values()):
        raise InvalidInput("every weight is 0", where="weights")
    return [{name: float(weights[name]) for name in spec.names}]
