"""A trainer with children: one of its own group, one in a session of its own; none of them hears a polite signal.

`tree.py FOLDER` adds its pid and theirs to FOLDER/pids.txt and stays.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SLEEP = """
import signal, time
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""

for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
children = [
    subprocess.Popen([sys.executable, "-c", SLEEP], stdout=subprocess.PIPE, start_new_session=apart)
    for apart in (False, True)
]
for child in children:
    assert child.stdout is not None
    child.stdout.readline()
with (Path(sys.argv[1]) / "pids.txt").open("a") as file:
    file.write(f"{os.getpid()} {' '.join(str(child.pid) for child in children)}\n")
print("step 1/2", flush=True)
time.sleep(600)
