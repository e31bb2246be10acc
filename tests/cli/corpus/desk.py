"""A folder with one valid file of every kind that commands read."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

from tests.cli.conftest import run_fsc
from tests.data.lerobot_cases import HOME

LAB = """\
name: lab
factors:
  camera_pose: {demos: 4, values: [left, right]}
  lighting: {demos: 4, test_values: [dusk, red]}
construction: one
points: 2
scoring: {preset: fold-towel, combinations: 2, repeats: 1}
"""
# JSON is YAML, and can be spoilt as such
TOWEL: dict[str, Any] = {
    "name": "towel",
    "factors": {
        "camera_pose": {"demos": 2, "values": ["left", "right"], "cost": 2, "cap": 5},
        "lighting": {"demos": 2, "values": {"from": 0, "to": 1}},
    },
    "construction": "one",
    "points": 2,
    "trainer": {"command": "true {episodes_file}"},
    "scoring": {
        "rubric": [{"score": 0, "name": "no"}, {"score": 1, "name": "yes", "means": "done"}],
        "conditions": [{"lighting": "dim"}, {"lighting": "red", "camera_pose": "left"}],
        "repeats": 2,
        "step_limit": 600,
    },
}
RESULTS = "combination,n,score,trials\ncamera_pose,0,0.3,10\nlighting,0,0.4,10\nlighting,4,0.5,10\n"
OUTCOMES = """\
task,demos,seed,budget,method,predicted,score,trials,collect:camera_pose,score:camera_pose,collect:lighting,score:lighting
tabletop/insert,30,0,20,top,0.5,0.6,100,20,0.5,0,0.4
tabletop/insert,30,0,20,equal,,0.6,100,10,0.5,10,0.4
"""


def make_desk(root: Path) -> Path:
    """Fill the folder `root`."""
    for name, source in {"cubes": "v30-image", "films": "v30-video", "older": "v21-video"}.items():
        shutil.copytree(HOME / source, root / name, ignore=shutil.ignore_patterns("*.npz", "stats.json"))
        done("label", root / name, "--rule", "0: camera_pose", "--rule", "1: lighting", "--rule", "rest: nominal")
    (root / "labels.csv").write_text("episode,factor,value\n0,camera_pose,left\n1-2,lighting,\n")
    (root / "demos.csv").write_text("episode,factor\na,camera_pose\nb,lighting\nc,nominal\nd,lighting\n")
    (root / "results.csv").write_text(RESULTS)
    (root / "outcomes.csv").write_text(OUTCOMES)
    (root / "weights.json").write_text('{"camera_pose": 1, "lighting": 2}')
    (root / "notes").mkdir()
    (root / "notes/today.txt").write_text("mine")
    (root / "towel").mkdir()
    (root / "towel/study.yaml").write_text(json.dumps(TOWEL))
    for name in ("lab", "moved"):
        (root / name).mkdir()
        (root / name / "study.yaml").write_text(LAB)
        done("sheet", "evaluate", root / name, "--seed", "3", "--out", root / "evaluate-1.csv")
        done("sheet", "collect", root / name, "--allocation", "lighting=2", "--out", root / "collect-1.csv")
        if name == "moved":
            fill(root / "evaluate-1.csv", "score", ["1"])
            done("sheet", "import", root / name, root / "evaluate-1.csv", "--partial")
            done("record", root / name, "1", "1", "0", "--factor", "lighting")
            done("import", root / name, root / "results.csv")
            done("export", root / name, "--out", root / "export.json")
    shutil.rmtree(root / "moved")
    (root / "evaluate-1.csv").unlink()
    done("sheet", "evaluate", root / "lab", "--out", root / "evaluate-1.csv")
    done("sheet", "collect", root / "lab", "--out", root / "collect-1.csv")
    fill(root / "evaluate-1.csv", "score", ["1"] * 6)
    fill(root / "collect-1.csv", "collected", ["x", "x"])
    fill(root / "collect-1.csv", "episode", ["0", "1"])
    return root


def done(*command: str | Path) -> None:
    answer = run_fsc(*command)
    assert answer.returncode == 0, answer


def fill(path: Path, column: str, values: list[str]) -> None:
    """Write the first cells of a column."""
    rows = list(csv.reader(io.StringIO(path.read_text())))
    for row, value in zip(rows[1:], values, strict=False):
        row[rows[0].index(column)] = value
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    path.write_text(out.getvalue())
