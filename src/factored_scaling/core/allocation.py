"""Spending a budget: which combinations are included, each factor's share, and whole numbers in the end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from factored_scaling.core.checks import whole
from factored_scaling.core.spec import Combination, Factor, StudySpec
from factored_scaling.errors import InvalidInput

_TIE = 9  # decimals of a demonstration below which remainders count as equal
_DUST = 1e-14  # part of the budget that is rounding of the costs' sum


@dataclass(frozen=True, slots=True)
class Spending:
    """Whole demonstrations per factor; `left` is the part of the budget that could not be spent."""

    demos: dict[str, int]
    left: float


def check_budget(budget: object) -> int:
    """The budget as a whole number above 0, or an error that says so."""
    return whole(budget, "budget", least=1, what="the budget")


def mean_cost(spec: StudySpec, combination: Combination) -> float:
    """What one demonstration of a combination costs when it is split over its factors as the allocation does."""
    costs = {factor.name: factor.cost for factor in spec.factors}
    return math.fsum(share * costs[name] for name, share in inner_shares(spec, combination).items())


def inner_shares(spec: StudySpec, combination: Combination) -> dict[str, float]:
    """How a combination's demonstrations are split over its factors: by size, or in halves for `pair`."""
    if spec.construction == "pair":
        return dict.fromkeys(combination.factors, 0.5)
    sizes = spec.sizes
    return {name: sizes[name] / combination.size for name in combination.factors}


def ranked(gains: Sequence[float]) -> list[int]:
    """Indices from the largest gain to the smallest; gains equal to twelve digits keep their order."""
    return sorted(range(len(gains)), key=lambda index: -float(f"{gains[index]:.11e}"))


def included(gains: Sequence[float], strategy: str) -> list[int]:
    """The combinations that `top`, `top-half` or `all` spend on, best first."""
    order = ranked(gains)
    if strategy == "top":
        return order[:1]
    if strategy == "top-half":
        return order[: max(1, len(order) // 2)]
    return order


def curve_tiers(spec: StudySpec, gains: Sequence[float], chosen: Sequence[int]) -> list[dict[str, float]]:
    """Weights per factor: first the chosen combinations, then, in case caps bind, the others by rank.

    `gains[c]` is the slope of combination c per unit of cost; a factor's weight is its part of its combinations'.
    """
    combinations = spec.combinations()
    rest = [index for index in ranked(gains) if index not in chosen]
    tiers = []
    for members in [list(chosen), *[[index] for index in rest]]:
        weights = dict.fromkeys(spec.names, 0.0)
        for index in members:
            for name, share in inner_shares(spec, combinations[index]).items():
                weights[name] += gains[index] * share
        tiers.append(weights)
    return tiers


def spend(factors: Sequence[Factor], tiers: Sequence[Mapping[str, float]], budget: float) -> Spending:
    """Spread the budget in proportion to the first tier's weights, within every factor's minimum and cap.

    What caps leave over goes to the next tier, in the end equally to every factor that has room. With unit costs and
    enough room the whole numbers sum to the budget exactly; otherwise the rest that buys no demonstration is `left`.
    """
    amounts = [float(factor.minimum) for factor in factors]
    needed = math.fsum(factor.minimum * factor.cost for factor in factors)
    if needed > budget:
        raise InvalidInput(f"the minimums alone cost {needed:g}, more than the budget of {budget:g}", where="minimum")
    everything = [*tiers, {factor.name: 1.0 for factor in factors}]
    for tier in everything:
        weights = [tier[factor.name] for factor in factors]
        amounts = _fill(factors, weights, amounts, budget)
        if budget - _cost(factors, amounts) <= 1e-9 * budget:
            break
    return _whole(factors, amounts, everything, budget)


def _fill(factors: Sequence[Factor], weights: Sequence[float], floor: list[float], budget: float) -> list[float]:
    """clip(λ·weight, floor, cap) with the λ that uses up the budget, or everything at its cap if that costs less."""
    caps = [math.inf if factor.cap is None else float(factor.cap) for factor in factors]
    fixed = {i: floor[i] for i, weight in enumerate(weights) if weight <= 0.0}
    largest = max(weights)  # only their ratios matter; sums of very large or small ones would not be numbers
    weights = [weight / largest for weight in weights] if largest > 0 else weights
    while len(fixed) < len(factors):
        free = [i for i in range(len(factors)) if i not in fixed]
        money = budget - math.fsum(factors[i].cost * amount for i, amount in fixed.items())
        scale = money / math.fsum(factors[i].cost * weights[i] for i in free)
        wanted = {i: scale * weights[i] for i in free}
        excess = {i: max(0.0, wanted[i] - caps[i]) for i in free}
        lack = {i: max(0.0, floor[i] - wanted[i]) for i in free}
        if not any(excess.values()) and not any(lack.values()):
            fixed.update(wanted)
            break
        # Fix the side that moves more money first; the other side is looked at again with the new λ.
        over = math.fsum(factors[i].cost * value for i, value in excess.items())
        under = math.fsum(factors[i].cost * value for i, value in lack.items())
        if over >= under:
            fixed.update({i: caps[i] for i in free if excess[i] > 0})
        else:
            fixed.update({i: floor[i] for i in free if lack[i] > 0})
    return [fixed[i] for i in range(len(factors))]


def _whole(
    factors: Sequence[Factor], amounts: Sequence[float], tiers: Sequence[Mapping[str, float]], budget: float
) -> Spending:
    """Largest remainders, ties in declared order; then whatever the last of the money still buys."""
    counts = [math.floor(round(amount, _TIE)) for amount in amounts]
    remainders = [round(amount - count, _TIE) for amount, count in zip(amounts, counts, strict=True)]

    def affordable(index: int) -> int:
        """How many more of this factor the money and its cap allow."""
        cap, left = factors[index].cap, budget - _cost(factors, counts)
        more = math.floor((left + _DUST * budget) / factors[index].cost)
        return max(0, more if cap is None else min(more, cap - counts[index]))

    for index in sorted(range(len(factors)), key=lambda i: -remainders[i]):
        if remainders[index] > 0 and affordable(index):
            counts[index] += 1
    for tier in tiers:
        for index in sorted(range(len(factors)), key=lambda i: -tier[factors[i].name]):
            if tier[factors[index].name] > 0:
                counts[index] += affordable(index)
    left = budget - _cost(factors, counts)
    return Spending(
        {factor.name: count for factor, count in zip(factors, counts, strict=True)},
        left if left > _DUST * budget else 0.0,
    )


def _cost(factors: Sequence[Factor], amounts: Sequence[float]) -> float:
    return math.fsum(factor.cost * amount for factor, amount in zip(factors, amounts, strict=True))
