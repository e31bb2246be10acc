"""fsc next"""

from __future__ import annotations

from dataclasses import replace

import click

from factored_scaling.cli.advise import results_argument
from factored_scaling.cli.show import json_option, percent, print_json, print_table
from factored_scaling.cli.target import Target, study_argument
from factored_scaling.core.next_step import Advice, Step, advise
from factored_scaling.core.recommend import Recommendation, recommend
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.surface import fit_surface
from factored_scaling.core.surface_sample import Effort
from factored_scaling.errors import InvalidInput

DRAWS = 512  # a gain of a tenth of a point is the mean of small differences


@click.command("next")
@study_argument
@results_argument
@click.option("--budget", type=int, required=True, help="K: how many demonstrations can be collected (or cost units).")
@click.option("--trials", type=click.IntRange(1), help="Trials of a new policy; as many as those before by default.")
@click.option("--policy-cost", type=float, default=0.0, help="Units of the budget that training a policy costs.")
@click.option("--trial-cost", type=float, default=0.0, help="Units of the budget that one trial costs.")
@click.option(
    "--worth", type=float, help="Points of success (in %) each policy must add; 0.1, or 0 where costs are given."
)
@click.option("--add", is_flag=True, help="Put the policies to train into the study's record, as pending runs.")
@click.option("--partial", is_flag=True, help="Also use scores of runs that are not finished.")
@json_option
def next_command(
    study: str,
    results: str | None,
    budget: int,
    trials: int | None,
    policy_cost: float,
    trial_cost: float,
    worth: float | None,
    add: bool,
    partial: bool,
    as_json: bool,
) -> None:
    """Act now, or measure more first?

    For every measurement that could come next (a policy of the plan or of the screening order, several of them, a
    second seed, more trials) it tells how much success it is expected to add in the end, because the demonstrations
    would be spent better. With costs, what is spent on measuring is missing for demonstrations, and a step may lose.

    \b
    fsc next my-study --budget 100
    fsc next my-study --budget 100 --policy-cost 5 --trial-cost 0.1
    fsc next study.yaml results.csv --budget 100 --trials 20 --json
    """
    target = Target.parse(study)
    spec, measured = target.spec_and_results(results, partial=partial)
    if add and results is not None:
        raise InvalidInput("there is no record to add to when scores come from a file", where="--add")
    surface = fit_surface(spec, measured, effort=Effort(draws=DRAWS))
    least = None if worth is None else worth / 100
    advice = advise(
        surface, measured, budget, trials=trials, policy_cost=policy_cost, trial_cost=trial_cost, worth=least
    )
    advice = _as_recommended(advice, recommend(spec, measured, budget))
    added = _add(target, advice) if add else []
    if as_json:
        print_json(advice.to_mapping() | ({"added": added} if add else {}))
        return
    rows = [_row(spec, step) for step in advice.steps]
    columns = ["next", *spec.names, "trials", "cost", "adds, points"]
    order = ", ".join(f"{count} {name}" for name, count in advice.order.items() if count)
    click.echo(f"Act now: collect {order}; expected {percent(advice.expected)}.")
    click.echo(f"The best order may be {100 * advice.regret:.1f} points better, were the surface known.\n")
    print_table("What measuring more would add", columns, rows)
    click.echo(_verdict(advice))
    if added:
        click.echo(f"added as runs {', '.join(str(run) for run in added)}; `fsc run` or `fsc record` fills them")


def _as_recommended(advice: Advice, now: Recommendation) -> Advice:
    """Acting now in the words of `fsc recommend`: other draws give another order that is as good, and would puzzle."""
    assert now.surface is not None
    said = now.surface
    return replace(advice, order=now.allocation, expected=said.predicted.mean, regret=said.regret)


def _row(spec: StudySpec, step: Step) -> list[str]:
    what = {"train": "train", "seed": f"train again, seed {step.seed}", "evaluate": "evaluate further"}[step.kind]
    more = len(step.demos) - 1
    if more:
        what = f"train this and the {'next' if more == 1 else f'{more} after it'}"
    demos = [str(step.demos[0][name]) for name in spec.names]
    return [what, *demos, str(step.trials), f"{step.cost:g}", f"{100 * step.gain:+.2f}"]


def _verdict(advice: Advice) -> str:
    best = advice.best
    if best is None:
        return "Act now: no measurement adds as much as it must."
    many = len(best.demos)
    if best.kind == "evaluate":
        what = f"Evaluate that policy with {best.trials} more trials"
    elif best.kind == "seed":
        what = f"Train that policy again with seed {best.seed}"
    else:
        what = "Train the next policy" if many == 1 else f"Train the next {many} policies"
    return f"{what} first: {100 * best.gain:+.2f} points, {100 * best.needed:.2f} needed. Then ask again."


def _add(target: Target, advice: Advice) -> list[int]:
    best = advice.best
    if best is None or best.kind == "evaluate":
        return []
    with target.study() as study:
        return [study.add(demos, best.seed) for demos in best.demos]
