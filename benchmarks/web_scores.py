"""How fast the scoring page takes scores, from one operator to fifty: `python benchmarks/web_scores.py [--save]`.

A real server on this machine, real HTTP, each answer given after the score is on disk. Every client claims a trial,
scores it, gets the next with the answer, and does so without a pause, which no person does.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from factored_scaling.core.spec import StudySpec
from factored_scaling.scoring.session import Scoring
from factored_scaling.study import Study

RESULTS = Path(__file__).parent / "results" / "web_scores.md"
POLICIES, SCENES, REPEATS = 5, 4, 15
CLIENTS = (1, 5, 50)


def main(arguments: list[str]) -> int:
    load = os.getloadavg()[0]
    rows = [measured(clients) for clients in CLIENTS]
    report = page(rows, load)
    print(report)
    if "--save" in arguments:
        RESULTS.write_text(report)
    return 0


def measured(clients: int) -> str:
    """One line of the table: a fresh study, all of its trials scored by this many clients."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # a disk, where /tmp may be memory
        factors = {name: {"demos": 6, "test_values": ["a", "b", "c", "d"]} for name in ("camera_pose", "lighting")}
        scoring = {"preset": "fold-towel", "combinations": SCENES, "repeats": REPEATS}
        spec = StudySpec(factors, construction="one", points=3, name="bench", scoring=scoring)
        with Study.create(spec, Path(folder) / "study.db") as study:
            queue = Scoring.begin(study, seed=0)
            times, seconds = scored_by(clients, folder)
            every, said = queue.trials(), queue.history()
        whole = len(said) == len(every) == len(times) and all(trial.state == "scored" for trial in every)
    middle, slow = statistics.median(times), sorted(times)[int(0.95 * len(times))]
    right = "every trial once" if whole else "WRONG"
    rate = len(times) / seconds
    return f"| {clients} | {len(times)} | {rate:.0f} | {1000 * middle:.0f} | {1000 * slow:.0f} | {right} |"


def scored_by(clients: int, folder: str) -> tuple[list[float], float]:
    """Seconds of every score, and of all of it."""
    command = [sys.executable, "-m", "factored_scaling", "serve", f"sqlite:///{folder}/study.db", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found is not None
        times: list[float] = []
        begin = threading.Barrier(clients + 1)
        threads = [threading.Thread(target=work, args=(found[0], n, begin, times)) for n in range(clients)]
        for thread in threads:
            thread.start()
        begin.wait()
        started = time.perf_counter()
        for thread in threads:
            thread.join()
        return times, time.perf_counter() - started
    finally:
        server.terminate()
        server.wait(20)


def work(url: str, number: int, begin: threading.Barrier, times: list[float]) -> None:
    operator = f"operator {number}"
    begin.wait()
    trial = post(f"{url}score/1/next", {"operator": operator})["trial"]
    while trial is not None:
        entry = {"operator": operator, "kind": "score", "code": trial["code"], "token": trial["code"], "score": 0.5}
        started = time.perf_counter()
        trial = post(f"{url}score/1/entry", entry)["trial"]
        times.append(time.perf_counter() - started)


def post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def page(rows: list[str], load: float) -> str:
    cores, python = os.cpu_count(), platform.python_version()
    machine = f"{platform.system()} {platform.machine()}, {cores} cores (load {load:.1f} before), Python {python}"
    head = [
        "# Scores over the web",
        "",
        f"{datetime.date.today()}, {machine}, SQLite.",
        f"{POLICIES * SCENES * REPEATS} trials per line, clients on the same machine, each with a",
        "connection per request; run again with `python benchmarks/web_scores.py --save`.",
        "",
        "| clients at once | scores | scores/s | median ms | 95% ms | record |",
        "|---:|---:|---:|---:|---:|---|",
    ]
    return "\n".join([*head, *rows, ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
