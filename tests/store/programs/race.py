"""Several processes that start at the same moment: to make a store, to work on it, or to import into a new study."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import factored_scaling.cli.exchange  # loaded once, before the forks
import factored_scaling.study  # noqa: F401
from factored_scaling.cli import main as fsc
from factored_scaling.core.trials import Trial
from factored_scaling.store import Store


def make(address: str, worker: str) -> None:
    """Open a store that does not exist yet, and use it."""
    with Store.open(address) as store:
        store.studies()


def work(address: str, worker: str) -> None:
    """Lease, measure and finish runs until none is left; print who took which."""
    with Store.open(address) as store:
        study = store.study("shared").id
        while (run := store.lease(study, worker, 60)) is not None:
            for number in range(3):
                store.append_trials(run.id, [Trial(f"{worker}/{number}", 1.0)], run.lease_token)
                store.heartbeat(run.id, run.lease_token, 60)
            store.tell(run.id, lease_token=run.lease_token)
            os.write(sys.stdout.fileno(), f"{worker} {run.id}\n".encode())
            time.sleep(0.005)  # as training would: SQLite's lock is not fair to those who wait for it


def import_file(folder: str, worker: str) -> None:
    """`fsc import` of one's own file, where there is one, or of that of all; print the exit code."""
    place = Path(folder)
    own = place / f"{worker}.csv"
    try:
        with redirect_stdout(io.StringIO()):
            fsc(["import", folder, str(own if own.exists() else place.with_suffix(".json"))])
    except SystemExit as ended:
        os.write(sys.stdout.fileno(), f"{worker} {ended.code}\n".encode())


def main(task: Callable[[str, str], None], address: str, workers: int) -> int:
    ready, go = os.pipe()
    children = []
    for number in range(workers):
        pid = os.fork()
        if pid == 0:
            os.close(go)
            os.read(ready, 1)  # returns for all at once, when the parent closes its end
            task(address, f"worker-{number}")
            os._exit(0)
        children.append(pid)
    os.close(go)
    return sum(os.waitpid(pid, 0)[1] != 0 for pid in children)


if __name__ == "__main__":
    tasks = {"make": make, "work": work, "import": import_file}
    sys.exit(main(tasks[sys.argv[1]], sys.argv[2], int(sys.argv[3])))
