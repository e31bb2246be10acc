"""A curve as SVG for a page, drawn like those of `figures` but without matplotlib.

The CSS classes are in common.css.j2, which the dashboard uses too.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from factored_scaling.core.trials import wilson
from factored_scaling.model.text import percent
from factored_scaling.report.style import score_ticks, side_by_side

WIDTH, HEIGHT = 340, 244
LEFT, RIGHT, TOP, BOTTOM = 40, 54, 26, 56
INSET = 12  # between the axis of success and n = 0, for scores that stand side by side there
_NEAR = 44  # units; labels of the axis that are nearer are aligned away from each other
_APART = 17  # units between the middles of 0 and of another number


@dataclass(frozen=True)
class Plot:
    """A line with its band over the demonstrations of a factor or a combination, and the measured scores."""

    # demonstrations, value, lower and upper edge of the band
    line: Sequence[tuple[float, float, float, float]]
    # demonstrations, score, trials
    points: Sequence[tuple[float, float, int | None]]
    # current demonstrations; the line is dashed beyond
    size: int

    @property
    def end(self) -> float:
        """The end of the line."""
        return self.line[-1][0]


def plot_svg(plot: Plot, limits: tuple[float, float], description: str) -> str:
    """The plot with named axes; `limits` is the scale of success, `description` its text alternative."""
    bottom, top = limits
    across, foot = WIDTH - LEFT - RIGHT, HEIGHT - BOTTOM

    def x(n: float) -> str:
        return f"{LEFT + INSET + (across - INSET) * n / plot.end:.1f}"

    def y(score: float) -> str:
        return f"{TOP + (foot - TOP) * (top - min(top, max(bottom, score))) / (top - bottom):.1f}"

    def path(places: Iterable[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{x(n)} {y(score)}" for n, score in places)

    drawn = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(description)}">']
    drawn.append('<text x="0" y="11">success</text>')
    for tick in score_ticks(limits):
        drawn.append(f'<path class="gridline" d="M{LEFT} {y(tick)}H{LEFT + across}"/>')
        drawn.append(f'<text x="{LEFT - 8}" y="{float(y(tick)) + 4:.1f}" text-anchor="end">{percent(tick, 0)}</text>')
    drawn.append(f'<path class="axis" d="M{LEFT} {foot}H{LEFT + across}"/>')
    now = min(plot.line, key=lambda row: abs(row[0] - plot.size))
    edges = [(n, high) for n, _, _, high in plot.line] + [(n, low) for n, _, low, _ in reversed(plot.line)]
    drawn.append(f'<path class="band" d="{path(edges)}Z"/>')
    for n, score, _, _ in (now, plot.line[-1]):
        drawn.append(f'<path class="drop" d="M{x(n)} {foot}V{y(score)}"/>')
    for kind, rows in (
        ("fitted", [row for row in plot.line if row[0] <= plot.size]),
        ("beyond", [row for row in plot.line if row[0] >= plot.size]),
    ):
        drawn.append(f'<path class="{kind}" d="{path((n, score) for n, score, _, _ in rows)}"/>')
    for n, score, trials in side_by_side(plot.points, plot.end):
        if trials:
            interval = wilson(score, trials)
            drawn.append(f'<path class="interval" d="M{x(n)} {y(interval.low)}V{y(interval.high)}"/>')
        drawn.append(f'<circle class="dot" cx="{x(n)}" cy="{y(score)}" r="3.6"/>')
    n, score, _, _ = plot.line[-1]
    drawn.append(f'<circle class="ring" cx="{x(n)}" cy="{y(score)}" r="4.8"/>')
    drawn.append(
        f'<text class="predicted" x="{float(x(n)) + 9:.1f}" y="{float(y(score)) + 5:.1f}">{percent(score)}</text>'
    )
    drawn += _axis(plot, foot, float(x(plot.size)), float(x(plot.end)))
    return "".join([*drawn, "</svg>"])


def _axis(plot: Plot, foot: int, now: float, end: float) -> list[str]:
    """Numbers under the axis: none, now, and with the budget."""
    near = end - now < _NEAR
    marks = [
        (now, str(plot.size), "now", "end" if near else "middle"),
        (end, f"{plot.end:.0f}", f"+{plot.end - plot.size:.0f}", "start" if near else "middle"),
    ]
    if now - LEFT - INSET > _APART:
        marks.insert(0, (float(LEFT + INSET), "0", "", "middle"))
    drawn = []
    for place, number, under, anchor in marks:
        drawn.append(f'<text class="at" x="{place:.1f}" y="{foot + 16}" text-anchor="{anchor}">{number}</text>')
        if under:
            drawn.append(f'<text x="{place:.1f}" y="{foot + 30}" text-anchor="{anchor}">{under}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    return [*drawn, f'<text x="{middle:.1f}" y="{HEIGHT - 6}" text-anchor="middle">demonstrations</text>']
