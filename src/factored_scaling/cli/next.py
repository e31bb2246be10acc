"""fsc next"""

from __future__ import annotations

from dataclasses import replace

import click

from factored_scaling.cli.advise import budget_option, partial_option, results_argument
from factored_scaling.cli.show import json_option, print_json, print_table, print_text, say
from factored_scaling.cli.target import Target, study_argument
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput
from factored_scaling.model.acquisition import Advice, Step, advise
from factored_scaling.model.recommend import Recommendation
from factored_scaling.model.text import counted, percent

MARK = "←"


@click.command("next")
@study_argument
@results_argument
@budget_option
@click.option(
    "--trials", type=click.IntRange(1), help="Trials of a new policy; by default the median of the measured ones."
)
@click.option("--policy-cost", type=float, default=0.0, help="Cost of training one policy, in units of the budget.")
@click.option("--trial-cost", type=float, default=0.0, help="Cost of one trial, in units of the budget.")
@click.option("--worth", type=float, help="Points of success that each policy must add. Default: 0.1, or 0 with costs.")
@click.option("--add", is_flag=True, help="Add the recommended policies to the study's record as pending runs.")
@partial_option
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
    """Compare collecting now with measuring more first.

    Each row is a possible measurement: policies of the plan or of the screening order, another training seed, or more
    trials. Its gain is how much success the better allocation is expected to add. Policies listed below each other are
    trained together; cost and gain include the rows above. With costs, the price of measuring is subtracted from the
    budget, so a gain can be negative. Scores come from RESULTS.csv (- for standard input), or from what the study has
    recorded.

    \b
    fsc next my-study --budget 100
    fsc next my-study --budget 100 --policy-cost 5 --trial-cost 0.1
    fsc next study.yaml results.csv --budget 100 --trials 20 --json
    """
    target = Target.parse(study)
    now = target.snapshot(results, partial=partial)
    if add and results is not None:
        raise InvalidInput("there is no record to add to when scores come from a file", where="--add")
    if worth is not None and not worth >= 0:
        raise InvalidInput(f"must be at least 0, not {worth:g}", where="--worth")
    least = None if worth is None else worth / 100
    advice = advise(
        now.posterior(),
        now.results,
        budget,
        trials=trials,
        policy_cost=policy_cost,
        trial_cost=trial_cost,
        worth=least,
    )
    advice = _as_recommended(advice, now.recommend(budget))
    added = _add(target, advice) if add else []
    if as_json:
        print_json(advice.to_mapping() | ({"added": added} if add else {}))
        return
    print_text(f"Acting now: collect {counted(advice.allocation)}; predicted success {percent(advice.expected)}.")
    say(f"Perfect information would add {100 * advice.regret:.1f} points.\n")
    if advice.steps:
        priced = any(step.cost for step in advice.steps)
        limited = any(step.limited for step in advice.steps)
        columns = ["next", *now.spec.names, "trials", *(["cost"] if priced else []), "gain, points"]
        rows = _rows(now.spec, advice, priced, limited)
        print_table("Value of measuring more", [*columns, *(["", ""] if limited else [""])], rows)
        if limited:
            print_text("max: limited to the value of perfect information, the most that a measurement can add.")
    print_text(_verdict(advice))
    if added:
        from factored_scaling.runner.queue import listed

        them = "it" if len(added) == 1 else "them"
        say(f"added as {listed(added)}; `fsc run` or `fsc record` fills {them}")


def _as_recommended(advice: Advice, now: Recommendation) -> Advice:
    """Acting now with the numbers of `fsc recommend`, which compares with more alternatives."""
    return replace(advice, allocation=now.allocation, expected=now.prediction.mean, regret=now.regret)


def _rows(spec: StudySpec, advice: Advice, priced: bool, limited: bool) -> list[list[str]]:
    """One line per policy, so that it is plain what to train: those to train together stand below each other, and
    the cost and what they add count from the first. The step to take is marked."""
    series = [step for step in advice.steps if step.kind == "train"]
    by_sets = {_sets(spec, step): step for step in series}
    longest = [sets for sets in by_sets if not any(other[: len(sets)] == sets != other for other in by_sets)]
    chosen = _sets(spec, advice.best) if advice.best in series else ()
    rows = []
    for sets in longest:
        marks = len(chosen) if sets[: len(chosen)] == chosen else 0
        chosen = () if marks else chosen  # where two series begin alike, the first is marked
        for place, demos in enumerate(sets):
            what = "train" if place == 0 else "  and then"
            upto = by_sets.get(sets[: place + 1])
            rows.append([what, *demos, *_cells(upto, by_sets[sets].trials, place < marks, priced, limited)])
    for step in advice.steps:
        if step.kind != "train":
            what = f"train again, seed {step.seed}" if step.kind == "seed" else "more trials"
            rows.append([what, *_sets(spec, step)[0], *_cells(step, step.trials, step is advice.best, priced, limited)])
    return rows


def _sets(spec: StudySpec, step: Step) -> tuple[tuple[str, ...], ...]:
    """The demos of every policy of the step, in declared order."""
    return tuple(tuple(str(demos[name]) for name in spec.names) for demos in step.demos)


def _cells(step: Step | None, trials: int, marked: bool, priced: bool, limited: bool) -> list[str]:
    cost, gain = ("", "") if step is None else (f"{step.cost:g}", _points(step.gain))
    most = ["max" if step is not None and step.limited else ""] if limited else []
    return [str(trials), *([cost] if priced else []), gain, *most, MARK if marked else ""]


def _points(gain: float) -> str:
    """With a sign, unless it is rounded to zero."""
    text = f"{100 * gain:+.2f}"
    return "0.00" if float(text) == 0 else text


def _verdict(advice: Advice) -> str:
    best = advice.best
    if best is None:
        return f"Act now: {_why_not(advice)}."
    many = len(best.demos)
    if best.kind == "evaluate":
        what = f"Evaluate the policy marked {MARK} with {best.trials} more trials"
    elif best.kind == "seed":
        what = f"Train the policy marked {MARK} again with seed {best.seed}"
    else:
        what = f"Train the {'policy' if many == 1 else f'{many} policies'} marked {MARK}"
    worth = f"worth {100 * best.gain:+.2f} points (threshold {100 * best.needed:.2f})"
    return f"{what} first: {worth}. Then run `fsc next` again."


def _why_not(advice: Advice) -> str:
    if not advice.steps:
        return "every measurement would cost the whole budget"
    least = min(step.needed for step in advice.steps)
    if least == 0:
        return "no measurement adds more than it costs"
    return f"no measurement adds {100 * least:.2f} points for each policy it needs"


def _add(target: Target, advice: Advice) -> list[int]:
    best = advice.best
    if best is None or best.kind == "evaluate":
        return []
    with target.study() as study:
        return [study.add(demos, best.seed) for demos in best.demos]
