"""A new study's folder: study.yaml and study.db are made under another name, so that nobody sees half a study."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from factored_scaling.errors import FscError, InvalidInput
from factored_scaling.io.atomic import sync_folder, take_name

RECORD, DECLARED = "study.db", "study.yaml"


@contextmanager
def new_study(folder: Path) -> Iterator[Path]:
    """A folder to make study.yaml and perhaps study.db in; at the end they are moved to `folder`, which has neither.

    Killed at any instant, a folder that did not exist is complete or not there. In one that existed the record comes
    first and is a study by itself; the same call again adds study.yaml. No file that is there already is replaced.
    """
    if folder.exists() and not folder.is_dir():
        raise InvalidInput("is a file, not a folder", where=str(folder))
    if os.path.lexists(folder / DECLARED) or (not folder.exists() and folder.is_symlink()):
        raise _taken(folder / DECLARED if folder.exists() else folder)
    new = not folder.exists()
    partial = (folder.parent if new else folder) / f".{folder.resolve().name[:40]}.{secrets.token_hex(4)}.tmp"
    try:
        try:
            partial.mkdir(parents=True)
            yield partial
            _fill(partial, folder) if not new else _name(partial, folder)
        except FscError as error:
            error.where = error.where.replace(str(partial), str(folder))
            raise
        except OSError as error:
            raise InvalidInput(f"cannot be written ({error.strerror or error})", where=str(folder)) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _name(partial: Path, folder: Path) -> None:
    """Give a complete folder its name."""
    sync_folder(partial)
    try:
        partial.rename(folder)
    except OSError:
        if not os.path.lexists(folder):
            raise
        raise _taken(folder) from None  # made meanwhile, and not empty
    sync_folder(folder.parent)


def _fill(partial: Path, folder: Path) -> None:
    """Move complete files into a folder that exists."""
    with _alone(folder):
        record, made = folder / RECORD, partial / RECORD
        if os.path.lexists(folder / DECLARED):
            raise _taken(folder / DECLARED)
        if os.path.lexists(record) and not (made.exists() and _same(made, record)):
            raise _taken(record)
        if made.exists() and not record.exists():
            _move(made, record)
        _move(partial / DECLARED, folder / DECLARED)


def _move(source: Path, target: Path) -> None:
    """Move a file to a name that is free; where it is not, nothing is changed."""
    if not take_name(source, target):
        raise _taken(target)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time, where the file system can lock; a process that is killed holds nothing."""
    opened = os.open(folder, os.O_RDONLY) if os.name == "posix" else None
    try:
        if opened is not None:
            import fcntl

            with suppress(OSError):
                fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        if opened is not None:
            os.close(opened)


def _same(first: Path, second: Path) -> bool:
    """Whether two records hold the same study, whenever each was made."""
    from factored_scaling.store import Store

    dumps = []
    for path in (first, second):
        try:
            with Store.open(path, create=False) as store:
                dumps.append([_timeless(store.dump(row.id)) for row in store.studies()])
        except FscError:
            return False
    return dumps[0] == dumps[1]


def _timeless(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _timeless(value) for key, value in data.items() if key != "created"}
    return [_timeless(value) for value in data] if isinstance(data, list) else data


def _taken(path: Path) -> InvalidInput:
    return InvalidInput("already there; nothing was changed", where=str(path), hint="choose another folder")
