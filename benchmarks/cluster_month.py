"""A month on a cluster whose nodes fail and whose jobs are preempted: GPU time lost, with resume points and without.

1,000 policies on 64 GPUs, one per node. Nodes fail at random, on average once a day each; jobs are preempted every six
hours, after a signal that leaves time to save a resume point. Lost is GPU time held by a worker that trained nothing
which was used: work since the last resume point, and starting. While a node is away or a job is queued, no GPU is held.
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
from dataclasses import dataclass

HOUR = 3600.0


@dataclass(frozen=True)
class Cluster:
    """Times in seconds."""

    policies: int = 1000
    gpus: int = 64
    run: float = 6 * HOUR
    # relative spread of the runs' lengths
    spread: float = 0.3
    node_fails_every: float = 24 * HOUR
    node_back_after: float = 0.5 * HOUR
    preempted_every: float = 6 * HOUR
    queue_wait: float = 300.0
    # until a worker process has loaded its libraries and the resume point
    start: float = 60.0
    # between two resume points; None: there are none
    saved_every: float | None = 300.0


@dataclass(frozen=True)
class Month:
    """GPU seconds that were used and lost, and how long all of it took."""

    useful: float
    lost: float
    wall: float
    finished: int

    @property
    def share_lost(self) -> float:
        return self.lost / (self.useful + self.lost)


def simulate(cluster: Cluster, seed: int, most: float = 30 * 24 * HOUR) -> Month:
    """Every GPU is a worker: it takes a run, and a failure or a preemption interrupts it."""
    rng = random.Random(seed)
    left = [cluster.run * max(0.2, rng.gauss(1.0, cluster.spread)) for _ in range(cluster.policies)]
    whole, lost = list(left), 0.0
    pending = list(range(cluster.policies - 1, -1, -1))
    # when each GPU is free, and when its job is preempted
    free = [(0.0, gpu) for gpu in range(cluster.gpus)]
    preempted = [rng.uniform(0, cluster.preempted_every) for _ in range(cluster.gpus)]
    wall, finished = 0.0, 0
    returned: list[tuple[float, int]] = []  # runs that come back when a lease ends
    heapq.heapify(free)
    while (pending or returned) and free:
        now, gpu = heapq.heappop(free)
        if now > most:
            break
        while returned and returned[0][0] <= now:
            pending.append(heapq.heappop(returned)[1])
        if not pending:
            heapq.heappush(free, (returned[0][0], gpu))
            continue
        run = pending.pop()
        begin = now + cluster.start
        while preempted[gpu] <= now:
            preempted[gpu] += cluster.preempted_every
        failure = now + rng.expovariate(1 / cluster.node_fails_every)
        end = begin + left[run]
        stop = min(end, failure, preempted[gpu])
        worked = max(0.0, stop - begin)
        if stop == end:
            left[run], lost, finished, wall = 0.0, lost + cluster.start, finished + 1, max(wall, end)
            heapq.heappush(free, (end, gpu))
            continue
        warned = stop == preempted[gpu]
        if cluster.saved_every is None:
            kept = 0.0
        elif warned:  # a signal came before
            kept = worked
        else:
            done = whole[run] - left[run]
            kept = max(0.0, (done + worked) // cluster.saved_every * cluster.saved_every - done)
        left[run] -= kept
        lost += stop - now - kept
        heapq.heappush(returned, (stop if warned else stop + 60.0, run))
        heapq.heappush(free, (stop + (cluster.queue_wait if warned else cluster.node_back_after), gpu))
    useful = sum(all_ - rest for all_, rest in zip(whole, left, strict=True) if rest < all_)
    return Month(useful, lost, wall, finished)


def main() -> None:
    """Print a table for runs of several lengths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    print("| hours per run | resume points | GPU time lost | ± | policies after 30 days | days for all |")
    print("|---|---|---|---|---|---|")
    for hours in (1, 3, 6, 12, 24):
        for words, every in (("none", None), ("every 30 min", 1800.0), ("every 5 min", 300.0), ("every min", 60.0)):
            cluster = Cluster(run=hours * HOUR, saved_every=every)
            months = [simulate(cluster, seed) for seed in range(given.seeds)]
            shares = [100 * month.share_lost for month in months]
            days = statistics.mean(month.wall for month in months) / 24 / HOUR
            done = statistics.mean(month.finished for month in months)
            spread = statistics.stdev(shares) if len(shares) > 1 else 0.0
            cells = [
                str(hours),
                words,
                f"{statistics.mean(shares):.1f}%",
                f"{spread:.1f}",
                f"{done:.0f}",
                f"{days:.1f}" if done == cluster.policies else "more than 30",
            ]
            print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
