"""Recipes of the time-to-success benchmark, and its report."""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import pytest
from time_to_success import read_recipes, report, seconds_of

from factored_scaling.backends.simulation import policy_config
from factored_scaling.sim import MANISKILL_TASKS

RECIPES = Path(__file__).resolve().parents[2] / "benchmarks" / "recipes"


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.json")), ids=lambda path: path.stem)
def test_recipes_are_settings_of_policies(path: Path) -> None:
    task, recipes = read_recipes(path)
    assert task in MANISKILL_TASKS
    paper = next(recipe for recipe in recipes if recipe.name == "the paper's")
    assert policy_config(paper.policy).updates == 50_000
    for recipe in recipes:
        expected = recipe.timed_updates or policy_config(recipe.policy).updates
        assert policy_config(recipe.trained).updates == expected


def test_a_recipe_that_is_only_timed_has_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared = {"task": "maniskill/pull-visual", "image_size": "96", "seed": "0"}
    shared |= {"nominal": "", "held_out": "", "start_seconds": "1.0"}
    slow = {**shared, "recipe": "the paper's", "updates": "50000", "timed_updates": "300", "train_seconds": "99.0"}
    quick = {**shared, "recipe": "small", "updates": "4000", "timed_updates": "4000", "train_seconds": "4.0"}
    rows = [slow, {**quick, "nominal": "1.0", "held_out": "0.9"}, {**quick, "nominal": "1.0", "held_out": "0.8"}]
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(slow))
        writer.writeheader()
        writer.writerows(rows)
    report(argparse.Namespace(out=tmp_path, reference="the paper's"))
    text = capsys.readouterr().out
    assert "| the paper's | 50000 | 100.0 (from 300 updates) | 1.0 | – | – | 1 |" in text
    assert "| small | 4000 | 5.0 | 20.0 | 100.0 ± 0.0 | 85.0 ± 7.1 | 2 |" in text
    assert (tmp_path / "report.md").read_text() == text
    assert seconds_of([{**quick, "train_seconds": ""}]) is None
