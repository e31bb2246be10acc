"""`fsc init` killed at any step or racing with another leaves nothing or a whole study, and can be repeated."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.data.lerobot_cases import HOME

from factored_scaling.cli import main
from factored_scaling.study import Study

Fsc = Callable[..., subprocess.CompletedProcess[str]]
PROGRAM = Path(__file__).parent / "programs" / "kill_init.py"
EPISODES = "episode,factor\n" + "".join(f"rec-{i}.h5,{'light' if i % 2 else 'camera'}\n" for i in range(6))
IDS = [f"rec-{i}.h5" for i in range(6)]
WAYS = {
    "episodes": ["--episodes", "demos.csv"],
    "dataset": ["--dataset", "cubes"],
    "example": [],
}


@pytest.mark.slow
@pytest.mark.parametrize("there", [False, True], ids=["new folder", "folder with notes"])
@pytest.mark.parametrize("way", WAYS)
def test_killed_at_every_step(way: str, there: bool, tmp_path: Path, fsc: Fsc, monkeypatch: pytest.MonkeyPatch) -> None:
    work, start = tmp_path, tmp_path / "0"  # `0` is the state before each try
    start.mkdir()
    (start / "demos.csv").write_text(EPISODES)
    if way == "dataset":
        shutil.copytree(HOME / "v30-image", start / "cubes")
        assert fsc("label", start / "cubes", "--rule", "0: camera", "--rule", "rest: light").returncode == 0
    if there:
        (work / "0/towel").mkdir()
        (work / "0/towel/notes.txt").write_text("mine")
    command = [sys.executable, str(PROGRAM), str(work), "init", "towel", *WAYS[way]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    codes = [int(line) for line in done.stdout.split()]
    assert codes[-1] == 0, done.stderr
    assert set(codes[:-1]) == {-signal.SIGKILL}
    assert len(codes) > (30 if way == "episodes" else 4)
    whole = (work / str(len(codes)) / "towel/study.yaml").read_text()
    known: set[tuple[str, ...]] = set()
    for number in range(1, len(codes)):
        monkeypatch.chdir(work / str(number))
        left = Path("towel")
        state = tuple(sorted(re.sub("[0-9a-f]{8}", "#", str(path)) for path in Path().rglob("*")))
        if state in known:  # the same files as after an earlier kill
            continue
        known.add(state)
        if (left / "study.yaml").exists() or (left / "study.db").exists():
            check_study(way, fsc)  # whatever there is can be used as it is
        else:
            answer = fsc("plan", "towel")
            assert answer.returncode == 2
            assert "`fsc init towel` starts a study" in answer.stderr or "no such study" in answer.stderr
        before = (left / "study.yaml").exists()
        again = fsc("init", "towel", *WAYS[way])
        assert again.returncode == (2 if before else 0), again.stderr
        assert "already there" in again.stderr or not before
        assert (left / "study.yaml").read_text() == whole
        check_study(way, fsc)
        names = {path.name for path in left.iterdir() if not path.name.startswith(".")}
        assert names == {"study.yaml", "study.db"} | ({"notes.txt"} if there else set())
        assert not there or (left / "notes.txt").read_text() == "mine"


def check_study(way: str, fsc: Fsc) -> None:
    """The study in `towel` has the demonstrations that were given, not ones made up from counts."""
    if way == "example":
        assert fsc("plan", "towel").returncode == 0
    if not Path("towel/study.db").exists():
        assert fsc("runs", "towel").returncode == 0  # makes the record
    with Study.open(Path("towel/study.db")) as study:
        found = [episode.id for episode in study.dataset.episodes]
        assert study.runs()
    if way == "episodes":
        assert sorted(found) == IDS
    if way == "dataset":
        told = json.loads(fsc("label", "cubes", "--json").stdout)
        assert sorted(found) == sorted(label["id"] for label in told["labels"])


def test_a_file_that_somebody_else_made_is_left_alone(tmp_path: Path, fsc: Fsc) -> None:
    folder = tmp_path / "towel"
    for name in ("study.yaml", "study.db"):
        for make in ("file", "link"):
            folder.mkdir()
            path = folder / name
            path.write_text("mine") if make == "file" else path.symlink_to("nowhere")
            for way in ([], ["--factor", "camera=3"]):
                answer = fsc("init", folder, *way)
                assert answer.returncode == 2
                assert answer.stderr == f"fsc: {path}: already there; nothing was changed; choose another folder\n"
                assert list(folder.iterdir()) == [path]
            assert path.is_symlink() or path.read_text() == "mine"
            shutil.rmtree(folder)


def test_another_study_of_the_same_name_is_not_taken_for_the_own(tmp_path: Path, fsc: Fsc) -> None:
    folder = tmp_path / "towel"
    assert fsc("init", folder, "--factor", "camera=3", "--factor", "light=3").returncode == 0
    (folder / "study.yaml").unlink()
    for factors in (["camera=4", "light=3"], ["camera=3"], ["light=3", "camera=3"]):
        given = [word for factor in factors for word in ("--factor", factor)]
        assert "study.db: already there" in fsc("init", folder, *given).stderr
    assert not (folder / "study.yaml").exists()
    assert fsc("record", folder, "1", "0.5").returncode == 0  # used meanwhile
    assert "already there" in fsc("init", folder, "--factor", "camera=3", "--factor", "light=3").stderr


@pytest.mark.parametrize("there", [False, True], ids=["new folder", "folder with notes"])
def test_of_several_at_once_one_makes_the_study(there: bool, tmp_path: Path) -> None:
    from tests.cli.programs.kill_init import preload

    preload()
    for turn in range(6):
        folder = tmp_path / str(turn)
        if there:
            folder.mkdir()
            (folder / "notes.txt").write_text("mine")
        ways = [[] if k == 5 else ["--factor", f"camera={k + 2}", "--factor", "light=3"] for k in range(6)]
        codes = at_once([["init", str(folder), *way] for way in ways], tmp_path / f"{turn}.log")
        assert sorted(codes) == [0, 2, 2, 2, 2, 2]
        winner = codes.index(0)
        names = {path.name for path in folder.iterdir()}
        assert names - {"notes.txt"} == ({"study.yaml"} if winner == 5 else {"study.yaml", "study.db"})
        if winner != 5:
            assert f"camera: {winner + 2}\n" in (folder / "study.yaml").read_text()
            with Study.open(folder / "study.db") as study:
                assert study.spec.sizes == {"camera": winner + 2, "light": 3}


def at_once(commands: list[list[str]], log: Path) -> list[int]:
    """Exit codes of commands that begin at the same moment, in processes of their own."""
    gate, open_gate = os.pipe()
    children = []
    for command in commands:
        pid = os.fork()
        if pid == 0:
            os.close(open_gate)
            file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(file, 1)
            os.dup2(file, 2)
            os.read(gate, 1)  # ends when the other side is closed
            code = 99
            try:
                main(command)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 98
            finally:
                os._exit(code)
        children.append(pid)
    os.close(gate)
    os.close(open_gate)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
