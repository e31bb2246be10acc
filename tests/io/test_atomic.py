"""Whole or not at all, for every writer."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from factored_scaling.errors import InvalidInput
from factored_scaling.io.atomic import whole, write_whole


def test_what_others_write_is_moved_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / f"{'long' * 50}.bin"
    with whole(path) as partial:
        partial.write_bytes(b"first")
        assert not path.exists()

    def stopped() -> None:
        with whole(path) as partial:
            partial.write_bytes(b"sec")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert [(entry.name, entry.read_bytes()) for entry in path.parent.iterdir()] == [(path.name, b"first")]


def test_a_file_has_the_rights_that_its_owner_gives(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    write_whole(tmp_path / "whole", b"")
    assert (tmp_path / "whole").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_file_keeps_the_rights_that_it_had(tmp_path: Path) -> None:
    path = tmp_path / "private"
    path.touch(mode=0o600)
    write_whole(path, b"new")
    assert (path.stat().st_mode & 0o777, path.read_bytes()) == (0o600, b"new")


def test_a_link_is_followed_also_to_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("second")
    (tmp_path / "second").symlink_to("file")
    for content in (b"first", b"second"):
        write_whole(tmp_path / "link", content)
        assert (tmp_path / "file").read_bytes() == content
    assert [entry.is_symlink() for entry in sorted(tmp_path.iterdir())] == [False, True, True]


def test_a_named_pipe_is_refused_and_stays(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="pipe: is a named pipe, not a file"):
        write_whole(tmp_path / "pipe", b"")
    assert (tmp_path / "pipe").is_fifo()
    with pytest.raises(InvalidInput, match="embedded null byte"):
        write_whole(tmp_path / "\0", b"")


def test_a_place_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="is a folder, not a file"):
        write_whole(tmp_path, b"")
    with pytest.raises(InvalidInput, match=r"below: cannot be written \(Not a directory\)"):
        write_whole(tmp_path / "file" / "below", b"")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_is_told_and_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")

    def full(self: Path, content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InvalidInput, match=r"cannot be written \(No space left on device\)"):
        write_whole(path, b"new")
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("file", b"old")]
