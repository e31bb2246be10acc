"""A simulated study on one GPU, with few packages: some policies are trained while others are measured.

    python scripts/gpu_study.py check --task maniskill/pull-visual --out OUT --image-size 96 \\
        --policy '{"prediction": "sample", "noise_samples": 4}' --variants '{"6k": {"updates": 6000}, …}'
    python scripts/gpu_study.py study --task … --out OUT --seeds 0 1
    python scripts/gpu_study.py loop  --task … --out OUT --seeds 0 1 --budgets 100 20
    python scripts/gpu_study.py all   --task … --out OUT --seeds 0 1 --budgets 100 20
    python scripts/gpu_study.py proxy --task … --out OUT
    python scripts/gpu_study.py remix --task … --out OUT --seeds 0 1 --device cpu

For machines with torch, safetensors, numpy, scipy and the simulator only; elsewhere `fsc run` does the same. `check`
trains the full-data policy in several ways and measures it in held-out and nominal scenes (`check.csv`). `study` trains
and measures every policy of the plan: `results.csv` (scores per factor, as `fsc recommend` reads them) and
`similarity.json` (for FSC-Proxy). `loop` collects the allocation of every rule, trains and measures (`outcomes.csv`).
`all` does both with the same processes: the allocations of a seed follow as soon as its study is measured.
`proxy` needs no GPU and no simulator: it turns the similarities into scores (`proxy-k1.csv` …, for `fsc recommend`)
and prints how well they rank the policies. `remix` learns Re-Mix's weights of the factors from the demonstrations
(`remix.json`), which `loop` needs for the rule `remix`; it trains small models only, and a CPU will do. Policies that
have rows are not measured again, so several short calls can fill a study. Ctrl-C and SIGTERM save the policies in
training and stop; the same command continues.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing.synchronize import Lock, Semaphore
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from factored_scaling.backends.protocol import Context
from factored_scaling.backends.simulation import DATASET_STRIDE, Lab
from factored_scaling.core.dataset import Dataset, Episode
from factored_scaling.core.design import RunSpec, plan, run_on
from factored_scaling.core.proxy import KS, nearest_means, proxy_scores, rank_agreement
from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Result, Trial, result_of
from factored_scaling.errors import FscError
from factored_scaling.io.tables import table_csv
from factored_scaling.io.text import read_json, read_table, write_text
from factored_scaling.machine import prepare_device
from factored_scaling.model.posterior import fit_posterior
from factored_scaling.model.recommend import recommend
from factored_scaling.model.summary import compare
from factored_scaling.policies.capacity import check_device
from factored_scaling.policies.diffusion import load_policy
from factored_scaling.policies.inference import Sampler, Team
from factored_scaling.sim import Condition, load_task

# The name of each rule in outcomes.csv, as in `fsc reproduce`: (strategy, fit).
RULES = {
    "group, top": ("top", "power-law"),
    "group, all": ("all", "power-law"),
    "equal": ("equal", "power-law"),
    "greedy": ("greedy", "power-law"),
    "response model": ("auto", "response-model"),
    "remix": ("remix", "power-law"),
}
Measured = tuple[Result, list[float], dict[str, list[float]]]  # held-out result, nominal scores, similarities by k


@dataclass(frozen=True)
class Job:
    """A policy to train and measure: the columns that name it in `file`, and its number of nominal trials."""

    file: str
    row: Mapping[str, Any]
    run: RunSpec
    nominal: int = 0


def say(*words: object) -> None:
    """Print a line with the time."""
    print(" ".join(map(str, (time.strftime("%H:%M:%S"), *words))), flush=True)


class Progress:
    """Prints a line every twenty seconds."""

    def __init__(self) -> None:
        self.last = time.time()

    def __call__(self, done: int, total: int, note: str = "") -> None:
        if time.time() - self.last > 20:
            self.last = time.time()
            say(f"{done} of {total} {note}")


class Worker:
    """A process that carries out groups of jobs. One at a time demonstrates, --trainers train; all may measure."""

    def __init__(self, options: argparse.Namespace, demonstrating: Lock, training: Semaphore) -> None:
        global worker
        worker = self
        self.together, self.demonstrating, self.training = options.together, demonstrating, training
        self.stopping, self.progress = False, Progress()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to all; the parent sends SIGTERM
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "stopping", True))
        threading.Thread(target=_end_with_parent, daemon=True).start()
        os.environ["FSC_SIM_PROCESSES"] = str(max(1, (os.cpu_count() or 1) // options.workers))
        prepare_device(options.device)
        self.lab = Lab(options.task, options.work, options.device, options.image_size)

    def watch(self, done: int, total: int, note: str = "") -> None:
        """Print progress; a safe point to stop at."""
        if self.stopping:
            raise SystemExit("stopped; the same command continues")
        self.progress(done, total, note)

    def carry_out(self, jobs: Sequence[Job]) -> list[Measured | str]:
        """Train and measure policies; a text is the reason of a failure. Jobs with the same run share its policy."""
        lab, folders = self.lab, [self.lab.folder / job.run.digest for job in jobs]
        runs = {folder: job.run for folder, job in zip(folders, jobs, strict=True)}
        with self.demonstrating:
            lab.demonstrate([id_ for run in runs.values() for id_ in run.episodes], self.watch)
        with self.training:
            context = Context(self.watch, together=self.together)
            failures = lab.train_many([*runs.values()], [*runs], context)
        trained = [folder for folder in runs if folder not in failures]
        say(f"{len(trained)} policies trained")
        alike = len({repr(runs[folder].policy) for folder in trained}) == 1  # only such can be rolled out side by side
        trials: dict[Path, list[Trial]] = defaultdict(list)
        for part in [trained] if alike else [[folder] for folder in trained]:
            contexts = [Context(self.watch) for _ in part]
            for index, trial in lab.evaluate_many([runs[folder] for folder in part], part, contexts):
                trials[part[index]].append(trial)
        return [
            failures.get(folder) or self.measured(job, folder, trials[folder])
            for job, folder in zip(jobs, folders, strict=True)
        ]

    def measured(self, job: Job, folder: Path, trials: Sequence[Trial]) -> Measured:
        """The result of a policy's trials, its scores in nominal scenes and its similarities."""
        nominal: list[float] = []
        if job.nominal:
            policy, scenes = load_policy(folder, self.lab.device), [Condition(None, 0, i) for i in range(job.nominal)]
            team = Team([Sampler(policy)], [job.run.seed], len(scenes))
            rolled = self.lab.task.rollout(team, scenes, policy.config.execute, self.lab.device)
            nominal = [score for _, score in rolled]
        embeddings = self.lab.embed(job.run, folder, Context(self.watch))
        return result_of(trials), nominal, nearest_means(embeddings.held_out, embeddings.trained)


worker: Worker  # where this process is one


def carry_out(jobs: Sequence[Job]) -> list[Measured | str]:
    """Carry out jobs in a worker."""
    return worker.carry_out(jobs)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file, none when it does not exist."""
    return [row for _, row in read_table(path, lambda header, place: None)] if path.exists() else []


def write(path: Path, key: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to a CSV file, in place of those with the same key. The file is written whole or not at all."""
    new = {tuple(str(row[column]) for column in key) for row in rows}
    every = [*(row for row in read(path) if tuple(row[column] for column in key) not in new), *rows]
    header = list(dict.fromkeys(column for row in every for column in row))
    write_text(path, table_csv(header, [[row.get(column, "") for column in header] for row in every]))


class Study:
    """The study that the options describe, and its rows in OUT."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.out = options, options.out
        self.factors = tuple(load_task(options.task, options.image_size).factors)

    def spec(self, seed: int) -> StudySpec:
        """The specification of one seed."""
        options = self.options
        size = {"image_size": options.image_size} if options.image_size else {}
        return StudySpec(
            factors=dict.fromkeys(self.factors, options.demos),
            name=options.task,
            first_seed=seed,
            task=options.task,
            policy={"preset": "paper", **options.policy, **size},
            evaluation={"initial_states": options.states},
        )

    def dataset(self, seed: int, more: Mapping[str, int] | None = None) -> Dataset:
        """The demonstrations of one seed, and `more` of each factor after them."""
        first, sizes = seed * DATASET_STRIDE, {n: self.options.demos + (more or {}).get(n, 0) for n in self.factors}
        return Dataset(tuple(Episode(f"{n}/{first + i}", n) for n, size in sizes.items() for i in range(size)))

    def check(self) -> list[Job]:
        """The full-data policy of every seed in every variant."""
        done = {(row["name"], row["seed"]) for row in read(self.out / "check.csv")}
        full = [plan(self.spec(seed), self.dataset(seed))[0].spec for seed in self.options.seeds]
        return [
            Job("check.csv", {"name": name}, replace(run, policy={**run.policy, **changes}), self.options.nominal)
            for run in full
            for name, changes in self.options.variants.items()
            if (name, str(run.seed)) not in done
        ]

    def study(self) -> list[Job]:
        """Every policy of the plan whose rows are not all in results.csv. The full-data policy is checked, too."""
        path, new = self.out / "spec.json", json.loads(json.dumps(self.spec(0).to_mapping()))
        rows = read(self.out / "results.csv")
        old = read_json(path) if path.exists() and rows else new
        changes = [f"{key} {old.get(key)}, now {new[key]}" for key in new if old.get(key) != new[key]]
        if changes:
            raise SystemExit(f"{self.out} has rows of another study ({'; '.join(changes)}): give another --out")
        write_text(path, json.dumps(new, indent=1) + "\n")
        names = [f"demos:{name}" for name in self.factors]
        count = Counter(tuple(row[name] for name in (*names, "seed")) for row in rows)
        return [
            Job("results.csv", row, run.spec, self.options.nominal if run.demos == self.spec(seed).sizes else 0)
            for seed in self.options.seeds
            for run in plan(self.spec(seed), self.dataset(seed))
            for row in [{f"demos:{name}": demos for name, demos in run.demos.items()}]
            if count[(*map(str, row.values()), str(seed))] < len(names)
        ]

    def ready(self) -> list[int]:
        """The seeds whose study is measured."""
        missing = {job.run.seed for job in self.study()}
        return [seed for seed in self.options.seeds if seed not in missing]

    def check_weights(self) -> None:
        """Stop if Re-Mix is among the rules and its weights are not there."""
        absent = set(map(str, self.options.seeds)) - set(self.weights())
        if "remix" in self.options.rules and absent:
            raise SystemExit(f"seed {min(absent)}: {self.out / 'remix.json'} has no weights: `remix` first")

    def loop(self, seeds: Sequence[int] | None = None) -> list[Job]:
        """The allocations of every rule, and those of --orders."""
        options, key = self.options, ("seed", "budget", "method")
        seeds = options.seeds if seeds is None else seeds
        self.check_weights()
        done = {tuple(row[name] for name in key) for row in read(self.out / "outcomes.csv")}
        weights = self.weights()
        missing = Counter(job.run.seed for job in self.study())
        orders = read_json(options.orders) if options.orders else []
        for seed in seeds:
            spec, rows = self.spec(seed), [row for row in read(self.out / "results.csv") if row["seed"] == str(seed)]
            asked = [(budget, rule) for budget in options.budgets for rule in options.rules]
            asked = [(budget, rule) for budget, rule in asked if (str(seed), str(budget), rule) not in done]
            if asked and missing[seed]:
                raise SystemExit(f"seed {seed}: {missing[seed]} policies of the study are not measured: `study` first")
            if not asked:
                continue
            results = Results.from_rows(
                {"demos": {name: int(row[f"demos:{name}"]) for name in self.factors}, "factor": row["factor"]}
                | {"score": float(row["score"]), "trials": int(row["trials"])}
                for row in rows
            )
            posterior = fit_posterior(spec, results)
            for budget, rule in asked:
                order = {"seed": seed, "budget": budget, "method": rule}
                learned = weights.get(str(seed)) if rule == "remix" else None
                answer = recommend(spec, results, budget, *RULES[rule], weights=learned)
                order["order"] = allocation = answer.allocation
                order["predicted"] = compare(posterior, budget, allocation).predicted.mean
                orders.append(order)
        jobs = []
        for one in orders:
            if one["seed"] not in seeds or tuple(str(one[name]) for name in key) in done:
                continue
            row = {"task": options.task, "demos": options.demos, **{name: one[name] for name in key}}
            row["predicted"] = "" if one["predicted"] is None else f"{one['predicted']:.4f}"
            row |= {f"collect:{name}": one["order"][name] for name in self.factors}
            say(*row.values())
            episodes = [episode.id for episode in self.dataset(one["seed"], one["order"]).episodes]
            jobs.append(Job("outcomes.csv", row, run_on(self.spec(one["seed"]), episodes, one["seed"])))
        return jobs

    def weights(self) -> dict[str, dict[str, float]]:
        """Re-Mix's weight of every factor, by seed."""
        path = self.out / "remix.json"
        return {seed: one["weights"] for seed, one in read_json(path).items()} if path.exists() else {}

    def remix(self) -> None:
        """Learn Re-Mix's weights of the seeds that have none; written with the settings they were learned with."""
        options, path = self.options, self.out / "remix.json"
        settings = {key: value for key, value in options.remix.items() if key != "preset"}
        settings = {"preset": options.remix.get("preset", "paper"), **settings}
        prepare_device(options.device)
        lab = Lab(options.task, options.work, options.device, options.image_size)
        for seed in options.seeds:
            found = read_json(path) if path.exists() else {}
            if str(seed) in found:
                continue
            episodes, folder = [episode.id for episode in self.dataset(seed).episodes], lab.folder / f"remix-{seed}"
            learned = lab.remix(episodes, settings, seed, folder, Progress())
            say("remix", f"seed {seed}:", *(f"{name} {weight:.3f}" for name, weight in learned.weights.items()))
            made = {"task": options.task, "demos": options.demos, "image_size": options.image_size, "policy": settings}
            found[str(seed)] = {"weights": learned.weights, **made}
            write_text(path, json.dumps(found, indent=1) + "\n")

    def keep(self, job: Job, result: Result, nominal: Sequence[float], similarities: Mapping[str, Any]) -> None:
        """Write the rows of a policy."""
        seed, scores = job.run.seed, {name: result.by_factor[(name,)] for name in self.factors}
        summary = {"score": round(result.overall.mean, 4), "trials": result.overall.trials}
        summary |= {f"score:{name}": round(score.mean, 4) for name, score in scores.items()}
        say(job.file, *job.row.values(), f"seed {seed}:", *summary.values())
        if nominal or job.file == "check.csv":
            row = {"name": job.row.get("name", "full data"), "seed": seed}
            if nominal:
                row |= {"nominal": round(sum(nominal) / len(nominal), 4), "nominal_trials": len(nominal)}
            write(self.out / "check.csv", ("name", "seed"), [row | summary])
        if job.file == "outcomes.csv":
            write(self.out / job.file, ("seed", "budget", "method"), [{**job.row, **summary}])
        if job.file == "results.csv":
            path, key = self.out / "similarity.json", "/".join(map(str, [*job.row.values(), seed]))
            write_text(path, json.dumps({**(read_json(path) if path.exists() else {}), key: similarities}))
            rows = [
                {**job.row, "factor": name, "score": score.mean, "trials": score.trials, "seed": seed}
                for name, score in scores.items()
            ]
            write(self.out / job.file, (*job.row, "factor", "seed"), rows)  # last: a policy with these rows is done

    def run(self, jobs: Sequence[Job], more: Callable[[], list[Job]] = list) -> None:
        """Carry out jobs in groups and write their rows. After each group, `more` returns further jobs."""
        spawn, together, failed = multiprocessing.get_context("spawn"), self.options.together, 0
        waiting: dict[Future[list[Measured | str]], Sequence[Job]] = {}
        with ProcessPoolExecutor(
            self.options.workers, spawn, Worker, (self.options, spawn.Lock(), spawn.Semaphore(self.options.trainers))
        ) as pool:

            def submit(new: Sequence[Job]) -> None:
                groups = [new[first : first + together] for first in range(0, len(new), together)]
                waiting.update({pool.submit(carry_out, group): group for group in groups})

            try:
                submit(jobs)
                submit(more())
                while waiting:
                    for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                        for job, measured in zip(waiting.pop(future), future.result(), strict=True):
                            if isinstance(measured, str):
                                say(job.file, *job.row.values(), f"seed {job.run.seed} failed: {measured}")
                                failed += 1
                            else:
                                self.keep(job, *measured)
                    submit(more())
            except BrokenProcessPool:
                raise SystemExit("a worker has died; the same command continues") from None
            finally:
                pool.shutdown(cancel_futures=True)
        if failed:
            raise SystemExit(f"{failed} policies failed; the same command tries them again")

    def all(self) -> None:
        """The study, and the allocations of each seed as soon as its policies are measured."""
        self.check_weights()
        asked: set[int] = set()

        def allocations() -> list[Job]:
            seeds = [seed for seed in self.ready() if seed not in asked]
            asked.update(seeds)
            return self.loop(seeds)

        self.run(self.study(), allocations)


def proxy(out: Path) -> None:
    """Proxy scores of every policy, normalised over all of them; per seed, their rank agreement with the trials."""
    rows = read(out / "results.csv")
    columns = [column for column in rows[0] if column.startswith("demos:")]
    names = [column.removeprefix("demos:") for column in columns]
    measured: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        measured["/".join(row[column] for column in (*columns, "seed"))].append(float(row["score"]))
    similarities = read_json(out / "similarity.json")
    for k in map(str, KS):
        values = {key: similarities[key][k] for key in similarities if key in measured}
        # Neighbouring conditions differ in factor (Lab.conditions), so factors take turns.
        scores = proxy_scores(values, names * (len(next(iter(values.values()))) // len(names)))
        cells = [
            [*key.split("/")[:-1], name, round(score.by_factor[name], 5), key.split("/")[-1]]
            for key, score in scores.items()
            for name in names
        ]
        write_text(out / f"proxy-k{k}.csv", table_csv([*columns, "factor", "score", "seed"], cells))
        for seed in sorted({key.rpartition("/")[2] for key in scores}):
            mine = {key: score.overall for key, score in scores.items() if key.endswith(f"/{seed}")}
            agreement = rank_agreement(mine, {key: sum(measured[key]) / len(names) for key in mine})
            low, high = agreement.interval.low, agreement.interval.high
            print(f"k = {k}, seed {seed}: Spearman {agreement.spearman:.2f} ({low:.2f} to {high:.2f})")


def stop(number: int, frame: object) -> None:
    """Let the workers save their policies and end; asked again, end at once."""
    signal.signal(number, signal.SIG_DFL)
    for process in multiprocessing.active_children():
        process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("what", choices=("check", "study", "loop", "all", "proxy", "remix"))
    add("--task", required=True)
    add("--out", type=Path, required=True)
    add("--work", type=Path, default=Path("/tmp/gpu-study"), help="frames and policies; may be deleted afterwards")
    add("--demos", type=int, default=30, help="per factor")
    add("--seeds", type=int, nargs="+", default=[0], help="each has its own demonstrations and weights")
    add("--budgets", type=int, nargs="+", default=[100])
    add("--rules", nargs="*", choices=list(RULES), default=list(RULES)[:4])
    add("--orders", type=Path, help="further allocations: [{seed, budget, method, predicted, order}]")
    add("--variants", type=json.loads, default={"as given": {}})
    add("--image-size", type=int)
    add("--states", type=int, default=6, help="initial states per held-out setting")
    add("--nominal", type=int, default=60, help="trials of the full-data policy in nominal scenes")
    add("--policy", type=json.loads, default={})
    add("--remix", type=json.loads, default={}, help="settings of Re-Mix's models")
    add("--device", default="cuda")
    add("--together", type=int, default=5, help="policies trained side by side")
    add("--workers", type=int, default=2, help="processes")
    add("--trainers", type=int, default=1, help="how many of them may train at once while the others measure")
    options = parser.parse_args()
    try:
        if options.what == "proxy":
            proxy(options.out)
            return
        check_device(options.device)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        study = Study(options)
        if options.what in ("remix", "all"):
            getattr(study, options.what)()
        else:
            study.run(getattr(study, options.what)())
    except FscError as error:
        raise SystemExit(str(error)) from None
    say("done")


if __name__ == "__main__":
    main()
