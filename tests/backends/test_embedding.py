"""Embeddings of LeRobot's policies, on doubles with the same attribute paths; tests/lerobot_real has the real ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.data.lerobot_cases import CAMERA, write
from torch import Tensor, nn

from factored_scaling.backends.elsewhere.jobs import attention, batches, latent, vision
from factored_scaling.backends.embedder import ProxySettings, first_observations, varied_factors
from factored_scaling.data.lerobot.dataset import LerobotDataset
from factored_scaling.data.lerobot.identity import episode_ids
from factored_scaling.data.lerobot.labels import Label, write_labels
from factored_scaling.data.lerobot.pictures import first_pictures
from factored_scaling.errors import InvalidInput

PREFIX, CHUNK, STEPS, SIZE = 7, 4, 5, 3


class Attention(nn.Module):
    """Returns an output and the weights it came from, as Gemma's does in eager mode."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = depth

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        # batch × 2 heads × (state and actions) × (prefix, state and actions); it depends on all that may matter
        scores = hidden[:, None, :, None] * (1 + torch.arange(PREFIX + 1 + CHUNK)) / (2 + self.depth)
        weights = torch.softmax(torch.cat([scores, -scores], dim=1), dim=-1)
        return hidden + weights.mean(dim=(1, 3)), weights


class Model(nn.Module):
    """π0's flow: noise, denoising steps, each a pass through the expert's layers."""

    def __init__(self) -> None:
        super().__init__()
        expert = nn.Module()
        expert.model = nn.Module()
        expert.model.layers = nn.ModuleList(_Layer(depth) for depth in range(3))
        self.paligemma_with_expert = nn.Module()
        self.paligemma_with_expert.gemma_expert = expert
        self.records: list[list[Tensor]] = []

    def sample_noise(self, shape: tuple[int, ...], device: Any) -> Tensor:
        return torch.randn(shape)

    def sample_actions(self, seen: Tensor) -> Tensor:
        x = self.sample_noise((len(seen), CHUNK, SIZE), "cpu")
        for step in range(STEPS):
            x = x - self.denoise_step(seen, torch.ones(len(seen), PREFIX), None, x_t=x, timestep=step) / STEPS
        return x

    def denoise_step(
        self, state: Tensor, prefix_pad_masks: Tensor, past_key_values: None, x_t: Tensor, timestep: int
    ) -> Tensor:
        hidden = torch.cat([state, x_t.mean(dim=2) + state + timestep], dim=1)
        self.records.append([])
        for layer in self.paligemma_with_expert.gemma_expert.model.layers:  # type: ignore[union-attr]
            hidden, weights = layer.self_attn(hidden)
            self.records[-1].append(weights)
        return hidden[:, 1:, None].expand(-1, -1, SIZE)


class _Layer(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.self_attn = Attention(depth)


def pi0() -> Any:
    model = Model()
    action = SimpleNamespace(shape=(2,))
    config = SimpleNamespace(chunk_size=CHUNK, output_features={"action": action})
    return SimpleNamespace(
        model=model, config=config, predict_action_chunk=lambda batch: model.sample_actions(batch["x"])
    )


def test_attention_is_that_of_the_last_step_to_the_tokens_before() -> None:
    policy, batch = pi0(), {"x": torch.tensor([[0.1], [0.7], [0.1]])}
    rows = attention(policy, batch, seed=3)
    assert rows.shape == (3, PREFIX)
    last = policy.model.records[-1]
    assert (len(policy.model.records), len(last)) == (STEPS, 3)
    by_hand = torch.stack([layer[:, :, 1:, :PREFIX].mean(dim=(1, 2)) for layer in last]).mean(dim=0)
    assert torch.allclose(rows, by_hand)
    assert torch.allclose(rows[0], rows[2])  # the same noise for everyone: what differs is what is seen
    assert not torch.allclose(rows[0], rows[1])
    assert torch.allclose(attention(policy, {"x": torch.tensor([[0.7]])}, seed=3)[0], rows[1])
    assert not torch.allclose(attention(policy, batch, seed=4), rows)


def test_the_latent_action_is_that_after_the_first_step() -> None:
    policy, batch = pi0(), {"x": torch.tensor([[0.1], [0.7]])}
    rows = latent(policy, batch, seed=3)
    noise = torch.randn((1, CHUNK, SIZE), generator=torch.Generator().manual_seed(3)).expand(2, CHUNK, SIZE)
    first = noise - policy.model.denoise_step(batch["x"], torch.ones(2, PREFIX), None, noise, 0) / STEPS
    assert torch.allclose(rows, first[:, :, :2].flatten(1))  # the third entry of an action is padding


def test_the_policy_is_left_as_it_was() -> None:
    policy = pi0()
    attention(policy, {"x": torch.ones(1, 1)}, seed=0)
    latent(policy, {"x": torch.ones(1, 1)}, seed=0)
    assert "denoise_step" not in vars(policy.model)
    assert "sample_noise" not in vars(policy.model)
    layers = policy.model.paligemma_with_expert.gemma_expert.model.layers
    assert not any(layer.self_attn._forward_hooks for layer in layers)


@pytest.mark.parametrize("separate", [False, True])
def test_vision_puts_the_cameras_side_by_side(separate: bool) -> None:
    encoders = [nn.Sequential(nn.Flatten(), nn.Linear(12, 5)) for _ in range(2)]
    encoder: nn.Module = nn.ModuleList(encoders) if separate else encoders[0]
    config = SimpleNamespace(image_features={"a": None, "b": None})
    policy = SimpleNamespace(diffusion=SimpleNamespace(rgb_encoder=encoder), config=config)
    batch = {"a": torch.rand(3, 3, 2, 2), "b": torch.rand(3, 3, 2, 2)}
    second = encoders[1] if separate else encoders[0]
    assert torch.allclose(vision(policy, batch, 0), torch.cat([encoders[0](batch["a"]), second(batch["b"])], dim=1))


def test_first_observations_are_what_the_policy_looks_at(tmp_path: Path) -> None:
    dataset = LerobotDataset.open(write(tmp_path / "data", range(4), tasks=["a", "b", "c", "d"]))
    (tmp_path / "config.json").write_text(
        '{"input_features": {"observation.images.front": {}, "observation.state": {}}}'
    )
    observations, tasks = first_observations(dataset, [3, 1], tmp_path)
    pictures = first_pictures(dataset, CAMERA)
    assert (observations[CAMERA][0] == pictures[3]).all()
    assert tasks == ["d", "b"]
    [whole] = batches(observations, tasks, 8)
    assert whole[CAMERA].shape == (2, 3, 16, 16)
    assert float(whole[CAMERA].max()) <= 1.0
    assert [len(batch["task"]) for batch in batches(observations, tasks, 1)] == [1, 1]
    (tmp_path / "config.json").write_text('{"input_features": {"observation.images.wrist": {}}}')
    with pytest.raises(InvalidInput, match=r"has no observation\.images\.wrist, which the policy looks at"):
        first_observations(dataset, [0], tmp_path)


def test_held_out_scenes_are_known_by_their_labels(tmp_path: Path) -> None:
    write(tmp_path / "held", range(3))
    ids = episode_ids(LerobotDataset.open(tmp_path / "held"))
    write_labels(tmp_path / "held", [Label(ids[0], 0, ("lighting",)), Label(ids[2], 2, ())])
    settings = ProxySettings.from_mapping({"held_out": "held"}, "diffusion", tmp_path)
    assert settings is not None
    assert settings.embedding == "vision"
    assert varied_factors(settings.held_out) == ["lighting", None, None]


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        ({}, "diffusion", "no held_out"),
        ({"held_out": "nowhere"}, "diffusion", "no such path"),
        ({"held_out": ".", "k": 3}, "diffusion", "unknown key 'k'"),
        ({"held_out": "."}, "act", "no embedding of the policy act is known"),
        ({"held_out": ".", "embedding": "latent"}, "diffusion", "unknown embedding 'latent'"),
        ({"held_out": ".", "batch": 0}, "pi0", "whole number"),
    ],
)
def test_mistakes_are_told(data: dict[str, Any], kind: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=message):
        ProxySettings.from_mapping(data, kind, tmp_path)
