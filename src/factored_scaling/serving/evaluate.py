"""Evaluate a served policy in the simulator; it may be any policy with the protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from factored_scaling.backends.simulation import CHUNK, Lab
from factored_scaling.core.trials import Trial
from factored_scaling.errors import InvalidInput, PolicyError
from factored_scaling.progress import Progress
from factored_scaling.serving import KIND
from factored_scaling.serving.client import PolicyClient
from factored_scaling.serving.wire import numbers


@dataclass(frozen=True)
class Keys:
    """Names of the observation's parts for another policy."""

    # one per camera, in the simulator's order; images are height × width × 3
    cameras: tuple[str, ...]
    state: str = "observation/state"
    # sent with every observation when given
    prompt: str = ""


class RemoteActor:
    """A served policy as the simulator's `Act`. Our policies get all trials at once, others one by one."""

    def __init__(self, client: PolicyClient, seed: int, action_size: int, keys: Keys | None = None) -> None:
        self._client = client
        self._seed = seed
        self._size = action_size
        self._keys = keys
        if keys is None and str(client.metadata.get("kind")) != KIND:
            hint = "say under which names it wants pictures and state"
            raise PolicyError("this policy is not one of ours", where=client.address, hint=hint)

    def __call__(self, images: Tensor, state: Tensor, rows: Tensor) -> Tensor:
        """Actions for the trials `rows`."""
        pictures = np.ascontiguousarray(np.moveaxis(images.cpu().numpy(), 2, -1))
        numbers, trials = state.cpu().numpy(), rows.cpu().numpy()
        if self._keys is None:
            asked = {"images": pictures, "state": numbers, "seed": self._seed, "trial": trials}
            actions = self._actions(asked, (len(trials), -1, self._size))
        else:
            chunks = [self._one(self._keys, pictures[i], numbers[i]) for i in range(len(trials))]
            actions = np.stack(chunks)
        return torch.from_numpy(actions).to(state.device)

    def _one(self, keys: Keys, pictures: Any, state: Any) -> Any:
        observation: dict[str, Any] = dict(zip(keys.cameras, pictures, strict=True)) | {keys.state: state}
        if keys.prompt:
            observation["prompt"] = keys.prompt
        return self._actions(observation, (-1, self._size))

    def _actions(self, observation: Mapping[str, Any], shape: Sequence[int]) -> Any:
        answer = self._client.infer(observation)
        try:
            actions = numbers(answer.get("actions", ()), "actions")
        except InvalidInput as error:
            raise PolicyError(f"the answer's {error.where}: {error.what}", where=self._client.address) from None
        sizes = zip(shape, actions.shape, strict=False)
        fits = actions.ndim == len(shape) and all(wanted in (-1, size) for wanted, size in sizes)
        if not fits or not actions.size or not np.isfinite(actions).all():
            what = f"expected actions of {shape[-1]} finite numbers, not shape {actions.shape}"
            raise PolicyError(what, where=self._client.address)
        return actions.astype(np.float32)


def evaluate_served(
    client: PolicyClient,
    lab: Lab,
    evaluation: Mapping[str, Any],
    execute: int,
    progress: Progress,
    seed: int = 0,
    keys: Keys | None = None,
) -> Iterator[Trial]:
    """Roll the policy out under every held-out condition, as `Lab.evaluate` does."""
    conditions = lab.conditions(evaluation)
    for start in range(0, len(conditions), CHUNK):
        chunk = conditions[start : start + CHUNK]
        progress(start, len(conditions), "rolling out")
        actor = RemoteActor(client, seed * len(conditions) + start, lab.task.action_size, keys)
        for condition, score in lab.task.rollout(actor, chunk, execute, lab.device):
            assert condition.factor is not None
            yield Trial(condition.key, score, (condition.factor,), str(condition.setting))
    progress(len(conditions), len(conditions), "rolling out")
