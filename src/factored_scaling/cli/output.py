"""Files that commands write: what cannot be written is refused before a command does anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from factored_scaling.errors import InvalidInput
from factored_scaling.io.atomic import destination


class OutputFile(click.Path):
    """A file to write. A folder, a device or a pipe is refused; `-` is standard output where `dash` is set."""

    def __init__(self, dash: bool = False) -> None:
        super().__init__(path_type=Path, dir_okay=False)
        self.dash = dash

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if str(path) != "-":
            destination(path)
        elif not self.dash:
            where = param.opts[0] if param is not None else ""
            raise InvalidInput("this writes a file, not standard output", where=where, hint="give the name of a file")
        return path
