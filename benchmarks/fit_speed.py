"""How long the method takes: 10,000 bootstrap refits of 28 curves, and a plan and a recommendation for eight factors.

python benchmarks/fit_speed.py            prints the table
python benchmarks/fit_speed.py --save     also writes benchmarks/results/fit_speed.md
"""

from __future__ import annotations

import argparse
import datetime
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from factored_scaling import Results, StudySpec, fit_curves, plan, recommend
from factored_scaling.core.curves import refit
from factored_scaling.machine import processor

SPEC = StudySpec({f"factor_{index}": 30 for index in range(8)}, construction="pair")
ROUNDS = 7


def measured() -> Results:
    """Scores of 600 trials at the four sizes of every pair."""
    rng = np.random.default_rng(0)
    rows = []
    for combination in SPEC.combinations():
        for n in (0, 20, 40, 60):
            score = 1 - 2.0 * (n + combination.base) ** -0.2 * rng.uniform(0.9, 1.0)
            rows.append(
                {"combination": combination.label, "n": n, "score": rng.binomial(600, score) / 600, "trials": 600}
            )
    return Results.from_rows(rows)


def screened(policies: int) -> Results:
    """Scores per factor of 600 trials each, of policies that lack some of the eight factors."""
    rng = np.random.default_rng(0)
    rows = []
    for seed in range(policies):
        demos = dict(zip(SPEC.names, rng.choice([0, 10, 30], len(SPEC.names)).tolist(), strict=True))
        for name in SPEC.names:
            score = rng.binomial(600, 0.4 + 0.01 * demos[name]) / 600
            rows.append({"demos": demos, "factor": name, "score": score, "trials": 600, "seed": seed})
    return Results.from_rows(rows)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Median and fastest of several rounds, in milliseconds."""
    work()
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds), 1000 * min(seconds)


def table() -> str:
    results = measured()
    curves, _ = fit_curves(SPEC, results)
    budgets = [100.0] * len(curves)
    few, many = screened(8), screened(40)
    work: dict[str, Callable[[], object]] = {
        "10,000 refits of 28 curves (4 points, 600 trials), with slopes": lambda: refit(curves, 10_000).slopes(budgets),
        "fit 28 curves from 112 rows": lambda: fit_curves(SPEC, results),
        "plan, 8 factors, pair (85 policies, 240 demos)": lambda: plan(SPEC),
        "recommend by curves, 8 factors, pair (2,000 refits inside)": lambda: recommend(SPEC, results, 100, "all"),
        "recommend by the response model, 8 factors, 8 policies": lambda: recommend(SPEC, few, 100),
        "recommend by the response model, 8 factors, 40 policies": lambda: recommend(SPEC, many, 100),
    }
    lines = [
        "# Fit speed",
        "",
        f"{datetime.date.today().isoformat()}, {processor()}, one core, {platform.system()}, "
        f"Python {platform.python_version()}, numpy {np.__version__}; `python benchmarks/fit_speed.py --save`.",
        "",
        f"| what | median of {ROUNDS}, ms | fastest, ms |",
        "|---|---:|---:|",
    ]
    for name, job in work.items():
        middle, fastest = timed(job)
        lines.append(f"| {name} | {middle:.1f} | {fastest:.1f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/fit_speed.md")
    save = parser.parse_args().save
    text = table()
    print(text, end="")
    if save:
        target = Path(__file__).parent / "results" / "fit_speed.md"
        target.parent.mkdir(exist_ok=True)
        target.write_text(text)


if __name__ == "__main__":
    main()
