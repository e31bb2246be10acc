"""Decisions per second of one and several policies, plain against captured, and inference's share of a rollout's time.

    python benchmarks/inference.py                                     # small sizes, CPU
    python benchmarks/inference.py --device cuda --preset paper --sizes 16 64 256 --image-size 96
    python benchmarks/inference.py --device cuda --preset paper --image-size 96 --setting maniskill/pull-visual

A decision is one sample's whole denoising, from pictures to actions. Plain launches every kernel from the host, policy
after policy; captured replays one CUDA graph per policy, all policies on streams of their own. The policies have random
weights: how long they take does not depend on them. In rollouts they decide and the arm then stands still, so that
every trial is played to its last step. Needs numpy, scipy, torch and safetensors, and mani_skill for its settings.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from factored_scaling.machine import prepare_device, processor
from factored_scaling.policies.config import DiffusionConfig
from factored_scaling.policies.diffusion import DiffusionPolicy
from factored_scaling.policies.inference import Sampler, Team
from factored_scaling.sim import Condition, load_task
from factored_scaling.sim.task import Task


def main() -> None:
    options = _options()
    prepare_device(options.device, options.threads)
    task = load_task(options.setting, options.image_size)
    config = DiffusionConfig.preset(options.preset, **options.policy)
    shape = (task.cameras, task.image_size, task.image_size, task.state_size, task.action_size)
    torch.manual_seed(0)
    policies = [DiffusionPolicy(config, shape).to(options.device).eval() for _ in range(max(options.policies))]
    lines = [*_where(options, config, task), *_speed(policies, options)]
    if not options.no_rollouts:
        lines += _rollouts(task, policies, options)
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)
    getattr(task, "close", lambda: None)()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="of the CPU")
    parser.add_argument("--preset", default="small", help="small or paper")
    parser.add_argument("--policy", type=json.loads, default={}, help="settings that differ from the preset, as JSON")
    parser.add_argument(
        "--setting", default="tabletop/pick-place", help="the task that is rolled out; gives the shapes"
    )
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--policies", type=int, nargs="+", default=[1, 4, 12])
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 16, 64], help="samples per policy and decision")
    parser.add_argument("--trials", type=int, default=32, help="per policy, for the rollouts")
    parser.add_argument("--together", type=int, default=4, help="policies in the rollouts")
    parser.add_argument("--seconds", type=float, default=1.0, help="per measurement; the best of three is kept")
    parser.add_argument("--no-rollouts", action="store_true")
    parser.add_argument("--only-best", action="store_true", help="roll out side by side only, on a GPU captured")
    parser.add_argument("--out", type=Path, help="also write the report to this file")
    return parser.parse_args()


def _speed(policies: Sequence[DiffusionPolicy], options: argparse.Namespace) -> list[str]:
    """Decisions per second against the number of policies and of samples each."""
    captures = options.device.startswith("cuda")
    columns = ["policies", "samples each", "plain", "ms"]
    columns += ["captured, side by side", "ms", "faster", "largest difference"] if captures else []
    lines = ["", "## Decisions per second", "", f"| {' | '.join(columns)} |", "|" + "---:|" * len(columns)]
    samplers = [Sampler(policy) for policy in policies]
    for count in options.policies:
        for size in options.sizes:
            inputs = _inputs(policies[0], size)
            slow = _seconds(partial(_plain, policies[:count], inputs), options)
            cells = [str(count), str(size), f"{count * size / slow:,.0f}", f"{1000 * slow:.1f}"]
            if captures:
                fast = _seconds(partial(_captured, samplers[:count], inputs), options)
                pairs = zip(_plain(policies[:count], inputs), _captured(samplers[:count], inputs), strict=True)
                difference = max(float((one - other).abs().max()) for one, other in pairs)
                cells += [
                    f"{count * size / fast:,.0f}",
                    f"{1000 * fast:.1f}",
                    f"{slow / fast:.1f}×",
                    f"{difference:.1e}",
                ]
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], file=sys.stderr, flush=True)
    failures = {sampler.failure for sampler in samplers if sampler.failure}
    return [*lines, *(["", f"Captures failed and the plain way was taken: {failures}"] if failures else [])]


def _rollouts(task: Task, policies: Sequence[DiffusionPolicy], options: argparse.Namespace) -> list[str]:
    """Whole rollouts: one policy after the other, plain; the same captured; all side by side."""
    chosen = policies[: options.together]
    conditions = [Condition(task.factors[i % len(task.factors)], i % 10, i) for i in range(options.trials)]
    task.first_frames(conditions)  # starts simulator processes and compiles their shaders
    plain = [Sampler(policy, capture=False) for policy in chosen]
    ways = [("one after the other, plain", [[sampler] for sampler in plain]), ("side by side, plain", [plain])]
    if options.device.startswith("cuda"):
        captured = [Sampler(policy) for policy in chosen]
        ways += [("one after the other, captured", [[sampler] for sampler in captured])]
        ways += [("side by side, captured", [captured])]
    ways = ways[-1:] if options.only_best else ways
    for _, teams in ways if options.only_best else ways[1:]:
        _roll(task, teams, conditions, options.device)  # makes the captures and the scenes' processes
    lines = [
        "",
        f"## Inference in rollouts of {task.name}",
        "",
        f"{len(chosen)} policies, {len(conditions)} trials each, {task.max_steps} steps per trial, "
        f"{chosen[0].config.execute} executed per decision.",
        "",
        "| way | seconds | rollouts/s | spent deciding | share of inference |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, teams in ways:
        took, deciding = _roll(task, teams, conditions, options.device)
        rate = len(chosen) * len(conditions) / took
        lines.append(f"| {name} | {took:.2f} | {rate:.1f} | {deciding:.2f} s | {deciding / took:.0%} |")
        print(lines[-1], file=sys.stderr, flush=True)
    return lines


def _roll(
    task: Task, teams: Sequence[Sequence[Sampler]], conditions: Sequence[Condition], device: str
) -> tuple[float, float]:
    """Seconds for all teams' rollouts, and seconds of it spent deciding."""
    began, deciding = time.perf_counter(), 0.0
    for samplers in teams:
        still = Still(Team(samplers, range(len(samplers)), len(conditions)), device)
        execute = samplers[0].policy.config.execute
        rows = list(task.rollout_many(still, len(samplers), conditions, execute, device))
        assert len(rows) == len(samplers) * len(conditions)
        deciding += still.seconds
    return time.perf_counter() - began, deciding


class Still:
    """Lets the policies decide, counts the time, and has the arm stand still."""

    def __init__(self, team: Team, device: str) -> None:
        self.team = team
        self.device = device
        self.seconds = 0.0

    def __call__(self, images: Tensor, state: Tensor, rows: Tensor) -> Tensor:
        _wait(self.device)
        began = time.perf_counter()
        actions = self.team(images, state, rows)
        _wait(self.device)
        self.seconds += time.perf_counter() - began
        return state[:, None].repeat(1, actions.shape[1], 1)


def _inputs(policy: DiffusionPolicy, size: int) -> tuple[Tensor, Tensor, Tensor]:
    cameras, height, width, state_size, action_size = policy.shape
    device = policy.signal.device
    images = torch.randint(0, 256, (size, cameras, 3, height, width), dtype=torch.uint8, device=device)
    noise = torch.randn(size, policy.config.horizon, action_size, device=device)
    return images, torch.randn(size, state_size, device=device), noise


def _plain(policies: Sequence[DiffusionPolicy], inputs: tuple[Tensor, Tensor, Tensor]) -> list[Tensor]:
    return [policy.sample(*inputs) for policy in policies]


def _captured(samplers: Sequence[Sampler], inputs: tuple[Tensor, Tensor, Tensor]) -> list[Tensor]:
    begun = [sampler.begin(*inputs) for sampler in samplers]
    return [pending.wait() for pending in begun]


def _seconds(work: Callable[[], object], options: argparse.Namespace) -> float:
    """Seconds per call, the best of three measurements (other programs only ever make it slower)."""
    work()
    best = float("inf")
    for _ in range(3):
        _wait(options.device)
        began, calls = time.perf_counter(), 0
        while time.perf_counter() - began < options.seconds:
            work()
            _wait(options.device)
            calls += 1
        best = min(best, (time.perf_counter() - began) / calls)
    return best


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def _where(options: argparse.Namespace, config: DiffusionConfig, task: Task) -> list[str]:
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    machine = (
        torch.cuda.get_device_name()
        if options.device.startswith("cuda")
        else f"{processor()}, {options.threads} thread(s)"
    )
    return [
        "# Inference: decisions per second and their share of a rollout",
        "",
        f"{today}, {machine}, torch {torch.__version__}, Python {platform.python_version()}; load before it "
        f"{os.getloadavg()[0]:.1f}.",
        f"`{' '.join(['python', *sys.argv])}`",
        "",
        f"Preset {options.preset}: {config.encoder}, U-Net {config.widths}, {config.inference_steps} denoising steps; "
        f"{task.cameras} camera(s) of {task.image_size} pixels.",
    ]


if __name__ == "__main__":
    main()
