"""Executors: where workers run. An executor starts and stops workers; which runs they take is decided by the store.

Packages add executors with an entry point in the group `factored_scaling.executors`; `package.module:Class` works
without one. The class is called with the resources that were asked for as keywords.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from factored_scaling.backends import Backend
from factored_scaling.errors import InvalidInput, UnknownName
from factored_scaling.plugins import Registry
from factored_scaling.runner.events import Event
from factored_scaling.runner.options import WorkOptions

EXECUTORS = Registry(
    "factored_scaling.executors",
    "executor",
    {
        "local": "factored_scaling.runner.executors.local:LocalExecutor",
        "slurm": "factored_scaling.runner.executors.slurm:SlurmExecutor",
        "ray": "factored_scaling.runner.executors.ray:RayExecutor",
    },
)


class UnknownExecutor(UnknownName):
    """An executor that is not registered."""

    kind = "executor"


@dataclass(frozen=True)
class Job:
    """The work of an executor: which study, the folder of its files, and how its runs are carried out.

    `backend` is an object that stays in this process; without it workers make the one that the options name.
    """

    address: str
    study_id: int
    folder: Path
    options: WorkOptions
    backend: Backend | None = None


class Executor(Protocol):
    """Starts workers and waits for them.

    `detaches = True` says that workers go on when the command that started them ends; `device` is where networks are
    trained by default.
    """

    def count(self, job: Job, waiting: int, workers: int | None) -> int:
        """How many workers to start for `waiting` runs; `workers` is what the user asked for."""
        ...

    def run(self, job: Job, workers: int, on_event: Callable[[Event], None]) -> bool:
        """Run the workers until no run is left; False when stopped by the user."""
        ...


def make_executor(name: str, resources: Mapping[str, Any]) -> Executor:
    """The executor of this name, given the resources that were asked for."""
    found = EXECUTORS.load(name, UnknownExecutor, "executor")
    try:
        return cast(Executor, found(**resources))
    except TypeError as error:
        raise InvalidInput(f"executor {name!r} does not take these resources ({error})", where="executor") from None
