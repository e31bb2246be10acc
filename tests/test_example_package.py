"""A package of its own adds a task, a backend and a strategy: installed with pip and used through fsc."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "plugins"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which pip installed the package, with its metadata."""
    folder = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source") / "plugins"  # building leaves files behind
    subprocess.run(["cp", "-r", str(EXAMPLE), str(source)], check=True)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*install, "--target", str(folder), str(source)], check=True, timeout=300)
    return folder


def fsc(site: Path, *words: object) -> str:
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "factored_scaling", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dot")
    (folder / "study.yaml").write_text((EXAMPLE / "study.yaml").read_text())
    return folder


@pytest.mark.slow
def test_its_backend_and_strategy_carry_out_a_study(site: Path, study: Path) -> None:
    assert "all runs are done" in fsc(site, "run", study, "--workers", "2")
    runs = json.loads(fsc(site, "runs", study, "--json"))["runs"]
    assert {run["state"] for run in runs} == {"done"}
    assert {run["trials"] for run in runs} == {40}
    means = {json.dumps(run["score"]) for run in runs}
    assert len(means) > 1, "policies with other demonstrations score otherwise"
    answer = json.loads(fsc(site, "recommend", study, "--budget", "20", "--strategy", "weakest-two", "--json"))
    assert answer["allocation"] == {"dot_colour": 10, "background": 10}


@pytest.mark.slow
def test_its_task_is_simulated_by_our_own_backend(site: Path, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(
        "factors: {dot_colour: 2, background: 2}\nconstruction: one\npoints: 2\ntask: dot/reach\n"
        "policy: {updates: 4, batch: 4}\nevaluation: {settings: 2, initial_states: 1}\n"
    )
    assert "all runs are done" in fsc(site, "run", tmp_path, "--workers", "1")
    runs = json.loads(fsc(site, "runs", tmp_path, "--json"))["runs"]
    assert {(run["state"], run["trials"]) for run in runs} == {("done", 4)}
