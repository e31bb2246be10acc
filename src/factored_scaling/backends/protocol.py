"""The Backend protocol: how a run is trained and measured.

A backend has two methods, `train` and `evaluate`. More methods are optional:

| method | purpose |
|---|---|
| `train_many(runs, folders, context)` | several runs as one job; returns the errors of failed ones, by folder |
| `evaluate_many(runs, folders, contexts)` | several policies side by side; yields (index of the run, trial) |
| `fingerprint(folder)` | a digest of the policy; with it, trials are recorded during the evaluation |
| `embed(run, folder, context)` | embeddings for FSC-Proxy |
| `check(episodes)` | an error before any worker starts when an episode is not available |
| `describe()` | the training settings, as plain data for the record |
| `notice()` | a sentence for studies that get the backend by default |

The class method `from_request(request)` creates the backend from all settings of study.yaml (`BackendRequest`). Without
it the class is called with the settings of `backend:` as keywords.

Class attributes: `in_process = True` says that networks are trained in the worker's own process, on the device that
`fsc run --device` names; `one_core = True` that a worker keeps one core busy, so that one per core is started;
`keeps_results = True` that results in a run's folder are not computed again, so the folder must not be another study's.
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
    """Progress that is not reported."""


@dataclass
class Context:
    """Context of a run, passed to the backend with the run and its folder.

    Call it to report progress: `context(done, total, note)`. The call raises to stop the work, so call it
    often. `policy`, `metrics` and `similarities` are for the backend to fill in; they are recorded with the run.
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
    # path of the policy, relative to the run's folder
    policy: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    # similarities for FSC-Proxy that were computed elsewhere
    similarities: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Report progress."""
        self.progress(done, total, note)


@dataclass(frozen=True)
class Embeddings:
    """Embeddings of first observations, one row each: of the training set, and held-out with the varied factor."""

    trained: NDArray[np.float32]
    held_out: NDArray[np.float32]
    factors: tuple[str | None, ...]


class Backend(Protocol):
    """Trains and measures the runs of a study."""

    def train(self, run: RunSpec, folder: Path, context: Context) -> None:
        """Train on `run.episodes` and write the policy to `folder`; a repeated call resumes."""
        ...

    def evaluate(self, run: RunSpec, folder: Path, context: Context) -> Iterable[Trial | Measurement]:
        """Yield trials, or means (`Measurement`) over many; nothing if people measure the policy."""
        ...
