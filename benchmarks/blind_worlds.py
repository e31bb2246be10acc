"""Eleven families written without sight of the model, its families or their results: how good are decisions there?

fsc bench decisions --worlds benchmarks/blind_worlds.py --regime simulation,real \
    --methods equal,greedy,cubed-failure,power-law:top@group,power-law:all@group,response-model:auto@screen:6/8

By their regret nothing was tuned. Their coverage is no untouched evidence: how fast the skill that all trials share may
grow, and how far intervals are widened (decision 15), was settled on them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from factored_scaling.bench.worlds import Family, Floats, Response, Setting

Rng = np.random.Generator


def hill(setting: Setting, rng: Rng) -> Response:
    """Every factor saturates by Hill's law, with its own half-point, power, floor and ceiling."""
    n = setting.count
    half, power = _log_uniform(rng, 5, 200, n), rng.uniform(0.7, 2.0, n)
    floor, top = rng.uniform(0, 0.5, n), rng.uniform(0.7, 1.0, n)
    return lambda demos: np.asarray(floor + (top - floor) * demos**power / (demos**power + half**power))


def log_linear(setting: Setting, rng: Rng) -> Response:
    """Every doubling of a factor's data gives it so many points, of all data a few to all; no end in range."""
    n = setting.count
    now, slope = rng.uniform(0.1, 0.8, n), 0.15 * rng.beta(1, 1.5, n)
    general = rng.uniform(0, 0.06)

    def response(demos: Floats) -> Floats:
        own = np.log2((demos + 4) / (setting.demos + 4))
        whole = np.log2((_total(demos, setting) + 10) / (setting.total + 10))
        return np.clip(now + slope * own + general * whole, 0.01, 0.99)

    return response


def pooled(setting: Setting, rng: Rng) -> Response:
    """Two or three hidden skills (visual, spatial, …): data of any member repair the trials of all members."""
    n = setting.count
    groups = int(rng.integers(2, 4))
    member = rng.permutation(np.arange(n) % groups)
    same = (member[:, None] == member[None, :]).astype(float)
    worth = rng.uniform(0.4, 1.6, n)  # of a demonstration, to its group
    need = _log_uniform(rng, 15, 250, groups)[member] * same.sum(1) / 2
    without, rest = rng.uniform(0.3, 0.95, n), rng.uniform(0.02, 0.12, n)  # failures without data and with endless
    return lambda demos: np.asarray(1 - rest - (without - rest) * np.exp(-((demos * worth) @ same) / need))


def bottleneck(setting: Setting, rng: Rng) -> Response:
    """A trial is as good as the weakest skill: the varied factor's in full, the others' at a discount."""
    n = setting.count
    start, rate = rng.uniform(0.0, 0.5, n), _log_uniform(rng, 12, 150, n)
    top, relaxed = rng.uniform(0.8, 1.0, n), rng.uniform(0.3, 0.85)

    def response(demos: Floats) -> Floats:
        skill = top - (top - start) * np.exp(-demos / rate)
        return np.asarray(np.minimum(skill, 1 - relaxed * (1 - skill.min(-1, keepdims=True))))

    return response


def crowding(setting: Setting, rng: Rng) -> Response:
    """Limited capacity: own data count, and their share of all, so that other factors' data cost something."""
    n = setting.count
    scale, power = _log_uniform(rng, 8, 120, n), rng.uniform(0.6, 1.3, n)
    floor, top = rng.uniform(0, 0.4, n), rng.uniform(0.75, 1.0, n)
    harm = rng.uniform(0.15, 0.6)

    def response(demos: Floats) -> Floats:
        kept = np.minimum((setting.total / np.maximum(_total(demos, setting), 1.0)) ** harm, 1.5)
        return np.asarray(floor + (top - floor) * -np.expm1(-((demos * kept / scale) ** power)))

    return response


def two_stage(setting: Setting, rng: Rng) -> Response:
    """First the task itself is learnt, from all data alike; a factor's own data matter on what is left."""
    n = setting.count
    middle, steep = setting.total * float(_log_uniform(rng, 0.4, 1.3)), rng.uniform(1.5, 4.0)
    best = rng.uniform(0.85, 1.0)
    robust, rate = rng.uniform(0.2, 0.95, n), _log_uniform(rng, 15, 150, n)

    def response(demos: Floats) -> Floats:
        total = _total(demos, setting)
        base = best * total**steep / (total**steep + middle**steep)
        return np.asarray(base * (1 - (1 - robust) * np.exp(-demos / rate)))

    return response


def dominant(setting: Setting, rng: Rng) -> Response:
    """One factor has nearly all failures; in half of the worlds a second one fails as much and nothing helps it."""
    n = setting.count
    worst, second = rng.permutation(n)[:2]
    now, slope = rng.uniform(0.8, 0.97, n), rng.uniform(0.0, 0.05, n)
    fail, rate, shape = rng.uniform(0.7, 1.0), float(_log_uniform(rng, 20, 120)), rng.uniform(0.7, 1.8)
    lost = rng.uniform(0.05, 0.4) if rng.random() < 0.5 else None

    def response(demos: Floats) -> Floats:
        success = np.asarray(now - slope * np.exp(-demos / 15.0))
        success[..., worst] = 0.96 - (fail - 0.04) * np.exp(-((demos[..., worst] / rate) ** shape))
        if lost is not None:
            success[..., second] = lost
        return success

    return response


def threshold(setting: Setting, rng: Rng) -> Response:
    """Nothing until some number of demonstrations between 8 and 120, then quickly everything."""
    n = setting.count
    where, steep = _log_uniform(rng, 8, 120, n), rng.uniform(3.0, 9.0, n)
    floor, top = rng.uniform(0.0, 0.4, n), rng.uniform(0.7, 0.98, n)
    return lambda demos: np.asarray(floor + (top - floor) / (1 + (where / np.maximum(demos, 1e-6)) ** steep))


def combined(setting: Setting, rng: Rng) -> Response:
    """A trial of a factor often varies a second one too and needs both skills."""
    n = setting.count
    both = rng.uniform(0.3, 0.9)
    partner = rng.dirichlet(np.full(n, 0.7), n) * (1 - np.eye(n))
    partner /= partner.sum(1, keepdims=True)
    start, rate, top = rng.uniform(0.1, 0.7, n), _log_uniform(rng, 10, 150, n), rng.uniform(0.85, 1.0, n)

    def response(demos: Floats) -> Floats:
        skill = top - (top - start) / (1 + demos / rate)
        return np.asarray(skill * (1 - both + both * (skill @ partner.T)))

    return response


def coverage(setting: Setting, rng: Rng) -> Response:
    """A factor is a number of values (textures, places) of unequal frequency; one works once it was seen enough."""
    n = setting.count
    values = np.round(_log_uniform(rng, 3, 300, n)).astype(int)
    tail, seen, unseen = rng.uniform(0.2, 1.3, n), rng.uniform(0.75, 0.98, n), rng.uniform(0.0, 0.6, n)
    wanted = rng.integers(1, 4, n)  # demonstrations of a value until it works
    shares = [np.arange(1, count + 1.0) ** -power for count, power in zip(values, tail, strict=True)]
    shares = [share / share.sum() for share in shares]

    def response(demos: Floats) -> Floats:
        success = np.empty(np.shape(demos))
        for i, share in enumerate(shares):
            mean = demos[..., i, None] * share
            term = missed = np.exp(-mean)  # how often a value was seen is Poisson
            for k in range(1, wanted[i]):
                term = term * mean / k
                missed = missed + term
            success[..., i] = seen[i] - (seen[i] - unseen[i]) * (missed * share).sum(-1)
        return success

    return response


def one_way(setting: Setting, rng: Rng) -> Response:
    """Some factors' data teach some others and learn nothing from them (camera pose repairs lighting)."""
    n = setting.count
    links = (rng.random((n, n)) < 0.25) * rng.uniform(0.2, 1.0, (n, n))
    np.fill_diagonal(links, rng.uniform(0.1, 1.0, n))
    scale, power = _log_uniform(rng, 10, 200, n), rng.uniform(0.5, 1.2, n)
    without, rest = rng.uniform(0.4, 1.0, n), rng.uniform(0.0, 0.15, n)
    return lambda demos: np.asarray(1 - rest - (without - rest) * (1 + demos @ links.T / scale) ** -power)


def _log_uniform(rng: Rng, low: float, high: float, size: int | None = None) -> Any:
    return np.exp(rng.uniform(np.log(low), np.log(high), size))


def _total(demos: Floats, setting: Setting) -> Floats:
    return np.asarray(demos.sum(-1, keepdims=True) + setting.nominal)


families = [
    Family("hill", hill),
    Family("log-linear", log_linear),
    Family("pooled", pooled),
    Family("bottleneck", bottleneck),
    Family("crowding", crowding),
    Family("two-stage", two_stage),
    Family("dominant", dominant),
    Family("threshold", threshold),
    Family("combined", combined),
    Family("coverage", coverage),
    Family("one-way", one_way),
]
