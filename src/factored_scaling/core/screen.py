"""The screening order: each policy leaves out half of the factors, so that each informs about every factor."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

# What thinned factors keep: nothing tells most. A pattern that comes up again keeps more.
DEPTHS = (Fraction(0), Fraction(1, 3), Fraction(2, 3))


def screening_order(count: int) -> Iterator[tuple[Fraction, ...]]:
    """The part of each factor's demonstrations that every policy keeps, policy after policy, without end.

    The first keeps everything. Each further one leaves out half of the factors: those that bring every factor nearest
    to being left out half of the time, and any two to being left out together as often as apart, given the policies
    before. Every prefix is a design, so one may stop anywhere. Whole numbers decide and ties go to the factors declared
    first: the order is the same on every machine.
    """
    yield (Fraction(1),) * count
    # sums over policies so far of z_i·z_j and of z_i, where z is −1 for a thinned factor and +1 for a kept one
    together = [[int(i != j) for j in range(count)] for i in range(count)]
    alone = [1] * count
    seen: Counter[tuple[int, ...]] = Counter()
    for number in itertools.count():
        half = max(1, (count + number % 2) // 2)
        signs = _next(half, together, alone)
        depth = DEPTHS[seen[tuple(signs)] % len(DEPTHS)]
        yield tuple(depth if sign < 0 else Fraction(1) for sign in signs)
        seen[tuple(signs)] += 1
        for i, sign in enumerate(signs):
            alone[i] += sign
            for j, other in enumerate(signs):
                together[i][j] += sign * other if i != j else 0


def _next(half: int, together: Sequence[Sequence[int]], alone: Sequence[int]) -> list[int]:
    """The signs of the next policy: those thinned least often at first, then the best swap of two until none helps.

    Least is Σ_{i<j} (together + z_i·z_j)² + N·Σ_i (alone + z_i)², of which only the mixed terms depend on z.
    """
    count = len(alone)
    cut = set(sorted(range(count), key=lambda i: (-alone[i], i))[:half])
    signs = [-1 if i in cut else 1 for i in range(count)]
    # half the derivative of the sum by every z
    pull = [sum(t * z for t, z in zip(row, signs, strict=True)) + count * alone[i] for i, row in enumerate(together)]
    while True:
        kept = [(into, pull[into]) for into in range(count) if signs[into] > 0]
        swaps = [
            min((pull[out] - own - 2 * row[into], out, into) for into, own in kept)
            for out, row in enumerate(together)
            if kept and signs[out] < 0
        ]
        change, out, into = min(swaps, default=(0, 0, 0))
        if change >= 0:
            return signs
        signs[out], signs[into] = 1, -1
        for i, row in enumerate(together):
            pull[i] += 2 * (row[out] - row[into])
