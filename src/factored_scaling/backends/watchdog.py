"""Watches over a command: `watchdog.py SECONDS WORD…` runs it and ends it when standard input closes.

The worker that started the command keeps the other end of standard input. It closes when the worker wants the command
to stop, and also when the worker is killed: a command without a worker would go on writing into a folder that the next
worker has taken. When the watchdog is killed, the worker ends what is left. If both are killed, the system ends the
command, and the next attempt ends its children. Stands alone and needs nothing but Python, so that it starts at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

MARK = "FSC_WATCHDOG"  # environment variable that tells the processes of one command from all others
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux
_LONGEST = 5.0  # seconds in which killed processes must be gone


def main(seconds: float, command: list[str]) -> int:
    """Run `command`; returns its exit code, 128 + the signal's number when one ended it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    here = os.getpid()

    def prepare() -> None:
        """The command hears the signals that its watchdog ignores, and is ended by the system when it loses it."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        if library is not None:
            library.prctl(_DEATH_SIGNAL, signal.SIGKILL)
            if os.getppid() != here:
                os._exit(128 + signal.SIGKILL)

    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=prepare)
    except OSError as error:
        found = os.sep not in command[0] and os.access(command[0], os.F_OK)  # where no shell would look either
        hint = f"; write ./{command[0]}" if found else ""
        print(f"{command[0]}: {error.strerror or error}{hint}", file=sys.stderr, flush=True)
        return 127
    threading.Thread(target=_end_when_let_go, args=(child, seconds), daemon=True).start()
    code = child.wait()
    if _let_go.is_set():
        signal.pause()  # the other thread ends everything, this process too
    return 128 - code if code < 0 else code


_let_go = threading.Event()


def _end_when_let_go(child: subprocess.Popen[bytes], seconds: float) -> None:
    while os.read(0, 1):
        pass
    _let_go.set()
    # as Ctrl-C would, then as a batch system would, then for good; the whole group, since trainers have children
    for number in (signal.SIGINT, signal.SIGTERM):
        os.killpg(0, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(seconds / 2)
            break
    end_all(os.environ.get(MARK, ""), os.getpgid(0))


def end_all(mark: str, group: int | None = None) -> None:
    """Kill every process that the command with this mark has started, and then the process group.

    Children that made a session of their own are found by the environment that they inherited, on Linux.
    """
    wanted = f"{MARK}={mark}".encode()
    end = time.monotonic() + _LONGEST
    while mark and (found := [pid for pid in _processes() if pid != os.getpid() and wanted in _environment(pid)]):
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            break
        time.sleep(0.02)
    if group is not None:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208  as below
    except OSError:
        return []


def _environment(pid: int) -> list[bytes]:
    """The variables that a process was started with; none for those that have ended or are somebody else's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123  pathlib takes its time to load
            return file.read().split(b"\0")
    except OSError:
        return []


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
