"""Estimate the cost of the remaining runs on a cluster from the finished ones."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass

from factored_scaling.runner.queue import RunQueue

MOST_LOOKED_AT = 200  # finished runs, the latest


@dataclass(frozen=True)
class Cost:
    """Cost of the remaining runs. Seconds are medians of `measured` finished runs; None if there are none."""

    runs: int
    workers: int
    gpus: float
    measured: int
    # from the first lease to the end, over all attempts
    run_seconds: float | None
    # time of a worker per run; less than `run_seconds` if it trains several together
    worker_seconds: float | None

    @property
    def gpu_hours(self) -> float | None:
        """Hours of all GPUs together."""
        return None if self.worker_seconds is None else self.runs * self.worker_seconds * self.gpus / 3600

    @property
    def wall_seconds(self) -> float | None:
        """From the start of the workers, all at once, to the end of the last."""
        if self.run_seconds is None or self.worker_seconds is None:
            return None
        return max(self.run_seconds, math.ceil(self.runs / self.workers) * self.worker_seconds) if self.runs else 0.0


def estimate_cost(queue: RunQueue, workers: int, gpus: float = 0.0) -> Cost:
    """The cost of the runs that are pending or running, on so many workers with so many GPUs each."""
    runs = queue.store.outline(queue.id)
    left = sum(run.state in ("pending", "running") for run in runs)
    finished = [run for run in runs if run.state in ("done", "trained") and run.started is not None]
    latest = sorted(finished, key=lambda run: run.started or 0.0)[-MOST_LOOKED_AT:]
    spans = dict[int, list[tuple[str, float, float]]]()  # worker, begin and end of each attempt
    for run in latest:
        attempts = [one for one in queue.store.attempts(run.id) if one.worker and one.ended > one.started]
        if attempts:
            spans[run.id] = [(str(one.worker), one.started, one.ended) for one in attempts]
    lasted = [sum(end - begin for _, begin, end in own) for own in spans.values()]
    everybody = defaultdict[str, list[tuple[float, float]]](list)
    for worker, begin, end in (one for own in spans.values() for one in own):
        everybody[worker].append((begin, end))

    def share(worker: str, begin: float, end: float) -> float:
        middle = (begin + end) / 2
        return (end - begin) / sum(since < middle < until for since, until in everybody[worker])

    shares = [sum(share(*one) for one in own) for own in spans.values()]
    typical, shared = (statistics.median(values) if values else None for values in (lasted, shares))
    return Cost(left, min(workers, left) or 1, gpus, len(lasted), typical, shared)
