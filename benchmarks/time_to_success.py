"""Time to success: GPU seconds per policy against success on fixed nominal and held-out scenes, one row per policy.

    python benchmarks/time_to_success.py train --task maniskill/pull-visual --recipes RECIPES.json --out OUT
    python benchmarks/time_to_success.py report --out OUT

`RECIPES.json` maps a name to the policy settings that it changes (as under `policy:` in study.yaml, preset `paper`).
`train` trains `--policies` policies of each recipe side by side, from demonstrations on disk, each with a seed and
demonstrations of its own, then rolls each one out. It appends to `OUT/rows.csv`. Recipes that have rows are skipped, so
the table can be filled over several calls. With `--mixed` all recipes train as one job: the quick way to compare
success, but their seconds cannot be told apart. `report` writes `report.md` and `success.png` from the rows; it needs
no GPU.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

BEGAN = time.perf_counter()


def say(*words: object) -> None:
    print(f"[{time.perf_counter() - BEGAN:6.1f}]", *words, flush=True)


class Stopwatch:
    """Progress of a training: when its policies were captured, and a line every ten seconds."""

    def __init__(self) -> None:
        self.began = self.captured = self._last = time.perf_counter()

    def __call__(self, done: int, total: int, note: str = "") -> None:
        now = time.perf_counter()
        if "captured" in note and "not captured" not in note:
            self.captured = now
        if now - self._last > 10:
            self._last = now
            say(f"{done} of {total} {note}")


@dataclass(frozen=True)
class Candidate:
    """One policy: its recipe, its settings, its seed and where it is kept."""

    recipe: str
    policy: dict[str, Any]
    seed: int
    folder: Path


def train(options: argparse.Namespace) -> None:
    """Train and measure the recipes that have no rows yet."""
    import torch

    from factored_scaling.backends.simulation import Lab, policy_config
    from factored_scaling.machine import prepare_cpu
    from factored_scaling.policies.many import Job, train_many

    recipes: dict[str, dict[str, Any]] = json.loads(options.recipes.read_text())
    if options.only:
        recipes = {name: recipes[name] for name in options.only}
    done = {row["recipe"] for row in _rows(options.out)}
    prepare_cpu(options.device)
    lab = Lab(options.task, options.work, options.device, options.image_size)
    candidates = {
        name: [
            Candidate(name, {"preset": "paper", **settings}, seed, options.work / lab.task.name / f"{name}-{seed}")
            for seed in range(options.policies)
        ]
        for name, settings in recipes.items()
        if name not in done
    }
    episodes = {
        seed: [f"{factor}/{seed * options.demos + i}" for factor in lab.task.factors for i in range(options.demos)]
        for seed in range(options.policies)
    }
    wanted = [id_ for ids in episodes.values() for id_ in ids]
    table = lab.frames(wanted, Stopwatch())
    say(f"{len(wanted)} demonstrations, {len(table.images)} frames of {table.images.shape[1:]}")
    groups = [[c for each in candidates.values() for c in each]] if options.mixed else list(candidates.values())
    for group in groups:
        if not group:
            continue
        jobs = [Job(tuple(episodes[c.seed]), policy_config(c.policy), c.seed, c.folder) for c in group]
        watch = Stopwatch()
        failures = train_many(
            table, jobs, watch, options.device, 10**9, side_by_side=len(jobs), compiled=not options.plain
        )
        if options.device.startswith("cuda"):
            torch.cuda.synchronize()
        ended = time.perf_counter()
        start, trained = watch.captured - watch.began, ended - watch.captured
        updates = sum(job.config.updates for job in jobs)
        rate = f"{updates} updates in {trained:.1f} s, {updates / trained:.0f}/s"
        say(f"{len(jobs)} policies: start {start:.1f} s, {rate}")
        for reason in failures.values():
            say("failed:", reason)
        for name in dict.fromkeys(c.recipe for c in group):
            mine = [c for c in group if c.recipe == name and c.folder not in failures]
            seconds = (round(start / len(jobs), 3), round(trained / len(jobs), 3))
            _append(options.out, measure(options, lab, mine, () if options.mixed else seconds))
    close = getattr(lab.task, "close", None)
    if close is not None:
        close()


def measure(
    options: argparse.Namespace, lab: Any, candidates: Sequence[Candidate], seconds: Sequence[float]
) -> list[dict[str, Any]]:
    """Success of the policies on nominal and held-out scenes, a row each."""
    from factored_scaling.policies.diffusion import load_policy
    from factored_scaling.policies.inference import Sampler, Team
    from factored_scaling.sim import Condition

    if not candidates:
        return []
    began = time.perf_counter()
    held_out = lab.conditions({"initial_states": options.states})
    conditions = [*held_out, *(Condition(None, 0, state) for state in range(options.nominal))]
    policies = [load_policy(c.folder, options.device) for c in candidates]
    team = Team([Sampler(policy) for policy in policies], [c.seed for c in candidates], len(conditions))
    scores: list[dict[str | None, list[float]]] = [defaultdict(list) for _ in candidates]
    execute = policies[0].config.execute
    for row, score in lab.task.rollout_many(team, len(candidates), conditions, execute, options.device):
        scores[row // len(conditions)][conditions[row % len(conditions)].factor].append(score)
    took = time.perf_counter() - began
    say(f"{len(candidates) * len(conditions)} trials in {took:.1f} s, {len(candidates) * len(conditions) / took:.1f}/s")
    rows = []
    for candidate, policy, found in zip(candidates, policies, scores, strict=True):
        every = [score for factor, values in found.items() if factor is not None for score in values]
        by_factor = {f"score:{name}": round(statistics.mean(found[name]), 4) for name in lab.task.factors}
        nominal = round(statistics.mean(found[None]), 4) if found[None] else ""
        rows.append(
            {
                "task": options.task,
                "image_size": lab.task.image_size,
                "demos": options.demos,
                "recipe": candidate.recipe,
                "settings": json.dumps({k: v for k, v in candidate.policy.items() if k != "preset"}, sort_keys=True),
                "seed": candidate.seed,
                "side_by_side": options.policies,
                "updates": policy.config.updates,
                "start_seconds": seconds[0] if seconds else "",
                "train_seconds": seconds[1] if seconds else "",
                "loss": f"{policy.description['final_loss']:.5f}",
                "nominal": nominal,
                "nominal_trials": len(found[None]),
                "held_out": round(statistics.mean(every), 4),
                "held_out_trials": len(every),
                **by_factor,
            }
        )
        shown = {k.removeprefix("score:"): round(v, 2) for k, v in by_factor.items()}
        say(candidate.recipe, candidate.seed, "nominal", nominal, "held-out", rows[-1]["held_out"], shown)
    return rows


def report(options: argparse.Namespace) -> None:
    """A table and a figure from the rows."""
    import matplotlib.pyplot as plt

    cells: dict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    for row in _rows(options.out):
        cells[row["task"], row["image_size"], row["recipe"]].append(row)
    lines = [
        "| setting | px | recipe | updates | s per policy | nominal | held-out | seeds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    figure, axes = plt.subplots(figsize=(7, 4.5))
    for (task, size, recipe), rows in cells.items():
        seconds = rows[0]["train_seconds"]
        shown = [_mean_and_spread([100 * float(row[key]) for row in rows]) for key in ("nominal", "held_out")]
        lines.append(
            f"| {task} | {size} | {recipe} | {rows[0]['updates']} | {seconds or '–'} | {shown[0]} | {shown[1]} "
            f"| {len(rows)} |"
        )
        if seconds:
            held_out = [100 * float(row["held_out"]) for row in rows]
            axes.plot([float(seconds)] * len(rows), held_out, "o", label=f"{task.partition('/')[2]}, {recipe}")
    axes.set_xscale("log")
    axes.set_xlabel("training seconds per policy")
    axes.set_ylabel("held-out success, %")
    if axes.has_data():
        axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(options.out / "success.png", dpi=120)
    text = "\n".join(lines) + "\n"
    (options.out / "report.md").write_text(text)
    print(text, end="")


def _mean_and_spread(values: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def _rows(out: Path) -> list[dict[str, str]]:
    path = out / "rows.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _append(out: Path, rows: Sequence[dict[str, Any]]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    every = [*_rows(out), *rows]
    columns = list(dict.fromkeys(column for row in every for column in row))
    with (out / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(every)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "report"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--task", default="maniskill/pull-visual")
    parser.add_argument("--image-size", type=int, default=96)
    parser.add_argument("--recipes", type=Path)
    parser.add_argument("--only", nargs="+", help="recipes to train, by name")
    parser.add_argument("--policies", type=int, default=12, help="of each recipe, side by side")
    parser.add_argument("--mixed", action="store_true", help="all recipes as one job")
    parser.add_argument("--demos", type=int, default=30, help="per factor")
    parser.add_argument("--states", type=int, default=2, help="initial states per held-out setting")
    parser.add_argument("--nominal", type=int, default=60, help="nominal trials")
    parser.add_argument("--work", type=Path, default=Path("/tmp/time-to-success"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--plain", action="store_true", help="do not compile: a quicker start, slower updates")
    options = parser.parse_args()
    {"train": train, "report": report}[options.what](options)


if __name__ == "__main__":
    main()
