"""Warnings about what the scores cannot determine; none where they determine the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from factored_scaling import Results, StudySpec, recommend

SIZES = {"a": 30, "b": 30, "c": 20}
FULL = (30, 30, 20)
SCREEN = {FULL: (0.4, 0.6, 0.9), (0, 30, 20): (0.1, 0.6, 0.9), (30, 0, 0): (0.4, 0.3, 0.8)}


def rows(scores: Mapping[tuple[int, int, int], Sequence[float]], trials: int | None = 50) -> list[dict[str, object]]:
    """A score per factor of every training set."""
    return [
        {"demos": dict(zip(SIZES, demos, strict=True)), "factor": name, "score": score, "trials": trials}
        for demos, each in scores.items()
        for name, score in zip(SIZES, each, strict=False)
    ]


def means(scores: Mapping[tuple[int, int, int], float]) -> list[dict[str, object]]:
    return [
        {"demos": dict(zip(SIZES, demos, strict=True)), "score": score, "trials": 50} for demos, score in scores.items()
    ]


def warnings_of(scores: Sequence[Mapping[str, object]], budget: int = 40) -> tuple[str, ...]:
    return recommend(StudySpec(SIZES, construction="one"), Results.from_rows(scores), budget).warnings


def test_no_warning_where_the_scores_determine_the_answer() -> None:
    assert warnings_of(rows(SCREEN)) == ()


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        (rows({FULL: (0.4, 0.6, 0.9)}), ["one training set was measured"]),
        (rows(dict.fromkeys(SCREEN, (0, 0, 0))), ["no trial succeeded"]),
        (rows(dict.fromkeys(SCREEN, (1, 1, 1))), ["every trial succeeded"]),
        (
            rows({key: each[:1] for key, each in SCREEN.items()}),
            ["no trial varied b and c: predictions for them come from the prior"],
        ),
        (
            rows({key: each[:2] for key, each in SCREEN.items()}),
            ["no trial varied c: predictions for it come from the prior"],
        ),
        (
            rows(SCREEN, trials=None),
            ["9 scores have no number of trials; 100 are assumed, and the intervals depend on that"],
        ),
        # thinned together, to within the demonstration that rounding costs
        (
            means({FULL: 0.6, (0, 30, 20): 0.4, (30, 16, 10): 0.5}),
            ["the scores do not distinguish b and c;"],
        ),
        (means({FULL: 0.6, (0, 30, 20): 0.4, (30, 18, 10): 0.5}), []),
        (means({FULL: 0.6}), ["do not distinguish a, b and c;", "one training set was measured"]),
    ],
)
def test_what_the_scores_do_not_determine_is_a_warning(
    scores: Sequence[Mapping[str, object]], words: list[str]
) -> None:
    found = warnings_of(scores)
    assert len(found) == len(words)
    for text, sentence in zip(words, found, strict=True):
        assert text in sentence


@pytest.mark.parametrize(
    ("scores", "split", "plain"),
    [
        (rows(dict.fromkeys(SCREEN, (0, 0, 0))), " and the split is arbitrary", ""),
        (rows(dict.fromkeys(SCREEN, (1, 1, 1))), " and the split is arbitrary", ""),
        (
            means({FULL: 0.6}),
            "the split within this group comes from the prior; record per-factor scores to resolve it",
            "record per-factor scores to resolve it",
        ),
    ],
)
def test_an_equal_split_is_not_called_arbitrary(scores: Sequence[Mapping[str, object]], split: str, plain: str) -> None:
    spec, results = StudySpec(SIZES, construction="one"), Results.from_rows(scores)
    equal, other = (recommend(spec, results, 40, rule, "response-model").warnings[0] for rule in ("equal", "top"))
    assert split in other
    assert equal == other.replace(split, plain)


def test_a_budget_far_beyond_the_data_is_called_a_direction() -> None:
    assert warnings_of(rows(SCREEN), 320) == ()
    (text,) = warnings_of(rows(SCREEN), 8000)
    assert text.startswith("the allocation is 100 times the current demos, far beyond anything measured")


def test_predicted_success_comes_from_the_prior_where_only_a_proxy_scored() -> None:
    spec, proxy = StudySpec(SIZES, construction="one"), Results.from_rows(rows(SCREEN, trials=None))
    (text,) = recommend(spec, Results(), 40, proxy=proxy).warnings
    assert text.startswith("no trial was scored: predicted success comes from the prior")
    assert recommend(spec, Results.from_rows(rows(SCREEN)), 40, proxy=proxy).warnings == ()


def test_one_factor_needs_not_be_distinguished() -> None:
    scores = [{"demos": {"a": 30}, "score": 0.5, "trials": 50}]
    assert recommend(StudySpec({"a": 30}, construction="one"), Results.from_rows(scores), 40).warnings == ()


def test_power_law_recommendations_have_none_of_these_warnings() -> None:
    scores = means({FULL: 0.6, (0, 30, 20): 0.4, (30, 0, 20): 0.5, (30, 30, 0): 0.5})
    spec = StudySpec(SIZES, construction="one")
    assert recommend(spec, Results.from_rows(scores), 8000, "top").warnings == ()
