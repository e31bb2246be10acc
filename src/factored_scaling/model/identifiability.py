"""Warnings about what the scores cannot determine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from factored_scaling.core.checks import listed
from factored_scaling.model.observations import UNKNOWN_TRIALS, Cells, Observations
from factored_scaling.model.posterior import Posterior

FAR = 4  # times the current demonstrations; the benchmark's worlds go to 3.3


def identifiability_warnings(
    posterior: Posterior, allocation: Mapping[str, int], equal: bool = False
) -> tuple[str, ...]:
    """Warnings to read before acting on an allocation. An `equal` split does not depend on scores."""
    data, names = posterior.observations, posterior.spec.names
    shown = _shown(data)
    found: list[str] = []
    if not data.score.size:
        found.append("no trial was scored: predicted success comes from the prior, and only the proxy compares factors")
    if len(names) > 1:
        found += _one_sided(data, "" if equal else " and the split is arbitrary")
        unseen = [name for place, name in enumerate(names) if not shown[:, place].any()]
        if unseen:
            them = "it" if len(unseen) == 1 else "them"
            found.append(f"no trial varied {listed(unseen)}: predictions for {them} come from the prior")
        found += [
            f"the scores do not distinguish {alike}; {_remedy(alike, equal)}"
            for alike in _same(data, shown, [name for name in names if name not in unseen], names)
        ]
        if len({tuple(row) for row in data.demos.tolist()}) == 1:
            text = "only one training set was measured, which shows what fails but not what helps"
            found.append(f"{text}; also measure policies trained without some factors (`fsc next`)")
    extra, current = sum(allocation.values()), posterior.spec.total
    if extra > FAR * current:
        text = f"the allocation is {extra / current:,.0f} times the current demos, far beyond anything measured"
        found.append(f"{text}; treat the prediction as a rough extrapolation")
    unknown = int((data.trials == 0).sum())
    if unknown:
        whose = "1 score has" if unknown == 1 else f"{unknown} scores have"
        found.append(f"{whose} no number of trials; {UNKNOWN_TRIALS} are assumed, and the intervals depend on that")
    return tuple(found)


def _remedy(alike: str, equal: bool) -> str:
    advice = "record per-factor scores to resolve it"
    if equal:
        return advice
    where = "these groups" if ", nor " in alike else "this group"
    return f"the split within {where} comes from the prior; {advice}"


def _shown(data: Observations) -> NDArray[np.bool_]:
    """Scores × factors: whose trials are in which score, stand-ins included."""
    alone = [_members(cells, data.now.size) for cells in (data.cells, data.proxy_cells)]
    return np.concatenate([*alone, data.joint > 0])


def _members(cells: Cells, count: int) -> NDArray[np.bool_]:
    made = np.zeros((cells.count, count), dtype=bool)
    made[cells.mean, cells.cell % count] = True
    return made


def _one_sided(data: Observations, split: str) -> list[str]:
    """Scores that are all 0 or all 1 cannot rank factors."""
    if not data.score.size or not (data.score == data.score[0]).all():
        return []
    if data.score[0] == 0:
        text = f"no trial succeeded, so the factors cannot be compared{split}"
        return [f"{text}; find out first why the policy fails everywhere"]
    if data.score[0] == 1:
        return [f"every trial succeeded, so there is nothing left to gain{split}"]
    return []


def _same(data: Observations, shown: NDArray[np.bool_], asked: Sequence[str], names: Sequence[str]) -> list[str]:
    """Factors that no score distinguishes: always in the same scores, and always thinned together."""
    groups: list[list[str]] = []
    for name in asked:
        place = names.index(name)
        for group in groups:
            first = names.index(group[0])
            if (shown[:, first] == shown[:, place]).all() and _thinned_alike(data, first, place):
                group.append(name)
                break
        else:
            groups.append([name])
    alike = [group for group in groups if len(group) > 1]
    return [", nor ".join(listed(group) for group in alike)] if alike else []


def _thinned_alike(data: Observations, first: int, second: int) -> bool:
    """The same share of both in every training set, to within a demonstration, which rounding can cost."""
    shares = data.demos / data.now
    least = float(min(data.now[first], data.now[second])) * data.unit
    return bool((np.abs(shares[:, first] - shares[:, second]) * least <= 1 + 1e-9).all())
