"""How long `fsc` takes to answer, next to a Python that does nothing.

python benchmarks/cli_startup.py            prints the table
python benchmarks/cli_startup.py --save     also writes benchmarks/results/cli_startup.md
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from factored_scaling.machine import processor

RESULTS = Path(__file__).parent / "results" / "cli_startup.md"
REPEATS = 10
STUDY = "name: small\nfactors: {camera_pose: 30, distractor: 30, table_texture: 30, lighting: 30}\n"
SCORES = {"camera_pose+distractor": (0.40, 0.50, 0.56, 0.61), "table_texture+lighting": (0.55, 0.58, 0.60, 0.61)}


def commands(folder: Path) -> dict[str, list[str]]:
    """What is measured: a name for the table, and the command."""
    study, results = folder / "study.yaml", folder / "results.csv"
    study.write_text(STUDY)
    rows = [f"{c},{20 * k},{score},600" for c, scores in SCORES.items() for k, score in enumerate(scores)]
    results.write_text("\n".join(["combination,n,score,trials", *rows]) + "\n")
    script = Path(sys.executable).with_name("fsc")
    fsc = [str(script)] if script.exists() else [sys.executable, "-m", "factored_scaling"]
    recommend = ["recommend", str(study), str(results), "--budget", "100"]
    return {
        "python -c pass": [sys.executable, "-c", "pass"],
        "python -c 'import click'": [sys.executable, "-c", "import click"],
        "python -c 'import numpy'": [sys.executable, "-c", "import numpy"],
        "fsc --version": [*fsc, "--version"],
        "fsc --help": [*fsc, "--help"],
        "fsc plan study.yaml": [*fsc, "plan", str(study)],
        "fsc recommend study.yaml results.csv": [*fsc, *recommend],
        "fsc recommend … --json": [*fsc, *recommend, "--json"],
    }


def timed(command: list[str]) -> tuple[float, float]:
    """Median wall time and median processor time, in milliseconds."""
    wall, cpu = [], []
    for _ in range(REPEATS + 1):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        wall.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return 1000 * statistics.median(wall[1:]), 1000 * statistics.median(cpu[1:])  # the first one fills the caches


def table() -> str:
    """The measurement as a page."""
    with tempfile.TemporaryDirectory() as folder:
        times = {name: timed(command) for name, command in commands(Path(folder)).items()}
    bare = times["python -c pass"][1]
    lines = [f"| `{name}` | {wall:.0f} | {cpu:.0f} | {cpu / bare:.1f} |" for name, (wall, cpu) in times.items()]
    today = datetime.datetime.now(datetime.UTC).date()
    return "\n".join(
        [
            "# Command-line start-up",
            "",
            f"{today}, {processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {platform.system()}, "
            f"Python {platform.python_version()}; "
            "`python benchmarks/cli_startup.py --save`.",
            "",
            f"| command | wall, median of {REPEATS}, ms | processor, ms | × bare Python |",
            "|---|---:|---:|---:|",
            *lines,
            "",
            "Processor time is the one to compare: wall time grows with whatever else the machine does.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--save", action="store_true", help=f"also write {RESULTS.name}")
    save = parser.parse_args().save
    page = table()
    print(page)
    if save:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(page)


if __name__ == "__main__":
    main()
