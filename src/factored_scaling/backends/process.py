"""Run an external command: stream and log its output, stop it at a safe point, and end it when its worker dies."""

from __future__ import annotations

import codecs
import os
import queue
import re
import subprocess
import sys
import threading
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from factored_scaling.backends.watchdog import MARK, end_all
from factored_scaling.errors import RunFailed

TICK = 0.2  # seconds between two checks for a stop while the command is silent
LAST_LINES = 5  # of the output, in the error of a command that failed
_LONGEST_LINE = 4000  # characters; a command that never ends a line must not fill the memory
_ENDS = re.compile(r"[\r\n]+")  # progress bars rewrite their line

# secrets of the dashboard, policy server and PostgreSQL; a study's `environment:` may pass them on
_SECRETS = ("FSC_TOKEN", "FSC_POLICY_KEY", "PGPASSWORD")
# the address of a database with a password in it
_PASSWORD = re.compile(r"postgres(ql)?(\+\w+)?://([^/?#@\s]*:[^/?#@\s]*@|\S*[?&]password=)", re.IGNORECASE)

Hear = Callable[[str | None], None]


def run_command(
    command: Sequence[str],
    directory: Path,
    environment: Mapping[str, str],
    log: Path,
    hear: Hear,
    patience: float = 30.0,
    mark: str = "",
) -> None:
    """Run `command` to its end. `hear` gets every line it prints, and None between them when it is silent.

    An exception from `hear` ends the command, first with a signal and after `patience` seconds by force, and is
    raised again. An exit code other than 0 is RunFailed with the last lines of the output. All output is appended to
    `log`. If the command fails, all processes that it started are ended; `mark` identifies them.
    """
    last: deque[str] = deque(maxlen=LAST_LINES)
    watchdog = [sys.executable, "-E", "-S", str(Path(__file__).with_name("watchdog.py")), str(patience), *command]
    mark = mark or uuid.uuid4().hex
    with log.open("ab") as log_file:
        process = subprocess.Popen(
            watchdog,
            cwd=directory,
            env={**environment, MARK: mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        lines: queue.Queue[str] = queue.Queue()
        reader = threading.Thread(target=_read, args=(process.stdout, log_file, lines), daemon=True)
        reader.start()
        try:
            while process.poll() is None:
                _pass_on(lines, hear, last)
            reader.join(1.0)  # a process that the command left behind may keep the pipe open
            while not lines.empty():
                _pass_on(lines, hear, last)
            hear(None)
        finally:
            process.stdin.close()
            if process.wait() != 0:
                end_all(mark, process.pid)  # the watchdog was killed, or the command was and has left children
            reader.join(1.0)
            if not reader.is_alive():
                process.stdout.close()
    if process.returncode != 0:
        raise failed(command, process.returncode, last, log)


def outside_environment() -> dict[str, str]:
    """The environment for an external program: without our keys and database passwords."""
    return {
        name: value for name, value in os.environ.items() if name not in _SECRETS and not _PASSWORD.match(value.strip())
    }


def failed(command: Sequence[str], code: int, last: Sequence[str], log: Path) -> RunFailed:
    """The error for a command that failed."""
    how = f"was ended by signal {code - 128}" if code > 128 else f"ended with exit code {code}"
    if code < 0:
        how = f"was ended because its watchdog was ended by signal {-code}"
    output = " / ".join(last) if last else "it printed nothing"
    return RunFailed(f"{Path(command[0]).name} {how}; its last lines: {output}", hint=f"all of them are in {log}")


def _pass_on(lines: queue.Queue[str], hear: Hear, last: deque[str]) -> None:
    try:
        line: str | None = lines.get(timeout=TICK)
    except queue.Empty:
        line = None
    if line is not None:
        last.append(line[:300])
    hear(line)


def _read(stream: IO[bytes], log_file: IO[bytes], lines: queue.Queue[str]) -> None:
    """Copy the output to the log unchanged, and pass it on line by line."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    rest = ""
    while data := os.read(stream.fileno(), 65536):
        log_file.write(data)
        log_file.flush()
        *whole, rest = _ENDS.split(rest + decoder.decode(data))
        if len(rest) > _LONGEST_LINE:
            whole.append(rest)
            rest = ""
        for line in whole:
            if line.strip():
                lines.put(line.rstrip())
    if rest.strip():
        lines.put(rest.rstrip())
