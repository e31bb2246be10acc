"""New SQLite files, written under another name so that no incomplete file is ever visible."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from factored_scaling.errors import FscError


@contextmanager
def unnamed(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` for a database that is being written; its files are removed at the end."""
    partial = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}.tmp")
    try:
        yield partial
    except FscError as error:
        error.where = error.where.replace(str(partial), str(path))
        raise
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):  # files that SQLite creates beside a database
            partial.with_name(f"{partial.name}{suffix}").unlink(missing_ok=True)
