"""Re-Mix: factor weights by distributionally robust optimisation, for splitting a budget as a baseline does.

A reference model is trained with every factor weighted by its size. A second model of the same form (the proxy) is
then trained to lower the worst excess loss over the reference, while the weights follow the factors in which the
excess is largest. Their mean over the training is the answer.

Where the language-model original, DoReMi, divides a domain's clipped excess by all of its samples and draws the weights
back to uniform, Re-Mix divides by the samples whose clipped excess is not zero and draws them back to the initial
weights. Nominal episodes belong to no factor and are not used.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor, nn
from torch.nn import functional

from factored_scaling.data.frames import FrameTable
from factored_scaling.errors import NotEnoughData
from factored_scaling.io.atomic import whole
from factored_scaling.policies import checkpoint
from factored_scaling.policies.config import RemixConfig
from factored_scaling.policies.resnet import Eyes
from factored_scaling.policies.training import Draw, check_identity, identity_of, train
from factored_scaling.policies.windows import DeviceFrames, Scaling, generator, mix
from factored_scaling.progress import Progress

__all__ = ["RemixConfig", "RemixResult", "load_remix", "plot_trajectory", "train_remix"]

NAME, REFERENCE = "remix", "reference"
VALIDATION_BATCH = 256


@dataclass(frozen=True)
class RemixResult:
    """The weight of every factor, and how the weights moved: updates × domains, after each update."""

    weights: dict[str, float]
    trajectory: NDArray[np.float32]
    domains: tuple[str, ...]


class DiscreteModel(nn.Module):
    """Images and state → a distribution over bins for every action dimension at every step of the horizon."""

    edges: Tensor

    def __init__(self, config: RemixConfig, shape: tuple[int, int, int, int, int]) -> None:
        super().__init__()
        cameras, height, width, state_size, action_size = shape
        self.config = config
        self.eyes = Eyes(config, cameras, (height, width))
        sizes = [self.eyes.features + state_size, *config.hidden]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.norms = nn.ModuleList(nn.LayerNorm(size) for size in config.hidden)
        self.head = nn.Linear(sizes[-1], config.horizon * action_size * config.bins)
        self.state_scaling = Scaling(state_size)
        self.action_scaling = Scaling(action_size)
        self.register_buffer("edges", gaussian_edges(config.bins), persistent=False)

    def losses(self, images: Tensor, state: Tensor, actions: Tensor, draw: Draw | None = None) -> Tensor:
        """Negative log-likelihood per sample: summed over action dimensions, averaged over the horizon.

        `draw` holds the units to keep per layer; without it nothing is dropped.
        """
        x = torch.cat([self.eyes(images.float() / 255), self.state_scaling(state)], -1)
        for index, (layer, norm_) in enumerate(zip(self.layers, self.norms, strict=True)):
            x = layer(x)
            if draw is not None:
                x = x * draw[f"keep{index}"] / (1 - self.config.dropout)
            x = functional.relu(norm_(x))
        logits = self.head(x).view(*actions.shape, self.config.bins)
        values = self.action_scaling(actions).clamp(-self.config.clip, self.config.clip)
        target = torch.bucketize(values, self.edges[1:-1])
        chosen = logits.log_softmax(-1).gather(-1, target[..., None])[..., 0]
        return cast(Tensor, -chosen.sum(-1).mean(-1))


class Domains:
    """The episodes of every factor: which frames to train on, which to validate on, and the initial weights."""

    def __init__(self, table: FrameTable, validation: float, seed: int) -> None:
        self.names = tuple(dict.fromkeys(factor for factor in table.factors if factor is not None))
        if not self.names:
            raise NotEnoughData("Re-Mix weighs factors, and no episode varies one")
        train_rows: list[Tensor] = []
        held_rows: list[Tensor] = []
        sizes: list[int] = []
        for name in self.names:
            own = [index for index, factor in enumerate(table.factors) if factor == name]
            order = np.random.default_rng([mix(seed), len(train_rows)]).permutation(own)
            held = min(round(validation * len(own)), len(own) - 1)
            held_rows.append(_frames_of(table, order[:held]))
            train_rows.append(_frames_of(table, order[held:]))
            sizes.append(len(own))
        self.initial = torch.tensor(sizes, dtype=torch.float32) / sum(sizes)
        self.rows = train_rows
        # A factor with one episode has none for validation. Without any, the training frames are used.
        held_out = torch.cat(held_rows)
        self.validation = held_out if len(held_out) else torch.cat(train_rows)

    def draw(self, config: RemixConfig, random: torch.Generator) -> Draw:
        """A batch: each window's domain by the initial weights, its frame uniform in the domain, and the dropout."""
        domain = torch.multinomial(self.initial, config.batch, replacement=True, generator=random)
        place = torch.rand(config.batch, generator=random)
        window = torch.stack(
            [self.rows[d][int(p * len(self.rows[d]))] for d, p in zip(domain.tolist(), place.tolist(), strict=True)]
        )
        keep = {
            f"keep{index}": (torch.rand(config.batch, size, generator=random) >= config.dropout).float()
            for index, size in enumerate(config.hidden)
        }
        return {"window": window, "domain": domain, **keep}


class ReferenceLearner:
    """Plain likelihood; keeps the weights that did best on the validation frames."""

    def __init__(
        self, model: DiscreteModel, best: DiscreteModel, frames: DeviceFrames, domains: Domains, seed: int
    ) -> None:
        self.config = model.config
        self.frames, self.domains, self.seed = frames, domains, seed
        self.model, self.best = model, best.requires_grad_(False)
        # One module, so that the best weights so far and their loss travel in every checkpoint.
        self.module = nn.ModuleDict({"model": model, "best": best})
        self.module.register_buffer("best_loss", torch.full((), torch.inf, device=frames.state.device))

    def draw(self, step: int) -> Draw:
        """The batch of this update."""
        return _to(self.domains.draw(self.config, generator(self.seed, step, 1)), self.frames.state.device)

    def loss(self, draw: Draw) -> Tensor:
        """Mean loss: the batch already has the domains in proportion to their sizes."""
        return self.model.losses(*_windows(self.frames, draw["window"], self.config.horizon), draw).mean()

    @torch.no_grad()
    def after(self, step: int) -> None:
        """At intervals and at the end, store the weights if the validation loss is the best so far."""
        if (step + 1) % self.config.validate_every and step + 1 != self.config.updates:
            return
        rows = self.domains.validation.to(self.frames.state.device)
        parts = [
            self.model.losses(*_windows(self.frames, part, self.config.horizon)).sum()
            for part in torch.split(rows, VALIDATION_BATCH)
        ]
        loss = torch.stack(parts).sum() / len(rows)
        best_loss = cast(Tensor, self.module.best_loss)
        if loss < best_loss:
            best_loss.copy_(loss)
            self.best.load_state_dict(self.model.state_dict())


class ProxyLearner:
    """Descends the weighted excess over the reference, and moves the weights before each step."""

    def __init__(
        self, model: DiscreteModel, reference: DiscreteModel, frames: DeviceFrames, domains: Domains, seed: int
    ):
        self.config = model.config
        self.frames, self.domains, self.seed = frames, domains, seed
        self.model, self.reference = model, reference.requires_grad_(False)
        self.module = nn.ModuleDict({"model": model})
        device = frames.state.device
        self.initial = domains.initial.to(device)
        self.module.register_buffer("alpha", self.initial.clone())
        self.module.register_buffer("trajectory", torch.zeros(self.config.updates, len(self.initial), device=device))

    def draw(self, step: int) -> Draw:
        """The batch of this update and its number."""
        draw = self.domains.draw(self.config, generator(self.seed, step, 2))
        return _to({**draw, "step": torch.tensor(step)}, self.frames.state.device)

    def loss(self, draw: Draw) -> Tensor:
        """Update the weights by the clipped excess, then weigh the unclipped one with them."""
        windows = _windows(self.frames, draw["window"], self.config.horizon)
        with torch.no_grad():
            baseline = self.reference.losses(*windows)
        excess = self.model.losses(*windows, draw) - baseline
        alpha = cast(Tensor, self.module.alpha)
        alpha.copy_(
            updated_weights(
                alpha, self.initial, excess.detach(), draw["domain"], self.config.weight_step, self.config.smoothing
            )
        )
        cast(Tensor, self.module.trajectory)[draw["step"]] = alpha
        return (alpha.clone() * domain_means(excess, draw["domain"], len(alpha))).sum()

    def after(self, step: int) -> None:
        """Do nothing: `loss` has stored the weights."""


def gaussian_edges(bins: int) -> Tensor:
    """Edges of bins that are equally likely under N(0, 2²) between its 0.5% and 99.5% quantiles."""
    return torch.tensor(2.0 * ndtri(np.linspace(0.005, 0.995, bins + 1)), dtype=torch.float32)


def domain_means(values: Tensor, domains: Tensor, count: int) -> Tensor:
    """Each domain's sum divided by its number of non-zero values; 0 for a domain that has none."""
    total = values.new_zeros(count).index_add(0, domains, values)
    number = values.new_zeros(count).index_add(0, domains, (values != 0).to(values.dtype))
    return total / number.clamp(min=1)


def updated_weights(
    alpha: Tensor, initial: Tensor, excess: Tensor, domains: Tensor, step_size: float, smoothing: float
) -> Tensor:
    """Exponentiated ascent on the clipped excess of each domain, then a pull back to the initial weights."""
    gain = domain_means(excess.clamp(min=0), domains, len(alpha))
    moved = alpha * torch.exp(step_size * gain)
    return (1 - smoothing) * moved / moved.sum() + smoothing * initial


def train_remix(
    table: FrameTable,
    config: RemixConfig,
    seed: int,
    folder: Path,
    progress: Progress,
    device: str = "cpu",
) -> RemixResult:
    """Both trainings in sequence. A repeated call resumes, or returns the finished result."""
    identity = identity_of(table, config.to_mapping(), seed)
    if checkpoint.is_intact(folder, NAME):
        check_identity(checkpoint.read_description(folder, NAME), identity, folder)
        return load_remix(folder)
    frames = DeviceFrames.of(table, device)
    domains = Domains(table, config.validation, seed)

    def staged(stage: int, name: str) -> Progress:
        def report(done: int, total: int, note: str = "") -> None:
            progress(stage * config.updates + done, 2 * config.updates, f"{name} {note}")

        return report

    models = [_build(table, frames, config, seed, index) for index in range(3)]
    reference = ReferenceLearner(models[0], models[1], frames, domains, seed)
    if checkpoint.is_intact(folder, REFERENCE):
        tensors, description = checkpoint.read(folder, REFERENCE)
        check_identity(description, identity, folder)
        reference.best.load_state_dict(tensors)
    else:
        stage = staged(0, "reference")
        train(reference, config.optimisation, folder / REFERENCE, identity, stage)
        description = {"identity": identity, "validation_loss": float(cast(Tensor, reference.module.best_loss))}
        checkpoint.write(folder, REFERENCE, reference.best.state_dict(), description)
        checkpoint.ResumePoints(folder / REFERENCE).clear()
    proxy = ProxyLearner(models[2], reference.best, frames, domains, seed)
    train(proxy, config.optimisation, folder / "proxy", identity, staged(1, "proxy"))
    _write(folder, cast(Tensor, proxy.module.trajectory), domains, config, seed, identity)
    checkpoint.ResumePoints(folder / "proxy").clear()
    return load_remix(folder)


def load_remix(folder: Path) -> RemixResult:
    """A finished Re-Mix; CheckpointError when it is missing or damaged."""
    tensors, description = checkpoint.read(folder, NAME, hint="run Re-Mix again: it writes the result anew")
    return RemixResult(description["weights"], tensors["trajectory"].numpy(), tuple(description["domains"]))


def plot_trajectory(result: RemixResult, path: Path) -> None:
    """Draw the weights over the updates, with their means, into an image file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for index, name in enumerate(result.domains):
        line = axes.plot(result.trajectory[:, index], linewidth=1, label=f"{name} ({result.weights[name]:.2f})")[0]
        axes.axhline(result.weights[name], color=line.get_color(), linestyle=":", linewidth=1)
    axes.set(xlabel="update", ylabel="weight", title="Re-Mix weights (dotted: mean, which splits the budget)")
    axes.legend(fontsize="small")
    with whole(path) as partial:
        figure.savefig(partial, dpi=150, format="png")


def _write(folder: Path, trajectory: Tensor, domains: Domains, config: RemixConfig, seed: int, identity: str) -> None:
    means = trajectory.cpu().double().mean(0).tolist()  # not every device has doubles
    description: dict[str, Any] = {
        "kind": "remix",
        "weights": dict(zip(domains.names, means, strict=True)),
        "domains": list(domains.names),
        "config": config.to_mapping(),
        "seed": seed,
        "identity": identity,
    }
    checkpoint.write(folder, NAME, {"trajectory": trajectory}, description)


def _build(table: FrameTable, frames: DeviceFrames, config: RemixConfig, seed: int, index: int) -> DiscreteModel:
    _, cameras, _, height, width = table.images.shape
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(mix(seed, -1, index))
        model = DiscreteModel(config, (cameras, height, width, table.state.shape[1], table.action.shape[1]))
    model.to(frames.state.device)
    model.state_scaling.fit(frames.state, "mean-std")
    model.action_scaling.fit(frames.action, "mean-std")
    return model


def _windows(frames: DeviceFrames, rows: Tensor, horizon: int) -> tuple[Tensor, Tensor, Tensor]:
    return frames.images[rows], frames.state[rows], frames.actions_from(rows, horizon)


def _frames_of(table: FrameTable, episodes: NDArray[np.int64]) -> Tensor:
    spans = [torch.arange(int(table.starts[e]), int(table.starts[e + 1])) for e in episodes]
    return torch.cat(spans) if spans else torch.zeros(0, dtype=torch.long)


def _to(draw: Draw, device: torch.device) -> Draw:
    return {name: value.to(device, non_blocking=True) for name, value in draw.items()}
