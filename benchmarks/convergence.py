"""Has the training of a policy table converged? Trains some of its policies again, twice as long.

    python benchmarks/convergence.py results/tables/push results/convergence/push --start 10 --policies 16

The policies are those with K = 100 more demonstrations, which need most training. Each has the demonstrations, the
seed and the held-out scenes of its row in the table, so that differences are paired. The same command goes on where it
was stopped.
"""

from __future__ import annotations

import argparse
import datetime
import os
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # several threads wait for each other where cores are shared

import numpy as np

from factored_scaling.bench.policy_tables import Composition, PolicyTable, read_table
from factored_scaling.bench.table_builder import TableSettings, build_table
from factored_scaling.machine import processor
from factored_scaling.version import __version__

GROUPS = ("equal-100", "split-100")


def chosen(table: PolicyTable, start: int, count: int) -> list[int]:
    """The first rows of each group in turn."""
    group = np.array(table.group)
    places = [np.flatnonzero((table.start == start) & (group == name)).tolist() for name in GROUPS]
    found = [row for pair in zip(*places, strict=False) for row in pair][:count]
    if len(found) < count:
        raise SystemExit(f"the table has {len(found)} such policies from {start} demonstrations per factor")
    return found


def composition(table: PolicyTable, row: int) -> Composition:
    """The training set of a row."""
    demos = {name: int(number) for name, number in zip(table.factors, table.demos[row], strict=True)}
    return Composition(table.group[row], int(table.start[row]), demos, int(table.nominal[row]), int(table.seed[row]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--start", type=int, default=10, help="demonstrations per factor")
    parser.add_argument("--policies", type=int, default=16)
    parser.add_argument("--times", type=int, default=2, help="as many updates as in the table")
    parser.add_argument("--work", type=Path, default=Path("/tmp/convergence"))
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    table = read_table(options.table)
    rows, card, begun = chosen(table, options.start, options.policies), table.card, time.monotonic()
    policy = {**card["policy"], "updates": options.times * card["policy"]["updates"]}

    def report(done: int, total: int, note: str = "") -> None:
        print(f"{time.monotonic() - begun:6.1f} s  {done} of {total} {note}", flush=True)

    longer = build_table(
        options.out,
        TableSettings(card["task"], policy, card["evaluation"], card["pool"]),
        [composition(table, row) for row in rows],
        options.work / options.table.resolve().name,
        report,
        at_once=1,
        workers=options.workers,
        provenance={"version": __version__, "machine": processor(), "date": datetime.date.today().isoformat()},
    )
    before = {int(table.seed[row]): float(table.scores[row].mean()) for row in rows}
    pairs = [(before[int(seed)], float(score.mean())) for seed, score in zip(longer.seed, longer.scores, strict=True)]
    once, twice = 100 * np.array(pairs).T
    error = (twice - once).std(ddof=1) / len(pairs) ** 0.5
    print(
        f"{len(pairs)} policies, {card['policy']['updates']} updates: {once.mean():.1f}%; {policy['updates']}: "
        f"{twice.mean():.1f}%; difference {(twice - once).mean():+.1f} ± {error:.1f} points (one standard error)"
    )


if __name__ == "__main__":
    main()
