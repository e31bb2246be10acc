"""A simulated study on one GPU, with few packages: some policies are trained while others are measured.

    python scripts/gpu_study.py check --task maniskill/pull-visual --out OUT --image-size 96 \\
        --policy '{"prediction": "sample", "noise_samples": 4}' --variants '{"6k": {"updates": 6000}, …}'
    python scripts/gpu_study.py study --task … --out OUT --seeds 0 1
    python scripts/gpu_study.py loop  --task … --out OUT --seeds 0 1 --budgets 100 20
    python scripts/gpu_study.py all   --task … --out OUT --seeds 0 1 --budgets 100 20
    python scripts/gpu_study.py proxy --task … --out OUT
    python scripts/gpu_study.py remix --task … --out OUT --seeds 0 1 --device cpu

The published studies keep their options in a file: `all --options results/main/pull-visual/options.json --out …`.
For machines with torch, safetensors, numpy, scipy and the simulator only; elsewhere `fsc run` does the same. `check`
trains the full-data policy in several ways and measures it in held-out and nominal scenes (`check.csv`). `study` trains
and measures every policy of the plan: `results.csv` (scores per factor, as `fsc recommend` reads them) and
`similarity.json` (for FSC-Proxy). `loop` collects the allocation of every rule, trains and measures (`outcomes.csv`).
`remix` learns Re-Mix's weights of the factors from the demonstrations (`remix.json`), which `loop` needs for the rule
`remix`; with the preset `small` a CPU will do. `all` does all three with the same processes: the allocations
of a seed follow as soon as its study is measured, that of Re-Mix when its weights are learned, too. `times.csv` says
how long each group of policies took.

`proxy` needs no GPU and no simulator: it turns the similarities into scores (`proxy-k1.csv` …, for `fsc recommend`)
and prints how well they rank the policies. Policies that have rows are not measured again, so several short calls can
fill a study. Ctrl-C and SIGTERM save the policies in training and stop; the same command continues.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
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
from factored_scaling.model.posterior import Posterior, fit_posterior
from factored_scaling.model.recommend import recommend
from factored_scaling.model.summary import compare
from factored_scaling.policies.capacity import check_device
from factored_scaling.policies.checkpoint import digest_of
from factored_scaling.policies.config import RemixConfig
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
OUTCOME = ("seed", "budget", "method")  # columns that name a row of outcomes.csv
Measured = tuple[Result, list[float], dict[str, list[float]]]  # held-out result, nominal scores, similarities by k
Seconds = dict[str, float]  # that a group's demonstrations, training and measuring took, without waiting for others


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
    """A process that carries out groups of jobs.

    One at a time demonstrates and `--trainers` train policies; all may measure or learn Re-Mix's weights.
    """

    def __init__(self, options: argparse.Namespace, demonstrating: Lock, training: Semaphore) -> None:
        global worker
        worker = self
        self.together, self.demonstrating, self.training = options.together, demonstrating, training
        self.stopping, self.progress = False, Progress()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to all; the parent sends SIGTERM
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "stopping", True))
        threading.Thread(target=_end_with_parent, daemon=True).start()
        os.environ.setdefault("FSC_SIM_PROCESSES", str(max(1, (os.cpu_count() or 1) // options.workers)))
        prepare_device(options.device)
        self.lab = Lab(options.task, options.work, options.device, options.image_size)

    def watch(self, done: int, total: int, note: str = "") -> None:
        """Print progress; a safe point to stop at."""
        if self.stopping:
            raise SystemExit("stopped; the same command continues")
        self.progress(done, total, note)

    def carry_out(self, jobs: Sequence[Job]) -> tuple[list[Measured | str], Seconds]:
        """Train and measure policies; a text is the reason of a failure. Jobs with the same run share its policy."""
        lab, folders = self.lab, [self.lab.folder / job.run.digest for job in jobs]
        runs = {folder: job.run for folder, job in zip(folders, jobs, strict=True)}
        times: Seconds = {}
        with self.demonstrating, _timed(times, "demonstrate"):
            lab.demonstrate([id_ for run in runs.values() for id_ in run.episodes], self.watch)
        with self.training, _timed(times, "train"):
            context = Context(self.watch, together=self.together)
            failures = lab.train_many([*runs.values()], [*runs], context)
        trained = [folder for folder in runs if folder not in failures]
        say(f"{len(trained)} policies trained")
        alike = len({repr(runs[folder].policy) for folder in trained}) == 1  # only such can be rolled out side by side
        trials: dict[Path, list[Trial]] = defaultdict(list)
        with _timed(times, "measure"):
            for part in [trained] if alike else [[folder] for folder in trained]:
                contexts = [Context(self.watch) for _ in part]
                for index, trial in lab.evaluate_many([runs[folder] for folder in part], part, contexts):
                    trials[part[index]].append(trial)
            return [
                failures.get(folder) or self.measured(job, folder, trials[folder])
                for job, folder in zip(jobs, folders, strict=True)
            ], times

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

    def weigh(self, seed: int, episodes: Sequence[str], settings: Mapping[str, Any]) -> dict[str, float] | str:
        """Re-Mix's weight of every factor; a text is the reason of a failure."""
        task = self.lab.task
        folder = self.lab.folder / f"remix-{digest_of(task.name, task.image_size, list(episodes), settings, seed)}"
        try:
            with self.demonstrating:
                self.lab.demonstrate(episodes, self.watch)
            return self.lab.remix(episodes, settings, seed, folder, self.watch).weights
        except (FscError, RuntimeError) as error:  # torch's errors are of the second kind
            return str(error)


worker: Worker  # where this process is one


def carry_out(jobs: Sequence[Job]) -> tuple[list[Measured | str], Seconds]:
    """Carry out jobs in a worker."""
    return worker.carry_out(jobs)


def weigh(seed: int, episodes: Sequence[str], settings: Mapping[str, Any]) -> dict[str, float] | str:
    """Learn Re-Mix's weights in a worker."""
    return worker.weigh(seed, episodes, settings)


@contextmanager
def _timed(times: Seconds, name: str) -> Iterator[None]:
    """Note how many seconds the block takes."""
    began = time.perf_counter()
    try:
        yield
    finally:
        times[name] = round(time.perf_counter() - began, 1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _key(*words: object) -> tuple[str, ...]:
    """As the columns OUTCOME of a row."""
    return tuple(map(str, words))


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
        self.posteriors: dict[int, Posterior] = {}  # by seed

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

    def loop(self) -> list[Job]:
        """The allocations of every rule, and those of --orders."""
        options, done, weighed = self.options, self.done(), self.weights()
        missing = Counter(job.run.seed for job in self.study())
        for seed in options.seeds:
            rules = {
                rule for budget in options.budgets for rule in options.rules if _key(seed, budget, rule) not in done
            }
            if rules and missing[seed]:
                raise SystemExit(f"seed {seed}: {missing[seed]} policies of the study are not measured: `study` first")
            if "remix" in rules and str(seed) not in weighed:
                raise SystemExit(f"seed {seed}: {self.out / 'remix.json'} has no weights: `remix` first")
        return [*self.allocations(set()), *self.orders()]

    def orders(self) -> list[Job]:
        """The allocations of --orders that are not measured."""
        options, done = self.options, self.done()
        given = read_json(options.orders) if options.orders else []
        return [
            self.outcome(one)
            for one in given
            if one["seed"] in options.seeds and _key(*(one[name] for name in OUTCOME)) not in done
        ]

    def done(self) -> set[tuple[str, ...]]:
        """Seed, budget and rule of the outcomes that are measured."""
        return {tuple(row[name] for name in OUTCOME) for row in read(self.out / "outcomes.csv")}

    def allocations(self, known: set[tuple[str, ...]]) -> list[Job]:
        """A policy for each allocation that the rows allow by now; not those in `known`, to which these are added."""
        options, weighed = self.options, self.weights()
        known |= self.done()
        jobs = []
        for seed in self.ready():
            new = [
                (budget, rule)
                for budget in options.budgets
                for rule in options.rules
                if _key(seed, budget, rule) not in known and (rule != "remix" or str(seed) in weighed)
            ]
            if not new:
                continue
            spec, results = self.spec(seed), self.results(seed)
            if seed not in self.posteriors:
                self.posteriors[seed] = fit_posterior(spec, results)
            for budget, rule in new:
                known.add(_key(seed, budget, rule))
                learned = weighed.get(str(seed)) if rule == "remix" else None
                allocation = recommend(spec, results, budget, *RULES[rule], weights=learned).allocation
                predicted = compare(self.posteriors[seed], budget, allocation).predicted.mean
                one = {"seed": seed, "budget": budget, "method": rule, "predicted": predicted, "order": allocation}
                jobs.append(self.outcome(one))
        return jobs

    def results(self, seed: int) -> Results:
        """The measured policies of one seed."""
        rows = [row for row in read(self.out / "results.csv") if row["seed"] == str(seed)]
        return Results.from_rows(
            {"demos": {name: int(row[f"demos:{name}"]) for name in self.factors}, "factor": row["factor"]}
            | {"score": float(row["score"]), "trials": int(row["trials"])}
            for row in rows
        )

    def outcome(self, one: Mapping[str, Any]) -> Job:
        """The policy on the demonstrations of an allocation."""
        options, seed = self.options, one["seed"]
        row = {"task": options.task, "demos": options.demos, **{name: one[name] for name in OUTCOME}}
        row["predicted"] = "" if one["predicted"] is None else f"{one['predicted']:.4f}"
        row |= {f"collect:{name}": one["order"][name] for name in self.factors}
        say(*row.values())
        episodes = [episode.id for episode in self.dataset(seed, one["order"]).episodes]
        return Job("outcomes.csv", row, run_on(self.spec(seed), episodes, seed))

    def weights(self) -> dict[str, dict[str, float]]:
        """Re-Mix's weight of every factor, by seed."""
        path = self.out / "remix.json"
        return {seed: one["weights"] for seed, one in read_json(path).items()} if path.exists() else {}

    def remix(self) -> list[int]:
        """The seeds for which Re-Mix's weights are not learned."""
        RemixConfig.from_mapping(self.remix_settings())  # a mistake shows now, not after hours
        path = self.out / "remix.json"
        found = read_json(path) if path.exists() else {}
        for seed, one in found.items():
            if one["policy"] != self.remix_settings():
                raise SystemExit(f"{path} has weights of seed {seed} with other settings: {one['policy']}")
        return [seed for seed in self.options.seeds if str(seed) not in found]

    def remix_settings(self) -> dict[str, Any]:
        """Settings of Re-Mix's models."""
        return {"preset": "paper", **self.options.remix}

    def keep_weights(self, seed: int, weights: Mapping[str, float]) -> None:
        """Write Re-Mix's weights of a seed, with the settings they were learned with."""
        options, path = self.options, self.out / "remix.json"
        say("remix", f"seed {seed}:", *(f"{name} {weight:.3f}" for name, weight in weights.items()))
        made = {"task": options.task, "demos": options.demos, "image_size": options.image_size}
        found = read_json(path) if path.exists() else {}
        found[str(seed)] = {"weights": weights, **made, "policy": self.remix_settings()}
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
            write(self.out / job.file, OUTCOME, [{**job.row, **summary}])
        if job.file == "results.csv":
            path, key = self.out / "similarity.json", "/".join(map(str, [*job.row.values(), seed]))
            write_text(path, json.dumps({**(read_json(path) if path.exists() else {}), key: similarities}))
            rows = [
                {**job.row, "factor": name, "score": score.mean, "trials": score.trials, "seed": seed}
                for name, score in scores.items()
            ]
            write(self.out / job.file, (*job.row, "factor", "seed"), rows)  # last: a policy with these rows is done

    def keep_times(self, group: Sequence[Job], times: Seconds, ended: float) -> None:
        """Write how long a group of policies took, and how many seconds after the start of the command it ended."""
        seeds = " ".join(map(str, sorted({job.run.seed for job in group})))
        row = {"at": time.strftime("%Y-%m-%d %H:%M:%S"), "device": self.options.device, "file": group[0].file}
        row |= {"seeds": seeds, "policies": len({job.run.digest for job in group}), **times, "ended": round(ended, 1)}
        write(self.out / "times.csv", ("at", "file", "seeds"), [row])

    def run(self, jobs: Sequence[Job], weigh_seeds: Sequence[int] = (), more: Callable[[], list[Job]] = list) -> None:
        """Carry out jobs in groups, learn Re-Mix's weights, write the rows. After each, `more` returns further jobs."""
        spawn, together, failed = multiprocessing.get_context("spawn"), self.options.together, 0
        waiting: dict[Future[Any], Sequence[Job] | int] = {}
        began = time.time()
        with ProcessPoolExecutor(
            self.options.workers, spawn, Worker, (self.options, spawn.Lock(), spawn.Semaphore(self.options.trainers))
        ) as pool:

            def submit(new: Sequence[Job]) -> None:
                groups = [new[first : first + together] for first in range(0, len(new), together)]
                waiting.update({pool.submit(carry_out, group): group for group in groups})

            try:
                submit(jobs)
                for seed in weigh_seeds:
                    episodes = [episode.id for episode in self.dataset(seed).episodes]
                    waiting[pool.submit(weigh, seed, episodes, self.remix_settings())] = seed
                submit(more())
                while waiting:
                    for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                        group = waiting.pop(future)
                        if isinstance(group, int):
                            weights = future.result()
                            if isinstance(weights, str):
                                say(f"remix, seed {group} failed: {weights}")
                                failed += 1
                            else:
                                self.keep_weights(group, weights)
                            continue
                        found, times = future.result()
                        self.keep_times(group, times, time.time() - began)
                        for job, measured in zip(group, found, strict=True):
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
            raise SystemExit(f"{failed} jobs failed; the same command tries them again")

    def all(self) -> None:
        """The study, Re-Mix's weights, and the allocations of each seed as soon as its policies are measured."""
        known: set[tuple[str, ...]] = set()
        weigh_seeds = self.remix() if "remix" in self.options.rules else []
        self.run([*self.study(), *self.orders()], weigh_seeds, lambda: self.allocations(known))


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


def read_options(path: Path, parser: argparse.ArgumentParser) -> dict[str, Any]:
    """The options in a file, checked as if they stood on the command line."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise SystemExit(f"{path}: needs an object with options by name, not a {type(found).__name__}")
    actions = {action.dest: action for action in parser._actions if action.option_strings}
    words, names = [], []
    for key, value in found.items():
        name = key.replace("-", "_")
        if name not in actions or name in ("help", "options"):
            raise SystemExit(f"{path}: unknown option {key!r}")
        several = actions[name].nargs in ("*", "+")
        if several != isinstance(value, list):
            raise SystemExit(f"{path}: {key!r} needs {'a list' if several else 'one value'}, not {value!r}")
        plain = map(str, value) if several else [json.dumps(value) if isinstance(value, dict) else str(value)]
        words += [actions[name].option_strings[0], *plain]
        names.append(name)
    try:
        checked = parser.parse_args(["all", *words])
    except SystemExit:
        raise SystemExit(f"{path}: an option has a wrong value (above)") from None
    return {name: getattr(checked, name) for name in names}


def stop(number: int, frame: object) -> None:
    """Let the workers save their policies and end; asked again, end at once."""
    signal.signal(number, signal.SIG_DFL)
    for process in multiprocessing.active_children():
        process.terminate()


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("what", choices=("check", "study", "loop", "all", "proxy", "remix"))
    add("--task")
    add("--out", type=Path)
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
    add("--trainers", type=int, default=1, help="how many of them may train policies at once while the others measure")
    add(
        "--options",
        type=Path,
        help="a JSON file with values for any of these by name; the command line wins",
    )
    return parser


def main() -> None:
    parser = build_parser()
    given, _ = parser.parse_known_args()
    if given.options:
        try:
            parser.set_defaults(**read_options(given.options, parser))
        except FscError as error:
            raise SystemExit(str(error)) from None
    options = parser.parse_args()
    if options.task is None or options.out is None:
        parser.error("--task and --out are needed")
    try:
        if options.what == "proxy":
            proxy(options.out)
            return
        check_device(options.device)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        study = Study(options)
        if options.what == "all":
            study.all()
        elif options.what == "remix":
            study.run([], study.remix())
        else:
            study.run(getattr(study, options.what)())
    except FscError as error:
        raise SystemExit(str(error)) from None
    say("done")


if __name__ == "__main__":
    main()
