"""Workers as jobs of Slurm, submitted with submitit."""

from __future__ import annotations

import io
import math
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import Any

from factored_scaling.errors import InvalidInput, RunFailed, installs
from factored_scaling.runner.events import Event, Warned
from factored_scaling.runner.executors import Job, split_stages
from factored_scaling.runner.executors.cluster import (
    ClusterExecutor,
    amount,
    follow,
    further,
    job_file,
    prepare,
    record,
    written_in,
)
from factored_scaling.runner.remote import PATIENCE, Worker

WARNING = 2 * PATIENCE  # seconds before the time limit at which Slurm warns a job
MOST_RUNNING = 256  # jobs of one array that run at once
LOOK = 1.0  # seconds between two looks at whether cancelled jobs have ended


class SlurmExecutor(ClusterExecutor):
    """An array of jobs with one worker each.

    A job that is preempted or reaches its time limit saves a resume point and is queued again; so is one whose node
    fails. `gpus` and `cpus` are per worker, `memory` is in GB, `time` is HH:MM:SS or minutes; `resources` are further
    options of sbatch, such as `{"constraint": "a100"}`.

    With `evaluators`, these workers only train, and a second array of as many jobs measures the policies. It gets the
    same resources without GPUs, overridden by `evaluator_resources`, and starts after the first worker.
    """

    def __init__(
        self,
        *,
        gpus: float = 0,
        cpus: float = 1,
        memory: float | None = None,
        time: str | int = "04:00:00",
        partition: str | None = None,
        resources: Mapping[str, Any] | None = None,
        evaluators: int = 0,
        evaluator_resources: Mapping[str, Any] | None = None,
    ) -> None:
        given: dict[str, Any] = {"gpus": gpus, "cpus": cpus, "memory": memory, "time": time, "partition": partition}
        given["resources"] = resources
        super().__init__(_parameters, given, evaluators, evaluator_resources)

    def run(self, job: Job, workers: int, on_event: Callable[[Event], None]) -> bool:
        """Submit the jobs and follow the runs. After an interrupt the jobs continue."""
        folder, ids = self.submit(job, workers)
        warned = ""

        def over() -> str | None:
            nonlocal warned
            jobs = alive(ids)
            waits = "" if "RUNNING" in [state for state, _ in jobs] else "; ".join(sorted({why for _, why in jobs}))
            if waits not in ("", "None", "Priority", "Resources", "Dependency", warned):
                on_event(Warned(f"the jobs wait in Slurm's queue: {waits}"))
            warned = waits
            return None if jobs else "no Slurm job of this study is left"

        return follow(job, folder, on_event, over)

    def submit(self, job: Job, workers: int) -> tuple[Path, list[str]]:
        """Submit an array of jobs, and one of evaluators; returns the folder of their logs and their ids."""
        if shutil.which("sbatch") is None:
            raise InvalidInput("no `sbatch` here", where="executor", hint="run this on a login node of the cluster")
        try:
            import submitit
            from submitit.core.utils import FailedJobError
        except ImportError:
            raise InvalidInput("executor slurm needs submitit", where="executor", hint=installs("slurm")) from None
        with written_in(job.folder / "jobs"):
            return self._submit(job, workers, submitit.AutoExecutor, FailedJobError)

    def _submit(
        self, job: Job, workers: int, make: Callable[..., Any], refused: type[Exception]
    ) -> tuple[Path, list[str]]:
        folder = prepare(job, "slurm")
        name = f"fsc-{folder.name}"

        def array(path: str, count: int, parameters: Mapping[str, Any]) -> list[str]:
            executor = make(folder, cluster="slurm", slurm_max_num_timeout=100_000)
            executor.update_parameters(name=name, **parameters)
            patience = parameters["slurm_signal_delay_s"] / 2  # the rest is for queueing the job again
            try:
                # what sbatch prints is in the error
                with redirect_stderr(io.StringIO()), executor.batch():
                    jobs = [executor.submit(Worker(path, patience=patience)) for _ in range(count)]
            except refused as error:
                reason = last_line(str(error))
                if "Unable to contact" in reason:
                    what, hint = f"Slurm cannot be reached ({reason})", "nothing was submitted; try again later"
                else:
                    what, hint = f"Slurm refused the jobs: {reason}", "`sinfo` lists partitions and limits"
                raise RunFailed(what, hint=hint) from None
            return [str(one.job_id) for one in jobs]

        own, theirs = split_stages(job.options, self._evaluators, self._evaluator_device)
        ids = array(job_file(job, own, folder / "job.json"), workers, self._settings)
        try:
            if self._evaluators:
                path = job_file(job, theirs, folder / "evaluate.json", {"executor": "slurm", "ids": ids})
                parameters, more = self._evaluator_settings, "slurm_additional_parameters"
                # earlier there is nothing to evaluate
                parameters = {**parameters, more: {"dependency": f"after:{ids[0]}", **parameters[more]}}
                ids = ids + array(path, self._evaluators, parameters)
            record(job, folder, {"executor": "slurm", "name": name, "ids": ids})
        except BaseException:  # nobody would find jobs that are not recorded
            with suppress(RunFailed):
                _scancel({"name": name, "ids": ids})
            raise
        return folder, ids

    @staticmethod
    def trains(trainers: Mapping[str, Any]) -> bool:
        """Whether jobs of workers that train are queued or running; where Slurm does not answer, they may be."""
        try:
            return bool(alive(trainers["ids"]))
        except RunFailed:
            return True

    @staticmethod
    def log(submission: Mapping[str, Any], job: str) -> str:
        """The log of one of its jobs."""
        return str(Path(submission["logs"]) / f"{job}_0_log.out") if job in submission["ids"] else ""

    @staticmethod
    def cancel(submission: Mapping[str, Any]) -> None:
        """Cancel the queued jobs of a submission, and wait until the running ones have reached a safe point.

        A plain scancel would give them KillWait, by default 30 s; it ends those that need more than `PATIENCE`.
        """
        _scancel(submission, "--state=PENDING")
        # one that has no process yet finds the stop request in the record
        _ask(*_scancel_command(submission), "--state=RUNNING", "--signal=TERM")
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if "RUNNING" not in [state for state, _ in alive(submission["ids"], submission["name"])]:
                break
            time.sleep(LOOK)
        _scancel(submission)  # also those that were queued again meanwhile


def _parameters(
    gpus: float,
    cpus: float,
    memory: float | None,
    time: str | int,
    partition: str | None,
    resources: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Parameters of submitit for these resources."""
    gpus, cpus = amount(gpus, "gpus"), amount(cpus, "cpus", 1)
    if gpus != int(gpus):
        hint = "a worker with one GPU trains several runs at once: --together"
        raise InvalidInput(f"Slurm gives whole GPUs, not {gpus:g}", where="gpus", hint=hint)
    limit = minutes(time)
    parameters: dict[str, Any] = {
        "timeout_min": limit,
        "cpus_per_task": int(cpus),
        "slurm_signal_delay_s": int(min(WARNING, 60 * limit / 2)),
        "slurm_array_parallelism": MOST_RUNNING,
        "slurm_stderr_to_stdout": True,
        "slurm_additional_parameters": {"requeue": True, **further(resources)},
        "gpus_per_node": int(gpus) or None,
        "mem_gb": None if memory is None else amount(memory, "memory"),
        "slurm_partition": None if partition is None else str(partition),
    }
    return parameters


def minutes(time: str | int) -> int:
    """Minutes of `HH:MM:SS`, `D-HH:MM:SS`, `HH:MM` or a number of minutes."""
    text = str(time).strip()
    days, _, clock = text.rpartition("-")
    try:
        numbers = [int(part) for part in clock.split(":")]
        if len(numbers) > 3:
            raise ValueError
        if len(numbers) == 1 and not days:
            total = float(numbers[0])
        else:
            hours, more, seconds = (*numbers, 0, 0)[:3]
            total = (int(days or 0) * 24 + hours) * 60 + more + seconds / 60
        if total <= 0:
            raise ValueError
    except ValueError:
        raise InvalidInput(f"expected a time such as 04:00:00, not {text!r}", where="time") from None
    return math.ceil(total)


def alive(ids: Sequence[str], name: str = "") -> list[tuple[str, str]]:
    """State and reason of the queued and running jobs, of this name if given; RunFailed if Slurm does not answer."""
    named = [f"--name={name}"] if name else []
    done = _ask("squeue", "--noheader", "--format=%T %r", f"--jobs={','.join(_arrays(ids))}", *named)
    if done.returncode and "Invalid job id" not in done.stderr:
        raise RunFailed(f"Slurm cannot be reached ({last_line(done.stderr)})")
    lines = (line.partition(" ") for line in done.stdout.splitlines() if line.strip())
    return [(state, reason.strip()) for state, _, reason in lines]


def _scancel(submission: Mapping[str, Any], *options: str) -> None:
    done = _ask(*_scancel_command(submission), *options)
    if done.returncode and "Invalid job id" not in done.stderr:
        raise RunFailed(f"Slurm did not cancel the jobs ({last_line(done.stderr)})")


def _scancel_command(submission: Mapping[str, Any]) -> list[str]:
    # by name too, because a reinstalled cluster reuses job numbers
    return ["scancel", f"--name={submission['name']}", *_arrays(submission["ids"])]


def _arrays(ids: Sequence[str]) -> list[str]:
    return sorted({id_.partition("_")[0] for id_ in ids})


def _ask(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunFailed(f"Slurm cannot be reached ({error})") from None


def last_line(text: str) -> str:
    """The last non-empty line, of sbatch's own lines if there are any."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in lines if line.startswith("sbatch: ")]
    return (own or lines or ["no reason given"])[-1]
