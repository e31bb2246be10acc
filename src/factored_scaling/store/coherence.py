"""Check that the parts of an export are consistent: runs, trials and lists must name the study's factors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from factored_scaling.core.checks import real, shown
from factored_scaling.core.dataset import Dataset, Episode, check_counts
from factored_scaling.core.proxy import KS
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import ALL_FACTORS
from factored_scaling.errors import InvalidInput, UnknownFactor

_MOST_POLICIES = 100_000  # of a plan; a typing error in a number must not fill the memory of later commands
_HINT = "make it with `fsc export`"


def check_export(data: Mapping[str, Any]) -> None:
    """Raise an error with its place if parts of an export contradict each other. Each part is well formed."""
    names: tuple[str, ...] = ()
    for index, row in enumerate(data["rounds"]):
        where = f"rounds[{index}]"
        spec = StudySpec.from_mapping(row["spec"])
        if index and spec.names != names:
            raise InvalidInput("the factors are not those of the first round", where=f"{where}.spec", hint=_HINT)
        if spec.seeds * spec.points > _MOST_POLICIES:
            what = f"more than {_MOST_POLICIES} policies to train for one curve"
            raise InvalidInput(what, where=f"{where}.spec", hint="is a number too long?")
        names = spec.names
        _check_dataset(row["dataset"], spec, f"{where}.dataset")
    for index, run in enumerate(data["runs"]):
        _check_run(run, names, f"runs[{index}]")
    for index, evaluation in enumerate(data["evaluations"]):
        for place, trial in enumerate(evaluation["queue"]):
            where = f"evaluations[{index}].queue[{place}]"
            _check_names([name for name, _ in trial["condition"]], names, f"{where}.condition")
            _check_state(trial, where)
    for index, document in enumerate(data["documents"]):
        check, body = _DOCUMENTS.get(document["kind"]), document["body"]
        if check is not None and not (isinstance(body, dict) and check(body, names)):
            what = f"is not what a document of the kind {document['kind']!r} holds"
            raise InvalidInput(what, where=f"documents[{index}].body", hint=_HINT)


def _check_dataset(dataset: Sequence[Sequence[Any]], spec: StudySpec, where: str) -> None:
    try:
        check_counts(spec, Dataset(tuple(Episode(id_, factor) for id_, factor in dataset)))
    except InvalidInput as error:
        raise InvalidInput(error.what, where=where, hint=_HINT) from None


def _check_run(run: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    for index, place in enumerate(run["placements"]):
        found = f"{where}.placements[{index}].demos"
        _check_names(list(place["demos"]), names, found)
        if len(place["demos"]) < len(names):
            raise InvalidInput(f"expected a number for every factor, not {shown(place['demos'])}", where=found)
    for part in ("trials", "scores"):
        known = {(), (ALL_FACTORS,)}
        for index, row in enumerate(run[part]):
            factor = tuple(row["factor"])
            if factor not in known:
                _check_names([name for name in factor if name != ALL_FACTORS], names, f"{where}.{part}[{index}].factor")
                known.add(factor)


def _check_state(trial: Mapping[str, Any], where: str) -> None:
    """Check that a trial's state follows from its last entry that is not a note."""
    kinds = [entry["kind"] for entry in trial["entries"] if entry["kind"] != "note"]
    state = {"score": "scored", "skip": "skipped"}.get(kinds[-1] if kinds else "", "open")
    if trial["state"] != state:
        raise InvalidInput(
            f"expected {state}, by its entries, not {trial['state']}", where=f"{where}.state", hint=_HINT
        )


def _check_names(found: Sequence[str], names: tuple[str, ...], where: str) -> None:
    for name in found:
        if name not in names:
            raise UnknownFactor(name, names, where=where)


# --- documents, by kind: whether a body has the form that its readers rely on


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_counts(value: object, names: tuple[str, ...]) -> bool:
    return (
        isinstance(value, dict)
        and set(value) <= {*names, "nominal"}
        and all(type(count) is int and count >= 0 for count in value.values())
    )


def _is_collection(body: Any, names: tuple[str, ...]) -> bool:
    return (
        _is_counts(body.get("allocation"), names)
        and isinstance(body.get("rows"), list)
        and all(_is_texts(row) and len(row) == 3 and row[1] in names for row in body["rows"])
    )


def _is_weights(body: Any, names: tuple[str, ...]) -> bool:
    weights = body.get("weights")
    return isinstance(weights, dict) and set(weights) <= {*names, "nominal"} and _are_numbers(weights.values())


def _is_similarity(body: Any, names: tuple[str, ...]) -> bool:
    nearest, factors = (body.get(key) for key in ("nearest", "factors"))
    if not isinstance(nearest, dict) or not isinstance(factors, list) or not {str(k) for k in KS} <= set(nearest):
        return False
    sizes = {len(near) if isinstance(near, list) and _are_numbers(near) else None for near in nearest.values()}
    return len(sizes) == 1 and None not in sizes and all(factor is None or factor in names for factor in factors)


def _are_numbers(values: Any) -> bool:
    return all(real(value) is not None for value in values)


_DOCUMENTS: dict[str, Callable[[dict[str, Any], tuple[str, ...]], bool]] = {
    "collection": _is_collection,
    "collected": lambda body, _: set(body) == {"shown", "episode", "note"} and _is_texts(list(body.values())),
    "recommendation": lambda body, names: _is_counts(body.get("allocation"), names),
    "plan": lambda body, _: _is_texts(body.get("runs")),
    "trained": lambda body, _: "trainer" in body,
    "remix": _is_weights,
    "similarity": _is_similarity,
}
