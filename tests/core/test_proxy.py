from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from factored_scaling.core.proxy import cosine_similarities, nearest_mean, proxy_scores, rank_agreement
from factored_scaling.errors import InvalidInput, NotEnoughData


def test_cosines_ignore_length_and_survive_zero() -> None:
    held_out, training = [[2.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 3.0], [-1.0, -1.0]]
    expected = [[1.0, 0.0, -np.sqrt(0.5)], [0.0, 0.0, 0.0]]
    np.testing.assert_allclose(cosine_similarities(held_out, training), expected, atol=1e-12)


def test_the_mean_of_the_k_largest() -> None:
    similarities = np.array([[0.1, 0.9, 0.5], [0.3, 0.2, 0.1]])
    np.testing.assert_allclose(nearest_mean(similarities, 1), [0.9, 0.3])
    np.testing.assert_allclose(nearest_mean(similarities, 2), [0.7, 0.25])
    np.testing.assert_allclose(nearest_mean(similarities, 10), similarities.mean(1))


def test_a_training_set_that_contains_the_observation_is_as_near_as_can_be() -> None:
    rng = np.random.default_rng(0)
    training = rng.normal(size=(20, 8))
    similarities = cosine_similarities(training[3:5], training)
    np.testing.assert_allclose(nearest_mean(similarities), 1.0)
    assert nearest_mean(similarities, 5).max() < 1.0


def test_normalisation_is_once_over_the_study() -> None:
    scores = proxy_scores({"few": [0.2, 0.4], "all": [0.6, 1.0]}, ["light", None])
    assert scores["few"].overall == pytest.approx(0.125)
    assert scores["all"].overall == pytest.approx(0.75)  # one policy at a time both would be 0.5
    assert scores["all"].by_factor == {"light": pytest.approx(0.5)}


def test_equal_values_say_nothing() -> None:
    assert proxy_scores({"a": [0.3, 0.3], "b": [0.3, 0.3]})["b"].overall == 0.5


def test_per_factor_scores_average_to_the_whole() -> None:
    rng = np.random.default_rng(1)
    factors = ["a", "b", "a", "b"]
    score = proxy_scores({"p": rng.random(4), "q": rng.random(4)}, factors)["p"]
    assert np.mean(list(score.by_factor.values())) == pytest.approx(score.overall)


@pytest.mark.parametrize(
    ("values", "factors", "message"),
    [
        ({"p": [0.1, float("nan")]}, [], "policy 'p': needs one finite value"),
        ({"p": []}, [], "policy 'p': needs one finite value"),
        ({"p": [0.1, 0.2]}, ["a"], "2 values for 1 held-out"),
        ({}, [], "no policies"),
    ],
)
def test_wrong_values_are_named(values: dict[str, list[float]], factors: list[str | None], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        proxy_scores(values, factors)


def test_wrong_embeddings_are_named() -> None:
    with pytest.raises(InvalidInput, match="sizes 2 and 3"):
        cosine_similarities(np.ones((1, 2)), np.ones((1, 3)))
    with pytest.raises(InvalidInput, match="training embeddings must be finite"):
        cosine_similarities(np.ones((1, 2)), np.full((1, 2), np.inf))
    with pytest.raises(InvalidInput, match="k must be at least 1"):
        nearest_mean(np.ones((1, 2)), 0)
    with pytest.raises(NotEnoughData, match="nothing to be near to"):
        nearest_mean(np.ones((1, 0)))


def test_agreement_of_the_same_the_reverse_and_a_random_order() -> None:
    names = [f"p{i}" for i in range(12)]
    real = dict(zip(names, np.linspace(0.2, 0.8, 12), strict=True))
    same = rank_agreement({name: score**3 for name, score in real.items()}, real)
    assert same.spearman == pytest.approx(1)
    assert same.policies == 12
    assert same.p_value < 0.01
    assert same.interval.low == pytest.approx(1)
    reverse = rank_agreement({name: -score for name, score in real.items()}, real)
    assert reverse.spearman == pytest.approx(-1)
    assert reverse.p_value > 0.99
    noise = rank_agreement(dict(zip(names, np.random.default_rng(3).random(12), strict=True)), real)
    assert noise.interval.low < 0 < noise.interval.high
    assert noise.p_value > 0.05


def test_spearman_handles_ties_as_scipy_does() -> None:
    one, two = [0.1, 0.1, 0.5, 0.7, 0.2], [0.3, 0.2, 0.2, 0.9, 0.4]
    names = "abcde"
    agreement = rank_agreement(dict(zip(names, one, strict=True)), dict(zip(names, two, strict=True)))
    assert agreement.spearman == pytest.approx(stats.spearmanr(one, two).statistic)


def test_few_policies_have_an_exact_p_value() -> None:
    real = {"a": 0.1, "b": 0.2, "c": 0.3, "only-real": 0.9}
    agreement = rank_agreement({"a": 1.0, "b": 2.0, "c": 3.0, "only-proxy": 0.0}, real)
    assert agreement.policies == 3
    assert agreement.p_value == pytest.approx(1 / 6)


def test_too_little_to_compare_is_an_error() -> None:
    with pytest.raises(NotEnoughData, match="3 policies"):
        rank_agreement({"a": 1.0, "b": 2.0}, {"a": 1.0, "b": 2.0})
    with pytest.raises(NotEnoughData, match="no order"):
        rank_agreement({"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 1.0, "b": 1.0, "c": 1.0})
