"""Views of a study: one line, an HTML table, a data frame, and the differences of two specs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from factored_scaling.core.results import Row
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import wilson
from factored_scaling.errors import FscError
from factored_scaling.store import RunRow

if TYPE_CHECKING:
    import pandas

    from factored_scaling.study.study import Study


def describe(study: Study) -> str:
    """Name, place, round and the number of runs in each state, as one line."""
    round_, states = study.round, Counter(run.state for run in study.store.outline(study.id))
    runs = ", ".join(f"{count} {state}" for state, count in states.items()) or "none planned"
    return f"{round_.spec.name!r} in {study.store.place}: round {round_.index}, runs: {runs}"


def study_html(study: Study) -> str:
    """HTML table for notebooks: the demonstrations of each factor, and the state of the runs."""
    from factored_scaling.report.notebook import html_table

    spec = study.spec
    rows: list[tuple[object, ...]] = [("nominal", spec.nominal), *spec.sizes.items()]
    return html_table(describe(study), ("factor", "demos"), rows if spec.nominal else rows[1:])


def to_frame(names: Sequence[str], measured: Iterable[tuple[RunRow, Sequence[Row]]]) -> pandas.DataFrame:
    """Runs and the rows of their scores as a data frame; a run without scores has one row."""
    try:
        import pandas
    except ModuleNotFoundError:
        raise FscError("to_frame needs pandas, which is not installed", hint="`pip install pandas`") from None
    records: list[dict[str, Any]] = []
    for run, rows in measured:
        columns_of_run = {"run": run.id, "round": run.rounds[-1], "state": run.state, "seed": run.seed}
        columns_of_run |= {f"demos:{name}": run.demos[name] for name in names}
        records += [columns_of_run | _cells(row) for row in rows] or [columns_of_run]
    columns = ["run", "round", "state", "seed", *(f"demos:{name}" for name in names)]
    frame = pandas.DataFrame(records, columns=[*columns, "factor", "score", "trials", "low", "high"])
    return frame.astype({"factor": "string", "trials": "Int64", **dict.fromkeys(("score", "low", "high"), "float64")})


def _cells(row: Row) -> dict[str, Any]:
    ends = (math.nan, math.nan)
    if row.trials:
        interval = wilson(row.score, row.trials)
        ends = (interval.low, interval.high)
    return {
        "factor": "+".join(row.factor),
        "score": row.score,
        "trials": row.trials,
        "low": ends[0],
        "high": ends[1],
    }


def differences(before: StudySpec, after: StudySpec) -> list[str]:
    """The differences between two specs, one entry per factor or key."""
    old, new = before.to_mapping(), after.to_mapping()
    for data in (old, new):
        data |= {f"factors.{name}": value for name, value in data.pop("factors").items()}
    changed = [key for key in dict.fromkeys((*old, *new)) if old.get(key) != new.get(key)]
    if not changed and before.names != after.names:
        return [f"order of factors: {', '.join(before.names)} in the study"]
    return [f"{key}: {old.get(key, 'not set')} in the study, {new.get(key, 'not set')} given" for key in changed]
