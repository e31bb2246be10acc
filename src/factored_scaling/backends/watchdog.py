"""Watches over a command: `watchdog.py SECONDS WORD…` runs it and ends it when standard input closes.

The worker that started the command holds the other end of standard input. It closes when the worker stops the command
and when the worker is killed; otherwise the command would keep writing into a folder that another worker uses. If the
watchdog is killed, the worker ends the command. If both are killed, the system ends the command, and the next attempt
ends its children. This file needs only Python's standard library, so that it starts fast.
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

MARK = "FSC_WATCHDOG"  # environment variable that identifies the processes of one command
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux
_LONGEST = 5.0  # seconds in which killed processes must be gone


def main(seconds: float, command: list[str]) -> int:
    """Run `command`; returns its exit code, 128 + the signal's number when one ended it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    here = os.getpid()

    def prepare() -> None:
        """Restore signals that the watchdog ignores, and let the system end the command if the watchdog dies."""
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
        signal.pause()  # the other thread ends this process too
    return 128 - code if code < 0 else code


_let_go = threading.Event()


def _end_when_let_go(child: subprocess.Popen[bytes], seconds: float) -> None:
    while os.read(0, 1):
        pass
    _let_go.set()
    # SIGINT, then SIGTERM, then SIGKILL, for the whole group, because trainers have children
    for number in (signal.SIGINT, signal.SIGTERM):
        os.killpg(0, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(seconds / 2)
            break
    end_all(os.environ.get(MARK, ""), os.getpgid(0))


def end_all(mark: str, group: int | None = None) -> None:
    """Kill every process that the command with this mark has started, and then the process group.

    On Linux, children in other sessions are found by their inherited environment.
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
    """The variables that a process was started with; empty for processes that have ended or belong to other users."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123  pathlib takes its time to load
            return file.read().split(b"\0")
    except OSError:
        return []


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
