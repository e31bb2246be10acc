"""Scripts that run twice, and studies and answers as notebooks show them."""

from __future__ import annotations

import logging
import math
import sys
from pathlib import Path
from typing import Any

import matplotlib
import pytest

from factored_scaling import Dataset, InvalidInput, Results, Study, StudySpec, recommend
from factored_scaling.errors import FscError

SPEC = StudySpec({"camera_pose": 6, "lighting": 6}, construction="one", points=3, name="towel")
ROWS = [
    {"demos": {"camera_pose": c, "lighting": n}, "score": 0.3 + 0.04 * c + 0.02 * n, "trials": 200}
    for c, n in ((0, 6), (3, 6), (6, 6), (6, 0), (6, 3))
]


@pytest.fixture
def measured(tmp_path: Path) -> Study:
    """A study in which every run has a score, each factor's own for the first."""
    study = Study.create(SPEC, tmp_path / "towel.db")
    first = study.ask()[0]
    study.tell(first.id, {"camera_pose": [1.0, 1.0, 0.0, 1.0], "lighting": 0.25})
    while runs := study.ask():
        study.tell(runs[0].id, 0.1 + 0.05 * len(runs[0].episodes))
    return study


def test_a_script_that_runs_twice_continues(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    measured = []
    for _ in range(2):
        with Study.load_or_create(SPEC, str(tmp_path / "towel.db")) as study:
            run = study.ask()[0]
            study.tell(run.id, 0.5)
            measured.append(run.id)
    assert len(set(measured)) == 2
    with caplog.at_level(logging.INFO, "factored_scaling"), Study.load_or_create(SPEC, tmp_path / "towel.db") as study:
        assert [run.state for run in study.runs()].count("done") == 2
    assert caplog.messages == [f"continuing study 'towel' in {tmp_path / 'towel.db'}"]


def test_it_continues_after_a_round_was_added(measured: Study) -> None:
    measured.extend({"lighting": 4})
    with Study.load_or_create(SPEC, measured.store.place) as again:
        assert again.spec.sizes == {"camera_pose": 6, "lighting": 10}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"points": 4}, "points: 3 in the study, 4 given"),
        ({"factors": {"camera_pose": 6, "lighting": 7}}, "factors.lighting: 6 in the study, 7 given"),
        ({"factors": {"lighting": 6, "camera_pose": 6}}, "order of factors: camera_pose, lighting in the study"),
        ({"factors": {"camera_pose": 6, "table": 6}}, "factors.lighting: 6 in the study, not set given"),
        ({"policy": {"steps": 9}}, "policy: not set in the study, {'steps': 9} given"),
    ],
)
def test_another_spec_of_the_same_name_is_refused_with_what_differs(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    Study.create(SPEC, tmp_path / "towel.db").close()
    with pytest.raises(InvalidInput) as refusal:
        Study.load_or_create(SPEC.changed(**changed), tmp_path / "towel.db")
    assert said in str(refusal.value)
    assert str(tmp_path / "towel.db") in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_another_dataset_is_refused_and_another_name_is_another_study(tmp_path: Path) -> None:
    Study.create(SPEC, tmp_path / "towel.db").close()
    other = Dataset.of_sizes({"lighting": 6, "camera_pose": 6})
    with pytest.raises(InvalidInput, match="dataset: other episodes"):
        Study.load_or_create(SPEC, tmp_path / "towel.db", other)
    with Study.load_or_create(SPEC.changed(name="drawer"), tmp_path / "towel.db") as study:
        assert [row.name for row in study.store.studies()] == ["towel", "drawer"]


def test_a_study_says_what_and_where_it_is_and_how_far(tmp_path: Path) -> None:
    study = Study.create(SPEC, tmp_path / "towel.db")
    study.tell(study.ask()[0].id, 0.5)
    place = tmp_path / "towel.db"
    assert repr(study) == f"<Study 'towel' in {place}: round 0, runs: 1 done, 4 pending>"
    study.close()
    assert repr(study) == f"<Study 1 in {place}, not readable>"


def test_a_study_in_a_notebook_is_a_table_of_its_factors(tmp_path: Path) -> None:
    with Study.create(SPEC.changed(nominal=2, name="<b>"), tmp_path / "towel.db") as study:
        page = study._repr_html_()
    assert page.startswith("<table><caption>&#x27;&lt;b&gt;&#x27; in ")
    for cells in ("<td>nominal</td><td>2</td>", "<td>camera_pose</td><td>6</td>", "<td>lighting</td><td>6</td>"):
        assert cells in page


def test_an_answer_in_a_notebook_is_its_allocation_and_warnings() -> None:
    answer = recommend(SPEC, Results.from_rows(ROWS), 10, "top")
    page = answer._repr_html_()
    assert f"<caption>{answer.sentence}</caption>" in page
    for name, count in answer.allocation.items():
        assert f"<td>{name}</td><td>{count}</td>" in page
    assert page.count("<li>") == len(answer.warnings)


def test_to_frame_has_a_row_per_run_and_factor(measured: Study) -> None:
    pytest.importorskip("pandas")
    waiting = measured.add({"camera_pose": 1, "lighting": 1})
    frame = measured.to_frame()
    assert list(frame.columns) == [
        *("run", "round", "state", "seed", "demos:camera_pose", "demos:lighting"),
        *("factor", "score", "trials", "low", "high"),
    ]
    first = frame[frame["run"] == measured.runs()[0].id].set_index("factor")
    assert first.loc["camera_pose", ["score", "trials"]].tolist() == [0.75, 4]
    assert first.loc["camera_pose", "low"] < 0.75 < first.loc["camera_pose", "high"]
    assert first.loc["lighting", "score"] == 0.25
    assert math.isnan(first.loc["lighting", "low"])
    last = frame[frame["run"] == waiting]
    assert (len(last), last["state"].item(), last["score"].isna().item()) == (1, "pending", True)
    assert len(frame) == len(measured.runs()) + 1
    assert frame["demos:camera_pose"].tolist() == [6, 6, *(run.demos["camera_pose"] for run in measured.runs()[1:])]


def test_without_pandas_to_frame_says_how_to_get_it(measured: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(FscError, match=r"to_frame needs pandas.*pip install pandas"):
        measured.to_frame()


def test_plots_are_axes_with_the_numbers(measured: Study) -> None:
    matplotlib.use("agg")
    from matplotlib import pyplot

    try:
        answer = measured.recommend(20)
        ax = answer.plot()
        assert [text.get_text() for text in ax.texts] == [str(count) for count in answer.allocation.values()]
        assert [label.get_text() for label in ax.get_yticklabels()] == ["camera pose", "lighting"]
        _, own = pyplot.subplots()
        assert measured.recommend(20, "top").plot(own) is own
        curves = measured.plot_curves(20)
        assert {ax.get_title("left") for ax in curves} == {"camera pose", "lighting"}
        for drawn in (ax, *curves):
            drawn.figure.canvas.draw()
    finally:
        pyplot.close("all")


def test_a_report_is_one_file_with_the_answer_and_the_runs(measured: Study, tmp_path: Path) -> None:
    path = measured.report(str(tmp_path / "report.html"), budget=20)
    assert path == tmp_path / "report.html"
    page = path.read_text(encoding="utf-8")
    collected = {name: count for name, count in measured.recommend(20).allocation.items() if count}
    assert all(f"{count} {name.replace('_', ' ')}" in page for name, count in collected.items())
    assert page.count(measured.runs()[0].digest[:8]) == 1
