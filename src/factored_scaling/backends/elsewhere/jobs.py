"""Jobs on LeRobot policies: `jobs.py PLAN.json`, run by the Python that has LeRobot.

Standalone: it needs torch, numpy and LeRobot, but not this package. The plan names the job and the checkpoint.

Job `act`: observations come in on standard input and actions go out on standard output, until standard input closes.
Each is an npz file with its length in eight bytes before it.

Job `embed`: each observation of a file becomes a row. Three embeddings:

vision     the output of the diffusion policy's image encoder, cameras side by side
attention  π0: how much the action tokens look at each token of images and language, in the last denoising step; the
           mean over layers, heads and action tokens
latent     π0: the action chunk after the first denoising step
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor, nn

LOADED = "All keys loaded successfully!"
SAYS_WHETHER_LOADED = ("pi0", "pi05", "pi0_fast")

Batch = dict[str, Any]


def vision(policy: Any, batch: Batch, seed: int) -> Tensor:
    """Features of each camera's picture, side by side. Not random; `seed` is for the other embeddings."""
    encoder = policy.diffusion.rgb_encoder
    cameras = list(policy.config.image_features)
    encoders = list(encoder) if isinstance(encoder, nn.ModuleList) else [encoder] * len(cameras)
    return torch.cat([one(batch[name]) for one, name in zip(encoders, cameras, strict=True)], dim=1)


def attention(policy: Any, batch: Batch, seed: int) -> Tensor:
    """Attention of the action tokens to the tokens before them, in the last denoising step."""
    layers = policy.model.paligemma_with_expert.gemma_expert.model.layers
    chunk = policy.config.chunk_size
    weights: list[Tensor] = []
    sizes: list[int] = []

    def keep(module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        weights.append(output[1].detach().float())

    def begin(step: Mapping[str, Any]) -> None:
        weights.clear()  # only those of the last step remain
        sizes.append(step["prefix_pad_masks"].shape[1])

    hooks = [layer.self_attn.register_forward_hook(keep) for layer in layers]
    try:
        with _watched(policy.model, begin), _fixed_noise(policy.model, seed):
            policy.predict_action_chunk(batch)
    finally:
        for hook in hooks:
            hook.remove()
    if len(weights) != len(layers):
        raise RuntimeError(f"{len(weights)} records of attention in a step of {len(layers)} layers")
    # batch × heads × (state and action tokens) × (tokens before, then the former); the last queries are the actions
    return torch.stack([w[:, :, -chunk:, : sizes[-1]].mean(dim=(1, 2)) for w in weights]).mean(dim=0)


def latent(policy: Any, batch: Batch, seed: int) -> Tensor:
    """The action chunk as it stands after the first denoising step, flat."""
    seen: list[Tensor] = []

    def begin(step: Mapping[str, Any]) -> None:
        seen.append(step["x_t"].detach().clone())

    with _watched(policy.model, begin), _fixed_noise(policy.model, seed):
        final = policy.predict_action_chunk(batch)
    first = seen[1] if len(seen) > 1 else final  # what the second step starts from
    size = policy.config.output_features["action"].shape[0]  # the rest of a chunk is padding
    return first[:, :, :size].flatten(start_dim=1).float()


EMBEDDINGS: dict[str, Callable[[Any, Batch, int], Tensor]] = {
    "vision": vision,
    "attention": attention,
    "latent": latent,
}


@contextlib.contextmanager
def _watched(model: Any, begin: Callable[[Mapping[str, Any]], None]) -> Iterator[None]:
    """Call `begin` with the arguments of every denoising step before the step."""
    step = model.denoise_step
    signature = inspect.signature(step)

    def watched(*given: Any, **named: Any) -> Any:
        begin(signature.bind(*given, **named).arguments)
        return step(*given, **named)

    model.denoise_step = watched
    try:
        yield
    finally:
        del model.denoise_step


@contextlib.contextmanager
def _fixed_noise(model: Any, seed: int) -> Iterator[None]:
    """Use the same noise for every observation, so that embeddings differ only by the observation."""

    def noise(shape: tuple[int, ...], device: Any) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        one = torch.randn((1, *shape[1:]), generator=generator, dtype=torch.float32)
        return one.expand(tuple(shape)).to(device)

    model.sample_noise = noise
    try:
        yield
    finally:
        del model.sample_noise


def load(checkpoint: str, device: str | None) -> tuple[Any, Any, Any]:
    """A trained policy, what prepares observations for it, and what turns its answers into actions."""
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    config = PreTrainedConfig.from_pretrained(checkpoint)
    if device:
        config.device = device
    if hasattr(config, "compile_model"):
        config.compile_model = False  # hooks would not be called
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        policy = get_policy_class(config.type).from_pretrained(checkpoint, config=config)
    print(output.getvalue(), end="")
    if config.type in SAYS_WHETHER_LOADED and LOADED not in output.getvalue():
        raise SystemExit(f"the checkpoint {checkpoint} was not loaded whole")
    overrides = {"device_processor": {"device": str(config.device)}}
    prepare, finish = make_pre_post_processors(config, pretrained_path=checkpoint, preprocessor_overrides=overrides)
    return policy.to(config.device).eval(), prepare, finish


def batches(observations: Mapping[str, np.ndarray[Any, Any]], tasks: list[str], size: int) -> Iterator[Batch]:
    """Observations as LeRobot's loader would give them: pictures channel first and in [0, 1]."""
    for start in range(0, len(tasks), size):
        batch: Batch = {"task": tasks[start : start + size]}
        for name, values in observations.items():
            some = torch.from_numpy(values[start : start + size])
            batch[name] = some.permute(0, 3, 1, 2).float() / 255 if some.dtype == torch.uint8 else some.float()
        yield batch


def embed(plan: Mapping[str, Any]) -> None:
    """Embed every observation of the plan."""
    policy, prepare, _ = load(plan["checkpoint"], plan.get("device"))
    with np.load(plan["observations"]) as file:
        observations = {name: file[name] for name in file.files}
    tasks: list[str] = plan["tasks"]
    rows = []
    with torch.inference_mode():
        for batch in batches(observations, tasks, plan.get("batch", 16)):
            rows.append(EMBEDDINGS[plan["embedding"]](policy, prepare(batch), plan.get("seed", 0)).cpu())
            print(f"embedded {sum(map(len, rows))}/{len(tasks)}", flush=True)
    np.save(plan["result"], torch.cat(rows).float().numpy())


def act(plan: Mapping[str, Any]) -> None:
    """Answer each observation with the policy's next action; `reset` begins a new episode."""
    wire = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of LeRobot must not mix with the answers
    policy, prepare, finish = load(plan["checkpoint"], plan.get("device"))
    shapes = {name: list(feature.shape) for name, feature in policy.config.input_features.items()}
    size = policy.config.output_features["action"].shape[0]
    _send(wire, {"shapes": np.array(json.dumps(shapes)), "type": np.array(policy.config.type), "size": np.array(size)})
    while (asked := _receive(sys.stdin.buffer)) is not None:
        if asked.pop("reset", None) is not None:
            for part in (policy, prepare, finish):
                if hasattr(part, "reset"):
                    part.reset()
        task = str(asked.pop("task", ""))
        try:
            with torch.inference_mode():
                [batch] = batches({name: values[None] for name, values in asked.items()}, [task], 1)
                action = finish(policy.select_action(prepare(batch)))
            _send(wire, {"actions": action.float().cpu().numpy().reshape(-1, size)})
        except Exception:
            _send(wire, {"error": np.array(traceback.format_exc())})


def _send(wire: IO[bytes], values: Mapping[str, np.ndarray[Any, Any]]) -> None:
    data = io.BytesIO()
    np.savez(data, **values)  # type: ignore[arg-type]
    wire.write(data.tell().to_bytes(8, "big") + data.getvalue())
    wire.flush()


def _receive(wire: IO[bytes]) -> dict[str, np.ndarray[Any, Any]] | None:
    """The next message; None when the other end is closed."""
    length = wire.read(8)
    if len(length) < 8:
        return None
    with np.load(io.BytesIO(wire.read(int.from_bytes(length, "big")))) as file:
        return {name: file[name] for name in file.files}


JOBS = {"embed": embed, "act": act}

if __name__ == "__main__":
    plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    JOBS[plan["job"]](plan)
