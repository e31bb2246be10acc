"""Updates per second of many policies at once on a GPU, against our plain loop and against the arithmetic floor.

    python benchmarks/train_throughput.py [--seconds 6] [--sizes 96x1 192x2] [--ahead] [--check] [--profile]

`--ahead` compiles all sizes first, side by side in processes of their own, which takes about as long as one of them;
"seconds to start" are then those of code found on disk. `--check` trains the same small policies both ways and compares
their losses. The floor is the larger of two times: the multiply-adds of an update at the rate of a large bfloat16
matrix product measured in the same run, and the weights, gradients and moments read and written once at the measured
copy bandwidth. `--profile` adds where an update's time goes: the device's kernels by kind, and the host's part.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from factored_scaling.data.frames import FrameTable
from factored_scaling.policies import many as many_policies
from factored_scaling.policies.config import DiffusionConfig
from factored_scaling.policies.diffusion import build_learner, train_diffusion
from factored_scaling.policies.many import Flight, Job, _compiler, train_many
from factored_scaling.policies.training import Training
from factored_scaling.policies.windows import DeviceFrames


def silent(done: int, total: int, note: str = "") -> None:
    """Nobody watches."""


def frames(size: int, cameras: int, episodes: int = 30, length: int = 140) -> FrameTable:
    """Noise in the shape of demonstrations."""
    random = np.random.default_rng(0)
    count = episodes * length
    return FrameTable(
        random.integers(0, 256, (count, cameras, 3, size, size), dtype=np.uint8),
        random.standard_normal((count, 8)).astype(np.float32),
        random.standard_normal((count, 8)).astype(np.float32),
        np.arange(episodes + 1, dtype=np.int64) * length,
        tuple(str(index) for index in range(episodes)),
        (None,) * episodes,
    )


def rate(step: Callable[[], None], seconds: float) -> float:
    """Calls per second, the device's work included."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
        count += 5
    return count / (time.perf_counter() - began)


def plain(table: FrameTable, config: DiffusionConfig, device: str, seconds: float) -> float:
    """One policy, launched kernel by kernel in float32, as the loop does everywhere else."""
    shared = DeviceFrames.of(table, device)
    learner = build_learner(shared, torch.arange(len(shared.state), device=device), config, 0)
    return rate(Training(learner, config.optimisation).update, seconds)


@contextlib.contextmanager
def in_flight(table: FrameTable, config: DiffusionConfig, device: str, count: int) -> Iterator[Callable[[], None]]:
    """`count` policies ready to go; what is yielded starts one update of each."""
    shared = DeviceFrames.of(table, device)
    with _compiler(COMPILED), tempfile.TemporaryDirectory() as folder:
        # Training sets of different sizes, as in a study.
        jobs = [Job(table.ids[: len(table.ids) - s % 6], config, s, Path(folder) / str(s)) for s in range(count)]
        flights = [Flight(shared, table, job, COMPILED) for job in jobs]
        for flight in flights:
            flight.capture()

        def step() -> None:
            for flight in flights:
                flight.advance()

        yield step
    torch.cuda.empty_cache()


def many(table: FrameTable, config: DiffusionConfig, device: str, count: int, seconds: float) -> tuple[float, float]:
    """`count` policies side by side: updates of all of them per second, and the seconds to get there."""
    began = time.perf_counter()
    with in_flight(table, config, device, count) as step:
        ready = time.perf_counter() - began
        return count * rate(step, seconds), ready


COMPILED = "--uncompiled" not in sys.argv
SIZES = ("96x1", "192x2", "128x1", "192x1", "96x2", "128x2")
KINDS = {
    "optimiser, averaging, clipping": ("multi_tensor", "foreach", "adam", "lpnorm"),
    "convolutions and matrix products": (
        "conv",
        "fprop",
        "dgrad",
        "wgrad",
        "gemm",
        "cudnn",
        "xmma",
        "cutlass",
        "nvjet",
    ),
    "fused element-wise and norms": ("triton",),
    "layout changes and copies": ("nchw", "nhwc", "copy", "memcpy", "memset", "transpose"),
}


def profile(table: FrameTable, config: DiffusionConfig, device: str, updates: int = 20) -> None:
    """Where an update's time goes: the device's time by kind of kernel, and how long the host takes to start it."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    with in_flight(table, config, device, 1) as step:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(updates):
            step()
        host = (time.perf_counter() - began) / updates
        torch.cuda.synchronize()
        wall = (time.perf_counter() - began) / updates
        with record(activities=[ProfilerActivity.CUDA]) as recorded:
            for _ in range(updates):
                step()
            torch.cuda.synchronize()
    spent: dict[str, float] = defaultdict(float)
    longest: dict[str, float] = defaultdict(float)
    for event in recorded.key_averages():
        name = event.key.lower()
        kind = next((kind for kind, words in KINDS.items() if any(word in name for word in words)), "other kernels")
        share = event.self_device_time_total / 1e3 / updates
        spent[kind] += share
        longest[event.key[:90]] += share
    print(f"\nOne policy: an update takes {wall * 1e3:.2f} ms, {host * 1e3:.2f} ms until the host is free")
    for kind, took in sorted(spent.items(), key=lambda item: -item[1]):
        print(f"- {kind}: {took:.3f} ms of kernels")
    for name, took in sorted(longest.items(), key=lambda item: -item[1])[:12]:
        print(f"    {took:.3f} ms {name}")


def ceilings(device: str) -> tuple[float, float]:
    """Measured: bfloat16 matrix multiply-adds per second × 2, and bytes copied per second (read and written)."""
    one = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    large = torch.empty(2**30, device=device, dtype=torch.float32)
    target = torch.empty_like(large)
    products = rate(lambda: _product(one), 1.0)
    copies = rate(lambda: _copy(target, large), 1.0)
    return 2 * 8192**3 * products, 2 * large.nbytes * copies


def _product(one: torch.Tensor) -> None:
    torch.mm(one, one)


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    target.copy_(source)


def floor(config: DiffusionConfig, table: FrameTable, device: str, flops: float, bandwidth: float) -> float:
    """Updates per second that arithmetic and weight traffic alone would allow."""
    from torch.utils.flop_counter import FlopCounterMode

    shared = DeviceFrames.of(table, device)
    learner = build_learner(shared, torch.arange(len(shared.state), device=device), config, 0)
    with FlopCounterMode(display=False) as counter:
        learner.loss(learner.draw(0)).backward()  # type: ignore[no-untyped-call]
    weights = sum(parameter.numel() for parameter in learner.module.parameters())
    # read: weight, gradient, two moments, average; written: the same
    moved = 10 * 4 * weights
    return float(1 / max(counter.get_total_flops() / flops, moved / bandwidth))


def check(device: str) -> None:
    """The same small policies both ways: same seeds, same losses."""
    table = frames(32, 1, episodes=6, length=40)
    config = DiffusionConfig.preset("small", updates=200, batch=16)
    with tempfile.TemporaryDirectory() as folder:
        jobs = [Job(table.ids[: 3 + seed], config, seed, Path(folder) / f"many-{seed}") for seed in range(3)]
        bad = Job(table.ids, replace(config, learning_rate=1e30, gradient_clip=0.0), 9, Path(folder) / "diverges")
        failures = train_many(table, [*jobs, bad], silent, device)
        assert list(failures) == [bad.folder], failures
        for job in jobs:
            alone = Path(folder) / f"alone-{job.seed}"
            train_diffusion(table.select(job.episodes), config, job.seed, alone, silent, device)
            losses = [json.loads((place / "policy.json").read_text())["final_loss"] for place in (job.folder, alone)]
            print(f"check: seed {job.seed}: mean loss together {losses[0]:.6f}, alone {losses[1]:.6f}")
            assert abs(losses[0] - losses[1]) < 0.02 * losses[1], losses
    print("check: the policy made to diverge failed alone:", *failures.values())
    check_streaming(table, config, device)


def check_streaming(table: FrameTable, config: DiffusionConfig, device: str) -> None:
    """Frames that the device has no room for are sent batch by batch: the same losses."""
    before, many_policies.SHARE_FOR_FRAMES = many_policies.SHARE_FOR_FRAMES, 1e-6
    try:
        assert many_policies.frames_on(table, device).images.device.type == "cpu"
        with tempfile.TemporaryDirectory() as folder:
            job = Job(table.ids[:3], config, 0, Path(folder) / "streamed")
            assert train_many(table, [job], silent, device) == {}
            alone = Path(folder) / "alone"
            train_diffusion(table.select(job.episodes), config, 0, alone, silent, device)
            losses = [json.loads((place / "policy.json").read_text())["final_loss"] for place in (job.folder, alone)]
            print(f"check: frames streamed from the host: mean loss {losses[0]:.6f}, alone {losses[1]:.6f}")
            assert abs(losses[0] - losses[1]) < 0.02 * losses[1], losses
    finally:
        many_policies.SHARE_FOR_FRAMES = before


def compile_ahead(sizes: Sequence[str]) -> None:
    """Every size's update, compiled in a process of its own; the compiler keeps the code on disk."""
    began = time.perf_counter()
    working = [subprocess.Popen([sys.executable, __file__, "--compile-only", "--sizes", size]) for size in sizes]
    if sum(process.wait() != 0 for process in working):
        sys.exit("a size could not be compiled")
    print(f"compiled {len(working)} sizes side by side in {time.perf_counter() - began:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="pixels x cameras")
    parser.add_argument("--uncompiled", action="store_true", help="capture without compiling first: starts sooner")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--ahead", action="store_true", help="compile all sizes side by side before measuring")
    parser.add_argument("--compile-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device here: nothing to measure")
        return
    torch.backends.cuda.matmul.allow_tf32 = True
    config = DiffusionConfig.preset("paper")
    sizes = [tuple(map(int, size.split("x"))) for size in options.sizes]
    if options.compile_only:
        for size, cameras in sizes:
            many(frames(size, cameras, episodes=3), config, options.device, 1, 0.0)
        return
    if options.ahead:
        compile_ahead(options.sizes)
    if options.check:
        check(options.device)
    flops, bandwidth = ceilings(options.device)
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, "
        f"Python {platform.python_version()}, {datetime.date.today()}"
    )
    print(f"measured ceilings: {flops / 1e12:.0f} TFLOP/s bfloat16, {bandwidth / 1e12:.1f} TB/s")
    print("updates per second, of all policies together")
    print("| image | cameras | policies | plain loop | many | ratio | floor | share of floor | seconds to start |")
    print("|---|---|---|---|---|---|---|---|---|")
    for size, cameras in sizes:
        table = frames(size, cameras, episodes=30 if size < 192 else 15)
        slow = plain(table, replace(config, precision="float32"), options.device, options.seconds)
        limit = floor(config, table, options.device, flops, bandwidth)
        for count in (1, 4, 12):
            fast, ready = many(table, config, options.device, count, options.seconds)
            row = f"{slow:.1f} | {fast:.1f} | {fast / slow:.1f}× | {limit:.0f} | {fast / limit:.0%} | {ready:.0f}"
            print(f"| {size} px | {cameras} | {count} | {row} |", flush=True)
    if options.profile:
        for size, cameras in sizes[:2]:
            print(f"\n## Where the time goes: {size} px, {cameras} camera{'s' * (cameras > 1)}")
            profile(frames(size, cameras, episodes=15), config, options.device)


if __name__ == "__main__":
    main()
