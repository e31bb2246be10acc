"""A backend that trains by counting, for tests and benchmarks that need many runs and little computing."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from factored_scaling.backends import Context
from factored_scaling.core.design import RunSpec
from factored_scaling.core.trials import Trial


class Steps:
    """Counts to `updates`, saves each step, and measures `trials` trials of each factor; goes on where it stopped.

    Every line of `steps.txt` is a process that began to train, with the step that it began at.
    """

    one_core = True

    def __init__(self, updates: int = 1, trials: int = 1, seconds: float = 0.0) -> None:
        self._updates, self._trials, self._seconds = updates, trials, seconds

    def train(self, run: RunSpec, folder: Path, context: Context) -> None:
        point = folder / "resume-000000000.json"
        step = json.loads(point.read_text())["step"] if point.exists() else 0
        if self._updates > 1:
            with (folder / "steps.txt").open("a") as file:
                file.write(f"{os.getpid()} {step}\n")
        while step < self._updates:
            time.sleep(self._seconds)
            step += 1
            if self._updates > 1:
                partial = folder / f".{os.getpid()}.tmp"
                partial.write_text(json.dumps({"step": step}))
                partial.replace(point)
            context(step, self._updates, "counting")

    def evaluate(self, run: RunSpec, folder: Path, context: Context) -> Iterator[Trial]:
        pairs = [(name, index) for name in context.factors for index in range(self._trials)]
        for number, (name, index) in enumerate(pairs):
            key = f"{name}/{index}"
            if key in context.done:
                continue
            time.sleep(self._seconds / 20)
            if number % 16 == 0:
                context(number, len(pairs), "measuring")
            digest = hashlib.sha256(f"{run.digest} {key}".encode()).digest()
            yield Trial(key, float(digest[0] < 128), (name,))

    def fingerprint(self, folder: Path) -> str:
        return "counted"
