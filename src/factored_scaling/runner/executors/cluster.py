"""Shared parts of cluster executors: files of a submission, following runs, checks of the database."""

from __future__ import annotations

import math
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from factored_scaling.core.checks import real, shown, whole
from factored_scaling.errors import FscError, InvalidInput, RunFailed
from factored_scaling.runner.events import Event, RunEnded, Warned
from factored_scaling.runner.executors import Job
from factored_scaling.runner.options import WorkOptions
from factored_scaling.runner.queue import RunQueue
from factored_scaling.runner.remote import REASON, write_job
from factored_scaling.store import Store
from factored_scaling.store.documents import JOBS

USUAL = 8  # default number of workers
LOOK = 2.0  # seconds between two looks at the runs
LINGER = 1.25  # lease lengths that an idle worker waits, so that it can take over the run of a dead one
# File systems on which SQLite's locks do not hold between machines.
NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "afs", "9p")


class ClusterExecutor:
    """Base of cluster executors. `settings` turns resources into the options of the cluster."""

    def __init__(
        self,
        settings: Callable[..., dict[str, Any]],
        given: dict[str, Any],
        evaluators: int,
        evaluator_resources: Mapping[str, Any] | None,
    ) -> None:
        self.device = "cuda" if given["gpus"] else None
        self._settings = settings(**given)
        self._evaluators = whole(evaluators, "executor.evaluators", least=0, what="number of evaluators")
        theirs = evaluator_settings(given, evaluator_resources)
        self._evaluator_device = "cuda" if theirs["gpus"] else "cpu"
        self._evaluator_settings = settings(**theirs)

    def count(self, job: Job, waiting: int, workers: int | None) -> int:
        """The requested number, at most what the waiting runs need."""
        return min(workers or USUAL, math.ceil(waiting / job.options.runs_at_once))


@contextmanager
def written_in(folder: Path) -> Iterator[None]:
    """Turn an error on writing files into one that names the folder and the reason."""
    try:
        yield
    except OSError as error:
        what = f"the files of the jobs cannot be written ({error.strerror or error})"
        raise RunFailed(what, where=str(folder), hint="is the disk full, or your quota used up?") from None


def prepare(job: Job, name: str) -> Path:
    """Check that the work can go to other machines and make the folder of a submission; returns the folder."""
    if job.backend is not None:
        hint = "give a backend by name or `package.module:Class`, or executor='local'"
        raise InvalidInput("a function or an object cannot be sent to other machines", where="executor", hint=hint)
    check_shared(job)
    folder = job.folder / "jobs" / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    folder.mkdir(parents=True)
    return folder


def job_file(job: Job, options: WorkOptions, path: Path, trainers: Mapping[str, Any] | None = None) -> str:
    """Write the file that workers with these options read; returns its path."""
    options = replace(options, idle_seconds=LINGER * options.lease_seconds)
    write_job(replace(job, options=options, trainers=trainers or {}), path)
    return str(path)


def evaluator_settings(settings: Mapping[str, Any], given: object) -> dict[str, Any]:
    """Resources of an evaluator: those of the workers without GPUs, overridden by `given`.

    Names that are not in `settings` go to `resources`; an empty text or 0 removes a name from there.
    """
    own = {**settings, "gpus": 0}
    more = further(own["resources"], "resources")
    for name, value in further(given, "evaluator_resources").items():
        if name in own and name != "resources":
            own[name] = _number(value) if name in ("gpus", "cpus", "memory") else value
        elif value in ("", 0, "0", None):
            more.pop(name, None)
        else:
            more[name] = value
    return {**own, "resources": more}


def _number(value: object) -> object:
    """A text from the command line as a number, if it is one."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def amount(value: object, name: str, least: float = 0.0) -> float:
    """A checked amount of a resource."""
    number = real(value)
    if number is None or not number >= least:
        raise InvalidInput(f"expected a number of at least {least:g}, not {shown(value)}", where=f"executor.{name}")
    return number


def further(resources: object, name: str = "resources") -> dict[str, Any]:
    """Resources with names of the cluster, as a dict."""
    if resources is None:
        return {}
    if not isinstance(resources, Mapping):
        raise InvalidInput(f"expected a mapping, not {shown(resources)}", where=f"executor.{name}")
    return dict(resources)


def check_shared(job: Job) -> None:
    """Raise InvalidInput for an SQLite file on a network file system."""
    with Store.open(job.address, create=False) as store:
        file = store.file
    if file is not None and (kind := file_system(file)).removeprefix("fuse.") in (*NETWORK, "sshfs"):
        what = f"the SQLite file is on a network file system ({kind}), where locks are unreliable"
        hint = "keep the study in PostgreSQL: `fsc export` here, then `fsc import postgresql://HOST/DATABASE#NAME`"
        raise InvalidInput(what, where=str(file), hint=hint)


def file_system(path: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """The type of the file system that holds `path`; empty where it is unknown."""
    try:
        lines = [line.split() for line in mounts.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return ""
    place = path.resolve()
    holds = [(words[1].replace("\\040", " "), words[2]) for words in lines if len(words) > 2]
    found = [(len(point), kind) for point, kind in holds if place.is_relative_to(point)]
    return max(found)[1] if found else ""


def record(job: Job, folder: Path, body: Mapping[str, Any]) -> None:
    """Store a submission with the study, for `fsc stop` and to find its logs."""
    with Store.open(job.address, create=False) as store:
        entry = {"logs": str(folder), "host": socket.gethostname(), **body}
        store.put_document(job.study_id, JOBS, folder.name, entry)


def follow(job: Job, folder: Path, on_event: Callable[[Event], None], over: Callable[[], str | None]) -> bool:
    """Report runs as they end, until none is left or workers were asked to stop; False when interrupted.

    An interrupt stops no worker. `folder` is that of the submission. `over` returns why no worker is left, or None
    while there are some. An unreachable scheduler or database is a warning, because workers continue.
    """
    states: dict[int, str] = {}
    warned = ""
    try:
        while True:
            try:
                reason = over()
                left, ending = _report(job, states, on_event)
            except FscError as error:
                if str(error) != warned:
                    warned = str(error)
                    on_event(Warned(f"{error}; workers continue"))
                time.sleep(5 * LOOK)
                continue
            if not left or (reason is not None and ending):
                return True
            if reason is not None:
                said = folder / REASON
                reason += f": {said.read_text(encoding='utf-8').strip()}" if said.exists() else ""
                raise RunFailed(f"{reason}; {left} runs are not done", hint=f"logs are in {folder}")
            time.sleep(LOOK)
    except KeyboardInterrupt:
        return False


def _report(job: Job, states: dict[int, str], on_event: Callable[[Event], None]) -> tuple[int, bool]:
    """Report what changed since the last look.

    Returns how many runs are left, and whether workers have reason to leave them: a stop, or failures of the others.
    """
    with Store.open(job.address, create=False) as store:
        stop = RunQueue(store, job.study_id).stop_requested()
        outline = store.outline(job.study_id)
        changed = [run for run in outline if states and states.get(run.id) != run.state]
        failed = [run.id for run in changed if run.state == "failed"]
        errors = {run.id: run.error or "" for run in store.some_runs(failed)} if failed else {}
    for run in changed:
        if run.state == "done" or run.state == "trained" or run.state == "failed":
            on_event(RunEnded(run.id, run.state, errors.get(run.id, "")))
    states.update({run.id: run.state for run in outline})
    left = sum(run.state in ("pending", "running") for run in outline)
    return left, stop is not None or any(run.state == "failed" for run in outline)
