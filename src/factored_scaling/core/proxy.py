"""FSC-Proxy: similarity of held-out observations to the training set in a policy's embedding, without rollouts.

For every held-out initial observation: the mean of its k largest cosine similarities to the training set's initial
observations. The values of all policies that are compared are then brought to [0, 1] together: one policy at a time,
every policy would score alike and every curve would be flat.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from factored_scaling.core.trials import Interval
from factored_scaling.errors import InvalidInput, NotEnoughData

Array = NDArray[np.float64]
KS = (1, 5, 10)
EXACT_PERMUTATIONS = 7  # up to this many policies, every permutation is tried


@dataclass(frozen=True, slots=True)
class ProxyScore:
    """A policy's stand-in score in [0, 1], overall and by the factor that the held-out observations vary."""

    overall: float
    by_factor: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RankAgreement:
    """How far the proxy orders policies as the real scores do: 1 the same order, 0 none, −1 the reverse.

    `interval` is a 95% bootstrap interval of Spearman's coefficient over policies; `p_value` is the share of random
    orders that agree at least as well (one-sided).
    """

    spearman: float
    interval: Interval
    p_value: float
    policies: int


def cosine_similarities(held_out: ArrayLike, training: ArrayLike) -> Array:
    """Held-out × training: cosine of the angle between embeddings. An embedding of length zero is like nothing: 0."""
    rows, columns = _embedding(held_out, "held-out"), _embedding(training, "training")
    if rows.shape[1] != columns.shape[1]:
        raise InvalidInput(f"embeddings of sizes {rows.shape[1]} and {columns.shape[1]} cannot be compared")
    return _unit(rows) @ _unit(columns).T


def nearest_means(held_out: ArrayLike, trained: ArrayLike) -> dict[str, list[float]]:
    """What is stored of a policy's embeddings: for every k of `KS`, each held-out observation's mean similarity."""
    similarities = cosine_similarities(held_out, trained)
    return {str(k): nearest_mean(similarities, k).round(6).tolist() for k in KS}


def nearest_mean(similarities: Array, k: int = 1) -> Array:
    """Each row's mean over its `k` largest entries; over all of them where there are fewer than `k`."""
    if k < 1:
        raise InvalidInput(f"k must be at least 1, not {k}")
    if similarities.shape[1] == 0:
        raise NotEnoughData("a policy without training observations has nothing to be near to")
    count = min(k, similarities.shape[1])
    largest = np.partition(similarities, -count, axis=1)[:, -count:]
    return np.asarray(largest.mean(axis=1))


def proxy_scores(values: Mapping[str, ArrayLike], factors: Sequence[str | None] = ()) -> dict[str, ProxyScore]:
    """Scores of all policies of a study from their raw values (`nearest_mean`), normalised once over everything.

    `factors` names, for each held-out observation, the factor it varies; None where it varies none, and nothing at
    all when no per-factor scores are wanted. When all values are equal, every score is ½.
    """
    if not values:
        raise NotEnoughData("no policies to compare")
    raw = {name: np.asarray(row, dtype=float) for name, row in values.items()}
    for name, row in raw.items():
        if row.ndim != 1 or row.size == 0 or not np.isfinite(row).all():
            raise InvalidInput("needs one finite value per held-out observation", where=f"policy {name!r}")
        if factors and len(factors) != len(row):
            raise InvalidInput(f"{len(row)} values for {len(factors)} held-out observations", where=f"policy {name!r}")
    low = min(float(row.min()) for row in raw.values())
    high = max(float(row.max()) for row in raw.values())
    return {
        name: _score((row - low) / (high - low) if high > low else row * 0 + 0.5, factors) for name, row in raw.items()
    }


def rank_agreement(proxy: Mapping[str, float], real: Mapping[str, float], seed: int = 0) -> RankAgreement:
    """The trust check: over the policies that have both, does the proxy order them as their real scores do?"""
    names = [name for name in proxy if name in real]
    if len(names) < 3:
        raise NotEnoughData(f"rank agreement needs 3 policies with both scores, not {len(names)}")
    one, two = np.array([proxy[name] for name in names]), np.array([real[name] for name in names])
    if np.ptp(one) == 0 or np.ptp(two) == 0:
        raise NotEnoughData("all scores are equal, so there is no order to agree on")
    rng = np.random.default_rng(seed)
    spearman = float(_spearman(one[None], two[None])[0])
    return RankAgreement(
        spearman=spearman,
        interval=_bootstrap(one, two, rng),
        p_value=_permutation(one, two, spearman, rng),
        policies=len(names),
    )


def _score(row: Array, factors: Sequence[str | None]) -> ProxyScore:
    labels = np.array([factor or "" for factor in factors])
    by_factor = {name: float(row[labels == name].mean()) for name in dict.fromkeys(factors) if name}
    return ProxyScore(float(row.mean()), by_factor)


def _embedding(rows: ArrayLike, what: str) -> Array:
    array = np.asarray(rows, dtype=float)
    if array.ndim != 2 or not np.isfinite(array).all():
        raise InvalidInput(f"{what} embeddings must be finite rows, one per observation")
    return array


def _unit(rows: Array) -> Array:
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(np.divide(rows, length, out=np.zeros_like(rows), where=length > 0))


def _spearman(one: Array, two: Array) -> Array:
    """Pearson's coefficient of the ranks, row by row; 0 where a resample has no order left."""
    from scipy.stats import rankdata  # half a second, which no worker should wait for

    first, second = rankdata(one, axis=1), rankdata(two, axis=1)
    first, second = first - first.mean(axis=1, keepdims=True), second - second.mean(axis=1, keepdims=True)
    size = np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
    return np.asarray(np.divide((first * second).sum(axis=1), size, out=np.zeros_like(size), where=size > 0))


def _bootstrap(one: Array, two: Array, rng: np.random.Generator, replicates: int = 2000) -> Interval:
    picks = rng.integers(len(one), size=(replicates, len(one)))
    low, high = np.quantile(_spearman(one[picks], two[picks]), [0.025, 0.975])
    return Interval(float(low), float(high))


def _permutation(one: Array, two: Array, seen: float, rng: np.random.Generator, draws: int = 5000) -> float:
    exact = len(one) <= EXACT_PERMUTATIONS
    if exact:
        orders = np.array(list(itertools.permutations(range(len(one)))))
    else:
        orders = rng.permuted(np.tile(np.arange(len(one)), (draws, 1)), axis=1)
    hits = int((_spearman(np.tile(one, (len(orders), 1)), two[orders]) >= seen - 1e-12).sum())
    # Among random permutations the observed one counts too, so that p is never 0.
    return hits / len(orders) if exact else (hits + 1) / (len(orders) + 1)
