"""How precise a policy has to be: success of the scripted expert when its joint targets are off.

    python benchmarks/maniskill_tolerance.py --scenes 60 --save benchmarks/results/maniskill_tolerance.md

Every eight steps, as a policy decides, each joint target gets a new normal error of the given size. The gripper has
none. Nominal training scenes; needs no renderer.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from factored_scaling.io.text import write_text
from factored_scaling.machine import processor
from factored_scaling.sim import DemoRequest
from factored_scaling.sim.maniskill import factors
from factored_scaling.sim.maniskill.expert import Arm
from factored_scaling.sim.maniskill.rules import SETTINGS
from factored_scaling.sim.maniskill.worker import Options, Simulator

NAMES = ("maniskill/pull-visual", "maniskill/pick-place", "maniskill/peg-visual")
ERRORS = (0.0, 0.002, 0.004, 0.006, 0.010, 0.015, 0.025, 0.040)  # radians, one standard deviation per joint
DECISION = 8  # steps between two decisions


def measured(name: str, error: float, scenes: int) -> tuple[int, float]:
    """Successes, and how far the hand's target is off in millimetres (root mean square)."""
    rules = SETTINGS[name]
    simulator, done, moved = Simulator(Options(rules, rules.image_size, render=False)), 0, []
    for number in range(scenes):
        stage = simulator.stage(0, factors.demo_scene(rules, DemoRequest("", None, number), 0))
        plan = stage.plan()
        if plan is None:
            raise SystemExit(f"{name}: the expert has no plan in scene {number}")
        rng = np.random.default_rng([number, round(error * 1e6)])
        drawn = error * rng.standard_normal((-(-len(plan) // DECISION), 7))
        actions = plan.copy()
        actions[:, :7] += np.repeat(drawn, DECISION, axis=0)[: len(plan)]
        arm = Arm(stage.agent.robot._objs[0])
        for step in range(0, len(plan), DECISION):
            right, wrong = (arm.pose(row[:7].astype(float))[0] for row in (plan[step], actions[step]))
            moved.append(float(((right - wrong) ** 2).sum()))
        success = False
        for action in actions:
            stage.act(action)
            success = success or stage.succeeded()
        done += success
    return done, 1000 * float(np.sqrt(np.mean(moved)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=60)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    rows = []
    for error in ERRORS:
        found = [measured(name, error, options.scenes) for name in NAMES]
        hand = np.mean([moved for _, moved in found])
        cells = [f"{100 * done / options.scenes:.0f}%" for done, _ in found]
        rows.append(f"| {1000 * error:.0f} | {hand:.1f} | {' | '.join(cells)} |")
        print(rows[-1], file=sys.stderr, flush=True)
    text = "\n".join(
        [
            "# ManiSkill: how precise a policy has to be",
            "",
            f"{datetime.date.today().isoformat()}, {processor()}; "
            f"`python benchmarks/maniskill_tolerance.py --scenes {options.scenes}`.",
            "",
            "Success of the scripted expert when every joint target is off by a normal error, drawn anew every "
            f"{DECISION} steps as a policy decides; {options.scenes} nominal scenes.",
            "",
            f"| error per joint, mrad | hand off by, mm | {' | '.join(name.partition('/')[2] for name in NAMES)} |",
            "|---:|---:|" + "---:|" * len(NAMES),
            *rows,
            "",
        ]
    )
    print(text)
    if options.save:
        write_text(options.save, text)


if __name__ == "__main__":
    main()
