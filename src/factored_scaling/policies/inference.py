"""Fast inference: a policy's denoising captured as a CUDA graph, and several policies behind one `Act`.

A decision of a small policy is a few hundred small kernels for every denoising step, and a GPU waits for the host to
launch them. Here the decision for a batch of fixed size is captured once and replayed; smaller batches are padded.
Every policy has its own stream, so that policies decide in parallel. On other devices, and if a capture fails, the
kernels are launched one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from factored_scaling.policies.diffusion import Actor, DiffusionPolicy

SIZES = (4, 16, 64, 256)  # sizes of captured batches, captured on first use; larger batches are split
WARM_RUNS = 3  # before a capture, so that libraries have chosen their kernels and workspaces


class Buffers:
    """Inputs and actions of one batch at fixed addresses; `replay` computes the actions from the inputs."""

    def __init__(self, policy: DiffusionPolicy, size: int) -> None:
        device = policy.signal.device
        cameras, height, width, state_size, action_size = policy.shape
        self.policy = policy
        self.images = torch.zeros(size, cameras, 3, height, width, dtype=torch.uint8, device=device)
        self.state = torch.zeros(size, state_size, device=device)
        self.noise = torch.zeros(size, policy.config.horizon, action_size, device=device)
        self.actions = torch.zeros(size, policy.config.horizon, action_size, device=device)

    def decide(self, images: Tensor, state: Tensor, noise: Tensor) -> Tensor:
        """Actions for at most `size` samples; the rest of the buffers is computed too and discarded."""
        count = len(state)
        self.images[:count].copy_(images, non_blocking=True)
        self.state[:count].copy_(state, non_blocking=True)
        self.noise[:count].copy_(noise, non_blocking=True)
        self.replay()
        return self.actions[:count].clone()

    def replay(self) -> None:
        """Compute the whole batch."""
        self.actions.copy_(self.policy.sample(self.images, self.state, self.noise))


class Captured(Buffers):
    """Buffers whose computation is a CUDA graph. Graphs of one policy run in turn and share their memory."""

    def __init__(self, policy: DiffusionPolicy, size: int, stream: torch.cuda.Stream, pool: Any) -> None:
        super().__init__(policy, size)
        stream.wait_stream(torch.cuda.current_stream(stream.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_RUNS):
                super().replay()
        stream.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with (
            torch.cuda.device(stream.device),
            torch.cuda.graph(self._graph, pool=pool, stream=stream, capture_error_mode="thread_local"),
        ):
            super().replay()

    def replay(self) -> None:
        """Start the graph on the current stream."""
        self._graph.replay()


@dataclass
class Pending:
    """Actions that a device may still be computing."""

    actions: Tensor
    stream: torch.cuda.Stream | None

    def wait(self) -> Tensor:
        """The actions, ready for use on the current stream."""
        if self.stream is not None:
            now = torch.cuda.current_stream(self.stream.device)
            now.wait_stream(self.stream)
            self.actions.record_stream(now)
        return self.actions


class Sampler:
    """Inference of a policy, with captured graphs on CUDA. `buffers` creates the buffers for a batch size."""

    def __init__(
        self, policy: DiffusionPolicy, capture: bool = True, buffers: Callable[[int], Buffers] | None = None
    ) -> None:
        self.policy = policy
        self.failure = ""  # the error that ended capturing
        self._stream: torch.cuda.Stream | None = None
        self._buffers = buffers
        self._made: dict[int, Buffers] = {}
        if policy.signal.device.type == "cuda" and capture and buffers is None:
            stream = self._stream = torch.cuda.Stream(policy.signal.device)  # type: ignore[no-untyped-call]
            pool = torch.cuda.graph_pool_handle()
            self._buffers = lambda size: Captured(policy, size, stream, pool)

    def begin(self, images: Tensor, state: Tensor, noise: Tensor) -> Pending:
        """Start a decision; the inputs may be on any device."""
        device = self.policy.signal.device
        if self._buffers is None:
            return Pending(self.policy.sample(images.to(device), state.to(device), noise.to(device)), None)
        if self._stream is None:
            return Pending(self._in_parts(images, state, noise), None)
        self._stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self._stream):
            actions = self._in_parts(images, state, noise)
            for given in (images, state, noise):
                if given.device.type == "cuda":
                    given.record_stream(self._stream)
        return Pending(actions, self._stream)

    def __call__(self, images: Tensor, state: Tensor, noise: Tensor) -> Tensor:
        """Actions (samples × horizon × size) on the policy's device."""
        return self.begin(images, state, noise).wait()

    def _in_parts(self, images: Tensor, state: Tensor, noise: Tensor) -> Tensor:
        starts = range(0, len(state), SIZES[-1])
        parts = [[given[start : start + SIZES[-1]] for given in (images, state, noise)] for start in starts]
        return torch.cat([self._decide(*part) for part in parts])

    def _decide(self, images: Tensor, state: Tensor, noise: Tensor) -> Tensor:
        size = next(size for size in SIZES if size >= len(state))
        if size not in self._made and not self.failure:
            assert self._buffers is not None
            try:
                self._made[size] = self._buffers(size)
            except RuntimeError as error:  # also if memory is short; without a graph less is needed
                self.failure = str(error)
        if size in self._made:
            return self._made[size].decide(images, state, noise)
        device = self.policy.signal.device
        return self.policy.sample(images.to(device), state.to(device), noise.to(device))


class Team:
    """Several policies as one `Act`: row r is the trial r mod `trials` of policy r div `trials`.

    Each policy draws the same noise as its own `actor` and decides for its own rows in order, so that results equal
    those of the policy alone.
    """

    def __init__(self, samplers: Sequence[Sampler], seeds: Sequence[int], trials: int) -> None:
        self.samplers = samplers
        self.trials = trials
        self._actors = [Actor(sampler.policy, seed) for sampler, seed in zip(samplers, seeds, strict=True)]

    def __call__(self, images: Tensor, state: Tensor, rows: Tensor) -> Tensor:
        """Actions for the trials `rows`, on the device the state came from."""
        wanted = rows.cpu()
        owners = wanted.div(self.trials, rounding_mode="floor")
        present = sorted(set(owners.tolist()))
        begun: list[tuple[Tensor | None, Pending]] = []
        for owner in present:
            noise = self._actors[owner].noise((wanted[owners == owner] % self.trials).numpy())
            places = None if len(present) == 1 else torch.nonzero(owners == owner)[:, 0].to(state.device)
            mine = (images, state) if places is None else (images[places], state[places])
            begun.append((places, self.samplers[owner].begin(*mine, noise)))
        if len(begun) == 1:
            return begun[0][1].wait().to(state.device)
        horizon, size = self._actors[0].policy.config.horizon, self._actors[0].policy.shape[-1]
        actions = state.new_empty(len(rows), horizon, size)
        for places, pending in begun:
            actions[places] = pending.wait().to(actions)
        return actions
