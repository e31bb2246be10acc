"""Workers as tasks of a Ray cluster.

The tasks belong to a driver process on this machine: `python -m factored_scaling.runner.executors.ray`. It outlives the
command that started it. A task whose node fails is restarted on another node.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from factored_scaling.errors import InvalidInput, RunFailed, StoreError, installs, one_line
from factored_scaling.runner.events import Event
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
from factored_scaling.runner.remote import PATIENCE, REASON, Worker, read_job
from factored_scaling.store import Store
from factored_scaling.store.documents import JOBS

STARTED, TRAINED = "started", "trained"  # files beside JOB.json: a worker runs; all that train have ended
LOOK, LOOK_FOR_CANCEL = 1.0, 5.0  # seconds between two looks at the tasks, and for a request to cancel them
CONNECT, ANSWER = 10.0, 30.0  # seconds in which a port must be open, and in which a cluster must answer
_DRIVERS: list[subprocess.Popen[bytes]] = []  # Python warns when a running process is garbage-collected


class RayExecutor(ClusterExecutor):
    """Tasks that keep one worker each.

    `gpus` may be a fraction: workers then share the device's memory, without protection from each other. `address` is
    that of the cluster; by default RAY_ADDRESS, or the cluster of this machine. `memory` is in GB; `resources` are the
    cluster's own, such as `{"a100": 1}`.

    With `evaluators`, these workers only train, and as many other tasks measure the policies. Those get the same
    resources without GPUs, overridden by `evaluator_resources`, and start after the first worker.
    """

    def __init__(
        self,
        *,
        gpus: float = 0,
        cpus: float = 1,
        memory: float | None = None,
        resources: Mapping[str, Any] | None = None,
        address: str | None = None,
        evaluators: int = 0,
        evaluator_resources: Mapping[str, Any] | None = None,
    ) -> None:
        given: dict[str, Any] = {"gpus": gpus, "cpus": cpus, "memory": memory, "resources": resources}
        self._address = address or os.environ.get("RAY_ADDRESS") or "auto"
        super().__init__(_options, given, evaluators, evaluator_resources)

    def run(self, job: Job, workers: int, on_event: Callable[[Event], None]) -> bool:
        """Start the driver and follow the runs. After an interrupt the tasks continue."""
        folder, driver = self.submit(job, workers)

        def over() -> str | None:
            code = driver.poll()
            return None if code is None else f"the driver of the Ray tasks ended with exit code {code}"

        complete = follow(job, folder, on_event, over)
        if complete:
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(10)
        return complete

    def submit(self, job: Job, workers: int) -> tuple[Path, subprocess.Popen[bytes]]:
        """Start the driver of the tasks; returns the folder of its log and the process."""
        try:
            import ray  # noqa: F401
        except ImportError:
            raise InvalidInput("executor ray needs Ray", where="executor", hint=installs("ray")) from None
        check_reachable(self._address)
        with written_in(job.folder / "jobs"):
            folder = prepare(job, "ray")
            own, theirs = split_stages(job.options, self._evaluators, self._evaluator_device)
            path = job_file(job, own, folder / "job.json")
            tasks = [{"path": path, "count": workers, "options": self._settings}]
            if self._evaluators:
                path = job_file(job, theirs, folder / "evaluate.json", {"executor": "ray", "folder": str(folder)})
                tasks.append({"path": path, "count": self._evaluators, "options": self._evaluator_settings})
            plan = {"address": self._address, "tasks": tasks}
            (folder / "ray.json").write_text(json.dumps(plan), encoding="utf-8")
            command = [sys.executable, "-m", "factored_scaling.runner.executors.ray", str(folder)]
            with (folder / "driver.log").open("wb") as log:
                environment = {**os.environ, "RAY_DEDUP_LOGS": "0", "RAY_COLOR_PREFIX": "0"}
                driver = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        _DRIVERS.append(driver)
        try:
            record(job, folder, {"executor": "ray", "ids": [str(driver.pid)]})
        except BaseException:  # nobody would find tasks that are not recorded
            driver.terminate()
            raise
        return folder, driver

    @staticmethod
    def trains(trainers: Mapping[str, Any]) -> bool:
        """Whether tasks of workers that train wait or run."""
        return not (Path(trainers["folder"]) / TRAINED).exists()

    @staticmethod
    def log(submission: Mapping[str, Any], job: str) -> str:
        """The log of all tasks, which the driver writes."""
        return str(Path(submission["logs"]) / "driver.log")

    @staticmethod
    def cancel(submission: Mapping[str, Any]) -> None:
        """End the driver of a submission, and with it the tasks.

        A driver on another machine ends by itself, because it checks whether its submission is cancelled.
        """
        for id_ in submission["ids"] if submission["host"] == socket.gethostname() else ():
            # the number may belong to another process by now
            with contextlib.suppress(OSError):
                if submission["logs"].encode() in Path(f"/proc/{id_}/cmdline").read_bytes():
                    os.kill(int(id_), signal.SIGTERM)


def check_reachable(address: str) -> None:
    """Raise RunFailed if nothing listens at HOST:PORT; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT).close()
    except OSError as error:
        what = f"Ray cannot be reached at {address} ({error.strerror or error})"
        raise RunFailed(what, hint="`ray status` on a node of the cluster shows its address; set RAY_ADDRESS") from None


def drive(folder: Path) -> int:
    """Run one task per worker until all have ended; returns 1 if all of them failed."""
    import ray

    plan = json.loads((folder / "ray.json").read_text(encoding="utf-8"))

    def no_answer(reason: str) -> None:
        text = f"Ray cannot be reached at {plan['address']} ({reason})\n"
        (folder / REASON).write_text(text, encoding="utf-8")

    def give_up() -> None:
        no_answer(f"no answer in {ANSWER:.0f} s")
        os._exit(1)  # Ray itself tries for minutes

    watchdog = threading.Timer(ANSWER, give_up)
    watchdog.daemon = True
    watchdog.start()
    try:
        ray.init(address=plan["address"], namespace="factored-scaling")
    except (OSError, RuntimeError, ValueError) as error:
        no_answer(one_line(str(error)))
        raise
    finally:
        watchdog.cancel()
    cancelled = False  # a plain variable, because a signal handler must not wait for the lock of an event

    def cancel(number: int, frame: FrameType | None) -> None:
        nonlocal cancelled
        cancelled = True

    signal.signal(signal.SIGTERM, cancel)
    training, *evaluating = [
        (
            ray.remote(**each["options"], max_retries=-1, scheduling_strategy="SPREAD")(_task),
            each["path"],
            each["count"],
        )
        for each in plan["tasks"]
    ]

    def start(task: Any, path: str, count: int) -> list[Any]:
        return [task.remote(path) for _ in range(count)]

    waiting = trainers = start(*training)
    failures, count, looked = 0, len(waiting), time.monotonic()
    while waiting:
        ended, waiting = ray.wait(waiting, num_returns=1, timeout=LOOK)
        for one in ended:
            try:
                print(ray.get(one), flush=True)
            except ray.exceptions.RayError as error:
                failures += 1
                print(error, file=sys.stderr, flush=True)
        if evaluating and (ended or (folder / STARTED).exists()):
            # earlier they would have nothing to evaluate and hold the cores that a worker waits for
            later = start(*evaluating.pop())
            waiting, count = [*waiting, *later], count + len(later)
        if not any(one in trainers for one in waiting):
            with contextlib.suppress(OSError):  # the folder was removed
                (folder / TRAINED).touch()
        if time.monotonic() - looked > LOOK_FOR_CANCEL:
            looked = time.monotonic()
            if _cancelled(folder):
                cancelled = True
        if cancelled:
            _cancel(waiting)
            return 1
    return int(failures == count)


def _cancel(tasks: list[Any]) -> None:
    """Remove queued tasks, and wait until the workers of the others have saved a resume point and released their runs.

    Ray kills the tasks of a driver that ends.
    """
    import ray

    for task in tasks:
        ray.cancel(task)
    if tasks:
        ray.wait(tasks, num_returns=len(tasks), timeout=PATIENCE + ANSWER)


def _cancelled(folder: Path) -> bool:
    """Whether this submission was cancelled, on this or another machine; False where the record cannot be read."""
    with contextlib.suppress(StoreError, OSError):  # Ray would kill the tasks if this raised
        job = read_job(folder / "job.json")
        with Store.open(job.address, create=False) as store:
            return bool((store.document(job.study_id, JOBS, folder.name) or {}).get("cancelled"))
    return False


def _task(path: str) -> str:
    """One task: a worker process until no run is left."""
    import ray

    (Path(path).parent / STARTED).touch()
    worker = Worker(path, f"ray:{str(ray.get_runtime_context().get_task_id())[:12]}")
    try:
        return worker()
    except KeyboardInterrupt:  # the task was cancelled
        worker.stop()
        return "stopped"


def _options(gpus: float, cpus: float, memory: float | None, resources: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options of Ray for these resources."""
    options: dict[str, Any] = {"num_cpus": amount(cpus, "cpus"), "num_gpus": amount(gpus, "gpus")}
    if memory is not None:
        options["memory"] = int(amount(memory, "memory") * 2**30)
    if own := further(resources):
        options["resources"] = {name: float(value) for name, value in own.items()}
    return options


if __name__ == "__main__":
    sys.exit(drive(Path(sys.argv[1])))
