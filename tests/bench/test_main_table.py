"""The paper's main table with seeds and intervals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from main_table import beyond_noise, bootstrap, by_factor, page, scores, single_seed_noise, student, success_before

from factored_scaling.cli.outcomes import OutcomeLine, read_outcomes

RESULTS = Path(__file__).resolve().parents[2] / "results"


def line(seed: int, method: str, score: float, predicted: float | None = None) -> OutcomeLine:
    return OutcomeLine("maniskill/peg-visual", 10, seed, 20, method, predicted, score, 300, {"a": 20}, {"a": score})


def test_only_seeds_with_every_rule_are_compared() -> None:
    lines = [line(0, "equal", 0.5), line(0, "greedy", 0.6), line(1, "equal", 0.7)]
    assert scores(lines, 20, ("equal", "greedy")).tolist() == [[0.5, 0.6]]
    assert scores(lines, 100, ("equal", "greedy")).shape == (0, 2)


def test_rules_of_one_seed_stay_paired_and_settings_have_the_same_weight() -> None:
    rng = np.random.default_rng(1)
    common = rng.normal(0.5, 0.2, (4, 1))
    settings = [np.hstack([common, common + 0.1]), np.full((2, 2), 0.9)]
    drawn = bootstrap(settings, rng, 5000)
    assert np.allclose(drawn[:, 1] - drawn[:, 0], 0.05)  # 0.1 in one of two settings, whatever seeds are drawn
    assert drawn.mean(0)[0] == pytest.approx((common.mean() + 0.9) / 2, abs=0.005)
    standard_error = common.std(ddof=1) / 4**0.5 / 2
    assert drawn[:, 0].std() == pytest.approx(standard_error, rel=0.05)
    assert single_seed_noise(settings) == pytest.approx(0, abs=1e-9)


def test_the_page_has_the_numbers_of_the_published_rows() -> None:
    lines = read_outcomes(RESULTS / "maniskill-pull-visual" / "resnet18-96px-6000" / "outcomes.csv")
    text = page({"maniskill/pull-visual": lines}, ("equal", "greedy"), {"maniskill/pull-visual": [0.9, 0.94]})
    assert "| maniskill/pull-visual | 3 | 92.0 | 94.3 (90 to 99) | 96.8 (93 to 100) |" in text
    assert "| the paper | 1 |  | 56.6 | 83.1 |" in text
    assert "| maniskill/peg-visual | 0 | – | – | – |" in text  # not run, and shown
    assert "| rule | mean over settings: 1, seeds: 3 | minus equal | Student's t |" in text


def test_one_seed_is_shown_and_not_pooled() -> None:
    text = page({"maniskill/peg-visual": [line(0, "equal", 0.5), line(0, "greedy", 0.6, 0.7)]}, ("equal", "greedy"))
    assert "| maniskill/peg-visual | 1 | – | 50.0" in text
    assert "mean over settings" not in text
    assert "Median error of 1 predictions: 10.0 points." in text


def test_differences_of_the_paper_are_compared_with_the_noise() -> None:
    assert beyond_noise(100, 0.0) == (14, 15)  # Greedy is no better than Equal in one setting
    assert beyond_noise(100, 10.0) == (3, 15)  # Pull Cube Tool, visual: 83.5, 83.1 and 28.7 beside 56.6
    assert beyond_noise(20, 30.0) == (0, 15)


def test_students_interval_of_one_setting_is_that_of_its_seeds() -> None:
    low, high = student([np.array([1.0, 2.0, 3.0])])
    assert (low, high) == pytest.approx((2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), abs=1e-3)
    low, high = student([np.array([1.0, 2.0, 3.0]), np.array([5.0, 5.0])])  # the other setting adds a degree of freedom
    assert (low, high) == pytest.approx((3.5 - 3.1824 / 12**0.5, 3.5 + 3.1824 / 12**0.5), abs=1e-3)


def test_success_by_factor_is_a_mean_over_seeds() -> None:
    text = by_factor({"maniskill/peg-visual": [line(0, "equal", 0.5), line(1, "equal", 0.7)]}, ("equal", "greedy"))
    assert "| 20 | equal | 60 |" in text
    assert "greedy" not in text


def test_success_before_is_read_beside_the_outcomes(tmp_path: Path) -> None:
    assert success_before(tmp_path / "check.csv") == []
    assert success_before(RESULTS / "main" / "pull-visual" / "check.csv") == [0.68, 0.5933, 0.5067]
