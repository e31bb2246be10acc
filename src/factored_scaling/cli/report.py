"""fsc report"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from factored_scaling.cli.advise import partial_option, results_argument
from factored_scaling.cli.outcomes import outcome_rows, read_outcomes
from factored_scaling.cli.output import OutputFile
from factored_scaling.cli.show import print_warnings, say
from factored_scaling.cli.target import Target, study_argument
from factored_scaling.errors import InvalidInput

if TYPE_CHECKING:
    from factored_scaling.report import OutcomeRow


@click.command("report")
@study_argument
@results_argument
@click.option(
    "--budget",
    type=int,
    default=100,
    show_default=True,
    help="K: how many demonstrations can be collected (or cost units).",
)
@click.option("--strategy", default="auto", show_default=True, help="Strategy of the recommendation at the top.")
@click.option("--out", type=OutputFile(), help="File to write. Default: report.html in the study's folder.")
@click.option(
    "--figures", type=click.Path(path_type=Path, file_okay=False), help="Also write PNG and SVG figures here."
)
@click.option(
    "--outcomes",
    type=click.Path(path_type=Path, dir_okay=False),
    help="CSV of measured outcomes per rule; rows with this K are shown.",
)
@partial_option
def report_command(
    study: str,
    results: str | None,
    budget: int,
    strategy: str,
    out: Path | None,
    figures: Path | None,
    outcomes: Path | None,
    partial: bool,
) -> None:
    """Write a self-contained HTML file: allocation, predictions, curves, diagnostics, runs.

    Scores come from RESULTS.csv (- for standard input), or from what the study has recorded. All strategies that the
    scores allow are compared: greedy and cubed-failure need scores per factor, remix its weights. Without scores the
    page shows the plan.

    \b
    fsc report study.yaml results.csv --budget 100 --out page.html
    fsc report my-study --figures figures/               PNG and SVG for a paper
    fsc report study.yaml results.csv --outcomes outcomes.csv
    """
    from factored_scaling.core.allocation import check_budget
    from factored_scaling.report import save_figures, write_report
    from factored_scaling.report.style import undrawable

    check_budget(budget)
    if figures is not None and figures.exists() and not figures.is_dir():
        raise InvalidInput("is not a folder", where=str(figures))
    target = Target.parse(study)
    now = target.snapshot(results, required=False, partial=partial)
    came = _outcomes(outcomes, budget) if outcomes is not None else []
    page = now.report(budget, strategy, created=time.strftime("%Y-%m-%d"), outcome=came)
    path = out or (target.folder or Path()) / "report.html"
    write_report(page, path)
    say(f"wrote {path}")
    if figures is not None:
        boxes = undrawable("".join(page.spec.names))
        if boxes:
            hint = "install one that has, such as Noto Sans CJK"
            print_warnings([f"no font of this machine has {boxes}, which figures show as boxes; {hint}"])
        for written in save_figures(page.spec, page.recommendations, figures, outcome=came):
            say(f"wrote {written}")


def _outcomes(path: Path, budget: int) -> list[OutcomeRow]:
    """Outcomes of this budget; a warning where there are none."""
    lines = read_outcomes(path)
    rows = outcome_rows(lines, budget)
    if not rows:
        known = ", ".join(str(number) for number in sorted({line.budget for line in lines}))
        print_warnings([f"{path} has no rows for a budget of {budget}, only for {known}"])
    return rows
