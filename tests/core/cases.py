"""Random studies with measured rows, for comparing the package with the reference."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from tests.core import reference

from factored_scaling import StudySpec


@dataclass(frozen=True)
class Case:
    spec: StudySpec
    rows: list[dict[str, Any]]
    # what each curve should be fitted to, worked out here and not by the package
    points: list[list[reference.Row]]
    budget: int


def case(number: int) -> Case:
    rng = random.Random(number)
    spec = _spec(rng)
    combos = [combination.factors for combination in spec.combinations()]
    laws = [_law(rng) for _ in combos]
    if rng.random() < 0.2:  # ties between curves
        laws = [laws[rng.randrange(len(laws))] for _ in laws]
    if rng.random() < 0.1:  # nothing to tell from any curve
        laws = [("constant", rng.random()) for _ in laws]
    build = _by_combination if rng.random() < 0.5 else _by_demos
    rows, points = build(rng, spec, combos, laws)
    rng.shuffle(rows)
    return Case(spec, rows, points, rng.choice([1, 2, 3, 20, 100, 500, rng.randint(1, 500)]))


def _spec(rng: random.Random) -> StudySpec:
    count = rng.randint(1, 8)
    names = [f"factor_{index}" for index in range(count)]
    rng.shuffle(names)
    sizes = [30] * count if rng.random() < 0.3 else [rng.randint(1, 60) for _ in names]
    construction = rng.choice(["one", "group"] + ["pair"] * (count > 1))
    nominal = rng.choice([0, 0, rng.randint(1, 50)])
    groups = None
    if construction == "group" and rng.random() < 0.4:
        mixed = rng.sample(names, count)
        cut = sorted(rng.sample(range(1, count), rng.randint(0, count - 1)))
        groups = [mixed[start:end] for start, end in zip([0, *cut], [*cut, count], strict=True)]
    return StudySpec(
        factors=dict(zip(names, sizes, strict=True)),
        nominal=nominal,
        construction=construction,
        groups=groups,
        group_size=rng.choice([2, 3]),
        points=rng.randint(3, 6),
    )


def _law(rng: random.Random) -> tuple[str, float]:
    return rng.choice(["rising", "rising", "rising", "constant", "falling", "perfect", "zero", "noise"]), rng.random()


def _score(rng: random.Random, law: tuple[str, float], share: float, trials: int | None) -> float:
    kind, level = law
    if kind == "perfect":
        return 1.0
    if kind == "zero":
        return 0.0
    if kind == "constant":
        return level
    if kind == "noise":
        score = rng.random()
    else:
        trend = 0.5 * share if kind == "rising" else -0.5 * share
        score = min(1.0, max(0.0, 0.3 + 0.4 * level + trend + rng.gauss(0, 0.02)))
    return round(score * trials) / trials if trials else score


def _trials(rng: random.Random, mode: str) -> int | None:
    known = rng.choice([1, 6, 20, 600])
    return known if mode == "known" or (mode == "mixed" and rng.random() < 0.5) else None


def _usable(spec: StudySpec, combo: tuple[str, ...], rows: list[reference.Row]) -> bool:
    base = spec.total - sum(spec.sizes[name] for name in combo)
    return len({row.n for row in rows if row.n + base > 0}) >= 2


def _by_combination(
    rng: random.Random, spec: StudySpec, combos: list[tuple[str, ...]], laws: list[tuple[str, float]]
) -> tuple[list[dict[str, Any]], list[list[reference.Row]]]:
    mode, repeats = rng.choice(["known", "unknown", "mixed"]), rng.choice([1, 1, 2, 3])
    seeded = rng.random() < 0.5
    rows: list[dict[str, Any]] = []
    points: list[list[reference.Row]] = []
    for combo, law in zip(combos, laws, strict=True):
        size = sum(spec.sizes[name] for name in combo)
        own = []
        for n in reference.point_sizes(size, spec.points):
            for repeat in range(repeats):
                trials = _trials(rng, mode)
                score = _score(random.Random(f"{law}{n / size}{repeat}"), law, n / size, trials)
                row = {"combination": "+".join(rng.sample(combo, len(combo))), "n": n, "score": score}
                if trials is not None:
                    row["trials"] = trials
                if seeded:
                    row["seed"] = repeat
                rows.append(row)
                own.append(reference.Row(n, score, trials))
        points.append(own)
    return rows, points


def _by_demos(
    rng: random.Random, spec: StudySpec, combos: list[tuple[str, ...]], laws: list[tuple[str, float]]
) -> tuple[list[dict[str, Any]], list[list[reference.Row]]]:
    mode, seeds, conditions = rng.choice(["known", "unknown", "mixed"]), rng.choice([1, 2, 3]), rng.random() < 0.4
    declared = spec.sizes
    names = list(declared)
    policies: dict[tuple[int, ...], tuple[tuple[str, float], float]] = {}
    for combo, law in zip(combos, laws, strict=True):
        sizes = [declared[name] for name in combo]
        for n in reference.point_sizes(sum(sizes), spec.points):
            demos = dict(declared)
            demos.update(zip(combo, reference.split(n, sizes), strict=True))
            policies.setdefault(tuple(demos.values()), (law, n / sum(sizes)))
    rows: list[dict[str, Any]] = []
    points: list[list[reference.Row]] = [[] for _ in combos]
    for demos_vector, (law, share) in policies.items():
        places = [reference.place(demos_vector, declared, combo) for combo in combos]
        for seed in range(seeds):
            parts = []
            where: list[str | None] = [*names] if conditions else [None]
            for condition in where:
                trials = _trials(rng, mode)
                score = _score(rng, law, share, trials)
                parts.append((score, trials))
                row: dict[str, Any] = {"demos": dict(zip(names, demos_vector, strict=True)), "score": score}
                row |= {"seed": seed, "trials": trials, "factor": condition}
                rows.append(row)
            pooled = reference.pool(parts)
            for at, own in zip(places, points, strict=True):
                if at is not None:
                    own.append(reference.Row(at, *pooled))
    return rows, points


def fittable(made: Case) -> bool:
    """Whether every curve of the case has two usable sizes."""
    combos = [combination.factors for combination in made.spec.combinations()]
    return all(_usable(made.spec, combo, rows) for combo, rows in zip(combos, made.points, strict=True))
