"""Content of the Curves page: every curve with its points and band, and the allocation of a budget."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any

from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import wilson
from factored_scaling.model.recommend import STRATEGIES, Recommendation
from factored_scaling.model.summary import Comparison, compare
from factored_scaling.model.text import percent, points
from factored_scaling.report.figures import Panel, panels, shared_limits
from factored_scaling.report.model import factor_plot, factor_words, model_limits
from factored_scaling.report.style import COLOURS, factor_places
from factored_scaling.report.words import (
    answer,
    back_test_words,
    curve_words,
    follows_curves,
    label_words,
    plain,
    strategy_words,
)
from factored_scaling.study import Snapshot, Study

LARGEST_BUDGET = 100_000
_KEPT = 256  # answers, so that moving the slider back is free


def default_budget(spec: StudySpec) -> int:
    """Initial value of the slider: a tenth of the current demonstrations, rounded."""
    return min(max(10, 10 * round(spec.total / 20)), 100)


def slider_end(spec: StudySpec) -> int:
    """Maximum of the slider. The field beside it accepts larger numbers."""
    return max(200, 100 * round(2 * spec.total / 100))


class Curves:
    """Recommendations for the current state of the study, cached until another run is finished."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self._lock = threading.Lock()  # one computation at a time; a second request uses the first one's result
        self._stamp: Hashable = None
        self._snapshot: Snapshot | None = None
        self._answers: OrderedDict[tuple[int, str], dict[str, Any]] = OrderedDict()

    def answer(self, budget: int, strategy: str) -> dict[str, Any]:
        """The page's content for a budget and a strategy, as plain data. Raises the errors of `recommend`."""
        with self._lock:
            now = self._now()
            known = self._answers.get((budget, strategy))
            if known is None:
                found = now.recommend(budget, strategy)
                compared = None
                if found.summary is None and now.results.rows:
                    compared = compare(now.posterior(), budget, found.allocation)
                known = self._answers[budget, strategy] = content(now.spec, found, compared)
                while len(self._answers) > _KEPT:
                    self._answers.popitem(last=False)
            self._answers.move_to_end((budget, strategy))
            return known

    @property
    def measured(self) -> bool:
        """Whether the study has any scores."""
        with self._lock:
            return bool(self._now().results.rows)

    @property
    def strategies(self) -> tuple[str, ...]:
        """The available strategies; Re-Mix only when its weights exist."""
        weights = self.study.remix_weights()
        return tuple(name for name in STRATEGIES if name != "remix" or weights is not None)

    def _now(self) -> Snapshot:
        """A snapshot that includes the last finished run. Called with the lock held."""
        store, study = self.study.store, self.study.id
        with store.one_moment():
            done = tuple(run.id for run in store.outline(study) if run.state == "done")
            weights = self.study.remix_weights()
            # trials of finished runs never change; means may be added
            stamp = (str(self.study.spec.to_mapping()), done, store.counts(study)[1], str(weights))
            if self._snapshot is None or stamp != self._stamp:
                self._answers.clear()
                self._snapshot, self._stamp = self.study.snapshot(), stamp
        return self._snapshot


def content(spec: StudySpec, found: Recommendation, compared: Comparison | None = None) -> dict[str, Any]:
    """A recommendation as the page shows it; `compared` as in `strategy_words`."""
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
        "rule": strategy_words(found, compared),
        "decided": follows_curves(found),
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
    _, _, low, high = panel.plot.line[-1]
    now = percent(report.now)
    span = f"{100 * low:.0f}–{100 * high:.0f}% in 95% of refits, " if high - low > 1e-9 else ""
    return {
        "label": label_words(curve.combination.factors),
        "colour": next(place for place, pair in enumerate(COLOURS) if pair[0] == panel.colour),
        "size": curve.combination.size,
        "end": panel.end,
        "mark": panel.end,
        "gain": points(report.predicted - report.now),
        "flat": report.slope == 0,
        "sub": f"at {now}" if report.slope == 0 else f"{now} → {percent(report.predicted)}",
        "note": f"{span}P(best) {percent(report.best, 0)}",
        "words": curve_words(report, panel.budget),
        "findings": [*(flag.sentence for flag in report.diagnosis.flags), back_test_words(report)],
        # n, predicted, lower and upper edge of the band
        "line": panel.plot.line,
        "points": _points(panel.plot.points),
    }


def _factors(spec: StudySpec, found: Recommendation) -> dict[str, Any]:
    """The response model's curve of every factor, largest gain first, with a ring at the recommended allocation."""
    assert found.summary is not None
    places, sizes = factor_places(spec, found), spec.sizes
    every = sorted(found.summary.curves, key=lambda curve: -curve.gain.mean)
    cards: list[dict[str, Any]] = []
    for curve in every:
        now, amount = sizes[curve.factor], found.allocation[curve.factor]
        plot = factor_plot(found.summary, curve)
        gain = curve.gain
        cards.append(
            {
                "label": plain(curve.factor),
                "colour": places[curve.factor],
                "size": now,
                "end": curve.demos[-1],
                "mark": now + amount,
                "gain": points(gain.mean),
                "flat": False,
                "sub": f"for the whole budget ({points(gain.low)} to {points(gain.high)})",
                "note": f"P(best single factor) {percent(curve.best, 0)}",
                "words": factor_words(found.summary, curve),
                "findings": [],
                "line": plot.line,
                "points": _points(plot.points),
            }
        )
    return {"limits": list(model_limits(found.summary)), "curves": cards}


def _points(measured: Sequence[tuple[float, float, int | None]]) -> list[dict[str, Any]]:
    """Measured scores (demos, score, trials) with their intervals, where the trials are known."""
    points = []
    for n, score, trials in measured:
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
