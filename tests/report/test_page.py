"""The page: complete, self-contained, escaped, and the same bytes for the same input."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.report.cases import SPATIAL, VISUAL, report, study

from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Interval, Score
from factored_scaling.errors import InvalidInput
from factored_scaling.model.recommend import recommend
from factored_scaling.report import OutcomeRow, ReportInput, RunLine, curves_figure, render, write_report

SECTIONS = ["allocation", "strategies", "curves", "runs", "warnings", "method"]
VOID = {"meta", "link", "br", "hr", "img", "input", "col", "use", "path"}


class Page(HTMLParser):
    """Tags, ids and text of a page; fails on tags that do not close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text.append(data)

    @property
    def ids(self) -> list[str]:
        return [attributes["id"] or "" for _, attributes in self.tags if "id" in attributes]

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.text))

    def count(self, tag: str, **attributes: str) -> int:
        return sum(name == tag and attributes.items() <= found.items() for name, found in self.tags)


@pytest.fixture(scope="module")
def group() -> ReportInput:
    outcome = [
        OutcomeRow("top", 0.7, 0.683, 0.66, 0.706, 3000, {"camera_pose": 50, "distractor": 50}),
        OutcomeRow("equal", None, 0.63, 0.607, 0.652, 3000, dict.fromkeys(VISUAL, 20)),
    ]
    return report(*study(per_factor=True, name="pick-place"), outcome=outcome, notes=["A note."])


@pytest.fixture(scope="module")
def group_text(group: ReportInput) -> str:
    return render(group)


def test_sections_stand_in_order_and_ids_are_unique(group_text: str) -> None:
    page = Page(group_text)
    sections = [attributes["id"] for tag, attributes in page.tags if tag == "section"]
    assert sections == ["outcome", *SECTIONS]
    assert len(set(page.ids)) == len(page.ids)
    targets = re.findall(r'(?:href="#|url\(#)([^")]+)', group_text)
    assert targets
    assert set(targets) <= set(page.ids)


def test_seeds_that_led_to_different_orders_are_told_one_by_one(group: ReportInput) -> None:
    by_seed = {0: {"background": 100, "lighting": 0}, 1: {"camera_pose": 50, "distractor": 50}}
    row = OutcomeRow("top", 0.7, 0.683, 0.66, 0.706, 3000, by_seed[0], by_seed=by_seed)
    text = render(replace(group, outcome=[row]))
    assert "seed 0: background 100<br>seed 1: camera pose 50, distractor 50" in text


def test_nothing_is_loaded_from_elsewhere(group_text: str) -> None:
    page = Page(group_text)
    assert "http://" not in group_text
    assert "https://" not in group_text
    assert "@import" not in group_text
    assert "xlink" not in group_text
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in page.tags}
    for _, attributes in page.tags:
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")


def test_the_answer_is_told_first(group: ReportInput, group_text: str) -> None:
    page = Page(group_text)
    headline = group.recommendations["top"]
    steepest = max(headline.curves, key=lambda curve: curve.slope)
    words = page.words
    assert "Collect 50 camera pose and 50 distractor demos." in words
    gain = 100 * (steepest.predicted - steepest.now)
    assert f"Their curve predicts +{gain:.1f} points, from {steepest.now:.1%} to {steepest.predicted:.1%}." in words
    assert words.index("Collect 50") < words.index("What to collect")
    assert "A note." in words


def test_figures_and_tables_are_accessible(group_text: str) -> None:
    page = Page(group_text)
    figures = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(figures) == 4  # three curves and the outcome
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in figures)
    assert any("camera pose + distractor: measured" in (attributes["aria-label"] or "") for attributes in figures)
    headers = [attributes for tag, attributes in page.tags if tag == "th"]
    assert headers
    assert all(attributes.get("scope") in ("col", "row", "colgroup") for attributes in headers)
    assert ("html", {"lang": "en"}) in page.tags


def test_every_number_needed_to_recompute_is_there(group: ReportInput, group_text: str) -> None:
    words = Page(group_text).words
    for curve in group.recommendations["top"].curves:
        for value in (f"{curve.curve.a:.9g}", f"{curve.curve.b:.9g}", f"{curve.slope:.6g}"):
            assert value in words


def test_the_strategies_stand_side_by_side_with_their_numbers(group: ReportInput, group_text: str) -> None:
    strategies = group_text[group_text.index('<section id="strategies"') : group_text.index('<section id="curves"')]
    amounts = [int(value) for value in re.findall(r'class="amount">(\d+)<', strategies)]
    assert amounts == [n for answer in group.recommendations.values() for n in answer.allocation.values()]


def test_per_factor_scores_become_heat_cells(group: ReportInput, group_text: str) -> None:
    assert group_text.count('<td class="heat') == len(group.runs) * len(VISUAL)
    assert '<td class="heat' not in render(report(*study()))


@pytest.mark.parametrize("field", ["name", "note", "strategy", "label", "created", "varied", "title"])
def test_everything_a_user_writes_is_escaped(field: str) -> None:
    bad = "<script>alert(1)</script>\"'&"
    spec, results = study(name=bad if field == "name" else "plain")
    given = report(spec, results)
    score = Score(0.5, 10, Interval(0.3, 0.7))
    changes: dict[str, dict[str, Any]] = {
        "name": {},
        "note": {"notes": [bad]},
        "strategy": {
            "recommendations": {bad: given.recommendations["top"]},
            "outcome": [OutcomeRow(bad, None, 0.5, 0.4, 0.6, 10, {bad: 3})],
        },
        "label": {"runs": [RunLine(bad, {"lighting": 3}, 0, bad, score)]},
        "created": {"created": bad},
        "varied": {"runs": [RunLine("a", {}, None, "done", score, {bad: score})]},
        "title": {"extra_figures": [(bad, bad, curves_figure(spec, given.recommendations["top"]))]},
    }
    text = render(replace(given, **changes[field]))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert not any("alert(1)" in name for _, attributes in Page(text).tags for name in attributes)


def test_the_same_input_gives_the_same_bytes_in_another_process() -> None:
    program = (
        "import sys; sys.path.insert(0, '.')\n"
        "from tests.report.cases import report, study\n"
        "from factored_scaling.report import render\n"
        "sys.stdout.buffer.write(render(report(*study())).encode())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1234"}
    command, root = [sys.executable, "-c", program], Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, check=True)
    assert done.stdout == render(report(*study())).encode()


@pytest.mark.parametrize(
    ("names", "construction", "curves"),
    [((*VISUAL, *SPATIAL), "pair", 28), ((*VISUAL, *SPATIAL), "one", 8), (VISUAL[:1], "one", 1)],
)
def test_any_number_of_curves(names: tuple[str, ...], construction: str, curves: int) -> None:
    text = render(report(*study(names, construction), budget=500))
    page = Page(text)
    assert page.count("svg") == curves
    assert len(set(page.ids)) == len(page.ids)


def test_scores_without_trials_have_no_intervals() -> None:
    text = render(report(*study(trials=None)))
    runs = text[text.index('<section id="runs"') : text.index('<section id="warnings"')]
    assert "60.0%" in runs
    assert "60.0% (" not in runs
    assert "nan" not in text.lower()


def test_before_any_result_there_is_an_equal_share() -> None:
    spec = StudySpec(factors=dict.fromkeys(VISUAL, 30), name="new")
    given = ReportInput(spec, Results(), {"equal": recommend(spec, Results(), 100, "equal")}, (), "today")
    page = Page(render(given))
    assert page.count("svg") == 0
    assert "Collect 20 demos of each of the 5 factors." in page.words
    assert "there are no curves yet" in page.words
    assert "No runs yet." in page.words


def test_curves_that_do_not_rise_are_called_flat() -> None:
    given = report(*study(steep=dict.fromkeys(VISUAL, -0.1)))
    words = Page(render(given)).words
    assert "No curve rises, so the curves do not rank the factors." in words
    assert words.count(" flat at ") == 3
    assert "fall by" in words
    assert "1 warning to read" in words


def test_a_warning_of_some_strategies_names_them() -> None:
    given = report(*study())
    warned = replace(given.recommendations["all"], warnings=("look here",))
    words = Page(render(replace(given, recommendations={**given.recommendations, "all": warned}))).words
    assert "all: look here" in words


def test_unfinished_runs_are_counted_and_shown() -> None:
    given = report(*study())
    waiting = RunLine("run 11", dict.fromkeys(VISUAL, 30), 1, "pending")
    words = Page(render(replace(given, runs=[*given.runs, waiting]))).words
    assert "10 of 11 policies" in words
    assert "run 11 1 pending" in words


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    given = report(*study(VISUAL[:2]))
    path = write_report(given, tmp_path / "new" / "report.html")
    before = path.read_bytes()
    assert before.decode() == render(given)
    with pytest.raises(InvalidInput):
        write_report(replace(given, recommendations={}), path)
    assert path.read_bytes() == before
    with pytest.raises(InvalidInput, match="cannot be written"):
        write_report(given, path / "below.html")
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]


def test_importing_the_report_loads_no_drawing_library() -> None:
    program = "import sys, factored_scaling.report; print({'matplotlib', 'jinja2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "set()"
