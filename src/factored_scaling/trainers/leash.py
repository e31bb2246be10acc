"""Holds a command: `leash.py SECONDS WORD…` runs it and ends it when standard input closes.

The worker that started the command keeps the other end of standard input. It closes when the worker wants the command
to stop, and also when the worker is killed: a command without a worker would go on writing into a folder that the next
worker has taken. Stands alone and needs nothing but Python, so that it starts at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading


def main(seconds: float, command: list[str]) -> int:
    """Run `command`; returns its exit code, 128 + the signal's number when one ended it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_listen_again)
    except OSError as error:
        here = os.sep not in command[0] and os.access(command[0], os.F_OK)  # where no shell would look either
        hint = f"; write ./{command[0]}" if here else ""
        print(f"{command[0]}: {error.strerror or error}{hint}", file=sys.stderr, flush=True)
        return 127
    threading.Thread(target=_end_when_let_go, args=(child, seconds), daemon=True).start()
    code = child.wait()
    return 128 - code if code < 0 else code


def _listen_again() -> None:
    """The command hears the signals that its holder ignores."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _end_when_let_go(child: subprocess.Popen[bytes], seconds: float) -> None:
    while os.read(0, 1):
        pass
    # as Ctrl-C would, then as a batch system would, then for good; the whole group, since trainers have children
    for number, patience in ((signal.SIGINT, seconds / 2), (signal.SIGTERM, seconds / 2), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(patience)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # what the command left behind
            return


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
