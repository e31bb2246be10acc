"""Worlds with a known best allocation: a response, training noise, and the scoring of trials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from factored_scaling.bench.oracle import best_allocation
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import FscError, InvalidInput

Floats = NDArray[np.float64]
# demos per factor, shape (..., N), to the true success on each factor's trials, shape (..., N)
Response = Callable[[Floats], Floats]
Role = Literal["tuning", "held_out"]

DEMOS = 30  # of every factor, as in the paper's simulations
INITIAL = (0.15, 0.85)  # success of the full-data policy
NOISE = (0.02, 0.06)  # standard deviation of a factor's success over training runs
COMMON = (0.6, 0.9)  # share of that variance that all trials of a policy have in common
WORTH = 0.03  # worlds in which the best use of 100 demos gains less are redrawn
WORTH_BUDGET = 100
_TRIES = 2000


@dataclass(frozen=True, slots=True)
class Setting:
    """Input of a family's `draw`."""

    count: int  # factors
    demos: int = DEMOS  # of each factor, now
    nominal: int = 0
    # where factors differ: current demonstrations of each
    unequal: tuple[int, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Current demonstrations of each factor."""
        return self.unequal or (self.demos,) * self.count

    @property
    def total(self) -> int:
        """All current demonstrations."""
        return sum(self.sizes) + self.nominal


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of world. `draw` returns one response. Rules may be tuned only on families of the role `tuning`."""

    name: str
    draw: Callable[[Setting, np.random.Generator], Response]
    role: Role = "held_out"

    def world(self, count: int, index: int, seed: int = 0) -> World:
        """World number `index` with `count` factors."""
        return draw_world(self, count, index, seed)

    def has(self, count: int) -> bool:
        """Whether it has worlds with `count` factors."""
        return True


@dataclass(frozen=True)
class World:
    """One world: the success of training on any numbers of demonstrations."""

    family: str
    setting: Setting
    response: Response
    # standard deviations over training runs: common to all trials of a policy, and of each factor
    common_noise: float
    own_noise: float
    # trials on the real robot give partial credit (0, ¼, ½, 1) instead of 0 or 1
    graded: bool
    # the random key of its measurements
    seed: int

    @property
    def factors(self) -> tuple[str, ...]:
        """The factors' names."""
        return factor_names(self.setting.count)

    @property
    def now(self) -> Floats:
        """Current demonstrations per factor."""
        return np.array(self.setting.sizes, dtype=float)

    def factor_success(self, demos: Floats) -> Floats:
        """Expected success on each factor's trials after training on `demos[..., i]` of factor i."""
        success: Floats = np.clip(self.response(np.asarray(demos, dtype=float)), 0.0, 1.0)
        return success

    def score(self, demos: Floats) -> Floats:
        """Expected success over the target distribution: the mean over factors' trials."""
        mean: Floats = self.factor_success(demos).mean(axis=-1)
        return mean

    def trained(self, demos: Floats, rng: np.random.Generator) -> Floats:
        """True success on each factor's trials of one policy that is trained on `demos`."""
        success = self.factor_success(demos)
        noise = self.common_noise * rng.standard_normal() + self.own_noise * rng.standard_normal(success.size)
        return np.asarray(np.clip(success + noise, 0.0, 1.0))

    def best(self, budget: int) -> Floats:
        """The best allocation of `budget`."""
        return best_allocation(self.score, self.now, budget)

    def spec(self, construction: str = "group") -> StudySpec:
        """The study that a user in this world would declare."""
        sizes = dict(zip(self.factors, self.setting.sizes, strict=True))
        return StudySpec(sizes, nominal=self.setting.nominal, construction=construction, name=self.family)


def factor_names(count: int) -> tuple[str, ...]:
    """factor_1, factor_2, …"""
    return tuple(f"factor_{index + 1}" for index in range(count))


def draw_world(family: Family, count: int, index: int, seed: int = 0) -> World:
    """World number `index` of a family, determined by the arguments.

    Responses are drawn until the full-data policy succeeds in 15–85% of its trials and the best allocation of 100
    demonstrations gains three points or more.
    """
    name = [ord(letter) for letter in family.name]
    rng = np.random.default_rng([seed, count, index, *name])
    for _ in range(_TRIES):
        setting = Setting(count, DEMOS, int(rng.choice([0, 0, DEMOS])))
        response = family.draw(setting, rng)
        if np.shape(response(np.full((2, count), float(DEMOS)))) != (2, count):
            what = "a response must map demos per factor to success per factor, both of shape (..., N)"
            raise InvalidInput(what, where=f"family {family.name}")
        noise, common = rng.uniform(*NOISE), rng.uniform(*COMMON)
        world = World(
            family.name,
            setting,
            response,
            float(noise * np.sqrt(common)),
            float(noise * np.sqrt(1 - common)),
            bool(rng.integers(2)),
            int(rng.integers(2**31)),
        )
        before = float(world.score(world.now))
        if not INITIAL[0] <= before <= INITIAL[1]:
            continue
        if float(world.score(best_allocation(world.score, world.now, WORTH_BUDGET) + world.now)) - before >= WORTH:
            return world
    raise FscError(
        f"family {family.name!r} gave no world worth deciding in {_TRIES} draws",
        hint=f"the score at {DEMOS} demos of each factor must lie in {INITIAL} and 100 more must gain {WORTH}",
    )
