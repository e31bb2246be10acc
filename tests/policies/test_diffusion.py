from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from factored_scaling.data.frames import FrameTable
from factored_scaling.errors import CheckpointError, InvalidInput, NotEnoughData
from factored_scaling.policies.config import DiffusionConfig
from factored_scaling.policies.diffusion import (
    DiffusionLearner,
    DiffusionPolicy,
    build_learner,
    cosine_schedule,
    load_policy,
    train_diffusion,
)
from factored_scaling.policies.windows import DeviceFrames
from factored_scaling.progress import Progress

LEARNS = DiffusionConfig.preset(
    "small",
    encoder_width=8,
    widths=[16, 32],
    batch=32,
    noise_samples=1,
    updates=250,
    learning_rate=3e-3,
    warmup=20,
    average_decay=0.97,
)


def new_policy(frames: DeviceFrames, config: DiffusionConfig, seed: int) -> DiffusionPolicy:
    return build_learner(frames, torch.arange(len(frames.state), device=frames.state.device), config, seed).module


def chunk_error(policy: DiffusionPolicy, table: FrameTable) -> float:
    """Mean distance between predicted and demonstrated actions, over the first eight of each episode's first frame."""
    first = table.starts[:-1]
    rows = torch.arange(len(first))
    images, state = torch.from_numpy(table.images[first]), torch.from_numpy(table.state[first])
    predicted = policy.actor(0)(images, state, rows).numpy()[:, :8]
    return float(np.abs(predicted - table.action[first[:, None] + np.arange(8)]).mean())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, make_dots: Callable[..., FrameTable]) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    train_diffusion(make_dots(100), LEARNS, 0, folder, lambda done, total, note="": None)
    return folder


# Whoever does not look is off by 0.29 on average: the dots lie in all directions from the start.
def test_it_learns_where_the_dot_is(make_dots: Callable[..., FrameTable], trained: Path) -> None:
    assert chunk_error(load_policy(trained), make_dots(50, seed=1)) < 0.14


@pytest.mark.slow
def test_it_learns_by_predicting_the_noise_too(
    tmp_path: Path, make_dots: Callable[..., FrameTable], silent: Progress
) -> None:
    config = replace(LEARNS, prediction="noise", inference_steps=10, noise_samples=2, updates=300)
    train_diffusion(make_dots(100), config, 0, tmp_path, silent)
    assert chunk_error(load_policy(tmp_path), make_dots(50, seed=1)) < 0.2


def test_the_folder_says_what_the_policy_is(trained: Path, make_dots: Callable[..., FrameTable]) -> None:
    policy = load_policy(trained)
    table = make_dots(100)
    assert policy.config == LEARNS
    assert policy.description["episodes"] == list(table.ids)
    assert policy.description["seed"] == 0
    assert policy.description["updates"] == 250
    assert 0 < policy.description["final_loss"] < 0.5
    low, high = table.action.min(0), table.action.max(0)
    np.testing.assert_allclose(policy.description["statistics"]["action"]["offset"], (low + high) / 2, atol=1e-6)
    np.testing.assert_allclose(policy.description["statistics"]["action"]["scale"], (high - low) / 2, atol=1e-6)


def test_a_finished_policy_returns_at_once(trained: Path, make_dots: Callable[..., FrameTable]) -> None:
    def forbidden(done: int, total: int, note: str = "") -> None:
        raise AssertionError("trained again")

    train_diffusion(make_dots(100), LEARNS, 0, trained, forbidden)


def test_a_damaged_policy_is_refused_and_trained_again(
    tmp_path: Path, table: FrameTable, tiny: DiffusionConfig, silent: Progress
) -> None:
    with pytest.raises(CheckpointError, match=r"policy\.json: the file is missing; train the run again"):
        load_policy(tmp_path)
    train_diffusion(table, tiny, 0, tmp_path, silent)
    good = (tmp_path / "policy.safetensors").read_bytes()
    (tmp_path / "policy.safetensors").write_bytes(good[:-50])
    with pytest.raises(CheckpointError, match="cut short or changed since it was written; train the run again"):
        load_policy(tmp_path)
    train_diffusion(table, tiny, 0, tmp_path, silent)
    assert (tmp_path / "policy.safetensors").read_bytes() == good


def test_a_trial_does_not_depend_on_its_neighbours(trained: Path, make_dots: Callable[..., FrameTable]) -> None:
    policy, table = load_policy(trained), make_dots(20, seed=1)
    first = table.starts[:-1]
    images, state = torch.from_numpy(table.images[first]), torch.from_numpy(table.state[first])
    together = policy.actor(3)
    all_rows = torch.arange(20)
    one, two = together(images, state, all_rows), together(images, state, all_rows)
    assert not torch.equal(one, two)  # the second decision draws new noise
    alone, some = policy.actor(3), torch.tensor([11, 4])
    torch.testing.assert_close(alone(images[some], state[some], some), one[some], atol=1e-5, rtol=0)
    torch.testing.assert_close(alone(images[some], state[some], some), two[some], atol=1e-5, rtol=0)
    other = policy.actor(4)(images, state, all_rows)
    assert (other - one).abs().max() > 1e-3


def test_the_embedding_is_the_encoders_output(trained: Path, make_dots: Callable[..., FrameTable]) -> None:
    policy, table = load_policy(trained), make_dots(20, seed=1)
    images = table.images[table.starts[:-1]]
    embedding = policy.embed(images)
    assert embedding.shape == (20, policy.eyes.features)
    assert embedding.dtype == np.float32
    np.testing.assert_allclose(policy.embed(images[7:8])[0], embedding[7], atol=1e-5)
    assert embedding.std(0).max() > 0


def test_the_statistics_are_of_the_subset_alone(make_dots: Callable[..., FrameTable], tiny: DiffusionConfig) -> None:
    table = make_dots(10)
    subset = table.select(table.ids[:3])
    config = replace(tiny, normalisation="mean-std")
    policy = new_policy(DeviceFrames.of(subset, "cpu"), config, 0)
    np.testing.assert_allclose(policy.state_scaling.offset, subset.state.mean(0), atol=1e-6)
    np.testing.assert_allclose(policy.state_scaling.scale, subset.state.std(0), atol=1e-6)


def test_the_weights_start_from_the_seed_and_leave_global_randomness_alone(
    table: FrameTable, tiny: DiffusionConfig
) -> None:
    frames = DeviceFrames.of(table, "cpu")
    before = torch.get_rng_state()
    one, same, other = (new_policy(frames, tiny, seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not torch.equal(one["unet.head.weight"], other["unet.head.weight"])


def test_relative_actions_need_equal_sizes(tiny: DiffusionConfig) -> None:
    with pytest.raises(InvalidInput, match="relative_actions"):
        DiffusionPolicy(replace(tiny, relative_actions=True), (1, 24, 24, 3, 2))


def test_relative_actions_are_brought_back(table: FrameTable, tiny: DiffusionConfig) -> None:
    frames = DeviceFrames.of(table, "cpu")
    policy = new_policy(frames, replace(tiny, relative_actions=True), 0)
    noise, state = torch.zeros(2, 16, 2), torch.tensor([[0.0, 0.0], [0.5, -0.5]])
    policy.unet.head.weight.data.zero_()
    policy.unet.head.bias.data.zero_()  # type: ignore[union-attr]
    actions = policy.sample(frames.images[:2], state, noise)
    expected = (state + policy.action_scaling.offset)[:, None].expand(2, 16, 2)
    torch.testing.assert_close(actions, expected)


def test_the_schedule_ends_in_noise() -> None:
    signal = cosine_schedule(100)
    assert signal.shape == (100,)
    assert torch.equal(signal, signal.sort(descending=True).values)
    assert signal[0] > 0.99
    assert signal[-1] < 1e-4
    expected = torch.cos(torch.tensor((0.5 + 0.008) / 1.008 * torch.pi / 2)) ** 2
    assert float(signal[49]) == pytest.approx(float(expected), rel=1e-3)


@pytest.mark.parametrize("prediction", ["noise", "sample"])
def test_ddim_undoes_the_noising_when_the_network_is_perfect(
    table: FrameTable, tiny: DiffusionConfig, prediction: str
) -> None:
    frames = DeviceFrames.of(table, "cpu")
    policy = new_policy(frames, replace(tiny, prediction=prediction, inference_steps=5), 0)
    target = frames.actions_from(torch.tensor([3, 25]), 16)
    clean = policy.action_scaling(target)

    class Oracle(torch.nn.Module):
        def forward(self, x: torch.Tensor, step: torch.Tensor, observation: torch.Tensor) -> torch.Tensor:
            signal = policy.signal[step, None, None]
            noise = (x - signal.sqrt() * clean) / (1 - signal).sqrt()
            answer: torch.Tensor = noise if prediction == "noise" else clean
            return answer

    policy.unet = Oracle()  # type: ignore[assignment]
    actions = policy.sample(frames.images[:2], frames.state[:2], torch.randn(2, 16, 2))
    torch.testing.assert_close(actions, target, atol=1e-3, rtol=0)


def test_one_encoding_serves_several_noises_in_the_right_order(table: FrameTable, tiny: DiffusionConfig) -> None:
    """With two noises per window the loss is the mean of the losses with one noise each."""
    frames = DeviceFrames.of(table, "cpu")
    policy = new_policy(frames, tiny, 0)
    rows = torch.arange(len(frames.state))
    draw = DiffusionLearner(policy, frames, rows, 0).draw(0)
    both = DiffusionLearner(policy, frames, rows, 0).loss(draw)
    single = DiffusionPolicy(replace(tiny, noise_samples=1), policy.shape)
    single.load_state_dict(policy.state_dict())
    halves = [
        DiffusionLearner(single, frames, rows, 0).loss(
            {**draw, "step": draw["step"][part], "noise": draw["noise"][part]}
        )
        for part in (slice(0, 8), slice(8, 16))
    ]
    torch.testing.assert_close(both, (halves[0] + halves[1]) / 2)


def test_nothing_to_train_on_is_an_error(
    tmp_path: Path, table: FrameTable, tiny: DiffusionConfig, silent: Progress
) -> None:
    empty = FrameTable(table.images[:0], table.state[:0], table.action[:0], np.zeros(1, np.int64), (), ())
    with pytest.raises(NotEnoughData, match="no frames to train on"):
        train_diffusion(empty, tiny, 0, tmp_path, silent)


def test_read_only_frames_are_fine(table: FrameTable) -> None:
    state = table.state.copy()
    state.setflags(write=False)
    assert len(DeviceFrames.of(replace(table, state=state), "cpu").state) == len(state)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_gpu_computes_the_same_losses(table: FrameTable, tiny: DiffusionConfig) -> None:
    losses = []
    for device in ("cpu", "cuda"):
        frames = DeviceFrames.of(table, device)
        policy = new_policy(frames, tiny, 0)
        learner = DiffusionLearner(policy, frames, torch.arange(len(frames.state), device=device), 0)
        losses.append([float(learner.loss(learner.draw(step)).detach()) for step in range(3)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-2)
