"""The benchmark of large studies, at a size that takes seconds: every case runs and gives a number."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "scale.py"


@pytest.mark.slow
def test_every_case_gives_a_number(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "FSC_TEST_POSTGRES"}
    command = [sys.executable, str(SCRIPT), "--size", "small", "--limit", "60"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if re.match(r"\| [^|]+ \| ", line)]
    assert len(rows) > 15
    assert all(float(row[-1].replace(",", "")) > 0 for row in rows[1:])
    assert list(tmp_path.iterdir()) == [], "studies are removed again"
