"""The allocation with the largest expected success: greedy by parts, then exchanges of shrinking size."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence

import numpy as np

from factored_scaling.core.allocation import Spending
from factored_scaling.core.spec import Factor
from factored_scaling.errors import InvalidInput
from factored_scaling.model.prior import Floats

# Maps allocations (R × N, whole demonstrations added to the current ones) to their expected success.
Worth = Callable[[Floats], Floats]
# The same for several searches at once: searches × R × N to searches × R.
Worths = Callable[[Floats], Floats]
# Yields allocations, receives their worth, and returns the best allocation.
Search = Generator[Floats, Floats, Floats]
_PARTS = 16  # number of parts of the budget in the greedy search
_ROUNDING = 1e-14  # share of the budget; smaller remainders are rounding errors
_LEAST_GAIN = 1e-9  # of success; less is a rounding error
_TRIED = 3  # every pair of so many best givers and takers is tried


def optimize_allocation(factors: Sequence[Factor], worth: Worth, budget: float) -> Spending:
    """Whole demonstrations per factor, within every minimum and cap, with the largest `worth` found.

    The whole budget is spent as far as caps and costs allow.
    """
    allocation = optimize_allocations(factors, lambda rows: worth(rows[0])[None], budget, 1)[0]
    left = budget - math.fsum(allocation * np.array([factor.cost for factor in factors]))
    return Spending(
        {factor.name: int(n) for factor, n in zip(factors, allocation, strict=True)},
        left if left > _ROUNDING * budget else 0.0,
    )


def optimize_allocations(
    factors: Sequence[Factor], worths: Worths, budget: float, count: int, parts: int = _PARTS
) -> Floats:
    """The best allocation by each of `count` measures of worth: count × N. All searches advance together."""
    costs = np.array([factor.cost for factor in factors])
    caps = np.array([math.inf if factor.cap is None else float(factor.cap) for factor in factors])
    least = np.array([float(factor.minimum) for factor in factors])
    needed = math.fsum(least * costs)
    if needed > budget:
        raise InvalidInput(f"the minimums alone cost {needed:g}, more than the budget of {budget:g}", where="minimum")
    searches = [_search(budget, least, caps, costs, max(budget / parts, float(costs.min()))) for _ in range(count)]
    rows: list[Floats] = [next(search) for search in searches]
    best = np.zeros((count, costs.size))
    active = set(range(count))
    while active:
        most = max(len(rows[index]) for index in active)
        # finished searches, and those with fewer allocations, repeat their first one
        values = worths(np.stack([row[np.arange(most) % len(row)] for row in rows]))
        for index in sorted(active):
            try:
                rows[index] = searches[index].send(values[index, : len(rows[index])])
            except StopIteration as end:
                best[index] = end.value
                active.remove(index)
    return best


def _search(budget: float, least: Floats, caps: Floats, costs: Floats, part: float) -> Search:
    allocation = yield from _by_parts(budget, least, caps, costs, part)
    return (yield from _exchanged(allocation, budget, least, caps, costs))


def _by_parts(budget: float, start: Floats, caps: Floats, costs: Floats, part: float) -> Search:
    """Give each part of the budget in turn to the factor with the largest gain per cost."""
    allocation = start.copy()
    while True:
        left = budget - math.fsum(allocation * costs)
        more = np.minimum(np.floor((min(part, left) + _ROUNDING * budget) / costs), caps - allocation)
        # A part that is too small for one demonstration may suffice together with the rest of the budget.
        one = np.minimum(np.floor((left + _ROUNDING * budget) / costs), caps - allocation).clip(max=1.0)
        more = np.where(more >= 1, more, one)
        affordable = np.flatnonzero(more >= 1)
        if not affordable.size:
            return allocation
        choices = allocation + np.eye(allocation.size)[affordable] * more[affordable, None]
        values = yield np.concatenate([allocation[None, :], choices])
        gains = (values[1:] - values[0]) / (more[affordable] * costs[affordable])
        allocation = choices[int(gains.argmax())]


def _exchanged(allocation: Floats, budget: float, least: Floats, caps: Floats, costs: Floats) -> Search:
    """Move money between factors in steps of shrinking size while that improves the allocation."""
    count = allocation.size
    if count == 1:
        return allocation
    value = float((yield allocation[None, :])[0])
    step = max(budget / 6, float(costs.max()))
    while True:
        for _ in range(3 * count):
            choices = yield from _exchanges(allocation, step, budget, least, caps, costs)
            if not len(choices):
                break
            values = yield choices
            best = int(values.argmax())
            if values[best] <= value + _LEAST_GAIN:
                break
            allocation, value = choices[best], float(values[best])
        if step <= costs.max():
            return allocation
        step = max(step / 3, float(costs.max()))


def _exchanges(allocation: Floats, step: float, budget: float, least: Floats, caps: Floats, costs: Floats) -> Search:
    """The most promising allocations that move about `step` of money from one factor to another."""
    unit = np.eye(allocation.size)
    amounts = np.minimum(np.maximum(1.0, np.round(step / costs)), allocation - least)
    takers = np.minimum(np.maximum(1.0, np.floor(step / costs)), caps - allocation)
    values = yield np.concatenate([allocation - unit * amounts[:, None], allocation + unit * takers[:, None]])
    keep = np.where(amounts >= 1, values[: allocation.size], -math.inf)
    gain = np.where(takers >= 1, values[allocation.size :], -math.inf)
    money = budget - math.fsum(allocation * costs)
    exchanges = []
    for giver in np.argsort(-keep)[:_TRIED]:
        for taker in np.argsort(-gain)[: _TRIED + 1]:
            if giver == taker or not (math.isfinite(keep[giver]) and math.isfinite(gain[taker])):
                continue
            available = money + amounts[giver] * costs[giver] + _ROUNDING * budget
            bought = min(math.floor(available / costs[taker]), caps[taker] - allocation[taker])
            if bought >= 1:
                exchanges.append(allocation - unit[giver] * amounts[giver] + unit[taker] * bought)
    return np.array(exchanges).reshape(-1, allocation.size)
