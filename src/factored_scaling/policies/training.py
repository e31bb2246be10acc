"""The one training loop: a fixed number of updates, weight averaging, checkpoints, and exact resumption.

What is trained is a `Learner`. All randomness of an update comes from `draw(step)`, a function of the seed and the
step alone, so a checkpoint needs no generator state and a resumed training repeats the interrupted one to the bit (on
one device and thread count). `loss(draw)` is pure tensor work without a host round trip, so that a whole update can
be captured as a CUDA graph or mapped over many policies with the draws as its only input.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from factored_scaling.data.frames import FrameTable
from factored_scaling.errors import CheckpointError, RunFailed
from factored_scaling.policies.checkpoint import ResumePoints, digest_of, prefixed, under
from factored_scaling.policies.config import Optimisation
from factored_scaling.ports import Progress

REPORT_EVERY = 20  # updates between two calls of the progress callback
LOSS_DECAY = 0.98  # of the running mean of the loss that is reported

Draw = dict[str, Tensor]


class Learner(Protocol):
    """A model with a loss. The module's parameters are trained; its buffers travel in the checkpoints with them."""

    @property
    def module(self) -> nn.Module:
        """Trained and saved."""
        ...

    def draw(self, step: int) -> Draw:
        """Everything random that update `step` needs, on the learner's device."""
        ...

    def loss(self, draw: Draw) -> Tensor:
        """The loss to descend."""
        ...

    def after(self, step: int) -> None:
        """Called after the update (validation, bookkeeping); what it keeps must live in the module's buffers."""
        ...


class Training:
    """A learner with its optimiser, average and step: the state that a checkpoint holds."""

    def __init__(self, learner: Learner, optimisation: Optimisation) -> None:
        self.learner = learner
        self.optimisation = optimisation
        self.step = 0
        self.parameters = {name: p for name, p in learner.module.named_parameters() if p.requires_grad}
        first = next(iter(self.parameters.values()))
        self.optimiser = torch.optim.AdamW(
            self.parameters.values(),
            lr=optimisation.learning_rate,
            weight_decay=optimisation.weight_decay,
            fused=first.device.type in ("cpu", "cuda"),
        )
        # The optimiser's state exists from the start, so that fresh and resumed trainings have the same form.
        for parameter in self.parameters.values():
            self.optimiser.state[parameter] = {
                "step": torch.zeros((), device=first.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        self.average = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}
        self.mean_loss = torch.zeros((), device=first.device)

    def update(self) -> None:
        """One step of everything."""
        settings = self.optimisation
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(settings, self.step)
        loss = self.learner.loss(self.learner.draw(self.step))
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if settings.gradient_clip:
            nn.utils.clip_grad_norm_(self.parameters.values(), settings.gradient_clip)
        self.optimiser.step()
        self._average()
        # The running mean starts at the first loss and forgets it as it goes.
        self.mean_loss.lerp_(loss.detach().float(), max(1 - LOSS_DECAY, 1 / (self.step + 1)))
        self.learner.after(self.step)
        self.step += 1

    def averaged(self) -> dict[str, Tensor]:
        """The module's state with the averaged weights in place of the last ones."""
        return {**self.learner.module.state_dict(), **self.average}

    def tensors(self) -> dict[str, Tensor]:
        """The whole state as named tensors."""
        moments = {name: self.optimiser.state[parameter] for name, parameter in self.parameters.items()}
        return {
            **prefixed("module", self.learner.module.state_dict()),
            **prefixed("average", self.average),
            **prefixed("first_moment", {name: state["exp_avg"] for name, state in moments.items()}),
            **prefixed("second_moment", {name: state["exp_avg_sq"] for name, state in moments.items()}),
            "mean_loss": self.mean_loss,
        }

    def load(self, tensors: dict[str, Tensor], step: int) -> None:
        """Take up the state that `tensors` gave at `step`."""
        self.step = step
        self.learner.module.load_state_dict(under("module", tensors))
        first, second = under("first_moment", tensors), under("second_moment", tensors)
        average = under("average", tensors)
        for name, parameter in self.parameters.items():
            state = self.optimiser.state[parameter]
            state["step"].fill_(step)
            state["exp_avg"].copy_(first[name])
            state["exp_avg_sq"].copy_(second[name])
            self.average[name].copy_(average[name])
        self.mean_loss.copy_(tensors["mean_loss"])

    @torch.no_grad()
    def _average(self) -> None:
        # The decay grows to its full value, or the first, random weights would linger in the average.
        decay = min(self.optimisation.average_decay, (1 + self.step) / (10 + self.step))
        if self.optimisation.average_decay == 0:
            decay = 0.0
        for name, parameter in self.parameters.items():
            self.average[name].lerp_(parameter, 1 - decay)


def learning_rate(settings: Optimisation, step: int) -> float:
    """Linear from the first rate over the warm-up, then half a cosine back to the first rate."""
    first, peak = settings.first_learning_rate, settings.learning_rate
    if step < settings.warmup:
        return first + (peak - first) * (step + 1) / settings.warmup
    done = (step - settings.warmup) / max(1, settings.updates - settings.warmup)
    return first + (peak - first) * 0.5 * (1 + math.cos(math.pi * done))


def train(
    learner: Learner,
    optimisation: Optimisation,
    folder: Path,
    identity: str,
    progress: Progress,
    checkpoint_every: int = 200,
) -> Training:
    """Train to the last update, from the newest whole checkpoint in `folder` if there is one.

    `identity` is a digest of all that decides the result (data, configuration, seed): a checkpoint of another training
    is an error, never a silent start from the wrong weights. When `progress` raises, the state is saved first. The
    checkpoints stay until the caller has written its result and clears them.
    """
    training = Training(learner, optimisation)
    points = ResumePoints(folder)
    resume(training, points, identity)
    saved = training.step
    while training.step < optimisation.updates:
        training.update()
        last = training.step == optimisation.updates
        if training.step % checkpoint_every == 0 or last:
            points.save(training.step, training.tensors(), {"identity": identity})
            saved = training.step
        if training.step % REPORT_EVERY == 0 or last:
            loss = float(training.mean_loss)
            if not math.isfinite(loss):
                raise RunFailed(f"the loss is {loss} at update {training.step}", hint="lower the learning rate")
            try:
                progress(training.step, optimisation.updates, f"loss {loss:.4f}")
            except BaseException:
                if saved < training.step:
                    points.save(training.step, training.tensors(), {"identity": identity})
                raise
    return training


def resume(training: Training, points: ResumePoints, identity: str) -> None:
    """Load the newest whole state, if any, after checking that it is of this very training."""
    found = points.newest()
    if found is None:
        return
    tensors, description = found
    check_identity(description, identity, points.folder)
    training.load(tensors, int(description["step"]))


def check_identity(description: dict[str, Any], identity: str, folder: Path) -> None:
    """Raise unless the checkpoint belongs to the training that asks for it."""
    if description.get("identity") != identity:
        raise CheckpointError(
            "the checkpoint is of a training with other data, settings or seed",
            where=str(folder),
            hint="give this training a folder of its own, or remove the old one",
        )


def identity_of(table: FrameTable, config: dict[str, Any], seed: int) -> str:
    """A digest of what decides a training's result. Of the images only the shape: hashing gigabytes takes too long."""
    arrays = (table.starts, table.state, table.action)
    return digest_of(config, seed, list(table.ids), list(table.images.shape), *(a.tobytes() for a in arrays))
