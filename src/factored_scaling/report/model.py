"""The response model in the report: predicted success against each factor's demonstrations, drawn and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from factored_scaling.core.checks import listed
from factored_scaling.core.spec import StudySpec
from factored_scaling.model.posterior import REQUIRED_PROBABILITY
from factored_scaling.model.recommend import Recommendation
from factored_scaling.model.summary import FactorCurve, ModelSummary
from factored_scaling.model.text import (
    ALTERNATIVES,
    LEVEL,
    choice_sentence,
    current_sentence,
    difference_text,
    estimate_text,
    noise_sentence,
    percent,
    points,
    probability_text,
    regret_sentence,
)
from factored_scaling.report.figures import Card, interval_ends, small_multiples
from factored_scaling.report.plot import Plot, plot_svg
from factored_scaling.report.style import COLOURS, factor_places
from factored_scaling.report.words import demo_words, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_LEGEND = (
    f"success over all trials against demonstrations of the factor, all others as now: predicted, {LEVEL} interval, "
    "dashed beyond the current demonstrations; dots: measured"
)


def model_content(
    spec: StudySpec, recommendation: Recommendation, answers: Mapping[str, Recommendation] | None = None
) -> dict[str, Any]:
    """The page's section on the response model; empty without one. Colours are those of the first recommendation."""
    summary = recommendation.summary
    if summary is None:
        return {}
    answers = answers if answers is not None else {recommendation.strategy: recommendation}
    headline = next(iter(answers.values()))
    places = factor_places(spec, headline)
    limits = model_limits(summary)
    return {
        "level": LEVEL,
        "required": percent(REQUIRED_PROBABILITY, 0),
        "cards": [
            {
                "label": plain(curve.factor),
                "colour": places[curve.factor],
                "gain": points(curve.gain.mean),
                "range": f"{points(curve.gain.low)} to {points(curve.gain.high)}",
                "best": percent(curve.best, 0),
                "svg": plot_svg(factor_plot(summary, curve), limits, factor_words(summary, curve)),
            }
            for curve in summary.curves
        ],
        "allocations": predicted_allocations(summary, answers),
        "measured": any(summary.measured(curve.factor) for curve in summary.curves),
        "sentences": [
            current_sentence(summary),
            noise_sentence(summary),
            # when another strategy is the headline, the response model's recommendation is not shown above
            *([choice_sentence(summary), regret_sentence(summary)] if headline.summary is None else []),
        ],
        "policies": summary.policies,
    }


def predicted_allocations(summary: ModelSummary, answers: Mapping[str, Recommendation]) -> list[dict[str, str]]:
    """Every strategy's allocation with its prediction, and the best alternative to a chosen equal split."""
    allocations = {name: answer.allocation for name, answer in answers.items()}
    for name, (demos, _) in summary.alternatives.items():
        if name == "best" or demos not in allocations.values():
            allocations[ALTERNATIVES[name]] = demos
    equal = summary.alternatives["equal"][0]
    rows = []
    for name, demos in allocations.items():
        compared = summary.compare(demos)
        row = {"name": name, "score": estimate_text(compared.predicted), "demos": demo_words(demos)}
        row["gain"] = points(compared.predicted.mean - summary.now.mean)
        row["difference"] = "–" if demos == equal else difference_text(compared.difference)
        row["probability"] = "–" if demos == equal else probability_text(compared.probability)
        rows.append(row)
    return rows


def factor_words(summary: ModelSummary, curve: FactorCurve) -> str:
    """A text alternative for a factor's curves."""
    at, end = _at(curve, summary), f"{curve.demos[-1]:.0f}"
    words = (
        f"Predicted success against demonstrations of {plain(curve.factor)}: {estimate_text(curve.overall[at])} with "
        f"the current ones, {estimate_text(curve.overall[-1])} with {end}"
    )
    measured = [f"{percent(score)} at {n:g}" for n, score, _ in summary.measured(curve.factor)]
    return f"{words}; measured {listed(measured)}." if measured else f"{words}."


def factor_plot(summary: ModelSummary, curve: FactorCurve) -> Plot:
    """One factor: predicted success over all trials with its band, and what was measured."""
    line = [(n, e.mean, e.low, e.high) for n, e in zip(curve.demos, curve.overall, strict=True)]
    return Plot(line, summary.measured(curve.factor), summary.posterior.spec.sizes[curve.factor])


def model_limits(summary: ModelSummary) -> tuple[float, float]:
    """One scale for all factors, in whole tens of percent, that includes every band and error bar."""
    values = [edge for curve in summary.curves for e in curve.overall for edge in (e.low, e.high)]
    values += [end for curve in summary.curves for end in interval_ends(factor_plot(summary, curve))]
    bottom, top = max(0.0, math.floor(min(values) * 10) / 10), min(1.0, math.ceil(max(values) * 10) / 10)
    return (min(bottom, 0.7), min(1.0, max(top, bottom + 0.3)))


def model_figure(spec: StudySpec, recommendation: Recommendation) -> Figure:
    """All factors as small multiples on one scale."""
    summary = recommendation.summary
    assert summary is not None
    places = factor_places(spec, recommendation)
    cards = [
        Card(
            plain(curve.factor),
            f"{points(curve.gain.mean)} points for the whole budget, P(best) {percent(curve.best, 0)}",
            COLOURS[places[curve.factor]][0],
            factor_plot(summary, curve),
        )
        for curve in summary.curves
    ]
    across = min(3 if len(cards) in (3, 5, 6, 9) else 4, len(cards))
    return small_multiples(cards, across, model_limits(summary), _LEGEND)


def _at(curve: FactorCurve, summary: ModelSummary) -> int:
    """The index of the current demonstrations on the curve."""
    return curve.demos.index(float(summary.posterior.spec.sizes[curve.factor]))
