"""fsc plan"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from factored_scaling.cli.show import json_option, print_json, print_table, print_text, print_warnings, say
from factored_scaling.cli.target import study_argument
from factored_scaling.core.design import PlannedRun, count_policies, plan, trials_per_policy
from factored_scaling.core.spec import CONSTRUCTIONS, StudySpec
from factored_scaling.errors import InvalidInput

if TYPE_CHECKING:
    from factored_scaling.cli.target import Target


@click.command("plan")
@study_argument
@click.option(
    "--construction", type=click.Choice(CONSTRUCTIONS), help="Plan with another construction than the study's."
)
@click.option(
    "--policies",
    type=int,
    help="Limit the plan to N policies.",
    metavar="N",
)
@click.option("--trials", type=int, help="Trials per policy; adds the number of rollouts to the plan.")
@click.option("--on", "executor", metavar="EXECUTOR", help="Show what `fsc run --on` would submit, and its cost.")
@click.option("--workers", type=click.IntRange(1, 4096), help="With --on: number of parallel workers.")
@click.option("--gpus", type=click.FloatRange(0), help="With --on: GPUs per worker.")
@json_option
def plan_command(
    study: str,
    construction: str | None,
    policies: int | None,
    trials: int | None,
    executor: str | None,
    workers: int | None,
    gpus: float | None,
    as_json: bool,
) -> None:
    """Show what would be trained: demos per factor for every distinct policy, in the order to train them.

    The full-data policy is shared by all curves and comes first. The smallest training set of every curve follows, so a
    fit is possible early. `screen` has no curves: every policy leaves out half of the factors, and you may stop after
    any of them. Nothing is trained or written.

    The last table is the expected regret of `fsc recommend` by number of policies: 0 is the optimal allocation, 1 is no
    improvement. It was measured in studies emulated from trained policies.

    \b
    fsc plan study.yaml
    fsc plan my-study --construction one --trials 600
    fsc plan my-study --construction screen --policies 6
    fsc plan my-study --on slurm --workers 16 --gpus 1      before `fsc run --on slurm`
    """
    from factored_scaling.cli.target import Target
    from factored_scaling.io.files import check_plan_size

    for value, name in ((policies, "--policies"), (trials, "--trials")):
        if value is not None and value < 1:
            raise InvalidInput(f"must be at least 1, not {value}", where=name)
    target = Target.parse(study)
    if executor is not None:
        _print_cost(target, executor, workers, gpus, as_json)
        return
    if workers is not None or gpus is not None:
        raise InvalidInput("says what a cluster costs", where="--workers, --gpus", hint="add --on slurm or --on ray")
    spec, dataset = target.spec_and_dataset()
    print_warnings(target.trouble_ahead())
    chosen = spec.changed(construction=construction) if construction else spec
    if policies is not None and chosen.construction == "screen":
        chosen = chosen.changed(policies=policies)
    runs = plan(check_plan_size(chosen), dataset)
    shown = runs[:policies] if policies is not None else runs
    if as_json:
        print_json({"policies": len(shown), "runs": [{"demos": r.demos, "seed": r.spec.seed} for r in shown]})
        return
    columns = ["#", *spec.names, "demos", "seed", "gives"]
    print_table(f"{spec.name}: {len(shown)} policies", columns, [_row(i, r) for i, r in enumerate(shown, 1)])
    each = trials if trials is not None else trials_per_policy(spec)
    totals: dict[str, int] = {
        name: count_policies(chosen.changed(construction=name, policies=None))
        for name in CONSTRUCTIONS
        if name != "pair" or len(chosen.names) > 1
    }
    print_table("What each construction costs", *_costs(chosen, totals | {chosen.construction: len(runs)}, each))
    _print_regret(chosen, totals, each)
    if len(spec.names) > 1 and chosen.construction != "screen" and len(chosen.combinations()) == 1:
        print_warnings(["all factors share one curve, so its policies cannot distinguish them; use --construction one"])


def _print_cost(target: Target, executor: str, workers: int | None, gpus: float | None, as_json: bool) -> None:
    """What `fsc run --on` would submit now."""
    from factored_scaling.runner.cost import estimate_cost
    from factored_scaling.runner.executors import executor_settings, make_executor
    from factored_scaling.runner.executors.cluster import USUAL
    from factored_scaling.web.overview import duration_words

    with target.study() as opened:
        name, count, resources = executor_settings(opened.spec.executor, executor, workers, {"gpus": gpus})
        make_executor(name, resources)
        cost = estimate_cost(opened, count or USUAL, float(resources.get("gpus", 0)))
    if as_json:
        print_json({**asdict(cost), "gpu_hours": cost.gpu_hours, "wall_seconds": cost.wall_seconds})
        return
    each = f"{cost.gpus:g} GPU{'s' * (cost.gpus != 1)}" if cost.gpus else "no GPU"
    evaluators = f", {resources['evaluators']} more that evaluate" if resources.get("evaluators") else ""
    jobs = "job" if cost.workers == 1 else "jobs"
    say(f"{cost.runs} runs on {name}: {cost.workers} {jobs} with {each} each{evaluators}")
    if cost.run_seconds is None or cost.wall_seconds is None or cost.gpu_hours is None:
        say("no run is finished yet, so nothing is known of the time; `--workers 1` for a first run measures it")
        return
    hours = f"{cost.gpu_hours:.1f} GPU hours, " if cost.gpus else ""
    wall = f"about {duration_words(cost.wall_seconds)} once all jobs run" if cost.runs else "nothing is left to run"
    typical = f"{duration_words(cost.run_seconds)} per run at the median of {cost.measured} finished"
    say(f"{hours}{wall} ({typical})")


def _row(number: int, run: PlannedRun) -> list[str]:
    gives = "every curve" if len(run.points) > 1 else "every factor"
    if len(run.points) == 1:
        gives = f"{'+'.join(run.points[0].combination)} at n={run.points[0].n}"
    total = len(run.spec.episodes)
    return [str(number), *(str(count) for count in run.demos.values()), str(total), str(run.spec.seed), gives]


def _costs(chosen: StudySpec, totals: Mapping[str, int], trials: int | None) -> tuple[list[str], list[list[str]]]:
    rows = []
    for construction, policies in totals.items():
        curves = "–" if construction == "screen" else str(len(chosen.changed(construction=construction).combinations()))
        rollouts = [f"{policies * trials:,}"] if trials is not None else []
        own = construction == chosen.construction
        rows.append([construction, curves, str(policies), *rollouts, "← this plan" if own else ""])
    return ["construction", "curves", "policies", *(["rollouts"] if trials is not None else []), ""], rows


def _print_regret(chosen: StudySpec, totals: Mapping[str, int], trials: int | None) -> None:
    """What emulated studies say of so many policies, for the constructions that were measured."""
    from factored_scaling.bench.expected import MANY_TRIALS, expected_equal, expected_regret, regime_for, table

    regime, count = regime_for(trials), len(chosen.names)
    if count == 1:  # there is nothing to split
        return
    known = table()["regret"][regime]
    columns = [name for name in CONSTRUCTIONS if name in known]
    rows, best = [], None
    for policies in sorted({1, 2, 3, 4, 6, 8, 10, 13, *(totals[name] for name in known if totals[name] <= 32)}):
        cells = []
        for name in columns:
            measured = [row[0] for rows_of in known[name].values() for row in rows_of]
            most = max(measured) if name == "screen" else totals[name]
            alike = _as_measured(chosen, name, policies, min(int(key) for key in known[name]))
            fits = min(measured) <= alike and policies <= most
            value = expected_regret(name, count, alike, regime) if fits else None
            best = value if best is None or (value is not None and value < best) else best
            cells.append("–" if value is None else f"{value:.2f}")
        if any(cell != "–" for cell in cells):
            rows.append([str(policies), *cells])
    filled = [place for place, name in enumerate(columns, 1) if name == "screen" or any(r[place] != "–" for r in rows)]
    rows = [[row[0], *(row[place] for place in filled)] for row in rows]
    columns = [columns[place - 1] for place in filled]
    words = f"{MANY_TRIALS} trials or more" if regime == "simulation" else "about 20 trials"
    equal = expected_equal(count)
    print_table(f"Regret to expect, {words} per policy (Equal: {equal:.2f})", ["policies", *columns], rows)
    counts = sorted({int(key) for sides in known.values() for key in sides})
    errors = [row[2] for sides in known.values() for rows_of in sides.values() for row in rows_of]
    nearest = min(max(count, counts[0]), counts[-1])
    scaled = " with as many policies per curve" if count < nearest and len(columns) > 1 else ""
    yours = "" if nearest == count else f" ({count} count as {nearest}{scaled})"
    studies = f"studies with {' and '.join(map(str, counts))} factors{yours}, ±{max(errors):.2f}"
    print_text(f"Regret: 0 = optimal allocation, 1 = no improvement. Means over emulated {studies}.")
    if best is not None and best >= equal:
        text = "With so few factors an equal split is expected to do about as well: measuring pays with more factors"
        print_text(f"{text}, or unbalanced demonstrations (docs/trust.md).")


def _as_measured(chosen: StudySpec, construction: str, policies: int, least: int) -> int:
    """How many policies of a study with `least` factors, the fewest that were measured, compare with so many here.

    With fewer factors there are fewer curves: what compares is the number of policies per curve, besides the full-data
    policy.
    """
    if construction == "screen" or len(chosen.names) >= least:
        return policies
    own = len(chosen.changed(construction=construction).combinations())
    small = StudySpec({f"factor_{number}": 1 for number in range(least)}, construction=construction)
    return 1 + (policies - 1) * len(small.combinations()) // own
