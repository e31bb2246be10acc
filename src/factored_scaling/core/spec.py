"""StudySpec: what a user declares once — factors, sizes, how the curves are built."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, cast, get_args

from factored_scaling.core.checks import check_keys, named, real, shown, whole
from factored_scaling.core.conditions import ScoringSpec, scoring_of
from factored_scaling.core.values import Values, plain, values_of
from factored_scaling.errors import InvalidInput, UnknownFactor, UnknownName

Construction = Literal["one", "pair", "group", "screen"]
CONSTRUCTIONS: tuple[Construction, ...] = get_args(Construction)
_NAME = re.compile(r"[^\W\d][\w.-]*")  # letters of any script
COSTS = (1e-6, 1e6)  # a unit of the budget should be of the order of a demonstration


@dataclass(frozen=True, slots=True)
class Factor:
    """One thing about the scene that varies, and the current demonstrations that vary it."""

    name: str
    # demonstrations in the dataset that vary this factor
    demos: int
    # what one more demonstration costs, in units of the budget
    cost: float = 1.0
    # most demonstrations to recommend at once (None: no limit)
    cap: int | None = None
    # fewest demonstrations to recommend
    minimum: int = 0
    # the values that demonstrations show, for the operator's list
    values: Values = ()
    # the values at which policies are tested
    test_values: Values = ()


@dataclass(frozen=True)
class StudySpec:
    """A study as declared. `factors` may be given as `{"camera_pose": 30}` or as `Factor` values; order breaks ties.

    >>> spec = StudySpec(factors={"camera_pose": 30, "lighting": 30, "distractor": 20}, construction="group")
    >>> [combination.label for combination in spec.combinations()]
    ['camera_pose+lighting', 'distractor']
    """

    factors: tuple[Factor, ...]
    nominal: int = 0
    construction: Construction = "group"
    groups: tuple[tuple[str, ...], ...] | None = None
    # factors per group where `groups` is not given
    group_size: int = 2
    # curve points per combination
    points: int = 4
    # training seeds per point
    seeds: int = 1
    # the first of them
    first_seed: int = 0
    name: str = "study"
    # the LeRobot dataset that holds the demonstrations, seen from the study's folder. Not part of a run's identity
    dataset: str | None = None
    # the simulator's task, for studies that `fsc run` carries out
    task: str | None = None
    # what the trainer should build; its meaning belongs to the trainer
    policy: Mapping[str, Any] = field(default_factory=dict)
    # how a policy is measured; its meaning belongs to the evaluator
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    # who trains, when it is not the simulator: a program and where to find it. Not part of a run's identity
    trainer: Mapping[str, Any] = field(default_factory=dict)
    # where workers run: `kind`, `workers` and the resources of each. Not part of a run's identity
    executor: Mapping[str, Any] = field(default_factory=dict)
    # how people score trials: rubric, conditions, repeats
    scoring: Mapping[str, Any] = field(default_factory=dict)
    # most policies to train per seed; None: all that the construction has, or for `screen` one more than factors
    policies: int | None = None

    def __init__(
        self,
        factors: Mapping[str, int | Mapping[str, Any]] | Sequence[Factor],
        nominal: int = 0,
        construction: str = "group",
        groups: Sequence[Sequence[str]] | None = None,
        group_size: int = 2,
        points: int = 4,
        seeds: int = 1,
        first_seed: int = 0,
        name: str = "study",
        dataset: str | None = None,
        task: str | None = None,
        policy: Mapping[str, Any] | None = None,
        evaluation: Mapping[str, Any] | None = None,
        trainer: Mapping[str, Any] | None = None,
        scoring: Mapping[str, Any] | None = None,
        policies: int | None = None,
        executor: Mapping[str, Any] | str | None = None,
    ) -> None:
        store = object.__setattr__
        store(self, "factors", _factors(factors))
        store(self, "nominal", whole(nominal, "nominal", what="value"))
        if named(construction) not in CONSTRUCTIONS:
            raise UnknownName(named(construction), CONSTRUCTIONS, kind="construction", where="construction")
        store(self, "construction", construction)
        store(self, "groups", _groups(groups, self.names))
        store(self, "group_size", whole(group_size, "group_size", least=1, what="value"))
        store(self, "points", whole(points, "points", least=2, what="value"))
        store(self, "seeds", whole(seeds, "seeds", least=1, what="value"))
        store(self, "first_seed", whole(first_seed, "first_seed", least=0, what="value"))
        store(self, "name", _text(name, "name"))
        store(self, "dataset", None if dataset is None else _text(dataset, "dataset"))
        store(self, "task", None if task is None else _text(task, "task"))
        store(self, "policy", _mapping(policy, "policy"))
        store(self, "evaluation", _mapping(evaluation, "evaluation"))
        store(self, "trainer", _mapping(trainer, "trainer"))
        store(self, "executor", _executor(executor))
        store(self, "scoring", _mapping(scoring, "scoring"))
        if self.scoring:
            self.scoring_spec()
        most = None if policies is None else whole(policies, "policies", least=1, what="value")
        store(self, "policies", most)
        if self.construction == "pair" and len(self.factors) < 2:
            raise InvalidInput("construction pair needs at least two factors", where="construction")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The factors' names in declared order."""
        return tuple(factor.name for factor in self.factors)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """|D_i| for every factor, in declared order."""
        return {factor.name: factor.demos for factor in self.factors}

    @property
    def total(self) -> int:
        """|D|, the nominal demonstrations included."""
        return self.nominal + sum(self.sizes.values())

    def combinations(self) -> tuple[Combination, ...]:
        """The factors that share a curve, in declared order. Construction `screen` looks at each factor by itself."""
        return self._combinations

    @cached_property
    def _combinations(self) -> tuple[Combination, ...]:
        names = self.names
        if self.construction in ("one", "screen"):
            members: list[tuple[str, ...]] = [(name,) for name in names]
        elif self.construction == "pair":
            members = [(first, second) for i, first in enumerate(names) for second in names[i + 1 :]]
        elif self.groups is not None:
            members = list(self.groups)
        else:
            step = self.group_size
            members = [names[start : start + step] for start in range(0, len(names), step)]
        sizes, total = self.sizes, self.total
        return tuple(Combination(group, sum(sizes[name] for name in group), total) for group in members)

    def scoring_spec(self) -> ScoringSpec:
        """`scoring` read and filled in: what people score, and how often."""
        return scoring_of(self.scoring, {factor.name: factor.test_values for factor in self.factors})

    def with_demos(self, added: Mapping[str, int], nominal: int = 0) -> StudySpec:
        """The spec after `added` demonstrations per factor have been collected."""
        new = {name: whole(count, str(name)) for name, count in added.items()}
        for name in new:
            if name not in self.names:
                raise UnknownFactor(str(name), self.names)
        grown = [replace(factor, demos=factor.demos + new.get(factor.name, 0)) for factor in self.factors]
        return self.changed(factors=grown, nominal=self.nominal + whole(nominal, "nominal"))

    def changed(self, **changes: Any) -> StudySpec:
        """A copy with some fields replaced, checked like a new one."""
        return StudySpec(**{**self._fields(), **changes})

    def to_mapping(self) -> dict[str, Any]:
        """Plain data that `from_mapping` reads back to an equal spec; also what study.yaml holds."""
        data = {key: dict(value) if isinstance(value, Mapping) else value for key, value in self._fields().items()}
        data["factors"] = {factor.name: _plain(factor) for factor in self.factors}
        data["groups"] = [list(group) for group in self.groups] if self.groups is not None else None
        always = ("name", "factors", "nominal", "construction", "points")
        return {key: value for key, value in data.items() if key in always or value != _DEFAULTS[key]}

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> StudySpec:
        """Read what `to_mapping` or a study.yaml holds; unknown keys are errors."""
        if not isinstance(data, Mapping):
            raise InvalidInput(f"expected a mapping, not {_kind(data)}", hint="a study starts with `factors:`")
        known = tuple(cls.__dataclass_fields__)
        check_keys((key for key in data if key != "backend"), known)
        if "backend" in data:
            data = _with_backend(data)
        if "factors" not in data:
            raise InvalidInput("no factors", where="factors", hint="list each factor with its number of demos")
        return cls(**data)

    def _fields(self) -> dict[str, Any]:
        order = ("name", "factors", "nominal", "construction", "groups", "group_size", "points", "seeds", "first_seed")
        settings = ("policies", "dataset", "task", "policy", "evaluation", "trainer", "executor", "scoring")
        return {key: getattr(self, key) for key in (*order, *settings)}


_DEFAULTS = {key: {} if one.default is MISSING else one.default for key, one in StudySpec.__dataclass_fields__.items()}


def _with_backend(data: Mapping[str, Any]) -> dict[str, Any]:
    """`backend:` is another name of `trainer:`; a text is its kind."""
    rest = {key: value for key, value in data.items() if key != "backend"}
    if "trainer" in rest:
        what = "`backend:` and `trainer:` are two names of one setting"
        raise InvalidInput(what, where="backend", hint="remove one of them")
    given = data["backend"]
    return {**rest, "trainer": {"kind": given} if isinstance(given, str) else given}


@dataclass(frozen=True, slots=True)
class Combination:
    """Factors that share one curve. `size` is |D_c|; `total` is |D|."""

    factors: tuple[str, ...]
    size: int
    total: int

    @property
    def label(self) -> str:
        """The names joined by `+`, as in results.csv."""
        return "+".join(self.factors)

    @property
    def base(self) -> int:
        """|D \\ D_c|: the demonstrations every policy of this curve is trained on."""
        return self.total - self.size


def _factors(given: Mapping[str, int | Mapping[str, Any]] | Sequence[Factor]) -> tuple[Factor, ...]:
    if isinstance(given, Mapping):
        factors = tuple(_factor(name, value) for name, value in given.items())
    elif isinstance(given, Sequence) and all(isinstance(factor, Factor) for factor in given):
        factors = tuple(given)
    else:
        raise InvalidInput(
            f"expected a mapping of factor names to numbers of demos, not {_kind(given)}",
            where="factors",
            hint="write for example `camera_pose: 30`",
        )
    if not factors:
        raise InvalidInput("no factors", where="factors", hint="list each factor with its number of demos")
    factors = tuple(_checked(factor) for factor in factors)
    names = [factor.name for factor in factors]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(f"factor {name!r} is declared twice", where="factors")
    return factors


def _factor(name: object, value: int | Mapping[str, Any]) -> Factor:
    where = f"factors.{name}"
    if not isinstance(value, Mapping):
        return Factor(cast(str, name), value)
    known = ("demos", "cost", "cap", "minimum", "values", "test_values")
    check_keys(value, known, where)
    if "demos" not in value:
        raise InvalidInput("no number of demos", where=where, hint="write `demos: 30`")
    return Factor(cast(str, name), **value)


def _checked(factor: Factor) -> Factor:
    where = f"factors.{factor.name}"
    if not isinstance(factor.name, str) or not _NAME.fullmatch(factor.name):
        raise InvalidInput(
            f"{factor.name!r} cannot name a factor",
            where="factors",
            hint="use letters, digits and _ (no + * : or spaces)",
        )
    if factor.name == "nominal":
        raise InvalidInput("'nominal' cannot name a factor", where=where, hint="it names the demos that vary nothing")
    demos = whole(factor.demos, where, least=1, what="number of demos")
    cost = real(factor.cost)
    if cost is None or not cost > 0:  # also refuses NaN
        raise InvalidInput(f"cost must be a number above 0, not {shown(factor.cost)}", where=f"{where}.cost")
    if not COSTS[0] <= cost <= COSTS[1]:
        what = f"cost must lie between {COSTS[0]:g} and {COSTS[1]:g}, not {cost:g}"
        raise InvalidInput(what, where=f"{where}.cost", hint="give costs and budget in a larger or smaller unit")
    minimum = whole(factor.minimum, f"{where}.minimum", what="value")
    cap = None if factor.cap is None else whole(factor.cap, f"{where}.cap", what="value")
    if cap is not None and minimum > cap:
        raise InvalidInput(f"minimum {minimum} is above cap {cap}", where=f"{where}.minimum")
    values, test_values = (values_of(getattr(factor, key), f"{where}.{key}") for key in ("values", "test_values"))
    return Factor(factor.name, demos, cost, cap, minimum, values, test_values)


def _groups(given: Sequence[Sequence[str]] | None, names: tuple[str, ...]) -> tuple[tuple[str, ...], ...] | None:
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidInput(f"expected a list of lists of factors, not {_kind(given)}", where="groups")
    home: dict[str, int] = {}
    for index, group in enumerate(given):
        where = f"groups[{index}]"
        if isinstance(group, str) or not isinstance(group, Sequence):
            raise InvalidInput(f"expected a list of factors, not {_kind(group)}", where=where)
        if not group:
            raise InvalidInput("an empty group", where=where, hint="remove it or name its factors")
        for name in group:
            if name not in names:
                raise UnknownFactor(str(name), names, where=where)
            if name in home:
                again = "is named twice" if home[name] == index else f"is already in groups[{home[name]}]"
                raise InvalidInput(f"factor {name!r} {again}", where=where, hint="each factor belongs to one group")
            home[name] = index
    for name in names:
        if name not in home:
            raise InvalidInput(f"factor {name!r} is in no group", where="groups", hint="add it, or drop `groups`")
    return tuple(tuple(group) for group in given)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidInput(f"expected a text, not {shown(value)}", where=where)
    return value


def _mapping(value: Mapping[str, Any] | None, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInput(f"expected a mapping, not {_kind(value)}", where=where)
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"holds a value that is not plain data ({error})", where=where) from None
    return plain


def _executor(given: Mapping[str, Any] | str | None) -> dict[str, Any]:
    """Settings of an executor; a text is its kind."""
    settings = _mapping({"kind": given} if isinstance(given, str) else given, "executor")
    if settings:
        if "kind" not in settings:
            raise InvalidInput("no kind", where="executor", hint="write `kind: slurm`, `kind: ray` or `kind: local`")
        _text(settings["kind"], "executor.kind")
        if "workers" in settings:
            whole(settings["workers"], "executor.workers", least=1, what="number of workers")
    return settings


def _plain(factor: Factor) -> int | dict[str, Any]:
    extra: dict[str, Any] = {"cost": factor.cost, "cap": factor.cap, "minimum": factor.minimum}
    kept = {key: value for key, value in extra.items() if value != getattr(Factor("_", 1), key)}
    kept |= {key: plain(found) for key in ("values", "test_values") if (found := getattr(factor, key)) != ()}
    return {"demos": factor.demos, **kept} if kept else factor.demos


def _kind(value: object) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {shown(value)}"
