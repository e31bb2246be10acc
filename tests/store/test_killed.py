"""Killed at every single statement: all of a call is there or nothing of it, and the next try succeeds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import run_fsc
from tests.store.programs.kill_at import OUTCOME, ROWS, spec

from factored_scaling.core.results import Results
from factored_scaling.errors import InvalidInput, StudyExists, StudyMissing
from factored_scaling.study import Study

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "programs" / "kill_at.py"
PLANNED = 5


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the tries are made: a file per try, named without a URL, or one database for all."""
    if request.param == "sqlite":
        return str(tmp_path / "{n}.db")
    found: str = request.getfixturevalue("postgres_address")
    return found


def tries(action: str, place: str, folder: Path) -> Iterator[tuple[str, int, bool]]:
    """Address and number of every try, and whether it came through."""
    # a new file begins with some fifty statements that make its tables
    step = 4 if "{n}" in place and action in ("create", "import_json") else 1
    command = [sys.executable, str(PROGRAM), action, place, str(folder), str(step)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    codes = [int(line) for line in done.stdout.split()]
    assert codes[-1] == 0, done.stderr
    assert set(codes[:-1]) == {-signal.SIGKILL}
    assert len(codes) > 3, "too few statements to have been killed at any of them"
    for number, code in enumerate(codes, start=1):
        yield place.replace("{n}", str(number)), number, code == 0


def test_a_study_is_created_whole_or_not_at_all(place: str, tmp_path: Path) -> None:
    for address, number, alive in tries("create", place, tmp_path):
        try:
            Study.create(spec(number), address).close()
            assert not alive
        except StudyExists:
            pass
        with Study.open(address, f"study {number}") as study:
            assert len(study.runs()) == PLANNED


def test_an_outcome_is_told_whole_or_not_at_all(place: str, tmp_path: Path) -> None:
    for address, number, alive in tries("tell", place, tmp_path):
        with Study.open(address, f"study {number}") as study:
            run = study.runs()[0]
            found = (run.state, run.trials, run.scores)
            assert found in ([("done", 2, 1)] if alive else [("running", 0, 0), ("done", 2, 1)])
            if run.state == "running":  # the next worker trains anew, and says something else under the same names
                while not (taken := study.ask()):
                    time.sleep(0.01)
                assert taken[0].id == run.id
                study.tell(run.id, {"light": [0.0, 1.0], "camera": 0.25})
                assert [trial.score for trial in study.store.trials(run.id)] == [0.0, 1.0]
                assert [mean.score for mean in study.store.scores(run.id)] == [0.25]
            else:
                assert [trial.score for trial in study.store.trials(run.id)] == OUTCOME["light"]


def test_a_file_is_imported_whole_or_not_at_all(place: str, tmp_path: Path) -> None:
    for address, number, alive in tries("import_csv", place, tmp_path):
        with Study.open(address, f"study {number}") as study:
            rows = len(study.results(partial=True).rows)
            assert rows in ([PLANNED] if alive else [0, PLANNED])
            assert study.import_results(Results.from_rows(ROWS), "results.csv") == PLANNED - rows
            assert sorted(row.score for row in study.results().rows) == [0.0, 0.0, 0.2, 0.2, 0.4]
            assert {run.state for run in study.runs()} == {"done"}


def test_a_round_begins_with_its_runs(place: str, tmp_path: Path) -> None:
    for address, number, alive in tries("extend", place, tmp_path):
        with Study.open(address, f"study {number}") as study:
            if study.round.index == 0:
                assert not alive
                study.extend({"light": 4})
            assert study.spec.sizes == {"camera": 4, "light": 8}
            assert len(study.store.runs(study.id, 1)) == PLANNED


def test_a_whole_study_is_imported_whole_or_not_at_all(place: str, tmp_path: Path) -> None:
    for address, number, alive in tries("import_json", place, tmp_path):
        file = tmp_path / f"{number}.json"
        if "://" not in address:
            folder = Path(address).with_suffix("")
            assert folder.exists() == alive
            if not alive:
                assert run_fsc("import", folder, file).returncode == 0
            assert {path.name for path in folder.iterdir()} == {"study.db", "study.yaml"}
            address = str(folder / "study.db")
        else:
            try:
                Study.open(address, f"study {number}").close()
            except (StudyMissing, InvalidInput):
                assert not alive
                assert run_fsc("import", address, file).returncode == 0
        with Study.open(address, f"study {number}") as study:
            assert study.store.dump(study.id) == json.loads(file.read_text())
