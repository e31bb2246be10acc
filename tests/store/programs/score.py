"""Several processes that claim and score trials of one evaluation at once: `score.py ADDRESS EVALUATION PROCESSES`."""

from __future__ import annotations

import os
import sys
import time

from factored_scaling.store import Entry, Store


def work(address: str, evaluation: int, operator: str) -> None:
    with Store.open(address) as store:
        while (trial := store.claim_trial(evaluation, operator, 60)) is not None:
            store.append_entries(evaluation, [(trial.code, Entry("score", trial.code, operator, 1.0))])
            os.write(sys.stdout.fileno(), f"{operator} {trial.code}\n".encode())
            time.sleep(0.005)  # SQLite's lock is not fair to those who wait for it


def main(address: str, evaluation: int, processes: int) -> int:
    ready, go = os.pipe()
    children = []
    for number in range(processes):
        pid = os.fork()
        if pid == 0:
            os.close(go)
            os.read(ready, 1)  # returns for all at once, when the parent closes its end
            work(address, evaluation, f"operator-{number}")
            os._exit(0)
        children.append(pid)
    os.close(go)
    return sum(os.waitpid(pid, 0)[1] != 0 for pid in children)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
