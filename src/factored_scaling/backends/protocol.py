"""The Backend protocol: how a run is trained and measured.

A backend has two methods, `train` and `evaluate`. It may have more, which are used where they exist:

| method | what it adds |
|---|---|
| `train_many(runs, folders, context)` | several runs as one job; returns the reason of each that failed, by folder |
| `evaluate_many(runs, folders, contexts)` | several policies side by side; yields (index of the run, trial) |
| `fingerprint(folder)` | a digest of the policy; with it, trials are recorded while the evaluation goes on |
| `embed(run, folder, context)` | embeddings for FSC-Proxy |
| `check(episodes)` | an error before any worker starts when an episode is not available |
| `describe()` | what makes the policies, as plain data for the record |
| `notice()` | a sentence for studies that get the backend by default |

`from_request(request)`, a class method, makes the backend from everything that study.yaml says (`BackendRequest`).
Without it the class is called with the settings of `backend:` as keywords.

Class attributes: `in_process = True` says that networks are trained in the worker's own process, on the device that
`fsc run --device` names; `one_core = True` that a worker keeps one core busy, so that one per core is started.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from factored_scaling.core.design import RunSpec
from factored_scaling.core.trials import Measurement, Trial
from factored_scaling.progress import Progress


def _silent(done: int, total: int, note: str = "") -> None:
    """Progress that nobody watches."""


@dataclass
class Context:
    """Context of a run, passed to the backend with the run and its folder.

    Call it to report progress: `context(done, total, note)`. The call raises to stop the work at a safe point, so make
    it often. `policy`, `metrics` and `similarities` are for the backend to fill in; they are recorded with the run.
    """

    progress: Progress = _silent
    device: str = "cpu"
    # the study's factors
    factors: tuple[str, ...] = ()
    # the run's id and its number of demonstrations of each factor; not in `train_many`
    run_id: int = 0
    demos: Mapping[str, int] = field(default_factory=dict)
    # keys of trials that an earlier attempt recorded of this policy; they may be left out
    done: Collection[str] = ()
    # runs that `train_many` trains side by side; None: as many as fit
    together: int | None = None
    # where the policy lies, relative to the run's folder
    policy: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    # similarities for FSC-Proxy that were computed elsewhere
    similarities: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Report progress."""
        self.progress(done, total, note)


@dataclass(frozen=True)
class Embeddings:
    """Embeddings of first observations, one row each: those trained on, and held-out ones with the varied factor."""

    trained: NDArray[np.float32]
    held_out: NDArray[np.float32]
    factors: tuple[str | None, ...]


class Backend(Protocol):
    """Trains and measures the runs of a study."""

    def train(self, run: RunSpec, folder: Path, context: Context) -> None:
        """Train on `run.episodes` and leave the policy in `folder`; called again, go on where it stopped."""
        ...

    def evaluate(self, run: RunSpec, folder: Path, context: Context) -> Iterable[Trial | Measurement]:
        """Yield trials, or means over many; nothing where people are to measure the policy."""
        ...
