"""Draw docs/images/rules.png from benchmarks/results/decisions-tables.md: python docs/rules_image.py"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).resolve().parent
PAGE = DOCS.parent / "benchmarks" / "results" / "decisions-tables.md"
PANELS = {"kept apart for reporting": "insert, 8 factors (testing only)", "tuned on": "pick-place, 5 factors"}
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


def regrets(text: str, words: str) -> dict[str, list[tuple[float, float]]]:
    """Regret and its error in both regimes, by rule, for K = 100."""
    table = re.search(rf"### K = 100, mean over families [^\n]*{words}\n\n(.*?)\n\n", text + "\n\n", re.DOTALL)
    assert table is not None
    found = {}
    for line in table[1].splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        pairs = [cell.split(" ± ") for cell in cells if "±" in cell]
        found[cells[0]] = [(float(value), float(error)) for value, error in pairs]
    return found


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    figure, every = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, sharex=True, layout="constrained")
    for axes, (words, title) in zip(every, PANELS.items(), strict=True):
        values = regrets(text, words)
        for place, (rule, name) in enumerate(reversed(NAMES.items())):
            colour = COLOURS.get(name, "#5d6977")
            looks = ((0.13, "o", colour), (-0.13, "D", "white"))
            for (shift, marker, face), (value, error) in zip(looks, values[rule], strict=True):
                axes.errorbar(value, place + shift, xerr=2 * error, color=colour, marker=marker, mfc=face, ms=6, lw=1.5)
        axes.set_title(title, fontsize=11)
        axes.set_yticks(range(len(NAMES)), list(reversed(NAMES.values())))
        axes.set_xlabel("regret: share of the possible gain that is missed")
        axes.set_xlim(0, None)
        axes.grid(axis="x", color="#dce1e7")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(left=False)
    every[1].plot([], [], "o", color="#5d6977", label="60 trials per factor")
    every[1].plot([], [], "D", color="#5d6977", mfc="white", label="18 trials per policy")
    every[1].legend(frameon=False, loc="lower right", fontsize=9)
    figure.savefig(DOCS / "images" / "rules.png", dpi=110)


if __name__ == "__main__":
    main()
