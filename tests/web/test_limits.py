"""Connections that are only held open: they are closed, others are answered meanwhile, and the log stays small."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
import yaml
from tests.web.conftest import Served, wipe_spec

from factored_scaling.study import Study
from factored_scaling.web import limits
from factored_scaling.web.access import Access
from factored_scaling.web.serve import bind, server_for

IDLE = 1200
REQUEST = b"GET /static/style.css HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(wipe_spec().to_mapping(), sort_keys=False))
    return tmp_path


@contextlib.contextmanager
def many_descriptors() -> Iterator[None]:
    """This process holds the other ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * IDLE:
        pytest.skip(f"needs {2 * IDLE} descriptors, the system allows {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * IDLE), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.parametrize("first", [b"", b"GET / HTTP/1.1\r\nHost: 127.0"], ids=["silent", "half a request"])
@pytest.mark.parametrize("files", [1024, 256])
def test_a_page_that_is_open_stays_up_to_date_beside_a_thousand_idle_connections(
    folder: Path, serve: Callable[..., Served], files: int, first: bytes
) -> None:
    log = folder / "log.txt"
    served = serve(folder, "--port", "0", files=files, log=log)
    with many_descriptors(), contextlib.ExitStack() as open_:
        page = open_.enter_context(httpx2.Client(base_url=served.url, timeout=10))
        assert page.get("/").status_code == 200
        tag = ""
        for number in range(IDLE):
            idle = open_.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=10))
            with contextlib.suppress(OSError):  # it may have been closed already
                idle.sendall(first)
            if number % 100 == 0:
                answer = page.get("/overview", headers={"If-None-Match": tag})
                assert answer.status_code == (304 if tag else 200)
                tag = answer.headers["etag"]
        for _ in range(5):
            with httpx2.Client(base_url=served.url, timeout=10) as newcomer:
                assert newcomer.get("/").status_code == 200
            assert page.get("/overview", headers={"If-None-Match": tag}).status_code == 304
    served.stop()
    assert served.process.returncode == 0
    assert log.stat().st_size < 20_000, log.read_text()[:2000]


@pytest.mark.slow
def test_requests_that_nobody_understands_do_not_fill_the_log(folder: Path, serve: Callable[..., Served]) -> None:
    log = folder / "log.txt"
    served = serve(folder, "--port", "0", log=log)
    for _ in range(2000):
        with socket.create_connection(("127.0.0.1", served.port), timeout=10) as strange:
            strange.sendall(b"\x16\x03\x01\x02\x00 not HTTP\r\n\r\n")
            assert strange.recv(100).startswith(b"HTTP/1.1 400")
    assert httpx2.get(served.url, timeout=10).status_code == 200
    served.stop()
    assert 0 < log.stat().st_size < 5_000


@pytest.fixture
def running(study: Study, monkeypatch: pytest.MonkeyPatch) -> uvicorn.Server:
    """A server with short times and few connections."""
    for name, seconds in {"REQUEST_SECONDS": 1.0, "IDLE_SECONDS": 2.0, "WRITE_SECONDS": 1.0}.items():
        monkeypatch.setattr(limits, name, seconds)
    monkeypatch.setattr(limits, "most_connections", lambda: 10)
    return server_for(study, Access())


@contextlib.contextmanager
def serving(running: uvicorn.Server) -> Iterator[tuple[str, int]]:
    """Its address; it runs in a thread of this process."""
    address = bind("127.0.0.1", 0)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [address.socket]})
    thread.start()
    try:
        yield "127.0.0.1", address.port
    finally:
        running.should_exit = True
        thread.join()


@pytest.fixture
def server(running: uvicorn.Server) -> Iterator[tuple[str, int]]:
    """The address of a server with short times and few connections."""
    with serving(running) as address:
        yield address


def closed_within(connection: socket.socket, seconds: float) -> bool:
    """Whether the other side closes; what it still sends is read."""
    connection.settimeout(seconds)
    end = time.monotonic() + seconds
    with contextlib.suppress(ConnectionError):
        try:
            while connection.recv(65536):
                if time.monotonic() > end:
                    return False
        except TimeoutError:
            return False
    return True


@pytest.mark.parametrize("sent", [b"", b"GET / HT", REQUEST, REQUEST + b"X: " + b"y" * 1000])
def test_a_request_that_never_ends_is_closed(server: tuple[str, int], sent: bytes) -> None:
    with socket.create_connection(server, timeout=10) as slow:
        slow.sendall(sent)
        assert closed_within(slow, 8)


def answered(connection: socket.socket) -> None:
    connection.sendall(REQUEST + b"\r\n")
    head = b""
    while b"\r\n\r\n" not in head:
        head += connection.recv(65536)
    head, _, body = head.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    while len(body) < length:
        body += connection.recv(65536)


@pytest.mark.parametrize("before", [0, 1])
def test_a_request_that_comes_byte_by_byte_is_closed(server: tuple[str, int], before: int) -> None:
    """The first of a connection, and one after an answer, when the time for idle connections has been stopped."""
    with socket.create_connection(server, timeout=10) as slow:
        for _ in range(before):
            answered(slow)
        began = time.monotonic()
        with pytest.raises(ConnectionError):  # noqa: PT012  the second write after it was closed
            while time.monotonic() < began + 10:
                slow.sendall(b"GET / HTTP/1.1\r\nX: yyyyyyyyyyyyyyyy"[:1])
                time.sleep(0.1)


def test_a_body_that_comes_byte_by_byte_after_a_refusal_is_closed(server: tuple[str, int]) -> None:
    head = b"POST /score/1/next HTTP/1.1\r\nHost: elsewhere.example\r\nContent-Length: 60000\r\n\r\n"
    with socket.create_connection(server, timeout=10) as slow:
        slow.sendall(head)
        assert slow.recv(65536).startswith(b"HTTP/1.1 421")
        began = time.monotonic()
        with pytest.raises(ConnectionError):  # noqa: PT012
            while time.monotonic() < began + 10:
                slow.sendall(b"x")
                time.sleep(0.1)


@pytest.mark.slow
def test_an_idle_connection_is_closed_and_a_busy_one_is_not(server: tuple[str, int]) -> None:
    with socket.create_connection(server, timeout=10) as idle, socket.create_connection(server, timeout=10) as busy:
        answered(idle)
        for _ in range(8):
            answered(busy)
            time.sleep(0.5)
        assert closed_within(idle, 0.1)
        answered(busy)


def test_a_client_that_does_not_read_its_answers_is_closed(running: uvicorn.Server, server: tuple[str, int]) -> None:
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.settimeout(10)
        deaf.connect(server)
        deaf.sendall((REQUEST + b"\r\n") * 3000)  # the answers are more than all buffers hold
        answers = -1
        while answers <= 0 or running.server_state.total_requests != answers:  # until nothing moves any more
            answers = running.server_state.total_requests
            time.sleep(0.3)
        assert answers < 3000
        end = time.monotonic() + 20
        while running.server_state.connections:  # this end cannot see it: what was sent before stands in the way
            assert time.monotonic() < end
            time.sleep(0.1)


def test_the_longest_silent_connection_makes_room_for_a_new_one(server: tuple[str, int]) -> None:
    with contextlib.ExitStack() as open_:
        page = open_.enter_context(socket.create_connection(server, timeout=10))
        answered(page)
        silent = [open_.enter_context(socket.create_connection(server, timeout=10)) for _ in range(12)]
        time.sleep(0.3)
        assert [closed_within(one, 0.05) for one in silent[:3]] == [True] * 3
        assert not closed_within(silent[-1], 0.05)
        answered(page)  # who has asked for something is kept longer than who has not


def test_half_a_body_is_no_reason_to_turn_others_away(server: tuple[str, int]) -> None:
    head = b"POST /score/1/next HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 600\r\n\r\n{"
    with contextlib.ExitStack() as open_:
        for _ in range(15):
            open_.enter_context(socket.create_connection(server, timeout=10)).sendall(head)
        answered(open_.enter_context(socket.create_connection(server, timeout=10)))


def test_where_all_connections_are_being_answered_a_new_one_is_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "most_connections", lambda: 3)
    go_on = threading.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        while not go_on.is_set():
            await asyncio.sleep(0.05)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    config = uvicorn.Config(slow, http=limits.LimitedProtocol, ws="none", lifespan="off", log_level="warning")
    running = uvicorn.Server(config)
    with serving(running) as address, contextlib.ExitStack() as open_:
        busy = [open_.enter_context(socket.create_connection(address, timeout=10)) for _ in range(3)]
        for one in busy:
            one.sendall(REQUEST + b"\r\n")
        time.sleep(0.3)
        late = open_.enter_context(socket.create_connection(address, timeout=10))
        assert late.recv(1000).startswith(b"HTTP/1.1 503")
        assert closed_within(late, 5)
        go_on.set()
        assert [one.recv(1000)[:12] for one in busy] == [b"HTTP/1.1 200"] * 3


def test_a_log_shows_what_a_terminal_would_obey() -> None:
    try:
        raise ValueError("broken \x1b[2J")
    except ValueError:
        trouble = sys.exc_info()
    entry = logging.LogRecord("x", logging.ERROR, "", 0, "%s %s", ("GET", "/\x1b]0;title\x07"), trouble)
    assert limits.LogLimit().filter(entry)
    text = logging.Formatter().format(entry)
    assert text.startswith("GET /\\x1b]0;title\\x07\n")
    assert "broken \\x1b[2J" in text
    assert not set(text) & {"\x1b", "\x07"}


def test_a_log_says_the_same_only_so_often() -> None:
    moment = 0.0
    limited = limits.LogLimit(clock=lambda: moment)

    def record(message: str, *arguments: object) -> logging.LogRecord:
        return logging.LogRecord("x", logging.WARNING, "", 0, message, arguments, None)

    assert sum(limited.filter(record("broken %s", number)) for number in range(1000)) == limits.LOG_LINES
    assert limited.filter(record("something else"))
    moment = limits.LOG_SECONDS + 1.0
    later = record("broken %s", 7)
    assert limited.filter(later)
    assert later.getMessage() == f"broken 7 ({1000 - limits.LOG_LINES} more were not logged)"
    assert sum(limited.filter(record(f"made up {number}")) for number in range(10_000)) <= limits.LOG_KINDS
