"""How well anybody could decide: regret of a Bayesian who knows the five tuning families and nothing else.

python benchmarks/decision_limit.py --worlds 20 --draws 12000 [--shuffled]

For every world the policies of the screening design are measured once, as in `fsc bench decisions`. Thousands of
surfaces are drawn from all families alike and weighted by how likely they make those scores; the order with the largest
weighted mean success is taken. With few trials the weights are spread over many surfaces and the answer is near the
limit; with hundreds of trials per policy they would sit on one surface, so only the regime `real` is offered. With
`--shuffled` the Bayesian does not know in which order the factors were declared: that the family `shifted` moves
repairs to the next factor then helps as little as it would help somebody who lists factors at random.

The second table is of a Bayesian who takes no order that is worse than Equal with more than some probability.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from factored_scaling.bench.families import TUNING
from factored_scaling.bench.measure import REGIMES, measure
from factored_scaling.bench.oracle import best_allocation
from factored_scaling.bench.worlds import DEMOS, INITIAL, WORTH, Floats, Setting, draw_world, factor_names, renamed
from factored_scaling.core.design import plan
from factored_scaling.core.spec import StudySpec

POLICIES = {5: 6, 8: 8}
BUDGET = 100
RISKS = (1.0, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1)  # of being worse than Equal that are taken
EDGE = 1e-3  # successes nearer to 0 or 1 would rule surfaces out by one trial that training noise explains


Outcome = tuple[float, bool]  # regret, and whether Equal would have been better


@dataclass(frozen=True)
class Library:
    """Surfaces of all families: their successes at the training sets, and what each order would give."""

    sets: list[dict[str, int]]
    orders: Floats  # Equal first
    success: Floats  # surfaces × policies × N
    worth: Floats  # surfaces × orders


def library(setting: Setting, draws: int, shuffled: bool, rng: np.random.Generator) -> Library:
    count = setting.count
    spec = StudySpec(dict.fromkeys(factor_names(count), DEMOS), setting.nominal, "screen", policies=POLICIES[count])
    sets = [run.demos for run in plan(spec)]
    demos = np.array([list(one.values()) for one in sets], dtype=float)
    one = np.eye(count)
    halves = [(one[i] + one[j]) / 2 for i in range(count) for j in range(i)]
    mixed = [*rng.dirichlet(np.full(count, 0.5), 200), *rng.dirichlet(np.full(count, 2.0), 60)]
    orders = BUDGET * np.array([np.full(count, 1 / count), *one, *halves, *mixed])
    success, worth = [], []
    for family in TUNING:
        found = 0
        while found < draws:
            surface = family.draw(setting, rng)
            if shuffled:
                surface = renamed(surface, rng.permutation(count))
            before = float(np.clip(surface(np.full(count, float(DEMOS))), 0, 1).mean())
            if not INITIAL[0] <= before <= INITIAL[1]:
                continue
            after = np.clip(surface(orders + DEMOS), 0, 1).mean(-1)
            if after.max() - before >= WORTH:
                success.append(np.clip(surface(demos), EDGE, 1 - EDGE))
                worth.append(after)
                found += 1
    return Library(sets, orders, np.array(success), np.array(worth))


def regrets(count: int, worlds: int, draws: int, seed: int, shuffled: bool) -> dict[tuple[str, float], list[Outcome]]:
    """By family and the risk that is taken."""
    libraries: dict[int, Library] = {}
    rng = np.random.default_rng(seed)
    got: dict[tuple[str, float], list[Outcome]] = {}
    for family in TUNING:
        for index in range(worlds):
            world = draw_world(family, count, index, seed)
            nominal = world.setting.nominal
            if nominal not in libraries:
                libraries[nominal] = library(world.setting, draws, shuffled, rng)
            known = libraries[nominal]
            measured = [measure(world, demos, REGIMES["real"]) for demos in known.sets]
            good = np.array([m.scores * m.trials for m in measured])
            bad = np.array([(1 - m.scores) * m.trials for m in measured])
            fit = (good * np.log(known.success) + bad * np.log1p(-known.success)).sum((1, 2))
            weight = np.exp(fit - fit.max())
            expected = weight @ known.worth
            risk = weight @ (known.worth < known.worth[:, :1] - 1e-9) / weight.sum()
            before, best, equal = (
                float(world.score(world.now + extra))
                for extra in (0.0, best_allocation(world.score, world.now, BUDGET), BUDGET / count)
            )
            for most in RISKS:
                order = known.orders[int(np.where(risk <= most, expected, -np.inf).argmax())]
                after = float(world.score(world.now + order))
                outcome = ((best - after) / (best - before), after < equal - 1e-9)
                got.setdefault((family.name, most), []).append(outcome)
    return got


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=20, help="per family and number of factors")
    parser.add_argument("--draws", type=int, default=12_000, help="surfaces per family")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shuffled", action="store_true", help="the order of the factors is not known")
    given = parser.parse_args()
    every: dict[tuple[str, float], list[Outcome]] = {}
    for count in POLICIES:
        for key, values in regrets(count, given.worlds, given.draws, given.seed, given.shuffled).items():
            every.setdefault(key, []).extend(values)
    print("| family | regret | worse than Equal |\n|---|---:|---:|")
    for family in TUNING:
        print(_line(family.name, every[family.name, 1.0]))
    print(_line("mean", [one for family in TUNING for one in every[family.name, 1.0]]))
    print("\n| risk of being worse than Equal that is taken | regret | worse than Equal |\n|---|---:|---:|")
    for most in RISKS:
        told = "any" if most == 1.0 else f"{100 * most:.0f}%"
        print(_line(told, [one for family in TUNING for one in every[family.name, most]]))


def _line(name: str, outcomes: list[Outcome]) -> str:
    regret, worse = np.array(outcomes, dtype=float).T
    return f"| {name} | {regret.mean():.3f} ± {regret.std() / len(outcomes) ** 0.5:.3f} | {100 * worse.mean():.0f}% |"


if __name__ == "__main__":
    main()
