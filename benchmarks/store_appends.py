"""How fast trials are stored, each acknowledgement durable: `python benchmarks/store_appends.py [--save]`.

PostgreSQL is measured when FSC_TEST_POSTGRES holds its URL, for example that of a server which writes to disk like a
real one:

    export FSC_POSTGRES_HOME=/tmp/fsc-bench FSC_POSTGRES_FSYNC=on
    FSC_TEST_POSTGRES=$(scripts/postgres-for-tests start) python benchmarks/store_appends.py --save
    scripts/postgres-for-tests stop
"""

from __future__ import annotations

import datetime
import os
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import create_engine, make_url, text

from factored_scaling.core.dataset import Dataset
from factored_scaling.core.design import PlannedRun, RunSpec
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Trial
from factored_scaling.store import Store

RESULTS = Path(__file__).parent / "results" / "store_appends.md"
REPEATS = 3
BIG_RUNS, BIG_TRIALS = 100, 3000


def main(arguments: list[str]) -> int:
    rows = []
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # a disk, where /tmp may be memory
        rows += measured(f"SQLite {sqlite3.sqlite_version}, WAL, synchronous=FULL", f"sqlite:///{folder}/study.db")
    given = os.environ.get("FSC_TEST_POSTGRES")
    if given:
        with schema(given) as (address, name):
            rows += measured(name, address)
    report = page(rows, load)
    print(report)
    if "--save" in arguments:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(report)
    return 0


def measured(name: str, address: str) -> list[str]:
    """One line of the table per way of storing and reading."""
    with Store.open(address) as store:
        spec = StudySpec({"light": 1})
        study = store.create_study("bench", spec, Dataset.of_sizes(spec.sizes))
        planned = [PlannedRun(RunSpec((), seed=seed), {"light": 1}, ()) for seed in range(BIG_RUNS)]
        ids = store.add_runs(study, 0, planned)

        def append(batch: int, count: int) -> Callable[[int], None]:
            def once(repeat: int) -> None:
                for start in range(0, count, batch):
                    named = [Trial(f"{batch}/{repeat}/{start + k}", 1.0, ("light",)) for k in range(batch)]
                    store.append_trials(ids[0], named)

            return once

        lines = [
            line(name, "one trial per call", 500, "trials/s", append(1, 500)),
            line(name, "100 trials per call", 20_000, "trials/s", append(100, 20_000)),
            line(name, "3,000 trials per call", 30_000, "trials/s", append(3000, 30_000)),
        ]
        many = [Trial(str(k), k % 2, ("light",)) for k in range(BIG_TRIALS)]
        for id_ in ids:
            store.append_trials(id_, many)
        what = f"table of {BIG_RUNS} runs with {BIG_RUNS * BIG_TRIALS:,} trials"
        lines.append(line(name, what, 1, "tables/s", lambda _: len(store.runs(study))))
    return lines


def line(name: str, what: str, count: int, unit: str, work: Callable[[int], object]) -> str:
    rates = []
    for repeat in range(REPEATS):
        started = time.perf_counter()
        work(repeat)
        rates.append(count / (time.perf_counter() - started))
    low, middle, high = min(rates), statistics.median(rates), max(rates)
    digits = 0 if middle > 100 else 1
    return f"| {name} | {what} | {middle:,.{digits}f} | {low:,.{digits}f} to {high:,.{digits}f} | {unit} |"


@contextmanager
def schema(given: str) -> Iterator[tuple[str, str]]:
    """A schema of our own on the server, dropped afterwards, and the server's name with what it promises."""
    url = make_url(given).set(drivername="postgresql+psycopg")
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA store_appends"))
        version = str(connection.execute(text("SHOW server_version")).scalar()).split()[0]
        fsync = connection.execute(text("SHOW fsync")).scalar()
    try:
        address = url.update_query_dict({"options": "-csearch_path=store_appends"})
        yield address.render_as_string(hide_password=False), f"PostgreSQL {version}, fsync={fsync}"
    finally:
        with engine.begin() as connection:
            connection.execute(text("DROP SCHEMA store_appends CASCADE"))
        engine.dispose()


def page(rows: list[str], load: float) -> str:
    cores, python = os.cpu_count(), platform.python_version()
    machine = f"{platform.system()} {platform.machine()}, {cores} cores (load {load:.1f} before), Python {python}"
    head = [
        "# Storing trials",
        "",
        f"{datetime.date.today()}, {machine}. Median of {REPEATS} repeats, one process; run again with",
        "`python benchmarks/store_appends.py --save`.",
        "",
        "| database | what | median | range | unit |",
        "|---|---|---:|---:|---|",
    ]
    return "\n".join([*head, *rows, ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
