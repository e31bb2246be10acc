"""How often the scripted experts succeed at the first attempt, in training scenes and in held-out ones.

    python benchmarks/maniskill_experts.py [--seeds 200] [--out benchmarks/results/maniskill_experts.md]

Needs no renderer. Visual factors do not change the motion (a test holds this), so a visual setting is its nominal row.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from factored_scaling.sim import Condition, DemoRequest
from factored_scaling.sim.maniskill import ManiSkillTask, factors, make_task
from factored_scaling.sim.maniskill.rules import SPATIAL
from factored_scaling.sim.maniskill.scene import Scene
from factored_scaling.sim.maniskill.worker import Show, Shown

NAMES = {
    "maniskill/pick-place": (None,),
    "maniskill/peg-spatial": (None, *SPATIAL),
    "maniskill/pull-spatial": (None, *SPATIAL),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--out", type=Path, help="also write the report to this file")
    options = parser.parse_args()
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    lines = [
        "# ManiSkill: success of the scripted experts at the first attempt",
        "",
        f"{today}, `{' '.join(['python', *sys.argv])}`. The nominal rows hold for peg-visual and pull-visual as well.",
        "",
        "| setting | varied | scenes | success | steps | seconds a demo |",
        "|---|---|---|---|---|---|",
    ]
    for name, varied in NAMES.items():
        task = make_task(name)
        task.attempt([DemoRequest("warm", None, index) for index in range(task.processes)], pictures=False)
        for factor in varied:
            for kind, scenes in _scenes(task, factor, options.seeds).items():
                lines.append(f"| {name} | {factor or 'nothing (nominal)'} | {kind} | {_measured(task, scenes)} |")
                print(lines[-1], file=sys.stderr)
        task.close()
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)


def _scenes(task: ManiSkillTask, factor: str | None, count: int) -> dict[str, list[Scene]]:
    rules = task.rules
    return {
        "training": [factors.demo_scene(rules, DemoRequest("", factor, seed), 0) for seed in range(count)],
        "held out": [factors.trial_scene(rules, Condition(factor, i % 10, i // 10)) for i in range(count)],
    }


def _measured(task: ManiSkillTask, scenes: list[Scene]) -> str:
    began = time.perf_counter()
    shown = [answer for _, answer in task.pool(False).map([Show(scene, False) for scene in scenes])]
    seconds = (time.perf_counter() - began) * task.processes / len(scenes)
    done = sum(answer.done for answer in shown if isinstance(answer, Shown))
    steps = np.array([len(answer.state) for answer in shown if isinstance(answer, Shown)])
    return f"{done}/{len(scenes)} | {steps.min()} to {steps.max()} | {seconds:.2f}"


if __name__ == "__main__":
    main()
