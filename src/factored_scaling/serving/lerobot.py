"""A LeRobot checkpoint behind the server; LeRobot itself runs in its own environment, as a child process."""

from __future__ import annotations

import io
import json
import math
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import factored_scaling.backends.elsewhere as elsewhere
from factored_scaling.backends.lerobot import read_checkpoint
from factored_scaling.backends.process import outside_environment
from factored_scaling.errors import InvalidInput, PolicyError, UnknownName
from factored_scaling.serving.wire import flag, numbers

KIND = "factored-scaling lerobot-policy"


class ServedLerobot:
    """The policy that LeRobot trained in a run's folder.

    It answers with one action at a time, because a LeRobot policy has a history and queue of actions and needs
    every frame. It serves one connection at a time; a newer one takes over.
    """

    def __init__(
        self, folder: Path, python: Path, environment: Mapping[str, str] | None = None, device: str | None = None
    ) -> None:
        self._checkpoint = read_checkpoint(folder)
        self._plan = tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8")  # noqa: SIM115  stays open as long as the child runs
        json.dump({"job": "act", "checkpoint": str(self._checkpoint), "device": device}, self._plan)
        self._plan.flush()
        command = [str(python), str(Path(elsewhere.__file__).with_name("jobs.py")), self._plan.name]
        self._child = subprocess.Popen(
            command,
            env={**outside_environment(), **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            description = self._receive()
        except BaseException:
            self.close()
            raise
        self._shapes: dict[str, list[int]] = json.loads(str(description["shapes"]))
        self._type, self._size = str(description["type"]), int(description["size"])
        self._current: LerobotSession | None = None

    @property
    def metadata(self) -> dict[str, Any]:
        """Description of observations and actions."""
        pictures = {name: [*shape[1:], 3] for name, shape in self._shapes.items() if len(shape) == 3}
        numbers = {name: shape for name, shape in self._shapes.items() if len(shape) != 3}
        return {
            "kind": KIND,
            "type": self._type,
            "observation": {**pictures, **numbers},
            "action_size": self._size,
            "execute": 1,
        }

    def session(self) -> LerobotSession:
        """A new episode."""
        return LerobotSession(self)

    def close(self) -> None:
        """End the child process."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()
        self._plan.close()

    def ask(self, session: LerobotSession, observation: Mapping[str, Any]) -> NDArray[np.float32]:
        """The next action of this session's episode."""
        new = self._current is not session
        if new and session.begun:
            raise InvalidInput("another connection now uses this policy", hint="connect again")
        asked = {name: self._feature(name, observation) for name in self._shapes}
        asked["task"] = np.array(str(observation.get("prompt", "")))
        if flag(observation, "reset") or new:
            asked["reset"] = np.array(True)
        self._current, session.begun = (
            session,
            True,
        )  # only after a valid first frame, so that an invalid one does not use up the reset
        self._send(asked)
        answer = self._receive()
        if "error" in answer:
            raise PolicyError(f"LeRobot failed: {answer['error']}", where=str(self._checkpoint))
        return answer["actions"].astype(np.float32)

    def check(self, observation: Mapping[str, Any]) -> None:
        """Keys that the policy does not use are errors."""
        for key in observation:
            if key not in (*self._shapes, "prompt", "reset"):
                raise UnknownName(str(key), self._shapes, kind="key", where="observation")

    def _feature(self, name: str, observation: Mapping[str, Any]) -> NDArray[Any]:
        shape = self._shapes[name]
        where = f"observation[{name!r}]"
        if name not in observation:
            raise InvalidInput("is missing", where=where, hint="the metadata says what is expected")
        values = numbers(observation[name], where)
        if len(shape) == 3:
            expected = (*shape[1:], 3)
            if values.dtype != np.uint8 or values.shape != expected:
                raise InvalidInput(
                    f"expected uint8 of shape {expected}, not {values.dtype} {values.shape}", where=where
                )
            return values
        if values.size != math.prod(shape) or not np.isfinite(values).all():
            raise InvalidInput(f"expected {math.prod(shape)} finite numbers, not shape {values.shape}", where=where)
        return values.astype(np.float32).reshape(shape)

    def _send(self, values: Mapping[str, NDArray[Any]]) -> None:
        data = io.BytesIO()
        np.savez(data, **values)  # type: ignore[arg-type]
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(data.tell().to_bytes(8, "big") + data.getvalue())
            self._child.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def _receive(self) -> dict[str, NDArray[Any]]:
        assert self._child.stdout is not None
        length = self._child.stdout.read(8)
        data = self._child.stdout.read(int.from_bytes(length, "big")) if len(length) == 8 else b""
        if not data:
            raise self._ended()
        with np.load(io.BytesIO(data)) as file:
            return {name: file[name] for name in file.files}

    def _ended(self) -> PolicyError:
        code = self._child.wait()
        return PolicyError(
            f"LeRobot ended with exit code {code}", where=str(self._checkpoint), hint="see what it printed"
        )


class LerobotSession:
    """One connection: every frame in, one action out."""

    def __init__(self, policy: ServedLerobot) -> None:
        self._policy = policy
        self.begun = False

    def infer(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        """The next action, as a chunk of one."""
        self._policy.check(observation)
        return {"actions": self._policy.ask(self, observation)}
