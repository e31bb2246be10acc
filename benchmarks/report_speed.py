"""How long `fsc report` and `fsc recommend` take on a study with 40 policies, before and after a change.

python benchmarks/report_speed.py --before DIR            prints the table; DIR is a checkout of the earlier commit
python benchmarks/report_speed.py --before DIR --save     also writes benchmarks/results/report_speed.md

    git archive COMMIT | tar -x -C DIR

Both versions answer in turn from copies of one study, so that whatever else the machine does slows both alike.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from factored_scaling import Study, StudySpec, Trial
from factored_scaling.io.files import write_study
from factored_scaling.machine import processor

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "report_speed.md"
REPEATS = 5
VISUAL = ("camera_pose", "distractor", "table_texture", "lighting", "background")
SPATIAL = ("table_height", "object_pose", "robot_pose")
LEVELS = (0.0, 0.25, 0.5, 1.0)  # graded scores, as people give them
# name of the study → factors, fields of its spec, graded scores
STUDIES: dict[str, tuple[tuple[str, ...], dict[str, Any], bool]] = {
    "5 factors, pairs": (VISUAL, {"construction": "pair", "points": 5}, False),
    "5 factors, groups, 4 seeds": (VISUAL, {"construction": "group", "seeds": 4}, False),
    "8 factors, groups, 3 seeds, graded": ((*VISUAL, *SPATIAL), {"construction": "group", "seeds": 3}, True),
}
COMMANDS = {
    "report": ("report", "--budget", "100", "--out", "page.html"),
    "recommend": ("recommend", "--budget", "100"),
    "recommend, the paper's Top": ("recommend", "--budget", "100", "--strategy", "top"),
}
# What a report does, step by step.
STEPS = {
    "interpreter": "pass",
    "import numpy": "import numpy",
    "import SQLAlchemy": "import sqlalchemy",
    "import click, jinja2 and yaml": "import click, jinja2, yaml",
    "import this package": "import factored_scaling.cli.report, factored_scaling.report, factored_scaling.study.study",
    "read the record": "from factored_scaling.cli.target import Target; now = Target.parse('.').snapshot(None)",
    "sample the response model": "now.posterior()",
    "fit and refit the curves": "now.curves.reports(100)",
    "best allocation, predictions, intervals": "now.report(100, created='')",
    "fill the page": "from factored_scaling.report import render; render(now.report(100, created=''))",
}


def make_study(folder: Path, factors: tuple[str, ...], fields: dict[str, Any], graded: bool) -> int:
    """A study whose scores follow a smooth rule, 60 trials per factor; returns how many policies it has."""
    spec = StudySpec(dict.fromkeys(factors, 30), name="speed", **fields)
    folder.mkdir(parents=True)
    write_study(spec, folder / "study.yaml")
    rng, steep = np.random.default_rng(0), np.linspace(0.02, 0.14, len(factors))
    with Study.create(spec, folder / "study.db") as study:
        while runs := study.ask():
            for run in runs:
                lost = sum(s * (1 - run.demos[name] / 30) ** 1.5 for s, name in zip(steep, factors, strict=True))
                trials = []
                for name in factors:
                    for k in range(60):
                        success = rng.random() < 0.65 - lost
                        score = float(rng.choice(LEVELS[1:] if success else LEVELS[:2])) if graded else float(success)
                        trials.append(Trial(f"{name}/{k}", score, (name,)))
                study.tell(run.id, trials)
        return len(study.runs())


def timed(command: list[str], source: Path, folder: Path) -> tuple[float, float]:
    """Wall and processor seconds of one run."""
    # Both start from compiled bytecode, as installed packages do.
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    environment |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder.parent / "bytecode")}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(before: Path, place: Path) -> list[str]:
    """One line per study and command, and one for what the report adds: seconds of both versions and their ratio."""
    sources, lines = {"before": before / "src", "after": HERE.parent / "src"}, []
    for number, (name, given) in enumerate(STUDIES.items()):
        policies = make_study(place / f"made-{number}", *given)
        for version in sources:
            shutil.copytree(place / f"made-{number}", place / f"{version}-{number}")
        spent: dict[str, dict[str, float]] = {}
        for title, words in COMMANDS.items():
            command = [sys.executable, "-m", "factored_scaling", words[0], ".", *words[1:]]
            took: dict[str, list[tuple[float, float]]] = {version: [] for version in sources}
            for _ in range(REPEATS + 1):
                for version, source in sources.items():
                    took[version].append(timed(command, source, place / f"{version}-{number}"))
            wall, cpu = (
                {version: statistics.median(pair[which] for pair in pairs[1:]) for version, pairs in took.items()}
                for which in (0, 1)
            )
            spent[title] = cpu
            line = f"| {name}; {policies} policies | `fsc {title}` | {wall['before']:.2f} | {wall['after']:.2f} "
            line += f"| {cpu['before']:.2f} | {cpu['after']:.2f} | {cpu['before'] / cpu['after']:.1f} |"
            print(line, flush=True)
            lines.append(line)
        added = {version: spent["report"][version] - spent["recommend"][version] for version in sources}
        line = f"| {name}; {policies} policies | report beyond recommend | | | {added['before']:.2f} "
        lines.append(f"{line}| {added['after']:.2f} | {added['before'] / added['after']:.1f} |")
    return lines


def steps(place: Path) -> list[str]:
    """One line per step of a report of this version, with its processor seconds in every study; the fastest of runs."""
    program = "import time\n" + "".join(f"{code}\nprint(time.process_time())\n" for code in STEPS.values())
    columns = []
    for number in range(len(STUDIES)):
        runs = []
        for _ in range(REPEATS):
            environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "src"), "OMP_NUM_THREADS": "1"}
            environment |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(place / "bytecode")}
            command, folder = [sys.executable, "-c", program], place / f"after-{number}"
            done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
            runs.append(np.diff([float(line) for line in done.stdout.split()], prepend=0.0))
        columns.append(np.min(runs, axis=0))
    every = [*zip(STEPS, np.transpose(columns), strict=True), ("all", np.sum(columns, axis=1))]
    return [f"| {name} | {' | '.join(f'{seconds:.3f}' for seconds in row)} |" for name, row in every]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the earlier commit")
    parser.add_argument("--commit", default="", help="its name, for the page")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = compare(options.before.resolve(), Path(folder))
        floor = steps(Path(folder))
    today = datetime.datetime.now(datetime.UTC).date()
    page = [
        "# Time of the report and of recommendations",
        "",
        f"{today}, {processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {platform.system()}, Python "
        f"{platform.python_version()}; `python benchmarks/report_speed.py --before DIR --save`, DIR holding "
        f"{options.commit or 'the commit before'}.",
        "",
        f"Medians of {REPEATS} runs of each version in turn, with start-up and imports.",
        "",
        "| study | command | wall before, s | after | processor before, s | after | ratio |",
        "|---|---|---:|---:|---:|---:|---:|",
        *lines,
        "",
        f"Where the processor seconds of a report go now, each step from the fastest of {REPEATS} runs:",
        "",
        f"| step | {' | '.join(STUDIES)} |",
        f"|---|{'---:|' * len(STUDIES)}",
        *floor,
        "",
        "The first four steps are not this package's, and both versions take them.",
        "",
    ]
    if options.save:
        RESULTS.write_text("\n".join(page), encoding="utf-8")


if __name__ == "__main__":
    main()
