"""The families of worlds that rules may be tuned on. Priors were set before any rule was, and stay."""

from __future__ import annotations

import numpy as np

from factored_scaling.bench.worlds import Family, Floats, Response, Setting

Rng = np.random.Generator


def power_law(setting: Setting, rng: Rng) -> Response:
    """The paper's law: failure is a product of powers of (n + base), per group of two or per factor.

    All trials move together. Some factors' trials fail more often than others', which says nothing about their data.
    """
    count = setting.count
    member = np.arange(count) // 2 if rng.random() < 0.5 else np.arange(count)
    curves = int(member[-1]) + 1
    belongs = (member[:, None] == np.arange(curves)).astype(float)
    size = setting.demos * belongs.sum(axis=0)
    base = setting.total - size
    exponent = rng.gamma(0.6, 0.45, curves) * (rng.random(curves) > 0.15)
    failure = rng.uniform(0.15, 0.85)
    steep = exponent[member] / max(exponent.max(), 1e-9)
    share = np.exp(0.35 * rng.standard_normal(count) + rng.uniform(0.0, 0.8) * steep)
    share /= share.mean()

    def response(demos: Floats) -> Floats:
        log_ratio = np.log((demos @ belongs + base).clip(min=1.0) / setting.total)
        together = failure * np.exp(-(log_ratio @ exponent))
        return np.asarray(1.0 - np.minimum(1.0, together[..., None] * share))

    return response


def mechanistic(setting: Setting, rng: Rng) -> Response:
    """Trials of factor j need the base skill and robustness to j; data of similar factors help a little."""
    return _chain(setting, rng, _repairs(setting, rng), _floors(setting, rng, 0.0))


def irreducible(setting: Setting, rng: Rng) -> Response:
    """As `mechanistic`, but 40% of the factors fail in a way that no data repair."""
    return _chain(setting, rng, _repairs(setting, rng), _floors(setting, rng, 0.4))


def shifted(setting: Setting, rng: Rng) -> Response:
    """The stress case: data of factor i repair the trials of factor i + 1."""
    return _chain(setting, rng, np.roll(_repairs(setting, rng), 1, axis=1), _floors(setting, rng, 0.0))


def saturating(setting: Setting, rng: Rng) -> Response:
    """Success rises to a ceiling, exponentially or logistically in log n; some factors have no effect, some harm.

    Kinds of factors: ordinary; without effect (no trouble, and their data do nothing); irreducible (trouble that data
    do not repair); harmful (their data cost the other trials something).
    """
    count = setting.count
    kind = rng.choice(4, size=count, p=[0.5, 0.25, 0.12, 0.13])
    ordinary, idle, stuck, harmful = (kind == k for k in range(4))
    ceiling = np.where(stuck, rng.uniform(0.3, 0.8, count), rng.uniform(0.75, 1.0, count))
    start = np.where(idle | stuck, ceiling, ceiling * rng.beta(1.0, 1.5, count))
    scale = setting.demos * np.exp(rng.normal(1.0, 0.6, count))
    power = rng.uniform(1.0, 2.5)
    logistic = rng.random() < 0.5
    spill = rng.uniform(0.0, 0.25)  # part of every factor's progress that all trials share
    reach = np.where(harmful, rng.uniform(0.03, 0.15, count), 0.0)
    helps = np.where(ordinary | harmful, 1.0, 0.0) * rng.uniform(0.0, 1.0, count)

    def risen(demos: Floats) -> Floats:
        ratio = demos / scale
        raised = ratio**power
        return np.asarray(raised / (1.0 + raised) if logistic else -np.expm1(-ratio))

    def response(demos: Floats) -> Floats:
        progress = risen(demos)
        shared = (progress * helps).sum(axis=-1, keepdims=True) / count
        harm = (progress * reach).sum(axis=-1, keepdims=True) - progress * reach
        own = (1.0 - spill) * progress + spill * shared
        return np.asarray((start + (ceiling - start) * own) * (1.0 - harm))

    return response


def _repairs(setting: Setting, rng: Rng) -> Floats:
    """Row i, column j: what a demonstration of factor i is worth for the trials of factor j."""
    count = setting.count
    transfer = rng.uniform(0.0, 0.35) * rng.random((count, count)) * (rng.random((count, count)) < 0.5)
    np.fill_diagonal(transfer, 1.0)
    return transfer


def _floors(setting: Setting, rng: Rng, part: float) -> Floats:
    """What is left of each factor's own failures with endless data."""
    count = setting.count
    floors = rng.uniform(0.0, 0.08, count)
    stuck = rng.permutation(count)[: round(part * count)]
    floors[stuck] = rng.uniform(0.21, 0.5, stuck.size)
    return floors


def _chain(setting: Setting, rng: Rng, repairs: Floats, floors: Floats) -> Response:
    """Success on factor j: base skill, times robustness to j, times a little of the robustness to all others."""
    count = setting.count
    stuck = floors > 0.2
    # failures without data, and how they fall: (1 + n/scale)^−power
    easy = rng.random(count) < 0.65
    troubled = np.where(easy, rng.uniform(0.0, 0.15, count), rng.uniform(0.3, 1.0, count))
    first = np.where(stuck, floors + 0.05 * rng.random(count), troubled)
    scale = setting.demos * np.exp(rng.normal(1.0, 0.8, count))
    power = rng.uniform(0.7, 2.5, count)
    unskilled, practice, skill_power = (
        rng.uniform(0.0, 0.4),
        setting.total * rng.uniform(0.1, 0.6),
        rng.uniform(0.2, 0.7),
    )
    bystander = rng.uniform(0.0, 0.15)

    def response(demos: Floats) -> Floats:
        total = demos.sum(axis=-1, keepdims=True) + setting.nominal
        skill = 1.0 - unskilled * (1.0 + total / practice) ** -skill_power
        effective = demos @ repairs
        failure = floors + (first - floors) * (1.0 + effective / scale) ** -power
        log_others = np.log1p(-bystander * failure)
        others = np.exp(log_others.sum(axis=-1, keepdims=True) - log_others)
        return np.asarray(skill * (1.0 - failure) * others)

    return response


TUNING = (
    Family("power-law", power_law, "tuning"),
    Family("mechanistic", mechanistic, "tuning"),
    Family("saturating", saturating, "tuning"),
    Family("irreducible", irreducible, "tuning"),
    Family("shifted", shifted, "tuning"),
)
