"""Answers in a notebook: small HTML tables, and plots on matplotlib axes that the caller can modify."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from factored_scaling.core.spec import StudySpec
from factored_scaling.model.recommend import Recommendation
from factored_scaling.model.text import percent
from factored_scaling.report.figures import draw_plot, panels, shared_limits
from factored_scaling.report.style import ACCENT, COLOURS, INK
from factored_scaling.report.words import label_words, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def html_table(caption: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a caption; every cell is escaped."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><caption>{html.escape(caption)}</caption><tr>{head}</tr>{body}</table>"


def recommendation_html(recommendation: Recommendation) -> str:
    """The allocation as a table, the answer in words above and warnings below."""
    table = html_table(recommendation.sentence, ("factor", "collect"), recommendation.allocation.items())
    warnings = "".join(f"<li>{html.escape(text)}</li>" for text in recommendation.warnings)
    return f"{table}<ul>{warnings}</ul>" if warnings else table


def plot_recommendation(recommendation: Recommendation, ax: Axes | None = None) -> Axes:
    """Bars of the demonstrations to collect per factor; a mark shows an equal split where it was compared to one."""
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.subplots(figsize=(5, 0.4 * len(recommendation.allocation) + 1), layout="constrained")[1]
    names, amounts = list(recommendation.allocation), list(recommendation.allocation.values())
    rows = range(len(names))
    bars = ax.barh(rows, amounts, height=0.62, color=COLOURS[ACCENT][0], label=recommendation.strategy)
    ax.bar_label(bars, padding=3)
    summary = recommendation.summary
    if summary is not None:
        equal, _ = summary.alternatives["equal"]
        ax.plot([equal[name] for name in names], rows, "|", color=INK, ms=14, mew=1.5, label="equal split")
        ax.legend(frameon=False)
        ax.set_title(f"predicted success {percent(summary.predicted.mean)}")
    ax.set_yticks(rows, [plain(name) for name in names])
    ax.invert_yaxis()
    ax.set_xlabel("demonstrations to collect")
    return ax


def plot_curves(spec: StudySpec, recommendation: Recommendation) -> list[Axes]:
    """Every curve of a recommendation in an Axes of its own, all on one scale, steepest first."""
    from matplotlib import pyplot

    drawn = panels(spec, recommendation)
    columns = min(3, len(drawn))
    rows = math.ceil(len(drawn) / columns)
    grid = pyplot.subplots(rows, columns, figsize=(3.6 * columns, 2.6 * rows), layout="constrained", squeeze=False)[1]
    limits, axes = shared_limits(drawn), list(grid.flat)
    for ax in axes[len(drawn) :]:
        ax.remove()
    for ax, panel in zip(axes, drawn, strict=False):
        draw_plot(ax, panel.plot, panel.colour, limits)
        ax.set_title(label_words(panel.report.curve.combination.factors), color=panel.colour, loc="left")
    return axes[: len(drawn)]
