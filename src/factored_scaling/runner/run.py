"""Carry out a study's pending runs: check the settings, start workers, and return the state of the runs."""

from __future__ import annotations

import logging
import math
import multiprocessing
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from factored_scaling.backends import Backend, BackendRequest, backend_settings, make_backend, trains_in_process
from factored_scaling.core.checks import shown, whole
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput, RunFailed
from factored_scaling.runner.events import Event, Finished, RunEnded, Started, Warned
from factored_scaling.runner.executors import DetachedExecutor, Job, executor_settings, make_executor
from factored_scaling.runner.options import WORKER, WorkOptions, claim_folders
from factored_scaling.runner.queue import RunQueue, has_ended, lease_length, listed, mixed_settings
from factored_scaling.store.documents import TRAINED

MIXED = "curves may mix runs that are not comparable"
LONG = 600.0  # seconds left of a lease; those of workers are shorter
_IMPORTING: ContextVar[bool] = ContextVar("importing", default=False)
_LOGGER = logging.getLogger("factored_scaling")


@dataclass(frozen=True)
class RunSummary:
    """The state of a study's runs after work on them, by id."""

    done: tuple[int, ...]
    trained: tuple[int, ...]
    failed: tuple[int, ...]
    pending: tuple[int, ...]
    # the part of `failed` that had failed before
    failed_before: tuple[int, ...]
    # reasons of the failures, by id
    errors: Mapping[int, str]
    # whether the user stopped it before all runs were done
    stopped: bool = False
    # whether workers keep running on a cluster
    detached: bool = False

    def raise_for_failures(self) -> None:
        """Raise RunFailed when runs have failed."""
        if self.failed:
            what = f"{listed(self.failed)} failed, the first: {self.errors[self.failed[0]]}"
            raise RunFailed(what, hint="fix the cause and call run(retry_failed=True)")


def run_study(
    queue: RunQueue,
    folder: Path,
    *,
    backend: Backend | str | Mapping[str, Any] | None = None,
    executor: str | None = None,
    workers: int | None = None,
    device: str | None = None,
    together: int | None = None,
    attempts: int = 2,
    lease_seconds: float = 60.0,
    retry_failed: bool = False,
    detach: bool = False,
    on_event: Callable[[Event], None] | None = None,
    **resources: Any,
) -> RunSummary:
    """Train and measure every pending run of a study. `Study.run` documents the parameters.

    `folder` holds checkpoints and logs, and is where relative paths of study.yaml begin. A `backend` object is used in
    threads of this process; with a name or settings, or those of the study, workers make their own.
    """

    def tell(event: Event) -> None:
        if isinstance(event, Warned):
            # who listens shows it; Python prints the warnings of loggers that nobody set up
            _LOGGER.log(logging.WARNING if on_event is None else logging.INFO, event.message)
        elif isinstance(event, RunEnded):
            _LOGGER.info("run %d: %s %s", event.run, event.state, event.note)
        if on_event is not None:
            on_event(event)

    _check_not_importing()
    workers = None if workers is None else whole(workers, "workers", least=1, what="the number of workers")
    together = None if together is None else whole(together, "together", least=1, what="the number of runs")
    attempts = whole(attempts, "attempts", least=1, what="the number of attempts")
    lease_seconds = lease_length(lease_seconds)
    given, settings = None, dict[str, Any]()
    if backend is None:
        settings = backend_settings(queue.spec)
    elif isinstance(backend, str):
        settings = {"kind": backend}
    elif isinstance(backend, Mapping):
        settings = dict(backend)
    else:
        given = backend
    _check_importable(settings.get("kind"), queue.spec.task)
    name, workers, resources = executor_settings(queue.spec.executor, executor, workers, resources)
    chosen = make_executor(name, resources)
    if detach and not isinstance(chosen, DetachedExecutor):
        what = f"workers of executor {name!r} end with the command that started them"
        raise InvalidInput(what, where="detach", hint="use executor slurm or ray, or leave it out")
    checked = given if given is not None else check_backend(queue.spec, folder, settings)
    _check_methods(checked)
    _check_episodes(queue, checked, retry_failed)
    if getattr(checked, "keeps_results", False):
        (study,) = (row for row in queue.store.studies() if row.id == queue.id)
        unfinished = [run.digest for run in queue.runs() if run.state != "done"]
        claim_folders(folder, unfinished, study.name, study.created)
    if retry_failed:
        for run in queue.runs():
            if run.state == "failed":
                queue.store.retry(run.id)
    device = device or getattr(chosen, "device", None) or ("cpu" if trains_in_process(settings) else "")
    queue.request_stop(None)
    for message in [
        *_held(queue),
        *_mixed(queue),
        *_changed(queue, checked),
        *_default_backend(queue, settings, checked, device),
    ]:
        tell(Warned(message))
    started = queue.runs()
    before = tuple(run.id for run in started if run.state == "failed")
    waiting = [run for run in started if run.state in ("pending", "running")]
    complete = True
    if waiting:
        options = WorkOptions(lease_seconds, attempts, device, backend=settings, together=together)
        if together is None and workers is not None and isinstance(chosen, DetachedExecutor):
            # so that every machine has work
            options = replace(options, together=min(options.runs_at_once, math.ceil(len(waiting) / workers)))
        job = Job(queue.store.address, queue.id, folder, options, given)
        count = chosen.count(job, len(waiting), workers)
        done = sum(run.state == "done" for run in started)
        resumed = frozenset(run.id for run in waiting if run.attempts)
        tell(Started(done, done + len(waiting), count, resumed))
        if detach and isinstance(chosen, DetachedExecutor):
            chosen.submit(job, count)
            complete = False
        else:
            complete = chosen.run(job, count, tell)
        tell(Finished(not complete))
    runs = queue.runs()
    by_state = {state: tuple(run.id for run in runs if run.state == state) for state in ("done", "trained", "failed")}
    pending = tuple(run.id for run in runs if run.state in ("pending", "running"))
    errors = {run.id: run.error or "" for run in runs if run.state == "failed"}
    again = tuple(id_ for id_ in before if id_ in errors)
    detached = not complete and isinstance(chosen, DetachedExecutor)
    stopped = (not complete and not detach) or (bool(pending) and queue.stop_requested() is not None)
    return RunSummary(
        **by_state, pending=pending, failed_before=again, errors=errors, stopped=stopped, detached=detached
    )


def check_backend(spec: StudySpec, folder: Path, settings: Mapping[str, Any] | None = None) -> Backend:
    """The study's backend, made to find mistakes in its settings before a worker starts.

    `settings` replace those of the study.
    """
    settings = backend_settings(spec) if settings is None else settings
    if not settings:
        hint = "add `dataset:`, `trainer:` or `task: tabletop/pick-place`; or train it yourself and `fsc record` scores"
        raise InvalidInput("this study names no dataset, no trainer and no simulator task", where="trainer", hint=hint)
    importing = _IMPORTING.set(True)
    try:
        return make_backend(
            BackendRequest(settings, spec.policy, spec.evaluation, spec.task, folder, factors=spec.names)
        )
    finally:
        _IMPORTING.reset(importing)


def _check_not_importing() -> None:
    """The module of a backend must not run the study: workers import it, and each would start workers."""
    if _IMPORTING.get() or multiprocessing.current_process().name == WORKER:
        hint = 'put the call under `if __name__ == "__main__":`, or pass the backend as an object'
        raise RunFailed("the module of the backend runs the study when it is imported", hint=hint)


def _check_importable(*references: object) -> None:
    for reference in references:
        if isinstance(reference, str) and reference.startswith("__main__:"):
            what = f"{reference!r} is in the script that runs, which workers do not import"
            raise InvalidInput(what, where="backend", hint="pass the object, or write it as module:Class")


def _check_methods(backend: Backend) -> None:
    """Whatever is given as a backend trains and evaluates."""
    if isinstance(backend, type):
        what = f"expected an object, not the class {backend.__name__}"
        raise InvalidInput(what, where="backend", hint=f"pass {backend.__name__}(…)")
    for names in (("train",), ("evaluate", "evaluate_many")):
        if not any(callable(getattr(backend, name, None)) for name in names):
            hint = "a backend has train(run, folder, context) and evaluate(run, folder, context)"
            raise InvalidInput(f"{shown(backend)} has no method {names[0]}", where="backend", hint=hint)


def _check_episodes(queue: RunQueue, backend: Backend, retry_failed: bool) -> None:
    """Demos that the dataset has lost, or does not have yet, are an error of the study and not of every run."""
    check = getattr(backend, "check", None)
    if check is None:
        return
    states = ("pending", "failed") if retry_failed else ("pending",)
    specs = queue.store.specs([run.id for run in queue.runs() if run.state in states])
    wanted = {id_: None for spec in specs.values() for id_ in spec.episodes}
    if wanted:
        check(list(wanted))


def _held(queue: RunQueue) -> list[str]:
    """Runs that workers will wait for, although nobody may be working on them."""
    messages = []
    for run in queue.store.runs(queue.id):
        left = (run.lease_expires or 0.0) - time.time()
        if run.state == "running" and left > 0 and run.worker and (left > LONG or has_ended(run.worker)):
            ended = ", which has ended," if has_ended(run.worker) else ""
            until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.lease_expires))
            what = f"run {run.id} is leased by {run.worker}{ended} until {until}"
            messages.append(f"{what}; workers wait for that, unless `Study.release({run.id})` returns it to the queue")
    return messages


def _mixed(queue: RunQueue) -> list[str]:
    """A warning where some runs were planned before a change of study.yaml."""
    runs = queue.runs()
    mixed = mixed_settings(queue.spec, runs)
    if not mixed or not any(run.state == "pending" for run in runs):
        return []
    return [f"{mixed}; those runs keep the old settings, so {MIXED}; start a new study to avoid this"]


def _changed(queue: RunQueue, backend: Backend) -> list[str]:
    """Policies of one curve should differ in their demos alone, and not in the backend's settings."""
    describe = getattr(backend, "describe", None)
    if describe is None:
        return []
    now = describe()
    before = {document.key: document.body["trainer"] for document in queue.store.documents(queue.id, TRAINED)}
    other = [run.id for run in queue.runs() if before.get(run.digest, now) != now]
    if not other:
        return []
    return [f"`trainer:` has changed since {listed(other)} {'was' if len(other) == 1 else 'were'} trained; {MIXED}"]


def _default_backend(queue: RunQueue, settings: Mapping[str, Any], backend: Backend, device: str) -> list[str]:
    """The study names no backend and gets the default one: how long that will train, and where."""
    notice = getattr(backend, "notice", None)
    if notice is None or not settings or queue.spec.trainer or queue.spec.task is not None:
        return []
    if not any(run.state == "pending" for run in queue.runs()):
        return []
    return [f"no `trainer:` in study.yaml: {notice()}, on {device}"]
