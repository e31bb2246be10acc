"""Templates and assets of the pages, all from this folder."""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path
from typing import Any

import jinja2
from starlette.responses import Response

from factored_scaling.report.style import COLOURS, NEUTRALS
from factored_scaling.report.templating import templates
from factored_scaling.version import __version__

_HERE = Path(__file__).parent
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def page(template: str, **content: Any) -> str:
    """Render a template. A missing variable is an error, and all values are escaped."""
    return _templates().get_template(template).render(content)


def as_json(content: Any) -> Response:
    """Plain data as JSON; NaN is an error."""
    return Response(json.dumps(content, allow_nan=False), media_type="application/json")


def asset(name: str) -> tuple[bytes, str] | None:
    """A file of the pages, and its type."""
    return _assets().get(name)


def asset_address(name: str) -> str:
    """The address of the file. It changes with the content, so that browsers may cache it."""
    return f"/static/{name}?v={hashlib.sha256(_assets()[name][0]).hexdigest()[:12]}"


@functools.cache
def _assets() -> dict[str, tuple[bytes, str]]:
    found = {path.name: path.read_bytes() for path in (_HERE / "static").iterdir() if path.suffix in _KINDS}
    style = templates("web").get_template("style.css.j2").render(neutrals=NEUTRALS, colours=COLOURS)
    found["style.css"] = style.encode()
    return {name: (content, _KINDS[Path(name).suffix]) for name, content in found.items()}


@functools.cache
def _templates() -> jinja2.Environment:
    environment = templates("web")
    environment.globals.update(asset=asset_address, version=__version__)
    return environment
