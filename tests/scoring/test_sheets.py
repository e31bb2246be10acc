"""Sheets that come back filled in: what they say is recorded, what is wrong with them is placed."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from factored_scaling import Study, StudySpec
from factored_scaling.errors import FscError, InvalidInput, StudyMissing
from factored_scaling.scoring import sheets
from factored_scaling.scoring.collection import demos_to_collect
from factored_scaling.scoring.session import Scoring
from factored_scaling.scoring.sheets import (
    begin_collection,
    collected_in_round,
    collection_csv,
    collections,
    evaluation_csv,
    import_sheet,
    listed_in_round,
    open_collection,
)

SPEC = StudySpec(
    {
        "camera_pose": {"demos": 4, "values": ["left", "right"], "test_values": ["far left", "far right"]},
        "lighting": {"demos": 4, "test_values": ["dusk", "red"]},
    },
    construction="one",
    points=2,
    name="towel",
    scoring={"preset": "fold-towel", "combinations": 2, "repeats": 1},
)
Rows = list[dict[str, str]]


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    with Study.create(SPEC, tmp_path / "study.db") as opened:
        yield opened


@pytest.fixture
def scoring(study: Study) -> Scoring:
    return Scoring.begin(study, seed=1)


def rows_of(text: str) -> Rows:
    return list(csv.DictReader(text.splitlines()))


def write(path: Path, rows: Rows) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def filled(scoring: Scoring) -> Rows:
    rows = rows_of(evaluation_csv(scoring))
    for row, score in zip(rows, ("0.5", "1", "0.25", "0", "skip", ""), strict=True):
        row["score"] = score
    rows[3]["note"] = "dropped it"
    rows[5]["ended"] = "hazard"
    return rows


class TestEvaluation:
    def test_the_sheet_says_what_to_do_and_not_which_policy(self, scoring: Scoring) -> None:
        rows = rows_of(evaluation_csv(scoring))
        assert list(rows[0]) == ["number", "code", "policy", "camera_pose", "lighting", "score", "ended", "note"]
        assert [row["number"] for row in rows] == ["1", "2", "3", "4", "5", "6"]
        assert [row["code"] for row in rows] == [trial.code for trial in scoring.trials()]
        assert {row["policy"] for row in rows} == {standing.label for standing in scoring.standings()}
        assert len({(row["camera_pose"], row["lighting"]) for row in rows}) == 2

    def test_every_row_has_the_whole_scene(self, tmp_path: Path) -> None:
        spec = SPEC.changed(scoring={"conditions": [{"lighting": "red"}, {"camera_pose": "far left"}], "repeats": 1})
        with Study.create(spec, tmp_path / "study.db") as study:
            rows = rows_of(evaluation_csv(Scoring.begin(study, seed=1)))
        assert {(row["camera_pose"], row["lighting"]) for row in rows} == {("normal", "red"), ("far left", "normal")}

    def test_a_filled_sheet_comes_back(self, study: Study, scoring: Scoring, tmp_path: Path) -> None:
        sheet = write(tmp_path / "sheet.csv", filled(scoring))
        taken = import_sheet(study, sheet, "ada")
        assert (taken.collection, taken.rows, taken.new) == (False, 6, 6)
        told = [(trial.state, trial.score, trial.ending, trial.notes) for trial in scoring.trials()]
        assert told == [
            ("scored", 0.5, "", ()),
            ("scored", 1.0, "", ()),
            ("scored", 0.25, "", ()),
            ("scored", 0.0, "", ("dropped it",)),
            ("skipped", None, "", ()),
            ("scored", 0.0, "hazard", ()),
        ]
        assert {trial.operator for trial in scoring.trials()} == {"ada"}

    def test_the_same_file_twice_changes_nothing(self, study: Study, scoring: Scoring, tmp_path: Path) -> None:
        sheet = write(tmp_path / "sheet.csv", filled(scoring))
        import_sheet(study, sheet, "ada")
        before = scoring.history()
        assert import_sheet(study, sheet, "ada").new == 0
        assert import_sheet(study, write(tmp_path / "again.csv", rows_of(evaluation_csv(scoring))), "ada").new == 0
        assert scoring.history() == before

    def test_a_correction_needs_an_undo(self, study: Study, scoring: Scoring, tmp_path: Path) -> None:
        rows = filled(scoring)
        import_sheet(study, write(tmp_path / "sheet.csv", rows), "ada")
        rows[1]["score"] = "0.5"
        sheet = write(tmp_path / "sheet.csv", rows)
        with pytest.raises(InvalidInput, match=r"row 2 \(line 3\), column score: trial \w+ is recorded as 1 by ada"):
            import_sheet(study, sheet, "ada")
        scoring.undo(rows[1]["code"], "ada", "undo")
        assert import_sheet(study, sheet, "ada").new == 1
        assert scoring.trial(rows[1]["code"]).score == 0.5

    def test_a_phone_and_a_sheet_go_together(self, study: Study, scoring: Scoring, tmp_path: Path) -> None:
        rows = filled(scoring)
        scoring.score(rows[0]["code"], 0.5, "grace", "phone")
        assert import_sheet(study, write(tmp_path / "sheet.csv", rows), "ada").new == 5

    def test_in_part(self, study: Study, scoring: Scoring, tmp_path: Path) -> None:
        rows = filled(scoring)
        rows[0]["score"] = ""
        sheet = write(tmp_path / "sheet.csv", rows[:3])
        with pytest.raises(InvalidInput, match=r"row 1 \(line 2\), column score: missing; write a score or skip"):
            import_sheet(study, sheet, "ada")
        assert import_sheet(study, sheet, "ada", partial=True).new == 2
        complete = write(tmp_path / "sheet.csv", filled(scoring)[:3])
        with pytest.raises(InvalidInput, match="column code: 3 trials are not on the sheet, the first is"):
            import_sheet(study, complete, "ada")

    def test_letters_of_any_case_and_the_sheets_own_words(self, study: Study, scoring: Scoring, tmp_path: Path) -> None:
        rows = filled(scoring)
        rows[0] |= {"code": rows[0]["code"].lower(), "score": "", "ended": "Time"}
        rows[4]["score"] = "SKIP"
        import_sheet(study, write(tmp_path / "sheet.csv", rows), "ada")
        assert scoring.trials()[0].ending == "step limit"

    @pytest.mark.parametrize(
        ("spoil", "match"),
        [
            (lambda r: r[0].update(score="0.3"), r"row 1 \(line 2\), column score: .*scores are 0, 0.25, 0.5, 1"),
            (lambda r: r[1].update(score="0,5"), r"row 2 \(line 3\), column score: .*write 0\.5"),
            (lambda r: r[1].update(score="good"), "scores are 0, 0.25, 0.5, 1, or skip"),
            (lambda r: r[2].update(score="nan"), r"row 3 \(line 4\), column score"),
            (lambda r: r[2].update(ended="hazzard"), r"row 3 \(line 4\), column ended: .*did you mean hazard"),
            (lambda r: r[1].update(ended="hazard"), "column ended: ended by hazard, and yet the score is 1"),
            (lambda r: r[4].update(ended="hazard"), "column ended: score=skip conflicts with ended"),
            (lambda r: r[1].update(code=r[0]["code"]), r"row 2 \(line 3\), column code: \w+ is already in row 1"),
            (lambda r: r[1].update(code="ABCD"), r"row 2 \(line 3\), column code: 'ABCD' is no code"),
            (lambda r: r[1].update(code=""), r"row 2 \(line 3\), column code: missing"),
            (lambda r: r[1].update(policy="?"), r"column policy: the policy of trial \w+ is \w\d, not \?"),
        ],
    )
    def test_mistakes_are_placed_and_nothing_is_taken_in(
        self, study: Study, scoring: Scoring, tmp_path: Path, spoil: Callable[[Rows], None], match: str
    ) -> None:
        rows = filled(scoring)
        spoil(rows)
        with pytest.raises(InvalidInput, match=match) as caught:
            import_sheet(study, write(tmp_path / "sheet.csv", rows), "ada")
        assert str(caught.value).startswith(str(tmp_path / "sheet.csv"))
        assert scoring.history() == []

    def test_a_sheet_of_another_study_is_noticed(self, study: Study, tmp_path: Path) -> None:
        with Study.create(SPEC, tmp_path / "other.db") as other:
            sheet = write(tmp_path / "sheet.csv", filled(Scoring.begin(other, seed=2)))
        with pytest.raises(StudyMissing, match="no trials are queued yet"):
            import_sheet(study, sheet, "ada")
        Scoring.begin(study, seed=1)
        with pytest.raises(InvalidInput, match="is it an earlier sheet, or one of another study"):
            import_sheet(study, sheet, "ada")

    @pytest.mark.parametrize(
        ("text", "match"),
        [
            ("code,skore\nAAAA,1\n", r"header \(line 1\), column 2: unknown column 'skore'; did you mean score"),
            ("code;score\nAAAA;1\n", "separate the columns by commas"),
            ("code,note\nAAAA,1\n", "no column 'score'"),
            ("score\n1\n", "no column 'code'"),
            ("code,score,score\n", "column 'score' appears twice"),
            ("code,score\nAAAA\n", r"row 1 \(line 2\), column score: 1 cells where the header has 2"),
            ("code,score\n", "has a header but no rows; add a row below the header$"),
            ("", "is empty"),
            ("code,collected,scor\n", "unknown column 'scor'"),
        ],
    )
    def test_what_is_no_sheet(self, study: Study, scoring: Scoring, tmp_path: Path, text: str, match: str) -> None:
        path = tmp_path / "sheet.csv"
        path.write_text(text)
        with pytest.raises(FscError, match=match):
            import_sheet(study, path, "ada")


class TestCollection:
    def test_a_list_comes_back_ticked_off(self, study: Study, tmp_path: Path) -> None:
        collection = begin_collection(study, {"camera_pose": 3, "lighting": 2})
        rows = rows_of(collection_csv(collection))
        assert [(row["factor"], row["value"]) for row in rows] == [
            ("camera_pose", "left"),
            ("camera_pose", "left"),
            ("camera_pose", "right"),
            ("lighting", ""),
            ("lighting", ""),
        ]
        rows[0] |= {"collected": "x", "episode": "17"}
        rows[3] |= {"collected": "Yes", "value": "candle", "note": "smoky"}
        taken = import_sheet(study, write(tmp_path / "list.csv", rows), "ada")
        assert (taken.collection, taken.rows, taken.new) == (True, 5, 2)
        again = open_collection(study)
        assert again.counts() == {"camera_pose": 1, "lighting": 1}
        assert (again.rows[0].episode, again.rows[3].shown, again.rows[3].note) == ("17", "candle", "smoky")
        assert import_sheet(study, write(tmp_path / "list.csv", rows), "ada").new == 0
        assert collected_in_round(study) == {"camera_pose": 1, "lighting": 1}

    def test_the_next_list_begins_with_what_was_shown_least(self, study: Study, tmp_path: Path) -> None:
        rows = rows_of(collection_csv(begin_collection(study, {"camera_pose": 1})))
        rows[0]["collected"] = "x"
        import_sheet(study, write(tmp_path / "list.csv", rows), "ada")
        second = begin_collection(study, {"camera_pose": 1})
        assert (second.number, second.rows[0].demo.value) == (2, "right")
        assert second.rows[0].code != rows[0]["code"]
        assert [collection.number for collection in collections(study)] == [1, 2]

    def test_a_list_does_not_take_the_place_of_one_made_in_the_same_moment(
        self, study: Study, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def late(*given: Any) -> Any:
            """Somebody else makes a list while this one is being put together."""
            monkeypatch.setattr(sheets, "demos_to_collect", demos_to_collect)
            begin_collection(study, {"lighting": 2})
            return demos_to_collect(*given)

        monkeypatch.setattr(sheets, "demos_to_collect", late)
        with pytest.raises(InvalidInput, match=r"there is already a collection 1; .* try again"):
            begin_collection(study, {"camera_pose": 1})
        assert [collection.allocation["lighting"] for collection in collections(study)] == [2]
        assert begin_collection(study, {"camera_pose": 1}).number == 2

    def test_what_was_collected_starts_the_next_round(self, study: Study, tmp_path: Path) -> None:
        rows = rows_of(collection_csv(begin_collection(study, {"camera_pose": 2, "lighting": 1})))
        for row in rows[1:]:
            row["collected"] = "x"
        import_sheet(study, write(tmp_path / "list.csv", rows), "ada")
        order = listed_in_round(study)
        assert order == {"allocation": {"camera_pose": 2, "lighting": 1}, "lists": [1]}
        study.extend(collected_in_round(study), order)
        assert study.spec.sizes == {"camera_pose": 5, "lighting": 5}
        assert (collected_in_round(study), listed_in_round(study)) == ({}, None)

    @pytest.mark.parametrize(
        ("changes", "match"),
        [
            ({"collected": "perhaps"}, r"row 1 \(line 2\), column collected: expected a tick or nothing"),
            ({"collected": "x", "factor": "lighting"}, r"column factor: \w+ is a demo of camera_pose, not lighting"),
            ({"code": "ZZZZ"}, r"row 1 \(line 2\), column code"),
            ({"collected": "x", "episode": "17"}, r"row 2 \(line 3\), column episode: episode 17 is already that of"),
        ],
    )
    def test_mistakes_are_placed(self, study: Study, tmp_path: Path, changes: dict[str, str], match: str) -> None:
        rows = rows_of(collection_csv(begin_collection(study, {"camera_pose": 2})))
        rows[1] |= {"collected": "x", "episode": "17"}
        rows[0] |= changes
        with pytest.raises(InvalidInput, match=match):
            import_sheet(study, write(tmp_path / "list.csv", rows), "ada")
        assert collected_in_round(study) == {}

    def test_without_a_list(self, study: Study) -> None:
        with pytest.raises(StudyMissing, match="no list of demos was made yet"):
            open_collection(study)
        begin_collection(study, {"lighting": 1})
        with pytest.raises(StudyMissing, match="there is no list 2"):
            open_collection(study, 2)
