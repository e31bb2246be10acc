"""The value of measuring more: how much success each possible measurement is expected to add.

Every posterior sample is taken as the truth in turn. A measurement is simulated there, with its trials and training
noise. The lead of each allocation over the current choice is regressed on the simulated measurements over all samples,
and the allocation that the regression ranks first is the one that would be chosen. The regression is linear and the
posterior somewhat too certain, so this underestimates the gain by a factor that was measured (`CALIBRATION`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from factored_scaling.core.allocation import check_budget
from factored_scaling.core.design import plan
from factored_scaling.core.results import Results, distinct
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput
from factored_scaling.model.observations import UNKNOWN_TRIALS
from factored_scaling.model.posterior import Posterior
from factored_scaling.model.prior import Floats

WORTH = 0.001  # of success that a policy or further trials must add, where nothing is said about costs
# Actual gain over the gain that the regression finds, in worlds with a known answer (benchmarks/next_gains.py).
CALIBRATION = 3.0
AHEAD = (1, 2, 4)  # policies that may be trained before looking again
_COPIES = 4  # measurements simulated for every posterior sample
_RIDGE = 0.01
_MOST_AGAIN = 3  # measured policies that are looked at for more trials or another seed


@dataclass(frozen=True, slots=True)
class Step:
    """One possible measurement. `demos` are the training sets, `seed` the training seed."""

    kind: str  # "train", "evaluate" or "seed"
    demos: tuple[dict[str, int], ...]
    seed: int
    # trials of each policy, over all factors
    trials: int
    # in units of the budget
    cost: float
    # expected added success after collecting, with the step's cost subtracted from the budget
    gain: float
    # threshold: the gain at which the step is worth doing
    needed: float
    # whether the estimate exceeded perfect information and was limited to that: then `gain` ranks no steps
    limited: bool = False

    def to_mapping(self) -> dict[str, Any]:
        return {**asdict(self), "demos": [dict(demos) for demos in self.demos]}


@dataclass(frozen=True)
class Advice:
    """The recommendation without further measurements, and the value of every possible measurement."""

    budget: int
    allocation: dict[str, int]
    expected: float
    # value of perfect information: how much more the best allocation would give
    regret: float
    steps: tuple[Step, ...]

    @property
    def best(self) -> Step | None:
        """The step with the largest gain above its threshold; None where no step reaches it."""
        chosen = max(self.steps, key=lambda step: step.gain - step.needed, default=None)
        return chosen if chosen is not None and chosen.gain > chosen.needed else None

    def to_mapping(self) -> dict[str, Any]:
        """As `fsc next --json` prints it."""
        best = self.best
        return {
            "budget": self.budget,
            "act_now": {"allocation": dict(self.allocation), "expected": self.expected, "regret": self.regret},
            "steps": [step.to_mapping() for step in self.steps],
            "next": None if best is None else best.to_mapping(),
        }


def advise(
    posterior: Posterior,
    results: Results,
    budget: int,
    *,
    trials: int | None = None,
    policy_cost: float = 0.0,
    trial_cost: float = 0.0,
    worth: float | None = None,
    seed: int = 0,
) -> Advice:
    """Compare acting now with every possible measurement, and with training the next few policies together.

    `trials` is the number of trials of a new policy over all factors; by default the median of the measured policies.
    Training a policy costs `policy_cost` and each trial `trial_cost`, in units of the budget, which are then missing
    for demonstrations. `worth` is the success that each policy must add: by default 0.001, or 0 with costs.
    """
    budget = check_budget(budget)
    if worth is None:
        worth = 0.0 if policy_cost or trial_cost else WORTH
    for name, value in (("policy_cost", policy_cost), ("trial_cost", trial_cost), ("worth", worth)):
        if not (np.isfinite(value) and value >= 0):
            raise InvalidInput(f"must be at least 0, not {value:g}", where=name)
    spec = posterior.spec
    choice = posterior.choose(budget)
    allocation = choice.spending.demos
    # What a step adds is counted from the best allocation: taking that needs no measurement.
    candidates = posterior.candidates(budget, [choice.best.demos, allocation])
    scores = posterior.score(posterior.now + candidates)
    measured = _measured(spec, results)
    usual = trials if trials is not None else int(np.median([policy.trials for policy in measured.values()]))
    rng = np.random.default_rng(seed)
    simulator = _Simulator(posterior, rng)
    steps = []
    for kind, runs, own in _options(spec, measured, usual):
        paid = trial_cost * own * len(runs) + (0.0 if kind == "evaluate" else policy_cost * len(runs))
        if paid >= budget:
            continue
        shown = [
            simulator.repeat(measured[key], own) if kind == "evaluate" else simulator.train(key, own) for key in runs
        ]
        left = scores if paid == 0 else posterior.score(posterior.now + np.floor(candidates * (budget - paid) / budget))
        gain, limited = _gain(np.concatenate(shown), left, scores, rng)
        sets = tuple(dict(zip(spec.names, key, strict=True)) for key in runs)
        first = measured[runs[0]].seed if kind == "evaluate" else _free_seed(spec, measured, runs[0])
        steps.append(Step(kind, sets, first, own, paid, gain, worth * len(runs), limited))
    regret = float((scores.max(0) - scores[1]).mean(dtype=float))
    return Advice(budget, allocation, float(scores[1].mean(dtype=float)), regret, tuple(steps))


@dataclass
class _Measured:
    """One policy's scores by factor on the scale of θ, with their variance; nan where not measured."""

    demos: tuple[int, ...]
    seed: int
    theta: Floats
    variance: Floats
    trials: int


Demos = tuple[int, ...]


def _measured(spec: StudySpec, results: Results) -> dict[Demos, _Measured]:
    """Policies with their scores; of several seeds the highest, which stands for its training set."""
    found: dict[tuple[Demos, int], dict[str, tuple[float, int]]] = {}
    for _, row, demos in distinct(spec, results):
        scores = found.setdefault((demos, row.seed or 0), {})
        name = row.factor[0] if len(row.factor) == 1 and row.factor[0] in spec.names else ""
        before, count = scores.get(name, (0.0, 0))
        both = count + (row.trials or 0)
        scores[name] = ((before * count + row.score * (both - count)) / both if both else row.score, both)
    made = {}
    for (demos, seed), scores in sorted(found.items(), key=lambda item: item[0][1]):
        known = [scores.get(name, (np.nan, 0)) for name in spec.names]
        mean, trials = np.array([k[0] for k in known]), np.array([float(k[1] or UNKNOWN_TRIALS) for k in known])
        theta = np.arcsin(np.sqrt((mean * trials + 0.375) / (trials + 0.75)))
        total = sum(count for _, count in (scores.values() if "" not in scores else [scores[""]]))
        made[demos] = _Measured(demos, seed, theta, 1 / (4 * trials + 2), total or UNKNOWN_TRIALS * len(spec.names))
    return made


def _free_seed(spec: StudySpec, measured: Mapping[Demos, _Measured], demos: Demos) -> int:
    return measured[demos].seed + 1 if demos in measured else spec.first_seed


def _options(
    spec: StudySpec, measured: Mapping[Demos, _Measured], trials: int
) -> Iterator[tuple[str, tuple[Demos, ...], int]]:
    """The next policies of the study's own plan and of the screening order; seeds and trials of measured ones."""
    screening = spec.changed(construction="screen", policies=len(measured) + len(spec.factors) + max(AHEAD))
    seen: set[tuple[Demos, ...]] = set()
    for planned in (spec, screening):
        left = [tuple(run.demos.values()) for run in plan(planned)]
        left = [demos for demos in dict.fromkeys(left) if demos not in measured]
        for many in AHEAD:
            chosen = tuple(left[:many])
            if len(chosen) == many and chosen not in seen:
                seen.add(chosen)
                yield "train", chosen, trials
    full = tuple(spec.sizes.values())
    again = sorted(measured.values(), key=lambda policy: (policy.demos != full, policy.trials))[:_MOST_AGAIN]
    for policy in again:
        yield "seed", (policy.demos,), trials
    for policy in again:
        if not np.isnan(policy.theta).any():
            yield "evaluate", (policy.demos,), policy.trials


class _Simulator:
    """Simulates measurements in every posterior sample: N × (samples·copies) values of θ."""

    def __init__(self, posterior: Posterior, rng: np.random.Generator) -> None:
        self._posterior = posterior
        self._rng = rng
        self._common = np.tile(posterior.noise_common.astype(float), _COPIES)
        self._own = np.tile(posterior.noise_own.astype(float), _COPIES)

    def train(self, demos: Demos, trials: int) -> Floats:
        """Scores of a new policy."""
        theta = self._theta(demos)
        noise = self._common * self._normal(1) + self._own * self._normal(len(theta))
        return theta + noise + self._normal(len(theta)) * self._spread(trials, len(theta))

    def repeat(self, policy: _Measured, trials: int) -> Floats:
        """More trials of a policy that exists, given its scores so far."""
        theta = self._theta(policy.demos)
        count = len(theta)
        prior = self._common[:, None, None] ** 2 + self._own[:, None, None] ** 2 * np.eye(count)
        gain = prior @ np.linalg.inv(prior + np.diag(policy.variance))
        residual = (policy.theta[:, None] - theta).T
        mean = np.einsum("dij,dj->di", gain, residual)
        spread = np.linalg.cholesky(prior - gain @ prior + 1e-9 * np.eye(count))
        noise = mean + np.einsum("dij,dj->di", spread, self._normal(count).T)
        return np.asarray(theta + noise.T + self._normal(count) * self._spread(trials, count))

    def _theta(self, demos: Demos) -> Floats:
        success = self._posterior.by_factor(np.array(demos, dtype=float))[0].astype(float)
        return np.tile(np.arcsin(np.sqrt(np.clip(success, 1e-6, 1 - 1e-6))), (1, _COPIES))

    def _normal(self, rows: int) -> Floats:
        return self._rng.standard_normal((rows, self._common.size))

    @staticmethod
    def _spread(trials: int, count: int) -> float:
        return float(np.sqrt(1 / (4 * trials / count + 2)))


def _gain(shown: Floats, left: Floats, scores: Floats, rng: np.random.Generator) -> tuple[float, bool]:
    """What knowing `shown` (features × samples·copies) adds to the expected success of the chosen allocation.

    `left` are the scores (allocations × samples) that the rest of the budget can buy, `scores` those of acting now,
    best first. What the same regression finds in shuffled measurements is chance and is subtracted. Second, whether
    perfect information limits it.
    """
    count = left.shape[1]
    means = left.mean(1, dtype=float)
    start = int(means.argmax())
    ahead = np.tile((left - left[start]).astype(float), (1, _COPIES))
    shuffled = np.concatenate([shown[:, copy * count + rng.permutation(count)] for copy in range(_COPIES)], axis=1)
    gain, chance = (_best_guess(features, ahead) for features in (shown, shuffled))
    most = float((left.max(0) - left[start]).mean(dtype=float))  # with perfect information
    lost = float(scores[0].mean(dtype=float)) - float(means[start])
    estimate = max(0.0, CALIBRATION * (gain - chance))
    return min(most, estimate) - lost, estimate > most


def _best_guess(features: Floats, ahead: Floats) -> float:
    """The mean lead of the best allocation, where each lead is predicted by ridge regression."""
    scaled = (features - features.mean(1, keepdims=True)) / (features.std(1, keepdims=True) + 1e-9)
    rows = np.vstack([np.ones(features.shape[1]), scaled])
    penalty = _RIDGE * rows.shape[1] * np.eye(len(rows))
    penalty[0, 0] = 0.0
    weights = np.linalg.solve(rows @ rows.T + penalty, rows @ ahead.T)
    return float((weights.T @ rows).max(axis=0).mean())
