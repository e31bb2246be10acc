"""Fit an emulator to every table and say how far it can be believed.

    python benchmarks/emulators.py results/tables --save benchmarks/results/emulators.md

Writes `emulator.json` beside each table, so that comparing rules does not fit again.
"""

from __future__ import annotations

import argparse
import datetime
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from factored_scaling.bench.emulator import FILE, Emulator, Floats, angle, features, success
from factored_scaling.bench.policy_tables import ROWS, PolicyTable, read_table
from factored_scaling.io.text import write_text
from factored_scaling.machine import processor


def ceiling(emulator: Emulator) -> Floats:
    """The error that counting and training noise alone would leave in θ, per factor."""
    table = emulator.table
    points = features(table.demos, table.nominal)
    noise = np.stack([process.noise(points) for process in emulator.processes], axis=1)
    return np.asarray(np.sqrt((noise + 0.25 / (table.trials + 0.5)).mean(0)))


def lines(name: str, emulator: Emulator) -> list[str]:
    table, predicted = emulator.table, emulator.held_out()
    error = np.sqrt(((angle(table.successes, table.trials) - predicted) ** 2).mean(0))
    least = ceiling(emulator)
    points = 100 * (table.scores - success(predicted))
    overall = points.mean(1)
    out = [
        f"### {name}: {len(table)} policies",
        "",
        "| factor | error of θ | noise of θ | ratio | error, points |",
        "|---|---:|---:|---:|---:|",
    ]
    for j, factor in enumerate(table.factors):
        row = f"{error[j]:.3f} | {least[j]:.3f} | {error[j] / least[j]:.2f} | {np.sqrt((points[:, j] ** 2).mean()):.1f}"
        out.append(f"| {factor} | {row} |")
    out += [
        "",
        f"Success over all trials: error {np.sqrt((overall**2).mean()):.1f} points, bias {overall.mean():+.1f}. ",
    ]
    out += [f"Share of the training noise that moves all trials together: {emulator.common:.2f}.", ""]
    out += [
        "| group | start | policies | measured | bias | error | policies differ by |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for group in dict.fromkeys(table.group):
        for start in sorted(set(table.start.tolist())):
            keep = np.array([one == group for one in table.group]) & (table.start == start)
            if keep.any():
                out.append(_group(table, keep, overall, group, start))
    return [*out, ""]


def _group(table: PolicyTable, keep: NDArray[np.bool_], overall: Floats, group: str, start: int) -> str:
    score = 100 * table.scores[keep].mean(1)
    spread = f"{score.std(ddof=1):.1f}" if group in ("start", "equal-20", "equal-100") else "–"
    error = np.sqrt((overall[keep] ** 2).mean())
    cells = [f"{score.mean():.1f}", f"{overall[keep].mean():+.1f}", f"{error:.1f}", spread]
    return "| " + " | ".join([group, str(start), str(keep.sum()), *cells]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    page = [
        "# Emulators of the policy tables",
        "",
        f"{datetime.date.today().isoformat()}, {processor()}; `python benchmarks/emulators.py {options.tables}`.",
        "",
        "Five-fold cross-validation; policies of one composition are left out together. The noise is what counting and "
        "training alone would leave, as the emulator estimates it: a ratio of 1 is the best that can be had. Bias is "
        "measured − predicted success over all trials, in points. The last column is the standard deviation of "
        "policies with one composition, counting noise included.",
        "",
    ]
    for place in sorted(path.parent for path in options.tables.glob(f"*/{ROWS}")):
        emulator = Emulator.fit(read_table(place))
        write_text(place / FILE, json.dumps(emulator.to_mapping()) + "\n")
        page += lines(place.name, emulator)
    text = "\n".join(page)
    print(text)
    if options.save:
        write_text(options.save, text)


if __name__ == "__main__":
    main()
