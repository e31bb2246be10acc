"""The response model on the page: drawn for every factor, in words as text alternative, and absent without one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.report.cases import study

from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.model.estimate import MODEL_ERROR, Estimate
from factored_scaling.model.posterior import REQUIRED_PROBABILITY
from factored_scaling.model.recommend import recommend
from factored_scaling.model.text import difference_text, estimate_text, probability_text
from factored_scaling.report import ReportInput, render, run_lines, save_figures
from factored_scaling.report.model import (
    factor_words,
    model_content,
    model_figure,
    model_limits,
    predicted_allocations,
)
from factored_scaling.study import Snapshot


def test_the_page_shows_both_rules_side_by_side() -> None:
    spec, results = study(per_factor=True)
    answers = {strategy: recommend(spec, results, 100, strategy) for strategy in ("auto", "top", "equal")}
    page = render(ReportInput(spec, results, answers, run_lines(spec, results), "today"))
    said = answers["auto"].summary
    assert said is not None
    assert "Predicted success</h2>" in page
    assert "The paper’s curves" in page
    table = {row["name"]: row for row in predicted_allocations(said, answers)}
    assert list(table) == ["auto", "top", "equal"]
    for name, (_, estimate) in said.alternatives.items():
        assert table[name]["score"] == estimate_text(estimate)
    assert table["auto"]["score"] == estimate_text(said.predicted)
    assert table["auto"]["difference"] == difference_text(said.differences["equal"])
    assert table["auto"]["probability"] == probability_text(said.probability_at_least_equal)
    assert table["equal"]["difference"] == table["equal"]["probability"] == "–"
    for row in table.values():
        assert f"<td>{row['score']}</td><td>{row['gain']}</td><td>{row['difference']}</td>" in page
    assert "these curves did not determine the recommendation" in page
    assert (
        page.index("Predicted success</h2>")
        < page.index("The paper’s curves</h2>")
        < page.index("Diagnostics of the paper’s curves")
    )
    required = f"{100 * REQUIRED_PROBABILITY:.0f}% of the samples"
    assert f"if it matches or beats an equal split in {required}; otherwise it is an equal split" in page
    assert f"widened to allow ±{100 * MODEL_ERROR:.0f}% error in predicted changes" in page
    assert f"We keep {said.posterior.n_samples} posterior samples" in page
    assert page.count("if the whole budget goes here") == len(spec.names)
    for name in spec.names:
        assert f"Predicted success against demonstrations of {name.replace('_', ' ')}:" in page


def test_the_page_has_the_response_model_and_the_papers_rule_whichever_leads() -> None:
    spec, results = study(per_factor=True)
    answers = Snapshot(spec, results).recommendations(100, "top")
    assert list(answers)[:2] == ["top", "auto"]
    page = render(ReportInput(spec, results, answers, run_lines(spec, results), "today"))
    assert "Their curve predicts" in page
    assert "these curves did not determine the recommendation" not in page
    assert "Predicted success</h2>" in page
    assert "by the fit <code>power-law</code>" in page  # the curves are the paper's, whoever leads


def test_without_curves_the_page_neither_checks_nor_explains_them() -> None:
    spec = StudySpec(factors={"camera_pose": 30}, construction="screen")
    results = Results.from_rows([{"demos": {"camera_pose": 30}, "factor": "camera_pose", "score": 0.4, "trials": 50}])
    page = render(ReportInput(spec, results, Snapshot(spec, results).recommendations(20), (), "today"))
    assert "lie on no curve" in page
    assert "Diagnostics</h2>" not in page
    assert "Each curve is fitted" not in page
    assert "30 demos, 1 factor<" in page
    assert "to read before you rely on this" not in page


def test_without_a_response_model_the_page_does_not_mention_it() -> None:
    spec, results = study()
    answer = recommend(spec, results, 100, "top")
    assert model_content(spec, answer) == {}
    assert "Predicted success</h2>" not in render(ReportInput(spec, results, {"top": answer}, (), "today"))


def test_curves_are_drawn_with_band_and_measured_points(tmp_path: Path) -> None:
    spec, results = study(per_factor=True)
    answer = recommend(spec, results, 50)
    said = answer.summary
    assert said is not None
    axes = model_figure(spec, answer).axes
    assert len(axes) == len(spec.names)
    for one, curve in zip(axes, said.curves, strict=True):
        lines = {str(line.get_label()): line for line in one.get_lines()}
        assert lines["extrapolated"].get_ydata()[-1] == pytest.approx(curve.overall[-1].mean)  # type: ignore[index]
        assert lines["fitted"].get_xdata()[-1] == spec.sizes[curve.factor]  # type: ignore[index]
        measured = sum(str(line.get_label()) == "measured" for line in one.get_lines())
        assert measured == len(said.measured(curve.factor)) > 0
        assert f"{100 * curve.overall[-1].mean:.1f}%" in factor_words(said, curve)
    assert tmp_path / "model.png" in save_figures(spec, {"auto": answer}, tmp_path, ("png",))


def test_measured_scores_and_their_intervals_lie_on_the_scale() -> None:
    spec, results = study(per_factor=True, trials=4)
    answer = recommend(spec, results, 50)
    assert answer.summary is not None
    bottom, top = model_limits(answer.summary)
    for axes in model_figure(spec, answer).axes:
        bars = [line for line in axes.get_lines() if str(line.get_label()) == "interval"]
        assert bars
        assert all(
            np.all((np.asarray(bar.get_ydata()) >= bottom) & (np.asarray(bar.get_ydata()) <= top)) for bar in bars
        )


def test_a_group_that_the_scores_do_not_split_is_told() -> None:
    spec, results = study()
    answers = {"auto": recommend(spec, results, 50)}
    page = render(ReportInput(spec, results, answers, run_lines(spec, results), "today"))
    groups = "table texture and lighting, nor camera pose and distractor"
    assert f"do not distinguish {groups}; the split within these groups comes from the prior" in page


def test_the_interval_of_a_gain_is_rounded_as_the_gain_is() -> None:
    spec, results = study(per_factor=True)
    answer = recommend(spec, results, 100)
    assert answer.summary is not None
    first, *others = answer.summary.curves
    samples = np.linspace(-0.001 - 0.105 / 38, 0.104 + 0.105 / 38, 1001)  # the 95% interval is −0.001 to 0.104
    first = replace(first, gain=Estimate(0.03, samples))
    said = replace(answer, summary=replace(answer.summary, curves=(first, *others)))
    assert model_content(spec, said)["cards"][0]["range"] == "−0.1 to +10.4"
