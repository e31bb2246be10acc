"""What a script passes wrongly to a study: an error of ours that says what to pass, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factored_scaling import InvalidInput, RunSpec, Study, StudySpec

SPEC = StudySpec({"cam": 6, "light": 6}, construction="one", points=3, name="cups")
Call = Callable[[Any], object]


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    with Study.create(SPEC, tmp_path / "cups.db") as made:
        yield made


@pytest.mark.parametrize("seed", [1.0, 1.5, True, None, "1", -1, 2**63, np.float64(2)])
def test_a_seed_is_a_whole_number(study: Study, seed: Any) -> None:
    planned = len(study.runs())
    for call in (
        lambda: study.add({"cam": 5, "light": 0}, seed=seed),
        lambda: study.add_training_set(["cam/0"], seed=seed),
        lambda: RunSpec((), seed=seed),
    ):
        with pytest.raises(InvalidInput, match=r"^seed: a seed must be "):
            call()
    assert len(study.runs()) == planned


def test_seeds_of_numpy_and_large_ones_are_seeds(study: Study) -> None:
    three: Any = np.int64(3)
    run_id = study.add({"cam": 3, "light": 0}, seed=three)
    assert study.add({"cam": three, "light": 0}, seed=3) == run_id
    large = study.add_training_set(["cam/0"], seed=2**63 - 1)
    assert {run.id: run.seed for run in study.runs() if run.id in (run_id, large)} == {run_id: 3, large: 2**63 - 1}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda study: study.add({"cam": 7, "light": 0}), "demos:cam: 7 demos is more than the 6 of cam"),
        (lambda study: study.add({"cam": 1}), "demos:light: missing; give every factor's demos"),
        (
            lambda study: study.add({"cam": "1", "light": 0}),
            "demos:cam: expected a whole number of at least 0, not '1'",
        ),
        (lambda study: study.add(5), "demos: expected demos per factor, not 5"),
        (lambda study: study.add_training_set([]), "episodes: no episodes; name those to train on"),
        (
            lambda study: study.add_training_set(["cam/0", "cam/1", "cam/0"]),
            "episodes: episode 'cam/0' is listed twice; name each once",
        ),
        (lambda study: study.add_training_set("cam/0"), "episodes: expected a list of episode ids, not 'cam/0'"),
        (lambda study: study.add_training_set([0]), "episode 0 is not in the dataset (1 unknown)"),
    ],
)
def test_runs_that_cannot_be_added(study: Study, call: Call, message: str) -> None:
    planned = len(study.runs())
    with pytest.raises(InvalidInput) as error:
        call(study)
    assert str(error.value) == message
    assert len(study.runs()) == planned
