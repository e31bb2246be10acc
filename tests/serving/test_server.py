"""A real server and its clients over loopback: answers, errors, keys, browsers, limits; our client and a stranger."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import msgpack
import numpy as np
import pytest
from tests.serving.cases import Counting
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection, serve
from websockets.typing import Origin

from factored_scaling.errors import InvalidInput, PolicyError
from factored_scaling.serving import MOST_BYTES
from factored_scaling.serving.client import PolicyClient, full_address
from factored_scaling.serving.server import PolicyServer


@pytest.fixture(scope="module")
def server() -> Iterator[PolicyServer]:
    with PolicyServer(Counting(), port=0) as running:
        yield running


def test_metadata_first_then_an_answer_to_every_observation(server: PolicyServer) -> None:
    with PolicyClient(server.address) as client, PolicyClient(server.address) as other:
        assert client.metadata == {"kind": "counting"}
        answers = [client.infer({"state": np.zeros(3)}) for _ in range(3)]
        assert [float(answer["actions"][0, 0]) for answer in answers] == [1, 2, 3]
        assert answers[0]["actions"].shape == (4, 2)
        assert answers[0]["server_timing"]["infer_ms"] >= 0
        assert other.infer({})["actions"][0, 0] == 1  # every connection starts afresh


def test_after_an_error_the_connection_goes_on(server: PolicyServer) -> None:
    with PolicyClient(server.address) as client:
        with pytest.raises(PolicyError, match=r"observation\.refuse: no such thing"):
            client.infer({"refuse": True})
        assert client.infer({})["actions"][0, 0] == 1
    with connect(server.address, compression=None) as raw:
        raw.recv()
        for wrong in ("text", b"\xc1", msgpack.packb([1, 2]), msgpack.packb({"a": {b"__ndarray__": True}})):
            raw.send(wrong)
            answer = raw.recv()
            assert isinstance(answer, str)
            assert "Traceback" not in answer
        raw.send(msgpack.packb({}))
        assert isinstance(raw.recv(), bytes)


def test_a_policy_that_breaks_says_so_and_closes(server: PolicyServer) -> None:
    with PolicyClient(server.address) as client:
        with pytest.raises(PolicyError, match="ZeroDivisionError: inside the policy"):
            client.infer({"break": True})
        with pytest.raises(PolicyError, match="closed"):
            client.infer({})
    with PolicyClient(server.address) as client:
        assert client.infer({})["actions"][0, 0] == 1


def test_health_is_told_without_a_connection(server: PolicyServer) -> None:
    with urllib.request.urlopen(server.address.replace("ws:", "http:") + "/healthz", timeout=10) as answer:
        assert (answer.status, answer.read()) == (200, b"OK\n")


def test_pages_of_a_browser_are_refused(server: PolicyServer) -> None:
    page = Origin("https://example.org")
    with pytest.raises(InvalidStatus) as refused, connect(server.address, origin=page):
        pass
    assert refused.value.response.status_code == 403


def test_a_message_that_is_too_large_ends_the_connection(server: PolicyServer) -> None:
    with connect(server.address, compression=None, max_size=None) as raw:
        raw.recv()
        with contextlib.suppress(ConnectionClosed):  # sometimes while it is still sending
            raw.send(bytes(MOST_BYTES + 1))
        with pytest.raises(ConnectionClosed):
            raw.recv()
    with PolicyClient(server.address) as client:
        assert client.infer({})["actions"][0, 0] == 1


def test_a_key_is_needed_where_others_can_reach_it() -> None:
    with pytest.raises(InvalidInput, match="can be reached from other machines"):
        PolicyServer(Counting(), host="0.0.0.0", port=0)
    with PolicyServer(Counting(), port=0, key="söcret") as server:
        for key in (None, "wrong", ""):
            with pytest.raises(PolicyError, match=r"refused the connection \(401\); give its key"):
                PolicyClient(server.address, key)
    with PolicyServer(Counting(), port=0, key="secret") as server, PolicyClient(server.address, "secret") as client:
        assert client.infer({})["actions"][0, 0] == 1


def test_a_port_that_is_taken_is_told(server: PolicyServer) -> None:
    with pytest.raises(InvalidInput, match=r"cannot listen \(.*\); is another server there"):
        PolicyServer(Counting(), port=int(server.address.rpartition(":")[2]))


def test_many_clients_at_once_each_get_their_own_answers(server: PolicyServer) -> None:
    counts: dict[int, list[float]] = {}

    def talk(number: int) -> None:
        with PolicyClient(server.address) as client:
            counts[number] = [float(client.infer({})["actions"][0, 0]) for _ in range(20)]

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == {number: [float(n) for n in range(1, 21)] for number in range(8)}


class TestAgainstAServerWrittenFromTheProtocol:
    """Ours against a stranger: msgpack maps written out by hand, nothing of our wire module."""

    @pytest.fixture
    def stranger(self) -> Iterator[str]:
        def array(values: Any) -> dict[bytes, Any]:
            return {b"__ndarray__": True, b"data": values.tobytes(), b"dtype": values.dtype.str, b"shape": values.shape}

        def talk(connection: ServerConnection) -> None:
            connection.send(msgpack.packb({"policy": "pi0_towel", "reset_pose": [0, 1]}))
            for message in connection:
                assert isinstance(message, bytes)
                seen = msgpack.unpackb(message)
                picture = seen["observation/image"]
                if seen["prompt"] == "fail":
                    connection.send("Traceback: the policy is not in the mood")
                    connection.close(1011, "Internal server error")
                    return
                total = np.frombuffer(picture[b"data"], picture[b"dtype"]).sum()
                actions = np.full((50, 7), total, dtype=np.float64)
                connection.send(msgpack.packb({"actions": array(actions), "server_timing": {"infer_ms": 0.1}}))

        with serve(talk, "127.0.0.1", 0, compression=None, max_size=None) as running:
            thread = threading.Thread(target=running.serve_forever)
            thread.start()
            yield f"127.0.0.1:{running.socket.getsockname()[1]}"
            running.shutdown()
            thread.join()

    def test_it_is_understood(self, stranger: str) -> None:
        with PolicyClient(stranger) as client:
            assert client.metadata == {"policy": "pi0_towel", "reset_pose": [0, 1]}
            picture = np.ones((224, 224, 3), dtype=np.uint8)
            actions = client.infer({"observation/image": picture, "prompt": "fold"})["actions"]
            assert actions.shape == (50, 7)
            assert actions[0, 0] == 224 * 224 * 3

    def test_its_errors_are_ours(self, stranger: str) -> None:
        with PolicyClient(stranger) as client, pytest.raises(PolicyError, match="not in the mood"):
            client.infer({"observation/image": np.ones(3), "prompt": "fail"})


def test_nobody_there_is_told() -> None:
    with pytest.raises(PolicyError, match=r"ws://127\.0\.0\.1:9: cannot be reached .*is the server up"):
        PolicyClient("127.0.0.1:9", patience=0.2)


def test_without_patience_a_refused_connection_is_told_before_anything_waits_or_loads() -> None:
    program = (
        "import sys, time\n"
        "time.sleep = lambda seconds: sys.exit('it waited')\n"
        "from factored_scaling.cli import main\n"
        "try:\n"
        "    main(['policy', 'evaluate', '127.0.0.1:9', '--task', 'tabletop/pick-place', *sys.argv[1:]])\n"
        "finally:\n"
        "    print('torch' in sys.modules)\n"
    )
    at_once, waiting = (
        subprocess.run([sys.executable, "-c", program, *more], capture_output=True, text=True, check=False)
        for more in ((), ("--wait", "5"))
    )
    assert (at_once.returncode, at_once.stdout) == (1, "False\n")
    assert at_once.stderr == "fsc: ws://127.0.0.1:9: cannot be reached (Connection refused); is the server up?\n"
    assert "it waited" in waiting.stderr


def test_a_web_server_is_no_policy() -> None:
    refused = pytest.raises(PolicyError, match=r"refused the connection \(200\)")
    with PolicyServer(Counting(), port=0) as server, refused:
        PolicyClient(f"{server.address}/healthz")


def test_the_client_waits_for_a_server_that_is_not_up_yet() -> None:
    with PolicyServer(Counting(), port=0) as server:
        port = int(server.address.rpartition(":")[2])
    late: list[PolicyServer] = []

    def start() -> None:
        late.append(PolicyServer(Counting(), port=port).__enter__())

    timer = threading.Timer(0.5, start)
    timer.start()
    with PolicyClient(f"127.0.0.1:{port}", patience=20) as client:
        assert client.infer({})["actions"][0, 0] == 1
    timer.join()
    late[0].__exit__(None, None, None)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("robot", "ws://robot:8000"),
        ("robot:9", "ws://robot:9"),
        ("ws://robot", "ws://robot:8000"),
        ("wss://robot/policy", "wss://robot/policy"),
        ("[::1]", "ws://[::1]:8000"),
        ("ws://[::1]:9/x", "ws://[::1]:9/x"),
    ],
)
def test_addresses(text: str, full: str) -> None:
    assert full_address(text) == full


@pytest.mark.parametrize("text", ["http://robot", "", "ws://"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(InvalidInput, match="no address of a policy"):
        full_address(text)
