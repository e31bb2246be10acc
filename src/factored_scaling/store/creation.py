"""New SQLite files: written under another name, so that nobody ever sees one that is not complete."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from factored_scaling.errors import FscError


@contextmanager
def unnamed(path: Path) -> Iterator[Path]:
    """Another name beside `path` for a database that is being written. Whatever is left under it goes at the end."""
    partial = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}.tmp")
    try:
        yield partial
    except FscError as error:
        error.where = error.where.replace(str(partial), str(path))
        raise
    finally:
        for kept in ("", "-wal", "-shm", "-journal"):  # what SQLite keeps beside a file
            partial.with_name(f"{partial.name}{kept}").unlink(missing_ok=True)
