"""What an answer says of itself: nothing where the scores carry it, a sentence for everything that they leave open."""

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


def warned(told: Sequence[Mapping[str, object]], budget: int = 40) -> tuple[str, ...]:
    return recommend(StudySpec(SIZES, construction="one"), Results.from_rows(told), budget).warnings


def test_scores_that_carry_the_answer_raise_no_doubts() -> None:
    assert warned(rows(SCREEN)) == ()


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (rows({FULL: (0.4, 0.6, 0.9)}), ["one training set was measured"]),
        (rows(dict.fromkeys(SCREEN, (0, 0, 0))), ["no trial succeeded"]),
        (rows(dict.fromkeys(SCREEN, (1, 1, 1))), ["every trial succeeded"]),
        (rows({key: each[:1] for key, each in SCREEN.items()}), ["no trial varied b and c: what is said of them"]),
        (rows({key: each[:2] for key, each in SCREEN.items()}), ["no trial varied c: what is said of it"]),
        (rows(SCREEN, trials=None), ["9 scores come without a number of trials, taken as 100 each"]),
        # thinned together, to within the demonstration that rounding costs
        (means({FULL: 0.6, (0, 30, 20): 0.4, (30, 16, 10): 0.5}), ["do not tell apart b and c;"]),
        (means({FULL: 0.6, (0, 30, 20): 0.4, (30, 18, 10): 0.5}), []),
        (means({FULL: 0.6}), ["do not tell apart a, b and c;", "one training set was measured"]),
    ],
)
def test_what_the_scores_leave_open_is_said(told: Sequence[Mapping[str, object]], words: list[str]) -> None:
    found = warned(told)
    assert len(found) == len(words)
    for text, sentence in zip(words, found, strict=True):
        assert text in sentence


@pytest.mark.parametrize(
    ("told", "split", "plain"),
    [
        (rows(dict.fromkeys(SCREEN, (0, 0, 0))), " and the split is chance", ""),
        (rows(dict.fromkeys(SCREEN, (1, 1, 1))), " and the split is chance", ""),
        (
            means({FULL: 0.6}),
            "how demos are split there is belief, and scores per factor would tell",
            "scores per factor would",
        ),
    ],
)
def test_an_even_order_is_not_called_chance(told: Sequence[Mapping[str, object]], split: str, plain: str) -> None:
    spec, results = StudySpec(SIZES, construction="one"), Results.from_rows(told)
    even, other = (recommend(spec, results, 40, rule, "surface").warnings[0] for rule in ("equal", "top"))
    assert split in other
    assert even == other.replace(split, plain)


def test_a_budget_far_beyond_the_data_is_called_a_direction() -> None:
    assert warned(rows(SCREEN), 320) == ()
    (text,) = warned(rows(SCREEN), 8000)
    assert text.startswith("the order is 100 times the demos at hand")


def test_a_proxy_alone_does_not_say_how_often_the_robot_succeeds() -> None:
    spec, proxy = StudySpec(SIZES, construction="one"), Results.from_rows(rows(SCREEN, trials=None))
    (text,) = recommend(spec, Results(), 40, proxy=proxy).warnings
    assert text.startswith("no trial was scored: success is belief here")
    assert recommend(spec, Results.from_rows(rows(SCREEN)), 40, proxy=proxy).warnings == ()


def test_one_factor_needs_no_telling_apart() -> None:
    told = [{"demos": {"a": 30}, "score": 0.5, "trials": 50}]
    assert recommend(StudySpec({"a": 30}, construction="one"), Results.from_rows(told), 40).warnings == ()


def test_the_papers_curves_speak_for_themselves() -> None:
    told = means({FULL: 0.6, (0, 30, 20): 0.4, (30, 0, 20): 0.5, (30, 30, 0): 0.5})
    spec = StudySpec(SIZES, construction="one")
    assert recommend(spec, Results.from_rows(told), 8000, "top").warnings == ()
