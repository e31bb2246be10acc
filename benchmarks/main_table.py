"""The paper's main table with seeds and intervals, from the outcomes of several settings.

    python benchmarks/main_table.py results/main/*/outcomes.csv
    python benchmarks/main_table.py results/main/*/outcomes.csv --factors      # success on each factor's trials

Each file holds the outcomes of one setting, as `scripts/gpu_study.py` writes them; `check.csv` beside it has the
success before. Means over settings give each setting the same weight. Their intervals are a stratified bootstrap:
within each setting seeds are drawn with replacement, the same ones for every rule, because rules of one seed share
demonstrations and initial weights.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from factored_scaling.cli.outcomes import OutcomeLine, outcome_row, read_outcomes
from factored_scaling.cli.reproduce import BESIDE, PAPER

Floats = NDArray[np.float64]
RULES = ("group, top", "equal", "greedy", "remix", "response model")
SETTINGS = ("pick-place", "peg-visual", "peg-spatial", "pull-visual", "pull-spatial")
REFERENCE = "equal"
DRAWS = 10_000


def scores(lines: Sequence[OutcomeLine], budget: int, rules: Sequence[str]) -> Floats:
    """Success of one setting: seeds × rules, of the seeds that have all rules."""
    found = {(line.seed, line.method): line.score for line in lines if line.budget == budget}
    seeds = sorted({seed for seed, _ in found})
    rows = [[found[seed, rule] for rule in rules] for seed in seeds if all((seed, rule) in found for rule in rules)]
    return np.array(rows).reshape(len(rows), len(rules))


def bootstrap(settings: Sequence[Floats], rng: np.random.Generator, draws: int = DRAWS) -> Floats:
    """Means over settings, draws × rules: in each draw every setting has other seeds of its own."""
    total = np.zeros((draws, settings[0].shape[1]))
    for one in settings:
        count, mean = len(one), one.mean(0)
        drawn = one[rng.integers(count, size=(draws, count))].mean(1)
        total += mean + (drawn - mean) * (count / (count - 1)) ** 0.5
    return total / len(settings)


def student(differences: Sequence[Floats]) -> tuple[float, float]:
    """Student's 95% interval of the mean over settings of a paired difference, from one array of seeds per setting."""
    mean = float(np.mean([one.mean() for one in differences]))
    error = math.sqrt(sum(one.var(ddof=1) / len(one) for one in differences)) / len(differences)
    reach = float(stats.t.ppf(0.975, sum(len(one) - 1 for one in differences))) * error
    return mean - reach, mean + reach


def pooled(settings: Sequence[Floats], rules: Sequence[str]) -> list[str]:
    """Rows of the table over all settings: mean, and difference from the reference, with 95% intervals in points.

    With few seeds the bootstrap is narrow, so the difference has Student's interval, too.
    """
    drawn = bootstrap(settings, np.random.default_rng(0))
    mean = np.mean([one.mean(0) for one in settings], axis=0)
    place, rows = list(rules).index(REFERENCE), []
    for index, rule in enumerate(rules):
        low, high = 100 * np.quantile(drawn[:, index], [0.025, 0.975])
        cells = [rule, f"{100 * mean[index]:.1f} ({low:.1f} to {high:.1f})", "–", "–"]
        if index != place:
            low, high = 100 * np.quantile(drawn[:, index] - drawn[:, place], [0.025, 0.975])
            cells[2] = f"{100 * (mean[index] - mean[place]):+.1f} ({low:+.1f} to {high:+.1f})"
            low, high = student([100 * (one[:, index] - one[:, place]) for one in settings])
            cells[3] = f"{low:+.1f} to {high:+.1f}"
        rows.append(_row(cells))
    return rows


def single_seed_noise(settings: Sequence[Floats]) -> float:
    """Standard deviation of the difference of two rules in one seed, in points, around its mean in the setting."""
    variances = [
        float((one[:, first] - one[:, second]).var(ddof=1))
        for one in settings
        for first in range(one.shape[1])
        for second in range(first)
    ]
    return 100 * math.sqrt(np.mean(variances))


def beyond_noise(budget: int, noise: float) -> tuple[int, int]:
    """How many of the paper's differences from the reference exceed twice the noise (in points), and of how many."""
    cells = [cell[budget] for cell in PAPER["main"].values()]
    apart = [abs(cell[rule] - cell[REFERENCE]) for cell in cells for rule in cell if rule != REFERENCE]
    return sum(one > 2 * noise for one in apart), len(apart)


def page(
    files: Mapping[str, Sequence[OutcomeLine]],
    rules: Sequence[str],
    before: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> str:
    """The tables as Markdown. `before` has the success of each seed's policy before collecting, by task."""
    every = [line for lines in files.values() for line in lines if line.method in rules]
    text = []
    for budget in sorted({line.budget for line in every}):
        text += [f"### K = {budget}", "", _row(["setting", "seeds", "before", *rules])]
        text.append("|---|---:|---:|" + "---:|" * len(rules))
        for task in dict.fromkeys([*(f"maniskill/{name}" for name in SETTINGS), *files]):
            start = before.get(task)
            first = f"{100 * statistics.mean(start):.1f}" if start else "–"
            text.append(_row([task, *_cells(files.get(task, ()), budget, rules, first)]))
            beside = PAPER["main"].get(BESIDE.get(task, ""), {}).get(budget, {})
            text.append(_row(["the paper", "1", "", *(f"{beside[r]:.1f}" if r in beside else "–" for r in rules)]))
        complete = [found for lines in files.values() if len(found := scores(lines, budget, rules)) > 1]
        if complete:
            count = f"mean over settings: {len(complete)}, seeds: {sum(map(len, complete))}"
            text += ["", _row(["rule", count, f"minus {REFERENCE}", "Student's t"]), "|---|---:|---:|---:|"]
            text += pooled(complete, rules)
            noise = single_seed_noise(complete)
            beyond, of = beyond_noise(budget, noise)
            text += [
                "",
                f"Differences of two rules in one seed vary by {noise:.1f} points (one standard deviation). "
                f"{beyond} of the paper's {of} differences from {REFERENCE} exceed twice that.",
            ]
        text.append("")
    errors = [100 * abs(line.predicted - line.score) for line in every if line.predicted is not None]
    if errors:
        text.append(f"Median error of {len(errors)} predictions: {statistics.median(errors):.1f} points.")
    return "\n".join(text) + "\n"


def by_factor(files: Mapping[str, Sequence[OutcomeLine]], rules: Sequence[str]) -> str:
    """Success on each factor's trials, mean over seeds, as Markdown."""
    text = []
    for task, lines in files.items():
        names = list(lines[0].by_factor)
        text += [f"### {task}", "", _row(["K", "rule", *names]), "|---:|---|" + "---:|" * len(names)]
        for budget in sorted({line.budget for line in lines}):
            for rule in rules:
                chosen = [line for line in lines if (line.budget, line.method) == (budget, rule)]
                means = [100 * statistics.mean(line.by_factor[name] for line in chosen) for name in names if chosen]
                if chosen:
                    text.append(_row([str(budget), rule, *(f"{mean:.0f}" for mean in means)]))
        text.append("")
    return "\n".join(text)


def _cells(lines: Sequence[OutcomeLine], budget: int, rules: Sequence[str], before: str) -> list[str]:
    seeds, cells = set(), []
    for rule in rules:
        chosen = [line for line in lines if (line.budget, line.method) == (budget, rule)]
        seeds |= {line.seed for line in chosen}
        if not chosen:
            cells.append("–")
            continue
        row = outcome_row(chosen)
        cells.append(f"{100 * row.measured:.1f} ({100 * row.low:.0f} to {100 * row.high:.0f})")
    return [str(len(seeds)), before, *cells]


def success_before(path: Path) -> list[float]:
    """Success of each seed's policy on all demonstrations before collecting, from check.csv."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [float(row["score"]) for row in csv.DictReader(file) if row["name"] == "full data"]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outcomes", type=Path, nargs="+")
    parser.add_argument("--rules", nargs="+", default=list(RULES))
    parser.add_argument("--factors", action="store_true", help="success on each factor's trials instead")
    options = parser.parse_args()
    if REFERENCE not in options.rules:
        parser.error(f"--rules needs {REFERENCE!r}, which the others are compared with")
    files: dict[str, Sequence[OutcomeLine]] = {}
    before: dict[str, Sequence[float]] = {}
    for path in options.outcomes:
        lines = read_outcomes(path)
        if lines[0].task in files:
            parser.error(f"{path}: a second file of {lines[0].task}")
        files[lines[0].task] = lines
        before[lines[0].task] = success_before(path.parent / "check.csv")
    print(by_factor(files, options.rules) if options.factors else page(files, options.rules, before), end="")


if __name__ == "__main__":
    main()
