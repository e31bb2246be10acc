"""Easier, harder and briefly trained variants of `tabletop/pick-place`, and tables of policies for them.

    python benchmarks/task_variants.py results/task-variants pick-place-easy --start 5

Tasks differ in how high success can rise and how fast it gets there, which one task alone does not show
(docs/decisions/0031). The same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import datetime
import os
import time
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # several threads wait for each other where cores are shared

from factored_scaling.bench.policy_tables import design_table
from factored_scaling.bench.table_builder import TableSettings, build_table
from factored_scaling.machine import processor
from factored_scaling.sim import load_task
from factored_scaling.sim.tabletop import TabletopTask
from factored_scaling.sim.tabletop.rules import PICK_PLACE
from factored_scaling.version import __version__

# How near the gripper has to close, how near the plate's centre the ball has to be let go, and from how high at most.
EASY = replace(PICK_PLACE, name="task_variants:easy", grasp_radius=0.050, target_radius=0.085, drop_height=0.20)
HARD = replace(PICK_PLACE, name="task_variants:hard", grasp_radius=0.024, target_radius=0.036)
POLICY = {"preset": "small", "updates": 1800, "learning_rate": 0.004}
TRIALS = {"initial_states": 8}
TABLES = {
    "pick-place-easy": TableSettings(EASY.name, POLICY, TRIALS, 200),
    "pick-place-hard": TableSettings(HARD.name, POLICY, TRIALS, 200),
    "pick-place-brief": TableSettings(PICK_PLACE.name, {**POLICY, "updates": 450}, TRIALS, 200),
}


def easy(name: str, image_size: int | None) -> TabletopTask:
    """Pick-place with tolerances half as large again."""
    return TabletopTask(EASY, image_size or 48)


def hard(name: str, image_size: int | None) -> TabletopTask:
    """Pick-place with tolerances a quarter smaller."""
    return TabletopTask(HARD, image_size or 48)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--start", type=int, default=10, help="demonstrations per factor")
    parser.add_argument("--policies", type=int, default=56)
    parser.add_argument("--work", type=Path, default=Path("/tmp/tables"))
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    settings = TABLES[options.table]
    made = {
        "role": "tuning",
        "version": __version__,
        "machine": processor(),
        "date": datetime.date.today().isoformat(),
    }
    begun = time.monotonic()

    def report(done: int, total: int, note: str = "") -> None:
        print(f"{time.monotonic() - begun:6.1f} s  {done} of {total} {note}", flush=True)

    build_table(
        options.out / options.table,
        settings,
        design_table(load_task(settings.task).factors, options.start, options.policies),
        options.work / options.table,
        report,
        at_once=1,
        workers=options.workers,
        provenance=made,
    )


if __name__ == "__main__":
    main()
