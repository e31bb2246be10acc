"""The public predictions: intervals of any level, differences between allocations, and any training set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import factored_scaling as fsc
from factored_scaling.errors import InvalidInput, NotEnoughData, UnknownFactor, UnknownName
from factored_scaling.model.estimate import Estimate
from factored_scaling.model.posterior import Posterior, fit_posterior, probability_at_least
from factored_scaling.model.recommend import Recommendation, recommend

SPEC = fsc.StudySpec({"camera": 30, "light": 30, "table": 20}, construction="one")
BUDGET = 60


def per_factor(demos: tuple[int, int, int], scores: tuple[float, float, float]) -> list[dict[str, Any]]:
    training = dict(zip(SPEC.names, demos, strict=True))
    return [
        {"demos": training, "factor": name, "score": score, "trials": 200}
        for name, score in zip(SPEC.names, scores, strict=True)
    ]


RESULTS = fsc.Results.from_rows(
    [
        *per_factor((30, 30, 20), (0.4, 0.5, 0.9)),
        *per_factor((0, 30, 20), (0.1, 0.45, 0.85)),
        *per_factor((30, 0, 20), (0.4, 0.2, 0.9)),
        *per_factor((30, 30, 0), (0.4, 0.5, 0.85)),
    ]
)


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    return fit_posterior(SPEC, RESULTS)


@pytest.fixture(scope="module")
def answer(posterior: Posterior) -> Recommendation:
    return recommend(SPEC, RESULTS, BUDGET, posterior=posterior)


def success(posterior: Posterior, allocation: dict[str, int]) -> Any:
    return posterior.score(posterior.now + np.array([float(allocation[name]) for name in SPEC.names]))[0]


@pytest.mark.parametrize("level", [0.01, 0.5, 0.8, 0.95, 0.999, np.float32(0.5)])
def test_an_interval_holds_its_share_of_the_samples(answer: Recommendation, level: float) -> None:
    low, high = answer.prediction.interval(level)
    samples = answer.prediction.samples
    assert np.mean((samples >= low) & (samples <= high)) == pytest.approx(float(level), abs=3 / samples.size)
    assert 0 <= low <= np.median(samples) <= high <= 1


def test_intervals_of_higher_levels_hold_those_of_lower_ones(answer: Recommendation) -> None:
    intervals = [answer.prediction.interval(level) for level in (0.1, 0.5, 0.8, 0.95)]
    assert intervals == sorted(intervals, key=lambda interval: -interval[0])
    assert [high for _, high in intervals] == sorted(high for _, high in intervals)
    assert answer.prediction.interval() == answer.prediction.interval(0.95)
    assert answer.prediction.interval() == (answer.prediction.low, answer.prediction.high)


@pytest.mark.parametrize(
    ("level", "message"),
    [
        (0, "level: a level must lie between 0 and 1, not 0"),
        (1, "not 1"),
        (-0.5, "not -0.5"),
        (95, "not 95; write 95% as 0.95"),
        (float("nan"), "not nan"),
        ("0.95", "not '0.95'"),
        (None, "not None"),
        (True, "not True"),
    ],
)
def test_levels_outside_0_and_1_are_refused(answer: Recommendation, level: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        answer.prediction.interval(level)
    assert message in str(caught.value)


def test_a_widened_prediction_keeps_its_mean_and_stays_in_bounds() -> None:
    samples = np.random.default_rng(0).uniform(0.7, 0.9, 1000)
    narrow, wide = Estimate.of(samples), Estimate.of(samples, samples - 0.3)
    assert wide.mean == narrow.mean == pytest.approx(samples.mean())
    low, high = wide.interval(0.95)
    # a change of 0.5 may be wrong by ±20% (one standard deviation), beside the samples' own spread: twice as wide
    assert (low, high) == pytest.approx((0.61, 0.99), abs=0.01)
    assert Estimate.of(samples, samples + 1.0).interval(0.95)[1] == 1.0
    assert narrow.interval(0.95) == pytest.approx((0.705, 0.895), abs=0.005)


def test_versus_is_the_posterior_of_the_difference(answer: Recommendation, posterior: Posterior) -> None:
    assert answer.summary is not None
    for name in ("equal", "top"):
        allocation, estimate = answer.summary.alternatives[name]
        assert allocation != answer.allocation
        samples = success(posterior, answer.allocation) - success(posterior, allocation)
        difference = answer.versus(name)
        assert difference.mean == pytest.approx(samples.mean(), abs=1e-9)
        assert difference.mean == pytest.approx(answer.prediction.mean - estimate.mean, abs=1e-9)
        low, high = difference.interval(0.95)
        within_low, within_high = np.quantile(samples, [0.025, 0.975])
        assert low <= within_low + 1e-9  # widened, as predictions are
        assert high >= within_high - 1e-9
    equal = answer.summary.alternatives["equal"][0]
    share = probability_at_least(success(posterior, answer.allocation), success(posterior, equal))
    assert answer.probability_at_least_equal == share > 0.6


def test_versus_changes_sign_with_the_sides(posterior: Posterior) -> None:
    equal = recommend(SPEC, RESULTS, BUDGET, "equal", "response-model", posterior=posterior)
    top = recommend(SPEC, RESULTS, BUDGET, "top", posterior=posterior, fit="response-model")
    assert equal.summary is not None
    assert equal.summary.alternatives["top"][0] == top.allocation != equal.allocation
    forth, back = equal.versus("top"), top.versus("equal")
    assert forth.mean == pytest.approx(-back.mean, abs=1e-9)
    low, high = forth.interval(0.8)
    assert back.interval(0.8) == pytest.approx((-high, -low), abs=1e-9)
    assert 0.0 <= top.probability_at_least_equal <= 1.0


def test_an_equal_split_matches_itself(posterior: Posterior) -> None:
    equal = recommend(SPEC, RESULTS, BUDGET, "equal", "response-model", posterior=posterior)
    assert equal.probability_at_least_equal == 1.0
    assert (equal.versus("equal").mean, equal.versus("equal").interval(0.95)) == (0.0, (0.0, 0.0))
    unclear = fsc.Results.from_rows([{**row, "trials": 6} for row in per_factor((30, 30, 20), (0.5, 0.5, 0.5))])
    rejected = recommend(SPEC, unclear, BUDGET)
    assert rejected.summary is not None
    assert rejected.summary.is_equal
    assert rejected.probability_at_least_equal == 1.0
    assert rejected.versus("best").mean <= 0
    assert rejected.summary.best_probability is not None
    assert rejected.summary.best_probability < 0.6


@pytest.mark.parametrize(
    ("name", "message"),
    [("equl", "unknown alternative 'equl'; did you mean equal?"), ("best", "'best'"), (3, "'3'"), ([], "'[]'")],
)
def test_versus_an_unknown_alternative_is_refused(answer: Recommendation, name: Any, message: str) -> None:
    with pytest.raises(UnknownName) as caught:
        answer.versus(name)
    assert message in str(caught.value)


def test_predict_gives_the_numbers_of_the_recommendation(answer: Recommendation, posterior: Posterior) -> None:
    assert answer.summary is not None
    now = posterior.predict(SPEC.sizes)
    assert now.mean == pytest.approx(answer.summary.now.mean, abs=1e-12)
    after = posterior.predict({name: SPEC.sizes[name] + answer.allocation[name] for name in reversed(SPEC.names)})
    assert after.mean == pytest.approx(answer.prediction.mean, abs=1e-12)
    for level in (0.5, 0.8, 0.95):
        assert now.interval(level) == pytest.approx(answer.summary.now.interval(level), abs=1e-9)
        assert after.interval(level) == pytest.approx(answer.prediction.interval(level), abs=1e-9)
    printed = answer.to_mapping()["response_model"]["predicted"]
    assert printed == {"mean": answer.prediction.mean, "low": answer.prediction.low, "high": answer.prediction.high}
    fewer = posterior.predict({"camera": 0, "light": 30, "table": 20})
    assert fewer.mean < now.mean


@pytest.mark.parametrize(
    ("demos", "error", "message"),
    [
        ({"camera": 30, "ligth": 30, "table": 20}, UnknownFactor, "unknown factor 'ligth'; did you mean light?"),
        ({"camera": 30, "table": 20}, InvalidInput, "demos: no number of demos for light; name every factor"),
        ({"camera": 30, "light": -1, "table": 20}, InvalidInput, "demos.light: expected a whole number of at least 0"),
        ({"camera": 30, "light": 1.5, "table": 20}, InvalidInput, "demos.light: expected a whole number"),
        ({"camera": 30, "light": "30", "table": 20}, InvalidInput, "demos.light: expected a whole number"),
    ],
)
def test_predict_refuses_what_is_no_training_set(
    posterior: Posterior, demos: Any, error: type[InvalidInput], message: str
) -> None:
    with pytest.raises(error) as caught:
        posterior.predict(demos)
    assert message in str(caught.value)


def test_a_power_law_recommendation_has_no_posterior() -> None:
    answer = recommend(SPEC, RESULTS, BUDGET, "top")
    for ask in (
        lambda: answer.prediction,
        lambda: answer.regret,
        lambda: answer.probability_at_least_equal,
        lambda: answer.versus("equal"),
    ):
        with pytest.raises(NotEnoughData, match=r'power-law recommendation has no posterior .*; fit="response-model"'):
            ask()


def test_the_expected_regret_is_what_the_json_says(answer: Recommendation) -> None:
    assert answer.regret == answer.to_mapping()["response_model"]["regret"] >= 0


def test_a_study_has_a_posterior(tmp_path: Any, posterior: Posterior) -> None:
    with fsc.Study.create(SPEC, tmp_path / "study.db") as study:
        study.import_results(RESULTS, "results.csv")
        found = study.posterior()
        assert isinstance(found, fsc.Posterior)
        assert isinstance(found.predict(SPEC.sizes), fsc.Estimate)
        assert found.predict(SPEC.sizes).mean == study.recommend(BUDGET).to_mapping()["response_model"]["now"]["mean"]
        assert found.predict(SPEC.sizes).mean == pytest.approx(posterior.predict(SPEC.sizes).mean, abs=0.02)
        assert study.posterior(seed=1).predict(SPEC.sizes).mean != found.predict(SPEC.sizes).mean
