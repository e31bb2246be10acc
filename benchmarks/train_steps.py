"""Training steps per second of the small policy: one alone, two and four side by side; and where an update's time goes.

    python benchmarks/train_steps.py [--updates N] [--output FILE.md]

Every policy is a process of its own with one thread, as a study's workers are. The frames are random: the speed does
not depend on what they show. Prints Markdown tables with machine and date.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded, here and in the workers

import numpy as np
import torch
from torch import Tensor, nn

from factored_scaling import machine
from factored_scaling.data.frames import FrameTable
from factored_scaling.policies.diffusion import DiffusionConfig, build_learner, train_diffusion
from factored_scaling.policies.training import Training
from factored_scaling.policies.windows import DeviceFrames

EPISODES, LENGTH, IMAGE, STATE = 150, 35, 48, 5
SIDE_BY_SIDE = (1, 2, 4)


def frames() -> FrameTable:
    """As many frames as a study's first training set has."""
    random = np.random.default_rng(0)
    count = EPISODES * LENGTH
    return FrameTable(
        random.integers(0, 256, (count, 1, 3, IMAGE, IMAGE), dtype=np.uint8),
        random.random((count, STATE), dtype=np.float32),
        random.random((count, STATE), dtype=np.float32),
        np.arange(EPISODES + 1) * LENGTH,
        tuple(f"episode/{index}" for index in range(EPISODES)),
        (None,) * EPISODES,
    )


def worker(updates: int, seed: int, barrier: Barrier, seconds: multiprocessing.Queue[tuple[float, float]]) -> None:
    """Train one policy; report wall-clock and processor seconds from the moment that all are ready."""
    machine.prepare_device("cpu")
    table, config = frames(), DiffusionConfig.preset("small", updates=updates)
    with tempfile.TemporaryDirectory() as folder:
        train_diffusion(table, DiffusionConfig.preset("small", updates=20), seed, Path(folder) / "warm", ignore)
        barrier.wait()
        wall, processor = time.perf_counter(), time.process_time()
        train_diffusion(table, config, seed, Path(folder) / "timed", ignore)
        seconds.put((time.perf_counter() - wall, time.process_time() - processor))


def ignore(done: int, total: int, note: str = "") -> None:
    """No progress is shown while time is measured."""


def measure(policies: int, updates: int) -> tuple[float, float]:
    """The slowest worker's wall-clock seconds, and the mean processor seconds of all."""
    context = multiprocessing.get_context("spawn")
    barrier, seconds = context.Barrier(policies), context.Queue()
    workers = [context.Process(target=worker, args=(updates, seed, barrier, seconds)) for seed in range(policies)]
    for process in workers:
        process.start()
    results = [seconds.get() for _ in workers]
    for process in workers:
        process.join()
    return max(wall for wall, _ in results), sum(processor for _, processor in results) / policies


def split(updates: int) -> dict[str, float]:
    """Seconds of one update by what they are spent on, means over `updates`."""
    machine.prepare_device("cpu")
    table, config = frames(), DiffusionConfig.preset("small", updates=updates)
    learner = build_learner(DeviceFrames.of(table, "cpu"), torch.from_numpy(table.rows_of(table.ids)), config, seed=0)
    training, policy = Training(learner, config.optimisation), learner.module
    seconds: dict[str, float] = defaultdict(float)
    reached: list[float] = []  # when the gradient has passed the U-Net

    def timed(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **keywords: Any) -> Any:
            began = time.perf_counter()
            result = work(*args, **keywords)
            seconds[name] += time.perf_counter() - began
            return result

        return run

    def backward(loss: Tensor, plain: Callable[[Tensor], None] = Tensor.backward) -> None:
        began = time.perf_counter()
        plain(loss)
        seconds["U-Net, backward"] += reached[-1] - began
        seconds["encoder, backward"] += time.perf_counter() - reached[-1]

    def observe(images: Tensor, state: Tensor, plain: Callable[..., Tensor] = policy.observe) -> Tensor:
        condition: Tensor = timed("encoder, forward", plain)(images, state)
        condition.register_hook(lambda _: reached.append(time.perf_counter()))  # type: ignore[no-untyped-call]
        return condition

    with (
        patch.object(learner, "draw", timed("random numbers", learner.draw)),
        patch.object(learner, "jitter", timed("colour jitter", learner.jitter)),
        patch.object(policy, "observe", observe),
        patch.object(policy.unet, "forward", timed("U-Net, forward", policy.unet.forward)),
        patch.object(Tensor, "backward", backward),
        patch.object(nn.utils, "clip_grad_norm_", timed("gradient's norm", nn.utils.clip_grad_norm_)),
        patch.object(training.optimiser, "step", timed("AdamW", training.optimiser.step)),
    ):
        for number in range(updates + 20):
            if number == 20:  # the first ones are slower
                seconds.clear()
                began = time.perf_counter()
            training.update()
        whole = time.perf_counter() - began
    seconds["the rest (windows, averages, …)"] = whole - sum(seconds.values())
    return {name: value / updates for name, value in seconds.items()}


def report(updates: int, rows: Sequence[tuple[int, float, float]], parts: dict[str, float], load: float) -> str:
    """The table as Markdown; `load` is the machine's before anything was measured."""
    lines = [
        "# Training steps per second, small preset",
        "",
        f"{updates} updates of `DiffusionConfig.preset('small')`, {EPISODES} demos of {LENGTH} frames, one camera of "
        f"{IMAGE} px; one thread per policy, checkpoints every 200 updates included.",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {machine.processor()}, {os.cpu_count()} cores (load {load:.1f} before), "
        f"{platform.system()}, Python {platform.python_version()}, torch {torch.__version__}. "
        "`python benchmarks/train_steps.py`",
        "",
        "| policies side by side | steps/s of each | steps/s together | processor s per 1000 steps |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {policies} | {updates / wall:.1f} | {policies * updates / wall:.1f} | {processor / updates * 1000:.1f} |"
        for policies, wall, processor in rows
    ]
    lines += [
        "",
        "| part of an update | ms | share |",
        "|---|---|---|",
    ]
    whole = sum(parts.values())
    lines += [f"| {name} | {1000 * value:.2f} | {value / whole:.0%} |" for name, value in parts.items()]
    if load > 0.5:
        lines += [
            "",
            "Other work shared the cores meanwhile: compare the last columns only.",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    rows = [(n, *measure(n, options.updates)) for n in SIDE_BY_SIDE]
    text = report(options.updates, rows, split(options.updates), load)
    print(text, end="")
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text)


if __name__ == "__main__":
    main()
