"""Do rules rank on freshly trained policies as on the emulator of a table? Criteria: docs/decisions/0028.

    python benchmarks/fresh_policies.py train results/fresh-policies/insert --studies 16
    python benchmarks/fresh_policies.py compare results/fresh-policies/insert

Every rule decides in emulated studies from an even start and from unbalanced ones. For each decision one policy is
trained on the start and the chosen demonstrations, and measured on the table's held-out scenes. Nothing of the emulator
enters but the decisions. `train` goes on where it was stopped; `compare` uses the studies in which every rule has its
policy.
"""

from __future__ import annotations

import argparse
import datetime
import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from factored_scaling.bench.emulator import read_emulator
from factored_scaling.bench.measure import REGIMES
from factored_scaling.bench.methods import Bench, parse_method
from factored_scaling.bench.policy_tables import Composition, read_table
from factored_scaling.bench.table_builder import TableSettings, build_table
from factored_scaling.bench.table_worlds import TableWorld, table_families
from factored_scaling.machine import processor
from factored_scaling.version import __version__

TABLES = Path(__file__).resolve().parents[1] / "results" / "tables"
BUDGET = 100
SEED = 7_000_000  # of the first policy; no table has such seeds
BEST = "the emulator's best"
RULES = {
    "Equal": "equal",
    "Greedy": "greedy",
    "the paper's Top, groups": "power-law:top@group",
    "default, 6/8 policies": "response-model:auto@screen:6/8",
}
KINDS = ("10", "unbalanced")


def decisions(table: str, study: int) -> Iterator[tuple[str, Composition]]:
    """What each rule chooses in emulated study number `study`, as a training set; one pair of seeds per study."""
    for kind_number, kind in enumerate(KINDS):
        family = next(one for one in table_families(TABLES / table) if one.kind == kind)
        world = family.world(family.count, study)
        assert isinstance(world, TableWorld)
        bench = Bench(world, REGIMES["rollouts"], place=(5, 8).index(family.count))
        for name, written in {**RULES, BEST: ""}.items():
            if written:
                decided = bench.decide(parse_method(written), [BUDGET])
                assert decided is not None
                extra = np.array([decided[0].allocation[factor] for factor in world.factors])
            else:
                extra = world.best(BUDGET)
            counts = np.round(world.now + extra).astype(int).tolist()
            demos = dict(zip(world.emulator.table.factors, counts, strict=True))
            seed = SEED + 10 * study + kind_number
            yield kind, Composition(name, 10, demos, world.setting.nominal, seed)


def train(options: argparse.Namespace) -> None:
    card = read_table(TABLES / options.table).card
    policy = {**card["policy"], "updates": options.updates, "learning_rate": options.learning_rate}
    settings = TableSettings(card["task"], policy, card["evaluation"], card["pool"])
    chosen = [one for study in range(options.studies) for _, one in decisions(options.table, study)]
    begun = time.monotonic()

    def report(done: int, total: int, note: str = "") -> None:
        print(f"{time.monotonic() - begun:6.1f} s  {done} of {total} {note}", flush=True)

    made = {"version": __version__, "machine": processor(), "date": datetime.date.today().isoformat()}
    build_table(
        options.out, settings, chosen, options.work, report, at_once=1, workers=options.workers, provenance=made
    )


def compare(options: argparse.Namespace) -> None:
    emulator, table = read_emulator(TABLES / options.table), read_table(options.out)
    names = (*RULES, BEST)
    print("| start | rule | policies | emulated | measured | less Equal, emulated | less Equal, measured |")
    print("|---|---|---:|---:|---:|---:|---:|")
    measured = table.scores.mean(1)
    emulated = emulator.success(table.demos.astype(float), table.nominal.astype(float)).mean(1)
    for kind_number, kind in [*enumerate(KINDS), (None, "both")]:
        found: dict[int, dict[str, tuple[float, float]]] = {}
        for row, (name, seed) in enumerate(zip(table.group, table.seed.tolist(), strict=True)):
            if kind_number is None or (seed - SEED) % 10 == kind_number:
                found.setdefault(seed, {})[name] = (float(emulated[row]), float(measured[row]))
        complete = [one for one in found.values() if len(one) == len(names)]
        # studies × rules × (emulated, measured), in points
        points = 100 * np.array([[one[name] for name in names] for one in complete])
        for index, name in enumerate(names):
            apart = points[:, index] - points[:, 0]
            errors = points[:, index, 1].std(ddof=1), apart[:, 1].std(ddof=1)
            cells = [f"{points[:, index, 0].mean():.1f}", _with_error(points[:, index, 1].mean(), errors[0], complete)]
            cells += [f"{apart[:, 0].mean():+.1f}", _with_error(apart[:, 1].mean(), errors[1], complete, "+")]
            print(f"| {kind} | {name} | {len(complete)} | {' | '.join(cells)} |")


def _with_error(value: float, spread: float, rows: list[dict[str, tuple[float, float]]], sign: str = "") -> str:
    return f"{value:{sign}.1f} ± {spread / math.sqrt(len(rows)):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("train", "compare"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--table", default="insert")
    parser.add_argument("--studies", type=int, default=16, help="of each start")
    parser.add_argument("--updates", type=int, default=1800)
    parser.add_argument("--learning-rate", type=float, default=0.004)
    parser.add_argument("--work", type=Path, default=Path("/tmp/fresh-policies"))
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    {"train": train, "compare": compare}[options.action](options)


if __name__ == "__main__":
    main()
