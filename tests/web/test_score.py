"""The scoring page's addresses: claims, entries that count once, undo, forms without scripts, and what stays hidden."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.web.conftest import HERE, NETWORK, TOKEN, bench_spec, client_of, towel_spec

from factored_scaling.core.spec import StudySpec
from factored_scaling.scoring.session import Scoring
from factored_scaling.study import Study
from factored_scaling.web.access import Access
from factored_scaling.web.score import seconds_left

FORM = {"Origin": HERE, "Content-Type": "application/x-www-form-urlencoded"}
MALFORMED: list[tuple[dict[str, Any], int]] = [
    ({"score": 0.3}, 422),
    ({"score": "1"}, 422),
    ({"score": True}, 422),
    ({"score": 2}, 422),
    ({"score": None}, 422),
    ({"kind": "guess"}, 422),
    ({"kind": ["score"]}, 422),
    ({"code": "ZZZZ"}, 404),
    ({"code": "x" * 500}, 422),
    ({"code": ""}, 422),
    ({"token": ""}, 422),
    ({"token": "x" * 500}, 422),
    ({"operator": ""}, 422),
    ({"operator": "x" * 61}, 422),
    ({"operator": "a\u0000b"}, 422),
    ({"operator": 7}, 422),
    ({"note": "x" * 2001}, 422),
    ({"note": "\ud800"}, 422),
    ({"ending": "boredom"}, 422),
    ({"run_id": 1}, 422),
]
BODIES = [
    (b"{", "application/json", 400),
    (b"\xff\xfe", "application/json", 400),
    (b"[" * 50_000, "application/json", 400),
    (b"[]", "application/json", 422),
    (b"1", "application/json", 422),
    (b"{}", "application/json", 422),
    (b"{}", "text/plain", 415),
    (b"{}", "multipart/form-data; boundary=x", 415),
    (b"code=%ff", "application/x-www-form-urlencoded", 400),
    (b"&".join(b"a=1" for _ in range(50)), "application/x-www-form-urlencoded", 400),
]


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    """Five policies, two scenes, two repeats: twenty trials, none queued yet."""
    with Study.create(towel_spec(), tmp_path / "study.db") as opened:
        yield opened


@pytest.fixture
def scoring(study: Study) -> Scoring:
    return Scoring.begin(study, seed=5)


def following(client: TestClient, operator: str = "ada") -> dict[str, Any]:
    answer = client.post("/score/1/next", json={"operator": operator})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def entry(client: TestClient, code: str, operator: str = "ada", **more: Any) -> Any:
    body = {"operator": operator, "kind": "score", "code": code, "token": f"{operator} {code}", **more}
    return client.post("/score/1/entry", json=body)


def test_a_day_of_two_operators_gives_every_trial_once(scoring: Scoring, client: TestClient) -> None:
    given: list[str] = []
    while trials := [(who, found["trial"]) for who in ("ada", "grace") if (found := following(client, who))["trial"]]:
        assert len({trial["code"] for _, trial in trials}) == len(trials), "two have the same trial"
        for who, trial in trials:
            given.append(trial["code"])
            assert entry(client, trial["code"], who, score=0.5).json()["counted"]
    assert sorted(given) == sorted(trial.code for trial in scoring.trials())
    assert {trial.operator for trial in scoring.trials()} == {"ada", "grace"}
    assert client.post("/score/1/close", json={}).json() == {"trials": 20}
    assert sum(run.trials for run in scoring.study.runs()) == 20


def test_a_score_brings_the_next_trial_and_a_resend_counts_once(scoring: Scoring, client: TestClient) -> None:
    first = following(client)["trial"]
    assert following(client)["trial"] == first, "asking again gives the same"
    answer = entry(client, first["code"], score=1.0).json()
    assert answer["counted"]
    assert answer["trial"]["code"] != first["code"]
    assert answer["last"]["said"] == "folded"
    again = entry(client, first["code"], score=1.0).json()
    assert not again["counted"]
    assert again["trial"] == answer["trial"]
    assert again["progress"]["scored"] == 1
    other = entry(client, first["code"], score=0.5)
    assert other.status_code == 422, "the token stands for another score"
    assert scoring.trial(first["code"]).score == 1.0


def test_what_changed_in_the_scene_is_marked(scoring: Scoring, client: TestClient) -> None:
    first = following(client)["trial"]
    assert all(row["changed"] for row in first["setting"])
    second = entry(client, first["code"], score=1.0).json()["trial"]
    assert not any(row["changed"] for row in second["setting"]), "the order spares set-ups"


def scene_of(trial: dict[str, Any]) -> list[tuple[str, str | None, bool, bool]]:
    return [(row["factor"], row["value"], row["changed"], row["back"]) for row in trial["setting"]]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Scoring]:
    """Two policies, two scenes, twice each. The scene changes with every second trial."""
    with Study.create(bench_spec(), tmp_path / "bench.db") as study:
        yield Scoring.begin(study, [1, 2], seed=5)


def test_every_trial_lists_the_whole_scene_and_what_goes_back_to_normal(bench: Scoring) -> None:
    with client_of(bench.study) as client:
        trial = following(client)["trial"]
        assert trial["advice"] == "Set up the whole scene."
        assert [row[0] for row in scene_of(trial)] == ["camera pose", "lighting", "table"]
        seen = [scene_of(trial)]
        for _ in range(7):
            trial = entry(client, trial["code"], score=1.0).json()["trial"]
            seen.append(scene_of(trial))
    lit = [("camera pose", None, False, False), ("lighting", "red lamp", False, False)]
    posed = [("camera pose", "far left", False, False), ("lighting", None, False, False)]
    to_posed = [("camera pose", "far left", True, False), ("lighting", None, True, True)]
    to_lit = [("camera pose", None, True, True), ("lighting", "red lamp", True, False)]
    table = [("table", None, False, False)]
    for before, now in itertools.pairwise(seen):
        was, wants = before[1][1], now[1][1]
        if was == wants:
            assert now == (lit if wants else posed) + table
        else:
            assert now == (to_lit if wants else to_posed) + table
    assert any(row[3] for now in seen for row in now), "this queue never goes back"


def test_after_a_skip_or_an_undo_the_whole_scene_is_to_be_checked(bench: Scoring) -> None:
    with client_of(bench.study) as client:
        first = following(client)["trial"]
        second = entry(client, first["code"], kind="skip").json()["trial"]
        assert second["advice"] == "Your last trial was skipped. Check the whole scene."
        assert all(row["changed"] and not row["back"] for row in second["setting"])
        third = entry(client, second["code"], score=1.0).json()["trial"]
        assert third["known"]
        again = entry(client, second["code"], kind="undo", token="u").json()["trial"]
        assert again["advice"] == "This trial was taken back. Check the whole scene."
        assert all(row["changed"] for row in again["setting"])


def test_operators_are_told_that_others_may_have_changed_the_scene(bench: Scoring) -> None:
    with client_of(bench.study) as client:
        held = {who: following(client, who)["trial"] for who in ("ada", "grace")}
        held["ada"] = entry(client, held["ada"]["code"], "ada", score=1.0).json()["trial"]
        assert "Others" not in held["ada"]["advice"]
        held["grace"] = entry(client, held["grace"]["code"], "grace", score=1.0).json()["trial"]
        assert "Others" not in held["grace"]["advice"]
        assert "if you share a robot, check the whole scene" in following(client, "ada")["trial"]["advice"]


def test_a_skipped_trial_is_not_among_the_scores_of_an_operator(scoring: Scoring, client: TestClient) -> None:
    trial = entry(client, following(client)["trial"]["code"], score=1.0).json()["trial"]
    now = entry(client, trial["code"], kind="skip").json()
    assert (now["progress"]["scored"], now["progress"]["skipped"], now["progress"]["mine"]) == (1, 1, 1)
    client.post("/score/name", data={"name": "ada"}, headers=FORM)
    assert "over 1 trial, 0 of them scored by you" in _page(client)


def test_a_note_survives_undo_for_who_wrote_it(scoring: Scoring, client: TestClient) -> None:
    code = following(client)["trial"]["code"]
    entry(client, code, score=0.25, note="slipped <twice>")
    entry(client, code, kind="note", token="n", note="left hand")
    undone = entry(client, code, kind="undo", token="u").json()["trial"]
    assert (undone["draft"], undone["notes"]) == ("slipped <twice>; left hand", [])
    assert entry(client, code, score=1.0, token="s").json()["last"]["notes"] == []
    assert entry(client, code, kind="undo", token="v").json()["trial"]["draft"] == "", "it was not sent again"
    entry(client, code, score=1.0, token="w", note="mine")
    entry(client, code, kind="undo", token="x")
    scoring.release("ada")
    other = following(client, "grace")["trial"]
    assert (other["code"], other["draft"]) == (code, "")


def test_undo_brings_the_trial_back(scoring: Scoring, client: TestClient) -> None:
    first = following(client)["trial"]
    entry(client, first["code"], score=0.25)
    undone = entry(client, first["code"], kind="undo", token="u").json()
    assert undone["trial"]["code"] == first["code"]
    assert undone["last"] is None
    assert not entry(client, first["code"], kind="undo", token="u").json()["counted"]
    assert entry(client, first["code"], score=1.0, token="second").json()["last"]["score"] == 1.0
    assert [row.entry.kind for row in scoring.history()] == ["score", "undo", "score"]


@pytest.mark.parametrize("ending", ["hazard", "step limit"])
def test_hazard_and_step_limit_score_nothing_and_say_why(scoring: Scoring, client: TestClient, ending: str) -> None:
    code = following(client)["trial"]["code"]
    answer = entry(client, code, ending=ending, note=" it hit <the> table ").json()
    assert (answer["last"]["score"], answer["last"]["said"]) == (0.0, ending)
    assert scoring.trial(code).notes == ("it hit <the> table",)


def test_a_trial_can_be_left_out_and_given_back(scoring: Scoring, client: TestClient) -> None:
    code = following(client)["trial"]["code"]
    answer = entry(client, code, kind="skip", note="lamp broke").json()
    assert answer["progress"]["skipped"] == 1
    held = answer["trial"]["code"]
    assert client.post("/score/1/release", json={"operator": "ada"}).json()["trial"] is None
    assert following(client, "grace")["trial"]["code"] == held


def test_another_operators_trial_and_a_scored_one_are_conflicts(scoring: Scoring, client: TestClient) -> None:
    code = following(client)["trial"]["code"]
    refused = entry(client, code, "grace", score=1.0)
    assert refused.status_code == 409
    assert "ada is running it" in refused.json()["error"]
    entry(client, code, score=1.0)
    assert entry(client, code, "grace", score=0.0).status_code == 409
    assert entry(client, code, kind="undo", token="x").status_code == 200
    assert entry(client, code, kind="undo", token="y").status_code == 409
    assert scoring.progress().scored == 0


def test_closing_needs_every_trial_and_is_final(scoring: Scoring, client: TestClient) -> None:
    assert client.post("/score/1/close", json={}).status_code == 422
    while trial := following(client)["trial"]:
        entry(client, trial["code"], score=1.0)
    code = scoring.trials()[0].code
    assert client.post("/score/1/close", json={}).status_code == 200
    assert entry(client, code, kind="undo", token="late").status_code == 409
    assert following(client)["closed"]


# --- malformed


def test_malformed_entries_are_refused_and_change_nothing(scoring: Scoring, client: TestClient) -> None:
    code = following(client)["trial"]["code"]
    good = {"operator": "ada", "kind": "score", "code": code, "token": "t", "score": 1.0}
    for change, status in MALFORMED:
        body = json.dumps({**good, **change})
        answer = client.post("/score/1/entry", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == status, (change, answer.text)
        assert answer.json()["error"]
    assert not scoring.history()


def test_malformed_bodies_have_their_status(scoring: Scoring, client: TestClient) -> None:
    for body, kind, status in BODIES:
        answer = client.post("/score/1/entry", content=body, headers={"Content-Type": kind})
        assert answer.status_code == status, (body[:20], kind)
    assert not scoring.history()


def test_unknown_evaluations_are_not_found(scoring: Scoring, client: TestClient) -> None:
    assert client.post("/score/2/next", json={"operator": "ada"}).status_code == 404
    assert client.post("/score/x/next", json={"operator": "ada"}).status_code == 422
    assert client.post("/score/0/next", json={"operator": "ada"}).status_code == 422
    assert client.get("/score/1/entry").status_code == 405


def test_writing_scores_needs_the_token_and_our_own_page(study: Study, scoring: Scoring) -> None:
    with client_of(study, Access(TOKEN, None), NETWORK) as network:
        for path in ("/score/1/next", "/score/1/entry", "/score/1/close", "/score/1/release", "/score/name"):
            assert network.post(path, json={"operator": "ada"}).status_code == 401
        network.get(f"/?token={TOKEN}")
        evil = {"Origin": "http://evil.example"}
        for path in ("/score/1/next", "/score/1/entry", "/score/1/close", "/score/1/release", "/score/name"):
            assert network.post(path, json={"operator": "ada"}, headers=evil).status_code == 403
    assert not scoring.history()
    assert not any(trial.claimed for trial in scoring.trials())


# --- the page without scripts


def _page(client: TestClient) -> str:
    answer = client.get("/score", headers={"Accept": "text/html"})
    assert answer.status_code == 200
    return answer.text


def _hidden(text: str, name: str, form: str = "trial") -> str:
    part = text[text.index(f'id="{form}"') :]
    found = re.search(rf'name="{name}" value="([^"]*)"', part)
    assert found is not None
    return found[1]


def test_the_whole_day_works_with_plain_forms(scoring: Scoring, client: TestClient) -> None:
    assert "Who is scoring?" in _page(client)
    answer = client.post("/score/name", data={"name": "  Ada <b>  "}, headers=FORM)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/score")
    assert "Ready." in _page(client), "nothing is claimed by looking"
    assert not any(trial.claimed for trial in scoring.trials())
    client.post("/score/1/next", data={}, headers=FORM)
    text = _page(client)
    assert "Ada &lt;b&gt; (" in text
    form = {"code": _hidden(text, "code"), "token": _hidden(text, "token"), "choice": "score:0.5", "note": "near"}
    for _ in range(2):  # pressed twice
        assert client.post("/score/1/entry", data=form, headers=FORM).status_code == 303
    assert scoring.progress().scored == 1
    assert scoring.trial(form["code"]).notes == ("near",)
    text = _page(client)
    assert _hidden(text, "code") != form["code"]
    assert _hidden(text, "token") != form["token"]
    undo = {"code": _hidden(text, "code", "undo"), "token": _hidden(text, "token", "undo"), "choice": "undo"}
    assert client.post("/score/1/entry", data=undo, headers=FORM).status_code == 303
    assert scoring.progress().scored == 0
    while scoring.progress().left:
        text = _page(client)
        form = {"code": _hidden(text, "code"), "token": _hidden(text, "token"), "choice": "ending:step limit"}
        client.post("/score/1/entry", data=form, headers=FORM)
    assert "Every trial is scored." in _page(client)
    assert client.post("/score/1/close", data={}, headers=FORM).status_code == 303
    assert "Finished." in _page(client)


def test_a_queue_that_was_dropped_says_so(study: Study, client: TestClient) -> None:
    scoring = Scoring.begin(study)
    assert client.post("/score/name", data={"name": "Ada"}, headers=FORM).status_code == 303
    scoring.close(early=True)
    assert "Dropped." in _page(client)
    assert "Finished." not in _page(client)
    assert "· dropped" in client.get("/").text


def test_a_form_without_a_name_or_with_a_bad_choice_is_refused(scoring: Scoring, client: TestClient) -> None:
    assert client.post("/score/1/next", data={}, headers=FORM).status_code == 409
    assert client.post("/score/name", data={"name": " "}, headers=FORM).status_code == 422
    client.post("/score/name", data={"name": "ada"}, headers=FORM)
    code = scoring.trials()[0].code
    for choice in ("", "score:", "score:x", "score:nan", "ending:", "ending:x", "explode"):
        form = {"code": code, "token": "t", "choice": choice}
        assert client.post("/score/1/entry", data=form, headers=FORM).status_code == 422, choice
    assert not scoring.history()


def test_two_phones_with_one_name_are_two_operators(study: Study, scoring: Scoring) -> None:
    codes = []
    for _ in range(2):
        with client_of(study) as phone:
            phone.post("/score/name", data={"name": "ada"}, headers=FORM)
            phone.post("/score/1/next", data={}, headers=FORM)
            codes.append(_hidden(_page(phone), "code"))
    assert codes[0] != codes[1]


def test_without_a_queue_the_page_says_how_to_make_one(client: TestClient) -> None:
    assert "fsc sheet evaluate" in _page(client)


# --- what stays hidden


def test_nothing_served_to_an_operator_tells_the_policy(study: Study, scoring: Scoring, client: TestClient) -> None:
    """Every answer of a whole evaluation, the overview's scores and the curves included, until it is closed."""
    digests = {run.digest[:8] for run in study.runs()}
    client.post("/score/name", data={"name": "ada"}, headers=FORM)
    before = client.get("/").text
    answers = []
    while trial := following(client)["trial"]:
        headers = {"X-Part": "1"}
        body = {"operator": "ada", "kind": "score", "code": trial["code"], "token": trial["code"], "score": 1.0}
        answers.append(client.post("/score/1/entry", json=body, headers=headers).text)
        answers.append(_page(client))
    served = "\n".join(answers)
    assert not any(digest in served for digest in digests)
    assert "run_id" not in served
    assert "demos" not in served
    rows = re.findall(r"<tbody>.*?</tbody>", before, re.DOTALL)
    assert re.findall(r"<tbody>.*?</tbody>", client.get("/").text, re.DOTALL) == rows, "the overview shows no score yet"
    assert client.get("/curves.json").status_code == 409
    labels = {standing.label for standing in scoring.standings()}
    assert not any(re.search(rf"\b{label}\b", client.get("/").text) for label in labels)
    client.post("/score/1/close", json={})
    assert client.get("/curves.json").status_code == 200


def test_the_overview_shows_how_far_the_scoring_is(scoring: Scoring, client: TestClient) -> None:
    entry(client, following(client)["trial"]["code"], score=1.0)
    text = client.get("/").text
    assert "1 of 20 trials scored · 1 being run" in text


def test_an_older_evaluation_that_is_open_can_be_scored_too(study: Study, client: TestClient) -> None:
    first, second = Scoring.begin(study, [1, 2], seed=1), Scoring.begin(study, [3], seed=2)
    client.post("/score/name", data={"name": "ada"}, headers=FORM)
    assert 'data-evaluation="2"' in _page(client)
    older = client.get("/score?evaluation=1").text
    assert 'data-evaluation="1"' in older
    answer = client.post("/score/1/next", content=b"", headers=FORM)
    assert answer.headers["Location"] == "/score?evaluation=1"
    assert _hidden(client.get("/score?evaluation=1").text, "code") in {trial.code for trial in first.trials()}
    assert not any(trial.claimed for trial in second.trials())
    assert client.get("/score?evaluation=3").status_code == 404
    assert client.get("/score?evaluation=x").status_code == 422


def test_the_time_left_follows_the_pace_of_the_latest_trials_without_breaks() -> None:
    steady = [100.0 * k for k in range(6)]
    assert seconds_left(steady, 7) == 700.0
    assert seconds_left([*steady, 9000.0, 9100.0], 7) == 700.0, "a lunch is no pace"
    assert seconds_left([*[1000.0 * k for k in range(50)], *[50_000 + 60.0 * k for k in range(30)]], 2) == 120.0
    assert seconds_left(steady[:4], 7) is None
    assert seconds_left(steady, 0) is None


def test_levels_of_ones_own_become_buttons(tmp_path: Path) -> None:
    levels = [{"score": score, "name": f"level {score}", "means": f"<{score}>"} for score in (0, 0.1, 0.9, 1)]
    spec = StudySpec({"lighting": 6}, construction="one", scoring={"rubric": levels, "combinations": 1, "repeats": 1})
    with Study.create(spec, tmp_path / "study.db") as study, client_of(study) as client:
        Scoring.begin(study)
        client.post("/score/name", data={"name": "ada"}, headers=FORM)
        client.post("/score/1/next", data={}, headers=FORM)
        found = re.findall(r'value="score:([\d.]+)" class="level l(\d)"', _page(client))
        assert found == [("0.0", "0"), ("0.1", "1"), ("0.9", "3"), ("1.0", "4")]
        assert "&lt;0.9&gt;" in _page(client)
