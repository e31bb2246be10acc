"""How far the predicted change of success is off in tasks that the prior does not know, and what intervals need.

    python benchmarks/model_error.py --save      writes results/model_error.md

A study of a table (as in response_models.py) predicts the policies after an equal split of K = 100; the studies of the
main table predict their outcomes at K = 100. The error of a start is (measured − predicted) / predicted change, of the
means over studies and policies. The constant by which intervals are widened is the root mean square over tasks, each
with the same weight. A task is then judged with the constant of the other tasks (docs/decisions/0034).
"""

from __future__ import annotations

import argparse
import datetime
import platform
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from response_models import read_tables, studies

from factored_scaling.bench.measure import REGIMES
from factored_scaling.cli.outcomes import read_outcomes
from factored_scaling.core.results import Results
from factored_scaling.io.files import read_results, read_study
from factored_scaling.machine import processor
from factored_scaling.model import estimate
from factored_scaling.model.estimate import Estimate
from factored_scaling.model.posterior import Posterior, fit_posterior
from factored_scaling.model.prior import Floats

HOME = Path(__file__).resolve().parent.parent
MAIN = HOME / "results" / "main"
TASKS = {
    "pick-place": ("pick-place", "pick-place-no-jitter"),
    "insert": ("insert",),
    "push": ("push",),
    "ManiSkill Pick-Place": ("maniskill-pick-place",),
    "ManiSkill Pull Cube Tool": ("maniskill-pull-visual", "main/pull-visual", "main/pull-spatial"),
}
EMBEDDED = ("pick-place", "insert", "push")
LEVEL = 0.95
NOW = 0.2  # the constant before


@dataclass(frozen=True)
class Asked:
    """The policies that one study predicts: their mean scores, trials, and the success in every posterior sample."""

    now: Floats  # samples
    after: Floats  # policies × samples
    noise: Floats  # samples: variance of training noise on the scale of arcsin √p
    scores: Floats  # policies
    trials: Floats  # policies

    @property
    def change(self) -> float:
        """The predicted change."""
        return float((self.after.mean(0) - self.now).mean())

    @property
    def off(self) -> float:
        """Measured − predicted success."""
        return float((self.scores - self.after.mean(1)).mean())


@dataclass(frozen=True)
class Judged:
    """Of one study with one constant: log density, whether intervals of single policies hold, and their width."""

    density: Floats
    held: Floats
    width: Floats


def ask(posterior: Posterior, demos: Floats, scores: Floats, trials: Floats) -> Asked:
    """What the posterior says of policies on `demos` (policies × factors)."""
    success = posterior.score(np.concatenate([posterior.now[None], demos]))
    noise = posterior.noise_common**2 + posterior.noise_own**2 / demos.shape[1]
    return Asked(success[0], success[1:], noise, scores, trials)


def judge(asked: Asked, error: float) -> Judged:
    """Predictions as the package widens them, with this constant."""
    estimate.MODEL_ERROR = error
    rng = np.random.default_rng(0)
    wide = Estimate.each(asked.after, asked.after - asked.now)
    success = np.stack([one.samples for one in wide])
    variance = success * (1 - success) * (4 * asked.noise + 1 / asked.trials[:, None])
    variance = np.maximum(variance, 1e-6)
    logs = -0.5 * ((asked.scores[:, None] - success) ** 2 / variance + np.log(2 * np.pi * variance))
    top = logs.max(1, keepdims=True)
    density = top[:, 0] + np.log(np.exp(logs - top).mean(1))
    single = success + np.sqrt(variance) * rng.standard_normal(success.shape)
    low, high = np.quantile(single, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1)
    held = (low <= asked.scores) & (asked.scores <= high)
    return Judged(density, held.astype(float), np.array([one.high - one.low for one in wide]))


def of_tables(count: int) -> Iterator[tuple[str, list[Asked]]]:
    """The starts of every table, with the table's name."""
    tables = {**read_tables(HOME / "results/tables", "tuning"), **read_tables(HOME / "results/tables", "held_out")}
    for name, table in tables.items():
        for start in sorted(set(table.start.tolist())):
            asked = []
            for regime in ("rollouts", "real"):
                for study in studies(table, start, REGIMES[regime], count):
                    rows = study.asked[np.array(table.group)[study.asked] == "equal-100"]
                    posterior = fit_posterior(study.spec, study.results)
                    scores, trials = table.scores[rows].mean(1), table.trials[rows].sum(1)
                    asked.append(ask(posterior, table.demos[rows].astype(float), scores, trials.astype(float)))
            if asked:
                print(name, start, flush=True)
                yield name, asked


def of_setting(folder: Path, budget: int) -> list[Asked]:
    """The seeds of a setting of the main table."""
    spec = read_study(folder / "study.yaml")
    every, outcomes = read_results(folder / "results.csv", spec), read_outcomes(folder / "outcomes.csv")
    asked = []
    for seed in sorted({line.seed for line in outcomes}):
        lines = [line for line in outcomes if (line.seed, line.budget) == (seed, budget)]
        if lines:
            posterior = fit_posterior(spec, Results(tuple(row for row in every.rows if row.seed == seed)))
            more = np.array([[float(line.allocation[name]) for name in spec.names] for line in lines])
            scores, trials = (np.array([getattr(line, what) for line in lines], float) for what in ("score", "trials"))
            asked.append(ask(posterior, posterior.now + more, scores, trials))
    return asked


def error_of(asked: Sequence[Asked]) -> float:
    """The relative error of a start's predicted change."""
    return float(np.mean([one.off for one in asked]) / np.mean([one.change for one in asked]))


def constant(errors: Mapping[str, Sequence[float]], without: str = "") -> float:
    """The root mean square over tasks, of which one may be left out."""
    return float(np.sqrt(np.mean([np.mean(np.square(own)) for task, own in errors.items() if task != without])))


def page(found: Mapping[str, Sequence[tuple[str, Sequence[Asked]]]], later: Sequence[Asked]) -> list[str]:
    """The tables as Markdown."""
    errors = {task: [error_of(asked) for _, asked in starts] for task, starts in found.items()}
    lines = ["| task | errors of its starts | root mean square | constant of the others |", "|---|---|---:|---:|"]
    for task, own in errors.items():
        shown = ", ".join(f"{one:+.2f}" for one in own)
        lines.append(f"| {task} | {shown} | {constant({task: own}):.2f} | {constant(errors, task):.2f} |")
    lines += [f"| all | | **{constant(errors):.2f}** | |", ""]
    lines += [f"| task | density with {NOW} | of the others | 95% holds | | median width, points | |"]
    lines += ["|---|---:|---:|---:|---:|---:|---:|"]
    total = defaultdict[str, list[Floats]](list)
    for task, starts in found.items():
        pairs = [[_mean(asked, error) for _, asked in starts] for error in (NOW, constant(errors, task))]
        before, after = (np.mean(several, axis=0) for several in pairs)
        for name in ("all", "embedded" if task in EMBEDDED else "ManiSkill"):
            total[name].append(np.stack([before, after]))
        lines.append(_row(task, before, after))
    lines += [_row(name, *np.mean(total[name], axis=0)) for name in ("embedded", "ManiSkill", "all")]
    if later:
        lines += ["", "Pull-spatial, K = 20:", "", lines[len(errors) + 4], lines[len(errors) + 5]]
        lines += [_row(f"{error:.2f}", _mean(later, NOW), _mean(later, error)) for error in (constant(errors),)]
    return lines


def _mean(asked: Sequence[Asked], error: float) -> Floats:
    judged = [judge(one, error) for one in asked]
    density, held, width = (
        np.concatenate([getattr(one, what) for one in judged]) for what in ("density", "held", "width")
    )
    return np.array([density.mean(), 100 * held.mean(), 100 * np.median(width)])


def _row(name: str, before: Floats, after: Floats) -> str:
    cells = [
        f"{before[0]:.2f}",
        f"{after[0]:.2f}",
        f"{before[1]:.0f}%",
        f"{after[1]:.0f}%",
        f"{before[2]:.0f}",
        f"{after[2]:.0f}",
    ]
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=20, help="of each start of a table")
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/model_error.md")
    given = parser.parse_args()
    starts = dict[str, list[list[Asked]]]()
    for name, asked in of_tables(given.studies):
        starts.setdefault(name, []).append(asked)
    for folder in sorted(MAIN.iterdir()):
        if (folder / "outcomes.csv").exists():
            starts[f"main/{folder.name}"] = [of_setting(folder, 100)]
    found = {task: [(name, one) for name in names for one in starts.get(name, [])] for task, names in TASKS.items()}
    lines = [
        "# How far predicted changes are off in other tasks",
        "",
        f"{datetime.date.today().isoformat()}, {processor()}, Python {platform.python_version()}, "
        f"numpy {np.__version__}; `python benchmarks/model_error.py --studies {given.studies} --save`.",
        "",
        *page(found, of_setting(MAIN / "pull-spatial", 20)),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if given.save:
        (HOME / "benchmarks/results/model_error.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
