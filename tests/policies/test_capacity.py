"""How many policies fit on a device, and what one needs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from factored_scaling.errors import InvalidInput
from factored_scaling.policies.capacity import check_device, policies_at_once, training_bytes
from factored_scaling.policies.config import DiffusionConfig
from factored_scaling.policies.diffusion import DiffusionPolicy

GB = 2**30


@pytest.mark.parametrize(
    ("free", "frames", "each", "most", "expected"),
    [
        (100 * GB, 10 * GB, GB, 12, 12),  # no more than there are
        (20 * GB, 10 * GB, GB, 12, 8),  # 18 usable, 10 taken
        (20 * GB, 15 * GB, GB, 40, 18),  # frames beyond their share stay with the host
        (20 * GB, 0, 7 * GB, 12, 2),
        (GB, 0, 7 * GB, 12, 1),  # the attempt is the better answer
    ],
)
def test_memory_is_shared_out(free: int, frames: int, each: int, most: int, expected: int) -> None:
    assert policies_at_once(free, frames, each, most) == expected


def test_what_a_policy_needs_grows_with_its_weights_batch_and_pictures(tiny: DiffusionConfig) -> None:
    shape = (1, 24, 24, 2, 2)
    weights = sum(parameter.numel() for parameter in DiffusionPolicy(tiny, shape).parameters())
    small = training_bytes(tiny, shape)
    assert small > 20 * weights
    assert training_bytes(replace(tiny, batch=2 * tiny.batch), shape) - small > 0.9 * (small - 22 * weights)
    assert training_bytes(tiny, (2, 24, 24, 2, 2)) > small
    paper = training_bytes(DiffusionConfig.preset("paper"), (1, 96, 96, 8, 8))
    assert 0.5 * GB < paper < 4 * GB


def test_activations_are_those_that_a_real_update_keeps(tiny: DiffusionConfig) -> None:
    config, shape = replace(tiny, batch=64), (1, 24, 24, 2, 2)
    policy = DiffusionPolicy(config, shape)
    owned = {parameter.untyped_storage().data_ptr() for parameter in policy.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in owned:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        condition = policy.observe(torch.rand(64, 1, 3, 24, 24), torch.rand(64, 2)).repeat(2, 1)
        policy.unet(torch.rand(128, 16, 2), torch.rand(128), condition)
    weights = sum(parameter.numel() for parameter in policy.parameters())
    estimate = training_bytes(config, shape) - 22 * weights
    assert sum(kept.values()) < estimate < 2.5 * sum(kept.values())


def test_a_device_that_is_not_there_is_told() -> None:
    check_device("cpu")
    with pytest.raises(InvalidInput, match="no such device: 'gpu'"):
        check_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(InvalidInput, match="no cuda device"):
            check_device("cuda")
    with pytest.raises(InvalidInput, match="no meta device that torch can use"):
        check_device("meta")  # torch has it, but nothing can be read back


def test_the_second_of_one_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    check_device("cuda:0")
    with pytest.raises(InvalidInput, match="no cuda:1; try cuda"):
        check_device("cuda:1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    check_device("cuda:1")
    with pytest.raises(InvalidInput, match="no cuda:4; try cuda:0 to cuda:3"):
        check_device("cuda:4")
