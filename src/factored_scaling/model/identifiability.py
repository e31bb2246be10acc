"""What the scores behind an answer cannot tell, in sentences: the answer itself looks the same with and without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from factored_scaling.model.likelihood import UNKNOWN_TRIALS, Cells, Observations
from factored_scaling.model.posterior import Surface

_BELIEF = "how demos are split there is belief, and scores per factor would tell"
FAR = 4  # times the demonstrations at hand: the benchmark's worlds go to 3.3


def doubts(surface: Surface, order: Mapping[str, int], equal: bool = False) -> tuple[str, ...]:
    """Sentences to read before acting on an order; none where the scores can carry it. An `equal` one rests on none."""
    seen, names = surface.observations, surface.spec.names
    shown = _shown(seen)
    found: list[str] = []
    if not seen.score.size:
        found.append("no trial was scored: success is belief here, and the proxy alone tells factors apart")
    if len(names) > 1:
        found += _one_sided(seen, "" if equal else " and the split is chance")
        unseen = [name for place, name in enumerate(names) if not shown[:, place].any()]
        if unseen:
            found.append(f"no trial varied {_and(unseen)}: what is said of {_it(unseen)} is belief, not measurement")
        belief = "scores per factor would" if equal else _BELIEF
        found += [
            f"the scores do not tell apart {told}; {belief}"
            for told in _same(seen, shown, [name for name in names if name not in unseen], names)
        ]
        if len({tuple(row) for row in seen.demos.tolist()}) == 1:
            text = "one training set was measured, which shows what fails but not what repairs it"
            found.append(f"{text}; policies that lack some factors would (`fsc next`)")
    spent, at_hand = sum(order.values()), surface.spec.total
    if spent > FAR * at_hand:
        text = f"the order is {spent / at_hand:,.0f} times the demos at hand, far beyond anything measured"
        found.append(f"{text}; read it as a direction")
    unknown = int((seen.trials == 0).sum())
    if unknown:
        whose = "1 score comes" if unknown == 1 else f"{unknown} scores come"
        found.append(f"{whose} without a number of trials, taken as {UNKNOWN_TRIALS} each; intervals rest on that")
    return tuple(found)


def _shown(seen: Observations) -> NDArray[np.bool_]:
    """Scores × factors: whose trials are in which score, stand-ins included."""
    alone = [_members(cells, seen.now.size) for cells in (seen.cells, seen.proxy_cells)]
    return np.concatenate([*alone, seen.joint > 0])


def _members(cells: Cells, count: int) -> NDArray[np.bool_]:
    made = np.zeros((cells.count, count), dtype=bool)
    made[cells.mean, cells.cell % count] = True
    return made


def _one_sided(seen: Observations, split: str) -> list[str]:
    """Scores that are all 0 or all 1 order nothing."""
    if not seen.score.size or not (seen.score == seen.score[0]).all():
        return []
    if seen.score[0] == 0:
        text = f"no trial succeeded, so nothing tells one factor from another{split}"
        return [f"{text}; find out first why the policy fails everywhere"]
    if seen.score[0] == 1:
        return [f"every trial succeeded, so there is nothing left to gain on them{split}"]
    return []


def _same(seen: Observations, shown: NDArray[np.bool_], asked: Sequence[str], names: Sequence[str]) -> list[str]:
    """Factors that no score tells apart: always in the same scores, and always thinned together."""
    groups: list[list[str]] = []
    for name in asked:
        place = names.index(name)
        for group in groups:
            first = names.index(group[0])
            if (shown[:, first] == shown[:, place]).all() and _thinned_alike(seen, first, place):
                group.append(name)
                break
        else:
            groups.append([name])
    alike = [group for group in groups if len(group) > 1]
    return [", nor ".join(_and(group) for group in alike)] if alike else []


def _thinned_alike(seen: Observations, first: int, second: int) -> bool:
    """The same share of both in every training set, to within a demonstration, which rounding can cost."""
    shares = seen.demos / seen.now
    least = float(min(seen.now[first], seen.now[second])) * seen.unit
    return bool((np.abs(shares[:, first] - shares[:, second]) * least <= 1 + 1e-9).all())


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _it(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"
