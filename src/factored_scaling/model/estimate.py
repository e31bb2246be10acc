"""Posterior estimates: a mean with central intervals of any level."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from factored_scaling.core.checks import percentage, real, shown
from factored_scaling.core.curves import central
from factored_scaling.errors import InvalidInput
from factored_scaling.model.prior import Floats

LEVELS = (0.5, 0.8, 0.95)
SHOWN = 0.95  # level of the intervals that are printed and drawn
# Predicted changes may be wrong by this share of themselves (one standard deviation) beyond what the samples say: no
# real response is exactly one of the model's.
MODEL_ERROR = 0.2


@dataclass(frozen=True)
class Estimate:
    """The posterior of one number, usually a success rate.

    `samples` are those that intervals are taken from. For predictions they are widened to allow ±20% error in the
    predicted change; their mean stays.
    """

    mean: float
    samples: Floats = field(compare=False, repr=False)
    # ends of the 95% interval, where they are known already
    ends: tuple[float, float] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, samples: Floats, change: Floats | None = None, bounds: tuple[float, float] = (0.0, 1.0)) -> Estimate:
        """From posterior samples; for a prediction, `change` is how far each lies from what was measured."""
        return cls.each(samples[None], None if change is None else change[None], bounds)[0]

    @classmethod
    def each(
        cls, samples: Floats, change: Floats | None = None, bounds: tuple[float, float] = (0.0, 1.0)
    ) -> tuple[Estimate, ...]:
        """The estimates of several numbers, one per row of `samples`."""
        mean = samples.mean(1, keepdims=True)
        if change is not None:
            variance = np.maximum(samples.var(1, keepdims=True), 1e-12)
            wider = np.sqrt(1 + (MODEL_ERROR * change.mean(1, keepdims=True)) ** 2 / variance)
            samples = np.clip(mean + wider * (samples - mean), *bounds)
        low, high = central(samples, SHOWN)
        return tuple(map(cls, mean[:, 0].tolist(), samples, zip(low.tolist(), high.tolist(), strict=True)))

    def interval(self, level: float = SHOWN) -> tuple[float, float]:
        """The central interval that holds the number with probability `level`."""
        share = real(level)
        if share is None or not 0 < share < 1:
            hint = "" if share is None else percentage(share)
            raise InvalidInput(f"a level must lie between 0 and 1, not {shown(level)}", where="level", hint=hint)
        low, high = central(self.samples, share)
        return float(low), float(high)

    @cached_property
    def intervals(self) -> dict[float, tuple[float, float]]:
        """Intervals of the levels that benchmarks check."""
        return {level: self.interval(level) for level in LEVELS}

    @cached_property
    def _shown(self) -> tuple[float, float]:
        return self.ends if self.ends is not None else self.interval(SHOWN)

    @property
    def low(self) -> float:
        """Lower end of the 95% interval."""
        return self._shown[0]

    @property
    def high(self) -> float:
        """Upper end of the 95% interval."""
        return self._shown[1]

    def to_mapping(self) -> dict[str, Any]:
        """Plain data, as in JSON."""
        return {"mean": self.mean, "low": self.low, "high": self.high}
