"""The paper's main table with seeds and intervals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from main_table import bootstrap, page, scores, single_seed_noise

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
    text = page({"maniskill/pull-visual": lines}, ("equal", "greedy"))
    assert "| maniskill/pull-visual | 3 | 94.3 (90 to 99) | 96.8 (93 to 100) |" in text
    assert "| the paper | 1 | 56.6 | 83.1 |" in text
    assert "| rule | mean over settings: 1, seeds: 3 | less equal |" in text


def test_one_seed_is_shown_and_not_pooled() -> None:
    text = page({"maniskill/peg-visual": [line(0, "equal", 0.5), line(0, "greedy", 0.6, 0.7)]}, ("equal", "greedy"))
    assert "| maniskill/peg-visual | 1 | 50.0" in text
    assert "mean over settings" not in text
    assert "Median error of 1 predictions: 10.0 points." in text
