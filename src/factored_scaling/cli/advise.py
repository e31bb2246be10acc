"""fsc fit, fsc recommend"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from factored_scaling.cli.output import OutputFile
from factored_scaling.cli.show import json_option, print_json, print_table, print_text, print_warnings, quoted, say
from factored_scaling.cli.target import Target, study_argument
from factored_scaling.core.allocation import check_budget
from factored_scaling.core.diagnostics import Diagnosis
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput, NotEnoughData
from factored_scaling.model.hindsight import Hindsight
from factored_scaling.model.recommend import (
    FITS,
    RESPONSE_MODEL,
    STRATEGIES,
    CurveReport,
    Recommendation,
    default_fit,
)
from factored_scaling.model.summary import ModelSummary
from factored_scaling.model.text import (
    LEVEL,
    choice_sentence,
    current_sentence,
    percent,
    points,
    regret_sentence,
    versus_equal_sentence,
)

if TYPE_CHECKING:
    from factored_scaling.cli.pool import Pool
    from factored_scaling.study import Snapshot

results_argument = click.argument("results", required=False, metavar="[RESULTS.csv]", type=click.Path())
budget_option = click.option(
    "--budget", type=int, required=True, help="K: how many demonstrations can be collected (or cost units)."
)
partial_option = click.option("--partial", is_flag=True, help="Also use scores of runs that are not finished.")


@click.command("fit")
@study_argument
@results_argument
@click.option("--budget", type=int, default=100, show_default=True, help="Additional demonstrations to predict for.")
@partial_option
@json_option
def fit_command(study: str, results: str | None, budget: int, partial: bool, as_json: bool) -> None:
    """Fit one scaling curve per combination, 1 − a·(n + base)^b, and check the fits.

    Scores come from RESULTS.csv (- for standard input), or from what the study has recorded.

    \b
    fsc fit study.yaml results.csv
    fsc fit my-study --budget 50 --json
    """
    check_budget(budget)
    with _placed(results, None):
        curves = Target.parse(study).snapshot(results, partial=partial).curves
        reports, warnings = curves.reports(budget), curves.warnings
    if as_json:
        entries = [report.to_mapping() | _diagnosis(report.diagnosis) | {"best": report.best} for report in reports]
        print_json({"budget": budget, "fit": "power-law", "curves": entries, "warnings": list(warnings)})
        return
    _print_curves(reports, budget)
    for report in reports:
        for flag in report.diagnosis.flags:
            say(f"• {flag.sentence}")
    print_warnings(warnings)


@click.command("recommend")
@study_argument
@results_argument
@budget_option
@click.option(
    "--strategy",
    default="auto",
    show_default=True,
    metavar="|".join(STRATEGIES),
    shell_complete=lambda _context, _parameter, begun: [name for name in STRATEGIES if name.startswith(begun)],
    help="auto: the allocation with the largest predicted success if it is at least 60% likely to match or beat an "
    "equal split, else an equal split. top, top-half, all: the paper's rules (the best combination, the better half, "
    "all by slope). equal, greedy, cubed-failure, remix: baselines.",
)
@click.option(
    "--fit",
    metavar="|".join(FITS),
    help="response-model: one model of all scores (default of auto). "
    "power-law: the paper's curves (default of the others).",
)
@click.option("--save", is_flag=True, help="Save this recommendation in the study for `fsc extend --as-recommended`.")
@partial_option
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    help="With --strategy remix: a JSON file with Re-Mix's weight of each factor.",
)
@click.option(
    "--proxy",
    type=int,
    metavar="K",
    help="Also use FSC-Proxy's scores with K = 1, 5 or 10; power-law curves are fitted to these scores alone.",
)
@click.option(
    "--pool",
    type=click.Path(path_type=Path),
    help="Choose among existing episodes: a CSV with columns episode and factor, or a labelled LeRobot dataset.",
)
@click.option("--out", type=OutputFile(), help="With --pool: write the chosen episodes to this file.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, help="With --pool: seed of the choice among a factor's episodes."
)
@json_option
def recommend_command(
    study: str,
    results: str | None,
    budget: int,
    strategy: str,
    fit: str | None,
    save: bool,
    partial: bool,
    weights: Path | None,
    proxy: int | None,
    pool: Path | None,
    out: Path | None,
    seed: int,
    as_json: bool,
) -> None:
    """Split a budget of demonstrations over the factors.

    By default a response model is fitted to all scores. The recommendation is the allocation with the largest predicted
    success if it is at least 60% likely to match or beat an equal split, else an equal split. Costs, caps and minimums
    per factor are read from study.yaml, e.g. `camera_pose: {demos: 30, cost: 3, cap: 40}`; with costs the budget counts
    cost units.

    Scores come from RESULTS.csv (- for standard input), or from what the study has recorded. One row per policy and
    varied factor is most informative; `fsc plan` lists the policies to train:

    \b
      demos:camera_pose,demos:lighting,factor,score,trials
      30,30,camera_pose,0.40,60
      30,30,lighting,0.65,60
      0,30,camera_pose,0.15,60

    In the table, `success now` is on the factor's own trials, `gain if all` the gain in points if the whole budget goes
    to that factor, and `P(best)` the probability that no other single factor would gain more.

    \b
    fsc recommend study.yaml results.csv --budget 100
    fsc recommend my-study --budget 100 --fit power-law --strategy top --json       the paper's rule
    fsc recommend my-study --budget 100 --save            then `fsc extend` when they are collected
    fsc recommend my-study --budget 100 --pool pool.csv --out chosen.csv            episodes that exist already
    """
    check_budget(budget)
    target = Target.parse(study)
    now = _scores(target, results, strategy, fit, proxy, partial)
    if pool is None and out is not None:
        raise InvalidInput("episodes can be written only when there is a pool", where="--out", hint="give --pool")
    held = None
    if pool is not None:
        from factored_scaling.cli.pool import Pool

        held = Pool.read(pool, now)
    now = now if held is None else replace(now, spec=held.spec)
    if weights is not None:
        if strategy != "remix":
            raise InvalidInput("weights are for strategy remix only", where="--weights")
        from factored_scaling.io.files import read_weights

        now = replace(now, weights=read_weights(weights))
    with _placed(results, weights):
        answer = now.recommend(budget, strategy, fit)
    if save:
        made = not target.recorded
        with target.study() as opened:
            kept = answer.to_mapping() | ({} if held is None else held.chosen(answer, seed))
            opened.save_recommendation(kept)
        if made:
            say(f"wrote {target.address}", err=True)
    if held is not None and out is not None:
        held.write(answer.allocation, seed, out)
    last = now.hindsight if answer.summary is not None else None
    if as_json:
        came = {} if last is None else {"last_round": last.to_mapping()}
        print_json(answer.to_mapping() | ({} if held is None else held.chosen(answer, seed)) | came)
        return
    _print_answer(answer, now.spec, held, proxy, last)
    if save:
        following = _following(target, now.spec, held)
        say(f"saved as the allocation of this round; next: `fsc extend {quoted(study)} {following}", err=True)


def _scores(
    target: Target, results: str | None, strategy: str, fit: str | None, proxy: int | None, partial: bool
) -> Snapshot:
    """The study and its scores, with proxy scores that the response model weighs beside them.

    Power-law curves cannot weigh: with `proxy` they are fitted to the proxy scores instead.
    """
    if proxy is None:
        return target.snapshot(results, strategy not in ("equal", "remix"), partial)
    if results is not None:
        raise InvalidInput("proxy scores come from the record, not from a file", where="--proxy")
    now = target.snapshot(None, False, partial, proxy)
    if (fit if fit is not None else default_fit(strategy)) == RESPONSE_MODEL or now.proxy is None:
        return now
    return replace(now, results=now.proxy, proxy=None)


def _print_answer(
    answer: Recommendation, spec: StudySpec, held: Pool | None, proxy: int | None, last: Hindsight | None
) -> None:
    """Curves where they decide, the allocation as a table, and its predicted success."""
    if answer.curves and answer.summary is None:
        _print_curves(answer.curves, answer.budget)
    rows = [[name, str(spec.sizes[name]), f"+{count}" if count else "–"] for name, count in answer.allocation.items()]
    columns = ["factor", "demos now", "collect"]
    if held is not None:
        columns[2] = "add"
        columns.insert(2, "in the pool")
        for row in rows:
            row.insert(2, str(held.episodes.count(row[0])))
    if answer.summary is not None:
        scored = [answer.summary.is_measured(curve.factor) for curve in answer.summary.curves]
        columns += [*(["success now"] if any(scored) else []), "gain if all", "P(best)"]
        for row, curve, known in zip(rows, answer.summary.curves, scored, strict=True):
            row += [percent(curve.now.mean) if known else "–"] if any(scored) else []
            row += [points(curve.gain.mean), percent(curve.best, 0)]
    rule = answer.strategy if answer.chosen is None else f"{answer.strategy}: {answer.chosen}"
    rule = rule if proxy is None else f"{rule}, proxy k = {proxy}"
    print_table(f"{'Collect' if held is None else 'Add'} next ({rule})", columns, rows)
    if answer.summary is not None:
        _print_expected(answer, answer.summary, "Collect" if held is None else held.verb, proxy is None)
    if last is not None:
        print_text(f"Looking back: {last.sentence}.")
    print_warnings((*(held.warnings if held is not None else ()), *answer.warnings))


def _following(target: Target, spec: StudySpec, pool: Pool | None) -> str:
    """How to record that the recommended demonstrations were collected."""
    from factored_scaling.cli.episodes import named

    if spec.dataset is not None:
        return "--dataset PATH` when it is recorded and labelled"
    if pool is not None:
        return "--as-recommended` adds these episodes"
    with target.study() as opened:
        return f"{'--episodes CSV' if named(opened) else '--as-recommended'}` when it is collected"


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
        gain = points(report.predicted - report.now)
        a, b = f"{report.curve.a:.4g}", f"{report.curve.b:.4f}"
        label = report.curve.combination.label
        rows.append([label, a, b, percent(report.now), percent(report.predicted), gain, percent(report.best, 0)])
    print_table("Scaling curves", ["combination", "a", "b", "now", f"+{budget} demos", "gain", "P(best)"], rows)


def _print_expected(answer: Recommendation, summary: ModelSummary, verb: str, measured: bool) -> None:
    """The answer in sentences; every number in them is in --json too. `fsc next` knows measured scores only."""
    print_text(answer.say(verb))
    print_text(f"{current_sentence(summary)} Intervals are {LEVEL}.")
    more = " `fsc next` says what measuring more would add." if summary.is_equal and measured else ""
    print_text(f"{versus_equal_sentence(summary)}{more}")
    print_text(choice_sentence(summary))
    print_text(regret_sentence(summary))


def _diagnosis(diagnosis: Diagnosis) -> dict[str, Any]:
    test = diagnosis.back_test
    return {
        "residuals": list(diagnosis.residuals),
        "back_test": None if test is None else {"n": test.n, "predicted": test.predicted, "measured": test.measured},
        "flags": [{"kind": flag.kind, "sentence": flag.sentence} for flag in diagnosis.flags],
    }
