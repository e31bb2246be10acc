"""Limits of `fsc serve` on idle connections and on repeated log messages.

uvicorn has timeouts for idle connections after an answer, but not for unfinished requests or clients that do not read.
Without a limit, a thousand idle connections take all file descriptors.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from factored_scaling.errors import hide_passwords, printable

MOST_CONNECTIONS = 512
REQUEST_SECONDS = 10.0  # from the first byte of a request, or the opening of a connection, to the end of its headers
IDLE_SECONDS = 30.0  # between an answer and the next request
WRITE_SECONDS = 30.0  # in which a client must read part of a pending answer
LOG_LINES, LOG_SECONDS = 5, 60.0  # a message is logged at most so many times in so many seconds
LOG_KINDS = 100  # different messages in that time

_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def most_connections() -> int:
    """The limit of connections. It leaves file descriptors for the record and for closing connections."""
    return max(8, min(MOST_CONNECTIONS, _descriptors() // 3))


def backlog() -> int:
    """The number of connections that wait to be accepted. asyncio accepts so many before it closes others."""
    return max(8, min(256, _descriptors() // 4))


def _descriptors() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol with a deadline for every wait on a client, and a limit of connections.

    At the limit, the connection that has been idle longest is closed for the new one, starting with those that were
    never answered. If all of them are being answered, the new one is refused.
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.answers = 0
        self.waiting_since = 0.0
        self._in_request = True
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether the headers of a request are still expected."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def is_waiting(self) -> bool:
        """Whether data from the client is expected: headers, or the body that `access` waits for."""
        return self.is_idle or self.cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection if there is room for it."""
        super().connection_made(transport)
        if len(self.connections) > most_connections() and not self._made_room():
            transport.write(_FULL)
            transport.close()
        self._wait(REQUEST_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline."""
        self._wait(None)
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """The first byte of a request starts its time; further ones do not prolong it."""
        if self.is_idle and not self._in_request:
            self._in_request = True
            self._wait(REQUEST_SECONDS)
        super().data_received(data)
        if not self.is_idle:
            self._wait(None)

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it has already arrived."""
        self.answers += 1
        self._in_request = False
        self._wait(IDLE_SECONDS)
        super().on_response_complete()
        if not self.is_idle:
            self._wait(None)

    def pause_writing(self) -> None:
        """The send buffer is full: start the deadline for the client to read."""
        super().pause_writing()
        self._stalled = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read part of the buffer."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _wait(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self.waiting_since = self.loop.time()
        # not `close`, which would wait until the client has read what is left
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    def _made_room(self) -> bool:
        others = [one for one in self.connections if isinstance(one, LimitedProtocol) and one is not self]
        waiting = [one for one in others if one.is_waiting]
        if not waiting:
            return False
        oldest = min(waiting, key=lambda one: (one.answers > 0, one.waiting_since))
        self.connections.discard(oldest)  # otherwise the next new connection would choose it again
        oldest.transport.abort()
        return True


class LogLimit(logging.Filter):
    """Logs a message a few times a minute, then reports how many were suppressed. Escapes unprintable text."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._logged: dict[str, int] = {}
        self._since = clock()
        self._before: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log it."""
        now = self._clock()
        if now - self._since > LOG_SECONDS:
            self._before = {kind: count - LOG_LINES for kind, count in self._logged.items() if count > LOG_LINES}
            self._logged, self._since = {}, now
        kind = str(record.msg).partition("\n")[0]
        if kind not in self._logged and len(self._logged) >= LOG_KINDS:
            return False
        self._logged[kind] = self._logged.get(kind, 0) + 1
        left_out = self._before.pop(kind, 0)
        more = f" ({left_out:,} more were not logged)" if left_out else ""
        # text that a client put into an address must not act as a terminal control sequence
        record.msg, record.args = printable(hide_passwords(record.getMessage())) + more, ()
        if record.exc_info:
            record.exc_text = printable(hide_passwords(logging.Formatter().formatException(record.exc_info)))
        return self._logged[kind] <= LOG_LINES


def limit_logs() -> None:
    """Apply to everything that a request can make the server log."""
    for name in ("uvicorn.error", "asyncio", "factored_scaling.web"):
        logger = logging.getLogger(name)
        if not any(isinstance(one, LogLimit) for one in logger.filters):
            logger.addFilter(LogLimit())
