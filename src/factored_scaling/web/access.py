"""Access control: host names, token, origin of writes, request size, and response headers.

A single ASGI middleware in front of the whole application.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 64 * 1024  # bytes; a score with a long note takes less than a tenth
BODY_SECONDS = 20.0  # seconds that a slow phone has to send its request body
COOKIE_DAYS = 30
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
READING = ("GET", "HEAD")

# All content comes from this server and none is inline: markup in a note stays text, and pages of others can neither
# frame this page nor read from it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # not `no-referrer`: under it browsers send `Origin: null` with our own forms
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


@dataclass(frozen=True)
class Access:
    """The access rules of one server. Without a `token` anyone who reaches the address may read and write.

    `hosts` are the names that the server answers to, without port; None means any. A page of somebody else whose name
    was made to point here (DNS rebinding) still names its own host, and is turned away by this.
    """

    token: str | None = None
    hosts: tuple[str, ...] | None = LOOPBACK

    @property
    def cookie(self) -> str:
        """The cookie's name. Cookies ignore ports, so two servers on one machine need different names."""
        return "fsc-" + hashlib.sha256((self.token or "").encode()).hexdigest()[:12]


class Refused(Exception):
    """A rejected request: status and message."""

    def __init__(self, status: int, what: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(what)
        self.status = status
        self.what = what
        self.headers = headers or {}


class Guard:
    """The middleware. `refusal` makes the answer to a person's browser; programs get JSON."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app = app
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no websockets here
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = Headers(scope=scope)

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    answer[name] = value
                answer.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            self._check_host(headers)
            known = self._check_token(scope, headers)
            if isinstance(known, Response):
                await known(scope, receive, dressed)
                return
            if scope["method"] not in READING:
                self._check_origin(headers, by_cookie=known == "cookie")
            body = await _whole_body(headers, receive)
        except Refused as refused:
            await refusal(refused, headers)(scope, receive, dressed)
            return
        await self.app(scope, _replayed(body, receive), dressed)

    def _check_host(self, headers: Headers) -> None:
        given = headers.getlist("host")
        if len(given) != 1 or not re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?", given[0]):
            raise Refused(400, "the request has no valid Host header")
        name = re.sub(r":[0-9]+$", "", given[0]).lower()
        if self.access.hosts is not None and name not in self.access.hosts:
            raise Refused(421, f"this server does not accept the host name {name}")

    def _check_token(self, scope: Scope, headers: Headers) -> str | Response:
        """How the request was authenticated, or the response that turns a link with the token into a cookie."""
        token = self.access.token
        if token is None or scope["path"].startswith("/static/"):
            return "open"
        bearer = headers.get("authorization", "")
        if bearer:
            if bearer.lower().startswith("bearer ") and _same(bearer[7:].strip(), token):
                return "bearer"
            raise _unknown("the token is wrong")
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        shown = [value for name, value in query if name == "token"]
        if shown and scope["method"] in READING:
            if not _same(shown[0], token):
                raise _unknown("the token is wrong")
            rest = urlencode([pair for pair in query if pair[0] != "token"])
            # `//other.example` would lead to another host
            place = "/" + scope["path"].lstrip("/") + (f"?{rest}" if rest else "")
            answer = RedirectResponse(place, status_code=303)
            secure = scope["scheme"] == "https"
            seconds = COOKIE_DAYS * 24 * 3600
            answer.set_cookie(self.access.cookie, token, max_age=seconds, httponly=True, samesite="lax", secure=secure)
            return answer
        if _same(_cookies(headers).get(self.access.cookie, ""), token):
            return "cookie"
        raise _unknown("a token is needed" if self.access.cookie not in _cookies(headers) else "the token is wrong")

    def _check_origin(self, headers: Headers, by_cookie: bool) -> None:
        """Check that a write comes from our own page, or from a program, which has no cookie to misuse."""
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site is not None and site != "same-origin":
            raise Refused(403, "this was sent by another page")
        if origin is not None:
            parts = urlsplit(origin)
            if parts.scheme not in ("http", "https") or _plain_host(parts.netloc) != _plain_host(headers["host"]):
                raise Refused(403, "this was sent by another page")
        elif site is None and by_cookie:
            raise Refused(403, "the browser does not say which page this was sent by")


def refusal(refused: Refused, headers: Headers) -> Response:
    """The response to a refused request: a small page for a browser, JSON for a program."""
    if "text/html" in headers.get("accept", ""):
        from factored_scaling.web.pages import page

        text = page("refused.html.j2", status=refused.status, what=refused.what, ask=refused.status == 401)
        return Response(text, refused.status, refused.headers, "text/html")
    content = json.dumps({"error": refused.what})
    return Response(content, refused.status, refused.headers, "application/json")


def _unknown(what: str) -> Refused:
    return Refused(401, what, {"WWW-Authenticate": 'Bearer realm="fsc"'})


async def _whole_body(headers: Headers, receive: Receive) -> bytes:
    """The request's body. A body that is too large is refused as early as possible."""
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit():
        raise Refused(400, "the length of the request is not a number")
    if int(length) > LARGEST_BODY:
        raise Refused(413, f"a request may have {LARGEST_BODY:,} bytes at most")
    body, more = b"", True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refused(400, "the request was cut short")
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > LARGEST_BODY:
                    raise Refused(413, f"a request may have {LARGEST_BODY:,} bytes at most")
    except TimeoutError:
        raise Refused(408, "the request did not arrive in time") from None
    return body


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A `receive` that replays the body for the application, then passes on later messages of the connection."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _cookies(headers: Headers) -> dict[str, str]:
    # cookies of other programs on the host may be malformed, and Python's parser stops at the first malformed one
    return cookie_parser(headers.get("cookie", ""))


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def _plain_host(host: str) -> str:
    """Host and port, without default ports, which browsers leave out."""
    return re.sub(r":(80|443)$", "", host.lower())
