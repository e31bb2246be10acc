"""Workers as jobs of Slurm, submitted with submitit."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from factored_scaling.errors import InvalidInput, RunFailed, installs
from factored_scaling.runner.events import Event, Warned
from factored_scaling.runner.executors import Job
from factored_scaling.runner.executors.cluster import USUAL, amount, follow, further, prepare, record
from factored_scaling.runner.remote import PATIENCE, Worker

WARNING = 2 * PATIENCE  # seconds before the time limit at which Slurm warns a job
MOST_RUNNING = 256  # jobs of one array that run at once


class SlurmExecutor:
    """An array of jobs with one worker each.

    A job that is preempted or reaches its time limit saves a resume point and is queued again; so is one whose node
    fails. `gpus` and `cpus` are per worker, `memory` is in GB, `time` is HH:MM:SS or minutes; `resources` are further
    options of sbatch, such as `{"constraint": "a100"}`.
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
    ) -> None:
        gpus, cpus = amount(gpus, "gpus"), amount(cpus, "cpus", 1)
        if gpus != int(gpus):
            hint = "a worker with one GPU trains several runs at once: --together"
            raise InvalidInput(f"Slurm gives whole GPUs, not {gpus:g}", where="gpus", hint=hint)
        limit = minutes(time)
        self.device = "cuda" if gpus else None
        self._parameters: dict[str, Any] = {
            "timeout_min": limit,
            "cpus_per_task": int(cpus),
            "slurm_signal_delay_s": int(min(WARNING, 60 * limit / 2)),
            "slurm_array_parallelism": MOST_RUNNING,
            "slurm_stderr_to_stdout": True,
            "slurm_additional_parameters": {"requeue": True, **further(resources)},
        }
        if gpus:
            self._parameters["gpus_per_node"] = int(gpus)
        if memory is not None:
            self._parameters["mem_gb"] = amount(memory, "memory")
        if partition is not None:
            self._parameters["slurm_partition"] = str(partition)

    def count(self, job: Job, waiting: int, workers: int | None) -> int:
        """As many as asked for, no more than there is work for."""
        return min(workers or USUAL, math.ceil(waiting / job.options.runs_at_once))

    def run(self, job: Job, workers: int, on_event: Callable[[Event], None]) -> bool:
        """Submit the jobs and follow the runs; interrupted, the jobs go on."""
        folder, ids = self.submit(job, workers)
        warned = ""

        def over() -> str | None:
            nonlocal warned
            jobs = alive(ids)
            waits = "" if "RUNNING" in [state for state, _ in jobs] else "; ".join(sorted({why for _, why in jobs}))
            if waits not in ("", "None", "Priority", "Resources", warned):
                on_event(Warned(f"the jobs wait in Slurm's queue: {waits}"))
            warned = waits
            return None if jobs else "no Slurm job of this study is left"

        return follow(job, folder, on_event, over)

    def submit(self, job: Job, workers: int) -> tuple[Path, list[str]]:
        """Submit an array of jobs; returns the folder of their logs and their ids."""
        if shutil.which("sbatch") is None:
            raise InvalidInput("no `sbatch` here", where="executor", hint="run this on a login node of the cluster")
        try:
            import submitit
            from submitit.core.utils import FailedJobError
        except ImportError:
            raise InvalidInput("executor slurm needs submitit", where="executor", hint=installs("slurm")) from None
        folder = prepare(job, "slurm")
        executor = submitit.AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=100_000)
        name = f"fsc-{folder.name}"
        executor.update_parameters(name=name, **self._parameters)
        try:
            with executor.batch():
                jobs = [executor.submit(Worker(str(folder / "job.json"))) for _ in range(workers)]
        except FailedJobError as error:
            reason = last_line(str(error))
            raise RunFailed(f"Slurm refused the jobs: {reason}", hint="`sinfo` lists partitions and limits") from None
        ids = [str(one.job_id) for one in jobs]
        record(job, folder, {"executor": "slurm", "name": name, "ids": ids})
        return folder, ids

    @staticmethod
    def cancel(submission: Mapping[str, Any]) -> None:
        """Cancel the jobs of a submission, queued and running."""
        # with the name: a cluster that was set up anew gives numbers again
        ids = sorted({id_.partition("_")[0] for id_ in submission["ids"]})
        done = _ask("scancel", f"--name={submission['name']}", *ids)
        if done.returncode and "Invalid job id" not in done.stderr:
            raise RunFailed(f"Slurm did not cancel the jobs ({last_line(done.stderr)})")


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


def alive(ids: Sequence[str]) -> list[tuple[str, str]]:
    """State and reason of those jobs that are queued or running; RunFailed where Slurm does not answer."""
    arrays = sorted({id_.partition("_")[0] for id_ in ids})
    done = _ask("squeue", "--noheader", "--format=%T %r", f"--jobs={','.join(arrays)}")
    if done.returncode and "Invalid job id" not in done.stderr:
        raise RunFailed(f"Slurm cannot be reached ({last_line(done.stderr)})")
    lines = (line.partition(" ") for line in done.stdout.splitlines() if line.strip())
    return [(state, reason.strip()) for state, _, reason in lines]


def _ask(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunFailed(f"Slurm cannot be reached ({error})") from None


def last_line(text: str) -> str:
    """The last line with something on it, of sbatch's own where there are any."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line.removeprefix("sbatch: ").removeprefix("error: ") for line in lines if line.startswith("sbatch: ")]
    return (own or lines or ["no reason given"])[-1]
