"""Template environments of the report, the sheets and the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def templates(room: str = "report") -> Environment:
    """The templates of a package, which may include the report's.

    Values are escaped, and a missing variable is an error.
    """
    import jinja2

    from factored_scaling.report.bytecode import CompiledTemplates

    folders = [
        jinja2.PackageLoader("factored_scaling", f"{name}/templates") for name in dict.fromkeys((room, "report"))
    ]
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader(folders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        bytecode_cache=CompiledTemplates(),
    )
