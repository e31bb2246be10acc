"""How well the response model predicts trained policies that it has not seen.

    python benchmarks/response_models.py results/tables --role tuning

A study is a start of a table: the policy trained on everything and some trained on subsets, all of them rows of the
table, are what the model is given. It then predicts the rows with K = 20 or 100 more demonstrations. The score is the
log predictive density of a row's successes, per factor; the bias is predicted − measured success in points.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from factored_scaling.bench.measure import REGIMES, Regime
from factored_scaling.bench.policy_tables import ROWS, PolicyTable, read_table
from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.model.posterior import Posterior, fit_posterior
from factored_scaling.model.prior import PRIORS, Prior

Floats = NDArray[np.float64]
Priors = Sequence[tuple[float, Prior]]
POLICIES = {5: 6, 8: 8}
AFTER = ("equal-20", "split-20", "equal-100", "split-100", "one-factor-100")


@dataclass(frozen=True)
class Study:
    """Rows that the model is given, and rows that it predicts."""

    table: PolicyTable
    start: int
    given: NDArray[np.int64]
    asked: NDArray[np.int64]
    results: Results

    @property
    def spec(self) -> StudySpec:
        """As a user would declare it."""
        sizes = dict.fromkeys(self.table.factors, self.start)
        return StudySpec(sizes, construction="screen", policies=len(self.given))


def studies(table: PolicyTable, start: int, regime: Regime, count: int) -> Iterator[Study]:
    """`count` studies of other rows and trials."""
    groups = np.array(table.group)
    here = table.start == start
    full, inside = (np.flatnonzero(here & (groups == name)) for name in ("start", "inside"))
    asked = np.flatnonzero(here & np.isin(groups, AFTER))
    factors = len(table.factors)
    wanted = POLICIES.get(factors, factors + 1) - 1
    for number in range(count if len(inside) >= wanted else 0):
        rng = np.random.default_rng([number, start, factors])
        chosen = rng.choice(inside, wanted, replace=False)
        given = np.concatenate([rng.choice(full, 1), chosen])
        rows = [row for index in given for row in _rows(table, int(index), regime.trials(factors), rng)]
        yield Study(table, start, given, asked, Results.from_rows(rows))


def _rows(
    table: PolicyTable, index: int, trials: NDArray[np.int64], rng: np.random.Generator
) -> Iterator[Mapping[str, object]]:
    """A policy's rows with a random part of its trials."""
    demos = {name: int(number) for name, number in zip(table.factors, table.demos[index], strict=True)}
    for j, name in enumerate(table.factors):
        good, all_ = int(table.successes[index, j]), int(table.trials[index, j])
        count = min(int(trials[j]), all_)
        score = rng.hypergeometric(good, all_ - good, count) / count
        yield {"demos": demos, "seed": int(table.seed[index]), "factor": name, "score": score, "trials": count}


@dataclass
class Found:
    """Per row that was predicted."""

    density: list[float] = dataclasses.field(default_factory=list)
    error: list[float] = dataclasses.field(default_factory=list)
    held: list[float] = dataclasses.field(default_factory=list)

    def add(self, other: Found) -> None:
        """Take in other rows."""
        self.density += other.density
        self.error += other.error
        self.held += other.held


def judge(study: Study, posterior: Posterior) -> Found:
    """The density, the error and whether the 95% interval of a new policy held what was measured, for every row."""
    table = study.table
    predicted = posterior.by_factor(table.demos[study.asked].astype(float))  # rows × factors × samples
    theta = np.arcsin(np.sqrt(np.clip(table.scores[study.asked], 0.0, 1.0)))[:, :, None]
    miss = theta - np.arcsin(np.sqrt(np.clip(predicted, 0.0, 1.0)))
    own = 1.0 / (4.0 * table.trials[study.asked] + 2.0)[:, :, None] + posterior.noise_own**2
    common = posterior.noise_common**2
    weight = (1 / own).sum(1)
    square = (miss**2 / own).sum(1) - common * (miss / own).sum(1) ** 2 / (1 + common * weight)
    logs = -0.5 * (square + np.log(own).sum(1) + np.log1p(common * weight) + len(table.factors) * np.log(2 * np.pi))
    top = logs.max(1, keepdims=True)
    density = (top[:, 0] + np.log(np.exp(logs - top).mean(1))) / len(table.factors)
    score = predicted.mean(1)
    truth = table.scores[study.asked].mean(1)
    rng = np.random.default_rng(0)
    noisy = np.arcsin(np.sqrt(np.clip(predicted, 0.0, 1.0)))
    noisy = noisy + np.sqrt(common) * rng.standard_normal((len(noisy), 1, noisy.shape[2]))
    noisy = noisy + np.sqrt(own) * rng.standard_normal(noisy.shape)
    low, high = np.quantile((np.sin(np.clip(noisy, 0, np.pi / 2)) ** 2).mean(1), [0.025, 0.975], axis=1)
    held = (low <= truth) & (truth <= high)
    return Found(density.tolist(), (100 * (score.mean(1) - truth)).tolist(), held.astype(float).tolist())


def compare(
    tables: Mapping[str, PolicyTable], regimes: Sequence[str], count: int, priors: Priors = PRIORS
) -> dict[tuple[str, int, str], Found]:
    """By table, start and regime."""
    found: dict[tuple[str, int, str], Found] = {}
    for name, table in tables.items():
        for start in sorted(set(table.start.tolist())):
            for regime in regimes:
                cell = found.setdefault((name, start, regime), Found())
                for study in studies(table, start, REGIMES[regime], count):
                    cell.add(judge(study, fit_posterior(study.spec, study.results, priors=priors)))
    return found


def read_tables(folder: Path, role: str) -> dict[str, PolicyTable]:
    """The tables of a role by name."""
    read = {path.parent.name: read_table(path.parent) for path in sorted(folder.glob(f"*/{ROWS}"))}
    return {name: table for name, table in read.items() if table.card.get("role") == role}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path)
    parser.add_argument("--role", default="tuning", choices=("tuning", "held_out"))
    parser.add_argument("--studies", type=int, default=6)
    options = parser.parse_args()
    found = compare(read_tables(options.tables, options.role), ("rollouts", "real"), options.studies)
    print("| table | start | regime | density | bias | error | 95% holds |\n|---|---:|---|---:|---:|---:|---:|")
    for (name, start, regime), cell in found.items():
        if not cell.density:  # too few rows
            continue
        print(f"| {name} | {start} | {regime} | {describe(cell)} |")
    for regime in ("rollouts", "real"):
        every = Found()
        for key, cell in found.items():
            if key[2] == regime:
                every.add(cell)
        print(f"| all | | {regime} | {describe(every)} |")


def describe(found: Found) -> str:
    """As cells of a table."""
    error = np.array(found.error)
    numbers = f"{error.mean():+.1f} | {np.sqrt((error**2).mean()):.1f} | {100 * np.mean(found.held):.0f}%"
    return f"{np.mean(found.density):.3f} | {numbers}"


if __name__ == "__main__":
    main()
