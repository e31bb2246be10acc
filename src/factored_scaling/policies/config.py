"""Configurations as frozen values: presets and strict reading.

No torch here, so that a study file can be checked without loading it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

from factored_scaling.errors import InvalidInput, UnknownName

NORM_GROUPS = 8  # of the U-Net's channels, each normalised on its own


@dataclass(frozen=True)
class Optimisation:
    """How the shared loop updates a model's parameters."""

    updates: int
    learning_rate: float
    warmup: int
    first_learning_rate: float = 0.0
    weight_decay: float = 0.0
    gradient_clip: float = 0.0
    average_decay: float = 0.0


@dataclass(frozen=True)
class Configuration:
    """Settings of both models. The defaults are the paper's, for a GPU; `preset("small")` is for one CPU core."""

    # vision encoder, one per camera with weights of its own: resnet18, resnet18-half (half as many channels), or small
    # (a few convolutions, for the CPU)
    encoder: str = "resnet18"
    # channels of the small encoder's first layer; the later ones have two and four times as many
    encoder_width: int = 16
    # from the last feature map to a vector: mean, flatten, or spatial-softmax (where each channel looks)
    pool: str = "mean"
    # actions predicted per decision
    horizon: int = 16
    # training updates, the same for every size of the training set; with Re-Mix, of each of its two models
    updates: int = 50_000
    # windows per update
    batch: int = 64
    # learning rate after warm-up; cosine decay
    learning_rate: float = 3e-4
    # updates over which the learning rate rises
    warmup: int = 500
    # largest norm of the gradient (0: no limit)
    gradient_clip: float = 1.0

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    CHOICES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "encoder": ("resnet18", "resnet18-half", "small"),
        "pool": ("mean", "flatten", "spatial-softmax"),
    }
    AT_LEAST_ONE: ClassVar[tuple[str, ...]] = ("horizon", "updates", "batch", "encoder_width")

    def __post_init__(self) -> None:
        for name, known in self.CHOICES.items():
            if getattr(self, name) not in known:
                raise UnknownName(getattr(self, name), known, kind="value", where=name)
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise InvalidInput(f"must be a finite number, is {value}", where=field.name)
            if isinstance(value, int | float) and value < 0:
                raise InvalidInput(f"must not be negative, is {value}", where=field.name)
            if field.name in self.AT_LEAST_ONE and value < 1:
                raise InvalidInput("must be at least 1, is 0", where=field.name)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Self:
        """A preset by name, with changes."""
        if name not in cls.PRESETS:
            raise UnknownName(name, cls.PRESETS, kind="policy preset")
        return cls._read({**cls.PRESETS[name], **changes})

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Self:
        """Read plain data: an optional `preset` (default: small), and settings that override it."""
        changes = {key: value for key, value in data.items() if key != "preset"}
        return cls.preset(str(data.get("preset", "small")), **changes)

    @property
    def optimisation(self) -> Optimisation:
        """Settings of the training loop."""
        known = {field.name for field in fields(self)}
        return Optimisation(**{f.name: getattr(self, f.name) for f in fields(Optimisation) if f.name in known})

    def to_mapping(self) -> dict[str, Any]:
        """Plain data with every setting; `from_mapping` reads it back to an equal value."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def _read(cls, data: Mapping[str, Any]) -> Self:
        defaults = {field.name: field.default for field in fields(cls)}
        values: dict[str, Any] = {}
        for key, value in data.items():
            if key not in defaults:
                raise UnknownName(key, defaults, kind="policy setting")
            values[key] = _like(defaults[key], value, key)
        return cls(**values)


def _like(default: Any, value: Any, key: str) -> Any:
    """`value` in the type of the setting's default, or an error that names the setting."""
    if isinstance(default, tuple) and isinstance(value, list | tuple):
        return tuple(_like(default[0], item, key) for item in value)
    if isinstance(default, float) and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if type(value) is type(default):
        return value
    raise InvalidInput(f"must be {type(default).__name__} like {default!r}, not {value!r}", where=key)


@dataclass(frozen=True)
class DiffusionConfig(Configuration):
    """A diffusion policy and its training. The defaults are the paper's; `preset("small")` is for one CPU core."""

    # channels of the U-Net's levels, from the full horizon downwards; each level halves the time axis
    widths: tuple[int, ...] = (128, 256, 512)
    # residual blocks per level of the U-Net
    blocks: int = 2
    # length of the convolutions along time
    kernel: int = 5
    # size of the embedding of the diffusion step
    time_embedding: int = 128
    # actions executed before the next decision
    execute: int = 8
    # diffusion steps in training (squared-cosine schedule)
    diffusion_steps: int = 100
    # what the network predicts: noise, or sample (the clean actions)
    prediction: str = "noise"
    # DDIM steps per decision
    inference_steps: int = 10
    # noisy versions of each sampled window per update; the images are encoded once for all of them
    noise_samples: int = 1
    # how states and actions are scaled, from the training episodes alone: min-max (to ±1) or mean-std
    normalisation: str = "min-max"
    # predict actions as differences from the current state (states and actions must be the same quantities)
    relative_actions: bool = False
    # colour jitter: brightness and contrast factors within 1 ± this
    jitter_light: float = 0.3
    # colour jitter: saturation factor within 1 ± this
    jitter_saturation: float = 0.3
    # colour jitter: hue rotation within ± this many turns
    jitter_hue: float = 0.05
    # random shifts: pictures move by up to this many pixels in each direction, their borders repeated (0: none)
    shift: int = 0
    # AdamW's weight decay
    weight_decay: float = 1e-6
    # decay of the running average of the weights, which is the policy that is saved (0: no averaging)
    average_decay: float = 0.999
    # arithmetic of the networks in training: float32, or bfloat16 (mixed; for GPUs)
    precision: str = "bfloat16"

    AT_LEAST_ONE: ClassVar[tuple[str, ...]] = (
        *Configuration.AT_LEAST_ONE,
        "noise_samples",
        "blocks",
        "diffusion_steps",
    )
    CHOICES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **Configuration.CHOICES,
        "prediction": ("noise", "sample"),
        "normalisation": ("min-max", "mean-std"),
        "precision": ("float32", "bfloat16"),
    }
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {},
        "small": {
            "encoder": "small",
            "pool": "flatten",
            "widths": (32, 64),
            "blocks": 1,
            "kernel": 3,
            "time_embedding": 32,
            "prediction": "sample",
            "inference_steps": 5,
            "noise_samples": 2,
            "updates": 1200,
            "batch": 32,
            "learning_rate": 2e-3,
            "warmup": 60,
            "average_decay": 0.995,
            "precision": "float32",
        },
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.widths or any(width < 1 or width % NORM_GROUPS for width in self.widths):
            raise InvalidInput(f"must be multiples of {NORM_GROUPS}, is {list(self.widths)}", where="widths")
        if self.kernel % 2 == 0:  # an even one makes the actions one step longer
            raise InvalidInput(f"must be odd, is {self.kernel}", where="kernel")
        if self.time_embedding < 2:
            raise InvalidInput(f"must be at least 2, is {self.time_embedding}", where="time_embedding")
        stride = 2 ** (len(self.widths) - 1)
        if self.horizon % stride:
            raise InvalidInput(f"must be a multiple of {stride} for {len(self.widths)} widths", where="horizon")
        if not 1 <= self.execute <= self.horizon:
            raise InvalidInput(f"must lie between 1 and the horizon {self.horizon}", where="execute")
        if not 1 <= self.inference_steps <= self.diffusion_steps:
            raise InvalidInput(
                f"must lie between 1 and diffusion_steps {self.diffusion_steps}", where="inference_steps"
            )


@dataclass(frozen=True)
class RemixConfig(Configuration):
    """Re-Mix: two discrete models and the weights between them. The defaults are the paper's."""

    # hidden layers of the action head
    hidden: tuple[int, ...] = (512, 512, 512)
    # chance that a hidden unit is left out of an update
    dropout: float = 0.4
    # bins per action dimension
    bins: int = 48
    # normalised actions are clipped to ± this
    clip: float = 5.0
    updates: int = 500_000
    batch: int = 32
    learning_rate: float = 1e-4
    # learning rate at the first update and at the last
    first_learning_rate: float = 1e-6
    warmup: int = 1000
    # step size of the domain weights
    weight_step: float = 0.2
    # how far the domain weights move back to their initial values after every update
    smoothing: float = 0.05
    # share of each factor's episodes held out for validation of the reference model
    validation: float = 0.1
    # updates between two computations of the validation loss
    validate_every: int = 1000

    AT_LEAST_ONE: ClassVar[tuple[str, ...]] = (*Configuration.AT_LEAST_ONE, "bins", "validate_every")
    # small: 600 updates of each model, a tenth of them (60) as warm-up instead of 1000; at 1e-4 so few updates would
    # leave both models untrained and the weights at their start, so the learning rate is higher.
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {},
        "small": {
            "encoder": "small",
            "pool": "flatten",
            "updates": 600,
            "learning_rate": 5e-4,
            "warmup": 60,
            "validate_every": 60,
        },
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.hidden or min(self.hidden) < 1:
            raise InvalidInput(f"must be layers of at least 1, is {list(self.hidden)}", where="hidden")
        for name in ("dropout", "validation"):
            if getattr(self, name) >= 1:
                raise InvalidInput(f"must lie below 1, is {getattr(self, name)}", where=name)
