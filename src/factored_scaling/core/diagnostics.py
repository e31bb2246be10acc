"""Checks of a fitted curve, each reported in one sentence."""

from __future__ import annotations

from dataclasses import dataclass

from factored_scaling.core.curves import Curve, fit_power_law
from factored_scaling.errors import NotEnoughData

SATURATED_GAIN = 0.01  # a predicted gain below one point of success is not worth a collection day
CLEAR_FALL = 0.05  # in score, over the whole range
LEAST_SCATTER = 0.001  # in score; less is rounding


@dataclass(frozen=True, slots=True)
class BackTest:
    """The score at the largest n, predicted from the smaller ones, and measured."""

    n: int
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        return self.predicted - self.measured


@dataclass(frozen=True, slots=True)
class Flag:
    """One thing to know. `kind` is for programs, `sentence` for people."""

    kind: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Residuals (measured − fitted, in the order of the points), the back-test where possible, and the flags."""

    residuals: tuple[float, ...]
    back_test: BackTest | None
    flags: tuple[Flag, ...]


def diagnose(curve: Curve, budget: int) -> Diagnosis:
    """Check one curve for a budget of `budget` demonstrations."""
    points, base = curve.points, curve.combination.base
    residuals = tuple(s - curve.at(n) if n + base > 0 else 0.0 for n, s in zip(points.n, points.score, strict=True))
    test = back_test(curve)
    return Diagnosis(residuals, test, tuple(_flags(curve, budget, residuals, test)))


def back_test(curve: Curve) -> BackTest | None:
    """Fit on all but the largest n and predict it; None where too few sizes are left."""
    largest = max(curve.points.n)
    try:
        earlier = fit_power_law(curve.points.without(largest))
    except NotEnoughData:
        return None
    measured = [s for n, s in zip(curve.points.n, curve.points.score, strict=True) if n == largest]
    return BackTest(largest, earlier.at(largest), sum(measured) / len(measured))


def _flags(curve: Curve, budget: int, residuals: tuple[float, ...], test: BackTest | None) -> list[Flag]:
    label, size = curve.combination.label, curve.combination.size
    now, later = curve.at(size), curve.at(size + budget)
    flags = []
    fall = _ends(curve)
    if curve.b == 0.0 and fall >= CLEAR_FALL:
        flags.append(
            Flag(
                "falling",
                f"Scores of {label} fall by {fall:.0%} as demos are added, so the curve is flat; train a second seed.",
            )
        )
    elif curve.b == 0.0:
        flags.append(Flag("flat", f"Scores of {label} do not rise with more demos; the curve predicts no gain."))
    elif now >= 0.95:
        flags.append(Flag("saturated", f"{label} already scores {now:.0%}; there is little left to gain."))
    elif later - now < SATURATED_GAIN:
        flags.append(
            Flag(
                "saturated",
                f"The curve of {label} predicts a gain of less than {SATURATED_GAIN:.0%} for {budget} more demos.",
            )
        )
    if budget > size:
        flags.append(
            Flag(
                "far",
                f"{budget} more demos is {budget / size:.1f} times the {size} that the curve of {label} was fitted on; "
                "treat its prediction as a rough extrapolation.",
            )
        )
    scatter = (sum(r * r for r in residuals) / max(1, len(residuals) - 2)) ** 0.5
    if len(residuals) > 2 and curve.b < 0 and scatter > max(later - now, LEAST_SCATTER):
        what = f"Points of {label} scatter by {100 * scatter:.1f} points of success around the curve"
        flags.append(Flag("noisy", f"{what}, more than its predicted gain of {100 * (later - now):.1f}."))
    if test is not None and abs(test.error) >= 0.1:
        side = "over" if test.error > 0 else "under"
        flags.append(
            Flag(
                "back-test",
                f"Without its last point the curve of {label} would have {side}estimated it by {abs(test.error):.0%} "
                f"({test.predicted:.0%} predicted, {test.measured:.0%} measured).",
            )
        )
    return flags


def _ends(curve: Curve) -> float:
    """How much the mean score falls from the smallest size to the largest."""
    base = curve.combination.base
    pairs = [(n, s) for n, s in zip(curve.points.n, curve.points.score, strict=True) if n + base > 0]
    low, high = min(n for n, _ in pairs), max(n for n, _ in pairs)
    first = [s for n, s in pairs if n == low]
    last = [s for n, s in pairs if n == high]
    return sum(first) / len(first) - sum(last) / len(last)
