"""The best possible regret on tables of trained policies, beside that of an equal split and of the default.

    python benchmarks/ceiling.py results/tables --studies 24 --budgets 20 100 --save benchmarks/results/ceiling.md

The decision makers are those of `ceilings.py`; docs/decisions/0028-policy-tables.md defines them.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from ceilings import CEILINGS, Scores

from factored_scaling.bench.decisions import Cell, Key, Settings, judge
from factored_scaling.bench.measure import REGIMES
from factored_scaling.bench.methods import parse_method
from factored_scaling.bench.table_worlds import TableFamily, table_families
from factored_scaling.bench.tables import ROLES, Comparison, Table
from factored_scaling.io.text import write_text
from factored_scaling.machine import processor

DEFAULT = "response-model:auto@screen:6/8"
FACTORS = (5, 8)  # up to the first the default gets 6 policies, beyond it 8

Cells = dict[Key, Cell]


def study(family: TableFamily, number: int, settings: Settings) -> Cells:
    """Every decision maker in one study."""
    world, method = family.world(family.count, number, settings.seed), parse_method(DEFAULT)
    place = int(family.count > FACTORS[0])
    cells = dict(judge(world, place, settings, [parse_method("equal"), method]))
    policies = method.training_sets(world, place)
    before = float(world.score(world.now))
    for regime in settings.regimes:
        scores = Scores.measured(world, policies, REGIMES[regime])
        for budget in settings.budgets:
            best = float(world.score(world.now + world.best(budget)))
            equal = cells[Key("equal", regime, budget, family.name, family.count)]
            for name, decide in CEILINGS.items():
                after = float(world.score(world.now + decide(world, family, number, scores, budget)))
                regret = (best - after) / (best - before)
                behind = (regret - equal.regrets[0]) * (best - before)
                used = 0 if name == "transfer alone" else len(policies)
                cell = Cell([regret], [behind], used, used and int(scores.trials.sum()))
                cells[Key(name, regime, budget, family.name, family.count)] = cell
    return cells


def differences(cells: Cells, settings: Settings, families: Sequence[TableFamily]) -> list[Table]:
    """How much smaller each decision maker's regret is than the default's in the same studies."""
    made = []
    for role, words in ROLES.items():
        chosen = [family for family in families if family.role == role]
        rows = []
        for name in CEILINGS if chosen else ():
            row = [name]
            for budget in settings.budgets:
                for regime in settings.regimes:
                    less = [
                        np.array(cells[Key(DEFAULT, regime, budget, one.name, one.count)].regrets)
                        - np.array(cells[Key(name, regime, budget, one.name, one.count)].regrets)
                        for one in chosen
                    ]
                    error = sum(float(one.var(ddof=1)) / len(one) for one in less) ** 0.5 / len(less)
                    row.append(f"{np.mean([one.mean() for one in less]):+.3f} ± {error:.3f}")
            rows.append(tuple(row))
        columns = [f"K = {budget}, {regime}" for budget in settings.budgets for regime in settings.regimes]
        made.append(Table(f"Default − decision maker, {words}", ("decision maker", *columns), tuple(rows)))
    return [table for table in made if table.rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path)
    parser.add_argument("--only", nargs="+", help="names of tables; all by default")
    parser.add_argument("--studies", type=int, default=24, help="per kind of start")
    parser.add_argument("--budgets", type=int, nargs="+", default=[100])
    parser.add_argument("--regimes", nargs="+", default=["rollouts", "real"], choices=REGIMES)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    families = [
        family
        for family in table_families(options.tables)
        if not options.only or family.name.partition("/")[0] in options.only
    ]
    settings = Settings(
        families=tuple(family.name for family in families) if options.only else (),
        worlds=str(options.tables),
        factors=tuple(sorted({*FACTORS, *(family.count for family in families)})),
        count=options.studies,
        budgets=tuple(options.budgets),
        regimes=tuple(options.regimes),
        methods=("equal", DEFAULT, *CEILINGS),
    )
    begun, cells = time.monotonic(), Cells()
    for family in families:
        for number in range(options.studies):
            for key, cell in study(family, number, settings).items():
                cells.setdefault(key, Cell()).add(cell)
        print(f"{family.name}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    text = page(cells, settings, families, time.monotonic() - begun)
    print(text)
    if options.save:
        write_text(options.save, text)


def page(cells: Cells, settings: Settings, families: Sequence[TableFamily], seconds: float) -> str:
    """The page of results."""
    budgets, regimes = " ".join(map(str, settings.budgets)), " ".join(settings.regimes)
    command = f"python benchmarks/ceiling.py {settings.worlds} --studies {settings.count}"
    command += f" --budgets {budgets} --regimes {regimes}"
    if settings.families:
        command += f" --only {' '.join(dict.fromkeys(family.name.partition('/')[0] for family in families))}"
    where = f"{datetime.date.today().isoformat()}, {processor()}, one process, {seconds:.0f} s"
    where += f", Python {platform.python_version()}, numpy {np.__version__}"
    tables = [*differences(cells, settings, families), *Comparison(settings, cells).tables()]
    return "\n".join(
        ["# The best possible regret", "", f"{where}; `{command}`.", "", *LEGEND, *map(Table.markdown, tables)]
    )


DEFINITIONS = "../../docs/decisions/0028-policy-tables.md#the-best-possible-regret"
LEGEND = (
    "Decision makers that know more than a study tells, in the studies of [decisions-tables.md](decisions-tables.md) "
    f"and with the same policies and trials ([definitions]({DEFINITIONS})). "
    "Each takes the allocation with the largest posterior mean success; seed 0. Regret is "
    "(best − chosen) / (best − before), ± its standard error.",
    "",
    "| decision maker | what it knows beside the study |",
    "|---|---|",
    "| names unknown | the whole emulator, but not which factor is which: a ceiling for rules without such knowledge |",
    "| moments | mean and covariance of success over all renamings: the best smooth prior for such tasks |",
    "| hyperparameters | kernels, means and noise of the emulator's Gaussian processes |",
    "| transfer | the same, and half of the table's rows from other starts |",
    "| transfer alone | those rows and the hyperparameters, without the study |",
    "",
)


if __name__ == "__main__":
    main()
