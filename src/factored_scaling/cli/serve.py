"""fsc serve"""

from __future__ import annotations

import contextlib
import importlib.util
import shlex
import sys
from pathlib import Path

import click

from factored_scaling.cli.show import say
from factored_scaling.cli.target import Target, planned_anew, study_argument
from factored_scaling.errors import InvalidInput, hide_passwords, installs


@click.command("serve")
@study_argument
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; 0.0.0.0 for the whole network.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8765,
    show_default=True,
    help="Port to listen on; 0 picks a free one.",
)
@click.option("--token", is_flag=True, help="Require a token on this machine too, where others may be logged in.")
@click.option("--new-token", is_flag=True, help="Make a new token; links with the old one stop working.")
@click.option("--no-code", is_flag=True, help="Do not print the QR code.")
def serve_command(study: str, host: str, port: int, token: bool, new_token: bool, no_code: bool) -> None:
    """Serve the dashboard and the scoring page of STUDY until you press Ctrl-C.

    By default only this machine can connect, without a token. On a network every visitor needs the token in the printed
    link; point a phone's camera at the QR code. The token stays the same after a restart, so phones stay connected. The
    connection is not encrypted: on a network you do not trust, use an SSH tunnel or a
    proxy that speaks HTTPS.

    \b
    fsc serve my-study                             http://127.0.0.1:8765/
    fsc serve my-study --host 0.0.0.0              for phones beside the robot
    FSC_TOKEN=… fsc serve my-study --host 0.0.0.0  with a token of your own
    """
    for name in ("fastapi", "uvicorn", "segno"):
        if importlib.util.find_spec(name) is None:
            raise InvalidInput(f"the dashboard needs {name}, which is not installed", hint=installs("web"))
    from factored_scaling.web import serve

    target = Target.parse(study)
    with target.study() as opened:
        if not opened.store.read_only:
            planned_anew(opened)
        address = serve.bind(host, port)
        secret = serve.kept_token(opened, new_token) if token or new_token or not address.is_loopback else None
        argument = hide_passwords(shlex.quote(study))
        server = serve.server_for(opened, serve.access_for(address, secret), target.folder or Path.cwd(), argument)
        link = address.url if secret is None else f"{address.url}?token={secret}"
        say(f"{opened.spec.name}: {link}")
        if secret is not None and not no_code and sys.stdout.isatty():
            say("\nFor a phone, straight to scoring:\n")
            click.echo(serve.code_for(f"{address.url}score?token={secret}"))
        say("stop with Ctrl-C")
        sys.stdout.flush()
        with contextlib.suppress(KeyboardInterrupt):  # the usual way to end it
            server.run(sockets=[address.socket])
