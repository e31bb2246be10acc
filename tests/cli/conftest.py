"""`fsc` inside this process: what a command printed, and its exit code."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from factored_scaling.cli import main

# study.yaml and results.csv as the documentation shows them
STUDY = """\
name: fold-towel
factors:                     # order matters: it breaks ties
  camera_pose: 30            # demos that vary it
  distractor: 30
  table_texture: 30
  lighting: 30
nominal: 0
construction: group          # one | pair | group
groups: [[camera_pose, distractor], [table_texture, lighting]]   # optional for group
points: 4
"""
RESULTS = """\
combination,n,score,trials
camera_pose+distractor,0,0.40,600
camera_pose+distractor,20,0.50,600
camera_pose+distractor,40,0.56,600
camera_pose+distractor,60,0.61,600
table_texture+lighting,0,0.55,600
table_texture+lighting,20,0.58,600
table_texture+lighting,40,0.60,600
table_texture+lighting,60,0.61,600
"""

Answer = subprocess.CompletedProcess[str]


def run_fsc(*args: str | Path, stdin: bytes = b"") -> Answer:
    """Run a command; like a process, it always ends with an exit code and never lets an exception out."""
    out, err = (  # as Python opens them: stderr prints whatever it is given
        io.TextIOWrapper(io.BytesIO(), "utf-8", errors, newline="", write_through=True)
        for errors in ("strict", "backslashreplace")
    )
    kept, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main([str(arg) for arg in args])
    finally:
        sys.stdin = kept
    texts = [stream.buffer.getvalue().decode() for stream in (out, err) if isinstance(stream.buffer, io.BytesIO)]
    code = ended.value.code
    assert isinstance(code, int)
    return subprocess.CompletedProcess([str(arg) for arg in args], code, texts[0], texts[1])


@pytest.fixture(scope="session")
def fsc() -> Callable[..., Answer]:
    """Call it like the command: `fsc("plan", folder, "--json")`."""
    return run_fsc


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A folder with the study.yaml and the results.csv of the documentation."""
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "study.yaml").write_text(STUDY)
    (folder / "results.csv").write_text(RESULTS)
    return folder
