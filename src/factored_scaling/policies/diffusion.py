"""Diffusion policy: images and state in, a chunk of actions out, by denoising."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from factored_scaling.data.frames import FrameTable
from factored_scaling.errors import InvalidInput
from factored_scaling.policies import checkpoint
from factored_scaling.policies.config import DiffusionConfig
from factored_scaling.policies.resnet import Eyes
from factored_scaling.policies.training import Draw, Training, check_identity, identity_of, train
from factored_scaling.policies.unet import UNet
from factored_scaling.policies.windows import (
    JITTERS,
    ColourJitter,
    DeviceFrames,
    Scaling,
    generator,
    mix,
    shifted,
    trial_noise,
)
from factored_scaling.progress import Progress

__all__ = [
    "Actor",
    "DiffusionConfig",
    "DiffusionLearner",
    "DiffusionPolicy",
    "build_learner",
    "finished",
    "keep_policy",
    "load_policy",
    "train_diffusion",
]

NAME = "policy"
TRAIN_AGAIN = "train the run again: it writes the policy anew"
EMBED_BATCH = 256
DRAWN_AHEAD = 64  # updates whose random numbers a GPU draws at once


class DiffusionPolicy(nn.Module):
    """The networks, the statistics they were trained with, and the ways to use them.

    `shape` gives cameras, height, width, state size and action size. `description` is the training's
    description in the checkpoint; empty for a policy that was not loaded.
    """

    signal: Tensor

    def __init__(self, config: DiffusionConfig, shape: tuple[int, int, int, int, int]) -> None:
        super().__init__()
        cameras, height, width, state_size, action_size = shape
        if config.relative_actions and state_size != action_size:
            raise InvalidInput(
                f"needs states and actions of one size, not {state_size} and {action_size}", where="relative_actions"
            )
        self.config = config
        self.shape = shape
        self.description: dict[str, Any] = {}
        self.eyes = Eyes(config, cameras, (height, width))
        self.unet = UNet(action_size, self.eyes.features + state_size, config)
        self.state_scaling = Scaling(state_size)
        self.action_scaling = Scaling(action_size)
        self.register_buffer("signal", cosine_schedule(config.diffusion_steps), persistent=False)

    def observe(self, images: Tensor, state: Tensor) -> Tensor:
        """The condition of the U-Net: features of every camera and the normalised state."""
        return torch.cat([self.eyes(images), self.state_scaling(state)], -1)

    def noisy(self, actions: Tensor, noise: Tensor, step: Tensor) -> Tensor:
        """Normalised actions after `step` + 1 steps of the noising process."""
        signal = self.signal[step, None, None]
        return signal.sqrt() * actions + (1 - signal).sqrt() * noise

    @torch.inference_mode()
    def sample(self, images: Tensor, state: Tensor, noise: Tensor) -> Tensor:
        """Actions (samples × horizon × size) for uint8 images, by deterministic DDIM from `noise`."""
        condition = self.observe(images.float() / 255, state)
        x = noise
        steps = torch.linspace(self.config.diffusion_steps - 1, 0, self.config.inference_steps).round().long().tolist()
        for step, following in zip(steps, [*steps[1:], -1], strict=True):
            signal = self.signal[step]
            predicted = self.unet(x, torch.full((len(x),), step, device=x.device), condition)
            if self.config.prediction == "noise":
                predicted = (x - (1 - signal).sqrt() * predicted) / signal.sqrt()
            if self.config.normalisation == "min-max":
                predicted = predicted.clamp(-1, 1)
            rest = (x - signal.sqrt() * predicted) / (1 - signal).sqrt()
            after = self.signal[following] if following >= 0 else self.signal.new_ones(())
            x = after.sqrt() * predicted + (1 - after).sqrt() * rest
        actions = self.action_scaling.inverse(x)
        return actions + state[:, None] if self.config.relative_actions else actions

    def actor(self, seed: int) -> Actor:
        """A fresh `Act` for one rollout; the noise depends on the seed, the trial's row and its decision alone."""
        return Actor(self, seed)

    @torch.inference_mode()
    def embed(self, images: NDArray[np.uint8] | Tensor) -> NDArray[np.float32]:
        """The vision encoders' output, one row per observation (samples × cameras × 3 × height × width, uint8)."""
        device = self.signal.device
        batches = torch.split(torch.as_tensor(images), EMBED_BATCH)
        parts = [self.eyes(batch.to(device).float() / 255).cpu() for batch in batches]
        return cast("NDArray[np.float32]", torch.cat(parts).numpy())


class Actor:
    """A policy in one rollout: counts each trial's decisions and draws its noise from them."""

    def __init__(self, policy: DiffusionPolicy, seed: int) -> None:
        self.policy = policy
        self.seed = seed
        self.decisions = np.zeros(0, dtype=np.int64)

    def __call__(self, images: Tensor, state: Tensor, rows: Tensor) -> Tensor:
        """Actions for the trials `rows`, on the device the state came from."""
        device = self.policy.signal.device
        noise = self.noise(rows.cpu().numpy()).to(device)
        return self.policy.sample(images.to(device), state.to(device), noise).to(state.device)

    def noise(self, trials: NDArray[np.int64]) -> Tensor:
        """What the trials' next decisions are denoised from, on the CPU; each trial's decisions are counted."""
        if len(trials) and trials.max() >= len(self.decisions):
            more = int(trials.max()) + 1 - len(self.decisions)
            self.decisions = np.concatenate([self.decisions, np.zeros(more, dtype=np.int64)])
        horizon, size = self.policy.config.horizon, self.policy.shape[-1]
        noise = trial_noise(self.seed, trials, self.decisions[trials], horizon * size)
        self.decisions[trials] += 1
        return torch.from_numpy(noise.reshape(-1, horizon, size))


class DiffusionLearner:
    """The denoising loss over windows of a frame table."""

    def __init__(self, policy: DiffusionPolicy, frames: DeviceFrames, rows: Tensor, seed: int) -> None:
        self.module = policy
        self.config = policy.config
        self.frames = frames
        self.seed = seed
        self.jitter = ColourJitter(
            self.config.jitter_light, self.config.jitter_saturation, self.config.jitter_hue, rows.device
        )
        # Frames are looked up outside the loss: inside, the length of `rows` would be part of the loss's shapes, and a
        # compiled loss could not be shared by policies with training sets of different sizes.
        self._rows = rows
        # Frames too large for the device stay on the host, which then gathers every batch.
        self._streams = frames.images.device != rows.device
        self._host_rows = rows.cpu()
        self._block: tuple[int, Draw] | None = None

    def draw(self, step: int) -> Draw:
        """Random numbers of an update: first frames of the windows, image augmentation, noise and diffusion steps.

        On a GPU the numbers of several updates are drawn there at once: drawing and sending them update by update
        would take the host longer than a small policy's update takes the GPU.
        """
        if self._rows.device.type == "cuda" and not self._streams:
            number, place = divmod(step, DRAWN_AHEAD)
            if self._block is None or self._block[0] != number:
                random = generator(self.seed, number, device=self._rows.device)
                self._block = number, self._draw(random, self._rows, (DRAWN_AHEAD,))
            return {name: values[place] for name, values in self._block[1].items()}
        draw = self._draw(generator(self.seed, step), self._host_rows)
        if self._streams:
            draw["images"] = self._gathered(draw["frame"])
        return {name: value.to(self.frames.state.device, non_blocking=True) for name, value in draw.items()}

    def _draw(self, random: torch.Generator, rows: Tensor, ahead: tuple[int, ...] = ()) -> Draw:
        """The numbers of one update, or of several under a leading axis `ahead`."""
        config, cameras = self.config, self.module.shape[0]
        samples = config.batch * config.noise_samples
        common: dict[str, Any] = {"generator": random, "device": rows.device}
        draw = {
            "frame": rows[torch.randint(len(rows), (*ahead, config.batch), **common)],
            "jitter": torch.rand(*ahead, config.batch, cameras, JITTERS, **common) * 2 - 1,
            "step": torch.randint(config.diffusion_steps, (*ahead, samples), **common),
            "noise": torch.randn(*ahead, samples, config.horizon, self.module.shape[-1], **common),
        }
        if config.shift:
            sizes = (*ahead, config.batch, cameras, 2)
            draw["shift"] = torch.randint(-config.shift, config.shift + 1, sizes, **common)
        return draw

    def _gathered(self, frames: Tensor) -> Tensor:
        """The frames' images on the host, in pinned memory, so that the GPU copies them asynchronously.

        Picking rows of a pinned table would not give a pinned batch, and the whole table would be locked in memory.
        """
        images = self.frames.images
        pinned = self.frames.state.device.type == "cuda"
        batch = torch.empty((len(frames), *images.shape[1:]), dtype=images.dtype, pin_memory=pinned)
        return torch.index_select(images, 0, frames, out=batch)

    def loss(self, draw: Draw) -> Tensor:
        """Mean squared error of the predicted noise (or clean actions)."""
        config, policy = self.config, self.module
        frames = draw["frame"]
        images = draw["images"] if "images" in draw else self.frames.images[frames]
        if "shift" in draw:
            images = shifted(images, draw["shift"])
        images = self.jitter(images.float() / 255, draw["jitter"])
        state = self.frames.state[frames]
        actions = self.frames.actions_from(frames, config.horizon)
        if config.relative_actions:
            actions = actions - state[:, None]
        actions = policy.action_scaling(actions).repeat(config.noise_samples, 1, 1)
        noisy = policy.noisy(actions, draw["noise"], draw["step"])
        with torch.autocast(images.device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
            # One encoding serves several noisy versions: the images cost most of an update.
            condition = policy.observe(images, state).repeat(config.noise_samples, 1)
            predicted = policy.unet(noisy, draw["step"], condition)
        return functional.mse_loss(predicted.float(), draw["noise"] if config.prediction == "noise" else actions)

    def after(self, step: int) -> None:
        """Do nothing: the learner has no state."""


def cosine_schedule(steps: int) -> Tensor:
    """Share of signal left after each step of the squared-cosine schedule, no single step losing more than 99.9%."""
    time = torch.arange(steps + 1, dtype=torch.float64) / steps
    level = torch.cos((time + 0.008) / 1.008 * torch.pi / 2) ** 2
    return torch.cumprod((level[1:] / level[:-1]).clamp(min=0.001), 0).float()


def build_learner(frames: DeviceFrames, rows: Tensor, config: DiffusionConfig, seed: int) -> DiffusionLearner:
    """An untrained policy with the statistics of the frames `rows` alone; its weights come from the seed alone."""
    _, cameras, _, height, width = frames.images.shape
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(mix(seed, -1))
        policy = DiffusionPolicy(config, (cameras, height, width, frames.state.shape[1], frames.action.shape[1]))
    policy.to(frames.state.device)
    state, actions = frames.state[rows], frames.action[rows]
    policy.state_scaling.fit(state, config.normalisation)
    if config.relative_actions:
        actions = frames.actions_from(rows, config.horizon) - state[:, None]
    policy.action_scaling.fit(actions, config.normalisation)
    return DiffusionLearner(policy, frames, rows, seed)


def train_diffusion(
    table: FrameTable,
    config: DiffusionConfig,
    seed: int,
    folder: Path,
    progress: Progress,
    device: str = "cpu",
    checkpoint_every: int = 200,
    episodes: Sequence[str] | None = None,
) -> None:
    """Train on the table's episodes, or on the named ones, and leave `policy.safetensors` and `policy.json`.

    A repeated call on the same folder resumes, with the same final weights. A finished policy is returned at once, a
    damaged one is trained again.
    """
    ids = table.ids if episodes is None else tuple(episodes)
    identity = identity_of(table.outline(ids), config.to_mapping(), seed)
    if finished(folder, identity):
        return
    frames = DeviceFrames.of(table, device)
    rows = torch.from_numpy(table.rows_of(ids)).to(frames.state.device)
    learner = build_learner(frames, rows, config, seed)
    training = train(learner, config.optimisation, folder, identity, progress, checkpoint_every)
    keep_policy(training, learner, ids, identity, folder)


def finished(folder: Path, identity: str) -> bool:
    """Whether the folder holds the intact policy of this training."""
    if not checkpoint.is_intact(folder, NAME):
        return False
    check_identity(checkpoint.read_description(folder, NAME), identity, folder)
    return True


def keep_policy(training: Training, learner: DiffusionLearner, ids: Sequence[str], identity: str, folder: Path) -> None:
    """Write the averaged weights and their description, and remove the resume points."""
    policy = learner.module
    description = {
        "kind": "diffusion-policy",
        "config": policy.config.to_mapping(),
        "shape": list(policy.shape),
        "statistics": {
            "of": "the episodes listed here, and no others",
            "state": policy.state_scaling.to_mapping(),
            "action": policy.action_scaling.to_mapping(),
        },
        "episodes": list(ids),
        "seed": learner.seed,
        "updates": training.step,
        "final_loss": float(training.mean_loss),
        "identity": identity,
    }
    checkpoint.write(folder, NAME, training.averaged(), description)
    checkpoint.ResumePoints(folder).clear()


def load_policy(folder: Path, device: str = "cpu") -> DiffusionPolicy:
    """The finished policy in the folder; CheckpointError when it is missing or damaged."""
    tensors, description = checkpoint.read(folder, NAME, hint=TRAIN_AGAIN)
    cameras, height, width, state_size, action_size = description["shape"]
    config = DiffusionConfig.from_mapping({"preset": "paper", **description["config"]})
    policy = DiffusionPolicy(config, (cameras, height, width, state_size, action_size))
    policy.load_state_dict(tensors)
    policy.description = description
    return policy.to(device).eval()
