"""What benchmarks/scale.py runs with the source tree that it measures: `python workers/scale.py NAME ARGUMENTS`."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, make_url, text

from factored_scaling.core.spec import StudySpec
from factored_scaling.io.files import write_study
from factored_scaling.scoring.session import Scoring
from factored_scaling.study import Study

FACTORS = ("table_texture", "lighting", "camera_pose", "distractor", "background")


def declare(folder: str, count: str = "", **settings: Any) -> StudySpec:
    """Write the study.yaml of a study with this many factors, or the five."""
    names = [f"factor_{index}" for index in range(int(count))] if count else FACTORS
    spec = StudySpec(**{"factors": dict.fromkeys(names, 30), "name": "scale", **settings})
    Path(folder).mkdir()
    write_study(spec, Path(folder) / "study.yaml")
    return spec


def fill(folder: str, seeds: str, count: str) -> None:
    """A study that is measured whole with `count` trials per run, or, without, not at all."""
    Study.create(declare(folder, seeds=int(seeds)), Path(folder) / "study.db").close()
    if not int(count):
        return
    rng = random.Random(0)
    database = sqlite3.connect(Path(folder) / "study.db")
    ids = [id_ for (id_,) in database.execute("SELECT id FROM fsc_runs ORDER BY id")]
    made = (
        (id_, f"{FACTORS[k % 5]}/{k // 5}", float(rng.random() < 0.4 + 0.1 * (k % 5)), json.dumps([FACTORS[k % 5]]))
        for id_ in ids
        for k in range(int(count))
    )
    columns = "run_id, key, score, factor, setting, note, created"
    database.executemany(f"INSERT INTO fsc_trials ({columns}) VALUES (?, ?, ?, ?, '', '', 1.0)", made)
    database.execute("UPDATE fsc_runs SET state = 'done', attempts = 1, started = 1.0, finished = 2.0")
    database.commit()
    database.close()


def ask(folder: str, done: str) -> None:
    """Print the milliseconds of one `ask()`, the median of 20, after the first `done` runs were ended."""
    database = sqlite3.connect(Path(folder) / "study.db")
    first = "SELECT run_id FROM fsc_placements ORDER BY position LIMIT ?"
    ended = f"state = 'done', attempts = 1, lease_expires = NULL WHERE id IN ({first})"
    database.execute(f"UPDATE fsc_runs SET {ended}", (int(done),))
    database.commit()
    database.close()
    with Study.open(Path(folder) / "study.db") as study:
        print(1000 * statistics.median(seconds_of(study.ask) for _ in range(20)))


def queue(folder: str, count: str) -> None:
    """A study with at least `count` trials that wait for people."""
    factors = {name: {"demos": 6, "test_values": ["a", "b", "c", "d"]} for name in FACTORS[:2]}
    repeats = -(-int(count) // (4 * 5))  # of four scenes, for five policies
    settings = {"preset": "fold-towel", "combinations": 4, "repeats": repeats}
    spec = declare(folder, factors=factors, construction="one", points=3, scoring=settings)
    with Study.create(spec, Path(folder) / "study.db") as study:
        Scoring.begin(study, seed=0)


def compete(address: str, workers: str) -> None:
    """Print the seconds within which 95% of leases are given to workers that take run after run."""
    url = make_url(address).set(drivername="postgresql+psycopg")
    engine, name = create_engine(url), f"scale_{os.getpid()}"
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {name}"))
    try:
        own = url.update_query_dict({"options": f"-csearch_path={name}"}).render_as_string(hide_password=False)
        Study.create(StudySpec(dict.fromkeys(FACTORS, 30), seeds=4 * int(workers)), own).close()
        with get_context("spawn").Pool(int(workers)) as pool:
            times = [one for some in pool.map(lease, [own] * int(workers), chunksize=1) for one in some]
        print(sorted(times)[int(0.95 * len(times))])
    finally:
        with engine.begin() as connection:
            connection.execute(text(f"DROP SCHEMA {name} CASCADE"))
        engine.dispose()


def lease(address: str) -> list[float]:
    with Study.open(address) as study:
        return [seconds_of(study.ask) for _ in range(20)]


WORK: dict[str, Callable[..., Any]] = {
    "declare": declare,
    "fill": fill,
    "ask": ask,
    "queue": queue,
    "compete": compete,
}


def seconds_of(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    WORK[sys.argv[1]](*sys.argv[2:])
