"""Executors: where workers run. An executor starts and stops workers; the store decides which runs they take.

Packages add executors with an entry point in the group `factored_scaling.executors`; `package.module:Class` works
without one. The class is called with the requested resources as keywords.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from factored_scaling.backends import Backend
from factored_scaling.core.checks import listed
from factored_scaling.errors import InvalidInput, UnknownName
from factored_scaling.plugins import Registry
from factored_scaling.runner.events import Event
from factored_scaling.runner.options import WorkOptions
from factored_scaling.runner.queue import RunQueue
from factored_scaling.store.documents import JOBS

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

    `backend` is an object of this process; by default workers create the one that the options name. `trainers` is the
    argument of the executor's `trains`, for workers on a cluster that only evaluate.
    """

    address: str
    study_id: int
    folder: Path
    options: WorkOptions
    backend: Backend | None = None
    trainers: Mapping[str, Any] = field(default_factory=dict)


class Executor(Protocol):
    """Starts workers and waits for them.

    Optional: `device`, where networks are trained by default. An executor whose workers outlive the command that
    started them is a `DetachedExecutor`.
    """

    def count(self, job: Job, waiting: int, workers: int | None) -> int:
        """The number of workers to start for `waiting` runs; `workers` is the requested number."""
        ...

    def run(self, job: Job, workers: int, on_event: Callable[[Event], None]) -> bool:
        """Run the workers until no run is left; False when stopped by the user."""
        ...


@runtime_checkable
class DetachedExecutor(Protocol):
    """An executor whose workers outlive the command that started them.

    Optional: `log(submission, job)`, a static method, the path of the log of a job. The names of its workers begin with
    `KIND:JOB `, from the environment variable FSC_JOB_ID.
    """

    def count(self, job: Job, waiting: int, workers: int | None) -> int:
        """The number of workers to start for `waiting` runs; `workers` is the requested number."""
        ...

    def submit(self, job: Job, workers: int) -> object:
        """Start the workers and return."""
        ...

    def run(self, job: Job, workers: int, on_event: Callable[[Event], None]) -> bool:
        """Start the workers and follow their runs until none is left; False when interrupted, which stops no worker."""
        ...

    @staticmethod
    def cancel(submission: Mapping[str, Any]) -> None:
        """End the workers of a submission, which is the body of its document of the kind JOBS."""
        ...


def split_stages(options: WorkOptions, evaluators: int, device: str = "cpu") -> tuple[WorkOptions, WorkOptions]:
    """Options of workers and of evaluators, which use `device`. With evaluators, the workers only train."""
    device = device if options.device else ""  # an external program chooses its own
    evaluate = replace(options, stage="evaluate", device=device, together=None)
    return replace(options, stage="train") if evaluators else options, evaluate


def executor_settings(
    declared: Mapping[str, Any], kind: str | None, workers: int | None, resources: Mapping[str, Any]
) -> tuple[str, int | None, dict[str, Any]]:
    """The executor's name, the number of workers and its resources.

    `declared` are the settings of study.yaml. The other arguments override them; another `kind` discards them.
    """
    name = declared.get("kind", "local") if kind is None else kind
    settings = {key: value for key, value in declared.items() if key != "kind"} if name == declared.get("kind") else {}
    settings |= {key: value for key, value in resources.items() if value is not None}
    default = settings.pop("workers", None)
    return name, workers or default, settings


def make_executor(name: str, resources: Mapping[str, Any]) -> Executor:
    """Create the executor of this name with the requested resources."""
    kind = executor_class(name)
    parameters = inspect.signature(kind).parameters.values()
    known = [one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    unknown = [key for key in resources if key not in known]
    if unknown and not any(one.kind == one.VAR_KEYWORD for one in parameters):
        what = f"executor {name!r} does not take {listed(unknown)}"
        hint = f"it takes {listed(known)}" if name != "local" else "`--on slurm` and `--on ray` take resources"
        raise InvalidInput(what, where=f"executor.{unknown[0]}", hint=hint)
    try:
        return cast(Executor, kind(**resources))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"executor {name!r} does not take these resources ({error})", where="executor") from None


def cancel_jobs(queue: RunQueue) -> list[str]:
    """Cancel the scheduler jobs of a study; returns their names, such as `slurm 17`."""
    cancelled = []
    for row in queue.store.documents(queue.id, JOBS):
        if not row.body.get("cancelled"):
            executor_class(row.body["executor"]).cancel(row.body)
            queue.store.put_document(queue.id, JOBS, row.key, {**row.body, "cancelled": True})
            ids = sorted({id_.partition("_")[0] for id_ in row.body["ids"]})
            cancelled.append(f"{row.body['executor']} {', '.join(ids)}")
    return cancelled


def job_log(worker: str | None, submissions: Sequence[Mapping[str, Any]]) -> str:
    """The scheduler's log of the job that a worker's name begins with; empty where it is unknown.

    `submissions` are the bodies of documents of the kind JOBS.
    """
    kind, _, job = str(worker).partition(" ")[0].partition(":")
    for body in reversed(submissions):
        if body.get("executor") == kind:
            with suppress(UnknownExecutor):  # of a package that is not installed here
                executor = executor_class(kind)
                log = executor.log(body, job) if hasattr(executor, "log") else ""
                if log:
                    return str(log)
    return ""


def executor_class(name: str) -> Any:
    """The class of this name."""
    return EXECUTORS.load(name, UnknownExecutor, "executor")
