"""Start the server: address, token, and the link and QR code printed in the terminal."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from factored_scaling.errors import InvalidInput
from factored_scaling.machine import in_url, is_loopback
from factored_scaling.study import Study
from factored_scaling.web.access import LOOPBACK, Access

if TYPE_CHECKING:
    import uvicorn

TOKEN_FORM = re.compile(r"[A-Za-z0-9_-]{16,200}")


@dataclass(frozen=True)
class Address:
    """The address on which the server listens, and its host names."""

    host: str
    port: int
    socket: socket.socket

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return is_loopback(self.host)

    @property
    def url(self) -> str:
        """The URL to open. If the server listens on every interface, it has the machine's outside address."""
        name = self.host
        if name in ("0.0.0.0", "::"):
            name = outside_address() or socket.gethostname()
        return f"http://{in_url(name)}:{self.port}/"


def bind(host: str, port: int) -> Address:
    """Open the socket, before the address is printed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(256)
    except (OSError, OverflowError) as error:
        listening.close()
        what = getattr(error, "strerror", None) or str(error)
        here = not isinstance(error, socket.gaierror) and getattr(error, "errno", None) != errno.EADDRNOTAVAIL
        hint = "choose another --port, or --port 0 for any" if here else "give an address of this machine as --host"
        raise InvalidInput(f"cannot listen there ({what})", where=f"{host}:{port}", hint=hint) from None
    return Address(host, listening.getsockname()[1], listening)


def outside_address() -> str | None:
    """This machine's address in its network, found without sending anything."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address reserved for examples
            return str(probe.getsockname()[0])
        except OSError:
            return None


def access_for(address: Address, token: str | None) -> Access:
    """Access rules. With a token any host name is accepted: a page under another name lacks the cookie."""
    if token is not None:
        return Access(token, None)
    if not address.is_loopback:
        raise InvalidInput("a server on a network needs a token", where=address.host)
    return Access(None, tuple(dict.fromkeys((*LOOPBACK, address.host))))


def kept_token(study: Study, new: bool = False) -> str:
    """The study's token on this machine, stored so that phones stay signed in after a restart.

    FSC_TOKEN overrides it. It is stored in the user's folder, because the study's folder is copied and shared.
    """
    given = os.environ.get("FSC_TOKEN")
    if given is not None:
        if not TOKEN_FORM.fullmatch(given):
            raise InvalidInput("expected 16 to 200 letters, digits, - or _", where="FSC_TOKEN")
        return given
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    name = hashlib.sha256(f"{study.store.place}#{study.id}".encode()).hexdigest()[:24]
    path = state / "factored-scaling" / "tokens" / name
    if not new and path.exists():
        found = path.read_text(encoding="utf-8").strip()
        if TOKEN_FORM.fullmatch(found):
            return found
    token = secrets.token_urlsafe(18)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(token)
    return token


def code_for(url: str) -> str:
    """The address as a QR code, drawn with half blocks."""
    import segno

    stream = io.StringIO()
    segno.make(url, error="l").terminal(out=stream, compact=True)
    return stream.getvalue()


def server_for(study: Study, access: Access, folder: Path | None = None, argument: str = "STUDY") -> uvicorn.Server:
    """The server of a study, named `argument` in commands, with its runs in `folder`.

    Does all slow imports before serving, because an interrupt during an import can get lost.
    """
    import uvicorn

    from factored_scaling.web import limits
    from factored_scaling.web.app import create_app

    config = uvicorn.Config(
        create_app(study, access, folder=folder, argument=argument),
        http=limits.LimitedProtocol,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,  # the link that a phone opens holds the token
        server_header=False,
        backlog=limits.backlog(),
        timeout_graceful_shutdown=5,
    )
    limits.limit_logs()
    return uvicorn.Server(config)
