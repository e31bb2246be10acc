"""Studies to draw: made-up scores from a smooth rule, so that every test can say what should be seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from factored_scaling.core.design import plan
from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import NotEnoughData
from factored_scaling.model.recommend import recommend
from factored_scaling.report import ReportInput, run_lines

VISUAL = ("table_texture", "lighting", "camera_pose", "distractor", "background")
SPATIAL = ("table_height", "object_pose", "robot_pose")
# how much success is lost without a factor's demonstrations
STEEP = dict(zip((*VISUAL, *SPATIAL), (0.05, 0.03, 0.12, 0.10, 0.02, 0.06, 0.08, 0.04), strict=True))


def study(
    names: Sequence[str] = VISUAL,
    construction: str = "group",
    *,
    steep: Mapping[str, float] = STEEP,
    trials: int | None = 600,
    per_factor: bool = False,
    **fields: Any,
) -> tuple[StudySpec, Results]:
    """A study and the scores of its planned policies."""
    spec = StudySpec(factors=dict.fromkeys(names, 30), construction=construction, **fields)
    rows: list[dict[str, Any]] = []
    for run in plan(spec):
        score = 0.6 - sum(steep[name] * (1 - run.demos[name] / 30) ** 1.5 for name in names) + 0.003 * run.spec.seed
        row: dict[str, Any] = {"demos": run.demos, "seed": run.spec.seed, "score": score}
        if trials is not None:
            row["trials"] = trials
        rows += [{**row, "factor": name} for name in names] if per_factor else [row]
    return spec, Results.from_rows(rows)


def report(spec: StudySpec, results: Results, budget: int = 100, first: str = "top", **fields: Any) -> ReportInput:
    """The report that a caller would make: the headline, and every strategy that the scores allow."""
    answers = {}
    for strategy in dict.fromkeys((first, "top", "top-half", "all", "equal", "greedy")):
        try:
            answers[strategy] = recommend(spec, results, budget, strategy)
        except NotEnoughData:
            continue
    return ReportInput(spec, results, answers, run_lines(spec, results), "2025-06-01", **fields)
