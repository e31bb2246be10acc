"""Draw docs/images/rules.png from benchmarks/results/decisions-tables.md: python docs/rules_image.py"""

from __future__ import annotations

import math
import re
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).resolve().parent
PAGE = DOCS.parent / "benchmarks" / "results" / "decisions-tables.md"
PANELS = {
    "insert": "insert, 8 factors (testing only)",
    "push": "push, 5 (testing only)",
    "maniskill-pull-visual": "ManiSkill pull-visual, 5 (testing only)",
    "maniskill-pick-place": "ManiSkill pick-place, 5 (testing only)",
    "pick-place": "pick-place, 5",
}
NAMES = {
    "equal": "Equal",
    "greedy": "Greedy",
    "cubed-failure": "failures cubed",
    "power-law:top@group": "the paper's Top, groups",
    "power-law:all@group": "the paper's All, groups",
    "power-law:all@pair": "the paper's All, pairs",
    "log-linear:best@screen:6/8": "log-linear regression",
    "gaussian-process:best@screen:6/8": "Gaussian process",
    "lightgbm:best@screen:6/8": "LightGBM",
    "response-model:auto@screen:6/8": "response model",
}
COLOURS = {"response model": "#0069a8"}


def regrets(text: str, regime: str) -> dict[str, dict[str, tuple[float, float]]]:
    """Mean regret over a table's starts and its error, by panel and rule, for K = 100."""
    table = re.search(rf"### K = 100, {regime}: regret by family\n\n(.*?)\n\n", text + "\n\n", re.DOTALL)
    assert table is not None
    header, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines())
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for panel in PANELS:
        columns = [number for number, name in enumerate(header) if name.startswith(panel)]
        for cells in lines:
            pairs = [[float(part) for part in cells[number].split(" ± ")] for number in columns]
            values, errors = zip(*pairs, strict=True)
            error = math.hypot(*errors) / len(columns)
            found.setdefault(panel, {})[cells[0]] = sum(values) / len(columns), error
    return found


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    looks = {"rollouts": (0.13, "o", None), "real": (-0.13, "D", "white")}
    values = {regime: regrets(text, regime) for regime in looks}
    figure, every = plt.subplots(1, 5, figsize=(15, 3.6), sharey=True, sharex=True, layout="constrained")
    for axes, (panel, title) in zip(every, PANELS.items(), strict=True):
        for place, (rule, name) in enumerate(reversed(NAMES.items())):
            colour = COLOURS.get(name, "#5d6977")
            for regime, (shift, marker, face) in looks.items():
                value, error = values[regime][panel][rule]
                axes.errorbar(
                    value, place + shift, xerr=2 * error, color=colour, marker=marker, mfc=face or colour, ms=6, lw=1.5
                )
        axes.set_title(title, fontsize=10)
        axes.set_yticks(range(len(NAMES)), list(reversed(NAMES.values())))
        axes.set_xlim(0, None)
        axes.grid(axis="x", color="#dce1e7")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(left=False)
    every[1].plot([], [], "o", color="#5d6977", label="60 trials per factor")
    every[1].plot([], [], "D", color="#5d6977", mfc="white", label="18 trials per policy")
    every[1].legend(frameon=False, loc="lower right", fontsize=9)
    figure.supxlabel("regret: share of the possible gain that is missed", fontsize=10)
    figure.savefig(DOCS / "images" / "rules.png", dpi=110)


if __name__ == "__main__":
    main()
