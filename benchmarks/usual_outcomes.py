"""What single runs of the quickstart's rules usually give, from the emulator of a policy table.

    python benchmarks/usual_outcomes.py results/tables/pick-place --studies 200

Every study draws new training noise and trials: policies of the group construction with three points per curve are
measured in 120 trials per factor, each rule decides, and its policy is trained and measured in the same way. Writes
`usual.json`, from which `fsc quickstart` takes the column beside its own outcome.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from factored_scaling.bench.emulator import Emulator, read_emulator
from factored_scaling.bench.measure import Regime, measure, results
from factored_scaling.bench.table_worlds import REPLICATES, TableWorld
from factored_scaling.bench.usual import TABLES
from factored_scaling.bench.worlds import Floats, Setting
from factored_scaling.cli.quickstart import POINTS, START
from factored_scaling.core.design import plan
from factored_scaling.core.spec import StudySpec
from factored_scaling.io.text import write_text
from factored_scaling.model.recommend import recommend

BUDGET = 100
RULES = ("auto", "top", "equal", "greedy")
TRIALS = Regime(per_factor=120, stream=4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--studies", type=int, default=200)
    options = parser.parse_args()
    whole = read_emulator(options.table)
    task, names = whole.table.card["task"], whole.table.factors
    start = START[task]
    assert isinstance(start, dict)
    sizes = tuple(start[name] for name in names)
    spec = StudySpec(dict(start), construction="group", points=POINTS)
    found: dict[str, list[float]] = {rule: [] for rule in RULES}
    for number in range(options.studies):
        emulator = whole.resampled(number % REPLICATES)

        def response(demos: Floats, emulator: Emulator = emulator) -> Floats:
            return emulator.success(demos)

        setting = Setting(len(names), 0, 0, sizes)
        world = NamedWorld("quickstart", setting, response, 0, 0, False, number, emulator=emulator)
        rows = results(world, [run.demos for run in plan(spec)], TRIALS)
        for rule in RULES:
            allocation = recommend(spec, rows, BUDGET, rule).allocation
            after = {name: start[name] + allocation[name] for name in names}
            found[rule].append(float(measure(world, after, TRIALS, seed=1).scores.mean()))
    rules = {rule: _summary(np.array(values)) for rule, values in found.items()}
    table = {"task": task, "start": dict(start), "budget": BUDGET, "source": f"{len(whole.table)} trained policies"}
    write_text(TABLES, json.dumps([{**table, "seeds": options.studies, "rules": rules}], indent=1) + "\n")
    print(json.dumps(rules, indent=1))


class NamedWorld(TableWorld):
    """A table's world whose factors have their own names."""

    @property
    def factors(self) -> tuple[str, ...]:
        """The table's factors."""
        return self.emulator.table.factors


def _summary(values: Floats) -> dict[str, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return {"mean": round(float(values.mean()), 4), "low": round(float(low), 4), "high": round(float(high), 4)}


if __name__ == "__main__":
    main()
