"""What the Curves page draws: every curve with its points and band, and what a budget would be spent on."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import wilson
from factored_scaling.model.recommend import STRATEGIES, CurveReport, Recommendation
from factored_scaling.report.figures import Panel, panels, shared_limits
from factored_scaling.report.style import COLOURS, factor_places
from factored_scaling.report.words import (
    answer,
    back_test_words,
    curve_words,
    gain_points,
    label_words,
    percent,
    plain,
    strategy_words,
)
from factored_scaling.store.documents import REMIX
from factored_scaling.study import Snapshot, Study

LARGEST_BUDGET = 100_000
_KEPT = 256  # answers; moving the slider back and forth costs nothing


def default_budget(spec: StudySpec) -> int:
    """What the slider stands at first: a tenth of the current demonstrations, in round numbers."""
    return min(max(10, 10 * round(spec.total / 20)), 100)


def slider_end(spec: StudySpec) -> int:
    """How far the slider goes; the field beside it takes more."""
    return max(200, 100 * round(2 * spec.total / 100))


class Curves:
    """Answers of the study as it stands, remembered until something new is finished."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self._lock = threading.Lock()  # one computation at a time: a second asker finds the first one's answer
        self._stamp: Hashable = None
        self._snapshot: Snapshot | None = None
        self._answers: OrderedDict[tuple[int, str], dict[str, Any]] = OrderedDict()

    def answer(self, budget: int, strategy: str) -> dict[str, Any]:
        """The page's content for a budget and a strategy, as plain data. Raises what `recommend` raises."""
        with self._lock:
            now = self._now()
            known = self._answers.get((budget, strategy))
            if known is None:
                known = self._answers[budget, strategy] = content(now.spec, now.recommend(budget, strategy))
                while len(self._answers) > _KEPT:
                    self._answers.popitem(last=False)
            self._answers.move_to_end((budget, strategy))
            return known

    @property
    def strategies(self) -> tuple[str, ...]:
        """The rules to choose from; Re-Mix only when its weights are there."""
        weights = self.study.store.document(self.study.id, REMIX, "weights")
        return tuple(name for name in STRATEGIES if name != "remix" or weights is not None)

    def _now(self) -> Snapshot:
        """A snapshot that is as new as what was finished last; called with the lock held."""
        store, study = self.study.store, self.study.id
        with store.one_moment():
            done = tuple(run.id for run in store.outline(study) if run.state == "done")
            weights = store.document(study, REMIX, "weights")
            # the trials of a run that is done never change; means may be added
            stamp = (str(self.study.spec.to_mapping()), done, store.counts(study)[1], str(weights))
            if self._snapshot is None or stamp != self._stamp:
                self._answers.clear()
                self._snapshot, self._stamp = self.study.snapshot(), stamp
        return self._snapshot


def content(spec: StudySpec, found: Recommendation) -> dict[str, Any]:
    """A recommendation as the page shows it."""
    drawn = panels(spec, found) if found.curves else []
    places = factor_places(spec, found)
    headline, why = answer(spec, found)
    sizes = spec.sizes
    return {
        "budget": found.budget,
        "strategy": found.strategy,
        "fit": found.fit,
        "headline": headline,
        "why": why,
        "rule": strategy_words(found),
        "allocation": [
            {"factor": plain(name), "amount": amount, "current": sizes[name], "colour": places[name]}
            for name, amount in found.allocation.items()
        ],
        "limits": list(shared_limits(drawn)) if drawn else [0.0, 1.0],
        "curves": [_curve(panel) for panel in drawn],
        "factors": _factors(spec, found) if found.summary is not None else None,
        "warnings": list(found.warnings),
    }


def _curve(panel: Panel) -> dict[str, Any]:
    report = panel.report
    curve = report.curve
    sizes, (low, high) = panel.sizes, panel.band
    now = percent(report.now, 1)
    span = f"{100 * low[-1]:.0f}–{100 * high[-1]:.0f}% in 95% of refits, " if high[-1] - low[-1] > 1e-9 else ""
    return {
        "label": label_words(curve.combination.factors),
        "colour": next(place for place, pair in enumerate(COLOURS) if pair[0] == panel.colour),
        "size": curve.combination.size,
        "end": panel.end,
        "mark": panel.end,
        "gain": gain_points(report.now, report.predicted),
        "flat": report.slope == 0,
        "sub": f"at {now}" if report.slope == 0 else f"{now} → {percent(report.predicted, 1)}",
        "note": f"{span}P(best) {percent(report.best)}",
        "words": curve_words(report, panel.budget),
        "findings": [*(flag.sentence for flag in report.diagnosis.flags), back_test_words(report)],
        # n, predicted, lower and upper edge of the band
        "line": [
            [round(float(n), 2), round(curve.at(float(n)), 5), round(float(edge), 5), round(float(top), 5)]
            for n, edge, top in zip(sizes, low, high, strict=True)
        ],
        "points": _points(report),
    }


def _factors(spec: StudySpec, found: Recommendation) -> dict[str, Any]:
    """The response model's curve of every factor, largest gain first, with a ring at the recommended allocation."""
    assert found.summary is not None
    places, sizes = factor_places(spec, found), spec.sizes
    alone = {r.curve.combination.factors[0]: r for r in found.curves if len(r.curve.combination.factors) == 1}
    every = sorted(found.summary.curves, key=lambda curve: -curve.gain.mean)
    cards: list[dict[str, Any]] = []
    for curve in every:
        now, amount = sizes[curve.factor], found.allocation[curve.factor]
        line = [
            [round(n, 2), round(estimate.mean, 5), round(estimate.low, 5), round(estimate.high, 5)]
            for n, estimate in zip(curve.demos, curve.overall, strict=True)
        ]
        gain = curve.gain
        cards.append(
            {
                "label": plain(curve.factor),
                "colour": places[curve.factor],
                "size": now,
                "end": curve.demos[-1],
                "mark": now + amount,
                "gain": gain_points(0.0, gain.mean, 1),
                "flat": False,
                "sub": f"for the whole budget ({gain_points(0.0, gain.low, 0)} to {gain_points(0.0, gain.high, 0)})",
                "note": f"P(best single factor) {percent(curve.best)}",
                "words": f"{plain(curve.factor)}: {percent(line[-1][1])} predicted with {curve.demos[-1]:g} demos.",
                "findings": [],
                "line": line,
                "points": _points(alone[curve.factor]) if curve.factor in alone else [],
            }
        )
    values = [value for card in cards for row in card["line"] for value in row[2:]]
    measured = [point[key] for card in cards for point in card["points"] for key in ("score", "low", "high")]
    values += [value for value in measured if value is not None]
    bottom, top = math.floor(10 * min(values)) / 10, math.ceil(10 * max(values)) / 10
    return {"limits": [max(0.0, bottom), min(1.0, max(top, bottom + 0.3))], "curves": cards}


def _points(report: CurveReport) -> list[dict[str, Any]]:
    points = []
    for n, score, trials in zip(*_columns(report), strict=True):
        interval = wilson(score, trials) if trials else None
        points.append(
            {
                "n": n,
                "score": score,
                "trials": trials,
                "low": interval.low if interval else None,
                "high": interval.high if interval else None,
            }
        )
    return points


def _columns(report: CurveReport) -> tuple[tuple[int, ...], tuple[float, ...], tuple[int | None, ...]]:
    points = report.curve.points
    return points.n, points.score, points.trials
