"""The server: one policy, any number of connections."""

from __future__ import annotations

import errno
import hmac
import logging
import socket
import threading
import time
import traceback
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Protocol

from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve

from factored_scaling.errors import FscError, InvalidInput, one_line
from factored_scaling.machine import in_url, is_loopback
from factored_scaling.serving import LONGEST_ERROR, MOST_BYTES, PORT
from factored_scaling.serving.wire import pack, unpack

_INTERNAL_ERROR = 1011  # of the websocket protocol
MOST_CONNECTIONS = 128  # at once; each needs threads
_OPENING = 5.0  # seconds in which a connection must complete its opening handshake
_PAUSE = 0.1  # seconds between two checks for room
_QUIET = logging.getLogger("factored_scaling.serving")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False  # opened and closed connections are not logged


_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED)  # errors of `accept` that pass


class Session(Protocol):
    """A policy in one connection."""

    def infer(self, observation: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer to an observation; InvalidInput if it is malformed."""
        ...


class Served(Protocol):
    """A policy that can be served."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Sent to each client on connection."""
        ...

    def session(self) -> Session:
        """A new session for one connection."""
        ...


class PolicyServer:
    """Serves in threads from `with PolicyServer(policy) as server:` until the block ends.

    One inference runs at a time. Without a `key` it serves this machine only; with one, clients must send
    `Authorization: Api-Key KEY`, as openpi's does. Requests of browser pages are refused. Connections beyond
    MOST_CONNECTIONS wait until there is room.
    """

    def __init__(self, policy: Served, host: str = "127.0.0.1", port: int = PORT, key: str | None = None) -> None:
        if key is None and not is_loopback(host):
            hint = "give a key, or serve on 127.0.0.1 and reach it through an SSH tunnel"
            raise InvalidInput(f"{host} can be reached from other machines", where="host", hint=hint)
        self._policy = policy
        self._key = key
        self._busy = threading.Lock()
        try:
            listening = _Listening(host, port)
            self._server: Server = serve(
                self._talk,
                sock=listening,
                compression=None,  # it does not shrink images, and a robot waits
                max_size=MOST_BYTES,
                max_queue=1,  # a client that does not wait for answers cannot fill the memory
                open_timeout=_OPENING,
                origins=[None],
                process_request=self._admit,
                server_header=None,
                logger=_QUIET,
            )
        except OSError as error:
            what, hint = f"cannot listen ({error.strerror or error})", "is another server there? --port chooses another"
            raise InvalidInput(what, where=f"{host}:{port}", hint=hint) from None
        self.address = f"ws://{in_url(host)}:{listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> PolicyServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.path == "/healthz":
            return connection.respond(HTTPStatus.OK, "OK\n")
        given = request.headers.get("Authorization", "")
        if self._key is not None and not hmac.compare_digest(given.encode(), f"Api-Key {self._key}".encode()):
            return connection.respond(HTTPStatus.UNAUTHORIZED, "the key is missing or wrong\n")
        return None

    def _talk(self, connection: ServerConnection) -> None:
        session = self._policy.session()
        try:
            connection.send(pack(dict(self._policy.metadata)))
            for message in connection:
                connection.send(self._answer(session, message))
        except ConnectionClosed:
            return
        except Exception as error:
            traceback.print_exc()  # for who runs the server; clients get one line
            connection.send(one_line(f"the policy failed: {type(error).__name__}: {error}", LONGEST_ERROR))
            connection.close(_INTERNAL_ERROR, "the policy failed")

    def _answer(self, session: Session, message: str | bytes) -> bytes | str:
        """An action chunk, or an error as text; after an error the connection stays open."""
        try:
            if isinstance(message, str):
                raise InvalidInput("expected an observation as a binary message, not a text")
            observation = unpack(message)
            if not isinstance(observation, Mapping):
                raise InvalidInput(f"expected an observation, not {type(observation).__name__}")
            with self._busy:
                begun = time.perf_counter()
                answer = session.infer(observation)
                taken = time.perf_counter() - begun
            return pack({**answer, "server_timing": {"infer_ms": taken * 1000}})
        except FscError as error:
            return one_line(str(error), LONGEST_ERROR)


class _Listening(socket.socket):
    """The server's socket, which accepts no connections while there are too many.

    New ones wait in the system's queue. Unlike websockets' own server, it does not end at an error of `accept`, for
    example when descriptors run out for a moment.
    """

    def __init__(self, host: str, port: int) -> None:
        made = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        super().__init__(made.family, made.type, made.proto, made.detach())
        self.settimeout(_PAUSE)  # a timeout, to detect that the socket was closed
        self._connections: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection, when there is room for it; OSError if this socket was closed."""
        while True:
            self._connections = [one for one in self._connections if one.fileno() != -1]  # the others were closed
            if len(self._connections) >= _most_connections() and self.fileno() != -1:
                time.sleep(_PAUSE)
                continue
            try:
                connection, address = super().accept()
                self._connections.append(connection)
                return connection, address
            except OSError as error:
                if not isinstance(error, TimeoutError) and error.errno not in _PASSING:
                    raise
                time.sleep(_PAUSE)


def _most_connections() -> int:
    """The limit by file descriptors: each connection takes four."""
    import resource

    return max(1, min(MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 8))
