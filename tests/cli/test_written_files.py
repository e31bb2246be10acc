"""Options that write a file: links are followed, and what is no regular file is refused before anything is done."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.data.lerobot_cases import HOME

Answer = subprocess.CompletedProcess[str]
Fsc = Callable[..., Answer]

# every option that names a file to write: the command without the file, and an ending that the command accepts
OPTIONS: dict[str, tuple[list[str], str]] = {
    "export csv": (["export", "study", "--out"], ".csv"),
    "export json": (["export", "study", "--format", "json", "--out"], ".json"),
    "report": (["report", "study", "results.csv", "--budget", "10", "--out"], ".html"),
    "sheet evaluate": (["sheet", "evaluate", "study", "--out"], ".csv"),
    "sheet collect": (["sheet", "collect", "study", "--allocation", "lighting=2", "--out"], ".csv"),
    "recommend": (
        ["recommend", "study", "results.csv", "--budget", "2", "--strategy", "equal", "--pool", "pool.csv", "--out"],
        ".csv",
    ),
    "label": (["label", "cubes", "--rule", "all: lighting", "--sheet"], ".html"),
    "sim show": (["sim", "show", "tabletop/insert", "--factor", "lighting", "--out"], ".png"),
}
# the same, where writing takes long; refusing does not
SLOW: dict[str, tuple[list[str], str]] = {
    "sheet labels": (["sheet", "labels", "study", "--out"], ".csv"),
    "sim video": (["sim", "video", "tabletop/insert", "--out"], ".mp4"),
    "bench": (["bench", "decisions", "--worlds", "worlds.py", "--save"], ".md"),
    "policy": (["policy", "evaluate", "127.0.0.1:9", "--task", "tabletop/insert", "--result"], ".json"),
}


@pytest.fixture
def desk(study: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a study, its results, a pool of episodes and a dataset; commands run in it."""
    folder = study.parent
    shutil.move(study / "results.csv", folder / "results.csv")
    (folder / "pool.csv").write_text("episode,factor\n" + "".join(f"e{i},lighting\n" for i in range(4)))
    shutil.copytree(HOME / "v30-image", folder / "cubes")
    monkeypatch.chdir(folder)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()}


def pipe(path: Path) -> None:
    os.mkfifo(path)


def socket_file(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path.name)  # the name alone: a socket's path is short


def device(path: Path) -> None:
    """A device of the test's own, never one in /dev: code that fails this test as root would replace that."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root can make devices")


def link_to_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def folder(path: Path) -> None:
    path.mkdir()


SPECIAL: dict[Callable[[Path], None], str] = {
    pipe: "is a named pipe, not a file; give the name of a file",
    socket_file: "is a socket, not a file",
    device: "is a device, not a file",
    link_to_pipe: "is a named pipe, not a file",
    loop: "cannot be written (Too many levels of symbolic links)",
    folder: "is a folder, not a file",
}


@pytest.mark.parametrize("make", SPECIAL)
@pytest.mark.parametrize("option", [*OPTIONS, *SLOW])
def test_what_is_no_regular_file_is_refused(option: str, make: Callable[[Path], None], fsc: Fsc, desk: Path) -> None:
    command, ending = (OPTIONS | SLOW)[option]
    path = desk / f"out{ending}"
    make(path)
    kind, before = stat.S_IFMT(path.lstat().st_mode), contents(desk)
    answer = fsc(*command, path)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr.count("\n") == 1
    assert f"out{ending}" in answer.stderr
    assert SPECIAL[make] in answer.stderr
    assert stat.S_IFMT(path.lstat().st_mode) == kind
    assert contents(desk) == before


@pytest.mark.parametrize("there", [True, False], ids=["target", "no target"])
@pytest.mark.parametrize("option", OPTIONS)
def test_a_link_stays_and_what_it_names_is_written(option: str, there: bool, fsc: Fsc, desk: Path) -> None:
    command, ending = OPTIONS[option]
    shelf = desk / "shelf"
    shelf.mkdir()
    if there:
        (shelf / "kept").write_text("old")
    path = desk / f"out{ending}"
    path.symlink_to("shelf/kept")
    answer = fsc(*command, path)
    assert answer.returncode == 0, answer.stderr
    assert path.readlink() == Path("shelf/kept")
    assert len((shelf / "kept").read_bytes()) > 10
    assert [entry.name for entry in shelf.iterdir()] == ["kept"]


def test_standard_output_by_its_path_is_refused_too(study: Path, tmp_path: Path) -> None:
    (tmp_path / "out.csv").symlink_to("/proc/self/fd/1")  # as /dev/stdout, which must not be at stake here
    command = [sys.executable, "-m", "factored_scaling", "export", str(study), "--out", str(tmp_path / "out.csv")]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "is a named pipe, not a file" in answer.stderr
    assert (tmp_path / "out.csv").is_symlink()


def test_a_dash_is_standard_output_where_text_is_written_and_refused_elsewhere(fsc: Fsc, desk: Path) -> None:
    assert fsc("export", "study", "--out", "-").stdout == fsc("export", "study").stdout
    assert fsc("sheet", "evaluate", "study", "--out", "-").stdout.startswith("number,code,policy")
    for option in ("report", "recommend", "bench", "policy"):
        command, _ = (OPTIONS | SLOW)[option]
        answer = fsc(*command, "-")
        assert answer.returncode == 2
        said = "this writes a file, not standard output; give the name of a file"
        assert answer.stderr == f"fsc: {command[-1]}: {said}\n"
    assert not (desk / "-").exists()


def test_figures_go_into_a_folder_or_nothing_is_written(fsc: Fsc, desk: Path) -> None:
    os.mkfifo(desk / "figures")
    answer = fsc("report", "study", "results.csv", "--budget", "10", "--figures", "figures")
    assert (answer.returncode, answer.stderr) == (2, "fsc: figures: is not a folder\n")
    assert not (desk / "study" / "report.html").exists()


def test_labels_are_not_written_when_the_sheet_cannot_be_drawn(fsc: Fsc, desk: Path) -> None:
    for more in (["--sheet", "sheet.pdf"], ["--sheet", "sheet.html", "--camera", "behind"]):
        assert fsc("label", "cubes", "--rule", "all: lighting", *more).returncode == 2
        assert not (desk / "cubes/meta/fsc_episodes.parquet").exists()


def test_a_dataset_is_written_to_the_folder_that_a_link_names(fsc: Fsc, desk: Path) -> None:
    (desk / "disk").mkdir()
    (desk / "new").symlink_to("disk")
    answer = fsc("dataset", "select", "cubes", "--episodes", "0", "--out", "new")
    assert answer.returncode == 0, answer.stderr
    assert (desk / "new").is_symlink()
    assert (desk / "disk/meta/info.json").exists()
