"""A short crash campaign: the long one is `python scripts/crash_campaign.py`."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "crash_campaign.py"
KILLS = 40


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kills_at_random_instants_lose_double_and_mix_nothing(request: pytest.FixtureRequest) -> None:
    environment = {**os.environ, "FSC_TEST_POSTGRES": ""}
    with contextlib.suppress(pytest.skip.Exception):  # without a server, SQLite alone
        environment["FSC_TEST_POSTGRES"] = request.getfixturevalue("postgres")
    command = [sys.executable, str(SCRIPT), "--kills", str(KILLS), "--seed", "7"]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=550, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    numbers = re.findall(r"\d+", answer.stdout.strip().splitlines()[-1])
    assert int(numbers[2]) >= KILLS
    assert set(numbers[5:]) == {"0"}
    rows = [line for line in answer.stdout.splitlines() if "SQLite" in line]
    assert len(rows) == 9, "every kind of work had its kills"
