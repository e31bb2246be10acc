"""scripts/gpu_study.py: rows that are neither lost nor written twice, and a study that goes on after any end."""

from __future__ import annotations

import argparse
import importlib.util
import json
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from factored_scaling.backends.simulation import Lab
from factored_scaling.core.design import plan

SCRIPT = Path(__file__).parents[1] / "scripts" / "gpu_study.py"
FACTORS = ("camera_pose", "distractor", "table_texture", "lighting", "background")
TASK = "tabletop/pick-place"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("gpu_study", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_study"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def go_on(script: Any) -> Iterator[None]:
    yield
    script.STOPPING.clear()


def options(tmp_path: Path, **changes: Any) -> argparse.Namespace:
    given = {
        "task": TASK,
        "out": tmp_path / "out",
        "work": tmp_path / "work",
        "demos": 2,
        "seeds": [0],
        "states": 1,
        "image_size": 32,
        "policy": {"preset": "small"},
        "budgets": [4],
        "rules": ["equal"],
        "orders": None,
        "partial": False,
    }
    return argparse.Namespace(**{**given, **changes})


def measured(script: Any, demos: int, score: float, nominal: int = 0, kind: str = "study") -> Any:
    """A policy on `demos` of every factor."""
    label = ("study", dict.fromkeys(FACTORS, demos), 0) if kind == "study" else ("check", f"variant {demos}")
    run = argparse.Namespace(seed=0)
    scores: dict[str | None, list[float]] = {name: [score, score] for name in FACTORS}
    if nominal:
        scores[None] = [1.0] * nominal
    return script.Measured(script.Task(label, run, Path(), Path(), nominal), scores, {"1": [0.5]}, 1.0)


def test_a_policy_is_kept_whole_or_not_at_all(tmp_path: Path, script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    files = script.Files(tmp_path, FACTORS)
    files.write([measured(script, 3, 1.0)])
    keep = script.Files.keep

    def killed(self: Any, name: str, *rest: Any) -> None:
        if name == "results.csv":
            raise KeyboardInterrupt
        keep(self, name, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(script.Files, "keep", killed)
        with pytest.raises(KeyboardInterrupt):
            files.write([measured(script, 2, 0.5, nominal=4)])
    assert files.measured() == {("3",) * 5 + ("0",)}
    files.write([measured(script, 2, 0.5, nominal=4)])
    assert files.measured() == {("3",) * 5 + ("0",), ("2",) * 5 + ("0",)}
    assert len(files.rows("results.csv")) == 10
    assert len(files.rows("check.csv")) == 1
    assert set(json.loads((tmp_path / "similarity.json").read_text())) == {"3/3/3/3/3/0", "2/2/2/2/2/0"}
    assert not list(tmp_path.glob("*.tmp"))


def test_rows_cut_short_are_measured_again_and_replaced(tmp_path: Path, script: Any) -> None:
    files = script.Files(tmp_path, FACTORS)
    files.write([measured(script, 3, 1.0), measured(script, 2, 1.0)])
    path = tmp_path / "results.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-2]))  # as a kill between two rows left it
    assert files.measured() == {("3",) * 5 + ("0",)}
    files.write([measured(script, 2, 0.5)])
    rows = files.rows("results.csv")
    assert [(row["demos:lighting"], row["score"]) for row in rows] == [("3", "1.0")] * 5 + [("2", "0.5")] * 5


def test_rows_with_other_columns_stay_in_theirs(tmp_path: Path, script: Any) -> None:
    files = script.Files(tmp_path, FACTORS)
    files.write([measured(script, 1, 0.5, nominal=4, kind="check"), measured(script, 2, 0.5, kind="check")])
    first, second = files.rows("check.csv")
    assert (first["nominal"], first["score"]) == ("1.0", "0.5")
    assert (second["nominal"], second["score"]) == ("", "0.5")


def test_rows_of_another_study_are_not_mixed_in(tmp_path: Path, script: Any) -> None:
    lab = Lab(TASK, tmp_path, image_size=32)
    files = script.Files(tmp_path / "out", FACTORS)
    files.same_study(script.Room(options(tmp_path), 0, lab).spec)
    files.same_study(script.Room(options(tmp_path, states=2), 0, lab).spec)  # nothing is measured yet
    files.write([measured(script, 2, 1.0)])
    files.same_study(script.Room(options(tmp_path, states=2), 1, lab).spec)  # another seed of it
    for change in ({"image_size": 48}, {"policy": {"preset": "small", "updates": 5}}, {"demos": 3}):
        with pytest.raises(SystemExit, match=r"rows of another study .* give another --out"):
            files.same_study(script.Room(options(tmp_path, **{"states": 2, **change}), 0, lab).spec)


def test_orders_wait_for_the_whole_study(tmp_path: Path, script: Any) -> None:
    lab = Lab(TASK, tmp_path, image_size=32)
    files = script.Files(tmp_path / "out", FACTORS)
    files.write([measured(script, 2, 1.0)])
    policies = len(plan(script.Room(options(tmp_path), 0, lab).spec))
    with pytest.raises(SystemExit, match=f"seed 0: {policies - 1} of the study's {policies} policies are not measured"):
        script.loop(options(tmp_path), lab, None, files)


class Gone:
    exitcode = -9


def test_a_dead_evaluator_is_noticed_after_what_it_left(script: Any) -> None:
    hall = script.Hall.__new__(script.Hall)
    hall._processes, hall.outbox, hall.open = [Gone()], queue.Queue(), 2
    hall.outbox.put("the last")
    assert hall.receive(wait=False) == ["the last"]
    for wait in (False, True):
        with pytest.raises(SystemExit, match="a process that measures has died"):
            hall.receive(wait)
        script.STOPPING.clear()


@pytest.mark.slow
def test_a_stop_saves_what_is_in_training_and_the_same_command_goes_on(tmp_path: Path) -> None:
    given = {"task": TASK, "out": tmp_path / "out", "work": tmp_path / "work", "device": "cpu", "demos": 1}
    given |= {"states": 1, "nominal": 2, "image-size": 32, "policy": '{"preset": "small", "updates": 600, "batch": 8}'}
    command = [sys.executable, str(SCRIPT), "check", *(f"--{name}={value}" for name, value in given.items())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert any("frames" in line for line in first.stdout)
        time.sleep(2)
        first.send_signal(signal.SIGTERM)
        first.stdout.read()  # ends when its evaluator does too
    assert first.returncode == 1
    assert list((tmp_path / "work").glob("*/resume-*.json"))
    for _ in range(2):
        subprocess.run(command, check=True, timeout=120)
        assert len((tmp_path / "out" / "check.csv").read_text().splitlines()) == 2
