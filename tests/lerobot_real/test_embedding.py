"""Embeddings of LeRobot's own policy classes, against what those classes compute themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.backends.heard import Heard
from tests.lerobot_real.cases import CAMERA, CHOSEN, made, write

from factored_scaling.backends.embedder import first_observations
from factored_scaling.backends.lerobot import read_checkpoint
from factored_scaling.backends.protocol import Context
from factored_scaling.data.lerobot.dataset import LerobotDataset

pytest.importorskip("lerobot")

torch = pytest.importorskip("torch")
from factored_scaling.backends.elsewhere import jobs  # noqa: E402  it needs torch


@pytest.mark.parametrize("separate", [False, True])
def test_vision_is_what_the_diffusion_policy_conditions_on(tmp_path: Path, separate: bool) -> None:
    pytest.importorskip("diffusers")
    write(tmp_path / "data")
    options = {"use_separate_rgb_encoder_per_camera": separate}
    trainer, run = made(tmp_path, "diffusion", 1, options, proxy={"held_out": "data", "batch": 4})
    (tmp_path / "run").mkdir()
    trainer.train(run, tmp_path / "run", Heard())
    found = trainer.embed(run, tmp_path / "run", Context(Heard()))
    assert found is not None
    trained, held_out = found.trained, found.held_out
    assert (trained.shape, held_out.shape) == ((2, 16), (6, 16))
    assert np.allclose(held_out[list(CHOSEN)], trained, atol=1e-5)  # the same pictures in other batches
    assert np.linalg.norm(held_out[0] - held_out[1]) > 0

    checkpoint = read_checkpoint(tmp_path / "run")
    policy, prepare, _ = jobs.load(str(checkpoint), "cpu")
    observations, tasks = first_observations(LerobotDataset.open(tmp_path / "data"), range(6), checkpoint)
    [batch] = jobs.batches(observations, tasks, 8)
    ready = prepare(batch)
    with torch.inference_mode():
        given = {
            "observation.state": ready["observation.state"][:, None],
            "observation.images": ready[CAMERA][:, None, None],
        }
        theirs = policy.diffusion._prepare_global_conditioning(given)[:, 3:]  # the state comes first
    assert np.allclose(held_out, theirs.numpy(), atol=1e-5)


@pytest.fixture(scope="module")
def pi0() -> Any:
    """LeRobot's PI0Policy with random weights and tiny networks: no tiny variant ships, so the sizes are changed."""
    modeling = pytest.importorskip("lerobot.policies.pi0.modeling_pi0")
    pytest.importorskip("transformers")
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.pi0.configuration_pi0 import PI0Config

    patch = pytest.MonkeyPatch()
    width = 32

    def tiny(variant: str) -> Any:
        # both have as many layers: the expert reads the other's cache
        return modeling.GemmaConfig(width=width, depth=3, mlp_dim=32, num_heads=2, num_kv_heads=1, head_dim=16)

    def shrunk(name: str) -> None:
        real = getattr(modeling, name)

        def build(config: Any) -> Any:
            inner = getattr(config, "text_config", config)
            inner.vocab_size = 64
            if hasattr(config, "vision_config"):
                config.vocab_size = config._vocab_size = config.image_token_id = 64
                config.projection_dim = config.hidden_size = width
                vision = config.vision_config
                vision.projection_dim, vision.hidden_size, vision.intermediate_size = width, 16, 16
                vision.num_hidden_layers, vision.num_attention_heads, vision.patch_size = 1, 2, 112
            return real(config)

        patch.setattr(modeling, name, build)

    patch.setattr(modeling, "get_gemma_config", tiny)
    for name in ("PaliGemmaForConditionalGenerationWithPiGemma", "PiGemmaForCausalLM"):
        if not hasattr(modeling, name):
            pytest.skip("this version of LeRobot needs a transformers of its own for π0")
        shrunk(name)
    config = PI0Config(chunk_size=5, n_action_steps=5, num_inference_steps=3, device="cpu", dtype="float32")
    config.input_features = {
        CAMERA: PolicyFeature(FeatureType.VISUAL, (3, 64, 64)),
        "observation.state": PolicyFeature(FeatureType.STATE, (3,)),
    }
    config.output_features = {"action": PolicyFeature(FeatureType.ACTION, (2,))}
    torch.manual_seed(0)
    policy = modeling.PI0Policy(config).eval()
    patch.undo()
    return policy


def observed(seeds: list[int]) -> dict[str, Any]:
    pictures = torch.stack([torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(s)) for s in seeds])
    words = torch.tensor([[5, 6, 7, 0]] * len(seeds))
    return {
        CAMERA: pictures,
        "observation.state": torch.zeros(len(seeds), 3),
        "observation.language.tokens": words,
        "observation.language.attention_mask": words > 0,
    }


def test_attention_of_pi0_is_a_distribution_over_what_it_sees(pi0: Any) -> None:
    with torch.inference_mode():
        rows = jobs.attention(pi0, observed([1, 2, 1]), seed=0)
        alone = jobs.attention(pi0, observed([2]), seed=0)
    tokens = (224 // 112) ** 2 + 4  # patches of the picture, then words
    assert rows.shape == (3, tokens)
    assert torch.allclose(rows[0], rows[2], atol=1e-6)
    assert torch.allclose(rows[1], alone[0], atol=1e-5)
    assert (rows[0] - rows[1]).abs().max() > 1e-6
    assert (rows[:, -1] == 0).all()  # the word that is padding
    assert ((rows.sum(dim=1) > 0) & (rows.sum(dim=1) < 1)).all()  # the rest goes to the state and the actions


def test_the_latent_of_pi0_is_one_step_of_its_own_flow(pi0: Any) -> None:
    batch = observed([1, 2])
    seen: list[Any] = []
    with torch.inference_mode():
        rows = jobs.latent(pi0, batch, seed=4)
        step = pi0.model.denoise_step

        def kept(*given: Any, **named: Any) -> Any:
            velocity = step(*given, **named)
            seen.append((named["x_t"].clone(), velocity.clone()))
            return velocity

        pi0.model.denoise_step = kept
        with jobs._fixed_noise(pi0.model, 4):
            pi0.predict_action_chunk(batch)
        del pi0.model.denoise_step
    noise, velocity = seen[0]
    assert torch.allclose(rows, (noise - velocity / 3)[:, :, :2].flatten(1), atol=1e-6)
