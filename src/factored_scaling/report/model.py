"""The response model in the report: predicted success against each factor's demonstrations, drawn and in words."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import wilson
from factored_scaling.model.estimate import SHOWN, Estimate
from factored_scaling.model.posterior import REQUIRED_PROBABILITY
from factored_scaling.model.recommend import ALTERNATIVES, Recommendation
from factored_scaling.model.summary import FactorCurve, ModelSummary
from factored_scaling.report.figures import bare_figure, dress_axes
from factored_scaling.report.style import COLOURS, INK, MUTED, PAPER, factor_places, inline_svg
from factored_scaling.report.words import demo_words, gain_points, percent, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_LEGEND = f"against demonstrations of the factor, all others as now; line: all trials, {percent(SHOWN)} interval"
_OWN_LEGEND = (
    "dashed: the factor's own trials; rings: measured on them, pale where demonstrations of others were missing too"
)
_PALE = 0.45


def model_content(
    spec: StudySpec, recommendation: Recommendation, headline: Recommendation | None = None
) -> dict[str, Any]:
    """What the page says of the response model; nothing where there is none. Colours are the headline's."""
    summary = recommendation.summary
    if summary is None:
        return {}
    places = factor_places(spec, headline or recommendation)
    limits = model_limits(summary)
    return {
        "level": percent(SHOWN),
        "required": percent(REQUIRED_PROBABILITY),
        "cards": [
            {
                "label": plain(curve.factor),
                "colour": places[curve.factor],
                "gain": gain_points(0.0, curve.gain.mean),
                "range": f"{gain_points(0.0, curve.gain.low, 0)} to {gain_points(0.0, curve.gain.high, 0)}",
                "best": percent(curve.best),
                "svg": inline_svg(
                    factor_figure(summary, curve, COLOURS[places[curve.factor]][0], limits),
                    f"factor{number}",
                    factor_words(summary, curve),
                ),
            }
            for number, curve in enumerate(summary.curves)
        ],
        "allocations": [
            {
                "name": name,
                "score": _estimate(estimate),
                "demos": demo_words(demos),
                "difference": _difference(difference),
                "gain": gain_points(summary.now.mean, estimate.mean, 1),
            }
            for name, demos, estimate, difference in predicted_allocations(summary)
        ],
        "now": _estimate(summary.now),
        "own_trials": _own_trials(summary),
        "noise": f"{100 * summary.noise.mean:.1f}",
        "regret": f"{100 * summary.regret:.1f}",
        "probability": "" if summary.allocation == summary.alternatives["equal"][0] else summary.probability,
        "policies": summary.policies,
    }


def predicted_allocations(summary: ModelSummary) -> list[tuple[str, dict[str, int], Estimate, Estimate | None]]:
    """The recommended allocation and its alternatives: demos, predicted success, and the recommended one's lead."""
    others = [
        (ALTERNATIVES[key], demos, estimate, summary.differences[key])
        for key, (demos, estimate) in summary.alternatives.items()
    ]
    return [("recommended allocation", summary.allocation, summary.predicted, None), *others]


def factor_words(summary: ModelSummary, curve: FactorCurve) -> str:
    """A factor's curves for those who cannot see them."""
    at, end = _at(curve, summary), f"{curve.demos[-1]:.0f}"
    words = (
        f"Predicted success against demonstrations of {plain(curve.factor)}: {_estimate(curve.overall[at])} with the "
        f"current ones, {_estimate(curve.overall[-1])} with {end}"
    )
    if summary.measured(curve.factor):
        words += f"; on its own trials {_estimate(curve.own[at])} and {_estimate(curve.own[-1])}"
    return f"{words}."


def factor_figure(summary: ModelSummary, curve: FactorCurve, colour: str, limits: tuple[float, float]) -> Figure:
    """One factor: success over all trials as a line with its band, on its own trials dashed, and what was measured."""
    figure = bare_figure(3.4, 2.25)
    axes = figure.add_axes((0.125, 0.175, 0.865, 0.79))
    draw_factor(axes, summary, curve, colour, limits)
    return figure


def draw_factor(
    axes: Axes, summary: ModelSummary, curve: FactorCurve, colour: str, limits: tuple[float, float]
) -> None:
    demos = np.array(curve.demos)
    low, high = ([getattr(e, side) for e in curve.overall] for side in ("low", "high"))
    axes.fill_between(demos, low, high, color=colour, alpha=0.14, linewidth=0, label="band", zorder=1)
    axes.plot(demos, [e.mean for e in curve.overall], color=colour, linewidth=2.0, label="overall", zorder=3)
    measured = summary.measured(curve.factor)
    if measured:  # without a score on the factor's own trials their line would come from the prior alone
        own: dict[str, Any] = {"color": colour, "linewidth": 1.3, "dashes": (2.4, 1.6), "label": "own", "zorder": 2}
        axes.plot(demos, [e.mean for e in curve.own], **own)
    size = curve.demos[_at(curve, summary)]
    mean = curve.overall[_at(curve, summary)].mean
    axes.plot([size, size], [limits[0], mean], color=MUTED, linewidth=0.8, dashes=(1, 2), zorder=2)
    for n, score, trials, alone in measured:
        strength = 1.0 if alone else _PALE
        if trials:
            interval = wilson(score, trials)
            axes.plot(
                [n, n], [interval.low, interval.high], color=colour, linewidth=0.8, alpha=0.6 * strength, zorder=4
            )
        ring: dict[str, Any] = {"ms": 4.2, "mfc": PAPER, "mec": colour, "mew": 1.2, "zorder": 5, "clip_on": False}
        axes.plot([n], [score], "o", label="measured", alpha=strength, **ring)
    end = curve.overall[-1].mean
    axes.annotate(
        percent(end),
        (curve.demos[-1], end),
        xytext=(8, 0),
        textcoords="offset points",
        va="center",
        color=INK,
        fontsize=10,
        fontweight="bold",
        annotation_clip=False,
    )
    dress_axes(axes, int(size), int(curve.demos[-1]), limits)


def model_limits(summary: ModelSummary) -> tuple[float, float]:
    """One scale for all factors, in whole tens of percent."""
    values = [e.mean for curve in summary.curves if summary.measured(curve.factor) for e in curve.own]
    values += [edge for curve in summary.curves for e in curve.overall for edge in (e.low, e.high)]
    values += [score for curve in summary.curves for _, score, _, _ in summary.measured(curve.factor)]
    bottom, top = max(0.0, np.floor(min(values) * 10) / 10), min(1.0, np.ceil(max(values) * 10) / 10)
    return (float(bottom), float(max(top, bottom + 0.3)))


def model_figure(spec: StudySpec, recommendation: Recommendation) -> Figure:
    """All factors as small multiples on one scale."""
    summary = recommendation.summary
    assert summary is not None
    across = min(3 if len(summary.curves) in (3, 5, 6, 9) else 4, len(summary.curves))
    down = -(-len(summary.curves) // across)
    width, cell = 3.35 * across, 2.5
    legend = f"{_LEGEND}; {_OWN_LEGEND}" if _own_trials(summary) else _LEGEND
    words = textwrap.wrap(legend, round(16 * (width - 0.6)))
    height = cell * down + 0.14 + 0.15 * len(words)
    figure = bare_figure(width, height)
    figure.text(0.52 / width, 0.08 / height, "\n".join(words), color=MUTED, fontsize=8, va="bottom", linespacing=1.3)
    limits, places = model_limits(summary), factor_places(spec, recommendation)
    for index, curve in enumerate(summary.curves):
        row, column = divmod(index, across)
        left, bottom = column * 3.35 + 0.52, height - cell * (row + 1) + 0.4
        axes = figure.add_axes((left / width, bottom / height, 2.73 / width, 1.62 / height))
        colour = COLOURS[places[curve.factor]][0]
        draw_factor(axes, summary, curve, colour, limits)
        place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "annotation_clip": False}
        gain = f"{gain_points(0.0, curve.gain.mean)} points for the whole budget, P(best) {percent(curve.best)}"
        axes.annotate(gain, (0, 1), (0, 8), color=MUTED, fontsize=8.5, **place)
        axes.annotate(plain(curve.factor), (0, 1), (0, 21), color=colour, fontsize=10.5, fontweight="bold", **place)
    return figure


def _own_trials(summary: ModelSummary) -> bool:
    """Whether any score is of trials that varied one factor alone."""
    return any(summary.measured(curve.factor) for curve in summary.curves)


def _at(curve: FactorCurve, summary: ModelSummary) -> int:
    """The place of the current demonstrations along the curve."""
    return curve.demos.index(float(summary.posterior.spec.sizes[curve.factor]))


def _estimate(estimate: Estimate) -> str:
    return f"{percent(estimate.mean, 1)} ({100 * estimate.low:.0f}–{100 * estimate.high:.0f})"


def _difference(estimate: Estimate | None) -> str:
    """'+0.4 (−2.7 to +4.5)' points, empty for the recommended allocation itself."""
    if estimate is None:
        return ""
    low, high = (gain_points(0.0, edge, 1) for edge in estimate.interval(SHOWN))
    return f"{gain_points(0.0, estimate.mean, 1)} ({low} to {high})"
