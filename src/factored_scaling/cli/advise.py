"""fsc fit, fsc recommend"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from factored_scaling.cli.show import json_option, percent, print_json, print_table, print_warnings
from factored_scaling.cli.target import Target, study_argument
from factored_scaling.core.allocate import check_budget
from factored_scaling.core.diagnostics import Diagnosis
from factored_scaling.core.recommend import (
    FITS,
    STRATEGIES,
    CurveReport,
    Recommendation,
    fit_curves,
    recommend,
    report_curves,
)
from factored_scaling.errors import InvalidInput, NotEnoughData

results_argument = click.argument("results", required=False, metavar="[RESULTS.csv]", type=click.Path())


@click.command("fit")
@study_argument
@results_argument
@click.option("--budget", type=int, default=100, show_default=True, help="Demonstrations to look ahead.")
@click.option("--partial", is_flag=True, help="Also use scores of runs that are not finished.")
@json_option
def fit_command(study: str, results: str | None, budget: int, partial: bool, as_json: bool) -> None:
    """Fit one scaling curve per combination, 1 − a·(n + base)^b, and say how far to trust it.

    Scores come from RESULTS.csv (- for standard input), or from what the study has recorded.

    \b
    fsc fit study.yaml results.csv
    fsc fit my-study --budget 50 --json
    """
    spec, measured = Target.parse(study).spec_and_results(results, partial=partial)
    with _placed(results, None):
        curves, warnings = fit_curves(spec, measured)
    reports = report_curves(spec, curves, check_budget(budget))
    if as_json:
        entries = [report.to_mapping() | _diagnosis(report.diagnosis) | {"best": report.best} for report in reports]
        print_json({"budget": budget, "fit": "power-law", "curves": entries, "warnings": list(warnings)})
        return
    _print_curves(reports, budget)
    for report in reports:
        for flag in report.diagnosis.flags:
            click.echo(f"• {flag.sentence}")
    print_warnings(warnings)


@click.command("recommend")
@study_argument
@results_argument
@click.option("--budget", type=int, required=True, help="K: how many demonstrations can be collected (or cost units).")
@click.option(
    "--strategy",
    default="auto",
    show_default=True,
    metavar="|".join(STRATEGIES),
    shell_complete=lambda _context, _parameter, begun: [name for name in STRATEGIES if name.startswith(begun)],
    help="top: all to the best combination. all: to every one by its slope. auto: top when the best one stands out "
    "with 80% probability, else all. equal, greedy, cubed-failure, remix: the baselines.",
)
@click.option("--fit", default="power-law", show_default=True, metavar="|".join(FITS), help="How curves are fitted.")
@click.option("--half-up", is_flag=True, help="top-half takes ⌈C/2⌉ combinations instead of ⌊C/2⌋.")
@click.option("--save", is_flag=True, help="Keep this recommendation in the study, for `fsc extend --as-ordered`.")
@click.option("--partial", is_flag=True, help="Also use scores of runs that are not finished.")
@click.option("--weights", type=click.Path(path_type=Path), help="Re-Mix's weights per factor (JSON), for remix.")
@click.option("--proxy", type=int, metavar="K", help="Fit to FSC-Proxy's scores of the K (1, 5, 10) nearest instead.")
@json_option
def recommend_command(
    study: str,
    results: str | None,
    budget: int,
    strategy: str,
    fit: str,
    half_up: bool,
    save: bool,
    partial: bool,
    weights: Path | None,
    proxy: int | None,
    as_json: bool,
) -> None:
    """Split a budget of demonstrations over the factors.

    Costs, caps and minimums per factor are read from study.yaml, e.g. `camera_pose: {demos: 30, cost: 3, cap: 40}`;
    with costs the budget counts cost units.

    \b
    fsc recommend study.yaml results.csv --budget 100
    fsc recommend my-study --budget 100 --strategy top --json
    fsc recommend my-study --budget 100 --save            then `fsc extend` when they are collected
    """
    check_budget(budget)
    target = Target.parse(study)
    needs_scores = strategy not in ("equal", "remix")
    if proxy is None:
        spec, measured = target.spec_and_results(results, required=needs_scores, partial=partial)
    elif results is not None:
        raise InvalidInput("proxy scores come from the record, not from a file", where="--proxy")
    else:
        spec, measured = target.spec_and_proxy(proxy)
    learned = target.remix_weights(weights, strategy)
    with _placed(results, weights):
        answer = recommend(spec, measured, budget, strategy, fit, weights=learned, half_up=half_up)
    if save:
        with target.study() as opened:
            opened.store.put_document(opened.id, "recommendation", "latest", answer.to_mapping())
    if as_json:
        print_json(answer.to_mapping())
        return
    if answer.curves:
        _print_curves(answer.curves, budget)
    rows = [[name, str(spec.sizes[name]), f"+{count}" if count else "–"] for name, count in answer.allocation.items()]
    print_table(f"Collect next ({_rule(answer)})", ["factor", "demos now", "collect"], rows)
    print_warnings(answer.warnings)


@contextmanager
def _placed(results: str | None, weights: Path | None) -> Iterator[None]:
    """What the calculation finds wrong, with the file it came from."""
    try:
        yield
    except InvalidInput as error:
        if weights is not None and error.where.startswith("weights"):
            raise error.at(str(weights)) from None
        if results is not None and isinstance(error, NotEnoughData):
            raise error.at("standard input" if results == "-" else results) from None
        raise


def _print_curves(reports: tuple[CurveReport, ...], budget: int) -> None:
    rows = []
    for report in reports:
        gain = f"{100 * (report.predicted - report.now):+.1f}"
        a, b = f"{report.curve.a:.4g}", f"{report.curve.b:.4f}"
        label = report.curve.combination.label
        rows.append([label, a, b, percent(report.now), percent(report.predicted), gain, percent(report.best)])
    print_table("Scaling curves", ["combination", "a", "b", "now", f"+{budget} demos", "gain", "best buy"], rows)


def _rule(answer: Recommendation) -> str:
    if answer.chosen == answer.strategy:
        return answer.strategy
    why = "one combination stands out" if answer.chosen == "top" else "no combination stands out"
    return f"{answer.strategy} → {answer.chosen}: {why}"


def _diagnosis(diagnosis: Diagnosis) -> dict[str, Any]:
    test = diagnosis.back_test
    return {
        "residuals": list(diagnosis.residuals),
        "back_test": None if test is None else {"n": test.n, "predicted": test.predicted, "measured": test.measured},
        "flags": [{"kind": flag.kind, "sentence": flag.sentence} for flag in diagnosis.flags],
    }
