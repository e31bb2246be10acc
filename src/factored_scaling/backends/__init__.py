"""Backends: how the runs of a study are trained and measured.

`simulation` is a simulated task, `diffusion` our own policy on a LeRobot dataset; `lerobot` and `command` run a program
in an environment of its own. Packages add backends with an entry point in the group `factored_scaling.backends`;
`package.module:Class` works without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from factored_scaling.backends.protocol import Backend, Context, Embeddings
from factored_scaling.core.design import RunSpec
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput
from factored_scaling.plugins import Registry

__all__ = ["BACKENDS", "Backend", "BackendRequest", "Context", "Embeddings", "backend_settings", "load_backend"]

SIMULATION, DIFFUSION, COMMAND = "simulation", "diffusion", "command"
BACKENDS = Registry(
    "factored_scaling.backends",
    "backend",
    {
        SIMULATION: "factored_scaling.backends.simulation:Lab",
        DIFFUSION: "factored_scaling.backends.diffusion:DiffusionBackend",
        "lerobot": "factored_scaling.backends.lerobot:LerobotBackend",
        COMMAND: "factored_scaling.backends.command:CommandBackend",
    },
)


@dataclass(frozen=True)
class BackendRequest:
    """Input of a built-in backend. `settings` are those of `trainer:` or `backend:` in study.yaml."""

    settings: Mapping[str, Any]
    policy: Mapping[str, Any]
    evaluation: Mapping[str, Any]
    task: str | None
    # the study's folder; paths are relative to it
    folder: Path
    # None: the default of the backend
    device: str | None = None
    # factors of the study; empty if they are already checked
    factors: tuple[str, ...] = ()
    where: str = field(default="trainer", compare=False)


def backend_settings(spec: StudySpec) -> dict[str, Any]:
    """The study's `trainer:` or `backend:` with its kind; empty if the study has none.

    A study with a `task:` is simulated. One with a dataset gets our own policy unless it names another backend.
    """
    settings = dict(spec.trainer)
    if settings:
        if spec.task is not None and settings.get("kind", COMMAND) in (*_OUTSIDE, DIFFUSION):
            what = "a study is trained by its `trainer:` or in the simulator's `task:`, not by both"
            raise InvalidInput(what, where="trainer", hint="remove one of them from study.yaml")
        settings.setdefault("kind", COMMAND)
    elif spec.task is not None:
        return {"kind": SIMULATION}
    elif spec.dataset is not None:
        settings = {"kind": DIFFUSION}
    if settings and spec.dataset is not None and settings["kind"] in (*_OUTSIDE, DIFFUSION):
        settings = {"dataset": spec.dataset, **settings}
    return settings


_OUTSIDE = (COMMAND, "lerobot")


def backend_class(settings: Mapping[str, Any]) -> Any:
    """The class or factory that the settings' `kind` names."""
    return BACKENDS.load(str(settings.get("kind", COMMAND)), where="trainer.kind")


def trains_in_process(settings: Mapping[str, Any]) -> bool:
    """Whether workers train networks in their own process, on the device that `fsc run --device` names."""
    return bool(settings) and bool(getattr(backend_class(settings), "in_process", False))


def load_backend(settings: Mapping[str, Any], run: RunSpec, folder: Path, device: str | None) -> Backend:
    """The backend of a run. Built-in ones read all settings; others are called with theirs as keywords."""
    return make_backend(BackendRequest(settings, run.policy, run.evaluation, run.task, folder, device))


def make_backend(request: BackendRequest) -> Backend:
    """The backend that a request describes."""
    found = backend_class(request.settings)
    if hasattr(found, "from_request"):
        return cast(Backend, found.from_request(request))
    own = {key: value for key, value in request.settings.items() if key != "kind"}
    try:
        return cast(Backend, found(**own))
    except TypeError as error:
        kind = request.settings.get("kind")
        raise InvalidInput(f"backend {kind!r} does not take these settings ({error})", where=request.where) from None
