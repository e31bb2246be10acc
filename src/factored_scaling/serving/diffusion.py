"""Our diffusion policy behind the server."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from factored_scaling.core.checks import real, shown
from factored_scaling.errors import InvalidInput, UnknownName
from factored_scaling.policies.diffusion import Actor, DiffusionPolicy, load_policy
from factored_scaling.serving import KIND
from factored_scaling.serving.wire import numbers

_KEYS = ("images", "state", "seed", "trial")
_IGNORED = ("prompt",)  # openpi's clients send one; this policy has a single task


class ServedDiffusion:
    """The policy in a run's folder. Every connection has its own noise."""

    def __init__(self, folder: Path, device: str = "cpu", seed: int = 0) -> None:
        self.policy = load_policy(folder, device)
        self._seed = seed
        self._connections = itertools.count()

    @property
    def metadata(self) -> dict[str, Any]:
        """Description of observations and actions."""
        cameras, height, width, state, action = self.policy.shape
        config = self.policy.config
        return {
            "kind": KIND,
            "cameras": cameras,
            "height": height,
            "width": width,
            "state_size": state,
            "action_size": action,
            "horizon": config.horizon,
            "execute": config.execute,
            "episodes": len(self.policy.description.get("episodes", ())),
        }

    def session(self) -> DiffusionSession:
        """A session with noise by the number of the connection, so that robots do not move in the same way."""
        return DiffusionSession(self.policy, self._seed, next(self._connections))


class DiffusionSession:
    """One connection: an observation in, a chunk of actions out.

    `images`: cameras × height × width × 3, uint8; one picture may leave out the first axis. `state`: its numbers. Both
    may have a further axis in front for several trials at once. `seed` and `trial` make
    evaluations reproducible: noise then depends on them and on the number of the trial's decisions.
    """

    def __init__(self, policy: DiffusionPolicy, seed: int, connection: int) -> None:
        self._policy = policy
        self._actor: Actor = policy.actor(seed)
        self._connection = connection

    def infer(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        """The next actions."""
        for key in observation:
            if key not in (*_KEYS, *_IGNORED):
                raise UnknownName(str(key), _KEYS, kind="key", where="observation")
        for key in ("images", "state"):
            if key not in observation:
                raise InvalidInput(f"no {key}", where="observation", hint="the metadata says what is expected")
        state = self._state(observation["state"])
        several = state.ndim == 2
        states = state if several else state[None]
        images = self._images(observation["images"], len(states), several)
        rows = self._rows(observation, len(states))
        actions = self._actor(torch.from_numpy(images), torch.from_numpy(states), torch.from_numpy(rows))
        chunk = actions.cpu().numpy().astype(np.float32)
        return {"actions": chunk if several else chunk[0]}

    def _state(self, given: Any) -> NDArray[np.float32]:
        state = numbers(given, "observation.state")
        size = self._policy.shape[3]
        if state.ndim not in (1, 2) or state.shape[-1] != size or not len(state) or not np.isfinite(state).all():
            raise InvalidInput(f"expected {size} finite numbers, not shape {state.shape}", where="observation.state")
        return state.astype(np.float32)

    def _images(self, given: Any, count: int, several: bool) -> NDArray[np.uint8]:
        cameras, height, width = self._policy.shape[:3]
        images = numbers(given, "observation.images")
        if images.dtype != np.uint8:
            raise InvalidInput(f"expected uint8, not {images.dtype}", where="observation.images")
        if cameras == 1 and images.ndim == 3 + several:
            images = np.expand_dims(images, -4)
        if not several:
            images = images[None]
        if images.shape != (count, cameras, height, width, 3):
            expected = (cameras, height, width, 3)
            what = f"expected shape {expected}, not {images.shape[0 if several else 1 :]}"
            raise InvalidInput(what, where="observation.images", hint="resize the pictures before sending them")
        return np.ascontiguousarray(np.moveaxis(images, -1, 2))

    def _rows(self, observation: Mapping[str, Any], count: int) -> NDArray[np.int64]:
        seed = observation.get("seed")
        if seed is not None:
            number = real(seed)
            if number is None or number != int(number) or not 0 <= number < 2**53:
                raise InvalidInput(f"expected a whole number, not {shown(seed)}", where="observation.seed")
            if int(number) != self._actor.seed:
                self._actor = self._policy.actor(int(number))
        trial = observation.get("trial", np.arange(count) + self._connection)
        rows = np.atleast_1d(numbers(trial, "observation.trial"))
        if rows.shape != (count,) or rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= 2**20:
            raise InvalidInput("expected a whole number below 2²⁰ per trial", where="observation.trial")
        return rows.astype(np.int64)
