"""The client of a policy on another machine or in another environment."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus, InvalidURI
from websockets.sync.client import ClientConnection, connect

from factored_scaling.core.checks import real, shown
from factored_scaling.errors import InvalidInput, PolicyError, one_line
from factored_scaling.serving import LONGEST_ERROR, MOST_BYTES, PORT
from factored_scaling.serving.wire import pack, unpack

OPENING = 10.0  # seconds to open a connection to a machine that does not respond


class PolicyClient:
    """A connection to a served policy. `metadata` is the server's description of the policy.

    `patience` is how long to retry while there is no server, `timeout` how long to wait for an answer, in seconds.
    With `patience` 0 a refused connection raises immediately.
    """

    def __init__(self, address: str, key: str | None = None, patience: float = 0.0, timeout: float = 120.0) -> None:
        self.address = full_address(address)
        self._timeout = timeout
        self._held = ExitStack()
        self._connection = _connected(self.address, key, patience, self._held)
        try:
            self.metadata = self._message()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> PolicyClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._held.close()

    def whole_number(self, name: str, least: int, most: int) -> int | None:
        """A whole number from the metadata; None if it is absent."""
        value = self.metadata.get(name)
        if value is None:
            return None
        number = real(value)
        if number is None or not least <= number <= most or number != int(number):
            what = f"the metadata's {name} must be a whole number of {least} to {most}, not {shown(value)}"
            raise PolicyError(what, where=self.address)
        return int(number)

    def infer(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        """The policy's answer; its action chunk is under `actions`."""
        try:
            self._connection.send(pack(dict(observation)))
        except ConnectionClosed as error:
            raise self._closed(error) from None
        return self._message()

    def _message(self) -> dict[str, Any]:
        try:
            message = self._connection.recv(timeout=self._timeout)
        except TimeoutError:
            raise PolicyError(f"no answer within {self._timeout:g} s", where=self.address) from None
        except ConnectionClosed as error:
            raise self._closed(error) from None
        if isinstance(message, str):
            raise PolicyError(f"the policy answered with an error: {_last_line(message)}", where=self.address)
        try:
            answer = unpack(message)
        except InvalidInput as error:
            raise PolicyError(f"the answer {one_line(error.what, LONGEST_ERROR)}", where=self.address) from None
        if not isinstance(answer, dict):
            raise PolicyError(f"the answer is a {type(answer).__name__}", where=self.address)
        return answer

    def _closed(self, error: ConnectionClosed) -> PolicyError:
        reason = error.rcvd.reason if error.rcvd is not None and error.rcvd.reason else "no reason given"
        return PolicyError(f"the connection was closed ({reason})", where=self.address, hint="is the server still up?")


def _last_line(message: str) -> str:
    """The last line of a server's error: openpi's server sends a whole traceback."""
    lines = message.strip().splitlines()
    return one_line(lines[-1], LONGEST_ERROR) if lines else "it does not say which"


def full_address(text: str) -> str:
    """`host`, `host:port` or `ws://host:port` as the last of them."""
    address = text if "://" in text else f"ws://{text}"
    scheme, _, rest = address.partition("://")
    if scheme not in ("ws", "wss") or not rest:
        raise InvalidInput(f"{text!r} is no address of a policy", hint="write for example ws://127.0.0.1:8000")
    host, slash, path = rest.partition("/")
    with_port = host if host.rpartition("]")[2].count(":") or scheme == "wss" else f"{host}:{PORT}"
    return f"{scheme}://{with_port}{slash}{path}"


def _connected(address: str, key: str | None, patience: float, held: ExitStack) -> ClientConnection:
    headers = {"Authorization": f"Api-Key {key}"} if key is not None else None
    end = time.monotonic() + patience
    while True:
        try:
            opening = connect(
                address,
                compression=None,
                max_size=MOST_BYTES,
                additional_headers=headers,
                proxy=None,
                open_timeout=OPENING,
            )
            return held.enter_context(opening)
        except InvalidStatus as error:
            code = error.response.status_code
            hint = "give its key" if code == 401 else "is this a policy server?"
            raise PolicyError(f"the server refused the connection ({code})", where=address, hint=hint) from None
        except (InvalidURI, InvalidHandshake, ConnectionClosed) as error:
            # a server that is shutting down may close the connection before it answers
            if not isinstance(error, InvalidMessage | ConnectionClosed) or time.monotonic() >= end:
                raise PolicyError(f"no policy server ({one_line(str(error))})", where=address) from None
            time.sleep(0.1)
        except (OSError, TimeoutError) as error:
            if time.monotonic() >= end:
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                raise PolicyError(f"cannot be reached ({reason})", where=address, hint="is the server up?") from None
            time.sleep(0.1)
