"""Outcomes as rows: what each rule collected, the success that was predicted, and the success that was measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from factored_scaling.core.checks import whole
from factored_scaling.core.trials import wilson
from factored_scaling.errors import UnknownFactor
from factored_scaling.io.tables import check_columns, share_cell, table_csv, whole_cell

if TYPE_CHECKING:
    from factored_scaling.bench.loop import Outcome
    from factored_scaling.report import OutcomeRow

_FIXED = ("task", "demos", "seed", "budget", "method", "predicted", "score", "trials")
_COLLECT, _SCORE = "collect:", "score:"
NOMINAL = "nominal"


@dataclass(frozen=True)
class OutcomeLine:
    """One policy trained after a rule's allocation was collected."""

    task: str
    # demonstrations before: of every factor, or by factor (and "nominal") where they differ
    demos: int | Mapping[str, int]
    seed: int
    budget: int
    method: str
    predicted: float | None
    score: float
    trials: int
    allocation: Mapping[str, int]
    by_factor: Mapping[str, float]


def line_of(task: str, demos: int | Mapping[str, int], seed: int, outcome: Outcome) -> OutcomeLine:
    """The outcome of one loop as a row."""
    overall, allocation = outcome.result.overall, outcome.recommendation.allocation
    by_factor = {name: outcome.result.by_factor[(name,)].mean for name in allocation}
    return OutcomeLine(
        task,
        demos,
        seed,
        outcome.cell.budget,
        outcome.cell.label,
        outcome.predicted,
        overall.mean,
        overall.trials,
        allocation,
        by_factor,
    )


def brief(demos: Mapping[str, int]) -> str:
    """'camera_pose:50 lighting:50'."""
    return " ".join(f"{name}:{count}" for name, count in demos.items() if count)


def write_outcomes(path: Path, lines: Sequence[OutcomeLine]) -> None:
    """Every outcome of every seed as one CSV row, with the score on each factor's own trials."""
    from factored_scaling.io.text import write_text

    factors = list(lines[0].allocation) if lines else []
    rows = []
    for line in lines:
        predicted = "" if line.predicted is None else f"{line.predicted:.4f}"
        fixed = [
            line.task,
            line.demos if isinstance(line.demos, int) else brief(line.demos),
            line.seed,
            line.budget,
            line.method,
            predicted,
            f"{line.score:.4f}",
            line.trials,
        ]
        scores = [f"{line.by_factor[name]:.4f}" for name in factors]
        rows.append([*fixed, *(line.allocation[name] for name in factors), *scores])
    header = [*_FIXED, *(_COLLECT + name for name in factors), *(_SCORE + name for name in factors)]
    write_text(path, table_csv(header, rows))


def read_outcomes(path: Path) -> list[OutcomeLine]:
    """The lines of a file that `write_outcomes` or the GPU study wrote; errors name row and column."""
    from factored_scaling.io.text import read_table

    return [_line(row, f"{path}: {place}") for place, row in read_table(path, _check_header)]


def _check_header(header: Sequence[str], place: str) -> None:
    needed = [*_FIXED]
    for column in header:
        if column.startswith(_COLLECT):
            needed.append(_SCORE + column.removeprefix(_COLLECT))
        elif column.startswith(_SCORE):
            needed.append(_COLLECT + column.removeprefix(_SCORE))
    check_columns(header, place, _FIXED, needed, _COLLECT, _SCORE)


def _line(row: Mapping[str, str], place: str) -> OutcomeLine:
    def count(column: str, least: int = 0) -> int:
        where = f"{place}, column {column}"
        return whole(whole_cell(row[column], where), where, least=least)

    def share(column: str) -> float:
        return share_cell(row[column], f"{place}, column {column}")

    factors = [column.removeprefix(_COLLECT) for column in row if column.startswith(_COLLECT)]

    def start() -> int | dict[str, int]:
        if ":" not in row["demos"]:
            return count("demos")
        where = f"{place}, column demos"
        parts = [part.rpartition(":") for part in row["demos"].split()]
        demos = dict.fromkeys(factors, 0)
        for name, _, number in parts:
            if name not in (*factors, NOMINAL):
                raise UnknownFactor(name, factors, where=where)
            demos[name] = whole(whole_cell(number, where), where)
        return demos

    return OutcomeLine(
        row["task"],
        start(),
        count("seed"),
        count("budget"),
        row["method"],
        share("predicted") if row["predicted"] else None,
        share("score"),
        count("trials", least=1),
        {name: count(_COLLECT + name) for name in factors},
        {name: share(_SCORE + name) for name in factors},
    )


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
    predicted = [line.predicted for line in lines if line.predicted is not None]
    return OutcomeRow(
        name or lines[0].method,
        statistics.fmean(predicted) if predicted else None,
        mean,
        low,
        high,
        sum(line.trials for line in lines),
        lines[0].allocation,
        tuple((line.predicted, line.score) for line in lines),
        {}
        if all(line.allocation == lines[0].allocation for line in lines)
        else {line.seed: line.allocation for line in lines},
    )


def outcome_rows(lines: Sequence[OutcomeLine], budget: int) -> list[OutcomeRow]:
    """Every rule that was tried at this budget, in the order of the file."""
    methods = dict.fromkeys(line.method for line in lines if line.budget == budget)
    return [outcome_row([one for one in lines if (one.budget, one.method) == (budget, name)]) for name in methods]
