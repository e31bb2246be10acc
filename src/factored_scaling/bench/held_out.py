"""Families of other kinds, for reporting only: no rule's constants were chosen by looking at them."""

from __future__ import annotations

import numpy as np

from factored_scaling.bench.worlds import Family, Floats, Response, Setting

Rng = np.random.Generator


def rough(setting: Setting, rng: Rng) -> Response:
    """Smooth responses of no particular form: random ramps over log n, mostly rising, mixed by a nonlinearity."""
    count, ramps = setting.count, 6
    knees = np.log1p(setting.demos) + rng.normal(0.8, 1.0, (count, ramps))
    widths = rng.uniform(0.2, 0.9, (count, ramps))
    heights = rng.gamma(0.5, 1.0, (count, ramps)) * np.where(rng.random((count, ramps)) < 0.1, -0.4, 1.0)
    importance = rng.gamma(0.6, 1.0, count)
    own = rng.uniform(0.3, 1.0)
    transfer = rng.gamma(0.3, 1.0, (count, count)) / count
    level = rng.normal(-0.5, 1.5, count) + rng.normal(0.0, 0.8)

    def response(demos: Floats) -> Floats:
        along = np.log1p(demos)[..., None]
        risen = importance * (heights / (1.0 + np.exp(-(along - knees) / widths))).sum(axis=-1)
        return np.asarray(1.0 / (1.0 + np.exp(-(level + own * risen + (1.0 - own) * risen @ transfer))))

    return response


def steps(setting: Setting, rng: Rng) -> Response:
    """Learners that get it suddenly: each factor's trials improve in one or two jumps at some number of demos."""
    count = setting.count
    jumps = rng.uniform(0.1, 0.6, (count, 2)) * (rng.random((count, 2)) < [0.8, 0.5])
    at = setting.demos * np.exp(rng.normal(0.5, 0.7, (count, 2)))
    sharp = rng.uniform(3.0, 10.0)
    start = rng.beta(1.5, 2.0, count)
    helped = rng.uniform(0.0, 0.2)

    def response(demos: Floats) -> Floats:
        effective = (1.0 - helped) * demos + helped * demos.mean(axis=-1, keepdims=True)
        passed = 1.0 / (1.0 + (at / effective[..., None].clip(min=1e-9)) ** sharp)
        return np.asarray(start + (1.0 - start) * (jumps * passed).sum(axis=-1).clip(max=0.95))

    return response


def dilution(setting: Setting, rng: Rng) -> Response:
    """Training of fixed length: more data of one kind means fewer passes over every other kind."""
    count = setting.count
    thinned = rng.uniform(0.2, 0.8)
    rate = setting.demos * np.exp(rng.normal(0.6, 0.9, count))
    hardness = rng.beta(0.8, 0.8, count)
    floor = rng.uniform(0.0, 0.15, count)
    general = rng.uniform(0.0, 0.4)

    def response(demos: Floats) -> Floats:
        total = demos.sum(axis=-1, keepdims=True) + setting.nominal
        seen = demos * (setting.total / total.clip(min=1.0)) ** thinned
        learned = 1.0 - hardness * np.exp(-seen / rate) - floor
        together = 1.0 - general * np.exp(-total / setting.total)
        return np.asarray(learned * together)

    return response


def skills(setting: Setting, rng: Rng) -> Response:
    """Hidden skills: every factor's data teach several, every factor's trials need several; the two need not agree."""
    count, hidden = setting.count, int(rng.integers(2, setting.count + 1))
    agree = rng.uniform(0.0, 1.0)
    taught = rng.dirichlet(np.full(hidden, 0.4), count)
    needed = agree * taught + (1.0 - agree) * rng.dirichlet(np.full(hidden, 0.4), count)
    scale = setting.demos * np.exp(rng.normal(0.7, 0.8, hidden))
    power = rng.uniform(0.6, 2.0, hidden)
    lowest, highest = rng.uniform(0.0, 0.4, hidden), rng.uniform(0.6, 1.0, hidden)

    def response(demos: Floats) -> Floats:
        practice = (demos @ taught / scale) ** power
        mastery = lowest + (highest - lowest) * practice / (1.0 + practice)
        return np.asarray(np.exp(np.log(mastery.clip(min=1e-6)) @ (1.5 * needed.T)))

    return response


HELD_OUT = (
    Family("rough", rough),
    Family("steps", steps),
    Family("dilution", dilution),
    Family("skills", skills),
)
