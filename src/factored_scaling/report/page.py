"""The report: one HTML file without scripts or external files, deterministic for its input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Score
from factored_scaling.errors import InvalidInput
from factored_scaling.io.atomic import write_whole
from factored_scaling.model.recommend import Recommendation
from factored_scaling.model.summary import Comparison
from factored_scaling.model.text import percent, points
from factored_scaling.report.figures import Panel, outcome_figure, panels, shared_limits
from factored_scaling.report.model import model_content
from factored_scaling.report.plot import plot_svg
from factored_scaling.report.style import COLOURS, NEUTRALS, colour_places, factor_places, inline_svg
from factored_scaling.report.templating import templates
from factored_scaling.report.values import OutcomeRow, ReportInput, RunLine
from factored_scaling.report.words import (
    answer,
    back_test_words,
    counted_factors,
    curve_words,
    demo_words,
    follows_curves,
    label_words,
    meaning,
    plain,
    score_words,
    spoken,
    strategy_words,
)
from factored_scaling.version import __version__


def write_report(report: ReportInput, path: Path | str) -> Path:
    """Render the report and write it atomically."""
    target = Path(path)
    write_whole(target, render(report).encode())
    return target


def render(report: ReportInput) -> str:
    """The page as text."""
    if not report.recommendations:
        raise InvalidInput("a report needs at least one recommendation", hint="`equal` needs no results")
    return templates().get_template("report.html.j2").render(_content(report))


def _content(report: ReportInput) -> dict[str, Any]:
    """The template's variables. The template does no computation."""
    spec = report.spec
    headline = next(iter(report.recommendations.values()))
    with_curves = next((r for r in report.recommendations.values() if r.curves), None)
    modelled = next((r for r in report.recommendations.values() if r.summary is not None), headline)
    drawn = panels(spec, with_curves) if with_curves is not None else []
    most = max(max(r.allocation.values()) for r in report.recommendations.values())
    return {
        "name": spec.name,
        "created": report.created,
        "version": __version__,
        "neutrals": NEUTRALS,
        "colours": COLOURS,
        "answer": answer(spec, headline),
        "notes": list(report.notes),
        "facts": _facts(report, headline),
        "headline": _bars(spec, headline, headline),
        "budget": headline.budget,
        "why": strategy_words(headline, _compared(headline, modelled)),
        "model": model_content(spec, modelled, report.recommendations),
        "decided": follows_curves(headline),
        "curves": _curves(drawn, factor_places(spec, headline)),
        "strategies": [
            {
                "name": key,
                "meaning": meaning(recommendation),
                "bars": _bars(spec, recommendation, headline, most),
                "total": sum(recommendation.allocation.values()),
            }
            for key, recommendation in report.recommendations.items()
        ],
        "diagnostics": _diagnostics(spec, with_curves, headline),
        "runs": _runs(spec, report.runs),
        "warnings": [spoken(spec, text) for text in _warnings(report.recommendations)],
        "outcome": _outcome(report.outcome),
        "extras": [
            {"title": title, "caption": caption, "svg": inline_svg(figure, f"extra{index}", f"{title}. {caption}")}
            for index, (title, caption, figure) in enumerate(report.extra_figures)
        ],
        "method": _method(spec, with_curves or headline),
    }


def _compared(headline: Recommendation, modelled: Recommendation) -> Comparison | None:
    """The response model's view of a headline that another strategy chose."""
    if headline.summary is not None or modelled.summary is None:
        return None
    return modelled.summary.compare(headline.allocation)


def _facts(report: ReportInput, headline: Recommendation) -> list[tuple[str, str]]:
    """The summary numbers of the study."""
    spec = report.spec
    measured = sum(line.score is not None for line in report.runs)
    counted = sum(line.score.trials for line in report.runs if line.score is not None)
    runs = f"{measured} of {len(report.runs)}" if measured < len(report.runs) else str(measured)
    facts = [
        ("budget", f"{headline.budget} {_unit(spec, headline.budget)}"),
        ("strategy", headline.strategy),
        ("current", f"{spec.total:,} demos, {counted_factors(spec)}"),
        ("measured", f"{runs} {'policy' if runs == '1' else 'policies'}"),
    ]
    return [*facts, ("trials", f"{counted:,}")] if counted else facts


def _unit(spec: StudySpec, amount: int) -> str:
    unit = "demo" if all(factor.cost == 1 for factor in spec.factors) else "cost unit"
    return unit if amount == 1 else f"{unit}s"


def _bars(
    spec: StudySpec, recommendation: Recommendation, headline: Recommendation, most: int | None = None
) -> list[dict[str, Any]]:
    """Demonstrations per factor, with the length of the bar in percent of the longest."""
    places = factor_places(spec, headline)
    longest = most or max(recommendation.allocation.values()) or 1
    sizes = spec.sizes
    return [
        {
            "factor": plain(name),
            "amount": amount,
            "current": sizes[name],
            "width": f"{100 * amount / longest:.1f}",
            "colour": places[name],
        }
        for name, amount in recommendation.allocation.items()
    ]


def _swatches(places: Mapping[str, int], factors: Sequence[str], colour: str) -> list[int]:
    """Indices into `COLOURS` for a combination's dots: its curve's colour, or its factors' colours."""
    own = next(place for place, pair in enumerate(COLOURS) if pair[0] == colour)
    return [places[name] for name in factors] if places[factors[0]] == own else [own]


def _curves(drawn: Sequence[Panel], places: Mapping[str, int]) -> list[dict[str, Any]]:
    if not drawn:
        return []
    limits = shared_limits(drawn)
    cards = []
    for panel in drawn:
        report = panel.report
        low, high = (float(edge[-1]) for edge in panel.band)
        cards.append(
            {
                "label": label_words(report.curve.combination.factors),
                "colours": _swatches(places, report.curve.combination.factors, panel.colour),
                "now": percent(report.now),
                "predicted": percent(report.predicted),
                "gain": points(report.predicted - report.now),
                "flat": report.slope == 0,
                "range": f"{100 * low:.0f}–{100 * high:.0f}%" if high - low > 1e-9 else "",
                "best": percent(report.best, 0),
                "size": report.curve.combination.size,
                "end": panel.end,
                "svg": plot_svg(panel.plot, limits, curve_words(report, panel.budget)),
            }
        )
    return cards


def _diagnostics(
    spec: StudySpec, recommendation: Recommendation | None, headline: Recommendation
) -> list[dict[str, Any]]:
    places, own = colour_places(spec, headline), factor_places(spec, headline)
    return [
        {
            "label": label_words(report.curve.combination.factors),
            "colours": _swatches(
                own, report.curve.combination.factors, COLOURS[places[report.curve.combination.label]][0]
            ),
            "flags": [{"kind": flag.kind, "sentence": spoken(spec, flag.sentence)} for flag in report.diagnosis.flags],
            "back_test": back_test_words(report),
        }
        for report in (recommendation.curves if recommendation else ())
    ]


def _runs(spec: StudySpec, runs: Sequence[RunLine]) -> dict[str, Any]:
    """The run table; per-factor columns appear only when something was measured per factor."""
    keys = list(dict.fromkeys(key for line in runs for key in line.by_factor))
    ordered = [name for name in spec.names if name in keys] + [key for key in keys if key not in spec.names]
    sizes = spec.sizes
    return {
        "factors": [plain(name) for name in spec.names],
        "varied": [
            "all at once" if key == "*" else " + ".join(plain(part) for part in key.split("+")) for key in ordered
        ],
        "lines": [
            {
                "label": line.label,
                "demos": [
                    {"count": line.demos.get(name, 0), "less": line.demos.get(name, 0) < sizes[name]}
                    for name in spec.names
                ],
                "seed": "–" if line.seed is None else line.seed,
                "state": line.state,
                "trials": "–" if line.score is None or not line.score.trials else f"{line.score.trials:,}",
                "score": "" if line.score is None else score_words(line.score),
                "cells": [_cell(line.by_factor.get(key)) for key in ordered],
            }
            for line in runs
        ],
    }


def _cell(score: Score | None) -> dict[str, str]:
    """A cell of the heat map: its tone and its number show the score."""
    if score is None:
        return {"text": "", "tone": "0", "title": ""}
    counted = f", {score.trials:,} trials" if score.trials else ""
    return {"text": f"{100 * score.mean:.0f}", "tone": f"{0.5 * score.mean:.3f}", "title": score_words(score) + counted}


def _warnings(recommendations: Mapping[str, Recommendation]) -> list[str]:
    """Every warning once, with its strategies unless it concerns all."""
    owners: dict[str, list[str]] = {}
    for key, recommendation in recommendations.items():
        for text in recommendation.warnings:
            owners.setdefault(text, []).append(key)
    return [
        text if len(keys) == len(recommendations) else f"{', '.join(keys)}: {text}" for text, keys in owners.items()
    ]


def _outcome(rows: Sequence[OutcomeRow]) -> dict[str, Any]:
    if not rows:
        return {}
    description = "; ".join(f"{row.strategy} {percent(row.measured)}" for row in rows)
    return {
        "svg": inline_svg(outcome_figure(rows), "outcome", f"Measured success after collecting: {description}."),
        "rows": [
            {
                "strategy": row.strategy,
                "predicted": "–" if row.predicted is None else percent(row.predicted),
                "measured": f"{percent(row.measured)} ({100 * row.low:.1f}–{100 * row.high:.1f})",
                "trials": f"{row.trials:,}",
                "demos": _collected(row),
            }
            for row in rows
        ],
    }


def _collected(row: OutcomeRow) -> list[str]:
    """The collected demonstrations: one line, or one per seed if allocations differ between seeds."""
    if not row.by_seed:
        return [demo_words(row.demos)]
    return [f"seed {seed}: {demo_words(demos)}" for seed, demos in row.by_seed.items()]


def _method(spec: StudySpec, recommendation: Recommendation) -> dict[str, Any]:
    """Numbers at full precision, enough to recompute every prediction and share."""
    return {
        "construction": spec.construction,
        "nominal": spec.nominal,
        "budget": recommendation.budget,
        "curves": [
            {
                "label": report.curve.combination.label,
                "size": report.curve.combination.size,
                "base": report.curve.combination.base,
                "a": f"{report.curve.a:.9g}",
                "b": f"{report.curve.b:.9g}",
                "slope": f"{report.slope:.6g}",
                "points": [
                    {"n": n, "score": f"{score:.6g}", "trials": trials or ""}
                    for n, score, trials in zip(
                        report.curve.points.n, report.curve.points.score, report.curve.points.trials, strict=True
                    )
                ],
            }
            for report in recommendation.curves
        ],
    }
