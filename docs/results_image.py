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
STUDIES = {
    "maniskill-pull-visual/resnet18-96px-6000": "ManiSkill pull-visual,\n6,000 updates",
    "maniskill-pull-visual/resnet18-96px": "ManiSkill pull-visual,\n2,500 updates",
    "maniskill-pick-place/resnet18-96px": "ManiSkill pick-place,\nskill not learned",
    "tabletop-pick-place/quickstart": "tabletop pick-place,\n1,200 updates",
}
RULES = {
    "response model": "response model",
    "equal": "Equal",
    "greedy": "Greedy",
    "group, top": "the paper's Top",
    "group, all": "the paper's All",
}


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def before(folder: Path) -> dict[str, float]:
    """Success of the policy on all demonstrations, by seed."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows(folder / "results.csv"):
        if all(count == "30" for name, count in row.items() if name.startswith("demos:")):
            found[row["seed"]].append(float(row["score"]))
    return {seed: mean(scores) for seed, scores in found.items()}


def gains(folder: Path) -> dict[str, list[float]]:
    """Success after the budget minus success before, in points, by rule: one value per seed."""
    first = before(folder)
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows(folder / "outcomes.csv"):
        if int(row["budget"]) == BUDGET:
            found[row["method"]].append(100 * (float(row["score"]) - first[row["seed"]]))
    return found


def main() -> None:
    figure, every = plt.subplots(1, len(STUDIES), figsize=(10, 2.8), sharey=True, layout="constrained")
    for axes, (folder, title) in zip(every, STUDIES.items(), strict=True):
        values = gains(RESULTS / folder)
        for place, rule in enumerate(reversed(RULES)):
            colour = "#0069a8" if rule == "response model" else "#5d6977"
            axes.plot(values[rule], [place] * len(values[rule]), "o", color=colour, mfc="none", ms=6)
            if len(values[rule]) > 1:
                axes.plot(mean(values[rule]), place, "|", color=colour, ms=16, mew=2.5)
        seeds = len(values["equal"])
        axes.set_title(f"{title}, {seeds} seed{'s' if seeds > 1 else ''}", fontsize=10)
        axes.axvline(0, color="#1d252c", lw=1)
        axes.set_yticks(range(len(RULES)), list(reversed(RULES.values())))
        axes.set_ylim(-0.5, len(RULES) - 0.5)
        axes.margins(x=0.08)
        axes.grid(axis="x", color="#dce1e7")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(left=False)
    figure.supxlabel(f"points of success gained with K = {BUDGET} more demonstrations", fontsize=10)
    figure.savefig(DOCS / "images" / "outcomes.png", dpi=110)


if __name__ == "__main__":
    main()
