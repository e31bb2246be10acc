"""A .db file as STUDY: what a script of somebody's own wrote, under every command."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from factored_scaling import Study, StudySpec

Fsc = Callable[..., subprocess.CompletedProcess[str]]
SPEC = StudySpec({"camera_pose": 6, "lighting": 6}, construction="one", points=3, name="towel")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A file with one study, every run of it measured but the last."""
    path = tmp_path / "fold-towel.db"
    with Study.load_or_create(SPEC, path) as study:
        for run in study.ask(len(study.runs()) - 1):
            study.tell(run.id, 0.1 + 0.05 * len(run.episodes))
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan",),
        ("runs",),
        ("fit",),
        ("recommend", "--budget", "10"),
        ("next", "--budget", "10"),
        ("export",),
        ("record", "5", "0.5"),
        ("extend", "--collected", "lighting=3"),
        ("report", "--budget", "10"),
        ("sheet", "collect", "--budget", "10"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_every_command_takes_a_database_file(fsc: Fsc, database: Path, arguments: tuple[str, ...]) -> None:
    command = arguments[:2] if arguments[0] == "sheet" else arguments[:1]
    answer = fsc(*command, database, *arguments[len(command) :])
    assert answer.returncode == 0, answer.stderr


def test_it_answers_as_python_does(fsc: Fsc, database: Path) -> None:
    answer = json.loads(fsc("recommend", database, "--budget", "10", "--json").stdout)
    with Study.open(database) as study:
        assert answer["allocation"] == study.recommend(10).allocation


def test_of_several_studies_one_is_named(fsc: Fsc, database: Path) -> None:
    with Study.load_or_create(SPEC.changed(name="drawer"), database):
        pass
    answer = fsc("runs", database)
    assert answer.returncode == 2
    assert answer.stderr == (
        f"fsc: {database}: the database holds 2 studies; "
        "name one of towel, drawer; on the command line write #NAME after it\n"
    )
    assert "towel" in fsc("plan", f"{database}#towel").stdout
    assert "drawer" in fsc("plan", f"{database}#drawer").stdout


def test_a_file_that_is_no_database_is_refused(fsc: Fsc, tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("not a database")
    answer = fsc("runs", tmp_path / "notes.db")
    assert (answer.returncode, answer.stderr.count("\n")) == (1, 1)
    assert "is not a study database" in answer.stderr


def test_beside_a_study_yaml_its_record_means_the_folder(fsc: Fsc, tmp_path: Path) -> None:
    fsc("init", tmp_path / "lab", "--factor", "camera_pose=6", "--factor", "lighting=6", "--points", "3")
    declared = tmp_path / "lab" / "study.yaml"
    declared.write_text(declared.read_text().replace("points: 3", "points: 4"))
    plans = [fsc("plan", study, "--json").stdout for study in (tmp_path / "lab", tmp_path / "lab" / "study.db")]
    assert plans[0] == plans[1]


def test_an_export_is_imported_into_a_new_file(fsc: Fsc, database: Path, tmp_path: Path) -> None:
    fsc("export", database, "--out", tmp_path / "all.json")
    answer = fsc("import", tmp_path / "copy.db", tmp_path / "all.json")
    assert answer.returncode == 0, answer.stderr
    with Study.open(tmp_path / "copy.db") as copy, Study.open(database) as original:
        assert copy.results().rows == original.results().rows
