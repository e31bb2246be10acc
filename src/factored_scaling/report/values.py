"""Input of a report: plain frozen values that any caller can build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from factored_scaling.core.results import Results, Row, distinct
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Result, Score, known_result
from factored_scaling.model.recommend import Recommendation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class RunLine:
    """One policy of the run table. A `Score` over 0 trials means that their number is unknown."""

    label: str
    demos: Mapping[str, int]
    seed: int | None
    state: str
    score: Score | None = None
    # keys as in results.csv: one factor, several joined by `+`, or `*`
    by_factor: Mapping[str, Score] = field(default_factory=dict)

    def with_result(self, result: Result) -> RunLine:
        """The same policy with its scores."""
        by_factor = {"+".join(factor): score for factor, score in result.by_factor.items()}
        return replace(self, score=result.overall, by_factor=by_factor)


@dataclass(frozen=True)
class OutcomeRow:
    """Outcome of a strategy: the policy trained after its demonstrations were collected, and its measured score."""

    strategy: str
    # predicted success, if the strategy makes a prediction
    predicted: float | None
    measured: float
    low: float
    high: float
    trials: int
    demos: Mapping[str, int] = field(default_factory=dict)
    # predicted and measured, seed by seed
    seeds: Sequence[tuple[float | None, float]] = ()
    # demonstrations collected with each seed, if they differ; `demos` are then those of the first
    by_seed: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class ReportInput:
    """Everything on the page. The first recommendation is the headline; `created` is the caller's date."""

    spec: StudySpec
    results: Results
    recommendations: Mapping[str, Recommendation]
    runs: Sequence[RunLine]
    created: str
    outcome: Sequence[OutcomeRow] = ()
    # shown under the headline, for example what kind of data this is
    notes: Sequence[str] = ()
    # title, caption, figure
    extra_figures: Sequence[tuple[str, str, Figure]] = ()


def run_lines(spec: StudySpec, results: Results) -> tuple[RunLine, ...]:
    """The run table for results without recorded runs: one line per training set and seed."""
    groups: dict[tuple[tuple[int, ...], int | None], list[Row]] = {}
    for _, row, demos in distinct(spec, results):
        groups.setdefault((demos, row.seed), []).append(row)
    lines = []
    for number, ((demos, seed), rows) in enumerate(groups.items(), start=1):
        result = known_result((row.factor, row.score, row.trials) for row in rows)
        named = dict(zip(spec.names, demos, strict=True))
        lines.append(RunLine(f"policy {number}", named, seed, "measured").with_result(result))
    return tuple(lines)
