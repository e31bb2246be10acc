"""Capacity of a device: how many policies can be trained at once, and whether updates can be compiled."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from factored_scaling.data.frames import FrameTable
from factored_scaling.errors import InvalidInput
from factored_scaling.policies.config import DiffusionConfig
from factored_scaling.policies.diffusion import DiffusionPolicy
from factored_scaling.policies.many import SHARE_FOR_FRAMES, Job, free_memory, train_many
from factored_scaling.progress import Progress

HEADROOM = 0.9  # of the free memory; libraries need workspaces
# Bytes per weight: the weight, its gradient, two moments, the average, and a copy in half precision.
PER_WEIGHT = 5 * 4 + 2
SLACK = 1.5  # factor on the memory of saved activations, for temporaries of the backward pass
WORTH_COMPILING = 3000  # updates; for fewer, compiling takes longer than it saves (docs/decisions/0011)
TRY = "try cpu"


def check_device(device: str) -> None:
    """Raise an error for a missing device."""
    try:
        asked = torch.device(device)
    except RuntimeError:
        raise InvalidInput(f"no such device: {device!r}", where="--device", hint="cpu, cuda, cuda:1, mps") from None
    there = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if asked.type not in there:
        _check_other(asked)
    elif not there[asked.type]:
        raise InvalidInput(f"this machine has no {asked.type} device that torch can use", where="--device", hint=TRY)
    elif asked.index is not None and asked.index >= there[asked.type]:
        hint = f"{asked.type}:0 to {asked.type}:{there[asked.type] - 1}" if there[asked.type] > 1 else asked.type
        raise InvalidInput(f"this machine has no {device}", where="--device", hint=f"try {hint}")


def _check_other(device: torch.device) -> None:
    """Check another kind of device by writing and reading a tensor."""
    try:
        torch.zeros(1, device=device).tolist()
    except (RuntimeError, AssertionError, ImportError, AttributeError):
        what = f"this machine has no {device.type} device that torch can use"
        raise InvalidInput(what, where="--device", hint=TRY) from None


def train_within(
    table: FrameTable, jobs: Sequence[Job], progress: Progress, device: str, at_once: int | None = None
) -> dict[Path, str]:
    """Train the jobs as one from their last checkpoints; returns the errors of failed ones, by folder.

    On a GPU `at_once` policies are trained together, or as many as its free memory allows.
    """
    if not device.startswith("cuda"):
        return train_many(table, jobs, progress, device, checkpoint_every=200)
    if at_once is None:
        _, cameras, _, height, width = table.images.shape
        shape = (cameras, height, width, table.state.shape[1], table.action.shape[1])
        each = max(training_bytes(config, shape) for config in {job.config for job in jobs})
        at_once = policies_at_once(free_memory(device), table.images.nbytes, each, len(jobs))
    compiled = all(can_compile(job.config) for job in jobs)
    return train_many(table, jobs, progress, device, side_by_side=at_once, compiled=compiled)


def policies_at_once(free: int, frames: int, each: int, most: int) -> int:
    """The number of policies of `each` bytes, at most `most`, to train at once beside `frames` bytes of images.

    At least one. Frames beyond their share of the memory stay on the host and take none.
    """
    room = HEADROOM * free - (frames if frames <= SHARE_FOR_FRAMES * free else 0)
    return int(max(1, min(most, room // each)))


def training_bytes(config: DiffusionConfig, shape: tuple[int, int, int, int, int]) -> int:
    """Memory of one policy in training: weights, gradients, optimiser state and activations.

    Counted on a device without memory, so it costs nothing; activations in single precision, the larger one.
    """
    saved_bytes: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in owned:
            saved_bytes[storage._cdata] = storage.nbytes()
        return tensor

    cameras, height, width, state_size, action_size = shape
    samples = config.batch * config.noise_samples
    with torch.device("meta"):
        policy = DiffusionPolicy(config, shape)
        owned = {parameter.untyped_storage()._cdata for parameter in policy.parameters()}
        images = torch.empty(config.batch, cameras, 3, height, width)
        noisy = torch.empty(samples, config.horizon, action_size)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            condition = policy.observe(images, torch.empty(config.batch, state_size))
            predicted = policy.unet(noisy, torch.empty(samples), condition.repeat(config.noise_samples, 1))
    weights = sum(parameter.numel() for parameter in policy.parameters())
    activations = sum(saved_bytes.values()) + images.nbytes + predicted.nbytes
    return int(PER_WEIGHT * weights + SLACK * activations)


def can_compile(config: DiffusionConfig) -> bool:
    """Whether compiling updates is possible here and worth its time."""
    from torch.utils._triton import has_triton

    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    return config.updates >= WORTH_COMPILING and compiler is not None and bool(has_triton())
