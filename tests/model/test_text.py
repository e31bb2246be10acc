"""Numbers and sentences that every view shares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.report.cases import study

from factored_scaling.model.estimate import Estimate
from factored_scaling.model.recommend import recommend
from factored_scaling.model.summary import ModelSummary
from factored_scaling.model.text import (
    choice_sentence,
    difference_text,
    estimate_text,
    percent,
    points,
    probability_text,
    versus_equal_sentence,
)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(0.614, 0, "61%"), (0.614, 1, "61.4%"), (1.0, 0, "100%"), (-0.0001, 0, "0%"), (-0.02, 1, "−2.0%")],
)
def test_percent(value: float, digits: int, text: str) -> None:
    assert percent(value, digits) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.09, "+9.0"), (0.007, "+0.7"), (0.0, "0.0"), (-0.0004, "0.0"), (0.0004, "0.0"), (-0.09, "−9.0")],
)
def test_points(value: float, text: str) -> None:
    assert points(value) == text


@pytest.mark.parametrize(
    ("probability", "text"),
    [(0.599609375, "59.9%"), (0.59999, "59.9%"), (0.594, "59%"), (0.6171875, "62%"), (0.6, "60%"), (1.0, "100%")],
)
def test_rounding_does_not_move_a_probability_across_the_required_one(probability: float, text: str) -> None:
    assert probability_text(probability) == text


def test_estimates_have_their_interval() -> None:
    samples = np.linspace(0.0, 1.0, 1001) + 0.001
    assert estimate_text(Estimate(0.5, samples)) == "50.0% (3–98)"
    assert difference_text(Estimate(-0.014, samples - 0.501)) == "−1.4 (−47.5 to +47.5)"


def summary() -> ModelSummary:
    found = recommend(*study(per_factor=True), 100).summary
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("gain", "verdict"),
    [
        (0.004, "Any reasonable split will do: the best allocation is expected to gain 0.4 points"),
        (0.015, "The choice matters little: the best allocation is expected to gain 1.5 points"),
        (0.05, "The choice matters: the best allocation is expected to gain 5.0 points"),
    ],
)
def test_whether_the_choice_matters_is_told_by_training_noise(gain: float, verdict: str) -> None:
    given = replace(
        summary(), gain_over_equal=Estimate(gain, np.full(3, gain)), noise=Estimate(0.023, np.full(3, 0.023))
    )
    assert choice_sentence(given) == (f"{verdict} more than an equal split; retraining alone moves success by 2.3.")


@pytest.mark.parametrize("gain", [-0.001, 0.0, 0.0004])
def test_a_gain_that_rounds_to_nothing_is_not_printed(gain: float) -> None:
    no_gain = replace(
        summary(), gain_over_equal=Estimate(gain, np.full(3, gain)), noise=Estimate(0.023, np.full(3, 0.023))
    )
    text = "No allocation is expected to gain more than an equal split; retraining alone moves success by 2.3 points."
    assert choice_sentence(no_gain) == text


def test_an_equal_split_is_called_one() -> None:
    given = summary()
    equal = replace(given, allocation=given.alternatives["equal"][0])
    assert versus_equal_sentence(equal) == "This is an equal split."


def test_comparing_an_allocation_gives_the_numbers_of_the_summary() -> None:
    given = summary()
    for demos, estimate in given.alternatives.values():
        assert given.compare(demos).predicted.mean == pytest.approx(estimate.mean)
        assert given.compare(demos).predicted.interval() == pytest.approx(estimate.interval())
    own = given.compare(given.allocation)
    assert own.probability == given.probability_at_least_equal
    assert own.difference.interval() == pytest.approx(given.differences["equal"].interval())
    assert given.gain_over_equal.mean == pytest.approx(own.difference.mean)
