"""How well anybody could decide: regret of a Bayesian who knows the five tuning families and nothing else.

python benchmarks/decision_limit.py --worlds 20 --responses 200000 [--known every|others] [--shuffled]

For every world the policies of the screening design are measured once, as in `fsc bench decisions`. Responses are drawn
from all families alike, with the noise of training, and weighted by how likely they make those scores, grades
included; the allocation with the smallest expected regret is taken. With few trials the weights are spread over many
responses, and the first table shows whether more of them would still change the answer; with hundreds of trials per
policy they would sit on one response, so only the regime `real` is offered. With `--shuffled` the Bayesian does not
know in which order the factors were declared: that the family `shifted` moves repairs to the next factor then helps as
little as it would help somebody who lists factors at random. With `--known every` the Bayesian knows all twenty
families of this repository, with `--known others` the fifteen that the worlds to decide in are not of.

The third table is of a Bayesian who takes no allocation that is worse than Equal with more than some probability.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np
from blind_worlds import families as blind
from numpy.typing import NDArray
from shuffled_worlds import renamed
from synthetic_worlds import HELD_OUT, TUNING

from factored_scaling.bench.measure import REGIMES, measure, stage_chance
from factored_scaling.bench.oracle import best_allocation
from factored_scaling.bench.worlds import (
    COMMON,
    DEMOS,
    INITIAL,
    NOISE,
    WORTH,
    Floats,
    Setting,
    World,
    draw_world,
    factor_names,
)
from factored_scaling.core.design import plan
from factored_scaling.core.spec import StudySpec

POLICIES = {5: 6, 8: 8}
BUDGET = 100
RISKS = (1.0, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15, 0.1)  # of being worse than Equal that are taken
CHUNK = 100_000  # responses at once
KNOWN = {"tuning": TUNING, "every": (*TUNING, *HELD_OUT, *blind), "others": (*HELD_OUT, *blind)}
LEVELS = 200  # successes are distinguished in steps of half a point
QUARTERS = 4  # grades are multiples of a quarter
AHEAD = 4  # parts that wait in memory

Levels = NDArray[np.uint8]
Singles = NDArray[np.float32]


@dataclass(frozen=True)
class Part:
    """Some responses: the level of success of every policy on every factor's trials, the regret of each allocation."""

    levels: Levels  # (policies · N) × responses
    regret: Singles  # responses × allocations


@dataclass
class Belief:
    """Expected regret of every allocation in one world, as responses come in."""

    likelihood: Singles  # (policies · N) × levels: logarithms
    largest: float = -math.inf
    weight: float = 0.0
    regret: Floats | float = 0.0  # per allocation, weighted sums
    behind: Floats | float = 0.0

    def weigh(self, levels: Levels) -> Singles:
        """Weights of more responses, on a scale that all earlier ones are brought to."""
        fit = np.zeros(levels.shape[1], dtype=np.float32)
        for row, level in zip(self.likelihood, levels, strict=True):
            fit += row[level]
        largest = max(self.largest, float(fit.max()))
        shrunk = math.exp(self.largest - largest)
        self.weight, self.regret, self.behind = self.weight * shrunk, self.regret * shrunk, self.behind * shrunk
        self.largest = largest
        weights: Singles = np.exp(fit - np.float32(largest))
        return weights

    def choose(self, risk: float) -> int:
        """The allocation with the smallest expected regret among those that are behind Equal with at most `risk`."""
        allowed = self.behind / self.weight <= risk
        return int(np.where(allowed, self.regret, np.inf).argmin())


@dataclass(frozen=True)
class Outcome:
    """What the Bayesian got in one world."""

    family: str
    count: int  # factors
    responses: int
    risk: float
    regret: float
    worse: bool  # Equal would have been better


@cache
def allocations(count: int) -> Floats:
    """Possible allocations, Equal first."""
    rng = np.random.default_rng(0)
    one = np.eye(count)
    halves = [(one[i] + one[j]) / 2 for i in range(count) for j in range(i)]
    mixed = [
        rng.dirichlet(np.full(count, spread), many) for spread, many in ((0.25, 120), (0.5, 320), (1, 150), (3, 80))
    ]
    return np.asarray(BUDGET * np.concatenate([np.full((1, count), 1 / count), one, halves, *mixed]))


def per_family(known: str) -> int:
    """Responses of one family in a part."""
    return CHUNK // len(KNOWN[known])


@cache
def training_sets(count: int, nominal: int) -> tuple[dict[str, int], ...]:
    spec = StudySpec(dict.fromkeys(factor_names(count), DEMOS), nominal, "screen", policies=POLICIES[count])
    return tuple(run.demos for run in plan(spec))


def draw_part(known: str, count: int, nominal: int, shuffled: bool, number: int) -> Part:
    """Responses of every known family in which there is something to decide, with the noise of training."""
    rng = np.random.default_rng([len(KNOWN[known]), count, nominal, shuffled, number])
    setting = Setting(count, nominal=nominal)
    measured = np.array([list(demos.values()) for demos in training_sets(count, nominal)], dtype=float)
    now = np.full((1, count), float(DEMOS))
    success, regret = [], []
    for family in KNOWN[known]:
        found = 0
        while found < per_family(known):
            response = family.draw(setting, rng)
            if shuffled:
                response = renamed(response, rng.permutation(count))
            before = float(np.clip(response(now), 0, 1).mean())
            if not INITIAL[0] <= before <= INITIAL[1]:
                continue
            after = np.clip(response(now + allocations(count)), 0, 1).mean(-1)
            best = after.max()
            if best - before >= WORTH:
                success.append(response(measured))
                regret.append(((best - after) / (best - before)).astype(np.float32))
                found += 1
    noise, common = rng.uniform(*NOISE, (len(success), 1, 1)), rng.uniform(*COMMON, (len(success), 1, 1))
    together, own = rng.standard_normal((len(success), len(measured), 1)), rng.standard_normal(np.shape(success))
    noisy = np.clip(success, 0, 1) + noise * (np.sqrt(common) * together + np.sqrt(1 - common) * own)
    levels = np.clip(noisy * LEVELS, 0, LEVELS - 1).astype(np.uint8)
    return Part(np.ascontiguousarray(levels.reshape(len(success), -1).T), np.array(regret))


@cache
def chances(trials: int, graded: bool) -> Floats:
    """How likely every sum of grades, in quarters, is at every level of success: logarithms."""
    level = (np.arange(LEVELS) + 0.5) / LEVELS
    none, stage = np.zeros(LEVELS), stage_chance(level)
    in_stages = [1 - stage, stage * (1 - stage), stage**2 * (1 - stage), none, stage**3]  # worth ¼, ¼ and ½
    grades = in_stages if graded else [1 - level, none, none, none, level]
    every = np.ones((1, LEVELS))
    for _ in range(trials):
        more = np.zeros((len(every) + QUARTERS, LEVELS))
        for grade, chance in enumerate(grades):
            more[grade : grade + len(every)] += every * chance
        every = more
    return np.asarray(np.log(np.maximum(every, 1e-12)))


def believe(world: World) -> Belief:
    """Measure the world's policies."""
    rows = []
    for demos in training_sets(world.setting.count, world.setting.nominal):
        measured = measure(world, demos, REGIMES["real"])
        sums = np.round(measured.scores * measured.trials * QUARTERS).astype(int)
        rows += [chances(int(t), world.graded)[s] for s, t in zip(sums, measured.trials, strict=True)]
    return Belief(np.array(rows, dtype=np.float32))


def decide(worlds: Sequence[World], parts: Iterator[Part]) -> Iterator[tuple[int, list[Belief]]]:
    """Beliefs about all worlds after every part, with the number of parts so far."""
    beliefs = [believe(world) for world in worlds]
    for number, part in enumerate(parts, 1):
        weights = np.stack([belief.weigh(part.levels) for belief in beliefs])
        behind = (part.regret > part.regret[:, :1] + 1e-6).astype(np.float32)
        regret, worse = weights @ part.regret, weights @ behind
        for place, belief in enumerate(beliefs):
            belief.weight += float(weights[place].sum(dtype=float))
            belief.regret, belief.behind = belief.regret + regret[place], belief.behind + worse[place]
        yield number, beliefs


def outcomes(count: int, given: argparse.Namespace, pool: ProcessPoolExecutor) -> Iterator[Outcome]:
    every = [draw_world(family, count, index, given.seed) for family in TUNING for index in range(given.worlds)]
    size = per_family(given.known)
    parts = math.ceil(given.responses / size)
    shown = {math.ceil(parts / share) for share in (1, 3, 10, 30)}
    for nominal in sorted({world.setting.nominal for world in every}):
        worlds = [world for world in every if world.setting.nominal == nominal]
        ends = [_ends(world) for world in worlds]
        for number, beliefs in decide(worlds, _drawn(pool, parts, given.known, count, nominal, given.shuffled)):
            print(f"N = {count}, {nominal} nominal: part {number} of {parts}", file=sys.stderr, flush=True)
            if number not in shown:
                continue
            for world, belief, (before, best, equal) in zip(worlds, beliefs, ends, strict=True):
                for risk in RISKS:
                    after = float(world.score(world.now + allocations(count)[belief.choose(risk)]))
                    regret = (best - after) / (best - before)
                    yield Outcome(world.family, count, number * size, risk, regret, after < equal - 1e-9)


def _drawn(
    pool: ProcessPoolExecutor, parts: int, known: str, count: int, nominal: int, shuffled: bool
) -> Iterator[Part]:
    """Parts in their order, a few drawn ahead."""
    waiting: deque[Future[Part]] = deque()
    for number in range(parts + AHEAD):
        if number < parts:
            waiting.append(pool.submit(draw_part, known, count, nominal, shuffled, number))
        if number >= AHEAD:
            yield waiting.popleft().result()


def _ends(world: World) -> tuple[float, float, float]:
    """Success before, with the best allocation, and with Equal."""
    best = best_allocation(world.score, world.now, BUDGET)
    before, after, equal = (float(world.score(world.now + more)) for more in (0.0, best, BUDGET / world.now.size))
    return before, after, equal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=20, help="per family and number of factors")
    parser.add_argument("--responses", type=int, default=200_000, help=f"per family; parts have {CHUNK:,} of all")
    parser.add_argument("--known", choices=KNOWN, default="tuning", help="families that the Bayesian knows")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shuffled", action="store_true", help="the order of the factors is not known")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    with ProcessPoolExecutor(given.jobs) as pool:
        every = [outcome for count in POLICIES for outcome in outcomes(count, given, pool)]
    amounts = sorted({one.responses for one in every})
    bold = [one for one in every if one.risk == max(RISKS)]
    most = [one for one in every if one.responses == amounts[-1]]
    _table("responses per family", {f"{n:,}": [one for one in bold if one.responses == n] for n in amounts})
    final = [one for one in most if one.risk == max(RISKS)]
    _table("family", {family.name: [one for one in final if one.family == family.name] for family in TUNING})
    labels = {risk: f"{100 * risk:.0f}%" if risk < 1 else "any" for risk in RISKS}
    _table("risk that is taken", {labels[risk]: [one for one in most if one.risk == risk] for risk in RISKS})


def _table(title: str, rows: dict[str, list[Outcome]]) -> None:
    print(f"\n| {title} | N = 5 | N = 8 | both |\n|---|---|---|---|")
    for name, several in rows.items():
        groups = [[one for one in several if one.count in counts] for counts in ((5,), (8,), (5, 8))]
        print(f"| {name} | " + " | ".join(_cell(group) for group in groups) + " |")


def _cell(outcomes: Sequence[Outcome]) -> str:
    """Mean regret ± standard error, and how often Equal would have been better."""
    regret = np.array([one.regret for one in outcomes])
    worse = np.mean([one.worse for one in outcomes])
    return f"{regret.mean():.3f} ± {regret.std() / len(regret) ** 0.5:.3f}, {100 * worse:.0f}%"


if __name__ == "__main__":
    main()
