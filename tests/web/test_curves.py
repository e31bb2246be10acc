"""The Curves page follows `recommend`, for any budget, and computes nothing twice."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient
from tests.web.conftest import client_of, measure

from factored_scaling.core.recommend import recommend
from factored_scaling.study import Study
from factored_scaling.web import curves as module
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

    monkeypatch.setattr(module, "recommend", counted)
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
