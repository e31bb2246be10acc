"""Figures: curves with measured and predicted success, allocations side by side, outcomes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from factored_scaling.core.curves import Floats
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import wilson
from factored_scaling.errors import InvalidInput, NotEnoughData
from factored_scaling.model.recommend import CurveReport, Recommendation
from factored_scaling.model.text import percent
from factored_scaling.report.plot import Plot
from factored_scaling.report.style import (
    COLOURS,
    INK,
    MUTED,
    PAPER,
    RULE,
    colour_places,
    factor_places,
    save_figure,
    score_ticks,
    side_by_side,
    steepest_first,
)
from factored_scaling.report.values import OutcomeRow
from factored_scaling.report.words import gain_words, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
Side = Literal["left", "center", "right"]
_STEPS = 40  # points along each half of a drawn curve


@dataclass(frozen=True)
class Panel:
    """One curve ready to be drawn, with its colour."""

    report: CurveReport
    budget: int
    colour: str

    @property
    def end(self) -> int:
        """|D_c| + K: the end of the drawn curve."""
        return self.report.curve.combination.size + self.budget

    @cached_property
    def sizes(self) -> Floats:
        """Sizes at which the curve is evaluated: the fitted range, |D_c|, and on to the end."""
        curve = self.report.curve
        # Without other demonstrations the curve has no value at n = 0.
        first = 0.0 if curve.combination.base > 0 else float(min((n for n in curve.points.n if n > 0), default=1))
        size = float(curve.combination.size)
        fitted = np.linspace(min(first, size), size, _STEPS)
        return np.concatenate([fitted, np.linspace(size, self.end, _STEPS)[1:]])

    @cached_property
    def plot(self) -> Plot:
        """The curve for a page."""
        curve, (low, high) = self.report.curve, self.band
        line = [
            (float(n), curve.at(float(n)), float(edge), float(top))
            for n, edge, top in zip(self.sizes, low, high, strict=True)
        ]
        points = list(zip(curve.points.n, curve.points.score, curve.points.trials, strict=True))
        return Plot(line, points, curve.combination.size)

    @cached_property
    def band(self) -> tuple[Floats, Floats]:
        """Lower and upper edge of 95% of the refits at `sizes`."""
        return self.report.band(self.sizes)


def panels(spec: StudySpec, recommendation: Recommendation) -> list[Panel]:
    """Every curve of a recommendation, steepest first."""
    if not recommendation.curves:
        raise NotEnoughData("no curves to draw", hint="a baseline without results has none")
    places = colour_places(spec, recommendation)
    return [
        Panel(report, recommendation.budget, COLOURS[places[report.curve.combination.label]][0])
        for report in steepest_first(spec, recommendation)
    ]


def curves_figure(spec: StudySpec, recommendation: Recommendation) -> Figure:
    """All curves as small multiples on one scale, steepest first: 1 to 28 of them and more."""
    every = panels(spec, recommendation)
    cards = [
        Card(_title(panel), gain_words(panel.report.now, panel.report.predicted), panel.colour, panel.plot)
        for panel in every
    ]
    across = len(every) if len(every) <= 3 else 2 if len(every) == 4 else 3 if len(every) <= 9 else 4
    legend = "demonstrations of the combination; all others are always in training"
    return small_multiples(cards, across, shared_limits(every), legend)


class Card(NamedTuple):
    """One of several small plots."""

    title: str
    note: str
    colour: str
    plot: Plot


def small_multiples(cards: Sequence[Card], across: int, limits: tuple[float, float], legend: str) -> Figure:
    """Plots on one scale, `across` in a row, with the legend below."""
    down = math.ceil(len(cards) / across)
    width, cell = max(3.35 * across, 3.8), 2.8 + 0.18 * max(card.title.count("\n") for card in cards)
    words = textwrap.wrap(legend, round(16 * (width - 0.6)))
    height = cell * down + 0.14 + 0.15 * len(words)
    figure = bare_figure(width, height)
    figure.text(0.52 / width, 0.08 / height, "\n".join(words), color=MUTED, fontsize=8, va="bottom", linespacing=1.3)
    place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "annotation_clip": False}
    for index, card in enumerate(cards):
        row, column = divmod(index, across)
        left, bottom = column * width / across + 0.52, height - cell * (row + 1) + 0.55
        axes = figure.add_axes((left / width, bottom / height, (width / across - 0.62) / width, 1.62 / height))
        draw_plot(axes, card.plot, card.colour, limits)
        axes.annotate(card.note, (0, 1), (0, 16), color=MUTED, fontsize=8.5, **place)
        axes.annotate(card.title, (0, 1), (0, 29), color=card.colour, fontsize=10.5, fontweight="bold", **place)
    return figure


def draw_plot(axes: Axes, plot: Plot, colour: str, limits: tuple[float, float]) -> None:
    """Draw points with intervals, and the line with its band, dashed beyond the current demonstrations."""
    sizes, mean, low, high = np.array(plot.line).T
    inside, beyond = sizes <= plot.size, sizes >= plot.size
    axes.fill_between(sizes, low, high, color=colour, alpha=0.14, linewidth=0, label="band", zorder=1)
    line: dict[str, Any] = {"color": colour, "linewidth": 2.0, "zorder": 3}
    axes.plot(sizes[inside], mean[inside], label="fitted", solid_capstyle="round", **line)
    axes.plot(sizes[beyond], mean[beyond], label="extrapolated", dashes=(2.4, 1.6), **line)
    for n, score, label in ((plot.size, mean[inside][-1], "now"), (plot.end, mean[-1], "predicted")):
        axes.plot([n, n], [limits[0], score], color=RULE, linewidth=1.0, label=label, zorder=2)
    draw_points(axes, plot.points, colour, plot.end)
    draw_prediction(axes, plot.end, float(mean[-1]), colour)
    dress_axes(axes, plot.size, int(plot.end), limits)


def shared_limits(every: Sequence[Panel]) -> tuple[float, float]:
    """One scale for all panels, in whole tens of percent, so that slopes can be compared by eye."""
    values: list[float] = []
    for panel in every:
        _, _, low, high = panel.plot.line[-1]
        values += [low, high, panel.plot.line[0][1], panel.plot.line[-1][1], *interval_ends(panel.plot)]
    bottom = max(0.0, math.floor(min(values) * 10 - 0.2) / 10)
    top = min(1.0, math.ceil(max(values) * 10 + 0.2) / 10)
    return (bottom, top) if top - bottom >= 0.3 else (max(0.0, min(bottom, 0.7)), min(1.0, max(top, bottom + 0.3)))


def interval_ends(plot: Plot) -> Iterator[float]:
    """The ends of all intervals of measured scores, or the score if its number of trials is unknown."""
    for _, score, trials in plot.points:
        interval = wilson(score, trials) if trials else None
        yield from (interval.low, interval.high) if interval else (score,)


def draw_points(axes: Axes, points: Sequence[tuple[float, float, int | None]], colour: str, end: float) -> None:
    """Every measured score (demos, score, trials) with its interval; repeats at one size stand side by side."""
    for x, score, trials in side_by_side(points, end):
        if trials:
            interval = wilson(score, trials)
            bar = [interval.low, interval.high]
            axes.plot([x, x], bar, color=colour, linewidth=1.1, solid_capstyle="butt", label="interval", zorder=4)
        axes.plot([x], [score], "o", ms=5.6, color=colour, mec=PAPER, mew=0.9, label="measured", zorder=6)


def draw_prediction(axes: Axes, at: float, score: float, colour: str) -> None:
    """Draw a ring with its number at the end of a line."""
    axes.plot([at], [score], "o", ms=7.5, mfc=PAPER, mec=colour, mew=2.0, label="prediction", zorder=5, clip_on=False)
    axes.annotate(
        percent(score),
        (at, score),
        xytext=(8, 0),
        textcoords="offset points",
        va="center",
        color=INK,
        fontsize=10,
        fontweight="bold",
        annotation_clip=False,
    )


def dress_axes(axes: Axes, size: int, end: int, limits: tuple[float, float]) -> None:
    """Ticks at zero, the current and the final number of demonstrations; axis names and a light grid."""
    axes.set_xlim(-0.045 * end, 1.3 * end)
    axes.set_xlabel("demonstrations", fontsize=8, color=MUTED, labelpad=1)
    above: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "annotation_clip": False}
    axes.annotate("success", (0, 1), (-4, 9), ha="right", color=MUTED, fontsize=8, **above)
    axes.set_ylim(*limits)
    ticks = score_ticks(limits)
    axes.set_yticks(ticks, [percent(tick, 0) for tick in ticks])
    axes.grid(axis="y", color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_facecolor("none")
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
    axes.spines["bottom"].set_linewidth(0.8)
    axes.tick_params(length=0, labelsize=8.6, labelcolor=MUTED, pad=4)
    # For a small budget the last two labels would overlap: align them away from each other.
    near = end - size < 0.2 * end
    gap = "\u00a0" if near else ""
    marks: list[tuple[int, str, Side]] = [
        (size, f"{size}{gap}\nnow{gap}", "right" if near else "center"),
        (end, f"{gap}{end}\n{gap}+{end - size}", "left" if near else "center"),
    ]
    if size >= 0.08 * end:
        marks.insert(0, (0, "0", "center"))
    axes.set_xticks([place for place, _, _ in marks], [text for _, text, _ in marks])
    for label, (_, _, side) in zip(axes.get_xticklabels(), marks, strict=True):
        label.set_horizontalalignment(side)
        label.set_linespacing(1.25)
        label.set_color(INK)


def _title(panel: Panel) -> str:
    """The combination's name, on several lines if it is long."""
    names = [plain(name) for name in panel.report.curve.combination.factors]
    lines = [""]
    for name, plus in zip(names, [*[" +"] * (len(names) - 1), ""], strict=True):
        if lines[-1] and len(lines[-1]) + len(name) > 32:
            lines.append("")
        lines[-1] = f"{lines[-1]} {name}{plus}".strip()
    return "\n".join(lines)


def allocation_figure(spec: StudySpec, recommendations: Mapping[str, Recommendation]) -> Figure:
    """Allocations of the strategies: one column of bars per strategy, one row per factor."""
    if not recommendations:
        raise InvalidInput("no recommendations to draw")
    headline = next(iter(recommendations.values()))
    places = factor_places(spec, headline)
    names = spec.names
    widest = max(len(plain(name)) for name in names) * 0.078 + 0.25
    width = widest + 1.45 * len(recommendations) + 0.25
    height = 0.34 * len(names) + 0.75
    figure = bare_figure(width, height)
    most = max(max(r.allocation.values()) for r in recommendations.values()) or 1
    rows = list(range(len(names)))[::-1]
    for column, (key, recommendation) in enumerate(recommendations.items()):
        left, across = (widest + 1.45 * column) / width, 1.25 / width
        axes = figure.add_axes((left, 0.18 / height, across, (height - 0.7) / height))
        amounts = [recommendation.allocation[name] for name in names]
        colours = [COLOURS[places[name]][0] for name in names]
        axes.barh(rows, amounts, height=0.62, color=colours, alpha=1.0 if column == 0 else 0.55)
        for row, amount in zip(rows, amounts, strict=True):
            tone, weight = (INK, "bold" if column == 0 else "normal") if amount else (MUTED, "normal")
            place: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(str(amount), (amount, row), color=tone, fontsize=8.5, fontweight=weight, **place)
        axes.set_xlim(0, most * 1.32)
        axes.set_ylim(-0.6, len(names) - 0.4)
        axes.set_title(key, loc="left", fontsize=9.5, fontweight="bold", color=INK, pad=8)
        axes.set_xticks([])
        axes.set_yticks(rows, [plain(name) for name in names] if column == 0 else [""] * len(names))
        axes.tick_params(length=0, labelsize=9, labelcolor=INK, pad=6)
        axes.set_facecolor("none")
        for side in ("right", "top", "bottom"):
            axes.spines[side].set_visible(False)
        axes.spines["left"].set_color(MUTED)
    return figure


def outcome_figure(rows: Sequence[OutcomeRow]) -> Figure:
    """Measured success after collection with its interval, and the predicted success, per strategy."""
    if not rows:
        raise InvalidInput("no outcome to draw")
    widest = max(len(row.strategy) for row in rows) * 0.095 + 0.3
    width, height = widest + 3.65, 0.4 * len(rows) + 1.05
    figure = bare_figure(width, height)
    axes = figure.add_axes((widest / width, 0.56 / height, 2.75 / width, (height - 0.92) / height))
    ends = [value for row in rows for value in (row.low, row.high, row.predicted) if value is not None]
    ends += [value for row in rows for pair in row.seeds for value in pair if value is not None]
    left, right = max(0.0, math.floor(min(ends) * 10 - 0.3) / 10), min(1.0, math.ceil(max(ends) * 10 + 0.3) / 10)
    for place, row in zip(range(len(rows))[::-1], rows, strict=True):
        colour = COLOURS[0][0] if row is rows[0] else MUTED
        axes.plot(
            [row.low, row.high], [place, place], color=colour, linewidth=2, solid_capstyle="butt", label="interval"
        )
        dot: dict[str, Any] = {"marker": "o", "ls": "", "color": colour, "zorder": 4, "clip_on": False}
        hope: dict[str, Any] = {"marker": "D", "ls": "", "mfc": PAPER, "mec": colour, "zorder": 3, "clip_on": False}
        axes.plot([row.measured], [place], ms=8, mec=PAPER, mew=1, label="measured", **dot)
        if len(row.seeds) > 1:
            # a line for each, so that equal ones are seen and predictions stand beside measurements
            lines = place - 0.2 - np.arange(len(row.seeds)) * min(0.12, 0.36 / len(row.seeds))
            axes.plot([score for _, score in row.seeds], lines, ms=3.5, label="seed", **dot)
            axes.plot([math.nan if a is None else a for a, _ in row.seeds], lines, ms=3, mew=0.9, **hope)
        if row.predicted is not None:
            axes.plot([row.predicted], [place], ms=6.5, mew=1.6, label="predicted", **hope)
        far: dict[str, Any] = {
            "xycoords": ("axes fraction", "data"),
            "textcoords": "offset points",
            "annotation_clip": False,
        }
        axes.annotate(
            percent(row.measured), (1, place), (10, 0), va="center", fontsize=11, fontweight="bold", color=INK, **far
        )
    axes.set_xlim(left, right)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    step = 0.1 if right - left <= 0.6 else 0.2
    ticks = np.arange(math.ceil(left / step - 1e-9), math.floor(right / step + 1e-9) + 1) * step
    axes.set_xticks(ticks, [percent(float(tick), 0) for tick in ticks])
    axes.set_yticks(range(len(rows))[::-1], [row.strategy for row in rows])
    axes.grid(axis="x", color=RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_facecolor("none")
    axes.set_xlabel("success", fontsize=10, color=MUTED)
    axes.tick_params(length=0, labelsize=10, labelcolor=MUTED, pad=6)
    axes.tick_params(axis="y", labelcolor=INK, labelsize=11)
    for spine in axes.spines.values():
        spine.set_visible(False)
    _outcome_legend(axes, any(row.predicted is not None for row in rows), any(len(row.seeds) > 1 for row in rows))
    return figure


def _outcome_legend(axes: Axes, predicted: bool, seeds: bool) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], marker="o", ls="", ms=6, mfc=MUTED, mec=MUTED, label="measured, 95% interval")]
    if predicted:
        handles.append(Line2D([], [], marker="D", ls="", ms=5, mfc=PAPER, mec=MUTED, mew=1.4, label="predicted"))
    if seeds:
        handles.append(Line2D([], [], marker="o", ls="", ms=3.5, mfc=MUTED, mec=MUTED, label="seeds"))
    legend = axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=3,
        frameon=False,
        fontsize=9,
        labelcolor=MUTED,
        handletextpad=0.1,
        columnspacing=0.8,
        borderaxespad=0.2,
        borderpad=0,
    )
    legend.set_clip_on(False)


def save_figures(
    spec: StudySpec,
    recommendations: Mapping[str, Recommendation],
    folder: Path | str,
    formats: Sequence[str] = ("png", "svg"),
    outcome: Sequence[OutcomeRow] = (),
) -> list[Path]:
    """Save the available figures (`model`, `curves`, `allocation`, `outcome`) in every format."""
    for kind in formats:
        if kind not in FORMATS:
            raise InvalidInput(
                f"cannot write figures as {kind!r}", where="formats", hint=f"one of {', '.join(FORMATS)}"
            )
    made: dict[str, Figure] = {}
    modelled = next((r for r in recommendations.values() if r.summary is not None), None)
    if modelled is not None:
        from factored_scaling.report.model import model_figure

        made["model"] = model_figure(spec, modelled)
    drawn = next((r for r in recommendations.values() if r.curves), None)
    if drawn is not None:
        made["curves"] = curves_figure(spec, drawn)
    if recommendations:
        made["allocation"] = allocation_figure(spec, recommendations)
    if outcome:
        made["outcome"] = outcome_figure(outcome)
    paths = []
    for name, figure in made.items():
        for kind in formats:
            paths.append(Path(folder) / f"{name}.{kind}")
            save_figure(figure, paths[-1])
    return paths


def bare_figure(width: float, height: float) -> Figure:
    """A figure without a window, outside matplotlib's global list of figures."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor=PAPER)
    FigureCanvasAgg(figure)
    return figure
