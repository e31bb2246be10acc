"""How commands and servers behave when a study is large: `python benchmarks/scale.py [--save]`.

Every case builds a study of its own in a temporary folder, with rows written straight into the tables, and runs the
real command or server in a process of its own. `--before SRC` measures a second source tree in the same run, case by
case, so that the ratio of the two is not one of two days. `--size small` does all of it in seconds, to see that it
works. `FSC_TEST_POSTGRES=URL` adds leases on PostgreSQL.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import http.client
import json
import math
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "scale.md"
WORKER = HERE / "workers" / "scale.py"
FACTORS = ("table_texture", "lighting", "camera_pose", "distractor", "background")
POLICIES = 10  # of five factors in groups of two, at four points


@dataclass(frozen=True)
class Size:
    """How large the studies are."""

    seeds: int  # of the study with trials; ten runs each
    trials: int  # per run
    many_seeds: int  # of the study without
    rows: tuple[int, ...]  # of results.csv
    factors: int  # of the study that is planned
    clients: int  # that score
    scores: int  # each of them
    workers: int  # that lease on PostgreSQL


SIZES = {
    "full": Size(1010, 99, 9898, (5_000, 200_000), 100, 200, 5, 50),
    "small": Size(4, 5, 20, (100,), 6, 4, 3, 3),
}


@dataclass(frozen=True)
class Value:
    """One measured number: None where it failed, infinite where it was given up."""

    what: str
    unit: str
    number: float | None
    target: str = ""


@dataclass(frozen=True)
class Bench:
    """A source tree to measure, and where to put what it writes."""

    source: Path
    folder: Path
    size: Size
    limit: float

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.source), "OMP_NUM_THREADS": "1"}

    def run(self, *command: str) -> tuple[float | None, float | None]:
        """Seconds and megabytes of a process: none where it failed, infinitely many seconds where it was given up."""
        started = time.perf_counter()
        with (self.folder / "output.txt").open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, *command], stdout=out, stderr=subprocess.STDOUT, env=self.environment
            )
            timer = threading.Timer(self.limit, process.kill)
            timer.start()
            _, status, usage = os.wait4(process.pid, 0)
            timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        if time.perf_counter() - started > self.limit:
            return math.inf, None
        if process.returncode:
            lines = (self.folder / "output.txt").read_text(errors="replace").splitlines()
            print(f"  {' '.join(command)[:100]}: {process.returncode} {lines[-1:]}", file=sys.stderr)
            return None, None
        return time.perf_counter() - started, usage.ru_maxrss / 1024

    def fsc(self, *arguments: str) -> tuple[float | None, float | None]:
        return self.run("-m", "factored_scaling", *arguments)

    def work(self, name: str, *arguments: object) -> str:
        """What a function of workers/scale.py prints when it runs with the source tree."""
        command = [sys.executable, str(WORKER), name, *map(str, arguments)]
        try:
            done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=self.limit)
        except subprocess.TimeoutExpired:
            return ""
        if done.returncode:
            print(f"  {name}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return done.stdout.strip() if done.returncode == 0 else ""

    @contextmanager
    def serving(self, study: Path) -> Iterator[tuple[http.client.HTTPConnection, int]]:
        """`fsc serve`: a connection to it and its process."""
        command = [sys.executable, "-m", "factored_scaling", "serve", str(study), "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self.environment)
        try:
            assert server.stdout is not None
            found = re.search(r"http://([^/:]+):(\d+)", server.stdout.readline())
            assert found is not None
            yield http.client.HTTPConnection(found[1], int(found[2]), timeout=self.limit), server.pid
        finally:
            server.terminate()
            server.wait(20)


# --- cases


def trials(bench: Bench) -> list[Value]:
    """A study with many trials: the list of runs, the recommendation, the dashboard."""
    study = bench.folder / "trials"
    bench.work("fill", study, bench.size.seeds, bench.size.trials)
    runs, some = bench.fsc("runs", str(study))
    answer, more = bench.fsc("recommend", str(study), "--budget", "100")
    with bench.serving(study) as (connection, process):
        first = seconds_of(lambda: get(connection, "/"))
        again = statistics.median(seconds_of(lambda: get(connection, "/overview")) for _ in range(5))
        serving = float(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process}/status").read_text())[1]) / 1024  # type: ignore[index]
    told = f"{POLICIES * bench.size.seeds:,} runs, {POLICIES * bench.size.seeds * bench.size.trials:,} trials"
    return [
        Value(f"`fsc runs`, {told}", "s", runs, "2"),
        Value("`fsc runs`, memory", "MB", some),
        Value("`fsc recommend`", "s", answer, "6"),
        Value("`fsc recommend`, memory", "MB", more, "400"),
        Value("dashboard, first page", "s", first, "1"),
        Value("dashboard, refresh", "s", again, "0.2"),
        Value("dashboard, memory", "MB", serving),
    ]


def runs(bench: Bench) -> list[Value]:
    """A study with many runs and hardly any results: the list of runs, and taking the next one."""
    study = bench.folder / "runs"
    bench.work("fill", study, bench.size.many_seeds, 0)
    full = bench.work("ask", study, 0)
    left = bench.work("ask", study, POLICIES * bench.size.many_seeds // 2)
    last = bench.work("ask", study, POLICIES * bench.size.many_seeds - 30)
    seconds, memory = bench.fsc("runs", f"sqlite:///{study}/study.db")  # study.yaml may not ask for so many
    told = f"{POLICIES * bench.size.many_seeds:,} runs"
    return [
        Value(f"`ask()`, {told}, all of them pending", "ms", number(full), "5"),
        Value("`ask()`, half of them done", "ms", number(left), "5"),
        Value("`ask()`, nearly all of them done", "ms", number(last), "5"),
        Value(f"`fsc runs`, {told}", "s", seconds),
        Value("`fsc runs`, memory", "MB", memory),
    ]


def tables(bench: Bench) -> list[Value]:
    """Results measured elsewhere: fitted from a file, and imported."""
    values = []
    for count in bench.size.rows:
        study, table = bench.folder / f"rows-{count}", bench.folder / f"{count}.csv"
        bench.work("declare", study)
        write_results(table, count)
        target = "10" if count >= 100_000 else ""
        answer, memory = bench.fsc("recommend", str(study / "study.yaml"), str(table), "--budget", "100")
        taken, _ = bench.fsc("import", str(study), str(table))
        values += [
            Value(f"`fsc recommend STUDY RESULTS.csv`, {count:,} rows", "s", answer, target),
            Value("… memory", "MB", memory),
            Value(f"`fsc import STUDY RESULTS.csv`, {count:,} rows", "s", taken),
        ]
    return values


def plan(bench: Bench) -> list[Value]:
    """A study with many factors."""
    study = bench.folder / "plan"
    bench.work("declare", study, bench.size.factors)
    seconds, _ = bench.fsc("plan", str(study / "study.yaml"))
    return [Value(f"`fsc plan`, {bench.size.factors} factors", "s", seconds)]


def scoring(bench: Bench) -> list[Value]:
    """People who score at once, each sending the next score as soon as the last is answered."""
    study = bench.folder / "scoring"
    clients, each = bench.size.clients, bench.size.scores
    bench.work("queue", study, clients * each)
    times: list[float] = []
    wrong: list[str] = []
    with bench.serving(study) as (connection, _):
        begin = threading.Barrier(clients + 1)
        address = connection.host, connection.port
        threads = [threading.Thread(target=score, args=(address, n, each, begin, times, wrong)) for n in range(clients)]
        for thread in threads:
            thread.start()
        begin.wait()
        started = time.perf_counter()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - started
    if wrong or len(times) != clients * (each + 1):
        print(f"  scoring: {len(times)} answers, {wrong[:1]}", file=sys.stderr)
        return [Value(f"scoring, {clients} clients", "requests/s", None, "150")]
    slow = sorted(times)[int(0.95 * len(times))]
    return [
        Value(f"scoring, {clients} clients", "requests/s", len(times) / seconds, "150"),
        Value("scoring, 95% of answers within", "s", slow),
    ]


def leases(bench: Bench) -> list[Value]:
    """Workers on one PostgreSQL database, each taking run after run."""
    address = os.environ.get("FSC_TEST_POSTGRES")
    if not address:
        return []
    spent = bench.work("compete", address, bench.size.workers)
    what = f"lease on PostgreSQL, {bench.size.workers} workers, 95%"
    return [Value(what, "s", number(spent))]


CASES: dict[str, Callable[[Bench], list[Value]]] = {
    "trials": trials,
    "runs": runs,
    "tables": tables,
    "plan": plan,
    "scoring": scoring,
    "leases": leases,
}


# --- clients and files


def get(connection: http.client.HTTPConnection, path: str) -> bytes:
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == 200, (answer.status, body[:200])
    return body


def score(
    address: tuple[str, int],
    client: int,
    count: int,
    begin: threading.Barrier,
    times: list[float],
    wrong: list[str],
) -> None:
    connection = http.client.HTTPConnection(*address, timeout=120)
    operator = f"operator {client}"

    def post(path: str, body: dict[str, Any]) -> Any:
        started = time.perf_counter()
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        data = json.loads(answer.read())
        if answer.status != 200:
            raise RuntimeError(f"{answer.status} {data}")
        times.append(time.perf_counter() - started)
        return data

    begin.wait()
    try:
        trial = post("/score/1/next", {"operator": operator})["trial"]
        for _ in range(count):
            entry = {"operator": operator, "kind": "score", "code": trial["code"], "token": trial["code"], "score": 1}
            trial = post("/score/1/entry", entry)["trial"] or trial
    except Exception as error:
        wrong.append(repr(error))


def write_results(path: Path, count: int) -> None:
    """Policies of the plan with seed after seed, each measured on every factor; graded scores, 60 trials."""
    rng = random.Random(count)
    groups = (FACTORS[:2], FACTORS[2:4], FACTORS[4:])
    sets = [dict.fromkeys(FACTORS, 30)]
    sets += [{name: n if name in group else 30 for name in FACTORS} for group in groups for n in (0, 10, 20)]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"demos:{name}" for name in FACTORS), "seed", "factor", "score", "trials"])
        for index in range(count):
            seed, place = divmod(index, len(sets) * len(FACTORS))
            demos, factor = sets[place // len(FACTORS)], FACTORS[place % len(FACTORS)]
            success = 0.3 + 0.4 * demos[factor] / 30 + 0.1 * rng.random()
            scored = sum(rng.random() < success for _ in range(60)) / 60
            writer.writerow([*demos.values(), seed, factor, scored, 60])


def seconds_of(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def number(text: str) -> float | None:
    return float(text) if text else None


# --- the table


def page(columns: list[list[Value]], limit: float, load: float, command: str) -> str:
    """One line per number; with a source tree before it, how many times better it is now."""
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores (load {load:.1f} before)"
    lines = [
        "# Scale",
        "",
        f"{datetime.date.today()}, {machine}, Python {platform.python_version()}; `{command}`.",
        "",
        "| what | unit | target | " + ("before | after | better |" if len(columns) == 2 else "now |"),
        "|---|---|---:|" + "---:|" * (3 if len(columns) == 2 else 1),
    ]
    for values in zip(*columns, strict=True):
        measured, cells = values[-1], [shown(value.number, limit) for value in values]
        if len(values) == 2:
            before, after = values[0].number, values[1].number
            if not before or not after:
                cells.append("–")
            elif measured.unit == "requests/s":
                cells.append(f"{after / before:.3g}×")
            else:
                cells.append(
                    f"{'> ' if math.isinf(before) else ''}{(limit if math.isinf(before) else before) / after:.3g}×"
                )
        lines.append(f"| {measured.what} | {measured.unit} | {measured.target} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def shown(value: float | None, limit: float) -> str:
    if value is None or math.isinf(value):
        return "–" if value is None else f"> {limit:.0f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--before", type=Path, help="the `src` of another checkout, measured in the same run")
    parser.add_argument("--only", action="append", choices=CASES, help="these cases alone")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which a process is given up")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.relative_to(HERE.parent)}")
    options = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    sources = [*([options.before] if options.before else []), HERE.parent / "src"]
    columns: list[list[Value]] = [[] for _ in sources]
    for name in options.only or CASES:
        for column, source in zip(columns, sources, strict=True):
            print(f"{name}, {source}", file=sys.stderr)
            with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # a disk, where /tmp may be memory
                bench = Bench(source.resolve(), Path(folder), SIZES[options.size], options.limit)
                column += CASES[name](bench)
    given = "" if options.before is None else " --before SRC"
    report = page(columns, options.limit, load, f"python benchmarks/scale.py{given}")
    print(report)
    if options.save:
        RESULTS.write_text(report)
    return int(any(value.number is None or math.isinf(value.number) for value in columns[-1]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
