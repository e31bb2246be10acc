"""Decisions of several policies at once: the same actions as one at a time, by fixed buffers and without them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from factored_scaling.data.frames import FrameTable
from factored_scaling.policies.config import DiffusionConfig
from factored_scaling.policies.diffusion import DiffusionPolicy, build_learner
from factored_scaling.policies.inference import SIZES, Buffers, Sampler, Team
from factored_scaling.policies.windows import DeviceFrames
from factored_scaling.sim import Condition
from factored_scaling.sim.tabletop import make_task
from factored_scaling.sim.tabletop import task as tabletop

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def policies(table: FrameTable, config: DiffusionConfig, count: int, device: str = "cpu") -> list[DiffusionPolicy]:
    frames = DeviceFrames.of(table, device)
    rows = torch.arange(len(frames.state), device=device)
    return [build_learner(frames, rows, config, seed).module.eval() for seed in range(count)]


def batch(table: FrameTable, size: int) -> tuple[Tensor, Tensor, Tensor]:
    rows = torch.arange(size) * 7 % len(table.images)
    noise = torch.randn(size, 16, 2, generator=torch.Generator().manual_seed(size))
    return torch.from_numpy(table.images)[rows], torch.from_numpy(table.state)[rows], noise


def test_the_plain_way_is_the_policys_own(table: FrameTable, tiny: DiffusionConfig) -> None:
    (policy,) = policies(table, tiny, 1)
    given = batch(table, 9)
    assert torch.equal(Sampler(policy)(*given), policy.sample(*given))


@pytest.mark.parametrize("size", [1, 4, 5, 300])
def test_fixed_buffers_change_no_action(table: FrameTable, tiny: DiffusionConfig, size: int) -> None:
    (policy,) = policies(table, tiny, 1)
    made: list[int] = []

    def buffers(wanted: int) -> Buffers:
        made.append(wanted)
        return Buffers(policy, wanted)

    sampler, given = Sampler(policy, buffers=buffers), batch(table, size)
    expected = policy.sample(*given)
    sampler(*batch(table, max(2, size)))  # leaves other rows in the buffers
    actions = sampler(*given)
    torch.testing.assert_close(actions, expected, atol=1e-5, rtol=0)
    sampler(*batch(table, size))
    torch.testing.assert_close(actions, expected, atol=1e-5, rtol=0)  # handed out, not lent
    assert len(made) == len(set(made))
    assert set(made) <= set(SIZES)


def test_a_failed_capture_is_remembered_and_the_plain_way_taken(table: FrameTable, tiny: DiffusionConfig) -> None:
    (policy,) = policies(table, tiny, 1)
    tried: list[int] = []

    def fail(size: int) -> Buffers:
        tried.append(size)
        raise RuntimeError("operation not permitted when stream is capturing")

    sampler, given = Sampler(policy, buffers=fail), batch(table, 3)
    for _ in range(2):
        assert torch.equal(sampler(*given), policy.sample(*given))
    assert tried == [4]
    assert "capturing" in sampler.failure


def test_a_team_does_what_its_members_do_alone(table: FrameTable, tiny: DiffusionConfig) -> None:
    members = policies(table, tiny, 3)
    team, alone = (
        Team([Sampler(one) for one in members], [5, 6, 5], 8),
        [members[i].actor(s) for i, s in enumerate((5, 6, 5))],
    )
    for rows in (torch.arange(24), torch.tensor([23, 1, 17, 3, 16]), torch.tensor([9, 8])):
        images, state, _ = batch(table, len(rows))
        actions = team(images, state, rows)
        for policy in range(3):
            mine = rows // 8 == policy
            if mine.any():
                expected = alone[policy](images[mine], state[mine], rows[mine] % 8)
                assert torch.equal(actions[mine], expected)


def test_policies_in_one_rollout_score_as_each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    task = make_task("tabletop/pick-place", 32)
    task.max_steps = 24
    conditions = [Condition(task.factors[i % 5], i % 10, i) for i in range(5)]
    seen: dict[int, list[int]] = {}

    def act(images: Tensor, state: Tensor, rows: Tensor) -> Tensor:
        for row, picture in zip(rows.tolist(), images, strict=True):
            seen.setdefault(row, []).append(int(picture.long().sum()))
        which = rows.div(5, rounding_mode="floor")[:, None, None]
        return (state[:, None] + 0.02 * (which + 1) * torch.linspace(0, 1, 8)[:, None]).float()

    together = list(task.rollout_many(act, 3, conditions))
    assert [row for row, _ in together] == list(range(15))
    pictures = dict(seen)
    assert pictures[0] != pictures[5]
    seen.clear()
    monkeypatch.setattr(tabletop, "CPU_BATCH", 2)  # one policy after the other, in parts
    assert list(task.rollout_many(act, 3, conditions)) == together
    assert seen == pictures


@needs_gpu
def test_captured_decisions_are_the_plain_ones(
    make_dots: Callable[..., FrameTable], tiny: DiffusionConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 300 samples are decided in parts, for which cuDNN may choose other kernels: in whole single precision
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    table = make_dots(6)
    members = policies(table, tiny, 3, "cuda")
    samplers = [Sampler(one) for one in members]
    for size in (1, 4, 30, 300):
        given = batch(table, size)
        begun = [sampler.begin(*given) for sampler in samplers]
        for member, pending in zip(members, begun, strict=True):
            expected = member.sample(*(tensor.to("cuda") for tensor in given))
            torch.testing.assert_close(pending.wait(), expected, atol=1e-3, rtol=0)
    assert not any(sampler.failure for sampler in samplers)
