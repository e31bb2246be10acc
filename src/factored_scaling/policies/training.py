"""The one training loop: a fixed number of updates, weight averaging, checkpoints, and exact resumption.

A `Learner` is trained. All randomness of an update comes from `draw(step)`, a function of the seed and the
step alone, so a checkpoint needs no generator state and a resumed training repeats the interrupted one to the bit (on
one device and thread count). `loss(draw)` is pure tensor work without a host round trip, so that a whole update can
be captured as a CUDA graph or mapped over many policies with the draws as its only input.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from factored_scaling.data.frames import FrameTable
from factored_scaling.errors import CheckpointError, RunFailed
from factored_scaling.policies.checkpoint import ResumePoints, digest_of, prefixed, under
from factored_scaling.policies.config import Optimisation
from factored_scaling.progress import Progress

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
        """All random numbers of update `step`, on the learner's device."""
        ...

    def loss(self, draw: Draw) -> Tensor:
        """The loss to descend."""
        ...

    def after(self, step: int) -> None:
        """Called after the update (validation, bookkeeping); its state must be in the module's buffers."""
        ...


class Dials:
    """Numbers that change with the step, as tensors on the device."""

    def __init__(self, device: torch.device) -> None:
        self.rate = torch.zeros((), device=device)  # the learning rate
        self.keep = torch.zeros((), device=device)  # the share of the averaged weights that stays
        self.news = torch.zeros((), device=device)  # the weight of the newest loss in the mean loss

    def turn(self, rate: float, keep: float, news: float) -> None:
        """Set all three."""
        self.rate.fill_(rate)
        self.keep.fill_(keep)
        self.news.fill_(news)


class Training:
    """A learner with its optimiser, average and step: the state that a checkpoint holds."""

    def __init__(self, learner: Learner, optimisation: Optimisation) -> None:
        self.learner = learner
        self.optimisation = optimisation
        self.step = 0
        self.parameters = {name: p for name, p in learner.module.named_parameters() if p.requires_grad}
        first = next(iter(self.parameters.values()))
        on_gpu = first.device.type == "cuda"
        # On a GPU the rates that change with the step are tensors, so that a captured update can be given new ones.
        self.dials = Dials(first.device)
        self.optimiser = torch.optim.AdamW(
            self.parameters.values(),
            lr=self.dials.rate if on_gpu else optimisation.learning_rate,
            weight_decay=optimisation.weight_decay,
            fused=on_gpu or first.device.type == "cpu",
            capturable=on_gpu,
        )
        # The optimiser's state exists from the start, so that fresh and resumed trainings have the same form. One that
        # is not fused reads the step of every parameter, which must not make a device wait.
        counted = first.device if self.optimiser.defaults["fused"] else torch.device("cpu")
        for parameter in self.parameters.values():
            self.optimiser.state[parameter] = {
                "step": torch.zeros((), device=counted),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        self.average = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}
        self.mean_loss = torch.zeros((), device=first.device)

    def update(self) -> None:
        """Do one update."""
        self.turn_dials()
        self.compute(self.learner.draw(self.step), self.learner.loss)
        self.advanced()

    def turn_dials(self) -> None:
        """Set what depends on the step: the learning rate and the weights of the two running means."""
        settings, step = self.optimisation, self.step
        rate = learning_rate(settings, step)
        # The decay grows to its full value, so that the average forgets the first, random weights.
        decay = min(settings.average_decay, (1 + step) / (10 + step)) if settings.average_decay else 0.0
        # The mean of the losses starts at the first one and forgets it as it goes.
        self.dials.turn(rate, decay, max(1 - LOSS_DECAY, 1 / (step + 1)))
        if not self.optimiser.defaults["capturable"]:
            for group in self.optimiser.param_groups:
                group["lr"] = rate

    def compute(self, draw: Draw, loss_of: Callable[[Draw], Tensor]) -> None:
        """The device's part of an update: no host round trip, so that it can be captured as a CUDA graph."""
        self.optimiser.zero_grad(set_to_none=True)
        loss = loss_of(draw)
        loss.backward()  # type: ignore[no-untyped-call]
        parameters: list[Tensor] = list(self.parameters.values())
        if self.optimisation.gradient_clip:
            nn.utils.clip_grad_norm_(parameters, self.optimisation.gradient_clip)
        self.optimiser.step()
        with torch.no_grad():
            averages = list(self.average.values())
            torch._foreach_sub_(averages, parameters)
            torch._foreach_mul_(averages, self.dials.keep)
            torch._foreach_add_(averages, parameters)
            self.mean_loss.lerp_(loss.detach().float(), self.dials.news)

    def advanced(self) -> None:
        """Count an update, captured or not."""
        self.learner.after(self.step)
        self.step += 1

    def check(self) -> None:
        """Raise if the training has diverged. The last update shows in the weights, not yet in a loss."""
        loss = float(self.mean_loss)
        if not math.isfinite(loss):
            scales = [b for name, b in self.learner.module.named_buffers() if name.endswith((".offset", ".scale"))]
            learnable = all(bool(one.isfinite().all()) for one in scales)
            data = "its demonstrations hold states or actions that are not finite"
            hint = "lower the learning rate" if learnable else data
            raise RunFailed(f"the loss is {loss} at update {self.step}", hint=hint)
        if self.step == self.optimisation.updates and not all(bool(w.isfinite().all()) for w in self.average.values()):
            raise RunFailed("the last update produced weights that are not finite", hint="lower the learning rate")

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
        """Load the state of `tensors` at `step`."""
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
    is an error. When `progress` raises, the state is saved first. The
    checkpoints stay until the caller has written its result and clears them.
    """
    training = Training(learner, optimisation)
    points = ResumePoints(folder)
    resume(training, points, identity)
    saved = training.step
    while training.step < optimisation.updates:
        training.update()
        last = training.step == optimisation.updates
        reporting, saving = (training.step % every == 0 or last for every in (REPORT_EVERY, checkpoint_every))
        if not reporting and not saving:
            continue
        training.check()  # before it is saved, because the next attempt resumes from it
        if saving:
            points.save(training.step, training.tensors(), {"identity": identity})
            saved = training.step
        if reporting:
            try:
                progress(training.step, optimisation.updates, f"loss {float(training.mean_loss):.4f}")
            except BaseException:
                if saved < training.step:
                    points.save(training.step, training.tensors(), {"identity": identity})
                raise
    return training


def resume(training: Training, points: ResumePoints, identity: str) -> None:
    """Load the newest whole state, if any, after checking that it belongs to this training."""
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
    """A digest of a training's inputs. Of the images it has only the shape, because hashing them is slow."""
    arrays = (table.starts, table.state, table.action)
    return digest_of(config, seed, list(table.ids), list(table.images.shape), *(a.tobytes() for a in arrays))
