"""Decision makers that know more than any study tells: what the best possible regret is on a table of policies.

Each gets the policies of a study in a `TableWorld` and gives the allocation with the largest posterior mean success.
They know the emulator's training noise. `docs/decisions/0028-policy-tables.md` defines them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from factored_scaling.bench.emulator import Emulator, angle, features, success
from factored_scaling.bench.measure import Regime, measure
from factored_scaling.bench.oracle import best_allocation
from factored_scaling.bench.policy_tables import PolicyTable
from factored_scaling.bench.table_worlds import TableFamily, TableWorld
from factored_scaling.bench.worlds import Floats, Setting
from factored_scaling.errors import InvalidInput
from factored_scaling.model.allocate import optimize_allocation

Counts = NDArray[np.int64]
MOST_NAMED = 8  # factors whose orders can all be tried
DRAWN = 128  # orders that stand for all of them when an allocation is sought
SOME = 192  # orders from which a covariance is taken, where all are too many
_GRID = np.linspace(-0.3, np.pi / 2 + 0.3, 600)  # of θ
_CHUNK = 4096  # compositions at once
_EDGE = 0.03  # a mode of θ stays so far inside its range
_ROUNDS = 30  # of Laplace's approximation
_DRAWN_STARTS = ("unbalanced", "nominal-heavy")


def _hermite(count: int) -> tuple[Floats, Floats]:
    """Places and weights for the mean over a standard normal variable."""
    places, weights = np.polynomial.hermite_e.hermegauss(count)
    return places, weights / weights.sum()


@dataclass(frozen=True)
class Scores:
    """Policies as a study measured them."""

    demos: Counts  # policies × N
    nominal: Counts  # policies
    good: Counts  # policies × N: successes
    trials: Counts

    @classmethod
    def measured(cls, world: TableWorld, policies: Iterable[Mapping[str, int]], regime: Regime) -> Scores:
        """What `fsc bench decisions` measures for a rule."""
        every = list(policies)
        found = [measure(world, one, regime) for one in every]
        demos = np.array([[one[name] for name in world.factors] for one in every])
        trials = np.array([one.trials for one in found])
        good = np.round(np.array([one.scores for one in found]) * trials).astype(np.int64)
        return cls(demos, np.full(len(every), world.setting.nominal), good, trials)

    @classmethod
    def rows(cls, table: PolicyTable) -> Scores:
        """All rows of a table."""
        return cls(table.demos, table.nominal, table.successes, table.trials)

    def joined(self, other: Scores) -> Scores:
        """These policies and others."""
        names = ("demos", "nominal", "good", "trials")
        return Scores(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in names))


# The whole emulator is known, but not which declared factor is which of its factors.


def names_unknown(world: TableWorld, scores: Scores, budget: int) -> Floats:
    """The Bayes-optimal allocation where every order of the emulator's factors is equally likely at first."""
    orders, weight = orders_given(world, scores)
    now, back = world.now, np.argsort(orders, axis=1)

    def worth(allocations: Floats) -> Floats:
        demos = (now + allocations)[:, back]  # allocations × orders × N
        return np.asarray(world.emulator.success(demos, world.setting.nominal).mean(-1) @ weight)

    given = optimize_allocation(world.spec().factors, worth, budget).demos
    return np.array(list(given.values()), dtype=float)


def orders_given(world: TableWorld, scores: Scores) -> tuple[Counts, Floats]:
    """Orders of the emulator's factors with their posterior weights; of many, a sample."""
    orders = _orders(world.setting.count)
    theta = _theta(world.emulator, world.setting, tuple(map(tuple, scores.demos.tolist())))
    log = log_likelihood(world.emulator, scores, theta, orders)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    if np.count_nonzero(weight > 1e-5 * weight.max()) > DRAWN:
        places = (np.arange(DRAWN) + 0.5) / DRAWN
        drawn = np.minimum(np.searchsorted(np.cumsum(weight), places), len(weight) - 1)
        weight = np.bincount(drawn, minlength=len(weight)) / DRAWN
    keep = weight > 1e-5 * weight.max()
    return orders[keep], weight[keep] / weight[keep].sum()


@functools.lru_cache(maxsize=4)
def _orders(count: int) -> Counts:
    """Every assignment: row r says that declared factor j is the emulator's factor [r, j]."""
    if count > MOST_NAMED:
        raise InvalidInput(f"{count} factors have too many orders", hint=f"at most {MOST_NAMED} factors")
    return np.array(list(itertools.permutations(range(count))))


@functools.lru_cache(maxsize=2)
def _theta(emulator: Emulator, setting: Setting, demos: tuple[tuple[int, ...], ...]) -> Floats:
    """Expected θ on every declared factor's trials: policies × orders × N."""
    orders = _orders(setting.count)
    back = np.argsort(orders, axis=1)
    found = np.empty((len(demos), *orders.shape))
    for policy, one in enumerate(demos):
        distinct, place = np.unique(np.array(one)[back], axis=0, return_inverse=True)
        parts = np.array_split(distinct, -(-len(distinct) // _CHUNK))
        theta = np.concatenate([emulator.theta(part.astype(float), setting.nominal) for part in parts])
        found[policy] = np.take_along_axis(theta[place.ravel()], orders, axis=1)
    return found


def log_likelihood(emulator: Emulator, scores: Scores, theta: Floats, orders: Counts) -> Floats:
    """Of every order: binomial scores with the training noise integrated out. `theta` is policies × orders × N."""
    together, mass = _hermite(9)
    own, own_mass = _hermite(9)
    place = np.clip(np.rint((theta - _GRID[0]) / (_GRID[1] - _GRID[0])).astype(np.int64), 0, _GRID.size - 1)
    log = np.zeros(len(orders))
    for policy in range(len(theta)):
        spread = emulator.spread(scores.demos[policy].astype(float), float(scores.nominal[policy]))
        moved = np.sqrt(emulator.common) * together[:, None] + np.sqrt(1 - emulator.common) * own
        chance = success(_GRID[:, None, None] + spread[:, None, None, None] * moved).clip(1e-9, 1 - 1e-9)
        yes, no = np.log(chance), np.log1p(-chance)  # emulator's factors × grid × together × own
        by_together = np.zeros((len(orders), together.size))
        for factor, (good, trials) in enumerate(zip(scores.good[policy], scores.trials[policy], strict=True)):
            each = np.log(np.exp(good * yes + (trials - good) * no) @ own_mass + 1e-300)
            by_together += each[orders[:, factor], place[policy, :, factor]]
        top = by_together.max(1)
        log += top + np.log(np.exp(by_together - top[:, None]) @ mass)
    return log


# A Gaussian prior of θ, conditioned on some policies.


def laplace(emulator: Emulator, scores: Scores, mean: Floats, prior: Floats) -> tuple[Floats, Floats]:
    """Weights of the policies in the posterior mean (N × policies), and what variances fall by: N × R × N × R.

    `mean` (N × R) and `prior` (N × R × N × R) are those of θ without training noise. The mode is found by Fisher
    scoring: a score of t trials is worth a value of θ with the variance 1/(4t).
    """
    count, rows = mean.shape
    points = features(scores.demos, scores.nominal)
    spread = np.sqrt(np.stack([process.noise(points) for process in emulator.processes]))
    noise, row = np.zeros_like(prior), np.arange(rows)
    for one, other in itertools.product(range(count), repeat=2):
        part = 1.0 if one == other else emulator.common
        noise[one, row, other, row] = part * spread[one] * spread[other]
    size = rows * count
    latent, known = (prior + noise).reshape(size, size), 0.25 / scores.trials.T.ravel()
    good, bad = scores.good.T.ravel(), (scores.trials - scores.good).T.ravel()
    factor = cho_factor(latent + np.diag(known), lower=True)
    theta, weights = angle(scores.good, scores.trials).T.ravel(), np.zeros(size)
    for _ in range(_ROUNDS):
        inside = np.clip(theta, _EDGE, np.pi / 2 - _EDGE)
        slope = 2 * good / np.tan(inside) - 2 * bad * np.tan(inside)
        weights = cho_solve(factor, inside + known * slope - mean.ravel())
        theta = 0.5 * theta + 0.5 * (mean.ravel() + latent @ weights)
    inverse = cho_solve(factor, np.eye(size))
    return weights.reshape(count, rows), inverse.reshape(count, rows, count, rows)


def _mean_success(mean: Floats, variance: Floats) -> Floats:
    """Of a normal θ."""
    places, mass = _hermite(7)
    return np.asarray(success(mean[..., None] + np.sqrt(variance.clip(min=0))[..., None] * places) @ mass)


def moments(world: TableWorld, scores: Scores, budget: int) -> Floats:
    """The best allocation by a Gaussian with the mean and covariance of θ over orders of the emulator's factors."""
    orders = _some_orders(world.setting.count)
    emulator, nominal, now = world.emulator, world.setting.nominal, world.now
    back = np.argsort(orders, axis=1)

    def theta(demos: Floats) -> Floats:
        """N × orders × compositions."""
        found = emulator.theta(demos[:, back], nominal)
        return np.take_along_axis(found, np.broadcast_to(orders, found.shape), axis=2).T

    known = theta(scores.demos.astype(float))
    mean = known.mean(1)
    around = (known - mean[:, None]) / np.sqrt(len(orders))
    weights, inverse = laplace(emulator, scores, mean, np.einsum("jor,kos->jrks", around, around))
    by_order = np.einsum("kos,ks->o", around, weights)
    flat = around.transpose(0, 2, 1).reshape(-1, len(orders))
    shrunk = flat.T @ inverse.reshape(len(flat), -1) @ flat

    def worth(allocations: Floats) -> Floats:
        there = theta(now + allocations)
        middle = there.mean(1)
        apart = (there - middle[:, None]) / np.sqrt(len(orders))
        variance = (apart**2).sum(1) - np.einsum("joa,op,jpa->ja", apart, shrunk, apart, optimize=True)
        return np.asarray(_mean_success(middle + np.einsum("joa,o->ja", apart, by_order), variance).mean(0))

    given = optimize_allocation(world.spec().factors, worth, budget).demos
    return np.array(list(given.values()), dtype=float)


@functools.lru_cache(maxsize=4)
def _some_orders(count: int) -> Counts:
    """All orders of few factors; of many a sample in which every factor has every place equally often."""
    if count <= 5:
        return _orders(count)
    rng = np.random.default_rng(0)
    turns = [np.roll(np.arange(count), turn) for turn in range(count)]
    return np.array([rng.permutation(count)[turn] for _ in range(SOME // count) for turn in turns])


@dataclass(frozen=True)
class Belief:
    """The emulator's processes as a prior, conditioned on policies."""

    emulator: Emulator
    points: Floats
    weights: Floats  # N × policies
    inverse: Floats  # N × policies × policies: what the variances fall by

    @classmethod
    def of(cls, emulator: Emulator, scores: Scores) -> Belief:
        """Conditioned by Laplace's approximation."""
        points = features(scores.demos, scores.nominal)
        count, rows = len(emulator.processes), len(points)
        prior = np.zeros((count, rows, count, rows))
        for j, process in enumerate(emulator.processes):
            prior[j, :, j, :] = process.covariance(points, points)
        mean = np.repeat([[process.middle] for process in emulator.processes], rows, axis=1)
        weights, inverse = laplace(emulator, scores, mean, prior)
        return cls(emulator, points, weights, np.stack([inverse[j, :, j, :] for j in range(count)]))

    def success(self, demos: Floats, nominal: float) -> Floats:
        """Posterior mean success on each factor's trials at `demos` (..., N): (..., N)."""
        at = features(demos, nominal)
        flat = at.reshape(-1, at.shape[-1])
        found = []
        for process, weights, inverse in zip(self.emulator.processes, self.weights, self.inverse, strict=True):
            cross = process.covariance(flat, self.points)
            variance = process.variance(flat) - np.einsum("ab,bc,ac->a", cross, inverse, cross, optimize=True)
            found.append(_mean_success(process.middle + cross @ weights, variance))
        return np.stack(found, axis=-1).reshape(demos.shape)


def by_processes(world: TableWorld, scores: Scores, budget: int) -> Floats:
    """The best allocation by the emulator's processes, given these policies alone."""
    belief = Belief.of(world.emulator, scores)
    return best_allocation(lambda demos: belief.success(demos, world.setting.nominal).mean(-1), world.now, budget)


def other_starts(table: PolicyTable, kind: str, number: int) -> Scores:
    """A random half (`number`) of the rows that belong to other starts than `kind`, the name of a `TableFamily`."""
    group = np.array(table.group)
    drawn = np.isin(group, _DRAWN_STARTS)
    own = group == kind if kind in _DRAWN_STARTS else (table.start == int(kind)) & ~drawn
    others = np.flatnonzero(~own)
    chosen = np.random.default_rng([number, len(others)]).choice(others, len(others) // 2, replace=False)
    return Scores.rows(table.rows(np.sort(chosen)))


# The study's world, its family and number, its policies' scores and a budget, to demonstrations per factor.
Decide = Callable[[TableWorld, TableFamily, int, Scores, int], Floats]


def _study_alone(decide: Callable[[TableWorld, Scores, int], Floats]) -> Decide:
    return lambda world, family, number, scores, budget: decide(world, scores, budget)


def _transfer(world: TableWorld, family: TableFamily, number: int, scores: Scores, budget: int) -> Floats:
    others = other_starts(world.emulator.table, family.kind, number)
    return by_processes(world, scores.joined(others), budget)


def _transfer_alone(world: TableWorld, family: TableFamily, number: int, scores: Scores, budget: int) -> Floats:
    return by_processes(world, other_starts(world.emulator.table, family.kind, number), budget)


CEILINGS: Mapping[str, Decide] = {
    "names unknown": _study_alone(names_unknown),
    "moments": _study_alone(moments),
    "hyperparameters": _study_alone(by_processes),
    "transfer": _transfer,
    "transfer alone": _transfer_alone,
}
