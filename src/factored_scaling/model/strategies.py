"""Strategies: weights per factor, in proportion to which the budget is spent.

A strategy is a function of a `StrategyInput`. Packages add strategies with an entry point in the group
`factored_scaling.strategies`; `package.module:function` works without one. `auto` is not among them: it decides between
allocations and not between weights, in `recommend`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from factored_scaling.core.allocation import curve_tiers, included
from factored_scaling.core.baselines import cubed_failure_tiers, equal_tiers, greedy_tiers, remix_tiers
from factored_scaling.core.checks import real, shown
from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput, NotEnoughData, UnknownName
from factored_scaling.model.posterior import Posterior
from factored_scaling.plugins import Registry

# Weights per factor, or several such tiers: where caps bind, what is left over goes to the next tier.
Weights = Mapping[str, float] | Sequence[Mapping[str, float]]
REGISTRY = Registry(
    "factored_scaling.strategies",
    "strategy",
    {
        "top": "factored_scaling.model.strategies:top",
        "top-half": "factored_scaling.model.strategies:top_half",
        "all": "factored_scaling.model.strategies:all_combinations",
        "equal": "factored_scaling.model.strategies:equal",
        "greedy": "factored_scaling.model.strategies:greedy",
        "cubed-failure": "factored_scaling.model.strategies:cubed_failure",
        "remix": "factored_scaling.model.strategies:remix",
    },
)


@dataclass(frozen=True)
class StrategyInput:
    """What a strategy may look at."""

    spec: StudySpec
    results: Results
    budget: int
    # the fitted response model; None with `fit="power-law"`
    posterior: Posterior | None = None
    # Re-Mix's weights per factor, where they were given
    weights: Mapping[str, float] | None = None
    # gain per unit of cost of each combination, by the curves or the response model
    ranking: Sequence[float] | None = None
    # a strategy appends what the user should know
    warnings: list[str] = field(default_factory=list)

    @property
    def gains(self) -> Sequence[float]:
        """Gain per unit of cost of each of `spec.combinations()`."""
        if self.ranking is None:
            raise NotEnoughData("this strategy needs a curve per combination, or the response model")
        return self.ranking


Strategy = Callable[[StrategyInput], Weights]


def load_strategy(name: str, known: Sequence[str] = ()) -> Strategy:
    """The strategy of this name. `known` are more names for the message when there is none."""
    if ":" not in name and name not in REGISTRY:
        every = [*known, *(other for other in REGISTRY if other not in known)]
        raise UnknownName(name, every, kind="strategy", where="strategy")
    found: Strategy = REGISTRY.load(name, where="strategy")
    return found


def tiers_of(strategy: Strategy, given: StrategyInput) -> list[Mapping[str, float]]:
    """The strategy's weights as tiers; an error where they are not one number per factor."""
    found: Any = strategy(given)
    names = given.spec.names
    if not isinstance(found, Mapping | Sequence) or not found:
        what = f"expected a weight for each of {', '.join(names)}, not {shown(found)}"
        raise InvalidInput(what, where="strategy", hint="return a mapping of factors to weights")
    tiers = [found] if isinstance(found, Mapping) else list(found)
    for tier in tiers:
        if not isinstance(tier, Mapping) or set(tier) != set(names):
            what = f"expected a weight for each of {', '.join(names)}, not {shown(tier)}"
            raise InvalidInput(what, where="strategy")
        for name, weight in tier.items():
            number = real(weight)
            if number is None or not 0.0 <= number < float("inf"):
                what = f"a weight must be a number of at least 0, not {shown(weight)}"
                raise InvalidInput(what, where=f"strategy: {name}")
    return tiers


def equal(given: StrategyInput) -> Weights:
    """The same number of demonstrations of every factor."""
    return equal_tiers(given.spec)


def greedy(given: StrategyInput) -> Weights:
    """The whole budget to the factor on which the full-data policy succeeds least."""
    return greedy_tiers(given.spec, given.results)


def cubed_failure(given: StrategyInput) -> Weights:
    """In proportion to the third power of the full-data policy's failure rate on each factor."""
    return cubed_failure_tiers(given.spec, given.results)


def remix(given: StrategyInput) -> Weights:
    """In proportion to the domain weights that Re-Mix learned."""
    return remix_tiers(given.spec, given.weights)


def _ranked(rule: str, given: StrategyInput) -> Weights:
    """The paper's rules: the combinations that rise most share the budget."""
    spec, gains = given.spec, given.gains
    if len(gains) == 1 and len(spec.factors) > 1:
        text = "all factors share one curve, which cannot rank them; construction one gives each its own"
        given.warnings.append(text)
    picked = included(gains, rule)
    if any(gains[index] > 0 for index in picked):
        return curve_tiers(spec, gains, picked)
    given.warnings.append("no curve rises, so the curves do not rank factors; the budget is split equally")
    return equal_tiers(spec)


top = partial(_ranked, "top")
top_half = partial(_ranked, "top-half")
all_combinations = partial(_ranked, "all")
