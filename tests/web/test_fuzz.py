"""Whatever is sent, the answer is a status of the sender's own fault, and the record stays as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient
from tests.web.conftest import client_of, towel_spec

from factored_scaling.scoring.session import Scoring
from factored_scaling.study import Study

odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=10**300, max_value=10**400),
    st.floats(),
    st.text(max_size=40),
    st.sampled_from(
        ["score", "undo", "skip", "note", "hazard", "step limit", "ada", "\x00", "\ud800", "١", "💥" * 300]
    ),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
names = st.sampled_from(["operator", "kind", "code", "token", "score", "ending", "note", "other", ""])
few = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def scoring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scoring]:
    folder: Path = tmp_path_factory.mktemp("fuzz")
    with Study.create(towel_spec(), folder / "study.db") as study:
        yield Scoring.begin(study, seed=5)


@pytest.fixture(scope="module")
def client(scoring: Scoring) -> Iterator[TestClient]:
    with client_of(scoring.study) as made:
        yield made


@few
@given(fields=st.dictionaries(names, odd), valid=st.booleans())
def test_odd_entries(scoring: Scoring, client: TestClient, fields: dict[str, object], valid: bool) -> None:
    good = {"operator": "ada", "kind": "score", "code": scoring.trials()[0].code, "token": "t"} if valid else {}
    kind = {"Content-Type": "application/json"}
    answer = client.post("/score/1/entry", content=json.dumps({**good, **fields}), headers=kind)
    assert 400 <= answer.status_code < 500 or answer.json()["counted"] in (True, False), answer.text
    assert all(row.entry.kind != "score" or row.entry.score in (0.0, 0.25, 0.5, 1.0) for row in scoring.history())


@few
@given(
    body=st.binary(max_size=200), kind=st.sampled_from(["application/json", "application/x-www-form-urlencoded", ""])
)
def test_odd_bodies(client: TestClient, body: bytes, kind: str) -> None:
    for path in ("/score/1/entry", "/score/1/next", "/score/name", "/score/1/release"):
        answer = client.post(path, content=body, headers={"Content-Type": kind})
        assert answer.status_code < 500, (path, answer.text)


@few
@given(query=st.text(max_size=30), cookie=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60))
def test_odd_addresses_and_cookies(client: TestClient, query: str, cookie: str) -> None:
    text = quote(query, safe="=&")
    for path in (f"/curves?{text}", f"/curves.json?budget={text}", f"/score?evaluation={text}", f"/static/{text}"):
        answer = client.get(path, headers={"Cookie": f"fsc-operator={cookie}"})
        assert answer.status_code < 500, (path, answer.text)
