"""Progress that tests look at afterwards."""

from __future__ import annotations

from collections.abc import Callable


class Heard:
    """Progress that is kept, and that may stop the work."""

    def __init__(self, stop: Callable[[int], bool] = lambda done: False) -> None:
        self.told: list[tuple[int, int, str]] = []
        self._stop = stop

    def __call__(self, done: int, total: int, note: str = "") -> None:
        self.told.append((done, total, note))
        if self._stop(done):
            raise KeyboardInterrupt
