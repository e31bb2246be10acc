"""A worker's line to whoever started it: events go out, requests to stop come in."""

from __future__ import annotations

from typing import Protocol

from factored_scaling.runner.events import Event


class Stopped(BaseException):
    """Raised in a worker at a safe point after a stop was asked for. Not an Exception: nothing should swallow it."""


class Line(Protocol):
    """What a worker is given by its executor."""

    @property
    def stopping(self) -> bool:
        """Whether to end at the next safe point."""
        ...

    @property
    def training(self) -> bool:
        """Whether workers that train are at work or still to start; one that evaluates waits for their policies."""
        ...

    def say(self, event: Event) -> None:
        """Send an event to whoever watches."""
        ...

    def check(self) -> None:
        """Raise Stopped when a stop was asked for: a safe point."""
        ...
