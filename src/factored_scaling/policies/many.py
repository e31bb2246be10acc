"""Train all policies of a study as one job: one copy of the frames, and a CUDA graph and stream for every policy.

A small policy does not fill a large GPU: the host launches hundreds of kernels per update, and each kernel uses a part
of the chip. Here an update is compiled, captured once as a CUDA graph and replayed; the graphs of several policies run
in parallel. Each policy has its own state: a diverging policy fails alone, and results equal those of separate
training. Other devices use the plain loop, and AMD's GPUs, which torch also calls cuda, updates without graphs.
"""

from __future__ import annotations

import contextlib
import gc
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from factored_scaling.data.frames import FrameTable
from factored_scaling.errors import InvalidInput, RunFailed
from factored_scaling.policies.checkpoint import ResumePoints
from factored_scaling.policies.config import DiffusionConfig
from factored_scaling.policies.diffusion import (
    DiffusionLearner,
    build_learner,
    finished,
    keep_policy,
    train_diffusion,
)
from factored_scaling.policies.training import REPORT_EVERY, Draw, Training, identity_of, resume
from factored_scaling.policies.windows import DeviceFrames
from factored_scaling.progress import Progress

WARM_UPDATES = 3  # before a capture, so that libraries have chosen their kernels and workspaces
SHARE_FOR_FRAMES = 0.6  # of the free device memory; the rest is for the policies
RECOMPILES = 256  # with dynamo's default of 8 the ninth policy would not be compiled
# The compiler keeps pictures channels-first when any convolution narrows, as the U-Net's do; then cuDNN turns every map
# of the encoder round and back, 30% of an update's time at 192 px with two cameras.
COMPILER: dict[str, str | int | bool | Callable[..., object]] = {"force_layout_optimization": True}


@dataclass(frozen=True)
class Job:
    """One policy to train: which episodes of the shared table, how, and its folder."""

    episodes: tuple[str, ...]
    config: DiffusionConfig
    seed: int
    folder: Path


def train_many(
    table: FrameTable,
    jobs: Sequence[Job],
    progress: Progress,
    device: str = "cpu",
    checkpoint_every: int = 2000,
    side_by_side: int = 8,
    compiled: bool = True,
) -> dict[Path, str]:
    """Train every job to its last update; returns the errors of failed ones, by folder.

    Resumes earlier calls. `progress` counts updates of all policies together. `side_by_side` policies are trained at
    once; more need more memory and help only until the chip is full.
    """
    if not device.startswith("cuda"):
        return _one_by_one(table, jobs, progress, device, checkpoint_every)
    waiting = [job for job in jobs if not finished(job.folder, _identity(table, job))]
    total = sum(job.config.updates for job in jobs)
    done = total - sum(job.config.updates for job in waiting)
    if not waiting:
        progress(total, total, "")
        return {}
    failures: dict[Path, str] = {}
    compiled = compiled and torch.version.hip is None
    with _compiler(compiled), _out_of_memory(device, min(side_by_side, len(waiting))):
        frames = frames_on(table, device)
        with torch.cuda.device(frames.state.device):  # cuda:1 must not wait for the streams of cuda:0
            for start in range(0, len(waiting), side_by_side):
                batch = waiting[start : start + side_by_side]
                flights = [Flight(frames, table, job, compiled) for job in batch]
                _fly(flights, checkpoint_every, failures, _offset(progress, done, total))
                done += sum(job.config.updates for job in batch)
                del flights
                torch.cuda.empty_cache()
    return failures


def free_memory(device: str) -> int:
    """Free bytes of a CUDA device, including those that torch has cached."""
    gc.collect()
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(torch.device(device))
    return free


def frames_on(table: FrameTable, device: str) -> DeviceFrames:
    """The frames on the device; images that do not fit stay on the host and are sent batch by batch."""
    free = free_memory(device)
    small = table.state.nbytes + table.action.nbytes + 8 * len(table.state)
    if table.images.nbytes + small <= SHARE_FOR_FRAMES * free:
        return DeviceFrames.of(table, device)
    if small > SHARE_FOR_FRAMES * free:
        what = f"states and actions need {small >> 20} MB, {free >> 20} MB are free on {device}"
        raise InvalidInput(what, hint="does another program use it? then stop that, or take another --device")
    empty = np.zeros((len(table.images), *table.images.shape[1:3], 0, 0), np.uint8)
    rest = DeviceFrames.of(FrameTable(empty, table.state, table.action, table.starts, table.ids, table.factors), device)
    images = np.require(table.images, requirements=["C", "W"])
    return DeviceFrames(torch.from_numpy(images), rest.state, rest.action, rest.last)


class Flight:
    """One policy in training, on its own stream."""

    def __init__(self, frames: DeviceFrames, table: FrameTable, job: Job, compiled: bool) -> None:
        self.job = job
        self.identity = _identity(table, job)
        rows = torch.from_numpy(table.rows_of(job.episodes)).to(frames.state.device)
        self.learner: DiffusionLearner = build_learner(frames, rows, job.config, job.seed)
        self.training = Training(self.learner, job.config.optimisation)
        self.points = ResumePoints(job.folder)
        job.folder.mkdir(parents=True, exist_ok=True)
        resume(self.training, self.points, self.identity)
        self.stream = torch.cuda.Stream(frames.state.device)  # type: ignore[no-untyped-call]
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        self.inputs: Draw = {}
        self.graph: torch.cuda.CUDAGraph | None = None
        self.failure = ""  # why updates are launched kernel by kernel
        self._loss: Callable[[Draw], Tensor] = self.learner.loss
        if compiled:
            for tensor in (frames.images, frames.state, frames.action, frames.last):
                torch._dynamo.maybe_mark_dynamic(tensor, 0)
            self._loss = torch.compile(self.learner.loss, dynamic=False, options=COMPILER)

    def capture(self) -> None:
        """Record one update as a graph. The updates that warm it up are undone.

        If that fails, and on AMD's GPUs, updates are launched kernel by kernel.
        """
        if torch.version.hip is not None:
            self.failure = "an AMD GPU"
            return
        training = self.training
        before = {name: tensor.clone() for name, tensor in training.tensors().items()}
        step = training.step
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        with torch.cuda.stream(self.stream):
            self.inputs = {name: value.clone() for name, value in self.learner.draw(step).items()}
            for _ in range(WARM_UPDATES):
                training.turn_dials()
                training.compute(self.inputs, self._loss)
            training.load(before, step)
            training.optimiser.zero_grad(set_to_none=True)
        self.stream.synchronize()
        del before  # not beside what the graph takes
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
                training.compute(self.inputs, self._loss)
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.failure = str(error)
        else:
            self.graph = graph

    def advance(self) -> None:
        """Start the next update; returns before the device has done it."""
        with torch.cuda.stream(self.stream):
            draw = self.learner.draw(self.training.step)
            self.training.turn_dials()
            if self.graph is None:
                self.training.compute(draw, self._loss)
            else:
                for name, value in draw.items():
                    self.inputs[name].copy_(value, non_blocking=True)
                self.graph.replay()
            self.training.advanced()

    def loss(self) -> float:
        """The running mean of the loss; waits for the device."""
        self.stream.synchronize()
        return float(self.training.mean_loss)

    def save(self) -> None:
        """Save a resume point."""
        self.stream.synchronize()
        self.points.save(self.training.step, self.training.tensors(), {"identity": self.identity})

    def land(self) -> None:
        """Write the finished policy."""
        self.stream.synchronize()
        keep_policy(self.training, self.learner, self.job.episodes, self.identity, self.job.folder)

    @property
    def over(self) -> bool:
        """Whether the last update is done."""
        return self.training.step >= self.job.config.updates


def _fly(flights: list[Flight], checkpoint_every: int, failures: dict[Path, str], progress: Progress) -> None:
    total = sum(flight.job.config.updates for flight in flights)
    for number, flight in enumerate(flights, 1):
        flight.capture()
        # A stop need not wait for all captures: there is nothing to save yet.
        progress(sum(one.training.step for one in flights), total, f"{number} of {len(flights)} policies captured")
    flying = list(flights)
    plain = next((f", not captured ({flight.failure})" for flight in flights if flight.failure), "")
    rounds = 0
    while flying:
        for flight in list(flying):
            if not flight.over:
                flight.advance()
        rounds += 1
        if rounds % REPORT_EVERY and not any(flight.over for flight in flying):
            continue
        _look(flying, failures)
        for flight in list(flying):
            if flight.over:
                flight.land()
                flying.remove(flight)
        try:
            done = sum(flight.training.step for flight in flights)
            progress(done, total, f"{len(flying)} policies, mean loss {_mean_loss(flights):.4f}{plain}")
        except BaseException:
            for flight in flying:
                flight.save()
            raise
        if rounds % checkpoint_every == 0:
            for flight in flying:
                flight.save()


def _look(flying: list[Flight], failures: dict[Path, str]) -> None:
    """Remove the policies that have diverged. The others are not affected."""
    for flight in list(flying):
        flight.stream.synchronize()
        try:
            flight.training.check()
        except RunFailed as error:
            failures[flight.job.folder] = str(error)
            flying.remove(flight)


def _mean_loss(flights: Sequence[Flight]) -> float:
    losses = [loss for loss in (flight.loss() for flight in flights) if math.isfinite(loss)]
    return sum(losses) / len(losses) if losses else math.nan


def _one_by_one(
    table: FrameTable, jobs: Sequence[Job], progress: Progress, device: str, checkpoint_every: int
) -> dict[Path, str]:
    total = sum(job.config.updates for job in jobs)
    done = 0
    failures: dict[Path, str] = {}
    for job in jobs:
        report = _offset(progress, done, total)
        try:
            train_diffusion(table, job.config, job.seed, job.folder, report, device, checkpoint_every, job.episodes)
        except RunFailed as error:  # other errors, such as a lost lease, are not specific to this policy
            failures[job.folder] = str(error)
        done += job.config.updates
    return failures


def _offset(progress: Progress, before: int, total: int) -> Progress:
    whole = total

    def report(done: int, total: int, note: str = "") -> None:
        progress(before + done, whole, note)

    return report


@contextlib.contextmanager
def _out_of_memory(device: str, count: int) -> Iterator[None]:
    """An error with advice for this case, instead of that of torch's allocator."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        memory = ". ".join(str(error).split(". ")[1:3])  # how much was asked for, and how much there is
        at_once = "one policy" if count == 1 else f"{count} policies at once"
        hint = "fewer at once (--together), a smaller `batch` or smaller pictures; does another program use the GPU?"
        raise RunFailed(f"{device} ran out of memory with {at_once}: {memory}", hint=hint) from error


@contextlib.contextmanager
def _compiler(compiled: bool) -> Iterator[None]:
    """Configure the compiler for all policies. Inductor's own graphs stay off, because we capture."""
    if not compiled:
        yield
        return
    import torch._dynamo.config as dynamo

    before = dynamo.recompile_limit
    dynamo.recompile_limit = RECOMPILES
    try:
        yield
    finally:
        dynamo.recompile_limit = before


def _identity(table: FrameTable, job: Job) -> str:
    """The identity of a separate training, without copying the images."""
    return identity_of(table.outline(job.episodes), job.config.to_mapping(), job.seed)
