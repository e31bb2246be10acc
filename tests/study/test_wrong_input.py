"""What a script passes wrongly to a study: an error of ours that says what to pass, and nothing is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factored_scaling import (
    Dataset,
    InvalidInput,
    Posterior,
    Recommendation,
    Results,
    RunSpec,
    Study,
    StudySpec,
    Trial,
    fit_curves,
    fit_posterior,
    plan,
    recommend,
)
from factored_scaling.model.sampler import SamplerSettings

SPEC = StudySpec({"cam": 6, "light": 6}, construction="one", points=3, name="cups")
Call = Callable[[Any], object]
STUDY: Any = Study  # what type checkers would refuse


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


ROWS: list[dict[str, Any]] = [
    {"demos": {"cam": cam, "light": light}, "score": 0.2 + 0.05 * cam + 0.02 * light, "trials": 50}
    for cam, light in ((6, 6), (0, 6), (3, 6), (6, 0), (6, 3))
]
RESULTS = Results.from_rows(ROWS)


def answer_of(study: Study) -> Recommendation:
    return recommend(study.spec, RESULTS, 20, "top")


def test_a_recommendation_is_saved_and_followed_as_it_is(study: Study) -> None:
    answer = answer_of(study)
    study.save_recommendation(answer)
    assert study.saved_recommendation() == answer.to_mapping()
    assert study.extend(answer.allocation, answer).recommendation == answer.to_mapping()
    one: Any = np.int64(1)
    assert study.extend({"cam": one}, answer.to_mapping()).recommendation == answer.to_mapping()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda study: study.extend(answer_of(study)),
            "collected: a recommendation is not what was collected; say what was collected: "
            "extend(answer.allocation, answer) if it was all of it",
        ),
        (
            lambda study: study.extend("cam"),
            "collected: expected counts per factor, such as {'light': 12}, or Episodes, not 'cam'",
        ),
        (lambda study: study.extend(["cam"]), "such as {'light': 12}, or Episodes, not ['cam']"),
        (lambda study: study.extend(5), "or Episodes, not 5"),
        (
            lambda study: study.extend({"cam": 1}, "top"),
            "recommendation: expected a Recommendation or its to_mapping(), not 'top'",
        ),
        (lambda study: study.save_recommendation({"cam": 1}), "its to_mapping(), not {'cam': 1}"),
        (
            lambda study: study.tell(study.ask()[0], 0.5),
            "run 1: expected the id of a run, not the run; pass run.id",
        ),
        (lambda study: study.tell(study.runs()[0], 0.5), "pass run.id"),
        (lambda study: study.fail(study.runs()[0], "slipped"), "pass run.id"),
        (lambda study: study.take("1"), "run: the id of a run must be a whole number of at least 0, not '1'"),
        (lambda study: study.tell(1, {"cam+cam": [1]}), "a factor is named twice in 'cam+cam'"),
        (lambda study: study.record(1, [Trial("a", 1, ("*", "cam"))]), "* stands alone, not in '*+cam'"),
        (lambda study: study.record(1, [0.5]), "expected a Trial, not 0.5; give each rollout as"),
        (lambda study: study.record(1, Trial("a", 1)), "expected a list of Trials, not Trial(key='a', score=1.0, "),
        (lambda study: study.extend({"cam": 1.5}), "cam: the number of demos must be a whole number of at least 0"),
        (lambda study: study.extend({"cam": 10**7}), "cam: the number of demos must be at most 1000000"),
        (lambda study: study.ask("2"), "count: the number of runs must be a whole number of at least 0, not '2'"),
        (lambda study: study.ask(-1), "the number of runs must be a whole number of at least 0, not -1"),
        (lambda study: study.ask(lease_seconds="1h"), "lease_seconds: expected a number of seconds, not '1h'"),
        (lambda study: study.take(1, lease_seconds=-1), "lease_seconds: expected a number of seconds, not -1"),
        (
            lambda study: study.run(lambda run: 0.5, workers="2"),
            "workers: the number of workers must be a whole number of at least 1, not '2'",
        ),
        (lambda study: study.run(lambda run: 0.5, workers=0), "workers must be a whole number of at least 1, not 0"),
        (lambda study: study.run(lambda run: 0.5, attempts=0), "attempts must be a whole number of at least 1, not 0"),
        (
            lambda study: study.import_results("e.csv", "x"),
            "results: expected a Results, not 'e.csv'; `Results.from_rows(rows)` takes rows, `read_results(path)` a "
            "results.csv",
        ),
        (lambda study: study.posterior(seed=-1), "seed: a seed must be a whole number of at least 0, not -1"),
        (lambda study: study.recommend(20, "auto", seed=1.5), "seed: a seed must be a whole number"),
        (lambda study: STUDY.open(study.store.file, settings="study.yaml"), "settings: expected a StudySpec, not"),
        (lambda study: STUDY.open(5), "address: expected a path or a database URL, not 5"),
        (
            lambda study: STUDY.create({"cam": 5}, study.store.file.with_name("v.db")),
            "spec: expected a StudySpec, not {'cam': 5}; `read_study(path)` reads a study.yaml",
        ),
        (
            lambda study: STUDY.create(SPEC, ":memory:"),
            "address: a database in memory is not saved; give a file, such as study.db",
        ),
    ],
)
def test_what_a_study_is_given_wrongly(study: Study, call: Call, message: str) -> None:
    study.import_results(RESULTS, "day1.csv") if "posterior" in message or "seed" in message else None
    before = [(run.id, run.state, run.trials) for run in study.runs() if run.state != "running"]
    with pytest.raises(InvalidInput) as error:
        call(study)
    assert message in str(error.value)
    assert len(study.store.rounds(study.id)) == 1
    assert study.saved_recommendation() is None
    assert [(run.id, run.state, run.trials) for run in study.runs() if run.state != "running"] in (before, before[1:])
    assert not Path(":memory:").exists()


def test_a_study_is_opened_by_its_database(tmp_path: Path) -> None:
    folder = tmp_path / "cups"
    folder.mkdir()
    (folder / "study.yaml").write_text("factors: {cam: 6}\n")
    for given, what in ((folder, "is a folder"), (folder / "study.yaml", "is a study's settings")):
        said = f"{given}: {what}, not a study's database; give the study's .db file"
        for call in (Study.open, lambda path: Study.create(SPEC, path), lambda path: Study.load_or_create(SPEC, path)):
            with pytest.raises(InvalidInput, match=f"^{re.escape(said)}$"):
                call(str(given))
    Study.create(SPEC, folder / "study.db").close()
    for given in (folder, folder / "study.yaml"):
        with pytest.raises(InvalidInput, match=f"; give {re.escape(str(folder / 'study.db'))}$"):
            Study.open(given)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda wrong: recommend(SPEC, ROWS, 50),  # type: ignore[arg-type]
            "results: expected a Results, not [{",
        ),
        (
            lambda wrong: recommend(wrong, RESULTS, 50),
            "spec: expected a StudySpec, not 'study.yaml'; `read_study(path)`",
        ),
        (lambda wrong: fit_curves(wrong, RESULTS), "spec: expected a StudySpec"),
        (lambda wrong: fit_posterior(SPEC, wrong), "results: expected a Results"),
        (lambda wrong: plan(wrong), "spec: expected a StudySpec"),
        (lambda wrong: plan(SPEC, wrong), "dataset: expected a Dataset, not 'study.yaml'; `Dataset.of_sizes(sizes)`"),
        (
            lambda wrong: recommend(SPEC, RESULTS, 50, lambda given: None),  # type: ignore[arg-type, return-value]
            "strategy: expected a weight for each of cam, light, not None; return a mapping of factors to weights",
        ),
        (lambda wrong: Dataset.of_sizes({"a": -1}), "a: expected a whole number of at least 0, not -1"),
        (lambda wrong: Dataset.of_sizes(wrong), "sizes: expected demos per factor, not 'study.yaml'"),
    ],
)
def test_what_functions_are_given_wrongly(call: Call, message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        call("study.yaml")
    assert message in str(error.value)


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    return fit_posterior(SPEC, RESULTS, sampler=SamplerSettings())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda posterior: posterior.allocate(-5), "budget: the budget must be a whole number of at least 1, not -5"),
        (lambda posterior: posterior.allocate(5.5), "budget: the budget must be a whole number of at least 1, not 5.5"),
        (
            lambda posterior: posterior.score([[1, 2, 3]]),
            "demos: expected rows of 2 numbers of demos, not an array of shape (1, 3); one number each for cam, light",
        ),
        (lambda posterior: posterior.by_factor([1]), "not an array of shape (1, 1)"),
    ],
)
def test_what_a_posterior_is_given_wrongly(posterior: Posterior, call: Call, message: str) -> None:
    assert posterior.score(np.array([[1.0, 2.0]])).shape == (1, posterior.n_samples)
    with pytest.raises(InvalidInput) as error:
        call(posterior)
    assert message in str(error.value)
