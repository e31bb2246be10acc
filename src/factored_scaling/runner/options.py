"""How runs are carried out, as plain values that can be sent to workers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from factored_scaling.backends import backend_class
from factored_scaling.core.checks import real
from factored_scaling.errors import InvalidInput
from factored_scaling.io.text import read_json, write_text
from factored_scaling.store import Stage

OWNER = "study.json"  # in a run's folder: the study that it belongs to
WORKER = "fsc worker"  # name of a worker's process
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


def claim_folders(folder: Path, digests: Iterable[str], name: str, created: float) -> None:
    """Mark the runs' folders as those of the study; InvalidInput where one belongs to another study.

    A backend that uses finished steps again would take the other study's results for those of this one.
    """
    own = {"study": name, "created": created}
    for digest in digests:
        path = run_folder(folder, digest) / OWNER
        if not path.exists():
            write_text(path, json.dumps(own) + "\n")
            continue
        found = read_json(path)
        if isinstance(found, dict) and found.get("created") != created:
            what = f"belongs to another study, {found.get('study')!r} of {_day(found.get('created'))}"
            hint = f"give each study a folder of its own; if that one is gone, remove {folder / 'runs'}"
            raise InvalidInput(what, where=str(path.parent), hint=hint)


def _day(created: object) -> str:
    seconds = real(created)
    return "another day" if seconds is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
