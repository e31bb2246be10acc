"""What `fsc sheet` writes: a page to print, a CSV to fill in, JSON for programs."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from factored_scaling.scoring.session import BlindTrial, Scoring
    from factored_scaling.scoring.sheets import Collection
    from factored_scaling.study import Study

FORMATS = ("html", "csv", "json")


def evaluation_text(scoring: Scoring, form: str) -> str:
    """The trials to score in one of the forms; which policy a label is stays hidden."""
    from factored_scaling.report.sheets import TrialLine, evaluation_page
    from factored_scaling.scoring.sheets import evaluation_csv

    if form == "csv":
        return evaluation_csv(scoring)
    if form == "json":
        return _document(
            evaluation=scoring.number,
            rubric=scoring.rubric.to_mapping(),
            step_limit=scoring.step_limit,
            trials=[
                {
                    "number": trial.number,
                    "code": trial.code,
                    "policy": trial.label,
                    "condition": dict(trial.condition.values),
                    "repeat": trial.repeat,
                    "state": trial.state,
                    "score": trial.score,
                    "ended": trial.ending,
                    "notes": list(trial.notes),
                }
                for trial in scoring.trials()
            ],
        )
    lines = [TrialLine(t.number, t.code, t.label, t.condition, _done(t)) for t in scoring.trials()]
    name, day = scoring.study.spec.name, time.strftime("%Y-%m-%d")
    return evaluation_page(name, scoring.number, scoring.rubric, scoring.step_limit, lines, day, scoring.factors)


def collection_text(study: Study, collection: Collection, form: str) -> str:
    """The list for operators in one of the forms."""
    from factored_scaling.report.sheets import DemoLine, collection_page
    from factored_scaling.scoring.collection import setup_changes
    from factored_scaling.scoring.sheets import collection_csv

    if form == "csv":
        return collection_csv(collection)
    if form == "json":
        return _document(
            list=collection.number,
            allocation=collection.allocation,
            demos=[
                {
                    "code": row.code,
                    "factor": row.demo.factor,
                    "value": row.shown or row.demo.value,
                    "collected": row.collected,
                    "episode": row.episode,
                    "note": row.note,
                }
                for row in collection.rows
            ],
        )
    lines = [
        DemoLine(number, row.code, row.demo.factor, row.shown or row.demo.value, row.collected)
        for number, row in enumerate(collection.rows, start=1)
    ]
    changes = setup_changes([row.demo for row in collection.rows])
    return collection_page(study.spec.name, collection.number, lines, changes, time.strftime("%Y-%m-%d"))


def status_entry(scoring: Scoring, unblind: bool) -> dict[str, object]:
    """Progress of scoring as JSON data, and with `unblind` each policy's scores so far."""
    now = scoring.progress()
    status: dict[str, object] = {
        "evaluation": scoring.number,
        "trials": now.trials,
        "scored": now.scored,
        "skipped": now.skipped,
        "left": now.left,
        "closed": now.closed,
    }
    if unblind:
        status["policies"] = [
            {
                "label": standing.label,
                "run": standing.run.id,
                "digest": standing.run.digest,
                "demos": standing.run.demos,
                "seed": standing.run.seed,
                "trials": standing.trials,
                "scored": standing.scored,
                "score": None if standing.score is None else standing.score.mean,
                "interval": None
                if standing.score is None
                else [standing.score.interval.low, standing.score.interval.high],
            }
            for standing in scoring.standings()
        ]
    return status


def _document(**content: object) -> str:
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _done(trial: BlindTrial) -> str:
    if trial.state == "scored":
        return f"scored{f' ({trial.ending})' if trial.ending else ''} by {trial.operator}"
    return f"skipped by {trial.operator}" if trial.state == "skipped" else ""
