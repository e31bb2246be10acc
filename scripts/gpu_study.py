"""A simulated study on one GPU, with few packages: train policies while others are being measured.

    python scripts/gpu_study.py check --task maniskill/pull-visual --out OUT --image-size 96 \\
        --policy '{"prediction": "sample", "noise_samples": 4}' --variants '{"6k": {"updates": 6000}, …}'
    python scripts/gpu_study.py study --task … --out OUT --seeds 0 1
    python scripts/gpu_study.py loop  --task … --out OUT --seeds 0 1 --budgets 100 20
    python scripts/gpu_study.py proxy --task … --out OUT

For machines with torch, safetensors, numpy, scipy and the simulator alone; elsewhere `fsc run` does the same. `check`
trains the full-data policy in several ways and measures it on held-out and on nominal scenes (`check.csv`). `study`
trains and measures every policy of the plan: `results.csv` (scores per factor, the general form that `fsc recommend`
reads) and `similarity.json` (for FSC-Proxy). `loop` asks every rule what to collect, collects it, trains and measures
(`outcomes.csv`). `proxy` needs neither GPU nor simulator: it turns the similarities into scores (`proxy-k1.csv` …, also
for `fsc recommend`) and says how far they order the policies as their measured scores do. Rows that are there already
are not made again, so a study may be filled over several short calls. Ctrl-C and SIGTERM save the policies in training
and stop; the same command goes on from there.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import io
import json
import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from factored_scaling.backends.protocol import Context
from factored_scaling.backends.simulation import DATASET_STRIDE, Lab, policy_config
from factored_scaling.core.dataset import Dataset
from factored_scaling.core.design import RunSpec, plan, run_on
from factored_scaling.core.proxy import KS, cosine_similarities, nearest_mean, proxy_scores, rank_agreement
from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.data.frames import FrameTable
from factored_scaling.errors import FscError
from factored_scaling.io.atomic import write_whole
from factored_scaling.machine import limit_threads
from factored_scaling.model.posterior import fit_posterior
from factored_scaling.model.recommend import recommend
from factored_scaling.model.summary import compare
from factored_scaling.policies.capacity import check_device
from factored_scaling.policies.checkpoint import is_intact
from factored_scaling.policies.diffusion import NAME, load_policy
from factored_scaling.policies.inference import Sampler, Team
from factored_scaling.policies.many import Job, train_many
from factored_scaling.sim import Condition

BEGAN = time.time()
STOPPING = threading.Event()
CHECKPOINT_EVERY = 10_000  # updates; a stop saves too, so this is for power cuts
SIDE_BY_SIDE = 4  # policies that one process measures together
# What each rule is called in outcomes.csv, as in `fsc reproduce`: (strategy, fit).
RULES = {
    "group, top": ("top", "power-law"),
    "group, all": ("all", "power-law"),
    "equal": ("equal", "power-law"),
    "greedy": ("greedy", "power-law"),
    "response model": ("auto", "response-model"),
}


def say(*words: object) -> None:
    """A line with the seconds since the start."""
    print(f"[{time.time() - BEGAN:6.1f}]", *words, flush=True)


def stop(number: int, frame: FrameType | None) -> None:
    """Ctrl-C or SIGTERM: end at the next safe point, and at once when it comes again."""
    STOPPING.set()
    for again in (signal.SIGINT, signal.SIGTERM):
        signal.signal(again, signal.SIG_DFL)


@contextlib.contextmanager
def in_background() -> Iterator[ThreadPoolExecutor]:
    """A thread for work that ends with the rest."""
    with ThreadPoolExecutor(1) as thread:
        try:
            yield thread
        except BaseException:
            STOPPING.set()
            raise


class Watch:
    """Progress every twenty seconds, and a safe point."""

    def __init__(self) -> None:
        self._last = time.time()

    def __call__(self, done: int, total: int, note: str = "") -> None:
        if STOPPING.is_set():
            raise SystemExit("stopped; the same command goes on from here")
        if time.time() - self._last > 20:
            self._last = time.time()
            say(f"{done} of {total} {note}")


@dataclasses.dataclass(frozen=True)
class Task:
    """One policy to measure: where it lies, what its rows are called, and its training set's first pictures."""

    label: tuple[Any, ...]
    run: RunSpec
    folder: Path
    firsts: Path
    nominal: int = 0


@dataclasses.dataclass(frozen=True)
class Measured:
    """What was measured of a policy: scores by factor (None: nominal scenes), similarities by k, seconds."""

    task: Task
    scores: dict[str | None, list[float]]
    similarities: dict[str, list[float]]
    seconds: float


def measure(
    inbox: Any,
    outbox: Any,
    parent: int,
    task: str,
    image_size: int | None,
    work: Path,
    device: str,
    share: int,
    most: int,
) -> None:
    """A process that measures policies until it is sent None; those that wait are measured side by side."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides; a terminal sends Ctrl-C to everyone
    limit_threads(device)
    os.environ["FSC_SIM_PROCESSES"] = str(share)
    lab = Lab(task, work, device, image_size)
    held_out: Any = None
    staying = True
    while staying:
        try:
            items = [inbox.get(timeout=5)]
        except queue.Empty:
            staying = os.getppid() == parent  # without it, nobody would send None
            continue
        while len(items) < most and items[-1] is not None:
            try:
                items.append(inbox.get_nowait())
            except queue.Empty:
                break
        staying = items[-1] is not None
        items = [item for item in items if item is not None]
        if not items:
            break
        began = time.time()
        scores: list[dict[str | None, list[float]]] = [defaultdict(list) for _ in items]
        runs, folders = [item.run for item in items], [item.folder for item in items]
        for index, trial in lab.evaluate_many(runs, folders, [Context()] * len(items)):
            scores[index][trial.factor[0]].append(trial.score)
        for item, found in zip(items, scores, strict=True):
            policy = load_policy(item.folder, device)
            if item.nominal:
                conditions = [Condition(None, 0, state) for state in range(item.nominal)]
                act = Team([Sampler(policy)], [item.run.seed], len(conditions))
                rolled = lab.task.rollout(act, conditions, policy.config.execute, device)
                found[None] = [score for _, score in rolled]
            if held_out is None:
                held_out, _ = lab.task.first_frames(lab.conditions(item.run.evaluation), device)
            near = cosine_similarities(policy.embed(held_out), policy.embed(FrameTable.load(item.firsts).images))
            kept = {str(k): nearest_mean(near, k).round(5).tolist() for k in KS}
            outbox.put(Measured(item, dict(found), kept, (time.time() - began) / len(items)))
    close = getattr(lab.task, "close", None)
    if close is not None:
        close()


def _silent(done: int, total: int, note: str = "") -> None:
    """Nobody watches."""


class Hall:
    """The processes that measure, and what is still with them."""

    def __init__(self, options: argparse.Namespace) -> None:
        context = multiprocessing.get_context("spawn")
        self.inbox: Any = context.Queue()
        self.outbox: Any = context.Queue()
        self.open = 0
        share = max(1, (os.cpu_count() or 1) // options.evaluators)
        # Policies that are rolled out together must have the same settings, and those of a check have not.
        most = 1 if options.what == "check" else SIDE_BY_SIDE
        given = (os.getpid(), options.task, options.image_size, options.work, options.device, share, most)
        self._processes = [
            context.Process(target=measure, args=(self.inbox, self.outbox, *given)) for _ in range(options.evaluators)
        ]
        for process in self._processes:
            process.start()

    def send(self, task: Task) -> None:
        """Measure this policy when somebody is free."""
        self.open += 1
        self.inbox.put(task)

    def receive(self, wait: bool) -> list[Measured]:
        """What has been measured by now; with `wait`, at least one while any is open."""
        found: list[Measured] = []
        while self.open:
            try:
                found.append(self.outbox.get(block=wait and not found, timeout=1))
                self.open -= 1
            except queue.Empty:
                if found:
                    break
                Watch()(0, 0)
                if any(process.exitcode is not None for process in self._processes):
                    STOPPING.set()
                    raise SystemExit(
                        "a process that measures has died; what is measured is kept, the same command goes on"
                    ) from None
                if not wait:
                    break
        return found

    def close(self, at_once: bool) -> None:
        """Send everybody home, in the middle of their work where it must be `at_once`."""
        for process in self._processes:
            if at_once:
                process.terminate()
            else:
                self.inbox.put(None)
        for process in self._processes:
            process.join(30)
        if at_once:
            self.inbox.cancel_join_thread()  # nobody reads what is still in it


class Room:
    """One seed of a study: its demonstrations, its specification and its training set's pictures."""

    def __init__(self, options: argparse.Namespace, seed: int, lab: Lab) -> None:
        self.options, self.seed, self.lab = options, seed, lab
        size = {"image_size": options.image_size} if options.image_size else {}
        self.spec = StudySpec(
            factors=dict.fromkeys(lab.task.factors, options.demos),
            name=options.task,
            first_seed=seed,
            task=options.task,
            policy={"preset": "paper", **options.policy, **size},
            evaluation={"initial_states": options.states},
        )

    def collect(self, more: Mapping[str, int] | None = None) -> Dataset:
        """The study's demonstrations, and `more` of each factor after them."""
        counts = {name: size + (more[name] if more else 0) for name, size in self.spec.sizes.items()}
        return Dataset(tuple(self.lab.collect(counts, self.seed * DATASET_STRIDE, Watch())))

    def ordered(self, order: Mapping[str, int]) -> RunSpec:
        """The run on the study's demonstrations and what a rule ordered."""
        first = self.seed * DATASET_STRIDE
        sizes = {name: size + order[name] for name, size in self.spec.sizes.items()}
        return run_on(self.spec, [f"{n}/{first + i}" for n, size in sizes.items() for i in range(size)], self.seed)


def first_pictures(table: FrameTable, episodes: Sequence[str], path: Path) -> Path:
    """The first frame of each episode, for the processes that measure."""
    place = {id_: index for index, id_ in enumerate(table.ids)}
    chosen = [place[id_] for id_ in episodes]
    rows = table.starts[chosen]
    factors = tuple(table.factors[index] for index in chosen)
    starts = np.arange(len(rows) + 1, dtype=np.int64)
    FrameTable(table.images[rows], table.state[rows], table.action[rows], starts, tuple(episodes), factors).save(path)
    return path


def train_and_send(
    options: argparse.Namespace,
    table: FrameTable,
    runs: Sequence[tuple[tuple[Any, ...], RunSpec]],
    hall: Hall,
    files: Files,
    nominal: Sequence[int] = (),
) -> None:
    """Train the runs together; each goes to be measured as soon as it is done, some on nominal scenes too."""
    waiting: dict[Path, list[Task]] = defaultdict(list)  # labels that come to the same policy share it
    for number, (label, run) in enumerate(runs):
        folder = options.work / run.digest
        firsts = first_pictures(table, run.episodes, folder / "firsts")
        if not is_intact(folder, NAME):
            (folder / f"{NAME}.json").unlink(missing_ok=True)  # damaged: nobody should measure it
        waiting[folder].append(Task(label, run, folder, firsts, options.nominal if number in nominal else 0))
    named = {folder: [task.label for task in tasks] for folder, tasks in waiting.items()}
    runs_of = {folder: tasks[0].run for folder, tasks in waiting.items()}
    jobs = [Job(run.episodes, policy_config(run.policy), run.seed, folder) for folder, run in runs_of.items()]
    watch = Watch()

    def look(done: int, total: int, note: str = "") -> None:
        for folder in [folder for folder in waiting if (folder / f"{NAME}.json").exists()]:
            for task in waiting.pop(folder):
                hall.send(task)
        files.write(hall.receive(wait=False))
        watch(done, total, note)

    began = time.time()
    failures = train_many(
        table, jobs, look, options.device, CHECKPOINT_EVERY, side_by_side=options.together, compiled=not options.plain
    )
    look(1, 1)
    updates = sum(job.config.updates for job in jobs)
    say(f"{len(jobs)} policies, {updates} updates in {time.time() - began:.0f} s")
    for folder, reason in failures.items():
        say(*named[folder], "failed:", reason)
        files.failed += 1


class Files:
    """The rows in OUT, and which are there already."""

    def __init__(self, out: Path, factors: Sequence[str]) -> None:
        self.out, self.factors = out, tuple(factors)
        self.failed = 0  # policies, in this call
        out.mkdir(parents=True, exist_ok=True)

    def rows(self, name: str) -> list[dict[str, str]]:
        """The rows of a file, none when it does not exist."""
        path = self.out / name
        if not path.exists():
            return []
        with path.open(newline="") as file:
            return list(csv.DictReader(file))

    def keep(self, name: str, key: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows, in place of those with the same key. The file is written whole or not at all."""
        added = [{column: str(value) for column, value in row.items()} for row in rows]
        keys = {tuple(row[column] for column in key) for row in added}
        old = [row for row in self.rows(name) if tuple(row[column] for column in key) not in keys]
        text = io.StringIO()
        columns = list(dict.fromkeys(column for row in [*old, *added] for column in row))
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*old, *added])
        write_whole(self.out / name, text.getvalue().encode())

    def measured(self) -> set[tuple[str, ...]]:
        """The demonstrations and seed of each policy of the study whose rows are all there."""
        count: dict[tuple[str, ...], int] = defaultdict(int)
        for row in self.rows("results.csv"):
            count[(*(row[f"demos:{name}"] for name in self.factors), row["seed"])] += 1
        return {policy for policy, rows in count.items() if rows == len(self.factors)}

    def same_study(self, spec: StudySpec) -> None:
        """End unless the rows in OUT are of this study; keep what it is."""
        path = self.out / "spec.json"
        new = json.loads(json.dumps(spec.to_mapping()))
        if path.exists() and self.rows("results.csv"):
            old = json.loads(path.read_text())
            other = [key for key in new if key != "first_seed" and old.get(key) != new[key]]
            if other:
                told = "; ".join(f"{key} {old.get(key)}, now {new[key]}" for key in other)
                raise SystemExit(f"{self.out} has rows of another study ({told}): give another --out")
        write_whole(path, (json.dumps(new, indent=1) + "\n").encode())

    def results(self, seed: int) -> Results:
        """What was measured of the study with this seed."""
        rows = [row for row in self.rows("results.csv") if row["seed"] == str(seed)]
        return Results.from_rows(
            {
                "demos": {name: int(row[f"demos:{name}"]) for name in self.factors},
                "factor": row["factor"],
                "score": float(row["score"]),
                "trials": int(row["trials"]),
                "seed": seed,
            }
            for row in rows
        )

    def write(self, found: Sequence[Measured]) -> None:
        """Keep what was measured."""
        for one in found:
            kind, *rest = one.task.label
            every = [score for factor, scores in one.scores.items() if factor is not None for score in scores]
            mean = sum(every) / len(every)
            by_factor = {name: sum(one.scores[name]) / len(one.scores[name]) for name in self.factors}
            shown_as = [row["method"] for row in rest[0]] if kind == "loop" else rest
            say(
                f"{kind} {shown_as}: {mean:.3f} in {one.seconds:.0f} s,", {n: round(s, 2) for n, s in by_factor.items()}
            )
            nominal = one.scores.get(None, [])
            solved = (
                {"nominal": round(sum(nominal) / len(nominal), 4), "nominal_trials": len(nominal)} if nominal else {}
            )
            shown = {f"score:{name}": round(score, 4) for name, score in by_factor.items()}
            if kind == "check" or nominal:
                name = rest[0] if kind == "check" else "full data"
                row = {"name": name, "seed": one.task.run.seed, **solved}
                row |= {"score": round(mean, 4), "trials": len(every), **shown}
                self.keep("check.csv", ("name", "seed"), [row])
            if kind == "loop":
                rows = [{**row, "score": round(mean, 4), "trials": len(every), **shown} for row in rest[0]]
                self.keep("outcomes.csv", ("seed", "budget", "method"), rows)
            if kind == "study":
                demos, seed = rest
                self._similar("/".join(map(str, [*demos.values(), seed])), one.similarities)
                named = {f"demos:{n}": demos[n] for n in self.factors}
                rows = [
                    {**named, "factor": n, "score": repr(by_factor[n]), "trials": len(one.scores[n]), "seed": seed}
                    for n in self.factors
                ]
                self.keep("results.csv", (*named, "factor", "seed"), rows)  # last: a policy with these rows is done

    def _similar(self, key: str, similarities: dict[str, list[float]]) -> None:
        path = self.out / "similarity.json"
        kept = json.loads(path.read_text()) if path.exists() else {}
        write_whole(path, json.dumps({**kept, key: similarities}).encode())


def check(options: argparse.Namespace, lab: Lab, hall: Hall, files: Files) -> None:
    """The full-data policy of every seed in several ways, all of them one job."""
    done = {(row["name"], row["seed"]) for row in files.rows("check.csv")}
    rooms = [Room(options, seed, lab) for seed in options.seeds]
    datasets = [room.collect() for room in rooms]
    table = lab.frames([episode.id for dataset in datasets for episode in dataset.episodes], Watch())
    say(f"{len(table.images)} frames")
    runs = []
    for room, dataset in zip(rooms, datasets, strict=True):
        run = plan(room.spec, dataset)[0].spec  # on all demonstrations, and what `study` would train
        for name, changes in options.variants.items():
            if (name, str(room.seed)) not in done:
                runs.append((("check", name), dataclasses.replace(run, policy={**run.policy, **changes})))
    train_and_send(options, table, runs, hall, files, range(len(runs)))


def study(options: argparse.Namespace, lab: Lab, hall: Hall, files: Files) -> None:
    """Every policy of the plan, seed by seed; the next seed's demonstrations are made meanwhile."""
    rooms = [Room(options, seed, lab) for seed in options.seeds]
    files.same_study(rooms[0].spec)
    done = files.measured()
    with in_background() as thread:
        collected = [thread.submit(room.collect) for room in rooms]
        for room, future in zip(rooms, collected, strict=True):
            dataset = future.result()
            table = lab.frames([episode.id for episode in dataset.episodes], Watch())
            runs = [
                (("study", run.demos, room.seed), run.spec)
                for run in plan(room.spec, dataset)
                if (*map(str, run.demos.values()), str(room.seed)) not in done
            ]
            say(f"seed {room.seed}: {len(table.images)} frames, {len(runs)} policies")
            for start in range(0, len(runs), options.together):
                # The full-data policy, first in the plan, is measured on nominal scenes too.
                batch = runs[start : start + options.together]
                full = [number for number, (label, _) in enumerate(batch) if label[1] == room.spec.sizes]
                train_and_send(options, table, batch, hall, files, full)


def loop(options: argparse.Namespace, lab: Lab, hall: Hall, files: Files) -> None:
    """What came of every rule's order."""
    done = {(row["seed"], row["budget"], row["method"]) for row in files.rows("outcomes.csv")}
    orders: dict[int, dict[tuple[int, ...], list[dict[str, Any]]]] = {}
    rooms = {seed: Room(options, seed, lab) for seed in options.seeds}
    files.same_study(rooms[options.seeds[0]].spec)
    for seed, room in rooms.items():
        orders[seed] = defaultdict(list)
        asked = [(str(seed), str(budget), rule) for budget in options.budgets for rule in options.rules]
        wanted = {(*map(str, run.demos.values()), str(seed)) for run in plan(room.spec)}
        missing = len(wanted - files.measured())
        if missing and not options.partial and not done.issuperset(asked):
            told = f"seed {seed}: {missing} of the study's {len(wanted)} policies are not measured"
            raise SystemExit(f"{told}: `study` first, or --partial to order by what is there")
        posterior = None if done.issuperset(asked) else fit_posterior(room.spec, files.results(seed))
        for budget in options.budgets:
            for method in options.rules:
                if posterior is None or (str(seed), str(budget), method) in done:
                    continue
                strategy, fit = RULES[method]
                answer = recommend(room.spec, files.results(seed), budget, strategy, fit)
                predicted = compare(posterior, budget, answer.allocation).predicted.mean
                row = {"task": options.task, "demos": options.demos, "seed": seed, "budget": budget, "method": method}
                row["predicted"] = f"{predicted:.4f}"
                row |= {f"collect:{name}": count for name, count in answer.allocation.items()}
                orders[seed][tuple(answer.allocation.values())].append(row)
                say(f"seed {seed}, K = {budget}, {method}:", answer.allocation, "predicted", row["predicted"])

    for given in json.loads(options.orders.read_text()) if options.orders else ():
        if (str(given["seed"]), str(given["budget"]), given["method"]) not in done and given["seed"] in orders:
            row = {"task": options.task, "demos": options.demos, **{k: given[k] for k in ("seed", "budget", "method")}}
            row["predicted"] = "" if given["predicted"] is None else f"{given['predicted']:.4f}"
            row |= {f"collect:{name}": given["order"][name] for name in files.factors}
            orders[given["seed"]][tuple(given["order"][name] for name in files.factors)].append(row)
            say(f"seed {given['seed']}, K = {given['budget']}, {given['method']}:", given["order"])

    def gather(seed: int) -> Dataset:
        asked = list(orders[seed])
        most = {name: max(order[i] for order in asked) for i, name in enumerate(files.factors)}
        return rooms[seed].collect(most)

    asking = [seed for seed in options.seeds if orders[seed]]
    with in_background() as thread:
        collected = [thread.submit(gather, seed) for seed in asking]
        for seed, future in zip(asking, collected, strict=True):
            table = lab.frames([episode.id for episode in future.result().episodes], Watch())
            runs = [
                (("loop", rows), rooms[seed].ordered(dict(zip(files.factors, order, strict=True))))
                for order, rows in orders[seed].items()
            ]
            say(f"seed {seed}: {len(table.images)} frames, {len(runs)} different orders")
            for start in range(0, len(runs), options.together):
                train_and_send(options, table, runs[start : start + options.together], hall, files)


def proxy(out: Path) -> None:
    """Proxy scores of every policy, normalised over all of them; per seed, their rank agreement with the trials."""
    files = Files(out, ())
    rows = files.rows("results.csv")
    names = [column.removeprefix("demos:") for column in rows[0] if column.startswith("demos:")]
    measured: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        measured["/".join([*(row[f"demos:{name}"] for name in names), row["seed"]])].append(float(row["score"]))
    found = json.loads((out / "similarity.json").read_text())
    kept = {key: similar for key, similar in found.items() if key in measured}
    for k in map(str, KS):
        # Neighbouring conditions differ in factor (Lab.conditions), so factors take turns.
        count = len(next(iter(kept.values()))[k])
        scores = proxy_scores({key: values[k] for key, values in kept.items()}, names * (count // len(names)))
        told = []
        for key, score in scores.items():
            *demos, seed = key.split("/")
            for name in names:
                shown = {f"demos:{one}": number for one, number in zip(names, demos, strict=True)}
                told.append({**shown, "factor": name, "score": round(score.by_factor[name], 5), "seed": seed})
        (out / f"proxy-k{k}.csv").unlink(missing_ok=True)
        files.keep(f"proxy-k{k}.csv", (*shown, "factor", "seed"), told)
        for seed in sorted({key.rpartition("/")[2] for key in kept}):
            mine = {key: score.overall for key, score in scores.items() if key.endswith(f"/{seed}")}
            agreement = rank_agreement(mine, {key: sum(measured[key]) / len(names) for key in mine})
            low, high = agreement.interval.low, agreement.interval.high
            print(f"k = {k}, seed {seed}: Spearman {agreement.spearman:.2f} ({low:.2f} to {high:.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("check", "study", "loop", "proxy"))
    parser.add_argument("--task", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/gpu-study"), help="frames and policies, not kept")
    parser.add_argument("--demos", type=int, default=30)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="each draws demonstrations and weights anew")
    parser.add_argument("--budgets", type=int, nargs="+", default=[100])
    parser.add_argument("--rules", nargs="+", choices=list(RULES), default=list(RULES)[:4])
    parser.add_argument("--orders", type=Path, help="orders made elsewhere: [{seed, budget, method, predicted, order}]")
    parser.add_argument("--partial", action="store_true", help="loop: order by a study that is not measured whole")
    parser.add_argument("--variants", type=json.loads, default={"as given": {}})
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--states", type=int, default=6, help="initial states per held-out setting")
    parser.add_argument("--nominal", type=int, default=60, help="trials of the full-data policy in nominal scenes")
    parser.add_argument("--policy", type=json.loads, default={})
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--plain", action="store_true", help="capture without compiling first: quicker to start")
    parser.add_argument("--together", type=int, default=5, help="policies trained side by side")
    parser.add_argument("--evaluators", type=int, default=1, help="processes that measure policies")
    options = parser.parse_args()
    if options.what == "proxy":
        proxy(options.out)
        return
    try:
        check_device(options.device)
    except FscError as error:
        raise SystemExit(str(error)) from None
    limit_threads(options.device)
    options.work.mkdir(parents=True, exist_ok=True)
    lab = Lab(options.task, options.work, options.device, options.image_size)
    files = Files(options.out, lab.task.factors)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    hall = Hall(options)
    whole = False
    try:
        {"check": check, "study": study, "loop": loop}[options.what](options, lab, hall, files)
        while hall.open:
            files.write(hall.receive(wait=True))
        whole = True
    except FscError as error:
        raise SystemExit(str(error)) from None
    finally:
        hall.close(at_once=not whole)
        getattr(lab.task, "close", lambda: None)()
    if files.failed:
        raise SystemExit(f"{files.failed} policies failed; the same command tries them again")
    say("done")


if __name__ == "__main__":
    main()
