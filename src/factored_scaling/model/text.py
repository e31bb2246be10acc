"""Numbers and sentences about a recommendation, as the command line, JSON, report and dashboard show them.

One rounding everywhere: success in percent and differences in points with one decimal, ends of predicted intervals in
whole percent, probabilities in whole percent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from factored_scaling.model.estimate import SHOWN, Estimate
from factored_scaling.model.posterior import REQUIRED_PROBABILITY

if TYPE_CHECKING:
    from factored_scaling.model.summary import Comparison, ModelSummary

# Names of the alternatives to which a recommended allocation is compared.
ALTERNATIVES = {"equal": "an equal split", "best": "the best alternative", "top": "the paper's Top"}
LEVEL = f"{100 * SHOWN:.0f}%"
# How demonstrations per factor are written: by default '50 camera_pose, 50 distractor'.
Counted = Callable[[Mapping[str, int]], str]


def percent(value: float, digits: int = 1) -> str:
    """0.614 as '61.4%'."""
    return f"{_rounded(100 * value, digits):.{digits}f}%".replace("-", "−")


def points(value: float) -> str:
    """A difference of success in points: 0.014 as '+1.4', and what rounds to nothing as '0.0'."""
    gain = _rounded(100 * value, 1)
    return f"{gain:+.1f}".replace("-", "−") if gain else "0.0"


def size_of_points(value: float) -> str:
    """An amount of success in points, without a sign: 0.014 as '1.4'."""
    return f"{_rounded(100 * value, 1):.1f}"


def estimate_text(estimate: Estimate) -> str:
    """A success with its 95% interval: '72.3% (66–79)'."""
    return f"{percent(estimate.mean)} ({_rounded(100 * estimate.low, 0):.0f}–{_rounded(100 * estimate.high, 0):.0f})"


def difference_text(estimate: Estimate) -> str:
    """A difference of success with its 95% interval: '+1.4 (−0.3 to +3.2)', in points."""
    return f"{points(estimate.mean)} ({points(estimate.low)} to {points(estimate.high)})"


def probability_text(value: float) -> str:
    """In whole percent; with a decimal where rounding would move it across the required probability."""
    whole, enough = round(100 * value), value >= REQUIRED_PROBABILITY
    return f"{whole}%" if (whole >= 100 * REQUIRED_PROBABILITY) == enough else f"{math.floor(1000 * value) / 10}%"


def counted(demos: Mapping[str, int]) -> str:
    """'50 camera_pose, 50 distractor'."""
    return ", ".join(f"{count} {name}" for name, count in demos.items() if count) or "nothing"


def prediction_sentence(summary: ModelSummary) -> str:
    """Predicted success of the recommended allocation and of its alternatives."""
    others = [
        f"{ALTERNATIVES[name]}: {percent(estimate.mean)}"
        for name, (demos, estimate) in summary.alternatives.items()
        if name != "best" and demos != summary.allocation
    ]
    return f"{'; '.join([f'Predicted success: {estimate_text(summary.predicted)}', *others])}."


def current_sentence(summary: ModelSummary) -> str:
    """Current success, by the same model."""
    return f"Current success: {estimate_text(summary.now)}."


def versus_equal_sentence(summary: ModelSummary, words: Counted = counted) -> str:
    """How likely the recommended allocation is to match or beat an equal split, and by how much."""
    if summary.is_equal:
        demos, best = summary.alternatives["best"]
        assert summary.best_probability is not None
        chance = f"has only a {probability_text(summary.best_probability)} chance of matching it"
        return (
            f"Recommending an equal split: the best alternative ({words(demos)}: {percent(best.mean)}) {chance} "
            f"({REQUIRED_PROBABILITY:.0%} required); difference {_difference(summary.gain_over_equal)}."
        )
    if summary.allocation == summary.alternatives["equal"][0]:
        return "This is an equal split."
    likely = f"{probability_text(summary.probability_at_least_equal)} likely to match or beat an equal split"
    return f"{likely}; difference {_difference(summary.differences['equal'])}."


def comparison_sentence(compared: Comparison) -> str:
    """The response model's view of an allocation that another rule chose."""
    likely = f"{probability_text(compared.probability)} likely to match or beat an equal split"
    predicted = f"Predicted success by the response model: {estimate_text(compared.predicted)}"
    return f"{predicted}; {likely}; difference {_difference(compared.difference)}."


def choice_sentence(summary: ModelSummary) -> str:
    """Whether the choice matters here: what the best allocation gains over an equal split, against training noise."""
    gain, noise = max(0.0, summary.gain_over_equal.mean), summary.noise.mean
    retraining = f"retraining alone moves success by {size_of_points(noise)}"
    if size_of_points(gain) == "0.0":
        return f"No allocation is expected to gain more than an equal split; {retraining} points."
    if gain < 0.5 * noise:
        verdict = "Any reasonable split will do"
    else:
        verdict = "The choice matters little" if gain < noise else "The choice matters"
    expected = f"the best allocation is expected to gain {size_of_points(gain)} points more than an equal split"
    return f"{verdict}: {expected}; {retraining}."


def noise_sentence(summary: ModelSummary) -> str:
    """How much success differs when a policy is trained again."""
    return f"Training noise: {size_of_points(summary.noise.mean)} points (one standard deviation)."


def regret_sentence(summary: ModelSummary) -> str:
    """Expected regret of the recommended allocation."""
    return f"Expected regret of acting now: {size_of_points(summary.regret)} points."


def _difference(estimate: Estimate) -> str:
    low, high = points(estimate.low), points(estimate.high)
    return f"{points(estimate.mean)} points ({low} to {high})"


def _rounded(value: float, digits: int) -> float:
    """Rounded, and never −0."""
    return round(value, digits) + 0.0
