"""Families unlike the model, to see how far its intervals must be widened. Not for tuning, not for reporting.

fsc bench decisions --worlds benchmarks/calibration_worlds.py --regime simulation,real \
    --methods equal,response-model:auto@screen:6/8
"""

from __future__ import annotations

import numpy as np

from factored_scaling.bench.worlds import Family, Floats, Response, Setting

KNOTS = np.array([0.0, 8.0, 20.0, 40.0, 70.0, 110.0, 160.0, 10_000.0])


def wandering(setting: Setting, rng: np.random.Generator) -> Response:
    """Every factor's success rises along a broken line of its own, in unforeseeable steps; a part of it helps all."""
    count = setting.count
    rises = rng.gamma(0.5, 1.0, (count, len(KNOTS) - 1)) * np.exp(-0.3 * np.arange(len(KNOTS) - 1))
    lines = np.concatenate([np.zeros((count, 1)), np.cumsum(rises, axis=1)], axis=1)
    first, top = rng.uniform(0.0, 0.7, count), rng.uniform(0.7, 1.0, count)
    lines = first[:, None] + (top - first)[:, None] * lines / lines[:, -1:]
    spill = rng.uniform(0.0, 0.4)

    def response(demos: Floats) -> Floats:
        own = np.stack([np.interp(demos[..., i], KNOTS, lines[i]) for i in range(count)], axis=-1)
        return np.asarray((1 - spill) * own + spill * own.mean(axis=-1, keepdims=True))

    return response


def entangled(setting: Setting, rng: np.random.Generator) -> Response:
    """Trials of a factor need two factors' data at once: as good as the scarcer of the two lets them be."""
    count = setting.count
    partner = rng.permutation(count)
    need = setting.demos * np.exp(rng.normal(0.5, 0.8, count))
    ceiling = rng.uniform(0.6, 1.0, count)
    soft = rng.uniform(1.0, 4.0)

    def response(demos: Floats) -> Floats:
        ready = demos / (demos + need)
        both = ((ready**-soft + ready[..., partner] ** -soft) / 2 + 1e-9) ** (-1 / soft)
        return np.asarray(ceiling * np.where(demos > 0, both, 0.0))

    def safe(demos: Floats) -> Floats:
        return response(np.maximum(demos, 1e-3))

    return safe


families = [Family("wandering", wandering), Family("entangled", entangled)]
