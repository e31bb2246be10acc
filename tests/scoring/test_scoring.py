"""A day of scoring: operators see scenes and labels, the study gets trials."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from factored_scaling import Study, StudySpec
from factored_scaling.errors import InvalidInput, NotEnoughData, StudyMissing, TrialTaken
from factored_scaling.scoring.session import Scoring

SPEC = StudySpec(
    {
        "camera_pose": {"demos": 6, "test_values": ["left", "right"]},
        "lighting": {"demos": 6, "test_values": ["dusk", "red"]},
    },
    construction="one",
    points=3,
    name="towel",
    scoring={"preset": "fold-towel", "combinations": 2, "repeats": 2},
)


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    with Study.create(SPEC, tmp_path / "study.db") as opened:
        yield opened


def true_score(study: Study, run_id: int) -> float:
    """More lighting demos, better policy."""
    return (0.0, 0.25, 0.5, 1.0)[study.store.run(run_id).demos["lighting"] // 2]


def score_all(study: Study, scoring: Scoring) -> None:
    key = {standing.label: standing.run.id for standing in scoring.standings()}
    while (trial := scoring.next("ada")) is not None:
        scoring.score(trial.code, true_score(study, key[trial.label]), "ada", f"score {trial.code}")


def test_a_day_from_the_queue_to_a_recommendation(study: Study) -> None:
    scoring = Scoring.begin(study)
    runs = study.runs()
    assert scoring.progress().trials == len(runs) * 2 * 2 == 20
    score_all(study, scoring)
    progress = scoring.progress()
    assert (progress.scored, progress.left, progress.closed) == (20, 0, False)
    with pytest.raises(NotEnoughData):
        study.recommend(10, "top")
    assert len(study.results(partial=True).rows) == len(runs)
    assert [run.id for run in study.unfinished()] == [run.id for run in runs]
    assert scoring.close() == 20
    assert scoring.progress().closed
    for row in study.results().rows:
        assert (row.factor, row.trials) == (("camera_pose", "lighting"), 4)
    assert study.recommend(10, "top").allocation == {"camera_pose": 0, "lighting": 10}


def test_one_factor_at_a_time_gives_scores_per_factor(tmp_path: Path) -> None:
    spec = SPEC.changed(scoring={"conditions": "each", "repeats": 1})
    with Study.create(spec, tmp_path / "study.db") as study:
        scoring = Scoring.begin(study)
        while (trial := scoring.next("ada")) is not None:
            scoring.score(trial.code, float("lighting" not in trial.condition.factor), "ada", trial.code)
        scoring.close()
        assert {(row.factor, row.score, row.trials) for row in study.results().rows} == {
            (("camera_pose",), 1.0, 2),
            (("lighting",), 0.0, 2),
        }
        assert study.recommend(10, "greedy").allocation == {"camera_pose": 0, "lighting": 10}


def test_operators_do_not_see_the_policy(study: Study) -> None:
    scoring = Scoring.begin(study)
    trial = scoring.next("ada")
    assert trial is not None
    digests = {run.digest for run in study.runs()}
    shown = str([dataclasses.asdict(entry) for entry in scoring.trials()]) + str(scoring.progress())
    assert not any(digest in shown for digest in digests)
    assert "run" not in {field.name for entry in (trial, scoring.progress()) for field in dataclasses.fields(entry)}
    assert {standing.run.digest for standing in scoring.standings()} == digests


def test_labels_are_drawn_unless_a_seed_is_given(tmp_path: Path) -> None:
    labels = []
    for number, seed in enumerate((None, None, 7, 7)):
        with Study.create(SPEC, tmp_path / f"{number}.db") as study:
            labels.append([standing.label for standing in Scoring.begin(study, seed=seed).standings()])
    assert labels[0] != labels[1]
    assert labels[2] == labels[3]


@pytest.mark.parametrize(
    "scoring",
    [
        {"preset": "fold-towel", "combinations": 2, "repeats": 3},
        {"preset": "fold-towel", "combinations": 3, "repeats": 2},
        {"preset": "fold-towel", "combinations": 2, "repeats": 2, "step_limit": 500},
        {"preset": "pick-place", "combinations": 2, "repeats": 2},
    ],
)
def test_a_queue_knows_when_study_yaml_asks_for_other_trials(
    scoring: dict[str, object], study: Study, tmp_path: Path
) -> None:
    assert not Scoring.begin(study).outdated()
    with Study.open(tmp_path / "study.db", settings=SPEC.changed(scoring=scoring)) as edited:
        assert Scoring.open(edited).outdated()


def test_hazard_and_step_limit_fail_and_say_why(study: Study) -> None:
    scoring = Scoring.begin(study)
    first, second = (trial.code for trial in scoring.trials()[:2])
    hazard = scoring.fail(first, "hazard", "ada", "a", "hit the table")
    assert (hazard.score, hazard.ending, hazard.notes) == (0.0, "hazard", ("hit the table",))
    limit = scoring.score(second, 0.5, "ada", "b", ending="step limit")  # half done when the time was over
    assert (limit.score, limit.ending) == (0.0, "step limit")
    scoring.close(early=True)
    notes = {trial.note for run in study.runs() for trial in study.store.trials(run.id)}
    assert notes == {"hazard; hit the table", "step limit"}


def test_undo_skip_note_and_release(study: Study) -> None:
    scoring = Scoring.begin(study)
    trial = scoring.next("ada")
    assert trial is not None
    assert scoring.last("ada") is None
    scoring.score(trial.code, 1.0, "ada", "a")
    last = scoring.last("ada")
    assert last is not None
    assert last.code == trial.code
    assert scoring.last("grace") is None
    back = scoring.undo(trial.code, "ada", "b")
    assert (back.state, back.operator, back.claimed) == ("open", "ada", True)
    assert scoring.skip(trial.code, "ada", "c", "lamp broke").notes == ("lamp broke",)
    assert scoring.note(trial.code, "replaced", "grace", "d").notes == ("lamp broke", "replaced")
    with pytest.raises(InvalidInput, match="the note is empty"):
        scoring.note(trial.code, "  ", "ada", "e")
    following = scoring.next("ada")
    assert following is not None
    assert scoring.release("ada") == 1
    assert scoring.trial(following.code).operator is None
    assert [row.entry.kind for row in scoring.history()] == ["score", "undo", "skip", "note"]
    with pytest.raises(TrialTaken, match="is skipped already"):
        scoring.score(trial.code, 1.0, "ada", "f")
    with pytest.raises(InvalidInput, match="no score of the rubric"):
        scoring.score(following.code, 0.3, "ada", "g")


def test_running_means_are_per_policy(study: Study) -> None:
    scoring = Scoring.begin(study)
    score_all(study, scoring)
    for standing in scoring.standings():
        assert standing.score is not None
        assert (standing.trials, standing.scored, standing.score.trials) == (4, 4, 4)
        assert standing.score.mean == true_score(study, standing.run.id)
        assert standing.score.interval.low <= standing.score.mean <= standing.score.interval.high
    overall = scoring.progress().overall
    assert overall is not None
    assert overall.trials == 20


def test_which_runs_are_queued(study: Study) -> None:
    done = study.runs()[0].id
    study.tell(done, 0.5)
    scoring = Scoring.begin(study)
    assert done not in {standing.run.id for standing in scoring.standings()}
    assert len(scoring.standings()) == len(study.runs()) - 1
    failed = study.take(study.runs()[1].id)
    study.fail(failed.id, "out of memory")
    assert failed.id in {standing.run.id for standing in scoring.standings()}  # queued before it failed
    with pytest.raises(InvalidInput, match=f"run {done} is done"):
        Scoring.begin(study, [done])
    with pytest.raises(InvalidInput, match="already queued in evaluation 1"):
        Scoring.begin(study)
    score_all(study, scoring)
    scoring.close()
    with pytest.raises(InvalidInput, match="every run of this round is done or failed"):
        Scoring.begin(study)


def test_trained_runs_are_queued_before_others_are(study: Study) -> None:
    waiting = study.runs()[2].id
    study.store.tell(waiting, waits=True)
    assert [standing.run.id for standing in Scoring.begin(study).standings()] == [waiting]


def test_what_failed_is_not_queued(study: Study) -> None:
    failed = study.take(study.runs()[1].id)
    study.fail(failed.id, "out of memory")
    assert failed.id not in {standing.run.id for standing in Scoring.begin(study).standings()}


def test_the_newest_open_evaluation_is_opened(study: Study) -> None:
    with pytest.raises(StudyMissing, match="no trials are queued yet; `fsc sheet evaluate STUDY`"):
        Scoring.open(study)
    ids = [run.id for run in study.runs()]
    first, second = Scoring.begin(study, ids[:1]), Scoring.begin(study, ids[1:])
    assert (first.number, second.number) == (1, 2)
    assert Scoring.open(study).number == 2
    score_all(study, second)
    second.close()
    assert Scoring.open(study).number == 1
    assert Scoring.open(study, 2).number == 2
    with pytest.raises(StudyMissing, match="no evaluation 3"):
        Scoring.open(study, 3)


def test_later_rounds_meet_the_same_scenes(study: Study) -> None:
    first = Scoring.begin(study)
    scenes = {trial.condition for trial in first.trials()}
    score_all(study, first)
    first.close()
    study.extend({"lighting": 4})
    assert {trial.condition for trial in Scoring.begin(study).trials()} == scenes
