"""Progress of long work: what callers pass in, and the notes that mean preparation."""

from __future__ import annotations

from typing import Protocol

# Notes of work before training. Its progress is not the progress of the training.
DEMONSTRATING, READING = "demonstrating", "reading frames"
PREPARING = (DEMONSTRATING, READING)


class Progress(Protocol):
    """Called with how much is done out of how much; may raise to stop the work at a safe point."""

    def __call__(self, done: int, total: int, note: str = "") -> None: ...
