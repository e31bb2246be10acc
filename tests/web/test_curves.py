"""The Curves page follows `recommend`, for any budget, and computes nothing twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.web.conftest import client_of, measure

from factored_scaling.core.spec import StudySpec
from factored_scaling.model.recommend import recommend
from factored_scaling.report.model import factor_words
from factored_scaling.study import Study, snapshot
from factored_scaling.web.curves import Curves


@pytest.mark.parametrize("budget", [1, 40, 500])
@pytest.mark.parametrize("strategy", ["auto", "top", "all", "equal"])
def test_the_page_says_what_recommend_says(measured: Study, budget: int, strategy: str) -> None:
    study = measured
    with client_of(study) as client:
        content = client.get(f"/curves.json?budget={budget}&strategy={strategy}").json()
    found = recommend(study.spec, study.results(), budget, strategy)
    assert [row["amount"] for row in content["allocation"]] == list(found.allocation.values())
    assert {curve["label"] for curve in content["curves"]} == {"camera pose", "lighting"}
    for report in found.curves:
        label = report.curve.combination.label.replace("_", " ")
        curve = next(curve for curve in content["curves"] if curve["label"] == label)
        n, predicted, low, high = curve["line"][-1]
        assert (n, predicted) == (30 + budget, pytest.approx(report.predicted, abs=1e-5))
        assert low <= high
        assert [point["n"] for point in curve["points"]] == list(report.curve.points.n)
        assert all(point["low"] < point["score"] < point["high"] for point in curve["points"])


def test_auto_shows_the_predicted_success_along_every_factor(measured: Study) -> None:
    with client_of(measured) as client:
        content = client.get("/curves.json?budget=40").json()
        page = client.get("/curves?budget=40").text
    found = recommend(measured.spec, measured.results(), 40)
    assert found.summary is not None
    assert content["fit"] == "response-model"
    cards = content["factors"]["curves"]
    expected = {curve.factor.replace("_", " "): curve for curve in found.summary.curves}
    assert [card["label"] for card in cards] == ["camera pose", "lighting"], "best first"
    bottom, top = content["factors"]["limits"]
    for card in cards:
        curve = expected[card["label"]]
        assert card["mark"] == 30 + found.allocation[curve.factor]
        assert [row[0] for row in card["line"]] == pytest.approx(curve.demos, abs=0.01)
        assert card["line"][-1][1:] == pytest.approx(
            [getattr(curve.overall[-1], key) for key in ("mean", "low", "high")], abs=1e-5
        )
        assert card["points"] == [], "these trials varied the lighting alone, the line is over all"
        assert all(bottom <= value <= top for row in card["line"] for value in row[1:])
    assert "Gain from each factor" in page
    assert factor_words(found.summary, expected["lighting"]) in page


def test_a_trial_that_failed_is_on_the_scale(tmp_path: Path) -> None:
    spec = StudySpec({"a": 30, "b": 30}, construction="one", points=3)
    with Study.create(spec, tmp_path / "study.db") as study, client_of(study) as client:
        for run in range(1, 5):
            study.tell(run, [1] * 950 + [0] * 50)
        study.tell(5, [0])
        content = client.get("/curves.json?budget=20").json()["factors"]
        bottom, _ = content["limits"]
        assert (
            min(row[2] for card in content["curves"] for row in card["line"]) > 0.1
        )  # the bands alone would not show it
        assert min(point["score"] for card in content["curves"] for point in card["points"]) == bottom == 0.0


def test_a_study_without_curves_still_has_the_response_model(tmp_path: Path) -> None:
    spec = StudySpec(dict.fromkeys("abcd", 30), construction="screen", name="screened")
    with Study.create(spec, tmp_path / "study.db") as study, client_of(study) as client:
        while runs := study.ask():
            for run in runs:
                study.tell(run.id, [1] * (40 + run.demos["a"]) + [0] * (60 - run.demos["a"]))
        content = client.get("/curves.json?budget=20").json()
        assert content["curves"] == []
        assert content["factors"]["curves"][0]["label"] == "a"
        assert client.get("/curves?budget=20").status_code == 200
        assert client.get("/curves.json?budget=20&strategy=top").status_code == 409


def test_the_page_itself_holds_the_answer_for_those_without_scripts(study: Study, client: TestClient) -> None:
    measure(study, 5)
    text = client.get("/curves?budget=64&strategy=top").text
    assert "Collect 64 camera pose demos." in text
    assert 'value="64"' in text
    assert "<option selected>top</option>" in text
    assert "remix" not in text, "its weights are not there"


def test_without_scores_the_page_says_what_is_missing(client: TestClient) -> None:
    page = client.get("/curves")
    assert page.status_code == 200
    assert "There are no curves yet." in page.text
    assert "controls" not in page.text
    assert "curves.js" not in page.text, "nothing asks for curves that do not exist"
    for strategy in ("top", "greedy"):
        other = client.get(f"/curves?strategy={strategy}").text
        assert "They appear when the first policy is measured." in other, "one sentence, whatever the strategy"
        assert "<form" in other, "one can go back to auto"
    answer = client.get("/curves.json")
    assert answer.status_code == 409
    assert "needs scores" in answer.json()["error"]


@pytest.mark.parametrize(
    "query",
    ["budget=0", "budget=-5", "budget=1e3", "budget=x", "budget=100001", "strategy=best", "strategy=" + "x" * 99],
)
def test_malformed_questions_are_refused(measured: Study, query: str) -> None:
    with client_of(measured) as client:
        assert client.get(f"/curves.json?{query}").status_code == 422
        assert client.get(f"/curves?{query}").status_code == 422


def test_an_answer_is_computed_once_until_something_new_is_measured(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(study, 4)
    asked: list[int] = []

    def counted(*given: object, **options: object) -> object:
        asked.append(1)
        return recommend(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(snapshot, "recommend", counted)
    curves = Curves(study)
    first = curves.answer(50, "auto")
    assert curves.answer(50, "auto") is first
    curves.answer(51, "auto")
    assert len(asked) == 2
    measure(study, 1)
    second = curves.answer(50, "auto")
    assert len(asked) == 3
    assert json.dumps(second) != json.dumps(first)


def test_remix_is_offered_when_its_weights_are_there(study: Study, client: TestClient) -> None:
    study.store.put_document(study.id, "remix", "weights", {"weights": {"camera_pose": 0.25, "lighting": 0.75}})
    assert "<option>remix</option>" in client.get("/curves").text
    content = client.get("/curves.json?budget=100&strategy=remix").json()
    assert [row["amount"] for row in content["allocation"]] == [25, 75]
