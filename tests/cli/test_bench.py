"""fsc bench decisions: tables, JSON, Markdown, and mistakes in one line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Answer = subprocess.CompletedProcess[str]
Fsc = Callable[..., Answer]
WORLDS = ("--worlds", Path(__file__).resolve().parents[2] / "benchmarks" / "synthetic_worlds.py")
SMALL = ("bench", "decisions", *WORLDS, "--worlds-per-family", "2", "--families", "power-law,steps", "--factors", "5")


def test_tables_name_every_rule_and_family(fsc: Fsc, tmp_path: Path) -> None:
    page = tmp_path / "decisions.md"
    answer = fsc(*SMALL, "--methods", "equal,power-law:all@group", "--save", page)
    assert answer.returncode == 0, answer.stderr
    for text in ("families that rules were tuned on", "families kept apart", "power-law:all@group", "steps", "3,000"):
        assert text in answer.stdout
    written = page.read_text()
    assert written.startswith("# Decisions in worlds with a known best answer")
    assert "2 worlds per family and N, seed 0" in written
    assert "| equal | 0 |" in written


def test_json_holds_cells_and_means(fsc: Fsc) -> None:
    answer = fsc(*SMALL, "--methods", "equal,greedy", "--budget", "20,100", "--regime", "real,real-means", "--json")
    assert answer.returncode == 0, answer.stderr
    data = json.loads(answer.stdout)
    assert data["settings"]["budgets"] == [20, 100]
    assert {entry["role"] for entry in data["means"]} == {"tuning", "held_out"}
    # two families, two budgets; Equal in both regimes, Greedy not where only means are kept
    assert len(data["cells"]) == 2 * 2 * 3
    greedy = [cell for cell in data["cells"] if cell["method"] == "greedy"]
    assert all(cell["policies"] == 1 and cell["rollouts"] == 18 and cell["worlds"] == 2 for cell in greedy)


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ((), "Missing option '--worlds'"),
        ((*WORLDS, "--methods", "gready"), "unknown method 'gready'"),
        ((*WORLDS, "--families", "powerlaw"), "did you mean power-law?"),
        ((*WORLDS, "--regime", "simulate"), "did you mean simulation?"),
        ((*WORLDS, "--budget", "0"), "--budget: expected whole numbers of at least 1"),
        ((*WORLDS, "--factors", "5,x"), "--factors"),
        (("--worlds", "nowhere.py"), "--worlds nowhere.py: no families there"),
        ((*WORLDS, "--methods", "power-law:top@group:40"), "40 policies asked for"),
    ],
)
def test_mistakes_are_one_line(fsc: Fsc, args: tuple[str | Path, ...], what: str) -> None:
    answer = fsc("bench", "decisions", "--worlds-per-family", "1", *args)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert what in answer.stderr
    assert answer.stderr.count("\n") == 1
