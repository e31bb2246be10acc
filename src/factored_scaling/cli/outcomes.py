"""Outcomes as rows: what each rule ordered, what was promised, and what was measured after collecting it."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factored_scaling.core.scores import wilson
from factored_scaling.errors import InvalidInput

if TYPE_CHECKING:
    from factored_scaling.loop import Outcome
    from factored_scaling.report import OutcomeRow

_FIXED = ("task", "demos", "seed", "budget", "method", "predicted", "score", "trials")
_COLLECT, _SCORE = "collect:", "score:"


@dataclass(frozen=True)
class OutcomeLine:
    """One policy trained after a rule's order was collected."""

    task: str
    # demonstrations per factor before
    demos: int
    seed: int
    budget: int
    method: str
    predicted: float | None
    score: float
    trials: int
    order: Mapping[str, int]
    by_factor: Mapping[str, float]


def line_of(task: str, demos: int, seed: int, outcome: Outcome) -> OutcomeLine:
    """What a loop measured, as a line."""
    overall, order = outcome.result.overall, outcome.recommendation.allocation
    by_factor = {name: outcome.result.by_factor[(name,)].mean for name in order}
    return OutcomeLine(
        task,
        demos,
        seed,
        outcome.cell.budget,
        outcome.cell.label,
        outcome.predicted,
        overall.mean,
        overall.trials,
        order,
        by_factor,
    )


def write_outcomes(path: Path, lines: Sequence[OutcomeLine]) -> None:
    """Every outcome of every seed as one CSV row, with the score on each factor's own trials."""
    from factored_scaling.files import write_text

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    factors = list(lines[0].order) if lines else []
    writer.writerow([*_FIXED, *(_COLLECT + name for name in factors), *(_SCORE + name for name in factors)])
    for line in lines:
        predicted = "" if line.predicted is None else f"{line.predicted:.4f}"
        fixed = [
            line.task,
            line.demos,
            line.seed,
            line.budget,
            line.method,
            predicted,
            f"{line.score:.4f}",
            line.trials,
        ]
        scores = [f"{line.by_factor[name]:.4f}" for name in factors]
        writer.writerow([*fixed, *(line.order[name] for name in factors), *scores])
    write_text(path, out.getvalue())


def read_outcomes(path: Path) -> list[OutcomeLine]:
    """The lines of a file that `write_outcomes` or the GPU study wrote; a mistake is told with its row and column."""
    from factored_scaling.files import read_text

    reader = csv.DictReader(io.StringIO(read_text(path)))
    header = list(reader.fieldnames or ())
    for column in _FIXED:
        if column not in header:
            raise InvalidInput(f"has no column {column!r}", where=str(path), hint=f"needed: {', '.join(_FIXED)}")
    factors = [column.removeprefix(_COLLECT) for column in header if column.startswith(_COLLECT)]
    lines = []
    for number, row in enumerate(reader, start=2):
        where = f"{path}, row {number}"
        predicted = row["predicted"]
        lines.append(
            OutcomeLine(
                str(row["task"]),
                int(_number(row, "demos", where)),
                int(_number(row, "seed", where)),
                int(_number(row, "budget", where)),
                str(row["method"]),
                _number(row, "predicted", where, 1.0) if predicted else None,
                _number(row, "score", where, 1.0),
                int(_number(row, "trials", where)),
                {name: int(_number(row, _COLLECT + name, where)) for name in factors},
                {name: _number(row, _SCORE + name, where, 1.0) for name in factors},
            )
        )
    if not lines:
        raise InvalidInput("has no rows", where=str(path))
    return lines


def _number(row: Mapping[str, Any], column: str, where: str, most: float = math.inf) -> float:
    try:
        value = float(row[column])
    except (TypeError, ValueError, KeyError):
        value = math.nan
    if not 0 <= value <= most:
        wanted = "a share from 0 to 1" if most == 1.0 else "a number of at least 0"
        raise InvalidInput(f"expected {wanted}, not {row.get(column)!r}", where=f"{where}, column {column}")
    return value


def outcome_row(lines: Sequence[OutcomeLine], name: str | None = None) -> OutcomeRow:
    """One rule at one budget over its seeds: mean and 95% interval (Student's t; Wilson's for a single seed)."""
    from scipy import stats

    from factored_scaling.report import OutcomeRow

    scores = [line.score for line in lines]
    mean = statistics.fmean(scores)
    if len(scores) == 1:
        interval = wilson(mean, lines[0].trials)
        low, high = interval.low, interval.high
    else:
        half = stats.t.ppf(0.975, len(scores) - 1) * statistics.stdev(scores) / math.sqrt(len(scores))
        low, high = max(0.0, mean - half), min(1.0, mean + half)
    promised = [line.predicted for line in lines if line.predicted is not None]
    return OutcomeRow(
        name or lines[0].method,
        statistics.fmean(promised) if promised else None,
        mean,
        low,
        high,
        sum(line.trials for line in lines),
        lines[0].order,
        tuple((line.predicted, line.score) for line in lines),
        {} if all(line.order == lines[0].order for line in lines) else {line.seed: line.order for line in lines},
    )


def outcome_rows(lines: Sequence[OutcomeLine], budget: int) -> list[OutcomeRow]:
    """Every rule that was tried at this budget, in the order of the file."""
    methods = dict.fromkeys(line.method for line in lines if line.budget == budget)
    return [outcome_row([one for one in lines if (one.budget, one.method) == (budget, name)]) for name in methods]
