"""Training steps per second of the small policy: one alone, and two and four side by side.

    python benchmarks/train_steps.py [--updates N] [--output FILE.md]

Every policy is a process of its own with one thread, as a study's workers are. The frames are random: the speed does
not depend on what they show. Prints a Markdown table with machine and date.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from multiprocessing.synchronize import Barrier
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded, here and in the workers

import numpy as np
import torch

from factored_scaling import machine
from factored_scaling.data.frames import FrameTable
from factored_scaling.policies.diffusion import DiffusionConfig, train_diffusion

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
    torch.set_num_threads(1)
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


def report(updates: int, rows: Sequence[tuple[int, float, float]], load: float) -> str:
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
    if load > 0.5:
        lines += ["", "Other work shared the cores meanwhile: of these numbers only the last column is to be compared."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    text = report(options.updates, [(n, *measure(n, options.updates)) for n in SIDE_BY_SIDE], load)
    print(text, end="")
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text)


if __name__ == "__main__":
    main()
