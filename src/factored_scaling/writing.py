"""Files that are written whole or not at all: readers see the old content or the new, also after a power cut."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from factored_scaling.errors import InvalidInput


def write_whole(path: Path, content: bytes) -> None:
    """Replace `path` by `content`; a place that cannot be written to is told by its name."""
    try:
        if path.is_dir():
            raise InvalidInput("is a folder, not a file", where=str(path))
        with whole(path) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise InvalidInput(f"cannot be written ({error.strerror or error})", where=str(path)) from None


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """An empty file beside `path` for others to write to; it becomes `path` at the end, or goes if that fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}.tmp")
    partial.touch(exist_ok=False)
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # the new name must outlast a power cut too
        folder = os.open(path.parent, os.O_RDONLY)
        with suppress(OSError):  # some network drives cannot
            os.fsync(folder)
        os.close(folder)
