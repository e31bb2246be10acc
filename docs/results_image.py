"""Draw docs/images/outcomes.png from the rows under results/: python docs/results_image.py"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from statistics import mean

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS.parent / "results"
BUDGET = 100
COLUMNS = 3
STUDIES = {
    "main/pull-visual": "ManiSkill pull-visual,\n10 per factor",
    "main/pull-spatial": "ManiSkill pull-spatial,\n5 per factor",
    "maniskill-pull-visual/resnet18-96px-6000": "ManiSkill pull-visual,\n30 per factor",
    "maniskill-pull-visual/resnet18-96px": "pull-visual, 30 per factor,\n2,500 updates",
    "maniskill-pick-place/resnet18-96px": "ManiSkill pick-place, 30 per factor,\nskill not learned",
    "tabletop-pick-place/quickstart": "tabletop pick-place, 30 per factor,\n1,200 updates",
}
RULES = {
    "response model": "response model",
    "greedy": "Greedy",
    "remix": "Re-Mix",
    "group, top": "the paper's Top",
    "group, all": "the paper's All",
}


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def before(folder: Path) -> dict[str, float]:
    """Success of the policy on all demonstrations, by seed."""
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in rows(folder / "results.csv"):
        total = sum(int(count) for name, count in row.items() if name.startswith("demos:"))
        found[row["seed"], total].append(float(row["score"]))
    most = max(total for _, total in found)
    return {seed: mean(scores) for (seed, total), scores in found.items() if total == most}


def scores(folder: Path) -> dict[str, dict[str, float]]:
    """Success after the budget, in points, by rule and seed."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows(folder / "outcomes.csv"):
        if int(row["budget"]) == BUDGET:
            found[row["method"]][row["seed"]] = 100 * float(row["score"])
    return found


def main() -> None:
    height = -(-len(STUDIES) // COLUMNS)
    figure, every = plt.subplots(height, COLUMNS, figsize=(10, 3.1 * height), sharey=True, layout="constrained")
    for axes, (folder, title) in zip(every.flat, STUDIES.items(), strict=True):
        measured, start = scores(RESULTS / folder), before(RESULTS / folder)
        equal = measured["equal"]
        values = {rule: [one - equal[seed] for seed, one in measured[rule].items()] for rule in RULES}
        for place, rule in enumerate(reversed(RULES)):
            colour = "#0069a8" if rule == "response model" else "#5d6977"
            axes.plot(values[rule], [place] * len(values[rule]), "o", color=colour, mfc="none", ms=6)
            if not values[rule]:
                axes.text(0.02, place, "not run", transform=axes.get_yaxis_transform(), va="center", color="#8a94a0")
            if len(values[rule]) > 1:
                axes.plot(mean(values[rule]), place, "|", color=colour, ms=16, mew=2.5)
        seeds = f"{len(equal)} seed{'s' if len(equal) > 1 else ''}"
        first = 100 * mean(start[seed] for seed in equal)
        axes.set_title(f"{title}; {seeds}\n{first:.0f}% before, {mean(equal.values()):.0f}% with Equal", fontsize=10)
        axes.axvline(0, color="#1d252c", lw=1)
        axes.set_yticks(range(len(RULES)), list(reversed(RULES.values())))
        axes.set_ylim(-0.5, len(RULES) - 0.5)
        axes.margins(x=0.08)
        axes.grid(axis="x", color="#dce1e7")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(left=False)
    figure.supxlabel(
        f"success with K = {BUDGET} more demonstrations less that of an equal split in the same seed, points",
        fontsize=10,
    )
    figure.savefig(DOCS / "images" / "outcomes.png", dpi=110)


if __name__ == "__main__":
    main()
