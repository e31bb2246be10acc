"""Is perception the obstacle? Policies that know where the objects lie and need no pictures.

    python benchmarks/state_policies.py --seeds 5

A small network predicts the expert's next actions, relative to the current joints, from the joints and the initial
poses of both objects. It is trained on nominal demonstrations and rolled out in other nominal scenes, with different
numbers of actions carried out per decision. Actions are scaled either alike at all steps or at each step on its
own. Needs no renderer.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import os
import sys
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from factored_scaling.core.trials import wilson
from factored_scaling.io.text import write_text
from factored_scaling.machine import processor
from factored_scaling.sim import Condition, DemoRequest
from factored_scaling.sim.maniskill import factors
from factored_scaling.sim.maniskill.rules import SETTINGS, Rules
from factored_scaling.sim.maniskill.stage import Stage
from factored_scaling.sim.maniskill.worker import Options, Simulator

WIDTH, BATCH = 512, 128
SCALINGS = {"shared": False, "step by step": True}
Floats = NDArray[np.float32]


def observed(stage: Stage) -> Floats:
    """Joints, gripper and the initial poses of both objects."""
    layout = stage.layout
    return np.concatenate([stage.proprioception(), layout.manipulated, layout.goal]).astype(np.float32)


def demonstrations(simulator: Simulator, rules: Rules, first: int, count: int, horizon: int) -> tuple[Floats, Floats]:
    """Observations and the next actions relative to the joints: frames × size, frames × horizon × 8."""
    seen, targets = [], []
    for number in range(first, first + count):
        stage = simulator.stage(0, factors.demo_scene(rules, DemoRequest("", None, number), 0))
        plan = stage.plan()
        if plan is None:
            raise SystemExit(f"the expert has no plan in scene {number}")
        for step, action in enumerate(plan):
            seen.append(observed(stage))
            window = plan[np.minimum(np.arange(step, step + horizon), len(plan) - 1)]
            targets.append(window - seen[-1][:8])
            stage.act(action)
    return np.stack(seen), np.stack(targets)


class Policy:
    """A network with the scaling of its inputs and outputs."""

    def __init__(self, seen: Floats, targets: Floats, by_step: bool, seed: int, updates: int) -> None:
        torch.manual_seed(seed)
        self.centre, self.spread = seen.mean(0), seen.std(0) + 1e-3
        axes = (0,) if by_step else (0, 1)
        self.middle, self.range = targets.mean(axes), targets.std(axes) + 1e-4
        size = [seen.shape[1], WIDTH, WIDTH, WIDTH, targets[0].size]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(size):
            layers += [nn.Linear(before, after), nn.GELU()]
        self.network = nn.Sequential(*layers[:-1])
        inputs = torch.from_numpy((seen - self.centre) / self.spread)
        outputs = torch.from_numpy((targets - self.middle) / self.range).flatten(1)
        optimiser = torch.optim.AdamW(self.network.parameters(), 1e-3, weight_decay=1e-5)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-3, total_steps=updates)
        for _ in range(updates):
            rows = torch.randint(len(inputs), (BATCH,))
            loss = nn.functional.mse_loss(self.network(inputs[rows]), outputs[rows])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()

    @torch.inference_mode()
    def __call__(self, seen: Floats) -> Floats:
        """The next joint targets: horizon × 8."""
        scaled = self.network(torch.from_numpy((seen - self.centre) / self.spread)).numpy()
        return np.asarray(scaled.reshape(-1, 8) * self.range + self.middle + seen[:8], dtype=np.float32)


def succeeds(simulator: Simulator, rules: Rules, policy: Policy, number: int, execute: int) -> bool:
    """Whether the policy succeeds in a nominal trial."""
    stage = simulator.stage(0, factors.trial_scene(rules, Condition(None, 0, number)))
    for _ in range(-(-rules.max_steps // execute)):
        for action in policy(observed(stage))[:execute]:
            stage.act(action)
            if stage.succeeded():
                return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["maniskill/peg-visual"], choices=SETTINGS)
    parser.add_argument("--demos", type=int, default=100)
    parser.add_argument("--updates", type=int, default=6000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--horizon", type=int, default=16, help="actions predicted per decision")
    parser.add_argument("--execute", type=int, nargs="+", default=[8, 12, 16], help="actions per decision")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.tasks:
        rules = SETTINGS[name]
        simulator = Simulator(Options(rules, rules.image_size, render=False))
        for seed in range(options.seeds):
            seen, targets = demonstrations(simulator, rules, seed * options.demos, options.demos, options.horizon)
            for scaling, by_step in SCALINGS.items():
                policy = Policy(seen, targets, by_step, seed, options.updates)
                cells = []
                for execute in options.execute:
                    done = [succeeds(simulator, rules, policy, trial, execute) for trial in range(options.trials)]
                    mean = float(np.mean(done))
                    interval = wilson(mean, len(done))
                    cells.append(f"{100 * mean:.0f}% ({100 * interval.low:.0f} to {100 * interval.high:.0f})")
                rows.append(f"| {name.partition('/')[2]} | {scaling} | {seed} | {' | '.join(cells)} |")
                print(rows[-1], file=sys.stderr, flush=True)
    command = f"python benchmarks/state_policies.py --tasks {' '.join(options.tasks)} --demos {options.demos}"
    command += f" --updates {options.updates} --seeds {options.seeds} --trials {options.trials}"
    command += f" --horizon {options.horizon} --execute {' '.join(map(str, options.execute))}"
    heads = " | ".join(f"execute {count}" for count in options.execute)
    text = "\n".join(
        [
            "# Policies that know where the objects lie",
            "",
            f"{datetime.date.today().isoformat()}, {processor()}, torch {torch.__version__}; `{command}`.",
            "",
            f"Nominal success of networks that see joints and the initial poses of both objects, trained on "
            f"{options.demos} nominal demonstrations; the two rows of a seed share them.",
            "",
            f"| task | scaling of relative actions | seed | {heads} |",
            "|---|---|---:|" + "---:|" * len(options.execute),
            *rows,
            "",
        ]
    )
    print(text)
    if options.save:
        write_text(options.save, text)


if __name__ == "__main__":
    main()
