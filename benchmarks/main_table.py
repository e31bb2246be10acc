"""The paper's main table with seeds and intervals, from the outcomes of several settings.

    python benchmarks/main_table.py results/main/*/outcomes.csv --save results/main/table.md

Each file holds the outcomes of one setting, as `scripts/gpu_study.py` writes them. Means over settings give each
setting the same weight. Their intervals are a stratified bootstrap: within each setting seeds are drawn with
replacement, the same ones for every rule, because rules of one seed share demonstrations and initial weights.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from factored_scaling.cli.outcomes import OutcomeLine, outcome_row, read_outcomes
from factored_scaling.cli.reproduce import BESIDE, PAPER
from factored_scaling.io.text import write_text

Floats = NDArray[np.float64]
RULES = ("group, top", "equal", "greedy", "remix", "response model")
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


def pooled(settings: Sequence[Floats], rules: Sequence[str]) -> list[str]:
    """Rows of the table over all settings: mean, and difference from the reference, with 95% intervals in points."""
    drawn = bootstrap(settings, np.random.default_rng(0))
    mean = np.mean([one.mean(0) for one in settings], axis=0)
    place, rows = list(rules).index(REFERENCE), []
    for index, rule in enumerate(rules):
        low, high = 100 * np.quantile(drawn[:, index], [0.025, 0.975])
        cells = [rule, f"{100 * mean[index]:.1f} ({low:.1f} to {high:.1f})", "–"]
        if index != place:
            low, high = 100 * np.quantile(drawn[:, index] - drawn[:, place], [0.025, 0.975])
            cells[2] = f"{100 * (mean[index] - mean[place]):+.1f} ({low:+.1f} to {high:+.1f})"
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


def page(files: Mapping[str, Sequence[OutcomeLine]], rules: Sequence[str]) -> str:
    """The tables as Markdown."""
    every = [line for lines in files.values() for line in lines if line.method in rules]
    text = []
    for budget in sorted({line.budget for line in every}):
        text += [f"### K = {budget}", "", _row(["setting", "seeds", *rules]), "|---|---:|" + "---:|" * len(rules)]
        for task, lines in files.items():
            text.append(_row([task, *_cells(lines, budget, rules)]))
            beside = PAPER["main"].get(BESIDE.get(task, ""), {}).get(budget, {})
            text.append(_row(["the paper", "1", *(f"{beside[r]:.1f}" if r in beside else "–" for r in rules)]))
        complete = [found for lines in files.values() if len(found := scores(lines, budget, rules)) > 1]
        if complete:
            count = f"mean over settings: {len(complete)}, seeds: {sum(map(len, complete))}"
            text += ["", _row(["rule", count, f"less {REFERENCE}"]), "|---|---:|---:|"]
            text += pooled(complete, rules)
            noise = single_seed_noise(complete)
            text += ["", f"Differences of two rules in one seed vary by {noise:.1f} points (one standard deviation)."]
        text.append("")
    errors = [100 * abs(line.predicted - line.score) for line in every if line.predicted is not None]
    if errors:
        text.append(f"Median error of {len(errors)} predictions: {statistics.median(errors):.1f} points.")
    return "\n".join(text) + "\n"


def _cells(lines: Sequence[OutcomeLine], budget: int, rules: Sequence[str]) -> list[str]:
    seeds, cells = set(), []
    for rule in rules:
        chosen = [line for line in lines if (line.budget, line.method) == (budget, rule)]
        seeds |= {line.seed for line in chosen}
        if not chosen:
            cells.append("–")
            continue
        row = outcome_row(chosen)
        cells.append(f"{100 * row.measured:.1f} ({100 * row.low:.0f} to {100 * row.high:.0f})")
    return [str(len(seeds)), *cells]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outcomes", type=Path, nargs="+")
    parser.add_argument("--rules", nargs="+", default=list(RULES))
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    if REFERENCE not in options.rules:
        parser.error(f"--rules needs {REFERENCE!r}, which the others are compared with")
    files: dict[str, Sequence[OutcomeLine]] = {}
    for path in options.outcomes:
        lines = read_outcomes(path)
        if lines[0].task in files:
            parser.error(f"{path}: a second file of {lines[0].task}")
        files[lines[0].task] = lines
    text = page(files, options.rules)
    print(text, end="")
    if options.save:
        write_text(options.save, text)


if __name__ == "__main__":
    main()
