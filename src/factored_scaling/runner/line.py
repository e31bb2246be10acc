"""A worker's connection to its executor: events go out, stop requests come in."""

from __future__ import annotations

from typing import Protocol

from factored_scaling.runner.events import Event


class Stopped(BaseException):
    """Raised in a worker at a safe point after a stop request. Not an Exception, so that no handler catches it."""


class Line(Protocol):
    """The connection that an executor gives to a worker."""

    @property
    def stopping(self) -> bool:
        """Whether to end at the next safe point."""
        ...

    @property
    def training(self) -> bool:
        """Whether workers that train are running or will start; evaluators wait for their policies."""
        ...

    def say(self, event: Event) -> None:
        """Send an event to the executor."""
        ...

    def check(self) -> None:
        """Raise Stopped after a stop request: a safe point."""
        ...
