"""Many workers on one PostgreSQL: how fast runs that do nothing are taken and ended, and what a worker waits for a run.

    python benchmarks/cluster_load.py --on threads --workers 64
    python benchmarks/cluster_load.py --on local --workers 64
    python benchmarks/cluster_load.py --on slurm --workers 6       # with SLURM_CONF of scripts/slurm-for-tests
    python benchmarks/cluster_load.py --on ray --workers 12        # with RAY_ADDRESS

It starts a PostgreSQL of its own that syncs every commit, or uses the one of `--postgres URL`.

Overhead is the time from the end of one run to the start of the next of the same worker, and the time in which a run
that does nothing is held, both from the record.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import create_engine, make_url, text

from factored_scaling.backends import Context
from factored_scaling.core.design import RunSpec
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Trial
from factored_scaling.store import Store
from factored_scaling.study import Study

ROOT = Path(__file__).resolve().parents[1]
TEN_MINUTES = 600.0


class Nothing:
    """Trains nothing and measures one trial."""

    one_core = True

    def train(self, run: RunSpec, folder: Path, context: Context) -> None:
        """Nothing."""

    def evaluate(self, run: RunSpec, folder: Path, context: Context) -> Iterator[Trial]:
        """One trial."""
        yield Trial("0", 1.0)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--postgres", metavar="URL")
    parser.add_argument("--on", default="threads", choices=["threads", "local", "slurm", "ray"])
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--runs", type=int, default=2000)
    given = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    if given.postgres is not None:
        measure(given.postgres, given.on, given.workers, given.runs)
        return
    environment = {**os.environ, "FSC_POSTGRES_HOME": f"/tmp/fsc-load-{os.getpid()}", "FSC_POSTGRES_FSYNC": "on"}
    script = ROOT / "scripts" / "postgres-for-tests"
    started = subprocess.run([script, "start"], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    try:
        measure(started.stdout.strip(), given.on, given.workers, given.runs)
    finally:
        subprocess.run([script, "stop"], env=environment, check=True)


def measure(url: str, engine_name: str, workers: int, runs: int) -> None:
    """Carry out the runs and print a row."""
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    schema = f"load_{os.getpid()}"
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    address = engine.url.update_query_dict({"options": f"-csearch_path={schema}"}).render_as_string(False)
    lease, latencies = Store.lease, list[float]()

    def timed(*args: Any, **named: Any) -> Any:
        begin = time.perf_counter()
        found = lease(*args, **named)
        latencies.append(time.perf_counter() - begin)
        return found

    Store.lease = timed  # type: ignore[method-assign]
    spec = StudySpec({"camera_pose": 20, "lighting": 20}, construction="screen", policies=2, seeds=runs // 2)
    with tempfile.TemporaryDirectory() as folder, Study.create(spec, address) as study:
        before, begin = _commits(engine), time.perf_counter()
        backend: Any = Nothing() if engine_name == "threads" else "benchmarks.cluster_load:Nothing"
        resources: dict[str, Any] = {"time": "00:30:00"} if engine_name == "slurm" else {}
        executor = "local" if engine_name == "threads" else engine_name
        summary = study.run(backend=backend, executor=executor, workers=workers, folder=folder, **resources)
        seconds, commits = time.perf_counter() - begin, _commits(engine) - before
        rows = [(run.id, study.store.attempts(run.id)) for run in study.runs()]
        trials = study.store.counts(study.id)[0]
    assert len(summary.done) == len(rows) == trials == runs, (len(summary.done), trials)
    assert all([one.outcome for one in attempts] == ["done"] for _, attempts in rows), "a run was taken twice"
    spans = defaultdict[str, list[tuple[float, float]]](list)
    for _, (one,) in rows:
        spans[str(one.worker)].append((one.started, one.ended))
    held = [end - start for own in spans.values() for start, end in own]
    gaps = [b[0] - a[1] for own in spans.values() for a, b in zip(sorted(own), sorted(own)[1:], strict=False)]
    first, last = min(start for own in spans.values() for start, _ in own), max(e for o in spans.values() for _, e in o)
    overhead = float(np.mean(held) + np.mean(gaps))
    cells = [
        engine_name,
        f"{len(spans)} of {workers}",
        f"{runs / (last - first):.0f}",
        f"{seconds:.0f} s",
        f"{np.percentile(gaps, 50) * 1e3:.0f} / {np.percentile(gaps, 95) * 1e3:.0f} ms",
        f"{np.percentile(latencies, 95) * 1e3:.0f} ms" if latencies else "–",
        f"{overhead * 1e3:.0f} ms",
        f"{100 * overhead / TEN_MINUTES:.3f}%",
        f"{commits / runs:.1f}, {commits / seconds:.0f}/s",
    ]
    headings = ["engine", "workers that had runs", "runs per second", "in all", "between two runs, p50 / p95"]
    headings += ["lease, p95", "overhead per run", "of a ten-minute run", "commits per run, per second"]
    for row in (headings, ["---"] * len(headings), cells):
        print(f"| {' | '.join(row)} |")
    with engine.begin() as connection:
        connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))


def _commits(engine: Any) -> int:
    """Transactions of the database so far."""
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_stat_clear_snapshot()"))
        query = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        return int(connection.execute(text(query)).scalar_one())


if __name__ == "__main__":
    main()
