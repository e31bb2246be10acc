"""Use one store in a process and its forked children at once, with a thread writing while the forks happen."""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings

from factored_scaling.core.trials import Trial
from factored_scaling.store import Store

CHILDREN = 5
TRIALS = 10


def main(address: str, run_id: int) -> None:
    store = Store.open(address)
    store.studies()  # leaves a connection in the pool
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set() or number < TRIALS:
            store.append_trials(run_id, [Trial(f"thread/{number}", 1.0)])
            number += 1
            time.sleep(0.002)  # leaves the others their turn: SQLite has no queue for writers

    thread = threading.Thread(target=write)
    thread.start()
    children = []
    warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads: our very subject
    for child in range(CHILDREN):
        pid = os.fork()
        if pid == 0:
            for number in range(TRIALS):
                store.append_trials(run_id, [Trial(f"child {child}/{number}", 1.0)])
            os._exit(0)
        children.append(pid)
        store.append_trials(run_id, [Trial(f"parent/{child}", 1.0)])
    failed = [pid for pid in children if os.waitpid(pid, 0)[1] != 0]
    stop.set()
    thread.join()
    store.close()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
