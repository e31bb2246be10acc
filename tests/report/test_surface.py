"""The surface on the page: drawn for every factor, in words for those who cannot see it, and gone without one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.report.cases import study

from factored_scaling.cli.report import recommendations
from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.model.posterior import SURE
from factored_scaling.model.recommend import recommend
from factored_scaling.model.summary import DOUBT, SHOWN, Estimate
from factored_scaling.report import ReportInput, render, run_lines, save_figures
from factored_scaling.report.surface import expected_orders, factor_words, surface_content, surface_figure


def test_the_page_shows_both_rules_side_by_side() -> None:
    spec, results = study(per_factor=True)
    answers = {strategy: recommend(spec, results, 100, strategy) for strategy in ("auto", "top", "equal")}
    page = render(ReportInput(spec, results, answers, run_lines(spec, results), "today"))
    said = answers["auto"].surface
    assert said is not None
    assert "What to expect" in page
    assert "The paper’s curves" in page
    for name, _, estimate in expected_orders(said):
        assert name.replace("'", "&#39;") in page
        assert f"{100 * estimate.mean:.1f}% ({100 * estimate.low:.0f}–{100 * estimate.high:.0f})" in page
    assert f"no worse than Equal in {100 * SURE:.0f}% of them, and is Equal otherwise" in page
    assert (DOUBT, "could be off by half" in page) == (0.5, True)
    assert page.count("if the whole budget went there") == len(spec.names)
    for name in spec.names:
        assert f"Expected success over demonstrations of {name.replace('_', ' ')}:" in page


def test_the_surface_stands_beside_the_papers_rule_whichever_leads_the_page() -> None:
    spec, results = study(per_factor=True)
    answers = recommendations(spec, results, 100, "top", None)
    assert list(answers)[:2] == ["top", "auto"]
    page = render(ReportInput(spec, results, answers, run_lines(spec, results), "today"))
    assert "Their curve promises" in page
    assert "What to expect" in page
    assert "by the fit <code>power-law</code>" in page  # the curves are the paper's, whoever leads


def test_without_curves_the_page_neither_checks_nor_explains_them() -> None:
    spec = StudySpec(factors={"camera_pose": 30}, construction="screen")
    results = Results.from_rows([{"demos": {"camera_pose": 30}, "factor": "camera_pose", "score": 0.4, "trials": 50}])
    page = render(ReportInput(spec, results, recommendations(spec, results, 20, "auto", None), (), "today"))
    assert "lie on no curve" in page
    assert "How far to trust the curves" not in page
    assert "Each curve is fitted" not in page
    assert "30 demos, 1 factor<" in page
    assert "to read before you rely on this" not in page


def test_without_a_surface_the_page_does_not_speak_of_one() -> None:
    spec, results = study()
    answer = recommend(spec, results, 100, "top")
    assert surface_content(spec, answer) == {}
    assert "What to expect" not in render(ReportInput(spec, results, {"top": answer}, (), "today"))


def test_curves_are_drawn_with_band_own_trials_and_measured_points(tmp_path: Path) -> None:
    spec, results = study(per_factor=True)
    answer = recommend(spec, results, 50)
    said = answer.surface
    assert said is not None
    axes = surface_figure(spec, answer).axes
    assert len(axes) == len(spec.names)
    for one, curve in zip(axes, said.curves, strict=True):
        lines = {str(line.get_label()): line for line in one.get_lines()}
        assert lines["overall"].get_ydata()[-1] == pytest.approx(curve.overall[-1].mean)  # type: ignore[index]
        assert lines["own"].get_xdata()[-1] == curve.demos[-1]  # type: ignore[index]
        measured = sum(str(line.get_label()) == "measured" for line in one.get_lines())
        assert measured == len(said.measured(curve.factor)) > 0
        assert f"{100 * curve.overall[-1].mean:.1f}%" in factor_words(said, curve)
    assert tmp_path / "surface.png" in save_figures(spec, {"auto": answer}, tmp_path, ("png",))


def test_without_scores_per_factor_no_line_is_drawn_for_a_factors_own_trials() -> None:
    spec, results = study()
    answers = {"auto": recommend(spec, results, 50)}
    said = answers["auto"].surface
    assert said is not None
    for axes in surface_figure(spec, answers["auto"]).axes:
        assert {str(line.get_label()) for line in axes.get_lines()}.isdisjoint({"own", "measured"})
    assert "own trials" not in factor_words(said, said.curves[0])
    page = render(ReportInput(spec, results, answers, run_lines(spec, results), "today"))
    assert "own trials" not in page
    assert "do not tell apart table texture and lighting, nor camera pose and distractor;" in page


def test_a_gain_that_rounds_to_nothing_has_no_sign() -> None:
    spec, results = study(per_factor=True)
    answer = recommend(spec, results, 100)
    assert answer.surface is not None
    first, *others = answer.surface.curves
    first = replace(first, gain=Estimate(0.03, {SHOWN: (-0.001, 0.104)}))
    said = replace(answer, surface=replace(answer.surface, curves=(first, *others)))
    assert surface_content(spec, said)["cards"][0]["range"] == "±0 to +10"
