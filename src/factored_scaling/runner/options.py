"""How runs are carried out, as plain values that can be sent to workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from factored_scaling.backends import backend_class
from factored_scaling.store import Stage

MOST_TOGETHER = 12  # runs that a worker on a GPU takes at once; beyond that the chip is full


@dataclass(frozen=True)
class WorkOptions:
    """How runs are carried out."""

    # seconds without a heartbeat after which another worker may take a run
    lease_seconds: float = 60.0
    # how often a run is tried before it stays failed
    attempts: int = 2
    # device of the networks; empty: what the backend prefers
    device: str = "cpu"
    # keep the similarities that FSC-Proxy needs
    proxy: bool = True
    # the study's backend and its settings, as `backend_settings` gives them; empty: workers are given an object
    backend: Mapping[str, Any] = field(default_factory=lambda: {"kind": "simulation"})
    # runs that a worker trains and measures as one job; None: as many as fit on a GPU, one elsewhere
    together: int | None = None
    # threads of a worker on a CPU
    threads: int = 1
    # the stage that a worker carries out; None: both
    stage: Stage | None = None
    # how long an idle worker waits for runs of other workers; None: until they are done
    idle_seconds: float | None = None

    @property
    def runs_at_once(self) -> int:
        """The number of runs that a worker takes at once: one if the backend cannot train many."""
        if not self.backend or not hasattr(backend_class(self.backend), "train_many"):
            return 1
        if self.together is not None:
            return self.together
        return MOST_TOGETHER if self.device.startswith("cuda") else 1


def run_folder(folder: Path, digest: str) -> Path:
    """The folder of a run's checkpoint and log."""
    return folder / "runs" / digest
