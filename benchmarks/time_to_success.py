"""Time to success: GPU seconds per policy against success on fixed nominal and held-out scenes, one row per policy.

    python benchmarks/time_to_success.py train --recipes benchmarks/recipes/pull-visual.json --out OUT
    python benchmarks/time_to_success.py report --out OUT --reference "the paper's"

A file of recipes has the `task` and its `image_size`, and under `recipes` for every name the policy settings that it
changes (as under `policy:` in study.yaml, preset `paper`). A recipe may have an `image_size` of its own. With
`timed_updates` it is trained for that many updates only and not measured: its seconds are those times the number of
updates that it asks for.

`train` trains `--policies` policies of each recipe side by side, from demonstrations on disk, each with a seed and
demonstrations of its own (or one of `--datasets` sets, in turn), then rolls each one out. It appends to
`OUT/rows.csv`. Recipes that have rows are skipped, so the table can be filled over several calls. With `--mixed` all
recipes of one image size train as one job: the quick way to compare success, but their seconds cannot be told apart.
`report` writes `report.md` and `success.png` from the rows; it needs no GPU.
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
class Recipe:
    """Settings of a policy, the size of its images, and how many updates are timed where success is not measured."""

    name: str
    policy: dict[str, Any]
    image_size: int
    timed_updates: int | None

    @property
    def trained(self) -> dict[str, Any]:
        """The settings that policies are trained with."""
        return {**self.policy, "updates": self.timed_updates} if self.timed_updates else self.policy


@dataclass(frozen=True)
class Candidate:
    """One policy: its recipe, its seed and where it is kept."""

    recipe: Recipe
    seed: int
    folder: Path


def read_recipes(path: Path) -> tuple[str, list[Recipe]]:
    """The task and the recipes of a file."""
    given = json.loads(path.read_text())
    recipes = []
    for name, settings in given["recipes"].items():
        policy = {"preset": "paper", **settings}
        size, timed = policy.pop("image_size", given["image_size"]), policy.pop("timed_updates", None)
        recipes.append(Recipe(name, policy, size, timed))
    return given["task"], recipes


def train(options: argparse.Namespace) -> None:
    """Train and measure the recipes that have no rows yet."""
    from factored_scaling.machine import prepare_device

    task, recipes = read_recipes(options.recipes)
    done = {row["recipe"] for row in _rows(options.out) if row["task"] == task}
    new = [recipe for recipe in recipes if recipe.name not in done and recipe.name in (options.only or [recipe.name])]
    prepare_device(options.device)
    for size in dict.fromkeys(recipe.image_size for recipe in new):
        train_size(options, task, [recipe for recipe in new if recipe.image_size == size])


def train_size(options: argparse.Namespace, task: str, recipes: Sequence[Recipe]) -> None:
    """Train and measure recipes with one size of images."""
    import torch

    from factored_scaling.backends.simulation import Lab, policy_config
    from factored_scaling.policies.many import Job, train_many

    lab = Lab(task, options.work, options.device, recipes[0].image_size)
    folder = options.work / task
    datasets = [
        [f"{factor}/{number * options.demos + i}" for factor in lab.task.factors for i in range(options.demos)]
        for number in range(min(options.datasets or options.policies, options.policies))
    ]
    wanted = [id_ for ids in datasets for id_ in ids]
    table = lab.frames(wanted, Stopwatch())
    say(f"{len(wanted)} demonstrations, {len(table.images)} frames of {table.images.shape[1:]}")
    candidates = [
        [Candidate(recipe, seed, folder / f"{recipe.name}-{seed}") for seed in range(options.policies)]
        for recipe in recipes
    ]
    for group in [[c for each in candidates for c in each]] if options.mixed else candidates:
        jobs = [
            Job(tuple(datasets[c.seed % len(datasets)]), policy_config(c.recipe.trained), c.seed, c.folder)
            for c in group
        ]
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
        for recipe in recipes:
            mine = [c for c in group if c.recipe is recipe and c.folder not in failures]
            seconds = None if options.mixed else (start / len(jobs), trained / len(jobs))
            _append(options.out, measure(options, lab, mine, seconds))
    close = getattr(lab.task, "close", None)
    if close is not None:
        close()


def measure(
    options: argparse.Namespace, lab: Any, candidates: Sequence[Candidate], seconds: tuple[float, float] | None
) -> list[dict[str, Any]]:
    """Seconds and success of the policies of one recipe, a row each."""
    from factored_scaling.backends.simulation import policy_config
    from factored_scaling.policies.diffusion import load_policy

    if not candidates:
        return []
    recipe = candidates[0].recipe
    updates = policy_config(recipe.policy).updates
    times = updates / recipe.timed_updates if recipe.timed_updates else 1
    policies = [load_policy(c.folder, options.device) for c in candidates]
    found = [_no_success(lab)] * len(policies) if recipe.timed_updates else roll_out(options, lab, candidates, policies)
    rows = [
        {
            "task": lab.task.name,
            "image_size": lab.task.image_size,
            "demos": options.demos,
            "recipe": recipe.name,
            "settings": json.dumps({k: v for k, v in recipe.policy.items() if k != "preset"}, sort_keys=True),
            "seed": candidate.seed,
            "side_by_side": options.policies,
            "updates": updates,
            "timed_updates": recipe.timed_updates or updates,
            "start_seconds": round(seconds[0], 3) if seconds else "",
            "train_seconds": round(seconds[1] * times, 3) if seconds else "",
            "loss": f"{policy.description['final_loss']:.5f}",
            **success,
        }
        for candidate, policy, success in zip(candidates, policies, found, strict=True)
    ]
    for row in rows:
        say(row["recipe"], row["seed"], *(f"{key} {row[key]}" for key in ("train_seconds", "nominal", "held_out")))
    return rows


def roll_out(
    options: argparse.Namespace, lab: Any, candidates: Sequence[Candidate], policies: Sequence[Any]
) -> list[dict[str, Any]]:
    """Success of every policy on the fixed nominal and held-out scenes."""
    from factored_scaling.policies.inference import Sampler, Team
    from factored_scaling.sim import Condition

    began = time.perf_counter()
    held_out = lab.conditions({"initial_states": options.states})
    conditions = [*held_out, *(Condition(None, 0, state) for state in range(options.nominal))]
    team = Team([Sampler(policy) for policy in policies], [c.seed for c in candidates], len(conditions))
    scores: list[dict[str | None, list[float]]] = [defaultdict(list) for _ in policies]
    execute = policies[0].config.execute
    for row, score in lab.task.rollout_many(team, len(policies), conditions, execute, options.device):
        scores[row // len(conditions)][conditions[row % len(conditions)].factor].append(score)
    took, trials = time.perf_counter() - began, len(policies) * len(conditions)
    say(f"{trials} trials in {took:.1f} s, {trials / took:.1f}/s")
    return [
        {
            "nominal": round(statistics.mean(by_factor[None]), 4) if by_factor[None] else "",
            "nominal_trials": len(by_factor[None]),
            "held_out": round(statistics.mean(s for name in lab.task.factors for s in by_factor[name]), 4),
            "held_out_trials": len(held_out),
            **{f"score:{name}": round(statistics.mean(by_factor[name]), 4) for name in lab.task.factors},
        }
        for by_factor in scores
    ]


def _no_success(lab: Any) -> dict[str, Any]:
    columns = ("nominal", "nominal_trials", "held_out", "held_out_trials")
    return dict.fromkeys([*columns, *(f"score:{name}" for name in lab.task.factors)], "")


def report(options: argparse.Namespace) -> None:
    """A table and a figure from the rows."""
    import matplotlib.pyplot as plt

    cells: dict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    for row in _rows(options.out):
        cells[row["task"], row["image_size"], row["recipe"]].append(row)
    reference = {task: seconds_of(rows) for (task, _, recipe), rows in cells.items() if recipe == options.reference}
    lines = [
        f"| setting | px | recipe | updates | s per policy | times as fast as {options.reference} "
        "| nominal | held-out | seeds |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    figure, axes = plt.subplots(figsize=(7, 4.5))
    for (task, size, recipe), rows in cells.items():
        seconds, slow = seconds_of(rows), reference.get(task)
        shown = [
            _mean_and_spread([100 * float(row[key]) for row in rows if row[key]]) for key in ("nominal", "held_out")
        ]
        times = f"{slow / seconds:.1f}" if slow and seconds else "–"
        cost = "–" if seconds is None else f"{seconds:.1f}"
        if rows[0]["timed_updates"] != rows[0]["updates"]:
            cost += f" (from {rows[0]['timed_updates']} updates)"
        lines.append(
            f"| {task} | {size} | {recipe} | {rows[0]['updates']} | {cost} | {times} | {shown[0]} | {shown[1]} "
            f"| {len(rows)} |"
        )
        held_out = [100 * float(row["held_out"]) for row in rows if row["held_out"]]
        name = f"{task.partition('/')[2]}, {recipe}"
        if seconds is not None and held_out:
            axes.plot([seconds] * len(held_out), held_out, "o", mfc="none", label=name)
        elif seconds is not None:
            axes.axvline(seconds, ls=":", color="#5d6977", label=f"{name}, success not measured")
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


def seconds_of(rows: Sequence[dict[str, str]]) -> float | None:
    """Training seconds per policy of a recipe, with its share of the start; None where recipes were trained mixed."""
    return float(rows[0]["start_seconds"]) + float(rows[0]["train_seconds"]) if rows[0]["train_seconds"] else None


def _mean_and_spread(values: Sequence[float]) -> str:
    if not values:
        return "–"
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
    parser.add_argument("--recipes", type=Path)
    parser.add_argument("--only", nargs="+", help="recipes to train, by name")
    parser.add_argument("--policies", type=int, default=12, help="of each recipe, side by side")
    parser.add_argument("--datasets", type=int, help="sets of demonstrations that the policies share")
    parser.add_argument("--mixed", action="store_true", help="all recipes as one job")
    parser.add_argument("--demos", type=int, default=30, help="per factor")
    parser.add_argument("--states", type=int, default=2, help="initial states per held-out setting")
    parser.add_argument("--nominal", type=int, default=60, help="nominal trials")
    parser.add_argument("--work", type=Path, default=Path("/tmp/time-to-success"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--plain", action="store_true", help="do not compile: a quicker start, slower updates")
    parser.add_argument("--reference", default="the paper's", help="the recipe that `report` compares with")
    options = parser.parse_args()
    if options.what == "train" and options.recipes is None:
        parser.error("train needs --recipes")
    {"train": train, "report": report}[options.what](options)


if __name__ == "__main__":
    main()
