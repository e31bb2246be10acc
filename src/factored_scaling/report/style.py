"""Colours and fonts of figures and page, and the conversion of figures to files or inline SVG."""

from __future__ import annotations

import html
import io
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factored_scaling.core.allocation import included
from factored_scaling.core.spec import StudySpec
from factored_scaling.io.atomic import write_whole
from factored_scaling.model.recommend import CurveReport, Recommendation, gains_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Neutral tones, light and dark. In the page each becomes a CSS variable of this name, so figures follow dark mode.
INK, MUTED, RULE, PAPER = "#18212b", "#5d6977", "#dce1e7", "#fefefe"
NEUTRALS = {
    "ink": (INK, "#eef1f4"),
    "muted": (MUTED, "#a3aebb"),
    "rule": (RULE, "#36404c"),
    "paper": (PAPER, "#14191f"),
}
# The first three after Okabe and Ito; the others chosen so that all eight stay apart (ΔE above 12) for every common
# kind of colour vision, with a contrast of at least 3:1 on paper. The second tone is for dark mode.
PALETTE = (
    ("#0069a8", "#4fb0ea"),
    ("#d45500", "#ff9a4d"),
    ("#008f68", "#3ccfa2"),
    ("#a8729e", "#c979b0"),
    ("#3a1f8a", "#5c76e6"),
    ("#4d2a0c", "#f4efa0"),
    ("#3a95fb", "#96fbf6"),
    ("#7d1048", "#9a8a55"),
)
ACCENT, REST = 0, len(PALETTE)  # places in COLOURS
COLOURS = (*PALETTE, ("#8a94a0", "#77828f"))
_FONTS = ("Inter", "Helvetica Neue", "Helvetica", "Arial", "Liberation Sans")
# for letters that those lack: factor names may use any script
_WIDE_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "PingFang SC",
    "Hiragino Sans",
    "Microsoft YaHei",
    "Yu Gothic",
    "Malgun Gothic",
    "Noto Sans",
    "Arial Unicode MS",
)


def colour_places(spec: StudySpec, headline: Recommendation | None) -> dict[str, int]:
    """Each combination's place in `COLOURS`, by label: that of its first factor.

    Pairs overlap, so they have hues of their own. Each has its own hue while there are enough distinct ones.
    With more combinations, those that the headline spends on have the accent colour and the others a neutral one.
    """
    combinations = spec.combinations()
    if spec.construction != "pair" and len(spec.names) <= len(PALETTE):
        return {combination.label: spec.names.index(combination.factors[0]) for combination in combinations}
    labels = [combination.label for combination in combinations]
    if len(labels) <= len(PALETTE):
        return {label: place for place, label in enumerate(labels)}
    funded = funded_labels(spec, headline) if headline is not None else ()
    return {label: ACCENT if label in funded or not funded else REST for label in labels}


def factor_places(spec: StudySpec, headline: Recommendation | None) -> dict[str, int]:
    """Each factor's place in `COLOURS`: one of its own, or the accent for those that get demonstrations of many."""
    if len(spec.names) <= len(PALETTE):
        return {name: place for place, name in enumerate(spec.names)}
    given = headline.allocation if headline is not None else {}
    return {name: ACCENT if given.get(name, 1) else REST for name in spec.names}


def funded_labels(spec: StudySpec, recommendation: Recommendation) -> tuple[str, ...]:
    """Combinations that get demonstrations from a curve-based strategy, best first; none for baselines."""
    reports = recommendation.curves
    if not reports or recommendation.fit != "power-law" or recommendation.strategy not in ("top", "top-half", "all"):
        return ()
    gains = gains_of(spec, recommendation.curves, recommendation.budget)
    chosen = [index for index in included(gains, recommendation.strategy) if gains[index] > 0]
    return tuple(reports[index].curve.combination.label for index in chosen)


def steepest_first(spec: StudySpec, recommendation: Recommendation) -> list[CurveReport]:
    """The curves, steepest first."""
    gains = gains_of(spec, recommendation.curves, recommendation.budget)
    return [recommendation.curves[index] for index in sorted(range(len(gains)), key=lambda index: -gains[index])]


def score_ticks(limits: tuple[float, float]) -> list[float]:
    """Positions of the numbers on the axis of success."""
    span = limits[1] - limits[0]
    step = 0.1 if span <= 0.61 else 0.2 if span <= 0.85 else 0.25
    first, last = math.ceil(limits[0] / step - 1e-9), math.floor(limits[1] / step + 1e-9)
    return [step * k for k in range(first, last + 1)]


def side_by_side(
    points: Sequence[tuple[float, float, int | None]], end: float
) -> Iterator[tuple[float, float, int | None]]:
    """Measured scores (demos, score, trials) by demos; repeats at one size stand side by side."""
    step = 0.018 * end
    for n in sorted({n for n, _, _ in points}):
        members = [(score, trials) for at, score, trials in points if at == n]
        for rank, (score, trials) in enumerate(members):
            yield n + step * (rank - (len(members) - 1) / 2), score, trials


@contextmanager
def look(text_as_paths: bool, fonts: Sequence[str], salt: str = "factored-scaling") -> Iterator[None]:
    """Apply matplotlib settings while a figure is drawn, then restore the previous ones."""
    import matplotlib

    settings: Any = {
        "font.family": "sans-serif",
        "font.sans-serif": list(fonts) or ["DejaVu Sans"],
        "svg.fonttype": "path" if text_as_paths else "none",
        "svg.hashsalt": salt,
        "pdf.fonttype": 42,
    }
    with matplotlib.rc_context(settings):
        yield


def save_figure(figure: Figure, path: Path, dots_per_inch: int = 200) -> None:
    """A figure as a file for a paper or a talk: PNG, SVG (text as outlines) or PDF (fonts embedded)."""
    kind = path.suffix.removeprefix(".")
    undated: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    stream = io.BytesIO()
    with look(True, _file_fonts()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from")  # `undrawable` reports them
        figure.savefig(stream, format=kind, dpi=dots_per_inch, metadata=undated.get(kind), facecolor=PAPER)
    write_whole(path, stream.getvalue())


def undrawable(text: str) -> str:
    """Distinct letters of a text that no font of this machine has; figures show boxes instead."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    fonts = [get_font(findfont(FontProperties(family=name))) for name in _file_fonts()]
    return "".join(dict.fromkeys(c for c in text if not any(font.get_char_index(ord(c)) for font in fonts)))


def _file_fonts() -> list[str]:
    from matplotlib.font_manager import fontManager

    known = set(fontManager.get_font_names())
    return [name for name in (*_FONTS, "DejaVu Sans", *_WIDE_FONTS) if name in known]


def inline_svg(figure: Figure, name: str, description: str) -> str:
    """A figure as inline SVG with unique ids and the page's colours and fonts."""
    stream = io.StringIO()
    # The layout uses the font that comes with matplotlib, so that the bytes are the same everywhere.
    with look(False, (), salt=name):
        figure.savefig(stream, format="svg", metadata={"Date": None}, transparent=True)
    text = stream.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    box = re.search(r'viewBox="([^"]+)"', text)
    assert box is not None
    opening = f'<svg viewBox="{box[1]}" role="img" aria-label="{html.escape(description)}">'
    text = opening + text[text.index(">") + 1 :]
    text = text.replace("xlink:href", "href")
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    text = re.sub(r'href="#', f'href="#{name}-', text)
    for tone, variable in _variables().items():
        text = text.replace(tone, f"var(--{variable})")
    return text.strip()


def _variables() -> Mapping[str, str]:
    tones = {light: name for name, (light, _) in NEUTRALS.items()}
    return {**tones, **{light: f"c{place}" for place, (light, _) in enumerate(COLOURS)}}
