"""fsc label: labels said, checked, shown and asked for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.data.lerobot_cases import HOME, write

Fsc = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return Path(shutil.copytree(HOME / "v30-video", tmp_path / "cubes"))


def test_from_nothing_to_a_clean_check(fsc: Fsc, dataset: Path) -> None:
    assert "unlabelled: episodes 0–2" in fsc("label", dataset).stdout
    assert fsc("label", dataset, "--check").returncode == 1
    answer = fsc("label", dataset, "--rule", "task ~ camera: camera_pose", "--rule", "rest: nominal")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines()[-4:-1] == [
        "───────────  ─────  ────────",
        "nominal          2  0, 2",
        "camera_pose      1  1",
    ]
    assert fsc("label", dataset, "--check").returncode == 0


def test_a_table_and_another_dataset_label_too(fsc: Fsc, dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("episode,factor,value\n0,nominal,\n1-2,lighting,dim\n")
    answer = fsc("label", dataset, "--csv", tmp_path / "labels.csv", "--json")
    assert json.loads(answer.stdout)["counts"] == {"nominal": 1, "lighting": 2}
    older = Path(shutil.copytree(HOME / "v21-video", tmp_path / "older"))
    told = json.loads(fsc("label", older, "--from", dataset, "--json").stdout)
    assert [label["value"] for label in told["labels"]] == ["", "dim", "dim"]
    assert told["unlabelled"] == []


def test_answers_are_kept_one_by_one(fsc: Fsc, dataset: Path) -> None:
    answer = fsc("label", dataset, "--ask", stdin=b"two words\nlighting = dim x2\n")
    assert "'two words' cannot name a factor" in answer.stdout
    assert json.loads(fsc("label", dataset, "--json").stdout)["counts"] == {"lighting": 2}
    fsc("label", dataset, "--ask", stdin=b"nominal\n")
    assert "every episode has a label" in fsc("label", dataset, "--ask").stdout


def test_repair_writes_todays_numbers(fsc: Fsc, tmp_path: Path) -> None:
    first, second = write(tmp_path / "first", [1, 2, 3]), write(tmp_path / "second", [3, 4])
    fsc("label", first, "--rule", "0: nominal", "--rule", "1-2: lighting")
    shutil.copy(first / "meta/fsc_episodes.parquet", second / "meta")
    told = fsc("label", second)
    assert "re-indexed since they were labelled: episode 2 is now 0" in told.stdout
    assert "no longer in the dataset: episodes 0, 1" in told.stdout
    assert "re-indexed" not in fsc("label", second, "--repair").stdout
    assert json.loads(fsc("label", second, "--json").stdout)["gone"] == []


def test_a_sheet_is_written(fsc: Fsc, dataset: Path, tmp_path: Path) -> None:
    assert f"wrote {tmp_path / 'sheet.html'}" in fsc("label", dataset, "--sheet", tmp_path / "sheet.html").stdout
    assert (tmp_path / "sheet.html").stat().st_size > 2000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rule", "9: lighting"], "no episode 9"),
        (["--csv", "nowhere.csv"], "nowhere.csv: no such file"),
        (["--from", "nowhere"], "--from nowhere: has no labels"),
        (["--check", "--rule", "0: nominal"], "--check changes nothing"),
        (["--sheet", "sheet.pdf"], "must end in .html or .png"),
    ],
)
def test_mistakes_are_one_line(fsc: Fsc, dataset: Path, arguments: list[str], said: str) -> None:
    answer = fsc("label", dataset, *arguments)
    assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (2, "", 1), answer
    assert said in answer.stderr
    assert not (dataset / "meta/fsc_episodes.parquet").exists()


def test_a_missing_library_is_told() -> None:
    program = "import sys; sys.modules['pyarrow'] = None; from factored_scaling.cli import main; main(['label', '.'])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (2, "")
    said = "fsc: LeRobot datasets need pyarrow and av; `pip install '.[lerobot]'` in a clone of factored-scaling"
    assert ended.stderr.strip() == said


def test_a_folder_without_a_dataset_is_told(fsc: Fsc, tmp_path: Path) -> None:
    answer = fsc("label", tmp_path)
    assert answer.returncode == 2
    assert "is not a LeRobot dataset" in answer.stderr
