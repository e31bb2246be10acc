"""Who is let in, with which answer otherwise; held against every address there is, reading and writing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.web.conftest import HERE, NETWORK, TOKEN, client_of

from factored_scaling.study import Study
from factored_scaling.web.access import COOKIE_DAYS, LARGEST_BODY, LOOPBACK, Access

GUARDED = ("/", "/overview", "/curves", "/curves.json", "/nowhere")
WRITE = "/nowhere"  # the guard stands before every address alike


@pytest.fixture
def network(measured: Study) -> Iterator[TestClient]:
    """A server on a network, asked by a program that does not know the token."""
    with client_of(measured, Access(TOKEN, None), NETWORK) as made:
        yield made


@pytest.fixture
def client(measured: Study) -> Iterator[TestClient]:
    """A program on the same machine."""
    with client_of(measured) as made:
        yield made


def bearer(token: str = TOKEN) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("path", GUARDED)
def test_on_a_network_nothing_is_shown_without_the_token(network: TestClient, path: str) -> None:
    for headers in ({}, bearer("wrong"), {"Cookie": "fsc=1"}, {"Authorization": f"Basic {TOKEN}"}):
        answer = network.get(path, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert "table" not in answer.text
    assert network.get(f"{path}?token=wrong").status_code == 401


def test_with_the_token_everything_is(network: TestClient) -> None:
    assert network.get("/", headers=bearer()).status_code == 200
    assert network.get("/", headers={"Authorization": f"bearer {TOKEN}"}).status_code == 200


def test_a_link_with_the_token_leaves_a_cookie_and_no_token_in_the_address(network: TestClient) -> None:
    answer = network.get(f"/curves?budget=5&token={TOKEN}")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/curves?budget=5")
    cookie = answer.headers["Set-Cookie"]
    assert f"Max-Age={COOKIE_DAYS * 24 * 3600}" in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert (
        "Secure" not in cookie
    )  # the server speaks plain HTTP; behind a proxy with HTTPS the browser adds its own rule
    assert network.get("/").status_code == 200, "the client has the cookie now"


def test_the_link_cannot_lead_elsewhere(network: TestClient) -> None:
    answer = network.get(f"{NETWORK}//elsewhere.example/x?token={TOKEN}")
    assert answer.headers["Location"].startswith("/elsewhere.example")


def test_a_stale_cookie_gives_way_to_a_link(network: TestClient) -> None:
    network.cookies.set(Access(TOKEN).cookie, "stale")
    assert network.get("/").json() == {"error": "the token is wrong"}
    assert network.get(f"/?token={TOKEN}").status_code == 303
    assert Access(TOKEN).cookie != Access(f"{TOKEN}2").cookie, "two servers on one machine share cookies"


def test_odd_cookies_of_other_programs_do_not_shut_one_out(network: TestClient) -> None:
    odd = 'other={"a": [1, 2]}; x; =y; fsc=/\\"'
    for cookie in (f"{odd}; {Access(TOKEN).cookie}={TOKEN}", f"{Access(TOKEN).cookie}={TOKEN}; {odd}"):
        assert network.get("/", headers={"Cookie": cookie}).status_code == 200


def test_a_browser_is_told_in_words_where_the_token_is(network: TestClient) -> None:
    answer = network.get("/", headers={"Accept": "text/html,*/*"})
    assert answer.status_code == 401
    assert "fsc serve" in answer.text
    assert 'name="token"' in answer.text


def test_pictures_and_style_need_no_token(network: TestClient) -> None:
    assert network.get("/static/style.css").status_code == 200
    assert network.get("/static/../app.py").status_code in (401, 404)
    assert network.get("/static/missing.css").status_code == 404


# --- where a write comes from


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": NETWORK, "Sec-Fetch-Site": "same-origin"}, 404),
        ({"Origin": NETWORK}, 404),
        ({"Sec-Fetch-Site": "same-origin"}, 404),
        ({}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://robot.lab.example:9999"}, 403),
        ({"Origin": "http://robot.lab.example"}, 403),
        ({"Origin": f"{NETWORK}.evil.example"}, 403),
        ({"Origin": NETWORK, "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
    ],
)
def test_a_write_by_cookie_comes_from_our_own_page(network: TestClient, headers: dict[str, str], status: int) -> None:
    """404 is what lies behind the guard."""
    network.get(f"/?token={TOKEN}")
    assert network.post(WRITE, json={}, headers=headers).status_code == status


def test_a_program_with_the_token_needs_no_origin_but_may_not_bring_a_wrong_one(network: TestClient) -> None:
    assert network.post(WRITE, json={}, headers=bearer()).status_code == 404
    assert network.post(WRITE, json={}, headers={**bearer(), "Origin": "http://evil.example"}).status_code == 403
    assert network.post(WRITE, json={}, headers=bearer("wrong")).status_code == 401
    assert network.post(f"{WRITE}?token={TOKEN}", json={}).status_code == 401, "a link only ever reads"


def test_on_this_machine_other_pages_may_not_write_but_programs_may(client: TestClient) -> None:
    assert client.post(WRITE, json={}).status_code == 404
    assert client.post(WRITE, json={}, headers={"Origin": HERE}).status_code == 404
    assert client.post(WRITE, json={}, headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.delete(WRITE, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403


# --- names, sizes, headers


@pytest.mark.parametrize("host", ["localhost", "localhost:8765", "127.0.0.1:1", "[::1]:8765", "LOCALHOST"])
def test_on_this_machine_it_answers_to_its_own_names(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8765", "localhost.evil.example", "10.0.0.7"])
def test_a_foreign_name_that_points_here_is_turned_away(client: TestClient, host: str) -> None:
    """DNS rebinding: somebody's page makes its own name mean 127.0.0.1, and would then be of the same origin."""
    assert client.get("/", headers={"Host": host}).status_code == 421
    same = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    assert client.post(WRITE, json={}, headers=same).status_code == 421


@pytest.mark.parametrize("host", ["", "a b", "x/y", "host:port", "@evil"])
def test_a_request_for_no_host_is_malformed(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 400


def test_a_large_request_is_refused_however_it_is_sent(client: TestClient) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(LARGEST_BODY // 1000 + 1):
            yield b"x" * 1000

    assert client.post(WRITE, content=b"x" * (LARGEST_BODY + 1)).status_code == 413
    assert client.post(WRITE, content=pieces()).status_code == 413
    assert client.post(WRITE, content=b"x" * LARGEST_BODY).status_code == 404
    assert client.post(WRITE, content=b"", headers={"Content-Length": "-1"}).status_code == 400


def test_the_length_is_looked_at_after_the_token(network: TestClient) -> None:
    assert network.post(WRITE, content=b"x" * (LARGEST_BODY + 1)).status_code == 401


@pytest.mark.parametrize("path", ["/", "/curves.json", "/static/style.css", "/nowhere"])
def test_every_answer_carries_the_headers(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Cache-Control"]
    assert "Access-Control-Allow-Origin" not in headers


def test_files_are_kept_by_browsers_until_they_change(client: TestClient) -> None:
    address = re.search(r'href="(/static/style\.css\?v=[0-9a-f]{12})"', client.get("/").text)
    assert address is not None
    answer = client.get(address[1])
    assert "immutable" in answer.headers["Cache-Control"]
    assert answer.headers["Content-Type"].startswith("text/css")
    assert client.get("/").headers["Cache-Control"] == "no-store"


def test_unknown_addresses_and_methods_have_their_status(client: TestClient) -> None:
    assert client.get("/nowhere").status_code == 404
    assert client.post("/").status_code == 405
    assert client.get("/docs").status_code == 404
    assert client.get("/openapi.json").status_code == 404


def test_there_are_no_websockets(client: TestClient) -> None:
    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/"):
        pass


def test_an_error_inside_is_logged_and_not_shown(
    measured: Study, client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(measured.store, "outline", broken)
    answer = client.get("/")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "secret" in caplog.text


def test_a_record_that_cannot_be_reached_is_worth_another_try(study: Study) -> None:
    with client_of(study) as client:
        study.close()
        answer = client.get("/")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")


def test_loopback_names_are_those_of_this_machine() -> None:
    assert LOOPBACK == ("localhost", "127.0.0.1", "[::1]")
