"""What the wire costs: a round trip with two 224-pixel pictures over loopback, without any policy behind it.

python benchmarks/serving.py            prints the table
python benchmarks/serving.py --save     also writes benchmarks/results/serving.md
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from factored_scaling.serving.client import PolicyClient
from factored_scaling.serving.server import PolicyServer
from factored_scaling.serving.wire import pack, unpack

HEADER = """\
# Serving a policy

{date}, {machine}, Python {python}. Two 224-pixel pictures, a state and
a prompt in ({size} bytes), 50 actions of 14 numbers
out, over loopback; the policy answers at once. {rounds} rounds; run again with `python benchmarks/serving.py --save`.

| what | median ms | 99th percentile ms |
|---|---:|---:|
{rows}
"""


class Nothing:
    """Answers at once with a chunk of 50 actions of 14 numbers."""

    metadata: Mapping[str, Any] = {"kind": "nothing"}
    _answer: Mapping[str, Any] = {"actions": np.zeros((50, 14), dtype=np.float32)}

    def session(self) -> Nothing:
        return self

    def infer(self, observation: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._answer


def observation() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    picture = (224, 224, 3)
    return {
        "observation/image": rng.integers(0, 256, picture).astype(np.uint8),
        "observation/wrist_image": rng.integers(0, 256, picture).astype(np.uint8),
        "observation/state": rng.normal(size=14).astype(np.float32),
        "prompt": "fold the towel",
    }


def milliseconds(call: Any, rounds: int) -> np.ndarray[Any, Any]:
    taken = np.empty(rounds)
    for index in range(rounds):
        begun = time.perf_counter()
        call()
        taken[index] = (time.perf_counter() - begun) * 1000
    return taken


def measured(name: str, call: Any, rounds: int) -> str:
    median, late = np.percentile(milliseconds(call, rounds), [50, 99])
    return f"| {name} | {median:.3f} | {late:.3f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5000)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--client", help=argparse.SUPPRESS)  # the part that runs as a process of its own
    given = parser.parse_args()
    asked = observation()
    if given.client:
        with PolicyClient(given.client) as client:
            milliseconds(lambda: client.infer(asked), 100)
            print(measured("round trip between two processes", lambda: client.infer(asked), given.rounds))
        return
    load, data = os.getloadavg()[0], pack(asked)
    rows = [
        measured("pack an observation", lambda: pack(asked), given.rounds),
        measured("unpack it", lambda: unpack(data), given.rounds),
    ]
    with PolicyServer(Nothing(), port=0) as server:
        again = [sys.executable, __file__, "--rounds", str(given.rounds), "--client", server.address]
        rows.append(subprocess.run(again, check=True, capture_output=True, text=True).stdout.strip())
    page = HEADER.format(
        date=time.strftime("%Y-%m-%d"),
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores (load {load:.1f} before)",
        python=platform.python_version(),
        size=f"{len(data):,}",
        rounds=f"{given.rounds:,}",
        rows="\n".join(rows),
    )
    print(page)
    if given.save:
        (Path(__file__).parent / "results" / "serving.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
