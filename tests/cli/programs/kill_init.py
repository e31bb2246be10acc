"""`fsc ARGUMENTS` again and again, killed at the first, second, … thing that it does to files or a database.

`kill_init.py WORK ARGUMENTS…` forks a child per try in the folder WORK/1, WORK/2 and so on, each a copy of WORK/0, and
prints each child's exit code. It ends after the first child that was not killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from factored_scaling.cli import main

MOST = 600  # a guard against a child that is never through


def kill_at(step: int) -> None:
    """Kill this process before the step of this number: a change of a file or folder, a statement or a commit."""
    left = step

    def count(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def heard(name: str, arguments: tuple[Any, ...]) -> None:
        writes = name == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if writes or name in ("os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "os.chmod"):
            count()

    event.listen(Engine, "before_cursor_execute", count)
    event.listen(Engine, "commit", count)
    sys.addaudithook(heard)


def preload() -> None:
    """Import what the command needs: children that are forked do not begin at nothing."""
    from factored_scaling.cli import episodes, folder, start  # noqa: F401
    from factored_scaling.data.lerobot import collection  # noqa: F401
    from factored_scaling.study import Study  # noqa: F401


def tries(work: Path, arguments: list[str]) -> None:
    preload()
    sys.dont_write_bytecode = True
    for number in range(1, MOST):
        place = shutil.copytree(work / "0", work / str(number))
        pid = os.fork()
        if pid == 0:
            os.chdir(place)
            sys.stdout = sys.stderr
            kill_at(number)
            main(arguments)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(code, flush=True)
        if code != -signal.SIGKILL:
            return
    sys.exit("never through")


if __name__ == "__main__":
    tries(Path(sys.argv[1]), sys.argv[2:])
