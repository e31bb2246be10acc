"""Sheets as pages: everything an operator needs, nothing they must not know, safe whatever the names are."""

from __future__ import annotations

import re

from factored_scaling.core.conditions import Condition
from factored_scaling.core.rubric import RUBRICS, rubric_of
from factored_scaling.report.sheets import DemoLine, TrialLine, collection_page, evaluation_page, qr_code

DIM, RED = (Condition((("lighting", value), ("camera_pose", "<left>"))) for value in ("dim", "red"))
NAMES = ("camera_pose", "lighting", "table_height")
LINES = [
    TrialLine(1, "AAAA", "K7", DIM),
    TrialLine(2, "BBBB", "M3", DIM),
    TrialLine(3, "CCCC", "M3", RED, "scored by ada"),
    TrialLine(4, "DDDD", "K7", RED),
]


def test_a_scene_is_set_up_once_for_all_its_trials() -> None:
    page = evaluation_page("towel & mouse", 2, RUBRICS["fold-towel"], 600, LINES, "2026-11-15", NAMES)
    assert page.count('class="scene"') == 2
    assert re.findall(r'class="code">(\w+)<', page) == ["AAAA", "BBBB", "CCCC", "DDDD"]
    assert "towel &amp; mouse" in page
    assert "&lt;left&gt;" in page
    assert "<left>" not in page
    assert "4 trials of 2 policies" in page


def scenes_of(page: str) -> list[str]:
    return [re.sub(r"<(?!/?b>)[^>]*>", "", row) for row in re.findall(r'<tr class="scene">(.*?)</tr>', page)]


def test_every_scene_lists_all_factors_and_what_goes_back_to_normal() -> None:
    lit, posed = Condition((("lighting", "red lamp"),)), Condition((("camera_pose", "far left"),))
    lines = [TrialLine(1, "AAAA", "K7", lit), TrialLine(2, "BBBB", "K7", posed), TrialLine(3, "CCCC", "K7", lit)]
    page = evaluation_page("towel", 1, RUBRICS["success"], None, lines, "2026-11-15", NAMES)
    assert scenes_of(page) == [
        "Scene 1camera pose <b>normal</b> lighting <b>red lamp</b> table height <b>normal</b> ",
        "Scene 2camera pose <b>far left</b> lighting <b>back to normal</b> table height normal ",
        "Scene 3camera pose <b>back to normal</b> lighting <b>red lamp</b> table height normal ",
    ]


def test_a_scene_with_many_trials_is_said_again_on_the_next_page() -> None:
    lines = [TrialLine(number, f"C{number}", "K7", DIM) for number in range(1, 31)]
    page = evaluation_page("towel", 1, RUBRICS["success"], None, lines, "2026-11-15", NAMES)
    first, *rest = scenes_of(page)
    assert first.startswith("Scene 1camera pose <b>")
    assert rest == ["Scene 1, continuedcamera pose &lt;left&gt; lighting dim table height normal "] * 2


def test_every_level_has_a_box_in_every_open_trial() -> None:
    page = evaluation_page("towel", 1, RUBRICS["fold-towel"], 600, LINES, "2026-11-15", NAMES)
    assert page.count('class="box"') == 3 * (4 + 2)  # one of four is scored already; hazard and time have boxes too
    assert "scored by ada" in page
    for level in RUBRICS["fold-towel"].levels:
        assert level.means in page
    without = evaluation_page("towel", 1, rubric_of([{"score": 0}, {"score": 1}]), None, LINES, "2026-11-15", NAMES)
    assert without.count('class="box"') == 3 * (2 + 1)
    assert "steps" not in without


def test_a_list_shows_values_and_asks_for_those_it_does_not_have() -> None:
    lines = [DemoLine(1, "AAAA", "lighting", "dim"), DemoLine(2, "BBBB", "table_height", "", done=True)]
    page = collection_page("towel", 1, lines, 2, "2026-11-15")
    assert page.count('class="qr"') == 2
    assert page.count("pick a new value") == 1
    assert "table height" in page
    assert page.count('class="box"') == 1
    assert "2 demos, 2 set-ups" in page
    assert page.count("back to normal") == 1
    assert "First put lighting back to normal." in page


def test_the_page_needs_nothing_from_elsewhere() -> None:
    pages = [
        evaluation_page("towel", 1, RUBRICS["success"], 600, LINES, "2026-11-15", NAMES),
        collection_page("towel", 1, [DemoLine(1, "AAAA", "lighting", "dim")], 1, "2026-11-15"),
    ]
    for page in pages:
        assert not re.search(r"<script|src=|href=|@import|url\(", page)


def test_codes_look_different() -> None:
    assert qr_code("AAAA") != qr_code("AAAB")
    assert qr_code("AAAA").startswith("<svg")
