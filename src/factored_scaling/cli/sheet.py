"""fsc sheet: lists for operators, and import of filled-in ones"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import click

from factored_scaling.cli.group import Group
from factored_scaling.cli.output import OutputFile
from factored_scaling.cli.sheet_forms import FORMATS, collection_text, evaluation_text, status_entry
from factored_scaling.cli.show import (
    json_option,
    plural,
    print_json,
    print_table,
    print_warnings,
    quoted,
    say,
    with_interval,
    write_out,
)
from factored_scaling.cli.target import Target, study_argument
from factored_scaling.errors import InvalidInput, NotEnoughData

if TYPE_CHECKING:
    from collections.abc import Mapping

    from factored_scaling.study import Study

out_option = click.option(
    "--out",
    type=OutputFile(dash=True),
    help="File to write: .html, .csv or .json, - for standard output. Default: .html and .csv in the study's folder.",
)
format_option = click.option("--format", "kind", type=click.Choice(FORMATS), help="Write only this format.")


@click.group("sheet", cls=Group)
def sheet_command() -> None:
    """Sheets for a day in the lab: which demonstrations to record, which trials to run and score.

    \b
    fsc sheet evaluate my-study                    trials in a blind, randomised order
    fsc sheet import my-study evaluate-1.csv       take a filled-in sheet in
    fsc sheet status my-study
    fsc sheet close my-study                       add the scores to the study
    fsc sheet collect my-study --budget 40         an operator's list, ordered to spare set-up changes
    fsc sheet labels my-study                      episodes and what they show, for fsc label
    """


@sheet_command.command("evaluate")
@study_argument
@click.option("--run", "runs", multiple=True, metavar="RUN", help="Only these policies, by id or digest.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of order, labels and codes. Default: random.")
@out_option
@format_option
def evaluate_command(study: str, runs: tuple[str, ...], seed: int | None, out: Path | None, kind: str | None) -> None:
    """Queue the trials that `scoring:` in study.yaml asks for, and print them for operators.

    The order is random, in blocks in which every policy has one trial. Operators see a label such as A7, not which
    policy it is; `fsc sheet status --unblind` shows it to the person who starts the policies. Called again while trials
    are open, this prints the same sheet again, unless its CSV has entries that are not imported.

    \b
    fsc sheet evaluate my-study
    fsc sheet evaluate my-study --run 3 --run 4 --out today.html
    """
    from factored_scaling.scoring.session import Scoring

    forms, target, name = _forms(out, kind), Target.parse(study), quoted(study)
    with target.study() as opened:
        waiting = [row for row in opened.store.evaluations(opened.id) if row.closed is None]
        if waiting and (runs or seed is not None):
            what = f"trials of evaluation {waiting[-1].number} are still open"
            raise InvalidInput(what, hint="score and close them first, or print them again without --run and --seed")
        if waiting:
            scoring = Scoring.open(opened)
            if scoring.outdated():
                what = f"`scoring:` in study.yaml is another since evaluation {scoring.number} was queued"
                print_warnings(
                    [f"{what}; `fsc sheet close {name} --early` ends it, and the next is as study.yaml says"]
                )
        else:
            scoring = Scoring.begin(opened, [opened.find_run(run).id for run in runs] or None, seed)
            from factored_scaling.runner.queue import mixed_settings

            if mixed := mixed_settings(opened.spec, [standing.run for standing in scoring.standings()]):
                print_warnings([f"{mixed}; `fsc sheet close {name} --early` drops this queue, --run chooses policies"])
        _write_forms(study, target, f"evaluate-{scoring.number}", out, {f: evaluation_text(scoring, f) for f in forms})
        progress = scoring.progress()
        say(f"evaluation {scoring.number}: {progress.trials} trials, {progress.left} to run", err=str(out) == "-")


@sheet_command.command("import")
@study_argument
@click.argument("sheet", type=click.Path(path_type=Path))
@click.option("--operator", default="sheet", show_default=True, help="Name of the operator who scored.")
@click.option("--partial", is_flag=True, help="Import the trials that are filled in so far.")
def import_command(study: str, sheet: Path, operator: str, partial: bool) -> None:
    """Import a filled-in SHEET.csv: trials with their scores, or demos ticked off.

    In column score, a trial has a score of the rubric or skip; column ended is empty, hazard or step limit. A sheet
    with a mistake changes nothing. Importing the same file again changes nothing.

    \b
    fsc sheet import my-study evaluate-1.csv --operator ada
    fsc sheet import my-study collect-1.csv
    """
    from factored_scaling.scoring.sheets import import_sheet

    with Target.parse(study).study() as opened:
        taken = import_sheet(opened, sheet, operator, partial)
        noun = "new demo" if taken.collection else "new trial"
        say(f"{plural(taken.new, noun)} in {plural(taken.rows, 'row')}")


@sheet_command.command("status")
@study_argument
@click.option("--number", type=int, help="Number of the evaluation. Default: the latest.")
@click.option("--unblind", is_flag=True, help="Show which policy each label is, with its mean so far.")
@json_option
def status_command(study: str, number: int | None, unblind: bool, as_json: bool) -> None:
    """Show the progress of scoring. --unblind is not for operators: they should not know which policy they score.

    \b
    fsc sheet status my-study
    fsc sheet status my-study --unblind --json       labels and runs, for the program that starts policies
    """
    from factored_scaling.scoring.session import Scoring

    with Target.parse(study).study() as opened:
        scoring = Scoring.open(opened, number)
        if as_json:
            print_json(status_entry(scoring, unblind))
            return
        now = scoring.progress()
        state = "closed" if now.closed else f"{now.left} to run, {now.claimed} of them under way"
        title = f"evaluation {scoring.number}: {now.scored} of {now.trials} scored, {now.skipped} skipped, {state}"
        if not unblind:
            say(title)
        else:
            names = opened.spec.names
            rows = [
                [
                    standing.label,
                    str(standing.run.id),
                    *(str(standing.run.demos[name]) for name in names),
                    str(standing.run.seed),
                    f"{standing.scored} of {standing.trials}",
                    "–" if standing.score is None else with_interval(standing.score.mean, standing.score.interval),
                ]
                for standing in scoring.standings()
            ]
            print_table(title, ["policy", "run", *names, "seed", "scored", "score"], rows)


@sheet_command.command("undo")
@study_argument
@click.argument("code")
@click.option("--operator", default="sheet", show_default=True, help="Name of the operator who undoes it.")
def undo_command(study: str, code: str, operator: str) -> None:
    """Undo the score or the skip of trial CODE. The entry stays in the history.

    \b
    fsc sheet undo my-study K7PQ
    """
    from factored_scaling.core.trial_queue import read_code
    from factored_scaling.scoring.session import Scoring

    read = read_code(code)
    if read is None:
        raise InvalidInput(f"{code!r} is no code", where="CODE", hint="compare it with the sheet")
    with Target.parse(study).study() as opened:
        scoring = Scoring.open(opened)
        scoring.undo(read, operator, uuid.uuid4().hex)
        scoring.release(operator)  # the person who undoes it is not at the robot, so the trial is open to any operator
        say(f"trial {read} is open again")


@sheet_command.command("close")
@study_argument
@click.option(
    "--early", is_flag=True, help="Close although trials are not scored; without any score the evaluation is dropped."
)
def close_command(study: str, early: bool) -> None:
    """Add the scores to the study: they become trials of their runs, which are then done.

    Until then any score can be undone, and `fsc fit --partial` already uses them.

    \b
    fsc sheet close my-study
    fsc fit my-study
    """
    from factored_scaling.scoring.session import Scoring

    with Target.parse(study).study() as opened:
        scoring = Scoring.open(opened)
        if scoring.progress().closed:
            say(f"evaluation {scoring.number} is closed already")
            return
        new = scoring.close(early)
        if not scoring.progress().scored:
            again = f"`fsc sheet evaluate {quoted(study)}` queues them anew"
            say(f"evaluation {scoring.number} dropped: nothing was scored; its policies wait, {again}")
            return
        say(f"evaluation {scoring.number} closed: {new} trials of {len(scoring.standings())} policies")


@sheet_command.command("collect")
@study_argument
@click.option("--budget", type=int, metavar="K", help="List a new recommendation for K demos.")
@click.option("--strategy", default="auto", show_default=True, help="Strategy of the recommendation.")
@click.option(
    "--allocation", multiple=True, metavar="FACTOR=DEMOS", help="List this allocation instead of a recommendation."
)
@out_option
@format_option
def collect_command(
    study: str, budget: int | None, strategy: str, allocation: tuple[str, ...], out: Path | None, kind: str | None
) -> None:
    """Turn an allocation into an operator's list: which value of which factor each demonstration shows.

    Values come from `values:` of each factor in study.yaml: those shown least so far, or the widest gaps of a range.
    Demos of one factor stay together, and so do equal set-ups. Without --budget and --allocation, list what the last
    `fsc recommend --save` of this round recommended, or print the newest list again.

    \b
    fsc sheet collect my-study --budget 40
    fsc sheet collect my-study --allocation camera_pose=30 --allocation lighting=10 --format csv
    """
    from factored_scaling.scoring.sheets import begin_collection, open_collection

    if budget is not None and allocation:
        raise InvalidInput("a budget and an allocation", where="--allocation", hint="give one of them")
    forms, target = _forms(out, kind), Target.parse(study)
    with target.study() as opened:
        wanted = _allocation(opened, budget, strategy, allocation)
        collection = open_collection(opened) if wanted is None else begin_collection(opened, wanted)
        texts = {form: collection_text(opened, collection, form) for form in forms}
        _write_forms(study, target, f"collect-{collection.number}", out, texts)
        done = sum(row.collected for row in collection.rows)
        say(f"list {collection.number}: {len(collection.rows)} demos, {done} collected", err=str(out) == "-")


@sheet_command.command("labels")
@study_argument
@click.option("--out", type=OutputFile(dash=True), help="File to write. Default: standard output.")
def labels_command(study: str, out: Path | None) -> None:
    """The episodes written on the lists, with factor and value, for `fsc label`.

    \b
    fsc sheet labels my-study --out labels.csv
    fsc label recordings/fold-towel --csv labels.csv
    """
    from factored_scaling.scoring.sheets import labels_csv

    with Target.parse(study).study() as opened:
        text, without = labels_csv(opened)
    if text.count("\n") == 1:
        raise NotEnoughData("no row that is ticked off names its episode", hint="fill in the column episode")
    _write(out if out is not None else Path("-"), text)
    if without:
        say(f"warning: {without} demos are ticked off without an episode and are left out", err=True)


def _allocation(study: Study, budget: int | None, strategy: str, allocation: tuple[str, ...]) -> dict[str, int] | None:
    """What to list; None for what was listed before."""
    from factored_scaling.cli.start import pairs
    from factored_scaling.scoring.sheets import collections

    if allocation:
        return pairs(allocation, "--allocation")
    if budget is not None:
        answer = study.snapshot().recommend(budget, strategy)
        print_warnings(answer.warnings)
        return answer.allocation
    order, every = study.saved_recommendation(), collections(study)
    if any(collection.created >= study.round.created for collection in every):
        return None  # an order is listed once: a list made since is printed again
    if order is None and every:  # an old list on the bench would be followed twice
        what = "the lists made so far belong to earlier rounds"
        raise NotEnoughData(what, hint="`fsc sheet collect STUDY --budget K` makes one for this round")
    return None if order is None else dict(order["allocation"])


def _forms(out: Path | None, kind: str | None) -> tuple[str, ...]:
    """The forms to write: one when a name or a form is given, else both."""
    if out is None:
        return (kind,) if kind else FORMATS[:2]
    form = kind or (out.suffix.lower().removeprefix(".") if str(out) != "-" else "csv")
    if form not in FORMATS:
        raise InvalidInput(f"{out} is none of .html, .csv and .json", where="--out", hint="or say --format")
    return (form,)


def _write_forms(study: str, target: Target, stem: str, out: Path | None, texts: Mapping[str, str]) -> None:
    """Write a sheet in several forms, unless that would overwrite what an operator has typed."""
    from factored_scaling.scoring.sheets import not_imported

    places = {form: out if out is not None else (target.folder or Path()) / f"{stem}.{form}" for form in texts}
    if "csv" in places and str(places["csv"]) != "-" and (typed := not_imported(places["csv"], texts["csv"])):
        what = f"{plural(len(typed), 'row')} filled in and not imported, the first is {typed[0]}"
        partial = " --partial" if stem.startswith("evaluate") else ""
        first = f"fsc sheet import {quoted(study)} {quoted(places['csv'])}{partial}"
        hint = f"`{first}` first; --format html prints the page only"
        raise InvalidInput(what, where=str(places["csv"]), hint=hint)
    for form, path in places.items():
        _write(path, texts[form])


def _write(path: Path, text: str) -> None:
    from factored_scaling.io.text import write_text

    if str(path) == "-":
        write_out(text)
        return
    write_text(path, text)
    say(f"wrote {path}")
