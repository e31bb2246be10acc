"""The victim of the crash test, and its killer.

For every line read from stdin, a number of bytes and a number of seconds: fork a child that appends the missing trials
one at a time and writes each one's number to a file once the store has acknowledged it; kill -9 the child that long
after the file has grown by that much; print the child's exit code.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from factored_scaling.core.trials import Trial
from factored_scaling.store import Store


def append(address: str, run_id: int, count: int, acknowledged: Path) -> None:
    file = os.open(acknowledged, os.O_WRONLY | os.O_APPEND)
    with Store.open(address) as store:
        stored = {trial.key for trial in store.trials(run_id)}
        for number in range(count):
            if str(number) not in stored:
                store.append_trials(run_id, [Trial(str(number), number / count, ("light",))])
                os.write(file, f"{number}\n".encode())  # no buffer in between that a kill could lose


def main(address: str, run_id: int, count: int, acknowledged: Path) -> None:
    for line in sys.stdin:
        growth, delay = line.split()
        enough = acknowledged.stat().st_size + int(growth)
        pid = os.fork()
        if pid == 0:
            append(address, run_id, count, acknowledged)
            os._exit(0)
        while acknowledged.stat().st_size < enough and not ended(pid):
            time.sleep(0.0002)
        time.sleep(float(delay))
        os.kill(pid, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def ended(pid: int) -> bool:
    """Whether the child is over; not reaped yet, so its number cannot be anybody else's when it is killed."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
