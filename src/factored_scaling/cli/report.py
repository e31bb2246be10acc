"""fsc report"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from factored_scaling.cli.advise import results_argument
from factored_scaling.cli.outcomes import outcome_rows, read_outcomes
from factored_scaling.cli.output import OutputFile
from factored_scaling.cli.show import print_warnings, say
from factored_scaling.cli.target import Target, study_argument
from factored_scaling.errors import InvalidInput, NotEnoughData

if TYPE_CHECKING:
    from factored_scaling.core.results import Results
    from factored_scaling.core.spec import StudySpec
    from factored_scaling.model.recommend import Recommendation
    from factored_scaling.report import OutcomeRow, RunLine
    from factored_scaling.study import Study


@click.command("report")
@study_argument
@results_argument
@click.option("--budget", type=int, default=100, show_default=True, help="K: demonstrations to plan for.")
@click.option("--strategy", default="auto", show_default=True, help="The recommendation at the top of the page.")
@click.option("--out", type=OutputFile(), help="The page to write; report.html in the study's folder.")
@click.option(
    "--figures", type=click.Path(path_type=Path, file_okay=False), help="Also write PNG and SVG figures here."
)
@click.option(
    "--outcomes",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Outcome of each rule (outcomes.csv), shown for this K.",
)
@click.option("--partial", is_flag=True, help="Also use scores of runs that are not finished.")
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
    """Write one HTML file that opens anywhere, offline: curves, allocation, diagnostics, runs.

    Scores come from RESULTS.csv (- for standard input), or from what the study has recorded. Every strategy that they
    allow stands side by side: greedy and cubed-failure need scores per factor, remix its weights. Without scores the
    page shows the plan.

    \b
    fsc report study.yaml results.csv --budget 100 --out page.html
    fsc report my-study --figures figures/               PNG and SVG for a paper
    fsc report study.yaml results.csv --outcomes outcomes.csv
    """
    from factored_scaling.core.allocation import check_budget
    from factored_scaling.report import ReportInput, save_figures, write_report
    from factored_scaling.report.style import undrawable
    from factored_scaling.report.words import spoken

    check_budget(budget)
    if figures is not None and figures.exists() and not figures.is_dir():
        raise InvalidInput("is not a folder", where=str(figures))
    target = Target.parse(study)
    spec, measured = target.spec_and_results(results, required=False, partial=partial)
    lines = run_lines(target, spec, measured, results is None)
    weights = target.remix_weights(None, "remix")
    answers = recommendations(spec, measured, budget, strategy, weights)
    came = _came(outcomes, budget) if outcomes is not None else []
    last = target.hindsight(results) if measured.rows else None
    notes = [] if last is None else [spoken(spec, f"Looking back: {last.sentence}.")]
    page = ReportInput(spec, measured, answers, lines, time.strftime("%Y-%m-%d"), came, notes)
    path = out or (target.folder or Path()) / "report.html"
    write_report(page, path)
    say(f"wrote {path}")
    if figures is not None:
        boxes = undrawable("".join(spec.names))
        if boxes:
            hint = "install one that has, such as Noto Sans CJK"
            print_warnings([f"no font of this machine has {boxes}, which figures show as boxes; {hint}"])
        for written in save_figures(spec, answers, figures, outcome=came):
            say(f"wrote {written}")


def _came(path: Path, budget: int) -> list[OutcomeRow]:
    """Outcomes of this budget; a warning where there are none."""
    lines = read_outcomes(path)
    rows = outcome_rows(lines, budget)
    if not rows:
        known = ", ".join(str(number) for number in sorted({line.budget for line in lines}))
        print_warnings([f"{path} has no rows for a budget of {budget}, only for {known}"])
    return rows


def recommendations(
    spec: StudySpec, measured: Results, budget: int, headline: str, weights: dict[str, float] | None
) -> dict[str, Recommendation]:
    """The headline first, then every other strategy that the scores allow. Without scores, Equal alone."""
    from factored_scaling.model.recommend import STRATEGIES, recommend

    answers = {}
    first = headline if measured.rows else "equal"
    for strategy in dict.fromkeys((first, *STRATEGIES)):
        try:
            answers[strategy] = recommend(spec, measured, budget, strategy, weights=weights)
        except NotEnoughData:
            if strategy == headline and measured.rows:
                raise
    return answers


def run_lines(target: Target, spec: StudySpec, measured: Results, recorded: bool) -> Sequence[RunLine]:
    """The run table: the record's runs, or what the CSV says of policies."""
    from factored_scaling.report import run_lines as lines_of

    if not (recorded and target.recorded):
        return lines_of(spec, measured)
    with target.study() as opened:
        return recorded_lines(opened)


def recorded_lines(study: Study) -> list[RunLine]:
    """One line per run of a study, with scores where there are any."""
    from factored_scaling.core.trials import known_result, result_of_tallies
    from factored_scaling.report import RunLine

    tallies, means = study.store.tallies(study.id), study.store.study_scores(study.id)
    lines = []
    for run in study.runs():
        label = f"{run.id} ({run.digest[:8]})"
        if run.id in tallies:
            result = result_of_tallies(tallies[run.id])
        elif run.id in means:
            result = known_result((mean.factor, mean.score, mean.trials) for mean in means[run.id])
        else:
            lines.append(RunLine(label, run.demos, run.seed, run.state))
            continue
        by_factor = {"+".join(factor): score for factor, score in result.by_factor.items()}
        lines.append(RunLine(label, run.demos, run.seed, run.state, result.overall, by_factor))
    return lines
