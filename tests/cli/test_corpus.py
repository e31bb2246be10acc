"""Malformed input of every kind for every reader: one line, exit code 2, and not a byte on disk is changed.

Each reader has a positive control: the same command on the valid file succeeds.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.corpus import datasets, exports, lists, results, studies
from tests.cli.corpus.arguments import ARGUMENTS
from tests.cli.corpus.desk import make_desk
from tests.cli.corpus.kinds import Case, Instead, Reader

from factored_scaling.backends.outcome import read_outcome
from factored_scaling.errors import InvalidInput

Answer = subprocess.CompletedProcess[str]
Fsc = Callable[..., Answer]

READERS: dict[str, Reader] = {**datasets.READERS, **lists.READERS, **exports.READERS, **studies.READERS}
CASES = [(reader, name) for reader, found in READERS.items() for name in found.cases]
SAID = [(before, argument) for before, arguments in ARGUMENTS.items() for argument in arguments]
# the arguments that the commands of ARGUMENTS take
RIGHT: dict[tuple[str, ...], str] = {
    ("label", "cubes", "--replace", "--rule"): "task ~ cube: lighting = dim",
    ("dataset", "select", "cubes", "--out", "new", "--episodes"): "0-1, 2",
    ("dataset", "select", "cubes", "--out", "new", "--factor"): "lighting",
    ("init", "new", "--factor"): "lighting=3",
    ("init", "new", "--factor", "lighting=3", "--name"): "x" * 400,
    ("init", "new", "--factor", "lighting=3", "--points"): "3",
    ("extend", "lab", "--collected"): "lighting=3",
    ("sheet", "collect", "lab", "--allocation"): "lighting=3",
    ("sheet", "status", "lab", "--number"): "1",
    ("sheet", "evaluate", "lab"): "--out=-",
    ("record", "lab", "1"): "0.25",
    ("record", "lab", "1", "1", "--factor"): "lighting+camera_pose",
    ("record", "lab", "1", "1", "--note"): "gripper slipped",
    ("dataset", "show"): "films",
    ("import", "new"): "export.json",
}


def test_the_corpus_is_large_enough() -> None:
    assert len(CASES) + len(SAID) + len(results.RESULT) + len(results.EMBEDDINGS) >= 300
    assert all(len(READERS[reader].cases) >= 3 for reader in READERS)


@pytest.fixture(scope="module")
def whole_desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What every test begins with; none writes to it."""
    return make_desk(tmp_path_factory.mktemp("desk"))


@pytest.fixture(scope="module")
def shared_desk(whole_desk: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(whole_desk, tmp_path_factory.mktemp("shared") / "desk"))


@pytest.fixture
def desk(shared_desk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A desk that tests may share because nothing they do changes it; a test that fails leaves it as it was."""
    monkeypatch.chdir(shared_desk)
    return shared_desk


def state(folder: Path) -> dict[str, str]:
    """Everything under a folder: kind, rights and content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(mode) else ""
        found[str(path.relative_to(folder))] = f"{mode:o} {digest}"
    return found


def undo_changes(desk: Path, whole_desk: Path, before: dict[str, str]) -> set[str]:
    """What is not as it was; the desk is made anew then, so that other tests do not fail for it."""
    after = state(desk)
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    if changed:
        for path in desk.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(whole_desk, desk, dirs_exist_ok=True)
    return changed


@pytest.fixture
def spoilt(desk: Path) -> Iterator[Callable[[str, Case], None]]:
    """Spoil a file of the desk; afterwards it is as it was."""
    kept: dict[Path, bytes] = {}

    def spoil(file: str, case: Case) -> None:
        path = desk / file
        kept[path] = path.read_bytes()
        made = case.spoil(kept[path])
        assert made != kept[path]
        path.unlink()
        if made is Instead.FOLDER:
            path.mkdir()
        elif isinstance(made, bytes):
            path.write_bytes(made)

    yield spoil
    for path, content in kept.items():
        if path.is_dir():
            path.rmdir()
        path.write_bytes(content)


def check_refused(answer: Answer, said: str) -> None:
    """Exit code 2, nothing on stdout, one short line on stderr with these words, no traceback."""
    assert answer.returncode == 2, answer
    assert answer.stdout == ""
    assert answer.stderr.startswith("fsc: ")
    assert answer.stderr.endswith("\n")
    assert answer.stderr.count("\n") == 1
    assert len(answer.stderr) < 1100
    assert "Traceback" not in answer.stderr
    assert "NoneType" not in answer.stderr
    assert said in answer.stderr


@pytest.mark.parametrize(("reader", "name"), CASES, ids=[f"{reader}: {name}" for reader, name in CASES])
def test_a_malformed_file_is_refused(
    reader: str, name: str, fsc: Fsc, desk: Path, whole_desk: Path, spoilt: Callable[[str, Case], None]
) -> None:
    found = READERS[reader]
    spoilt(found.file, found.cases[name])
    before = state(desk)
    answer = fsc(*found.command)
    changed = undo_changes(desk, whole_desk, before)
    check_refused(answer, found.cases[name].said)
    assert not changed


@pytest.mark.parametrize("reader", READERS)
def test_the_valid_file_is_read(
    reader: str, fsc: Fsc, whole_desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shutil.copytree(whole_desk, tmp_path / "desk"))
    answer = fsc(*READERS[reader].command)
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize(("before", "argument"), SAID, ids=[f"{' '.join(b)} {a[:40]!a}" for b, a in SAID])
def test_a_malformed_argument_is_refused(
    before: tuple[str, ...], argument: str, fsc: Fsc, desk: Path, whole_desk: Path
) -> None:
    kept = state(desk)
    answer = fsc(*before, argument)
    changed = undo_changes(desk, whole_desk, kept)
    check_refused(answer, ARGUMENTS[before][argument])
    assert not changed


@pytest.mark.parametrize("before", RIGHT, ids=" ".join)
def test_a_valid_argument_is_taken(
    before: tuple[str, ...], fsc: Fsc, whole_desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shutil.copytree(whole_desk, tmp_path / "desk"))
    answer = fsc(*before, RIGHT[before])
    assert answer.returncode == 0, answer.stderr


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run's folder as a trainer's program leaves it."""
    (tmp_path / "result.json").write_text(json.dumps(results.GOOD))
    (tmp_path / "embeddings.npz").write_bytes(results.archive())
    return tmp_path


@pytest.mark.parametrize(
    ("file", "name"),
    [*(("result.json", name) for name in results.RESULT), *(("embeddings.npz", name) for name in results.EMBEDDINGS)],
)
def test_a_malformed_result_is_refused(file: str, name: str, run_folder: Path) -> None:
    case = (results.RESULT if file == "result.json" else results.EMBEDDINGS)[name]
    path = run_folder / file
    made = case.spoil(path.read_bytes())
    assert made != path.read_bytes()
    path.unlink()
    if made is Instead.FOLDER:
        path.mkdir()
    else:
        assert isinstance(made, bytes)
        path.write_bytes(made)
    before = state(run_folder)
    with pytest.raises(InvalidInput) as refused:
        read_outcome(run_folder / "result.json", results.FACTORS)
    message = str(refused.value)
    assert "\n" not in message
    assert str(run_folder / "result.json") in message
    assert case.said in message
    assert refused.value.exit_code == 2
    assert state(run_folder) == before


def test_a_valid_result_is_read(run_folder: Path) -> None:
    outcome = read_outcome(run_folder / "result.json", results.FACTORS)
    assert (len(outcome.trials), len(outcome.scores)) == (4, 1)
    assert outcome.similarities["factors"] == ["lighting", "camera_pose", None, None]


def test_statistics_that_cannot_be_used_are_computed_from_the_rows(
    fsc: Fsc, desk: Path, tmp_path: Path, spoilt: Callable[[str, Case], None]
) -> None:
    from tests.cli.corpus.kinds import first, same

    select = ("dataset", "select", "cubes", "--episodes", "0-1", "--out")
    assert fsc(*select, tmp_path / "whole").returncode == 0
    wanted = json.loads((tmp_path / "whole/meta/stats.json").read_text())["action"]
    odd = {
        "a text": same("stats/action/mean", "x"),
        "another size": first("stats/action/min", [1.0]),
        "no count": same("stats/action/count", [0]),
        "null": first("stats/action/max", None),
        "a date": same("stats/action/std", datasets.DAY),
    }
    for name, spoil in odd.items():
        spoilt(f"cubes/meta/episodes/{datasets.FILE}", Case(spoil, ""))
        answer = fsc(*select, tmp_path / name)
        assert answer.returncode == 0, answer.stderr
        found = json.loads((tmp_path / name / "meta/stats.json").read_text())["action"]
        assert found["mean"] == pytest.approx(wanted["mean"])
