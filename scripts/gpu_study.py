"""Train and measure every policy of a simulated study on one GPU, with numpy, scipy and torch alone.

    python scripts/gpu_study.py --task maniskill/pull-visual --out results/pull-visual --seed 0 \\
        --policy '{"prediction": "sample", "noise_samples": 4, "updates": 6000}' --image-size 96 --states 6

For machines on which only torch and the simulator are installed. Writes into OUT, policy by policy: `results.csv`
(scores per factor, the general form that `fsc import` and `fsc recommend` read), `similarity.json` (for FSC-Proxy) and
`settings.json`. Rows that are there already are not made again, so a study may be filled over several short calls.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from factored_scaling.core.dataset import Dataset
from factored_scaling.core.design import PlannedRun, plan
from factored_scaling.core.proxy import KS, cosine_similarities, nearest_mean
from factored_scaling.core.spec import StudySpec
from factored_scaling.lab import DATASET_STRIDE, Lab
from factored_scaling.policies.config import DiffusionConfig
from factored_scaling.policies.diffusion import load_policy
from factored_scaling.policies.many import Job, train_many

BEGAN = time.time()


def say(*words: object) -> None:
    """A line with the seconds since the start."""
    print(f"[{time.time() - BEGAN:6.1f}]", *words, flush=True)


class Watch:
    """Progress every twenty seconds."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, done: int, total: int, note: str = "") -> None:
        if time.time() - self._last > 20 or done >= total:
            self._last = time.time()
            say(f"{done} of {total} {note}")


def measured(path: Path) -> set[tuple[str, ...]]:
    """Training sets and seeds that have their rows already."""
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {(*(v for k, v in row.items() if k.startswith("demos:")), row["seed"]) for row in rows}


def key_of(run: PlannedRun) -> tuple[str, ...]:
    return (*(str(count) for count in run.demos.values()), str(run.spec.seed))


def evaluate(lab: Lab, run: PlannedRun, folder: Path, out: Path, device: str) -> float:
    """Roll one policy out, append its rows, keep its similarities; returns its mean score."""
    scores: dict[str, list[float]] = defaultdict(list)
    for trial in lab.evaluate(run.spec, folder, (), Watch()):
        scores[trial.factor[0]].append(trial.score)
    path = out / "results.csv"
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if fresh:
            writer.writerow([*(f"demos:{name}" for name in run.demos), "factor", "score", "trials", "seed"])
        for factor, values in scores.items():
            mean = sum(values) / len(values)
            writer.writerow([*run.demos.values(), factor, repr(mean), len(values), run.spec.seed])
    similarities = cosine_similarities(lab.embed_held_out(folder, run.spec), lab.embed(folder, run.spec.episodes))
    kept = json.loads((out / "similarity.json").read_text()) if (out / "similarity.json").exists() else {}
    kept["/".join(key_of(run))] = {str(k): nearest_mean(similarities, k).round(5).tolist() for k in KS}
    (out / "similarity.json").write_text(json.dumps(kept))
    every = [score for values in scores.values() for score in values]
    return sum(every) / len(every)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/gpu-study"), help="frames and policies, not kept")
    parser.add_argument("--demos", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0, help="which demonstrations and weights")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--states", type=int, default=6, help="initial states per held-out setting")
    parser.add_argument("--policy", type=json.loads, default={})
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--plain", action="store_true", help="capture without compiling first: quicker to start")
    parser.add_argument("--policies", type=int, help="only the first so many of the plan")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    lab = Lab(options.task, options.work, options.device, options.image_size)
    settings: dict[str, Any] = {"task": options.task, "image_size": lab.task.image_size, "policy": options.policy}
    spec = StudySpec(
        factors=dict.fromkeys(lab.task.factors, options.demos),
        name=options.task,
        first_seed=options.seed,
        task=options.task,
        policy={"preset": "paper", **options.policy},
        evaluation={"initial_states": options.states},
    )
    (options.out / "settings.json").write_text(json.dumps({**settings, "spec": spec.to_mapping()}, indent=1) + "\n")
    episodes = lab.collect(spec.sizes, options.seed * DATASET_STRIDE, Watch())
    done = measured(options.out / "results.csv")
    runs = [run for run in plan(spec, Dataset(tuple(episodes)))[: options.policies] if key_of(run) not in done]
    table = lab.frames([episode.id for episode in episodes], Watch())
    config = DiffusionConfig.from_mapping(spec.policy)
    jobs = [Job(run.spec.episodes, config, run.spec.seed, options.work / run.spec.digest) for run in runs]
    say(f"{len(table.images)} frames; {len(runs)} policies to train, {config.updates} updates each")
    failures = train_many(table, jobs, Watch(), options.device, side_by_side=12, compiled=not options.plain)
    for run, job in zip(runs, jobs, strict=True):
        if job.folder in failures:
            say(run.demos, "failed:", failures[job.folder])
            continue
        nominal = load_policy(job.folder, options.device).description["final_loss"]
        say(run.demos, f"loss {nominal:.5f}, score {evaluate(lab, run, job.folder, options.out, options.device):.3f}")
    close = getattr(lab.task, "close", None)
    if close is not None:
        close()


if __name__ == "__main__":
    main()
