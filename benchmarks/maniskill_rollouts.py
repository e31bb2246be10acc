"""Rollouts per second in ManiSkill: ours against the stock way, in one run; where the time goes; memory; scaling.

    python benchmarks/maniskill_rollouts.py [--processes 1 2] [--out benchmarks/results/maniskill_rollouts.md]

The stock way is one process that renders every step with the robot's stock meshes. Ours renders on decision steps with
coarse meshes, in several processes. Both play trials of 200 steps to the end with a policy that stands still, so that
no policy's cost is in the numbers. Each way is measured three times in turn and the fastest is kept.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import os
import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded, here and in the processes

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from factored_scaling.machine import processor
from factored_scaling.sim import Condition
from factored_scaling.sim.maniskill import ManiSkillTask, factors, make_task
from factored_scaling.sim.maniskill.renderer import find_renderer
from factored_scaling.sim.maniskill.stage import Stage
from factored_scaling.sim.maniskill.stages import stage_class

NAMES = ("maniskill/pull-visual", "maniskill/pick-place", "maniskill/peg-visual")
REPEATS, EXECUTE = 3, 8
TRIALS = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, len(os.sched_getaffinity(0))])
    parser.add_argument("--out", type=Path, help="also write the report to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = ["# ManiSkill: rollouts per second", "", *_where(), ""]
    lines += _rollouts(sorted(set(options.processes)))
    lines += _costs()
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)


def _rollouts(processes: list[int]) -> list[str]:
    lines = [
        "## Against the stock way",
        "",
        "| setting | stock, rollouts/s | "
        + " | ".join(f"ours, {count} proc." for count in processes)
        + " | faster | MB each |",
        "|---|---|" + "---|" * (len(processes) + 2),
    ]
    for name in NAMES:
        tasks = [make_task(name, processes=count) for count in processes]
        conditions = [Condition(tasks[0].factors[i % 5], i % 10, i) for i in range(TRIALS)]
        stock = _stage(name, coarse=False)
        for task in tasks:
            task.first_frames(conditions[: 2 * task.processes])  # starts the processes and compiles their shaders
        best: list[float] = [0.0] * (1 + len(tasks))
        for _ in range(REPEATS):
            best[0] = max(best[0], 1 / _seconds(partial(_stock_rollout, stock, conditions[0])))
            for index, task in enumerate(tasks):
                took = _seconds(partial(_our_rollouts, task, conditions))
                best[1 + index] = max(best[1 + index], len(conditions) / took)
        memory = max(_megabytes(pid) for pid in tasks[-1].pool(True).pids())
        for task in tasks:
            task.close()
        cells = [f"{rate:.2f}" for rate in best]
        lines.append(f"| {name} | {' | '.join(cells)} | {best[-1] / best[0]:.1f}× | {memory:.0f} |")
        print(lines[-1], file=sys.stderr)
    return [
        *lines,
        "",
        f"{TRIALS} trials at once per measurement; MB is the resident memory of a simulator process after them.",
    ]


def _costs() -> list[str]:
    """What the parts of a rollout take, in a single process."""
    lines = [
        "",
        "## Where the time goes",
        "",
        "| setting | begin a scene, ms | a step, ms | coarse pictures, ms | stock pictures, ms | pixels that differ |",
        "|---|---|---|---|---|---|",
    ]
    for name in NAMES:
        coarse, stock = _stage(name, coarse=True), _stage(name, coarse=False)
        scene = factors.trial_scene(coarse.rules, Condition(None, 0, 0))
        hold = coarse.proprioception()
        begin, step = partial(coarse.play, scene), partial(coarse.act, hold)
        times = [_best(begin, 10), _best(step, 100), _best(coarse.look, 20), _best(stock.look, 10)]
        coarse.play(scene)
        stock.play(scene)
        difference = np.abs(coarse.look().astype(int) - stock.look().astype(int)).max(axis=1)
        share = f"{100 * (difference > 8).mean():.1f}% by more than 8 of 255"
        lines.append(f"| {name} | {' | '.join(f'{1000 * t:.2f}' for t in times)} | {share} |")
        print(lines[-1], file=sys.stderr)
        coarse.close()
        stock.close()
    return [*lines, "", "Pictures are all cameras of the setting at its own size (192, 192 and 256 pixels)."]


def _stage(name: str, coarse: bool) -> Stage:
    rules = make_task(name).rules
    scene = factors.trial_scene(rules, Condition(None, 0, 0))
    made = stage_class(rules)(rules, scene, rules.image_size, find_renderer(), coarse)
    made.look()
    gc.collect()
    gc.freeze()
    return made


def _stock_rollout(stage: Stage, condition: Condition) -> None:
    stage.play(factors.trial_scene(stage.rules, condition))
    hold = stage.proprioception()
    for _ in range(stage.rules.max_steps):
        stage.look()
        stage.act(hold)
        stage.succeeded()


def _our_rollouts(task: ManiSkillTask, conditions: list[Condition]) -> None:
    def stand(images: torch.Tensor, state: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return state[:, None].repeat(1, 16, 1)

    scores = list(task.rollout(stand, conditions, EXECUTE))
    assert len(scores) == len(conditions)


def _best(work: Callable[[], object], count: int) -> float:
    """Seconds of one call: the fastest of five measurements."""
    return min(_seconds(lambda: [work() for _ in range(count)]) for _ in range(5)) / count


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _megabytes(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return float(line.split()[1]) / 1000
    return float("nan")


def _where() -> list[str]:
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return [
        f"{today}, {processor()}, {os.cpu_count()} cores, rendering on the {find_renderer().upper()}, "
        f"torch {torch.__version__}, Python {platform.python_version()}; load before it {os.getloadavg()[0]:.1f}.",
        f"`{' '.join(['python', *sys.argv])}`",
    ]


if __name__ == "__main__":
    main()
