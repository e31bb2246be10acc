"""Messages that ask for more than they hold, sent over real connections: one line comes back, and no memory goes."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgpack
import numpy as np
import pytest
import torch
from tests.cli.conftest import run_fsc
from tests.serving.cases import Counting
from tests.serving.hostile import HOSTILE
from websockets.sync.client import ClientConnection, connect
from websockets.sync.server import ServerConnection, serve

from factored_scaling.errors import InvalidInput, PolicyError
from factored_scaling.serving.client import PolicyClient
from factored_scaling.serving.diffusion import ServedDiffusion
from factored_scaling.serving.evaluate import Keys, RemoteActor
from factored_scaling.serving.labelled import ServedByLabel
from factored_scaling.serving.server import PolicyServer
from factored_scaling.serving.wire import unpack

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "serving" / "programs" / "serve_counting.py"
MEMORY = 400 * 2**20  # bytes that the server may still take; one thread and a message of 20 MB are far below
LONGEST_LINE = 600


@contextlib.contextmanager
def serving(memory: int, files: int) -> Iterator[str]:
    """The address of a server in a process of its own, with limits."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(PROGRAM), str(memory), str(files)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.communicate(timeout=30)
    assert process.returncode == 0


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(MEMORY, 256) as address:
        yield address


def answer(raw: ClientConnection, message: bytes | str) -> str | bytes:
    raw.send(message)
    return raw.recv(timeout=30)


@pytest.mark.parametrize("name", HOSTILE)
def test_the_server_answers_with_one_line_and_goes_on(server: str, name: str) -> None:
    with connect(server, compression=None, max_size=None) as raw:
        raw.recv()
        text = answer(raw, HOSTILE[name])
        assert isinstance(text, str)
        assert "\n" not in text
        assert "Traceback" not in text
        assert text.isprintable()
        assert len(text) < LONGEST_LINE
        assert isinstance(answer(raw, msgpack.packb({"state": [0.0]})), bytes)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_memory_is_taken_for_what_did_not_arrive(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput):
            unpack(HOSTILE[name])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(HOSTILE[name]) + 2**20


@pytest.mark.parametrize("name", HOSTILE)
def test_the_client_refuses_such_an_answer_in_one_line(name: str) -> None:
    def talk(connection: ServerConnection) -> None:
        connection.send(msgpack.packb({"policy": "strange"}))
        for _ in connection:
            connection.send(HOSTILE[name])

    with serve(talk, "127.0.0.1", 0, compression=None) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            with PolicyClient(f"127.0.0.1:{running.socket.getsockname()[1]}") as client:
                with pytest.raises(PolicyError, match="the answer") as refused:
                    client.infer({})
                assert str(refused.value).isprintable()
                assert len(str(refused.value)) < LONGEST_LINE
        finally:
            running.shutdown()
            thread.join()


def test_a_policy_that_breaks_says_so_in_one_line(server: str) -> None:
    with connect(server, compression=None) as raw:
        raw.recv()
        text = answer(raw, msgpack.packb({"break": "first line\nsecond\x1b[31m line" + "." * 5000}))
        assert isinstance(text, str)
        assert text.startswith("the policy failed: ZeroDivisionError: ")
        assert text.isprintable()
        assert len(text) < LONGEST_LINE
        assert "File" not in text


def test_a_long_or_strange_name_comes_back_short_and_printable(server: str) -> None:
    with connect(server, compression=None) as raw:
        raw.recv()
        text = answer(raw, msgpack.packb({"refuse": "\x1b]0;title\x07" + "x" * 100_000}))
        assert isinstance(text, str)
        assert text.isprintable()
        assert len(text) < LONGEST_LINE


def test_a_traceback_from_a_server_becomes_its_last_line() -> None:
    def talk(connection: ServerConnection) -> None:
        connection.send(msgpack.packb({}))
        connection.recv()
        connection.send('Traceback (most recent call last):\n  File "/home/lab/serve.py"\n\x1b[31mKeyError: 7\n\n')

    with serve(talk, "127.0.0.1", 0, compression=None) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            with PolicyClient(f"127.0.0.1:{running.socket.getsockname()[1]}") as client:
                with pytest.raises(PolicyError, match="KeyError: 7") as failed:
                    client.infer({})
                assert str(failed.value).isprintable()
                assert "serve.py" not in str(failed.value)
        finally:
            running.shutdown()
            thread.join()


@pytest.mark.slow
@pytest.mark.parametrize(("files", "idle"), [(40, 15), (4000, 200)])
def test_connections_that_say_nothing_do_not_end_the_server(files: int, idle: int) -> None:
    """Neither when descriptors run out nor when there are more connections than it takes."""
    with serving(2**33, files) as address, contextlib.ExitStack() as open_:
        host, _, port = address.removeprefix("ws://").rpartition(":")
        first = open_.enter_context(PolicyClient(address))
        for _ in range(idle):
            open_.enter_context(socket.create_connection((host, int(port)), timeout=10))
        assert first.infer({})["actions"][0, 0] == 1  # who is connected already notices nothing
        with PolicyClient(address, patience=60) as client:  # after some seconds the silent ones are closed
            assert client.infer({"state": np.zeros(1)})["actions"].shape == (4, 2)


@pytest.mark.parametrize("value", ["text", [1, [2, 3]], [{}], {}, None, b"bytes", [2**70], np.zeros((2, 3, 4, 5, 6))])
@pytest.mark.parametrize("key", ["images", "state", "trial", "seed"])
def test_an_observation_of_the_wrong_kind_is_answered_and_the_connection_goes_on(
    policy: ServedDiffusion, key: str, value: Any
) -> None:
    height, width, size = (policy.metadata[name] for name in ("height", "width", "state_size"))
    good = {"images": np.zeros((height, width, 3), np.uint8), "state": np.zeros(size, np.float32)}
    session = policy.session()
    if key == "seed" and value is None:
        return  # as if it were not there
    with pytest.raises(InvalidInput, match=f"observation.{key}"):
        session.infer({**good, key: value})
    assert session.infer(good)["actions"].shape == (policy.metadata["horizon"], policy.metadata["action_size"])


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> ServedDiffusion:
    from tests.serving.cases import trained

    return ServedDiffusion(trained(tmp_path_factory.mktemp("policy"))[0])


@pytest.mark.parametrize("label", [["A7"], {"a": 1}, np.zeros(3), None, 7])
def test_a_label_that_is_no_text_is_unknown(label: Any) -> None:
    with pytest.raises(InvalidInput, match="unknown label"):
        ServedByLabel({"A7": Counting}).session().infer({"policy": label})


@pytest.mark.parametrize("reset", ["yes", [1, 2], {}])
def test_a_reset_is_true_or_false(reset: Any) -> None:
    session = ServedByLabel({"A7": Counting}).session()
    session.infer({"policy": "A7"})
    with pytest.raises(InvalidInput, match=r"observation\.reset"):
        session.infer({"policy": "A7", "reset": reset})


@pytest.mark.parametrize("said", [{"height": 10**9}, {"height": "x"}, {"height": 64.5}, {"execute": [8]}])
def test_what_a_server_says_of_itself_is_not_believed_blindly(said: dict[str, Any]) -> None:
    class Boasting(Counting):
        metadata = MappingProxyType({"height": 64, "execute": 8, **said})

    with PolicyServer(Boasting(), port=0) as running:
        command = ["policy", "evaluate", running.address, "--task", "tabletop/pick-place", "--settings", "1"]
        done = run_fsc(*command)
    assert done.returncode == 1
    assert done.stderr.startswith(f"fsc: {running.address}: the metadata's {next(iter(said))} must be a whole number")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("actions", ["text", [[1], [2, 3]], {"a": 1}, [[None]]])
def test_actions_that_are_no_numbers_are_an_error_of_the_policy(actions: Any) -> None:
    class Strange(Counting):
        def session(self) -> Any:
            return self

        def infer(self, observation: Mapping[str, Any]) -> Mapping[str, Any]:
            return {"actions": actions}

    with PolicyServer(Strange(), port=0) as running, PolicyClient(running.address) as client:
        act = RemoteActor(client, 0, 2, Keys(("image",)))
        with pytest.raises(PolicyError, match="the answer's actions: expected numbers"):
            act(torch.zeros(1, 1, 3, 8, 8, dtype=torch.uint8), torch.zeros(1, 2), torch.zeros(1, dtype=torch.long))
