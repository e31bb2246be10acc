"""The log-probability of measured scores under the response model.

Training noise comes on top of the sampling variance: one part is common to all trials of a
policy, the other independent for each score. Where trials are few, it is small beside their variance and left out.

Policies with the same training set, scored over as many trials of the same factors, differ only in their scores. Their
means and scatter are sufficient statistics, so that such policies cost no more than one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from factored_scaling.model.observations import Cells, Observations
from factored_scaling.model.prior import Floats, PriorMixture
from factored_scaling.model.response import (
    NOISE_COMMON,
    NOISE_OWN,
    PROXY_GAIN,
    PROXY_NOISE,
    PROXY_SHIFT,
    Forward,
    Parameters,
    forward,
    gradient,
    saturate,
    tilt_ratios,
)

_EDGE = 1e-6  # a success nearer to 0 or 1 has no finite derivative of θ
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Pooled:
    """Pooled scores of groups of policies that differ only in their scores. A group may be a single policy.

    Every group has one score for each score of its policies, in the order of the observations.
    """

    demos: Floats  # distinct training sets × N, in units
    cells: Cells  # over the successes of the distinct training sets
    joint: Floats
    joint_set: Places  # training set of each joint score
    group: Places  # group of each score
    count: Floats  # policies in the score's group
    theta: Floats  # mean over these policies
    variance: Floats
    own_share: Floats
    many: Floats
    # successes and failures of all policies in the group, where trials are few
    good: Floats
    bad: Floats
    # the scatter of θ over the policies of each group of several: its scores, and their products around the mean
    scatter: tuple[tuple[Places, Floats], ...]
    # proxy scores of the same successes: how many, their mean, and their sum of squares around it
    proxy_cells: Cells
    proxy_count: Floats
    proxy: Floats
    proxy_squares: Floats

    @classmethod
    def of(cls, data: Observations) -> Pooled:
        demos, sets = _distinct(data.demos)
        factors, singles = data.now.size, data.cells.count
        move = (sets[:, None] * factors + np.arange(factors)).ravel()  # from a policy's successes to its training set's
        groups = _grouped(data, sets)
        keep = np.zeros(data.score.size, dtype=bool)
        entry = np.zeros(data.score.size, dtype=np.int64)  # the group's score that each score went into
        for scores in groups:
            keep[scores[0]] = True
        place = np.cumsum(keep) - 1
        for scores in groups:
            entry[scores] = place[scores[0]]
        total = int(keep.sum())
        count = _sum_by(np.ones(entry.size), entry, total)
        theta = _sum_by(data.theta, entry, total) / count
        around = data.theta - theta[entry]
        proxy_keep, proxy_entry = _same_cells(data.proxy_cells, move)
        proxies = int(proxy_keep.sum())
        proxy_count = _sum_by(np.ones(proxy_entry.size), proxy_entry, proxies)
        proxy = _sum_by(data.proxy, proxy_entry, proxies) / proxy_count
        return cls(
            demos=demos,
            cells=data.cells.moved(keep[:singles], move, len(demos) * factors),
            joint=data.joint[keep[singles:]],
            joint_set=sets[data.joint_run[keep[singles:]]],
            group=np.unique(data.policy[keep], return_inverse=True)[1].astype(np.int64),
            count=count,
            theta=theta,
            variance=data.variance[keep],
            own_share=data.own_share[keep],
            many=data.many[keep],
            good=_sum_by(data.few * data.score, entry, total),
            bad=_sum_by(data.few * (1 - data.score), entry, total),
            scatter=_scatter([scores for scores in groups if len(scores) > 1], entry, around),
            proxy_cells=data.proxy_cells.moved(proxy_keep, move, len(demos) * factors),
            proxy_count=proxy_count,
            proxy=proxy,
            proxy_squares=_sum_by((data.proxy - proxy[proxy_entry]) ** 2, proxy_entry, proxies),
        )


def _sum_by(values: Floats, place: Places, total: int) -> Floats:
    """Sums of the values by place."""
    return np.asarray(np.bincount(place, values, minlength=total), dtype=float)


def _distinct(rows: Floats) -> tuple[Floats, Places]:
    """The distinct rows in order of first appearance, and the number of each row among them."""
    known: dict[bytes, int] = {}
    place = np.array([known.setdefault(row.tobytes(), len(known)) for row in rows], dtype=np.int64)
    first = np.unique(place, return_index=True)[1]
    return rows[first], place


def _grouped(data: Observations, sets: Places) -> list[Places]:
    """Indices of the scores of each group of policies: policies × scores, comparable within each column."""
    # binomial counts can be added whatever the number of trials, so it need not match
    trials = np.where(data.many > 0, data.variance, 0.0)
    order = np.lexsort((trials, data.varied, data.policy))
    what = np.unique(np.stack([data.varied[order], trials[order]], axis=1), axis=0, return_inverse=True)[1].ravel()
    starts = np.flatnonzero(np.diff(data.policy[order], prepend=-1))
    ends = np.append(starts, order.size)[1:]
    alike: dict[tuple[int, bytes], list[Places]] = {}
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        key = (int(sets[data.policy[order[start]]]), what[start:end].tobytes())
        alike.setdefault(key, []).append(order[start:end])
    return [np.array(scores) for scores in alike.values()]


def _scatter(groups: list[Places], entry: Places, around: Floats) -> tuple[tuple[Places, Floats], ...]:
    """Stack groups with the same number of scores K: scores (groups × K) and products (groups × K × K)."""
    by_width: dict[int, list[tuple[Places, Floats]]] = {}
    for scores in groups:
        found = entry[scores[0]], around[scores].T @ around[scores]
        by_width.setdefault(scores.shape[1], []).append(found)
    return tuple(
        (np.array([entries for entries, _ in found]), np.array([products for _, products in found]))
        for found in by_width.values()
    )


def _same_cells(cells: Cells, move: Places) -> tuple[NDArray[np.bool_], Places]:
    """Which means are the first over the same successes, and for each mean the number of that first one."""
    known: dict[bytes, int] = {}
    moved = np.split(move[cells.cell], cells.start[1:]) if cells.count else []
    entry = np.array([known.setdefault(part.tobytes(), len(known)) for part in moved], dtype=np.int64)
    keep = np.zeros(cells.count, dtype=bool)
    keep[np.unique(entry, return_index=True)[1]] = True
    return keep, entry


@dataclass(frozen=True)
class _PrecisionClasses:
    """Classes of scores with the same precision in every sample. There are few of them."""

    kind: Places  # class of each score
    variance: Floats  # classes × 1, as are the next two
    own_share: Floats
    many: Floats
    scores: Floats  # groups × classes: number of scores
    shares: Floats  # groups × classes: sum of policies times `own_share`
    policies: Floats  # classes: policies of all scores where trials are many

    @classmethod
    def of(cls, data: Pooled) -> _PrecisionClasses:
        columns = np.stack([data.variance, data.own_share, data.many], axis=1)
        distinct, kind = _distinct(columns)
        shape = int(data.group.max(initial=-1)) + 1, len(distinct)
        scores, shares = np.zeros(shape), np.zeros(shape)
        np.add.at(scores, (data.group, kind), 1.0)
        np.add.at(shares, (data.group, kind), data.count * data.own_share)
        policies = _sum_by(data.count * data.many, kind, len(distinct))
        variance, own_share, many = distinct.T[:, :, None]
        return cls(kind, variance, own_share, many, scores, shares, policies)


@dataclass(frozen=True)
class LogLikelihood:
    """The log-likelihood and its gradient by the standard normal variables, for many samples at once."""

    observations: Observations

    @cached_property
    def pooled(self) -> Pooled:
        return Pooled.of(self.observations)

    def __call__(self, raw: Floats, mixture: PriorMixture) -> tuple[Floats, Floats]:
        return self.given(mixture)(raw)

    def given(self, mixture: PriorMixture) -> Callable[[Floats], tuple[Floats, Floats]]:
        """The log-likelihood and its gradient as a function of the variables alone."""
        data, observations = self.pooled, self.observations
        rows = np.concatenate([observations.now[None], data.demos])
        tilt_ratio = tilt_ratios(mixture, data.demos, observations.now)

        def evaluate(raw: Floats) -> tuple[Floats, Floats]:
            parameters = Parameters.of(raw, mixture)
            state = forward(parameters, mixture, data.demos, observations.now, observations.nominal, tilt_ratio)
            flat = state.success.reshape(-1, raw.shape[1])
            success = data.cells.means(flat)
            joint = _joint(state, data, mixture) if len(data.joint) else None
            if joint is not None:
                success = np.concatenate([success, joint.success])
            links = np.zeros_like(parameters.links)
            value, by_success = self._scores(success, parameters.links, links)
            by_flat = data.cells.back(by_success[: data.cells.count], len(flat))
            if len(data.proxy):
                added, through = self._proxy(data.proxy_cells.means(flat), parameters.links, links)
                value, by_flat = value + added, by_flat + data.proxy_cells.back(through, len(flat))
            by_cells = by_flat.reshape(state.success.shape)
            by_robust, by_skilled, by_hazard = by_cells * state.skilled, by_cells * state.robust, None
            if joint is not None:
                more, by_hazard = joint.back(by_success[data.cells.count :], state, data)
                by_robust = by_robust + more
            slope = gradient(state, parameters, mixture, rows, tilt_ratio, by_robust, by_skilled, by_hazard, links)
            return value, slope

        return evaluate

    def _scores(self, success: Floats, links: Floats, by_links: Floats) -> tuple[Floats, Floats]:
        """Normal on the scale of θ with a policy's common noise integrated out; binomial where trials are few."""
        data, classes = self.pooled, self._precision_classes
        common, own = np.exp(2 * links[NOISE_COMMON]), np.exp(2 * links[NOISE_OWN])
        inside = np.clip(success, _EDGE, 1 - _EDGE)
        outside = 1 - inside
        count, group = data.count[:, None], data.group
        spread = classes.variance + classes.own_share * own
        precisions = classes.many / spread
        precision = precisions[classes.kind] if len(precisions) > 1 else precisions
        root = np.sqrt(inside)
        miss = np.arcsin(root)
        miss -= data.theta[:, None]
        scaled = miss * precision
        pull, weight = self._by_group(scaled), classes.scores @ precisions
        grown = 1 + common * weight
        shrink = common / grown
        policies = self._policies
        pulls, squares = policies * pull**2, data.count @ np.multiply(scaled, miss, out=miss)
        by_common = policies * ((pull / grown) ** 2 - weight / grown)
        residual = (shrink * pull)[group]
        residual *= precision
        np.subtract(scaled, residual, out=residual)  # without the common part
        residual_squares = (data.own_share * data.count) @ residual**2
        if data.scatter:  # what the policies of a group differ by
            mixed, own_part = self._scattered(precision, scaled.shape)
            more = self._by_group(precision * mixed)
            pulls, squares = pulls + more, squares + (precision * own_part).sum(0)
            by_common = by_common + more / grown**2
            part = shrink[group]
            squared = precision**2 * (own_part - 2 * part * mixed + part**2 * more[group])
            residual_squares = residual_squares + data.own_share @ squared
        value = 0.5 * ((shrink * pulls).sum(0) - squares - (policies * np.log(grown)).sum(0))
        value -= 0.5 * (classes.policies @ np.log(spread))
        by_success = residual
        by_success *= -0.5 * count
        by_success /= np.multiply(root, np.sqrt(outside), out=root)
        if (data.good + data.bad).any():
            good, bad = data.good[:, None], data.bad[:, None]
            value = value + (good * np.log(inside) + bad * np.log(outside)).sum(0)
            by_success = by_success + good / inside - bad / outside
        by_spread = residual_squares + (shrink * (classes.shares @ precisions**2)).sum(0)
        by_spread -= classes.shares.sum(0) @ precisions
        by_links[NOISE_OWN] = by_spread * own
        by_links[NOISE_COMMON] = by_common.sum(0) * common
        return value, by_success

    @cached_property
    def _precision_classes(self) -> _PrecisionClasses:
        return _PrecisionClasses.of(self.pooled)

    def _scattered(self, precision: Floats, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
        """For each score, its precision-weighted products with all scores of its group, and with itself."""
        mixed, own = np.zeros(shape), np.zeros((shape[0], 1))
        precision = np.broadcast_to(precision, shape)
        for entries, products in self.pooled.scatter:
            mixed[entries] = products @ precision[entries]
            own[entries, 0] = np.diagonal(products, axis1=1, axis2=2)
        return mixed, own

    def _by_group(self, values: Floats) -> Floats:
        """Sums over the scores of each group."""
        order, start = self._order
        return np.asarray(np.add.reduceat(values if order is None else values[order], start, axis=0))

    @cached_property
    def _order(self) -> tuple[Places | None, Places]:
        """The order that sorts scores by group (None: already sorted), and where each group begins."""
        group = self.pooled.group
        order = np.argsort(group, kind="stable")
        start = np.flatnonzero(np.diff(group[order], prepend=-1))
        return None if bool((order == np.arange(group.size)).all()) else order, start

    @cached_property
    def _policies(self) -> Floats:
        """The number of policies in each group."""
        order, start = self._order
        count = self.pooled.count[:, None]
        return (count if order is None else count[order])[start]

    def _proxy(self, success: Floats, links: Floats, by_links: Floats) -> tuple[Floats, Floats]:
        """Normal around a linear function of the successes, whose coefficients and variance are parameters."""
        data = self.pooled
        count = data.proxy_count[:, None]
        shift, gain, spread = links[PROXY_SHIFT], links[PROXY_GAIN], np.exp(links[PROXY_NOISE])
        miss = data.proxy[:, None] - shift - gain * success
        scaled = count * (miss / spread**2)
        squares = (scaled * miss).sum(0) + data.proxy_squares.sum() / spread**2
        value = -0.5 * squares - data.proxy_count.sum() * np.log(spread)
        by_links[PROXY_SHIFT], by_links[PROXY_GAIN] = scaled.sum(0), (scaled * success).sum(0)
        by_links[PROXY_NOISE] = squares - data.proxy_count.sum()
        return value, gain * scaled


@dataclass(frozen=True)
class _Joint:
    """Trials in which several factors vary: success is the shared skill times robustness to each factor."""

    success: Floats  # J × samples
    skilled: Floats
    slope: Floats

    def back(self, by_success: Floats, state: Forward, data: Pooled) -> tuple[Floats, Floats]:
        by_robust, by_hazard = np.zeros_like(state.robust), np.zeros_like(state.hazard)
        through = by_success * self.success
        np.add.at(
            by_robust, data.joint_set, through[:, None, :] * data.joint[:, :, None] / state.robust[data.joint_set]
        )
        np.subtract.at(by_hazard, data.joint_set, through * self.slope / self.skilled)
        return by_robust, by_hazard


def _joint(state: Forward, data: Pooled, mixture: PriorMixture) -> _Joint:
    shared, slope = saturate(state.hazard, mixture.sharpness)
    skilled = 1 - shared[data.joint_set]
    robust = np.exp((np.log(state.robust[data.joint_set]) * data.joint[:, :, None]).sum(1))
    return _Joint(skilled * robust, skilled, slope[data.joint_set])
