"""The method once more, written separately in plain Python, to hold the package against.

Loops, `math` and exact fractions; nothing is imported from the package. Slow on purpose, easy to check by eye.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations as choose

Demos = dict[str, int]


@dataclass(frozen=True)
class Row:
    """One measured point of a curve."""

    n: int
    score: float
    trials: int | None = None


@dataclass(frozen=True)
class Fit:
    log_a: float
    b: float

    def at(self, x: float) -> float:
        if self.log_a < 700:
            return 1 - math.exp(self.log_a) * math.pow(x, self.b)
        return 1 - math.exp(self.log_a + self.b * math.log(x))


def combine(names: Sequence[str], construction: str, group_size: int = 2) -> list[tuple[str, ...]]:
    """The combinations that get a curve, in declared order."""
    if construction == "one":
        return [(name,) for name in names]
    if construction == "pair":
        return [tuple(pair) for pair in choose(names, 2)]
    assert construction == "group"
    return [tuple(names[i : i + group_size]) for i in range(0, len(names), group_size)]


def point_sizes(size: int, points: int) -> list[int]:
    """n_k = size·(k-1)/(points-1), rounded (halves to the even neighbour), without repeats."""
    sizes: list[int] = []
    for k in range(points):
        n = round(Fraction(size * k, points - 1))
        if n not in sizes:
            sizes.append(n)
    return sizes


def largest_remainder(quotas: Sequence[Fraction], total: int) -> list[int]:
    """Whole numbers that sum to `total`; ties go to the earlier entry."""
    assert sum(quotas) == total
    whole = [math.floor(quota) for quota in quotas]
    order = sorted(range(len(quotas)), key=lambda i: (-(quotas[i] - whole[i]), i))
    for i in order[: total - sum(whole)]:
        whole[i] += 1
    return whole


def split(n: int, sizes: Sequence[int]) -> list[int]:
    """n demos taken from subsets of these sizes, in proportion."""
    return largest_remainder([Fraction(n * size, sum(sizes)) for size in sizes], n)


def training_sets(
    sizes: Mapping[str, int], nominal: int, combos: Iterable[tuple[str, ...]], points: int
) -> set[tuple[int, ...]]:
    """Distinct demos-per-factor vectors over all curves; a policy without any demonstration is none."""
    names = list(sizes)
    found: set[tuple[int, ...]] = set()
    for combo in combos:
        for n in point_sizes(sum(sizes[name] for name in combo), points):
            demos = dict(sizes)
            demos.update(zip(combo, split(n, [sizes[name] for name in combo]), strict=True))
            if nominal + sum(demos.values()) > 0:
                found.add(tuple(demos[name] for name in names))
    return found


def place(demos: Sequence[int], sizes: Mapping[str, int], combo: tuple[str, ...]) -> int | None:
    """n of a training set on a combination's curve; None if other factors are cut or its parts are uneven."""
    given = dict(zip(sizes, demos, strict=True))
    if any(given[name] < sizes[name] for name in sizes if name not in combo):
        return None
    n = sum(given[name] for name in combo)
    size = sum(sizes[name] for name in combo)
    off = [abs(Fraction(n * sizes[name], size) - given[name]) for name in combo]
    return n if max(off) < 1 else None


def pool(parts: Sequence[tuple[float, int | None]]) -> tuple[float, int | None]:
    """One policy's scores per condition as one score: the mean over all trials, or over the parts if unknown."""
    if any(trials is None for _, trials in parts):
        return math.fsum(score for score, _ in parts) / len(parts), None
    counts = [trials or 0 for _, trials in parts]
    weighted = math.fsum(score * count for (score, _), count in zip(parts, counts, strict=True))
    return weighted / sum(counts), sum(counts)


def fit(rows: Sequence[Row], base: int) -> Fit:
    """Ordinary least squares of log(1-S) on log(n + base), floored; flat where it would not fall."""
    kept = [row for row in rows if row.n + base > 0]
    assert len({row.n for row in kept}) >= 2
    xs = [math.log(row.n + base) for row in kept]
    ys = []
    for row in kept:
        floor = 1 / (2 * row.trials) if row.trials is not None else 0.001
        ys.append(math.log(max(1 - row.score, floor)))
    mean_x = math.fsum(xs) / len(xs)
    mean_y = math.fsum(ys) / len(ys)
    across = math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    spread = math.fsum((x - mean_x) ** 2 for x in xs)
    b = across / spread
    if b > -1e-12:  # a constant score is flat, whatever the last digit of its mean says
        return Fit(mean_y, 0.0)
    return Fit(mean_y - b * mean_x, b)


def slope(curve: Fit, size: int, base: int, budget: int) -> float:
    """P^K, the mean gain per new demonstration; exactly 0 for a flat curve."""
    if curve.b == 0:
        return 0.0
    return (curve.at(size + budget + base) - curve.at(size + base)) / budget


def included(slopes: Sequence[float], strategy: str) -> list[int]:
    """Which combinations take part, best first."""
    ranked = sorted(range(len(slopes)), key=lambda c: (-slopes[c], c))
    count = {"top": 1, "top-half": max(1, len(slopes) // 2), "all": len(slopes)}[strategy]
    return ranked[:count]


def allocate(
    sizes: Mapping[str, int],
    combos: Sequence[tuple[str, ...]],
    construction: str,
    slopes: Sequence[float],
    budget: int,
    strategy: str,
) -> Demos:
    """Whole demonstrations per factor."""
    chosen = included(slopes, strategy)
    exact = {c: Fraction(slopes[c]) for c in chosen}
    total = sum(exact.values(), Fraction(0))
    if total == 0:
        return equal(list(sizes), budget)
    quotas = dict.fromkeys(sizes, Fraction(0))
    for c in chosen:
        size = sum(sizes[name] for name in combos[c])
        for name in combos[c]:
            part = Fraction(1, 2) if construction == "pair" else Fraction(sizes[name], size)
            quotas[name] += budget * exact[c] / total * part
    return dict(zip(sizes, largest_remainder(list(quotas.values()), budget), strict=True))


def equal(names: Sequence[str], budget: int) -> Demos:
    """The same for every factor."""
    return dict(zip(names, largest_remainder([Fraction(budget, len(names))] * len(names), budget), strict=True))


def greedy(scores: Mapping[str, float], budget: int) -> Demos:
    """Everything to the factor with the lowest score; ties go to the earlier one."""
    worst = min(scores, key=lambda name: scores[name])
    return {name: budget if name == worst else 0 for name in scores}
