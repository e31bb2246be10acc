"""`fsc sheet`: a day in the lab by commands."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

RECORDINGS = Path(__file__).parents[1] / "data" / "lerobot" / "v30-image"
STUDY = """\
name: towel
factors:
  camera_pose: {demos: 4, values: [left, right], test_values: [far left, far right]}
  lighting: {demos: 4, test_values: [dusk, red]}
construction: one
points: 2
scoring: {preset: fold-towel, combinations: 2, repeats: 1}
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    folder = tmp_path / "lab"
    folder.mkdir()
    (folder / "study.yaml").write_text(STUDY)
    return folder


def edit(path: Path, column: str, value: Any) -> None:
    """Fill a column of a CSV; `value` is a text or a function of the row."""
    rows = list(csv.DictReader(path.read_text().splitlines()))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        for row in rows:
            writer.writerow({**row, column: value(row) if callable(value) else value})


def test_from_the_sheet_to_curves(fsc: Any, lab: Path) -> None:
    made = fsc("sheet", "evaluate", lab, "--seed", 3)
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines() == [
        f"wrote {lab}/evaluate-1.html",
        f"wrote {lab}/evaluate-1.csv",
        "evaluation 1: 6 trials, 6 to run",
    ]
    page = (lab / "evaluate-1.html").read_text()
    key = json.loads(fsc("sheet", "status", lab, "--unblind", "--json").stdout)
    assert [policy["trials"] for policy in key["policies"]] == [2, 2, 2]
    for policy in key["policies"]:
        assert policy["digest"] not in page
    better = {policy["label"]: policy["demos"]["lighting"] for policy in key["policies"]}
    edit(lab / "evaluate-1.csv", "score", lambda row: "1" if better[row["policy"]] else "0.25")
    assert fsc("sheet", "import", lab, lab / "evaluate-1.csv").stdout == "6 new trials in 6 rows\n"
    assert fsc("fit", lab, "--partial").returncode == 0
    assert fsc("sheet", "close", lab).stdout == "evaluation 1 closed: 6 trials of 3 policies\n"
    assert fsc("sheet", "close", lab).stdout == "evaluation 1 is closed already\n"
    answer = json.loads(fsc("recommend", lab, "--budget", 10, "--strategy", "top", "--json").stdout)
    assert answer["allocation"] == {"camera_pose": 0, "lighting": 10}


def test_a_queue_that_study_yaml_has_outgrown_can_be_dropped(fsc: Any, lab: Path) -> None:
    assert fsc("sheet", "evaluate", lab).stderr == ""
    assert fsc("sheet", "evaluate", lab).stderr == ""
    (lab / "study.yaml").write_text(STUDY.replace("repeats: 1", "repeats: 2"))
    again = fsc("sheet", "evaluate", lab)
    assert "evaluation 1: 6 trials, 6 to run" in again.stdout
    assert again.stderr == (
        "warning: `scoring:` in study.yaml is another since evaluation 1 was queued; "
        f"`fsc sheet close {lab} --early` ends it, and the next is as study.yaml says\n"
    )
    told = fsc("sheet", "close", lab, "--early").stdout
    assert told == (
        f"evaluation 1 dropped: nothing was scored; its policies wait, `fsc sheet evaluate {lab}` queues them anew\n"
    )
    assert "evaluation 2: 12 trials, 12 to run" in fsc("sheet", "evaluate", lab).stdout
    assert "3 pending" in fsc("runs", lab).stdout


def test_the_same_sheet_is_printed_again_with_what_is_recorded(fsc: Any, lab: Path) -> None:
    first = fsc("sheet", "evaluate", lab, "--out", "-").stdout
    code = first.splitlines()[1].split(",")[1]
    assert fsc("sheet", "evaluate", lab, "--out", "-").stdout == first
    sheet = lab / "part.csv"
    sheet.write_text(f"code,score,ended\n{code},,hazard\n")
    assert fsc("sheet", "import", lab, sheet, "--partial", "--operator", "ada").stdout == "1 new trial in 1 row\n"
    fsc("sheet", "evaluate", lab, "--out", lab / "again.html")
    assert "scored (hazard) by ada" in (lab / "again.html").read_text()
    assert fsc("sheet", "undo", lab, code.lower()).stdout == f"trial {code} is open again\n"
    status = json.loads(fsc("sheet", "status", lab, "--json").stdout)
    assert (status["scored"], status["left"], "policies" in status) == (0, 6, False)
    refused = fsc("sheet", "evaluate", lab, "--seed", 1)
    assert refused.returncode == 2
    assert "trials of evaluation 1 are still open" in refused.stderr


@pytest.mark.parametrize("name", ["evaluate-1.csv", "collect-1.csv"])
def test_entries_that_are_not_imported_are_not_overwritten(fsc: Any, lab: Path, name: str) -> None:
    words: dict[str, list[object]] = {"evaluate-1.csv": ["evaluate", lab], "collect-1.csv": ["collect", lab]}
    first = {"evaluate-1.csv": [], "collect-1.csv": ["--allocation", "lighting=2"]}
    column, value, partial = ("score", "1", ["--partial"]) if "evaluate" in name else ("collected", "x", [])
    sheet = lab / name
    assert fsc("sheet", *words[name], *first[name]).returncode == 0
    edit(sheet, column, lambda row: value if row["number"] == "2" else "")
    code = list(csv.DictReader(sheet.read_text().splitlines()))[1]["code"]
    for text in (sheet.read_text(), sheet.read_text().replace(",", ";")):  # as some spreadsheet programs save it
        sheet.write_text(text)
        again = fsc("sheet", *words[name])
        assert again.returncode == 2
        assert "filled in and not imported, the first is" in again.stderr
        assert f"`fsc sheet import {lab} {sheet}" in again.stderr
        assert sheet.read_text() == text
    assert fsc("sheet", *words[name], "--format", "html").returncode == 0
    sheet.write_text(text.replace(";", ","))
    assert f"the first is {code};" in fsc("sheet", *words[name]).stderr
    assert fsc("sheet", "import", lab, sheet, *partial).returncode == 0
    assert fsc("sheet", *words[name]).returncode == 0
    assert f"{code}" in sheet.read_text()
    assert list(csv.DictReader(sheet.read_text().splitlines()))[1][column] == value


def test_for_programs(fsc: Any, lab: Path) -> None:
    sheet = json.loads(fsc("sheet", "evaluate", lab, "--out", "-", "--format", "json").stdout)
    assert (sheet["evaluation"], sheet["step_limit"], len(sheet["trials"])) == (1, 600, 6)
    first = sheet["trials"][0]
    assert set(first["condition"]) == {"camera_pose", "lighting"}
    assert (first["number"], first["repeat"], first["state"], first["score"]) == (1, 1, "open", None)
    fsc("sheet", "collect", lab, "--allocation", "camera_pose=2", "--out", lab / "list.json")
    made = json.loads((lab / "list.json").read_text())
    assert made["allocation"] == {"camera_pose": 2, "lighting": 0}
    assert [demo["value"] for demo in made["demos"]] == ["left", "right"]


def test_only_some_policies(fsc: Any, lab: Path) -> None:
    assert fsc("sheet", "evaluate", lab, "--run", 1, "--format", "csv").stdout.splitlines()[-1] == (
        "evaluation 1: 2 trials, 2 to run"
    )
    assert not (lab / "evaluate-1.html").exists()
    shown = fsc("sheet", "status", lab, "--unblind").stdout
    assert shown.splitlines()[0] == "evaluation 1: 0 of 2 scored, 0 skipped, 2 to run, 0 of them under way"
    (line,) = [line.split() for line in shown.splitlines() if line.endswith("–")]
    assert line[1:] == ["1", "4", "4", "0", "0", "of", "2", "–"]


def test_from_a_recommendation_to_the_next_round(fsc: Any, lab: Path) -> None:
    made = fsc("sheet", "collect", lab, "--allocation", "camera_pose=3", "--allocation", "lighting=1")
    assert made.stdout.splitlines()[-1] == "list 1: 4 demos, 0 collected"
    page = (lab / "collect-1.html").read_text()
    assert page.count('class="qr"') == 4
    edit(lab / "collect-1.csv", "collected", lambda row: "x" if row["factor"] == "camera_pose" else "")
    assert fsc("sheet", "import", lab, lab / "collect-1.csv").stdout == "3 new demos in 4 rows\n"
    assert fsc("sheet", "collect", lab).stdout.splitlines()[-1] == "list 1: 4 demos, 3 collected"
    extended = fsc("extend", lab, "--ticked")
    assert "what was collected differs from the recommendation" in extended.stdout
    assert "3 " in extended.stdout
    again = fsc("extend", lab, "--ticked")
    assert again.returncode == 2
    assert "nothing was ticked off in this round" in again.stderr
    stale = fsc("sheet", "collect", lab)
    assert (stale.returncode, stale.stdout) == (2, "")
    assert "the lists made so far belong to earlier rounds; `fsc sheet collect STUDY --budget K`" in stale.stderr


def test_episodes_on_the_list_become_labels(fsc: Any, lab: Path) -> None:
    fsc("sheet", "collect", lab, "--allocation", "camera_pose=1", "--allocation", "lighting=2")
    refused = fsc("sheet", "labels", lab)
    assert (refused.returncode, "fill in the column episode" in refused.stderr) == (2, True)
    edit(lab / "collect-1.csv", "collected", "x")
    edit(lab / "collect-1.csv", "episode", lambda row: {"1": "2", "2": "0", "3": ""}[row["number"]])
    edit(lab / "collect-1.csv", "value", lambda row: row["value"] or "candle")
    fsc("sheet", "import", lab, lab / "collect-1.csv")
    made = fsc("sheet", "labels", lab, "--out", lab / "labels.csv")
    assert made.stderr == "warning: 1 demos are ticked off without an episode and are left out\n"
    assert (lab / "labels.csv").read_text() == "episode,factor,value\n2,camera_pose,left\n0,lighting,candle\n"
    recordings = Path(shutil.copytree(RECORDINGS, lab / "recordings"))
    labelled = fsc("label", recordings, "--csv", lab / "labels.csv", "--json")
    assert labelled.returncode == 0, labelled.stderr
    assert json.loads(labelled.stdout)["counts"] == {"camera_pose": 1, "lighting": 1}


def test_a_saved_recommendation_is_listed(fsc: Any, study: Path) -> None:
    fsc("import", study, study / "results.csv")
    fsc("recommend", study, "--budget", 12, "--strategy", "top", "--save")
    assert fsc("sheet", "collect", study).stdout.splitlines()[-1] == "list 1: 12 demos, 0 collected"
    assert fsc("sheet", "collect", study).stdout.splitlines()[-1] == "list 1: 12 demos, 0 collected"
    by_budget = fsc("sheet", "collect", study, "--budget", 5, "--strategy", "top", "--out", "-")
    rows = list(csv.DictReader(by_budget.stdout.splitlines()))
    assert [row["factor"] for row in rows] == ["camera_pose"] * 3 + ["distractor"] * 2
    assert by_budget.stderr == "list 2: 5 demos, 0 collected\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sheet", "status", "LAB"], "no trials are queued yet; `fsc sheet evaluate STUDY` queues them"),
        (["sheet", "close", "LAB"], "no trials are queued yet"),
        (["sheet", "collect", "LAB"], "no list of demos was made yet; `fsc sheet collect STUDY --budget K` makes one"),
        (["sheet", "collect", "LAB", "--budget", "3", "--allocation", "lighting=1"], "a budget and an allocation"),
        (["sheet", "collect", "LAB", "--allocation", "lightning=1"], "did you mean lighting"),
        (["sheet", "collect", "LAB", "--budget", "3"], "the response model needs scores of at least one policy"),
        (["sheet", "evaluate", "LAB", "--run", "99"], "no run '99'"),
        (["sheet", "evaluate", "LAB", "--out", "sheet.pdf"], "none of .html, .csv and .json"),
        (["sheet", "import", "LAB", "nowhere.csv"], "nowhere.csv: no such file"),
        (["sheet", "undo", "LAB", "ABCD"], "'ABCD' is no code"),
        (["extend", "LAB", "--ticked", "--as-recommended"], "give one of --collected"),
    ],
)
def test_mistakes_are_one_line(fsc: Any, lab: Path, arguments: list[str], message: str) -> None:
    answer = fsc(*(str(lab) if argument == "LAB" else argument for argument in arguments))
    assert answer.returncode == 2
    assert len(answer.stderr.splitlines()) == 1
    assert message in answer.stderr
    assert fsc("sheet", "status", lab).returncode == 2  # nothing was queued on the way


def test_a_mistake_in_scoring_is_placed(fsc: Any, lab: Path) -> None:
    (lab / "study.yaml").write_text(STUDY.replace("fold-towel, c", "fold-towels, c"))
    answer = fsc("plan", lab)
    assert answer.returncode == 2
    assert "study.yaml: line 7, column 11: scoring.preset: unknown preset 'fold-towels'" in answer.stderr
