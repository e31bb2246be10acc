"""What `fsc next` promises of four more policies and what comes about, in worlds with a known answer.

python benchmarks/next_gains.py --worlds 3 --save      writes results/next_gains.md
"""

from __future__ import annotations

import argparse
import datetime
import platform
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from synthetic_worlds import TUNING

from factored_scaling.bench.measure import REGIMES, results
from factored_scaling.bench.worlds import World, draw_world
from factored_scaling.core.design import plan
from factored_scaling.core.spec import StudySpec
from factored_scaling.model.acquisition import advise
from factored_scaling.model.posterior import fit_posterior

BUDGET, MORE = 100, 4
CASES = [(regime, policies) for regime in ("simulation", "real") for policies in (1, 4)]


def success(world: World, allocation: Mapping[str, int]) -> float:
    return float(world.score(world.now + np.array([allocation[name] for name in world.factors], dtype=float)))


def case(world: World, regime: str, policies: int) -> tuple[float, float]:
    """The gain that is promised for four more policies, and the one that comes about."""
    sizes = world.spec().sizes
    spec = StudySpec(sizes, nominal=world.setting.nominal, construction="screen", policies=policies + MORE)
    sets = [run.demos for run in plan(spec)]
    few, many = (results(world, sets[:count], REGIMES[regime]) for count in (policies, policies + MORE))
    now = advise(fit_posterior(spec, few), few, BUDGET)
    promised = next(step.gain for step in now.steps if step.kind == "train" and len(step.demos) == MORE)
    later = fit_posterior(spec, many).allocate(BUDGET).demos
    return promised, success(world, later) - success(world, now.allocation)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=3, help="per family and number of factors")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/next_gains.md")
    given = parser.parse_args()
    worlds = [
        draw_world(family, count, index, given.seed)
        for family in TUNING
        for count in (5, 8)
        for index in range(given.worlds)
    ]
    lines = [
        "# What fsc next promises",
        "",
        f"{datetime.date.today().isoformat()}, Python {platform.python_version()}, numpy {np.__version__}; "
        f"`python benchmarks/next_gains.py --worlds {given.worlds} --seed {given.seed} --save`. "
        f"{len(worlds)} worlds of the tuning families, K = {BUDGET}, screening, {MORE} more policies. "
        "All numbers are points of success.",
        "",
        "| evaluation | policies so far | promised | came about |",
        "|---|---:|---:|---:|",
    ]
    for regime, policies in CASES:
        gains = 100 * np.array([case(world, regime, policies) for world in worlds])
        promised, got = gains.mean(axis=0)
        error = gains[:, 1].std(ddof=1) / np.sqrt(len(worlds))
        lines.append(f"| {regime} | {policies} | {promised:.2f} | {got:.2f} ± {error:.2f} |")
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if given.save:
        (Path(__file__).parent / "results" / "next_gains.md").write_text(text)


if __name__ == "__main__":
    main()
