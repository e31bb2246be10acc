"""Results: measured scores as rows, and how rows become the points of each curve."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from factored_scaling.core.checks import LARGEST, percentage, real, shown, whole
from factored_scaling.core.design import demos_at, split
from factored_scaling.core.spec import Combination, StudySpec
from factored_scaling.core.trials import ALL_FACTORS
from factored_scaling.errors import InvalidInput, UnknownFactor, UnknownName, suggest

Conditions = frozenset[tuple[str, ...]]  # what was varied in trials
# of results.csv; the general form has `demos:NAME` instead of the first two
COLUMNS = ("combination", "n", "score", "trials", "seed", "factor")
_ROUNDED = 0.005  # of scores in a file
_KEYS = dict.fromkeys(("demos", *COLUMNS))


@dataclass(frozen=True, slots=True)
class Row:
    """One measured score. The training set is named either by `demos` or by `combination` and `n`."""

    score: float
    demos: Mapping[str, int] | None = None
    combination: tuple[str, ...] | None = None
    n: int | None = None
    trials: int | None = None
    seed: int | None = None
    # the factors varied in the evaluation; () means the score is over the whole target distribution
    factor: tuple[str, ...] = ()
    # where the row stands, for messages
    place: str = ""


@dataclass(frozen=True, slots=True)
class Results:
    """Measured scores, checked for everything that can be checked without the study."""

    rows: tuple[Row, ...] = ()

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]], places: Sequence[str] | None = None) -> Results:
        """Rows as plain mappings: `score`, and `demos` or `combination` with `n`; `trials`, `seed`, `factor` optional.

        >>> Results.from_rows([{"combination": "camera_pose+lighting", "n": 20, "score": 0.4, "trials": 600}]).rows[0].n
        20
        """
        made = []
        for index, row in enumerate(rows):
            place = places[index] if places is not None else f"row {index + 1}"
            if not isinstance(row, Mapping):
                hint = 'pass df.to_dict("records")' if hasattr(rows, "to_dict") else ""
                raise InvalidInput(f"expected a mapping, not {shown(row)}", where=place, hint=hint)
            made.append(_row(row, place))
        return cls(tuple(made))


@dataclass(frozen=True, slots=True)
class Policy:
    """All that was measured of one trained policy: its training set and its score over the target distribution."""

    demos: tuple[int, ...]
    own: int | None  # the combination it was reported under, if any
    seed: int | None
    score: float
    trials: int | None
    # the conditions whose scores were pooled; none where it came as one score
    conditions: Conditions = frozenset()


@dataclass(frozen=True, slots=True)
class CurvePoints:
    """What one curve is fitted to: a score at each `n`; repeats and seeds are separate entries."""

    combination: Combination
    n: tuple[int, ...]
    score: tuple[float, ...]
    trials: tuple[int | None, ...]

    def without(self, n: int) -> CurvePoints:
        """The points at other sizes than `n`."""
        keep = [index for index, value in enumerate(self.n) if value != n]
        return CurvePoints(
            self.combination,
            tuple(self.n[index] for index in keep),
            tuple(self.score[index] for index in keep),
            tuple(self.trials[index] for index in keep),
        )


def curve_points(spec: StudySpec, results: Results) -> tuple[tuple[CurvePoints, ...], tuple[str, ...]]:
    """The points of every curve, in declared order, and warnings about rows that serve no curve.

    A row reported under a combination belongs to that curve. The full-data policy is the same for every curve, so a
    curve for which it was not reported takes it from the others. A row given by `demos` belongs to every curve on
    which its training set lies.
    """
    policies = _policies(spec, results)
    combinations = spec.combinations()
    sizes = spec.sizes
    full = tuple(sizes.values())
    sets = dict.fromkeys(policy.demos for policy in policies)
    used: set[int] = set()
    lacking: dict[int, Conditions] = {}
    curves = []
    for index, combination in enumerate(combinations):
        at = {demos: _place(sizes, combination, dict(zip(sizes, demos, strict=True))) for demos in sets}
        places = [at[policy.demos] for policy in policies]
        own = [n for n, policy in enumerate(policies) if policy.own in (None, index) and places[n] is not None]
        if not any(policies[number].demos == full for number in own):
            lent: dict[tuple[int | None, float, int | None], int] = {}
            for number, policy in enumerate(policies):
                if policy.demos == full:
                    lent.setdefault((policy.seed, policy.score, policy.trials), number)
            own += lent.values()
        used.update(own)
        lacking |= _lacking({number: policies[number].conditions for number in own})
        points = sorted(((places[number], number) for number in own), key=lambda pair: (pair[0] or 0, pair[1]))
        curves.append(
            CurvePoints(
                combination,
                tuple(n for n, _ in points if n is not None),
                tuple(policies[number].score for _, number in points),
                tuple(policies[number].trials for _, number in points),
            )
        )
    unused = len(policies) - len(used)
    warnings: tuple[str, ...] = ()
    if lacking:
        names = ", ".join(sorted({"+".join(factor) for missing in lacking.values() for factor in missing}))
        what = "policy has" if len(lacking) == 1 else "policies have"
        text = f"{len(lacking)} measured {what} no trials of some factors ({names}) that others on their curves have"
        warnings = (f"{text}: the curves mix means over different trials; the response model does not",)
    if unused:
        what = "policy lies" if unused == 1 else "policies lie"
        text = f"{unused} measured {what} on no curve of construction {spec.construction}: left out of the fit"
        warnings = (*warnings, text)
    return tuple(curves), (*warnings, *mixed_trials(spec, results))


def _lacking(measured: Mapping[int, Conditions]) -> dict[int, Conditions]:
    """Which conditions some of a curve's policies have and others have not."""
    every: Conditions = frozenset().union(*measured.values())
    return {number: every - own for number, own in measured.items() if own and own != every}


def factor_scores(spec: StudySpec, results: Results) -> dict[str, float]:
    """Score of the full-data policy on each factor's own variations, where measured: Greedy's signal."""
    full = tuple(spec.sizes.values())
    sums: dict[str, list[tuple[float, int | None]]] = {}
    for _, row, demos in distinct(spec, results):
        if demos == full and len(row.factor) == 1 and row.factor[0] != ALL_FACTORS:
            sums.setdefault(row.factor[0], []).append((row.score, row.trials))
    return {name: _mean(sums[name])[0] for name in spec.names if name in sums}


def distinct(spec: StudySpec, results: Results) -> Iterator[tuple[int, Row, tuple[int, ...]]]:
    """Every measurement once: its place among the rows, its row, and the demos per factor.

    A policy listed under several curves with the same score was measured once; the same under one curve twice is two
    measurements.
    """
    repeats: Counter[Any] = Counter()
    seen: set[Any] = set()
    under_curves = any(row.combination is not None for row in results.rows)
    resolved = resolver(spec)
    for index, row in enumerate(results.rows):
        demos, own = resolved(row)
        if not under_curves:
            yield index, row, demos
            continue
        identity = (demos, row.seed, row.factor, row.score, row.trials)
        repeats[own, identity] += 1
        if (identity, repeats[own, identity]) not in seen:
            seen.add((identity, repeats[own, identity]))
            yield index, row, demos


def resolve(spec: StudySpec, row: Row) -> tuple[tuple[int, ...], int | None]:
    """A row's demos per factor in declared order, and the index of the combination it was reported under."""
    return resolver(spec)(row)


def resolver(spec: StudySpec) -> Callable[[Row], tuple[tuple[int, ...], int | None]]:
    """`resolve` for many rows of one study: each point of a curve is looked up once."""
    sizes = spec.sizes
    known: dict[tuple[tuple[str, ...], int], tuple[tuple[int, ...], int]] = {}

    def resolved(row: Row) -> tuple[tuple[int, ...], int | None]:
        for name in row.factor:
            if name != ALL_FACTORS and name not in sizes:
                hint = "leave out trials of the nominal scene, which vary nothing" if name == "nominal" else ""
                raise UnknownFactor(name, spec.names, where=_column(row, "factor"), hint=hint)
        if row.demos is not None:
            return _resolve_demos(spec, row, row.demos), None
        assert row.combination is not None
        assert row.n is not None
        point = row.combination, row.n
        if point not in known:
            known[point] = _resolve_point(spec, row, row.combination, row.n)
        return known[point]

    return resolved


def _resolve_point(spec: StudySpec, row: Row, factors: tuple[str, ...], n: int) -> tuple[tuple[int, ...], int]:
    for name in factors:
        if name not in spec.sizes:
            raise UnknownFactor(name, spec.names, where=_column(row, "combination"))
    combinations = spec.combinations()
    for index, combination in enumerate(combinations):
        if set(combination.factors) == set(factors):
            if n > combination.size:
                raise InvalidInput(
                    f"n = {n} is more than the {combination.size} demos of {combination.label}",
                    where=_column(row, "n"),
                )
            return tuple(demos_at(spec, combination, n).values()), index
    raise UnknownName(
        "+".join(factors),
        kind="combination",
        where=_column(row, "combination"),
        hint=f"construction {spec.construction} has: {', '.join(c.label for c in combinations)}",
    )


def _resolve_demos(spec: StudySpec, row: Row, demos: Mapping[str, int]) -> tuple[int, ...]:
    sizes = spec.sizes
    if demos.keys() != sizes.keys():
        for name in demos:
            if name not in sizes:
                raise UnknownFactor(str(name), spec.names, where=_column(row, f"demos:{name}"))
    for name, size in sizes.items():
        if name not in demos:
            raise InvalidInput("missing", where=_column(row, f"demos:{name}"), hint="give every factor's demos")
        if demos[name] > size:
            raise InvalidInput(
                f"{demos[name]} demos is more than the {size} of {name}", where=_column(row, f"demos:{name}")
            )
    return tuple([demos[name] for name in sizes])


def _column(row: Row, column: str) -> str:
    """Where a cell stands, for messages; rows that come from no table have no place."""
    return f"{row.place}, column {column}" if row.place else column


def mixed_trials(spec: StudySpec, results: Results) -> tuple[str, ...]:
    """A warning where a policy has trials without a factor beside trials with one that they are not the total of."""
    found = []
    for rows in _by_policy(spec, results).values():
        overall, others = [row for row in rows if not row.factor], [row for row in rows if row.factor]
        if not overall or all(row.factor == (ALL_FACTORS,) for row in others):
            continue
        mean, count = _mean([(row.score, row.trials) for row in overall])
        other_mean, other_count = _mean([(row.score, row.trials) for row in others])
        total = count == other_count and abs(mean - other_mean) < _ROUNDED
        if count is not None and other_count is not None and not total:
            place = overall[0].place
            name = place if place.startswith("run ") else f"the policy of {place}" if place else "a policy"
            found.append(f"{name} has {count} trials without a factor and {other_count} with one")
    if not found:
        return ()
    more = f", and so have {len(found) - 1} more" if len(found) > 1 else ""
    return (f"{found[0]}{more}: the paper's curves use those without a factor only",)


def _by_policy(spec: StudySpec, results: Results) -> dict[tuple[tuple[int, ...], int | None, int | None], list[Row]]:
    """The rows of each policy: by demos, the combination it was reported under, and seed."""
    groups: dict[tuple[tuple[int, ...], int | None, int | None], list[Row]] = {}
    resolved = resolver(spec)
    for row in results.rows:
        demos, own = resolved(row)
        groups.setdefault((demos, own, row.seed), []).append(row)
    return groups


def _policies(spec: StudySpec, results: Results) -> list[Policy]:
    """Rows to policies. Scores per condition of one policy are pooled; overall scores each stand for themselves."""
    policies = []
    for (demos, own, seed), rows in _by_policy(spec, results).items():
        overall = [row for row in rows if not row.factor]
        per_condition = any(row.factor not in ((), (ALL_FACTORS,)) for row in rows)
        if per_condition and not overall:
            score, trials = _mean([(row.score, row.trials) for row in rows])
            policies.append(Policy(demos, own, seed, score, trials, frozenset(row.factor for row in rows)))
        else:
            chosen = overall if per_condition else rows
            policies += [Policy(demos, own, seed, row.score, row.trials) for row in chosen]
    return policies


def _place(sizes: Mapping[str, int], combination: Combination, demos: Mapping[str, int]) -> int | None:
    """n on this combination's curve, or None where others were thinned too or its own were not thinned alike."""
    if any(demos[name] != size for name, size in sizes.items() if name not in combination.factors):
        return None
    inside = {name: demos[name] for name in combination.factors}
    n = sum(inside.values())
    even = all(abs(inside[name] - n * sizes[name] / combination.size) < 1 for name in inside)
    return n if even or inside == split(n, {name: sizes[name] for name in inside}) else None


def _mean(scores: Sequence[tuple[float, int | None]]) -> tuple[float, int | None]:
    """Mean over trials where their numbers are known, else over the rows."""
    counts = [trials for _, trials in scores if trials is not None]
    if len(counts) == len(scores):
        total = sum(counts)
        return math.fsum(score * count for (score, _), count in zip(scores, counts, strict=True)) / total, total
    return math.fsum(score for score, _ in scores) / len(scores), None


def _row(given: Mapping[str, Any], place: str) -> Row:
    if not given.keys() <= _KEYS.keys():
        key = next(key for key in given if key not in _KEYS)
        raise InvalidInput(f"unknown column {key!r}", where=place, hint=suggest(str(key), _KEYS))
    if given.get("score") is None:
        raise InvalidInput("missing", where=f"{place}, column score", hint="write a score in [0, 1], or remove the row")
    demos = given.get("demos")
    by_demos, by_combination = demos is not None, given.get("combination") is not None or given.get("n") is not None
    if by_demos == by_combination:
        what = "both demos and combination" if by_demos else "no training set"
        raise InvalidInput(what, where=place, hint="give either demos per factor, or combination and n")
    if by_demos:
        if not isinstance(demos, Mapping):
            raise InvalidInput(f"expected demos per factor, not {shown(demos)}", where=f"{place}, column demos")
        demos = {
            name: value if type(value) is int and 0 <= value <= LARGEST else _count(value, place, f"demos:{name}")
            for name, value in demos.items()
        }
    combination = None if by_demos else _names(given.get("combination"), place, "combination")
    if not by_demos and not combination:
        raise InvalidInput("missing", where=f"{place}, column combination", hint="write the factors, joined by +")
    trials, seed = _as_counted(given.get("trials")), given.get("seed")
    return Row(
        score=_score(given["score"], place, "score", trials),
        demos=demos,
        combination=combination,
        n=None if by_demos else _count(given.get("n"), place, "n"),
        trials=None if trials is None else _count(trials, place, "trials", least=1),
        seed=None if seed is None else _count(seed, place, "seed"),
        factor=_names(given.get("factor"), place, "factor"),
        place=place,
    )


def _as_counted(trials: object) -> object:
    """Trials of a pandas data frame in which some are missing: whole floats, and NaN where there are none."""
    if not isinstance(trials, float):
        return trials
    return None if math.isnan(trials) else int(trials) if trials.is_integer() else trials


def _score(value: object, place: str, column: str, trials: object = None) -> float:
    score = value if type(value) is float else real(value)
    if score is not None and 0.0 <= score <= 1.0:  # not NaN
        return score
    where = f"{place}, column {column}"
    if score is None:
        raise InvalidInput(f"expected a number in [0, 1], not {shown(value)}", where=where)
    raise InvalidInput(
        f"a score must lie in [0, 1], not {score:g}",
        where=where,
        hint=percentage(score, trials if type(trials) is int else None),
    )


def _count(value: object, place: str, column: str, least: int = 0) -> int:
    if type(value) is int and least <= value <= LARGEST:
        return value
    if value is None:
        raise InvalidInput("missing", where=f"{place}, column {column}", hint="write a whole number")
    return whole(value, f"{place}, column {column}", least=least)


def _names(value: object, place: str, column: str) -> tuple[str, ...]:
    try:
        return _split_names(value) if isinstance(value, str) else _checked_names(value)
    except InvalidInput as error:
        raise error.at(f"{place}, column {column}") from None


@lru_cache(maxsize=1024)  # the rows of a file name few
def _split_names(value: str) -> tuple[str, ...]:
    return _checked_names(value.split("+"), value) if value else ()


def _checked_names(names: object, value: object = None) -> tuple[str, ...]:
    if names is None:
        return ()
    if not isinstance(names, Sequence) or not all(isinstance(name, str) and name.strip() for name in names):
        raise InvalidInput(f"expected factor names joined by +, not {shown(names if value is None else value)}")
    stripped = tuple(name.strip() for name in names)
    if len(set(stripped)) < len(stripped):
        raise InvalidInput(f"a factor is named twice in {'+'.join(stripped)!r}")
    if ALL_FACTORS in stripped and len(stripped) > 1:
        raise InvalidInput(f"{ALL_FACTORS} stands alone, not in {'+'.join(stripped)!r}")
    return stripped
