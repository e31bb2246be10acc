"""fsc quickstart: the whole method, for real, on the embedded simulator."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from factored_scaling.cli.show import percent, print_heading, print_table, print_text, quoted, say
from factored_scaling.core.baselines import BASELINES
from factored_scaling.errors import InvalidInput
from factored_scaling.model.recommend import evenly
from factored_scaling.model.text import counted

if TYPE_CHECKING:
    from factored_scaling.bench.loop import Loop, LoopSettings, Outcome
    from factored_scaling.bench.usual import Usual
    from factored_scaling.cli.outcomes import OutcomeLine
    from factored_scaling.cli.run import Bars
    from factored_scaling.core.trials import Result
    from factored_scaling.report import OutcomeRow

STRATEGIES = ("auto", "top", "equal", "greedy")
ALL_STRATEGIES = ("auto", "top", "all", "equal", "greedy", "remix")  # of --full: Re-Mix trains two more models
# Demonstrations at the start, of every factor or by factor: many of three factors and few of two, as datasets grow
# where varying is easy. Chosen on the emulator of results/tables/pick-place before it was run.
FEW, MANY = 5, 40
START: dict[str, int | dict[str, int]] = {
    "tabletop/pick-place": {
        "camera_pose": FEW,
        "distractor": MANY,
        "table_texture": FEW,
        "lighting": MANY,
        "background": MANY,
    }
}
OTHER_START = 10
# Success after it is that of twice the updates (results/tabletop-pick-place/README.md#training).
POLICY = {"updates": 1800, "learning_rate": 4e-3}
POINTS = 3  # per curve: seven policies for the three curves of five factors
NAMES = {
    "auto": "Response model",
    "top": "FSC (top)",
    "all": "FSC (all)",
    "equal": "Equal",
    "greedy": "Greedy",
    "remix": "Re-Mix",
}


@click.command("quickstart")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("quickstart"),
    show_default=True,
    help="Folder of the study and the report.",
)
@click.option("--task", default="tabletop/pick-place", show_default=True, help="A task of the embedded simulator.")
@click.option("--budget", type=click.IntRange(1), default=100, show_default=True, help="Demonstrations to collect.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of demonstrations and training."
)
@click.option("--workers", type=click.IntRange(1, 256), help="Number of parallel processes. Default: one per core.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, mps: where networks are trained.")
@click.option("--full", is_flag=True, help="Three seeds, budgets of 20 and 100, and two more rules: All and Re-Mix.")
@click.option("--fast", is_flag=True, help="Under two minutes: every step, with training too short to compare rules.")
@click.option("--tiny", is_flag=True, help="A toy size for tests: runs in a minute, and the scores mean nothing.")
def quickstart_command(
    folder: Path,
    task: str,
    budget: int,
    seed: int,
    workers: int | None,
    device: str,
    full: bool,
    fast: bool,
    tiny: bool,
) -> None:
    """Run the whole method: collect, train on subsets, fit, recommend, collect, train again, compare.

    Trains 11 small policies from scratch, in at most seven minutes on two cores. Ctrl-C stops; the same command
    continues. The final table compares the success after the recommendation with that after the paper's FSC, an equal
    split and Greedy (everything to the factor with the lowest success).

    \b
    fsc quickstart
    fsc quickstart --fast                          to see what happens, in under two minutes
    fsc quickstart --task tabletop/insert --folder insert --budget 50
    """
    from factored_scaling.bench.loop import Stop
    from factored_scaling.cli.outcomes import line_of, write_outcomes

    if full and click.get_current_context().get_parameter_source("budget") is ParameterSource.COMMANDLINE:
        raise InvalidInput("--full has budgets of its own, 20 and 100", where="--budget", hint="leave one of them out")
    began = time.monotonic()
    seeds, budgets = ((seed, seed + 1, seed + 2), (20, 100)) if full else ((seed,), (budget,))
    size = "tiny" if tiny else "fast" if fast else "full" if full else ""
    rounds: list[Round] = []
    try:
        for number in seeds:
            settings = _settings(task, number, size, device)
            place = folder / f"seed-{number}" if full else folder
            rounds.append(_turn(place, settings, workers, budgets, ALL_STRATEGIES if full else STRATEGIES))
    except Stop:
        say("stopped; the same command continues from here", err=True)
        sys.exit(130)
    lines = [
        line_of(task, one.settings.demos, one.settings.seed, outcome) for one in rounds for outcome in one.outcomes
    ]
    write_outcomes(folder / "outcomes.csv", lines)
    plots = [str(show_outcome(folder, amount, rounds, lines)) for amount in budgets]
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    if fast or tiny:
        say("These policies had too little training to compare rules; `fsc quickstart` trains longer.")
    say(f"\nTook {minutes} min {seconds} s. Rows are in {folder / 'outcomes.csv'}, the plot in {', '.join(plots)}.")
    example = folder / f"seed-{seed}" if full else folder
    say("\nNext:")
    for command, purpose in (
        (f"{example / 'report.html'}", "open it in a browser: what to collect, and why"),
        (f"fsc recommend {quoted(example)} --budget 50", "the same study with another budget"),
        (f"fsc serve {quoted(example)}", "its runs, curves and scores in a browser"),
        ("fsc init my-study --help", "begin with demonstrations of your own"),
    ):
        say(f"  {command:<{len(str(example)) + 28}} {purpose}")


@dataclass(frozen=True)
class Round:
    """One replicate of the whole procedure: success before, and after each rule's demonstrations."""

    settings: LoopSettings
    start: Mapping[str, int]
    before: Result
    outcomes: Sequence[Outcome]


def _settings(task: str, seed: int, size: str, device: str) -> LoopSettings:
    from factored_scaling.bench.loop import LoopSettings

    start = START.get(task, OTHER_START)
    if size == "tiny":
        policy, trials = {"updates": 20, "image_size": 32}, {"settings": 2, "initial_states": 1}
        return LoopSettings(task, 4, POINTS, seed, policy, trials, device=device)
    if size == "fast":
        return LoopSettings(task, start, POINTS, seed, {**POLICY, "updates": 400}, {"initial_states": 2}, device=device)
    points = 4 if size == "full" else POINTS
    return LoopSettings(task, start, points, seed, POLICY, {"initial_states": 12}, device=device)


def make_loop(folder: Path, settings: LoopSettings, workers: int | None, bars: Bars | None = None) -> Loop:
    """A loop whose runs are carried out here, with progress bars."""
    from factored_scaling.bench.loop import Loop
    from factored_scaling.cli.run import Bars
    from factored_scaling.policies.capacity import check_device

    check_device(settings.device)
    if folder.exists() and not folder.is_dir():
        raise InvalidInput("is a file, not a folder", where=str(folder))
    return Loop(folder, settings, Bars.single, workers, (bars or Bars()).hear)


def _turn(
    folder: Path, settings: LoopSettings, workers: int | None, budgets: Sequence[int], strategies: Sequence[str]
) -> Round:
    """One round step by step, with a report at the end."""
    from factored_scaling.bench.loop import Cell
    from factored_scaling.cli.run import Bars

    bars = Bars()
    loop = make_loop(folder, settings, workers, bars)
    cells = [Cell(strategy, budget) for budget in budgets for strategy in strategies]
    print_heading(f"\n{settings.task}, seed {settings.seed}")
    say(f"Step 1 of 5: collect {_start_words(loop.start)}")
    with loop.study() as study:
        policies = len(study.runs())
    bars.title, bars.later = "Step 2 of 5", len(cells)
    say(f"Step 2 of 5: train and measure {policies} policies on subsets of them; at most {len(cells)} follow in step 4")
    loop.measure(["group"])
    learning = "; Re-Mix learns its weights" if "remix" in strategies else ""
    say(f"Step 3 of 5: fit the response model and the paper's curves, recommend{learning}{_about(bars)}")
    answers = [loop.recommend(cell)[0] for cell in cells]
    for cell, answer in zip(cells, answers, strict=True):
        say(f"     K = {cell.budget:<4}{NAMES[cell.strategy]:<15} {counted(answer.allocation)}")
    different = len({(cell.budget, *answer.allocation.values()) for cell, answer in zip(cells, answers, strict=True)})
    bars.later = different
    say(f"Step 4 of 5: collect each rule's demonstrations, train {different} policies, measure{_about(bars)}")
    bars.title, bars.later = "Step 4 of 5", 0
    outcomes = loop.outcomes(cells)
    for budget in budgets:
        path = _report(loop, [outcome for outcome in outcomes if outcome.cell.budget == budget], budget)
        say(f"Step 5 of 5: wrote {path}")
    return Round(settings, loop.start, loop.before(), outcomes)


def _start_words(start: Mapping[str, int]) -> str:
    if len(set(start.values())) > 1:
        return f"{sum(start.values())} demonstrations: {counted(start)}"
    return f"{next(iter(start.values()))} demonstrations for each of: {', '.join(start)}"


def _about(bars: Bars) -> str:
    """The time left in all, where policies have been timed."""
    seconds = bars.seconds_left()
    return "" if seconds is None else f" (about {max(1, round(seconds / 60))} min left in all)"


def _report(loop: Loop, outcomes: Sequence[Outcome], budget: int) -> Path:
    from factored_scaling.cli.outcomes import line_of, outcome_row
    from factored_scaling.report import ReportInput, write_report

    with loop.study() as study:
        now = study.snapshot()
    answers = {outcome.cell.strategy: outcome.recommendation for outcome in outcomes}
    path = loop.folder / (f"report-K{budget}.html" if budget != 100 else "report.html")
    notes = ["Measured in the embedded tabletop simulator: small networks, small images, one training seed per policy."]
    settings = loop.settings
    rows = [
        outcome_row([line_of(settings.task, settings.demos, settings.seed, outcome)], NAMES[outcome.cell.strategy])
        for outcome in outcomes
    ]
    created = time.strftime("%Y-%m-%d")
    write_report(ReportInput(now.spec, now.results, answers, now.run_lines, created, rows, notes), path)
    return path


def show_outcome(folder: Path, budget: int, rounds: Sequence[Round], lines: Sequence[OutcomeLine]) -> Path:
    """Print the table and what it means for one budget; returns the path of the plot."""
    from factored_scaling.bench.usual import usual_outcome
    from factored_scaling.cli.outcomes import outcome_row
    from factored_scaling.report.figures import outcome_figure
    from factored_scaling.report.style import save_figure

    found = [(one.settings.seed, o) for one in rounds for o in one.outcomes if o.cell.budget == budget]
    labels = {outcome.cell.strategy: outcome.cell.label for _, outcome in found}
    mine = {rule: [x for x in lines if (x.budget, x.method) == (budget, label)] for rule, label in labels.items()}
    rows = {rule: outcome_row(its, NAMES[rule]) for rule, its in mine.items()}
    settings = rounds[0].settings
    converged = dict(settings.policy) == POLICY  # usual outcomes say nothing about shorter training
    usual = {rule: usual_outcome(settings.task, rounds[0].start, budget, rule) if converged else None for rule in rows}
    _closing_table(budget, len(rounds), rows, usual)
    means = {rule: row.measured for rule, row in rows.items()}
    print_text(plain_words(statistics.fmean(one.before.overall.mean for one in rounds), means, budget))
    print_text(verdict(means, found, usual))
    path = folder / (f"outcome-K{budget}.png" if budget != 100 else "outcome.png")
    save_figure(outcome_figure(list(rows.values())), path)
    return path


def _closing_table(
    budget: int, replicates: int, rows: Mapping[str, OutcomeRow], usual: Mapping[str, Usual | None]
) -> None:
    """Predicted and measured success per rule, beside what single runs usually give where that is known."""
    from factored_scaling.cli.outcomes import brief

    columns = {
        "rule": [row.strategy for row in rows.values()],
        "predicted": ["–" if row.predicted is None else percent(row.predicted) for row in rows.values()],
        "measured": [percent(row.measured) for row in rows.values()],
        "95% interval": [f"{100 * row.low:.1f}–{100 * row.high:.1f}" for row in rows.values()],
    }
    known = next((one for one in usual.values() if one), None)
    if known:
        columns["usual"] = [
            f"{percent(one.mean)} ({100 * one.low:.1f}–{100 * one.high:.1f})" if one else "–" for one in usual.values()
        ]
    columns["collected" + (" (first seed)" if replicates > 1 else "")] = [brief(row.demos) for row in rows.values()]
    over = f", means over {replicates} seeds" if replicates > 1 else ""
    cells = list(zip(*columns.values(), strict=True))
    print_table(f"Success after collecting K = {budget} more demonstrations{over}", list(columns), cells)
    if known:
        print_text(
            f"usual: mean and 95% range of single runs of each rule from this start, in {known.seeds} studies emulated "
            f"from {known.source}."
        )


def plain_words(before: float, means: Mapping[str, float], budget: int) -> str:
    """The outcome in one sentence for people who know nothing of the method."""

    def of_hundred(share: float) -> str:
        return f"{100 * share:.0f}"

    return (
        f"In scenes that no demonstration showed, the robot succeeded in {of_hundred(before)} of 100 trials at the "
        f"start, in {of_hundred(means['auto'])} after {budget} more demonstrations chosen by the response model, and "
        f"in {of_hundred(means['equal'])} after {budget} spread equally."
    )


def verdict(
    means: Mapping[str, float],
    outcomes: Sequence[tuple[int, Outcome]],
    usual: Mapping[str, Usual | None] | None = None,
) -> str:
    """How the response model did against the best baseline; a difference that chance explains is called a tie.

    Chance is how single runs usually vary, in `usual`; where that is not known, trials and the model's training noise.
    """
    rival = max((name for name in BASELINES if name in means), key=lambda name: means[name])
    allocations = {(seed, one.cell.strategy): one.recommendation.allocation for seed, one in outcomes}
    seeds = {seed for seed, _ in outcomes}
    alike = [seed for seed in seeds if allocations[seed, "auto"] == allocations[seed, "equal"]]
    compared = _compared(means, rival, outcomes, usual or {})
    if not alike:
        return compared
    same = f"The response model split the budget {evenly(allocations[alike[0], 'equal'])}, as Equal does"
    if len(alike) < len(seeds):
        return f"{same}, with {len(alike)} of {len(seeds)} seeds. {compared}"
    return f"{same}." if rival == "equal" else f"{same}. {compared}"


def _compared(
    means: Mapping[str, float],
    rival: str,
    outcomes: Sequence[tuple[int, Outcome]],
    usual: Mapping[str, Usual | None],
) -> str:
    gap = means["auto"] - means[rival]
    ours = [outcome for _, outcome in outcomes if outcome.cell.strategy == "auto"]
    known = [one for one in (usual.get("auto"), usual.get(rival)) if one is not None]
    if len(known) == 2:
        variance = sum(((one.high - one.low) / 4) ** 2 for one in known)
        source = "as single runs vary"
    else:
        trials = statistics.fmean(outcome.result.overall.trials for outcome in ours)
        noise = statistics.fmean(o.recommendation.summary.noise.mean if o.recommendation.summary else 0.0 for o in ours)
        variance = 2 * (0.25 / trials + noise**2)  # of two shares of trials, and of two trainings
        source = "trials and training noise"
    error = 2 * (variance / len(ours)) ** 0.5
    chance = f"differences under {100 * error:.1f} points are within chance ({source})"
    best = f"the best baseline, {NAMES[rival]}"
    if abs(gap) < error:
        return f"A tie: the response model and {best}, are {100 * abs(gap):.1f} points apart; {chance}."
    if gap > 0:
        return f"The response model beat {best}, by {100 * gap:.1f} points; {chance}."
    return f"The response model did not win: {NAMES[rival]} was {-100 * gap:.1f} points better; {chance}."
