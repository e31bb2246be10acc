"""Whole studies as JSON: the parts of an export, and how they fit together; weights and what trainers write."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.corpus.kinds import GONE, Case, Reader, Spoil, at, jsons, nested, raw, texts

FIELDS = "expected the fields"
ODD: dict[str, Any] = {"null": None, "a text": "x", "a number": 3, "a list": [1], "an object": {"a": 1}}


def odd(path: str, *allowed: str) -> dict[str, Case]:
    """Values of another kind at a path."""
    where = path.split(".")[0]
    return {f"{path} {kind}": Case(at(path, value), where) for kind, value in ODD.items() if kind not in allowed}


def spoilt_again(*spoils: Spoil) -> Spoil:
    def spoil(data: bytes) -> Any:
        for one in spoils:
            data = one(data)  # type: ignore[assignment]
        return data

    return spoil


def numbers(path: str) -> dict[str, Case]:
    where = path.split(".")[-1]
    return {
        f"{path} a text": Case(at(path, "0"), where),
        f"{path} a bool": Case(at(path, True), where),
        f"{path} NaN": Case(raw(path, "NaN"), where),
        f"{path} 1e999": Case(raw(path, "1e999"), where),
    }


def rename_factor(data: bytes) -> bytes:
    """The factors of the spec under another name, which nothing else uses."""
    whole = json.loads(data)
    factors = whole["rounds"][0]["spec"]["factors"]
    whole["rounds"][0]["spec"]["factors"] = {f"{name}_2": value for name, value in factors.items()}
    whole["rounds"][0]["spec"]["groups"] = None
    return json.dumps(whole).encode()


def twice(part: str) -> Spoil:
    def spoil(data: bytes) -> bytes:
        whole = json.loads(data)
        whole[part].append(whole[part][0])
        return json.dumps(whole).encode()

    return spoil


EXPORT: dict[str, Case] = {
    **texts("export.json"),
    **jsons("documents.0.body.rows", "export.json"),
    "of something else": Case(at("format", "recipe"), "not an export of version 1"),
    "of another version": Case(at("version", 99), "not an export of version 1"),
    **{f"no {part}": Case(at(part, GONE), FIELDS) for part in ("name", "created", "rounds", "runs", "documents")},
    "one field more": Case(at("more", 1), FIELDS),
    **odd("rounds", "a list"),
    **odd("runs", "a list"),
    "name a number": Case(at("name", 3), "name"),
    "name long": Case(at("name", "x" * 500), "at most 400"),
    "name NUL": Case(at("name", "a\0"), "cannot be stored"),
    **numbers("created"),
    "no round": Case(at("rounds", []), "at least one round"),
    "round null": Case(at("rounds.0", None), FIELDS),
    **odd("rounds.0.spec"),
    "spec without factors": Case(at("rounds.0.spec.factors", {}), "no factors"),
    "spec with an unknown key": Case(at("rounds.0.spec.colour", 1), "colour"),
    "spec with demos negative": Case(at("rounds.0.spec.factors.lighting", -1), "lighting"),
    "spec with a billion seeds": Case(at("rounds.0.spec.seeds", 10**9), "is a number too long?"),
    "spec deep": Case(nested("rounds.0.spec.policy", 150), "nested deeper than"),
    **odd("rounds.0.dataset", "a list"),
    "dataset of texts": Case(at("rounds.0.dataset", ["a"]), "rounds[0].dataset"),
    "dataset of numbers": Case(at("rounds.0.dataset.0", [3, "lighting"]), "rounds[0].dataset"),
    "dataset shorter": Case(at("rounds.0.dataset.0", GONE), "the study says 4"),
    "dataset unknown factor": Case(at("rounds.0.dataset.0.1", "lihgting"), "unknown factor 'lihgting'"),
    "episode twice": Case(at("rounds.0.dataset.0", ["lighting/0", "lighting"]), "is listed twice"),
    "another round's factors": Case(
        lambda data: at("rounds.0", {**json.loads(rename_factor(data))["rounds"][0]})(data), "unknown factor"
    ),
    "run null": Case(at("runs.0", None), FIELDS),
    "run without state": Case(at("runs.0.state", GONE), FIELDS),
    "run in no state": Case(at("runs.0.state", "tired"), "expected one of pending"),
    "run running without lease": Case(at("runs.0.state", "running"), "exactly while it is running"),
    "run's digest": Case(at("runs.0.digest", "0" * 16), "the spec's digest is"),
    "run's seed": Case(at("runs.0.spec.seed", 7), "the spec's digest is"),
    "run's seed a text": Case(at("runs.0.spec.seed", "0"), "expected a whole number"),
    "run's policy a list": Case(at("runs.0.spec.policy", [1]), "expected an object under policy"),
    "run's evaluation null": Case(at("runs.0.spec.evaluation", None), "expected an object under evaluation"),
    "run's episodes null": Case(at("runs.0.spec.episodes", None), "expected a list"),
    "run's episodes numbers": Case(at("runs.0.spec.episodes.0", 3), "must be a text"),
    "run's task a number": Case(at("runs.0.spec.task", 3), "must be a text"),
    "run without a key": Case(at("runs.0.spec.task", GONE), "expected the fields episodes"),
    "run twice": Case(twice("runs"), "twice"),
    "run in no round": Case(at("runs.0.placements", []), "at least one round"),
    "run in round 9": Case(at("runs.0.placements.0.round", 9), "there is no round 9"),
    "run's demos null": Case(at("runs.0.placements.0.demos", None), "demos"),
    "run's demos unknown": Case(at("runs.0.placements.0.demos", {"lihgting": 1}), "unknown factor 'lihgting'"),
    "run's demos lacking": Case(at("runs.0.placements.0.demos", {"lighting": 1}), "a number for every factor"),
    "run's demos texts": Case(at("runs.0.placements.0.demos.lighting", "4"), "expected a whole number"),
    "run's position huge": Case(at("runs.0.placements.0.position", 10**12), "expected a whole number"),
    "trial null": Case(at("runs.0.trials.0", None), FIELDS),
    "trial without a key": Case(at("runs.0.trials.0.key", ""), "needs a key"),
    "trial's score a text": Case(at("runs.0.trials.0.score", "1"), "expected a number"),
    "trial's score above": Case(at("runs.0.trials.0.score", 1.5), "must lie in [0, 1]"),
    "trial's score NaN": Case(raw("runs.0.trials.0.score", "NaN"), "expected a number"),
    "trial of an unknown factor": Case(at("runs.0.trials.0.factor", ["lihgting"]), "did you mean lighting?"),
    "trial's factor a text": Case(at("runs.0.trials.0.factor", "lighting"), "expected a list"),
    "trial's note a number": Case(at("runs.0.trials.0.note", 3), "must be a text"),
    "mean of an unknown factor": Case(at("runs.2.scores.0.factor", ["lihgting"]), "did you mean lighting?"),
    "mean above": Case(at("runs.2.scores.0.score", 45), "must lie in [0, 1]"),
    "mean of 0 trials": Case(at("runs.2.scores.0.trials", 0), "at least 1"),
    "mean of half a trial": Case(at("runs.2.scores.0.trials", 0.5), "expected a whole number"),
    "evaluation null": Case(at("evaluations.0", None), FIELDS),
    "rubric null": Case(at("evaluations.0.rubric", None), "rubric"),
    "rubric without levels": Case(at("evaluations.0.rubric.levels", []), "2 to 12 levels"),
    "rubric's name a number": Case(at("evaluations.0.rubric.name", 3), "must be a text"),
    "queue null": Case(at("evaluations.0.queue", None), "expected a list"),
    "queued for no run": Case(at("evaluations.0.queue.0.run", "f" * 16), "there is no run"),
    "queued in an unknown scene": Case(
        at("evaluations.0.queue.0.condition", [["lihgting", "dim"]]), "did you mean lighting?"
    ),
    "queued in half a scene": Case(at("evaluations.0.queue.0.condition", [["lighting"]]), "condition"),
    "scored without a score": Case(at("evaluations.0.queue.5.state", "scored"), "expected open, by its entries"),
    "score forgotten": Case(at("evaluations.0.queue.0.entries", []), "expected open, by its entries"),
    "entry that scores nothing": Case(at("evaluations.0.queue.0.entries.0.score", None), "exactly if it scores"),
    "entry's score above": Case(at("evaluations.0.queue.0.entries.0.score", 2), "must lie in [0, 1]"),
    "document null": Case(at("documents.0", None), FIELDS),
    "document NaN": Case(raw("documents.0.body", "NaN"), "is not plain data"),
    "list null": Case(at("documents.0.body", None), "a document of the kind 'collection'"),
    "list's rows short": Case(at("documents.0.body.rows.0", ["ABCD"]), "a document of the kind 'collection'"),
    "list of an unknown factor": Case(at("documents.0.body.rows.0.1", "lihgting"), "of the kind 'collection'"),
    "list's allocation texts": Case(at("documents.0.body.allocation.lighting", "2"), "of the kind 'collection'"),
    **{
        f"document of {kind}": Case(
            spoilt_again(at("documents.0.kind", kind), at("documents.0.body", {"rows": 3})), f"of the kind '{kind}'"
        )
        for kind in ("collected", "recommendation", "plan", "trained", "remix", "similarity")
    },
}
WEIGHTS: dict[str, Case] = {
    **texts("weights.json"),
    **jsons("lighting", "weights.json"),
    "one lacking": Case(at("lighting", GONE), "no weight for factor 'lighting'"),
    "unknown factor": Case(at("lihgting", 1), "did you mean lighting?"),
    "a text": Case(at("lighting", "1"), "weights.lighting"),
    "negative": Case(at("lighting", -1), "at least 0"),
    "NaN": Case(raw("lighting", "NaN"), "at least 0, not nan"),
    "all 0": Case(spoilt_again(at("lighting", 0), at("camera_pose", 0)), "every weight is 0"),
}
RECOMMEND = ("recommend", "lab", "results.csv", "--budget", "3", "--strategy", "remix", "--weights", "weights.json")

READERS: dict[str, Reader] = {
    "import": Reader("export.json", ("import", "new", "export.json"), EXPORT),
    "import into a folder": Reader(
        "export.json",
        ("import", "notes", "export.json"),
        {name: EXPORT[name] for name in ("cut off", "no runs", "run's digest", "trial of an unknown factor")},
    ),
    "recommend --weights": Reader("weights.json", RECOMMEND, WEIGHTS),
}
