"""How many of a policy's predicted actions should be carried out before it decides again?

    python benchmarks/executed_actions.py maniskill/pick-place WORK/DIGEST --execute 4 8 12 16

Rolls one trained policy out in the same held-out trials with different numbers of actions per decision. Nothing is
trained: `execute` matters in rollouts alone. WORK is the folder of `scripts/gpu_study.py`.
"""

from __future__ import annotations

import argparse
import datetime
import os
import time
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from numpy.typing import NDArray

from factored_scaling.machine import prepare_device, processor
from factored_scaling.policies.diffusion import load_policy
from factored_scaling.policies.inference import Sampler, Team
from factored_scaling.sim import Condition, load_task


@dataclass(frozen=True)
class Measured:
    """Scores of all trials, in the order of the conditions, and how long they took."""

    scores: NDArray[np.float64]
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("policy", type=Path)
    parser.add_argument("--execute", type=int, nargs="+", default=[4, 8, 12, 16])
    parser.add_argument("--states", type=int, default=4, help="initial states per held-out setting")
    parser.add_argument("--reference", type=int, default=8, help="the number that others are compared with")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    if options.reference not in options.execute:
        parser.error(f"--execute needs {options.reference}, which the others are compared with")
    prepare_device(options.device)
    policy = load_policy(options.policy, options.device)
    task = load_task(options.task, policy.shape[1])
    conditions = [
        Condition(factor, setting, state)
        for state in range(options.states)
        for setting in range(task.settings_per_factor)
        for factor in task.factors
    ]
    found: dict[int, Measured] = {}
    for execute in options.execute:
        began = time.perf_counter()
        team = Team([Sampler(policy)], [0], len(conditions))
        scores = np.array([score for _, score in task.rollout(team, conditions, execute, options.device)])
        found[execute] = Measured(scores, time.perf_counter() - began)
        print(f"{execute}: {scores.mean():.3f}", flush=True)
    getattr(task, "close", lambda: None)()
    machine = torch.cuda.get_device_name(options.device) if options.device.startswith("cuda") else processor()
    print(f"\n{datetime.date.today().isoformat()}, {machine}; {len(conditions)} held-out trials of {options.task}.\n")
    print(f"| actions per decision | success | less {options.reference} | seconds | {' | '.join(task.factors)} |")
    print("|---:|---:|---:|---:|" + "---:|" * len(task.factors))
    base = found[options.reference].scores
    for execute, measured in found.items():
        change = 100 * (measured.scores - base)
        less = (
            f"{change.mean():+.1f} ± {change.std(ddof=1) / len(change) ** 0.5:.1f}"
            if execute != options.reference
            else "–"
        )
        by_factor = [
            100 * np.mean([s for c, s in zip(conditions, measured.scores, strict=True) if c.factor == name])
            for name in task.factors
        ]
        cells = [str(execute), f"{100 * measured.scores.mean():.1f}%", less, f"{measured.seconds:.0f}"]
        print(f"| {' | '.join([*cells, *(f'{value:.0f}%' for value in by_factor)])} |")


if __name__ == "__main__":
    main()
