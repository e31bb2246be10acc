"""What a tabletop environment-step and a rendered frame cost, against the batch size.

python benchmarks/tabletop_rollouts.py [--device cpu] [--threads 1] [--out benchmarks/results/tabletop_rollouts.md]
"""

from __future__ import annotations

import argparse
import datetime
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from factored_scaling.machine import processor
from factored_scaling.sim import TABLETOP_TASKS, Condition, DemoRequest
from factored_scaling.sim.tabletop import TabletopTask, factors, make_task
from factored_scaling.sim.tabletop.physics import start, step
from factored_scaling.sim.tabletop.render import render
from factored_scaling.sim.tabletop.scene import SceneBatch

BATCHES = (1, 8, 64, 256)
REPEATS, SECONDS = 5, 0.3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    lines = ["# Tabletop: cost of environment-steps and frames", "", *_where(options.device, options.threads)]
    for name in TABLETOP_TASKS:
        lines += ["", *_table(make_task(name, None), options.device)]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)


def _where(device: str, threads: int) -> list[str]:
    chip = torch.cuda.get_device_name() if device.startswith("cuda") else processor()
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return [
        f"{today}, {chip}, {threads} thread(s), torch {torch.__version__}, Python {platform.python_version()}.",
        f"Best of {REPEATS} measurements of {SECONDS} s each; images of 48 × 48 pixels.",
        "A rollout renders one frame per camera every 8 environment-steps.",
    ]


def _table(task: TabletopTask, device: str) -> list[str]:
    lines = [
        f"## {task.name} ({task.cameras} camera(s))",
        "",
        "| environments | steps/s | µs per step | frames/s | µs per frame |",
        "|---:|---:|---:|---:|---:|",
    ]
    for batch in BATCHES:
        conditions = [Condition(task.factors[i % len(task.factors)], i % 10, i) for i in range(batch)]
        scenes = SceneBatch.stack([factors.trial_scene(task.rules, condition) for condition in conditions], device)
        now = start(task.rules, scenes)

        steps = batch / _seconds(partial(step, task.rules, scenes, now, now.joints), device)
        frames = batch * task.cameras / _seconds(partial(render, task.rules, scenes, now, task.image_size), device)
        lines.append(f"| {batch} | {steps:,.0f} | {1e6 / steps:,.1f} | {frames:,.0f} | {1e6 / frames:,.0f} |")
    began = time.perf_counter()
    task.demonstrate([DemoRequest(str(i), task.factors[i % len(task.factors)], i) for i in range(150)], device)
    return [*lines, "", f"150 demonstrations: {time.perf_counter() - began:.1f} s."]


def _seconds(work: Callable[[], object], device: str) -> float:
    """Seconds per call, the best of several measurements (other programs only ever make it slower)."""
    work()
    best = float("inf")
    for _ in range(REPEATS):
        _wait(device)
        began, calls = time.perf_counter(), 0
        while time.perf_counter() - began < SECONDS:
            work()
            calls += 1
        _wait(device)
        best = min(best, (time.perf_counter() - began) / calls)
    return best


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
