"""fsc quickstart: the whole method, for real, on the embedded simulator."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from factored_scaling.cli.show import percent, print_heading, print_table, say
from factored_scaling.errors import InvalidInput
from factored_scaling.model.recommend import evenly

if TYPE_CHECKING:
    from factored_scaling.bench.loop import Loop, LoopSettings, Outcome
    from factored_scaling.report import OutcomeRow

STRATEGIES = ("auto", "top", "all", "equal", "greedy", "remix")
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
    "--folder", type=click.Path(path_type=Path, file_okay=False), default=Path("quickstart"), show_default=True
)
@click.option("--task", default="tabletop/pick-place", show_default=True, help="A task of the embedded simulator.")
@click.option("--budget", type=click.IntRange(1), default=100, show_default=True, help="Demonstrations to collect.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Which demonstrations and weights.")
@click.option("--workers", type=click.IntRange(1, 256), help="Processes side by side; one per core by default.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, mps: where networks are trained.")
@click.option("--full", is_flag=True, help="Three seeds and budgets of 20 and 100, with the spread over seeds.")
@click.option("--fast", is_flag=True, help="Two minutes: every step, with policies too short of training to compare.")
@click.option("--tiny", is_flag=True, help="A toy size that proves nothing but runs in a minute (for tests).")
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

    Trains about 16 small policies from scratch; the README states the time measured on two cores. Ctrl-C and the same
    command goes on. The closing table compares what the recommendation achieved with Equal, Greedy and Re-Mix.

    \b
    fsc quickstart
    fsc quickstart --fast                          to see what happens, in two minutes
    fsc quickstart --task tabletop/insert --folder insert --budget 50
    """
    from factored_scaling.bench.loop import Stop
    from factored_scaling.cli.outcomes import OutcomeLine, line_of, write_outcomes

    if full and click.get_current_context().get_parameter_source("budget") is ParameterSource.COMMANDLINE:
        raise InvalidInput("--full has budgets of its own, 20 and 100", where="--budget", hint="leave one of them out")
    began = time.monotonic()
    seeds, budgets = ((seed, seed + 1, seed + 2), (20, 100)) if full else ((seed,), (budget,))
    outcomes: list[tuple[int, Outcome]] = []
    lines: list[OutcomeLine] = []
    try:
        for number in seeds:
            settings = _settings(task, number, "tiny" if tiny else "fast" if fast else "", device)
            loop = make_loop(folder / f"seed-{number}" if full else folder, settings, workers)
            turned = _turn(loop, budgets)
            outcomes += [(number, outcome) for outcome in turned]
            lines += [line_of(task, settings.demos, number, outcome) for outcome in turned]
    except Stop:
        say("stopped; the same command goes on from here", err=True)
        sys.exit(130)
    write_outcomes(folder / "outcomes.csv", lines)
    for amount in budgets:
        _closing_table(amount, [(number, o) for number, o in outcomes if o.cell.budget == amount])
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    say(f"took {minutes} min {seconds} s; rows in {folder / 'outcomes.csv'}")
    if fast or tiny:
        say("These policies had too little training to compare rules; `fsc quickstart` trains longer.")
    if not full:
        say(f"\nNext:\n  open {folder / 'report.html'} in a browser: what to collect, and why")
        say(f"  fsc recommend {folder} --budget 50    the same study with another budget")
        say(f"  fsc serve {folder}                    its runs, curves and scores in a browser")
        say("  fsc init my-study --help              begin with demonstrations of your own")


def _settings(task: str, seed: int, size: str, device: str) -> LoopSettings:
    from factored_scaling.bench.loop import LoopSettings

    if not size:
        return LoopSettings(task, seed=seed, evaluation={"initial_states": 12}, device=device)
    policy, trials = {"updates": 20, "image_size": 32}, {"settings": 2, "initial_states": 1}
    if size == "fast":
        policy, trials = {"updates": 150}, {"initial_states": 1}
    remix = {"updates": 10, "warmup": 2, "validate_every": 5}
    return LoopSettings(task, 10 if size == "fast" else 4, 3, seed, policy, trials, remix, device)


def make_loop(folder: Path, settings: LoopSettings, workers: int | None) -> Loop:
    """A loop whose runs are carried out here, with progress bars."""
    from factored_scaling.bench.loop import Loop
    from factored_scaling.cli.run import Bars
    from factored_scaling.policies.capacity import check_device

    check_device(settings.device)
    if folder.exists() and not folder.is_dir():
        raise InvalidInput("is a file, not a folder", where=str(folder))
    return Loop(folder, settings, Bars.single, workers, Bars().hear)


def _turn(loop: Loop, budgets: Sequence[int]) -> list[Outcome]:
    """One round step by step, with a report at the end."""
    from factored_scaling.bench.loop import Cell

    settings, task = loop.settings, loop.lab.task
    cells = [Cell(strategy, budget) for budget in budgets for strategy in STRATEGIES]
    print_heading(f"\n{settings.task}, seed {settings.seed}")
    say(f"Step 1 of 5: collect {settings.demos} demonstrations for each of: {', '.join(task.factors)}")
    with loop.study() as study:
        policies, left = len(study.runs()), sum(run.state != "done" for run in study.runs())
    began = time.monotonic()
    say(f"Step 2 of 5: train and measure {policies} policies on subsets of them; {len(cells)} more follow in step 4")
    loop.measure(["group"])
    spent = (time.monotonic() - began) * len(cells) / left if left else None
    say(f"Step 3 of 5: fit the curves and the response model, recommend; Re-Mix learns its weights{_about(spent)}")
    for cell in cells:
        answer, _, _ = loop.recommend(cell)
        allocation = ", ".join(f"{count} {name}" for name, count in answer.allocation.items() if count)
        say(f"     K = {cell.budget:<4}{NAMES[cell.strategy]:<15} {allocation}")
    say("Step 4 of 5: collect each rule's allocation, train on it, measure")
    outcomes = loop.outcomes(cells)
    for budget in budgets:
        path = _report(loop, [outcome for outcome in outcomes if outcome.cell.budget == budget], budget)
        say(f"Step 5 of 5: wrote {path}")
    return outcomes


def _about(seconds: float | None) -> str:
    """The time left in all, when the first policies have been timed."""
    return "" if seconds is None else f" (about {max(1, round(seconds / 60))} min left in all)"


def _report(loop: Loop, outcomes: Sequence[Outcome], budget: int) -> Path:
    from factored_scaling.report import ReportInput, write_report

    with loop.study() as study:
        now = study.snapshot()
    answers = {outcome.cell.strategy: outcome.recommendation for outcome in outcomes}
    path = loop.folder / (f"report-K{budget}.html" if budget != 100 else "report.html")
    notes = ["Measured in the embedded tabletop simulator: small networks, small images, one training seed per policy."]
    rows = [_outcome_row(outcome) for outcome in outcomes]
    created = time.strftime("%Y-%m-%d")
    write_report(ReportInput(now.spec, now.results, answers, now.run_lines, created, rows, notes), path)
    return path


def _outcome_row(outcome: Outcome) -> OutcomeRow:
    from factored_scaling.report import OutcomeRow

    score = outcome.result.overall
    name = NAMES[outcome.cell.strategy]
    low, high = score.interval.low, score.interval.high
    return OutcomeRow(name, outcome.predicted, score.mean, low, high, score.trials, outcome.recommendation.allocation)


def _closing_table(budget: int, outcomes: Sequence[tuple[int, Outcome]]) -> None:
    """Predicted and measured success per rule; Wilson's interval for one seed, the spread for several."""
    rows, means = [], {}
    for strategy in STRATEGIES:
        mine = [outcome for _, outcome in outcomes if outcome.cell.strategy == strategy]
        scores = [outcome.result.overall.mean for outcome in mine]
        means[strategy] = statistics.fmean(scores)
        promised = [outcome.predicted for outcome in mine if outcome.predicted is not None]
        interval = mine[0].result.overall.interval
        spread = (
            f"{100 * interval.low:.1f}–{100 * interval.high:.1f}"
            if len(mine) == 1
            else f"{100 * min(scores):.1f}–{100 * max(scores):.1f} over {len(mine)} seeds"
        )
        predicted = percent(statistics.fmean(promised)) if promised else "–"
        collected = _brief(mine[0].recommendation.allocation)
        rows.append([NAMES[strategy], predicted, percent(means[strategy]), spread, collected])
    columns = [
        "rule",
        "predicted",
        "measured",
        "interval",
        "collected" + (" (first seed)" if len(outcomes) > len(STRATEGIES) else ""),
    ]
    print_table(f"After collecting K = {budget} more demonstrations", columns, rows)
    say(verdict(means, outcomes))


def _brief(allocation: dict[str, int]) -> str:
    return " ".join(f"{name}:{count}" for name, count in allocation.items() if count)


def verdict(means: dict[str, float], outcomes: Sequence[tuple[int, Outcome]]) -> str:
    """Said plainly, whichever way it went; a difference inside the intervals is not called a win."""
    rival = max(("equal", "greedy", "remix"), key=lambda name: means[name])
    allocations = {(seed, one.cell.strategy): one.recommendation.allocation for seed, one in outcomes}
    seeds = {seed for seed, _ in outcomes}
    alike = [seed for seed in seeds if allocations[seed, "auto"] == allocations[seed, "equal"]]
    if not alike:
        return _compared(means, rival, outcomes)
    same = f"The response model split the budget {evenly(allocations[alike[0], 'equal'])}, as Equal does"
    if len(alike) < len(seeds):
        return f"{same}, with {len(alike)} of {len(seeds)} seeds. {_compared(means, rival, outcomes)}"
    return f"{same}." if rival == "equal" else f"{same}. {_compared(means, rival, outcomes)}"


def _compared(means: dict[str, float], rival: str, outcomes: Sequence[tuple[int, Outcome]]) -> str:
    ours = "auto"
    gap = means[ours] - means[rival]
    trials = sum(outcome.result.overall.trials for _, outcome in outcomes if outcome.cell.strategy == ours)
    error = 2 * (2 * 0.25 / trials) ** 0.5  # two standard errors of a difference of two shares
    if abs(gap) < error:
        both = f"The response model and the best baseline, {NAMES[rival]},"
        return f"{both} are less than {100 * error:.1f} points apart: a tie."
    if gap > 0:
        return f"The response model beat the best baseline, {NAMES[rival]}, by {100 * gap:.1f} points."
    return f"The response model did not win: {NAMES[rival]} was {-100 * gap:.1f} points better."
