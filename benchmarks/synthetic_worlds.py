"""Nine families of synthetic worlds, stress tests for rules: five that were tuned on, four kept apart for reporting.

fsc bench decisions --worlds benchmarks/synthetic_worlds.py --regime simulation,real

What families draw from was set before any rule was, and stays; no rule's constants were chosen by looking at the four.
"""

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
HELD_OUT = (
    Family("rough", rough),
    Family("steps", steps),
    Family("dilution", dilution),
    Family("skills", skills),
)
families = [*TUNING, *HELD_OUT]
