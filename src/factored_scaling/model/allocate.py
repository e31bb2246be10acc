"""The allocation with the largest expected success: greedy by parts, then exchanges of shrinking size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from factored_scaling.core.allocation import Spending
from factored_scaling.core.spec import Factor
from factored_scaling.errors import InvalidInput
from factored_scaling.model.prior import Floats

# Allocations (R × N, whole demonstrations on top of the current ones) to the expected success of each.
Worth = Callable[[Floats], Floats]
_PARTS = 16  # into which the budget is divided at first
_DUST = 1e-14  # part of the budget that is rounding of the costs' sum
_LEAST_GAIN = 1e-9  # of success; less is rounding
_TRIED = 3  # best givers and takers of which every pair is tried


def optimize_allocation(factors: Sequence[Factor], worth: Worth, budget: float, parts: int = _PARTS) -> Spending:
    """Whole demonstrations per factor, within every minimum and cap, with the largest `worth` that was found.

    The whole budget is spent as far as caps and costs allow.
    """
    costs = np.array([factor.cost for factor in factors])
    caps = np.array([math.inf if factor.cap is None else float(factor.cap) for factor in factors])
    least = np.array([float(factor.minimum) for factor in factors])
    needed = math.fsum(least * costs)
    if needed > budget:
        raise InvalidInput(f"the minimums alone cost {needed:g}, more than the budget of {budget:g}", where="minimum")
    allocation = _by_parts(worth, budget, least, caps, costs, max(budget / parts, float(costs.min())))
    allocation = _exchanged(worth, allocation, budget, least, caps, costs)
    left = budget - math.fsum(allocation * costs)
    names = [factor.name for factor in factors]
    return Spending(
        {name: int(n) for name, n in zip(names, allocation, strict=True)}, left if left > _DUST * budget else 0.0
    )


def _by_parts(worth: Worth, budget: float, start: Floats, caps: Floats, costs: Floats, part: float) -> Floats:
    """One part of the budget after another to the factor that gains most from it per cost."""
    allocation = start.copy()
    while True:
        left = budget - math.fsum(allocation * costs)
        more = np.minimum(np.floor((min(part, left) + _DUST * budget) / costs), caps - allocation)
        # A part that buys nothing of a factor may still be enough for one together with the rest of the money.
        one = np.minimum(np.floor((left + _DUST * budget) / costs), caps - allocation).clip(max=1.0)
        more = np.where(more >= 1, more, one)
        able = np.flatnonzero(more >= 1)
        if not able.size:
            return allocation
        choices = allocation + np.eye(allocation.size)[able] * more[able, None]
        values = worth(np.concatenate([allocation[None, :], choices]))
        gains = (values[1:] - values[0]) / (more[able] * costs[able])
        allocation = choices[int(gains.argmax())]


def _exchanged(worth: Worth, allocation: Floats, budget: float, least: Floats, caps: Floats, costs: Floats) -> Floats:
    """Money moves from one factor to another, much at a time and then less, as long as that helps."""
    count = allocation.size
    if count == 1:
        return allocation
    value = float(worth(allocation[None, :])[0])
    step = max(budget / 6, float(costs.max()))
    while True:
        for _ in range(3 * count):
            choices = _exchanges(worth, allocation, step, budget, least, caps, costs)
            if not len(choices):
                break
            values = worth(choices)
            best = int(values.argmax())
            if values[best] <= value + _LEAST_GAIN:
                break
            allocation, value = choices[best], float(values[best])
        if step <= costs.max():
            return allocation
        step = max(step / 3, float(costs.max()))


def _exchanges(
    worth: Worth, allocation: Floats, step: float, budget: float, least: Floats, caps: Floats, costs: Floats
) -> Floats:
    """The most promising allocations that move about `step` of money from one factor to another."""
    unit = np.eye(allocation.size)
    given = np.minimum(np.maximum(1.0, np.round(step / costs)), allocation - least)
    takers = np.minimum(np.maximum(1.0, np.floor(step / costs)), caps - allocation)
    values = worth(np.concatenate([allocation - unit * given[:, None], allocation + unit * takers[:, None]]))
    keep = np.where(given >= 1, values[: allocation.size], -math.inf)
    gain = np.where(takers >= 1, values[allocation.size :], -math.inf)
    money = budget - math.fsum(allocation * costs)
    made = []
    for giver in np.argsort(-keep)[:_TRIED]:
        for taker in np.argsort(-gain)[: _TRIED + 1]:
            if giver == taker or not (math.isfinite(keep[giver]) and math.isfinite(gain[taker])):
                continue
            available = money + given[giver] * costs[giver] + _DUST * budget
            bought = min(math.floor(available / costs[taker]), caps[taker] - allocation[taker])
            if bought >= 1:
                made.append(allocation - unit[giver] * given[giver] + unit[taker] * bought)
    return np.array(made).reshape(-1, allocation.size)
