"""How the report's and the sheets' templates become text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def templates() -> Environment:
    """The templates of this room; what one fills in is escaped, and a name that is not given is an error."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("factored_scaling", "report/templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
