"""Atomic writes: readers see the old or the new content, also after a power cut."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from factored_scaling.errors import InvalidInput

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def write_whole(path: Path, content: bytes) -> None:
    """Write `content` to the file `path`, atomically; errors name the path."""
    with _named(path), whole(path) as partial:
        partial.write_bytes(content)


def destination(path: Path) -> Path:
    """The regular file that writing to `path` replaces or creates: `path` itself, or the target of a link.

    A folder, a device, a named pipe or a socket is an error, because a file cannot replace it.
    """
    with _named(path):
        try:
            kind = stat.S_IFMT(path.stat().st_mode)  # not of the resolved path: /dev/stdout names no file that exists
        except FileNotFoundError:
            kind = stat.S_IFREG
        if kind != stat.S_IFREG:
            hint = "" if kind == stat.S_IFDIR else "give the name of a file"
            raise InvalidInput(f"is {_KINDS.get(kind, 'special')}, not a file", where=str(path), hint=hint)
        return Path(os.path.realpath(path)) if path.is_symlink() else path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary file to write to. It becomes the file `path` at the end, or is removed after an error."""
    target = destination(path)
    partial = target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}.tmp")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial.touch(exist_ok=False)
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):  # a file that only its owner may read stays so
            partial.chmod(stat.S_IMODE(target.stat().st_mode))
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def take_name(partial: Path, path: Path) -> bool:
    """Move a complete file to `path` unless that exists; returns whether it was moved."""
    try:
        os.link(partial, path)  # unlike a rename, it fails where there is a file
    except FileExistsError:
        return False
    except OSError:  # a file system without links, such as that of a memory card
        if os.path.lexists(path):
            return False
        partial.rename(path)
    sync_folder(path.parent)
    return True


def sync_folder(folder: Path) -> None:
    """Flush new names in a folder to disk."""
    if os.name == "posix":
        opened = os.open(folder, os.O_RDONLY)
        with suppress(OSError):  # some network drives cannot
            os.fsync(opened)
        os.close(opened)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn errors of the file system into InvalidInput with the user's path."""
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"cannot be written ({reason})", where=str(path)) from None
