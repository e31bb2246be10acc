"""What every database behind a store must do with trials that people score."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect, text

from factored_scaling.core.conditions import Condition, ScoringSpec
from factored_scaling.core.rubric import RUBRICS
from factored_scaling.core.trial_queue import PlannedTrial, plan_queue
from factored_scaling.core.trials import Trial
from factored_scaling.errors import InvalidInput, StudyMissing, TrialTaken
from factored_scaling.store import Entry, QueuedTrial, Store, migrations
from factored_scaling.store.connections import Database

PROGRAM = Path(__file__).parent / "programs" / "score.py"
SCENES = tuple(Condition((("camera", value), ("light", "dim"))) for value in ("left", "right"))
SCORING = ScoringSpec(RUBRICS["fold-towel"], SCENES, repeats=2, step_limit=600)


@dataclass(frozen=True)
class Queue:
    """Twelve trials of three policies."""

    study: int
    id: int
    runs: list[int]
    planned: tuple[PlannedTrial, ...]

    @property
    def codes(self) -> list[str]:
        return [trial.code for trial in self.planned]


def make_queue(store: Store, example: Any) -> Queue:
    planned = plan_queue(3, SCORING, seed=5)
    evaluation = store.add_evaluation(example.study, example.runs[:3], planned, SCORING.rubric, SCORING.step_limit, 5)
    return Queue(example.study, evaluation, example.runs[:3], planned)


@pytest.fixture
def queue(store: Store, example: Any) -> Queue:
    return make_queue(store, example)


def score(token: str, value: float = 1.0, operator: str = "ada", ending: str = "", note: str = "") -> Entry:
    return Entry("score", token, operator, value, ending, note)


def undo(token: str, operator: str = "ada") -> Entry:
    return Entry("undo", token, operator)


def skip(token: str, note: str = "", operator: str = "ada") -> Entry:
    return Entry("skip", token, operator, note=note)


def claimed(store: Store, queue: Queue, operator: str, seconds: float = 60.0) -> QueuedTrial:
    trial = store.claim_trial(queue.id, operator, seconds)
    assert trial is not None
    return trial


class TestQueue:
    def test_it_comes_back_as_it_was_planned(self, store: Store, queue: Queue) -> None:
        (row,) = store.evaluations(queue.study)
        assert (row.id, row.number, row.rubric, row.step_limit, row.closed) == (queue.id, 1, SCORING.rubric, 600, None)
        for planned, trial in zip(queue.planned, store.queue(queue.id), strict=True):
            assert (trial.code, trial.label, trial.condition, trial.repeat) == (
                planned.code,
                planned.label,
                planned.condition,
                planned.repeat,
            )
            assert trial.run_id == queue.runs[planned.policy]
            assert (trial.state, trial.operator, trial.claimed, trial.score) == ("open", None, False, None)

    def test_a_run_is_queued_once_at_a_time(self, store: Store, queue: Queue, example: Any) -> None:
        with pytest.raises(InvalidInput, match=r"run \d+ is already queued in evaluation 1"):
            make_queue(store, example)
        other = store.add_evaluation(queue.study, example.runs[3:4], plan_queue(1, SCORING, 0), SCORING.rubric, None, 0)
        assert store.evaluation(other).number == 2

    def test_runs_of_other_studies_are_refused(self, store: Store, example: Any) -> None:
        with pytest.raises(StudyMissing, match="no run 4141 in this study"):
            store.add_evaluation(example.study, [4141], plan_queue(1, SCORING, 0), SCORING.rubric, None, 0)
        assert store.evaluations(example.study) == []

    def test_what_is_unknown_is_an_error(self, store: Store, queue: Queue) -> None:
        for method in (store.evaluation, store.queue, store.entries, store.close_evaluation):
            with pytest.raises(StudyMissing, match="no evaluation"):
                method(4141)
        with pytest.raises(StudyMissing, match="no trial 'ZZZZ'"):
            store.queued_trial(queue.id, "ZZZZ")
        with pytest.raises(StudyMissing, match="no trial 'ZZZZ'"):
            store.append_entries(queue.id, [("ZZZZ", score("a"))])


class TestClaims:
    def test_two_operators_get_different_trials_in_order(self, store: Store, queue: Queue) -> None:
        assert [claimed(store, queue, name).code for name in ("ada", "grace", "ada")] == [
            queue.codes[0],
            queue.codes[1],
            queue.codes[0],  # the same until it is dealt with
        ]
        first = store.queue(queue.id)[0]
        assert (first.operator, first.claimed, first.state) == ("ada", True, "open")

    def test_a_claim_runs_out(self, store: Store, queue: Queue, clock: Any) -> None:
        claimed(store, queue, "ada", 60)
        clock.forward(59)
        assert claimed(store, queue, "grace").code == queue.codes[1]
        clock.forward(2)
        assert not store.queue(queue.id)[0].claimed
        assert claimed(store, queue, "hedy").code == queue.codes[0]

    def test_a_clock_that_is_set_back_blocks_no_trial(self, store: Store, queue: Queue, clock: Any) -> None:
        first = claimed(store, queue, "ada", 60)
        clock.forward(-86_400)
        assert not store.queue(queue.id)[0].claimed
        assert claimed(store, queue, "grace", 60).code == first.code
        assert claimed(store, queue, "ada", 60).code == queue.codes[1]
        clock.forward(-86_400)
        assert store.append_entries(queue.id, [(first.code, score("late", operator="hedy"))]) == 1

    def test_asking_again_extends_the_claim(self, store: Store, queue: Queue, clock: Any) -> None:
        for _ in range(3):
            claimed(store, queue, "ada", 60)
            clock.forward(50)
        assert claimed(store, queue, "grace").code == queue.codes[1]

    def test_who_runs_a_trial_scores_it(self, store: Store, queue: Queue, clock: Any) -> None:
        trial = claimed(store, queue, "ada", 60)
        with pytest.raises(TrialTaken, match=rf"trial {trial.code}: ada is running it"):
            store.append_entries(queue.id, [(trial.code, score("t", operator="grace"))])
        clock.forward(61)  # late, but nobody took it: the rollout was run and counts
        assert store.append_entries(queue.id, [(trial.code, score("t"))]) == 1

    def test_a_late_operator_whose_trial_was_taken_over_is_told(self, store: Store, queue: Queue, clock: Any) -> None:
        trial = claimed(store, queue, "ada", 60)
        clock.forward(61)
        assert claimed(store, queue, "grace").code == trial.code
        with pytest.raises(TrialTaken, match="grace is running it"):
            store.append_entries(queue.id, [(trial.code, score("late"))])
        assert store.append_entries(queue.id, [(trial.code, score("now", operator="grace"))]) == 1

    def test_a_trial_can_be_given_back(self, store: Store, queue: Queue) -> None:
        trial = claimed(store, queue, "ada")
        assert store.unclaim_trials(queue.id, "ada") == 1
        assert store.unclaim_trials(queue.id, "ada") == 0
        assert claimed(store, queue, "grace").code == trial.code

    def test_none_is_left_at_the_end(self, store: Store, queue: Queue) -> None:
        store.append_entries(queue.id, [(code, score(code)) for code in queue.codes[:-1]])
        assert claimed(store, queue, "ada").code == queue.codes[-1]
        assert store.claim_trial(queue.id, "grace", 60) is None

    @pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
    def test_a_claim_lasts_a_while(self, store: Store, queue: Queue, seconds: float) -> None:
        with pytest.raises(InvalidInput, match="seconds above 0"):
            store.claim_trial(queue.id, "ada", seconds)


class TestEntries:
    def test_a_score_is_kept_with_its_reason(self, store: Store, queue: Queue, clock: Any) -> None:
        first, second = queue.codes[:2]
        store.append_entries(queue.id, [(first, score("a", 0.25, note="left corner"))])
        store.append_entries(queue.id, [(second, score("b", 0.0, ending="hazard", note="hit the table"))])
        one, two = store.queue(queue.id)[:2]
        assert (one.state, one.score, one.ending, one.notes) == ("scored", 0.25, "", ("left corner",))
        assert (two.state, two.score, two.ending, two.notes) == ("scored", 0.0, "hazard", ("hit the table",))
        assert one.told == clock.time
        assert two.trial.note == "hazard; hit the table"
        assert two.trial.factor == ("camera", "light")
        assert two.trial.setting == queue.planned[1].condition.setting

    def test_a_resend_counts_once(self, store: Store, queue: Queue) -> None:
        told = [(queue.codes[0], score("same"))]
        assert [store.append_entries(queue.id, told) for _ in range(3)] == [1, 0, 0]
        assert len(store.entries(queue.id)) == 1

    def test_a_late_resend_does_not_bring_back_what_was_undone(self, store: Store, queue: Queue) -> None:
        code = queue.codes[0]
        store.append_entries(queue.id, [(code, score("a", 1.0)), (code, undo("b"))])
        assert store.append_entries(queue.id, [(code, score("a", 1.0))]) == 0
        assert store.queued_trial(queue.id, code).state == "open"

    @pytest.mark.parametrize(
        "other", [score("same", 0.5), score("same", note="x"), score("same", operator="grace"), skip("same")]
    )
    def test_a_token_means_one_thing(self, store: Store, queue: Queue, other: Entry) -> None:
        store.append_entries(queue.id, [(queue.codes[0], score("same"))])
        with pytest.raises(InvalidInput, match="token was used for another entry"):
            store.append_entries(queue.id, [(queue.codes[0], other)])
        with pytest.raises(InvalidInput, match="token was used for another entry"):
            store.append_entries(queue.id, [(queue.codes[1], score("same"))])

    def test_a_trial_is_scored_once(self, store: Store, queue: Queue) -> None:
        store.append_entries(queue.id, [(queue.codes[0], score("a"))])
        for entry in (score("b", 0.0), skip("c"), score("d", operator="grace")):
            with pytest.raises(TrialTaken, match="is scored already, by ada; undo that first"):
                store.append_entries(queue.id, [(queue.codes[0], entry)])

    def test_undo_gives_the_trial_back_and_keeps_what_was_said(self, store: Store, queue: Queue) -> None:
        code = queue.codes[0]
        store.append_entries(queue.id, [(code, score("a", 1.0, note="wrong trial"))])
        assert store.append_entries(queue.id, [(code, undo("b"))]) == 1
        trial = store.queued_trial(queue.id, code)
        assert (trial.state, trial.claimed, trial.score, trial.notes) == ("open", True, None, ())
        assert claimed(store, queue, "grace").code == queue.codes[1]
        assert claimed(store, queue, "ada").code == code
        store.append_entries(queue.id, [(code, score("c", 0.5))])
        assert store.queued_trial(queue.id, code).score == 0.5
        assert [(row.entry.kind, row.entry.score) for row in store.entries(queue.id)] == [
            ("score", 1.0),
            ("undo", None),
            ("score", 0.5),
        ]

    def test_there_must_be_something_to_undo(self, store: Store, queue: Queue) -> None:
        with pytest.raises(TrialTaken, match="nothing to undo"):
            store.append_entries(queue.id, [(queue.codes[0], undo("a"))])

    def test_what_is_left_out_is_not_offered_and_can_come_back(self, store: Store, queue: Queue) -> None:
        code = queue.codes[0]
        store.append_entries(queue.id, [(code, skip("a", "the lamp broke"))])
        assert store.queued_trial(queue.id, code).state == "skipped"
        assert claimed(store, queue, "ada").code == queue.codes[1]
        store.append_entries(queue.id, [(code, undo("b", "grace"))])
        assert claimed(store, queue, "grace").code == code

    def test_notes_are_added_at_any_time(self, store: Store, queue: Queue) -> None:
        code = queue.codes[0]
        store.append_entries(queue.id, [(code, Entry("note", "a", "grace", note="lens was dirty"))])
        store.append_entries(queue.id, [(code, score("b", note="slow"))])
        store.append_entries(queue.id, [(code, Entry("note", "c", "grace", note="cleaned it"))])
        trial = store.queued_trial(queue.id, code)
        assert (trial.state, trial.operator) == ("scored", "ada")
        assert trial.notes == ("lens was dirty", "slow", "cleaned it")

    def test_all_or_none(self, store: Store, queue: Queue) -> None:
        first, second = queue.codes[:2]
        for bad in ((second, score("b", 0.3)), ("ZZZZ", score("b")), (first, score("b"))):
            with pytest.raises(InvalidInput):
                store.append_entries(queue.id, [(first, score("a")), bad])
        assert store.entries(queue.id) == []

    @pytest.mark.parametrize(
        ("entry", "match"),
        [
            (score("a", 0.3), "no score of the rubric fold-towel; its scores are 0, 0.25, 0.5, 1"),
            (score("a", 0.5, ending="hazard"), "ends by step limit or hazard with score 0"),
            (score("a", 0.0, ending="boredom"), "ends by step limit or hazard"),
            (Entry("score", "a", "ada"), "has a score exactly if it scores"),
            (Entry("skip", "a", "ada", 1.0), "has a score exactly if it scores"),
            (score("", 1.0), "token is empty"),
            (score("a", operator=""), "operator's name is empty"),
            (score("a", note="x" * 2001), "at most 2000 fit"),
            (score("a", note="\0"), "cannot be stored"),
        ],
    )
    def test_what_is_no_entry(self, store: Store, queue: Queue, entry: Entry, match: str) -> None:
        with pytest.raises(InvalidInput, match=match):
            store.append_entries(queue.id, [(queue.codes[0], entry)])
        assert store.entries(queue.id) == []


class TestClosing:
    def test_scores_become_trials_of_their_runs(self, store: Store, queue: Queue) -> None:
        values = (0.0, 0.25, 0.5, 1.0)
        told = [(code, score(code, values[index % 4])) for index, code in enumerate(queue.codes)]
        store.append_entries(queue.id, told)
        assert set(store.unsettled_trials(queue.study)) == set(queue.runs)
        assert all(store.run(run).trials == 0 for run in queue.runs)
        assert store.close_evaluation(queue.id) == 12
        assert store.close_evaluation(queue.id) == 0
        assert store.unsettled_trials(queue.study) == {}
        expected: dict[int, list[Trial]] = {run: [] for run in queue.runs}
        for planned, (code, entry) in zip(queue.planned, told, strict=True):
            assert entry.score is not None
            scene = planned.condition
            trial = Trial(f"scored/1/{code}", entry.score, scene.factor, scene.setting)
            expected[queue.runs[planned.policy]].append(trial)
        for run, trials in expected.items():
            assert store.trials(run) == trials
            assert (store.run(run).state, store.run(run).trials) == ("done", 4)

    def test_nothing_changes_afterwards(self, store: Store, queue: Queue) -> None:
        told = [(code, score(code)) for code in queue.codes]
        store.append_entries(queue.id, told)
        store.close_evaluation(queue.id)
        assert store.append_entries(queue.id, told) == 0  # the answer to the last one was lost on the way
        with pytest.raises(TrialTaken, match="evaluation 1 is closed"):
            store.append_entries(queue.id, [(queue.codes[0], undo("late"))])
        assert store.claim_trial(queue.id, "ada", 60) is None

    def test_open_trials_hold_it_up(self, store: Store, queue: Queue) -> None:
        with pytest.raises(InvalidInput, match="12 of 12 trials are not scored yet"):
            store.close_evaluation(queue.id)
        first = queue.planned[0]
        store.append_entries(queue.id, [(first.code, score("a"))])
        assert store.close_evaluation(queue.id, early=True) == 1
        states = {run: store.run(run).state for run in queue.runs}
        assert states == {run: "done" if index == first.policy else "pending" for index, run in enumerate(queue.runs)}

    def test_a_queue_without_scores_can_be_dropped_and_made_anew(self, store: Store, queue: Queue) -> None:
        store.append_entries(queue.id, [(code, skip(code)) for code in queue.codes])
        with pytest.raises(InvalidInput, match="every trial was left out; closed early, the queue is dropped"):
            store.close_evaluation(queue.id)
        assert store.close_evaluation(queue.id, early=True) == 0
        assert {store.run(run).state for run in queue.runs} == {"pending"}
        again = store.add_evaluation(queue.study, queue.runs, plan_queue(3, SCORING, 5), SCORING.rubric, None, 5)
        assert store.evaluation(again).number == 2

    def test_a_run_that_was_finished_otherwise_holds_it_up_too(self, store: Store, queue: Queue) -> None:
        store.append_entries(queue.id, [(code, score(code)) for code in queue.codes])
        store.append_trials(queue.runs[1], [Trial("by hand", 0.5)])
        store.tell(queue.runs[1])
        with pytest.raises(InvalidInput, match=rf"run {queue.runs[1]} was finished otherwise meanwhile"):
            store.close_evaluation(queue.id)
        assert store.evaluation(queue.id).closed is None
        assert store.close_evaluation(queue.id, early=True) == 8
        assert [trial.key for trial in store.trials(queue.runs[1])] == ["by hand"]
        assert {store.run(run).state for run in queue.runs} == {"done"}

    def test_skipped_trials_do_not(self, store: Store, queue: Queue) -> None:
        store.append_entries(queue.id, [(queue.codes[0], skip("a")), *((c, score(c)) for c in queue.codes[1:])])
        assert store.close_evaluation(queue.id) == 11

    def test_the_next_evaluation_has_keys_of_its_own(self, store: Store, queue: Queue, example: Any) -> None:
        store.append_entries(queue.id, [(queue.codes[0], score("a"))])
        store.close_evaluation(queue.id, early=True)
        rest = [run for run in queue.runs if store.run(run).state == "pending"]
        again = store.add_evaluation(queue.study, rest, plan_queue(2, SCORING, 5), SCORING.rubric, None, 5)
        assert store.evaluation(again).number == 2
        store.append_entries(again, [(trial.code, score(trial.code)) for trial in store.queue(again)])
        assert store.close_evaluation(again) == 8
        assert all(trial.key.startswith("scored/2/") for trial in store.trials(rest[0]))


class TestExchange:
    def test_an_export_comes_back_whole(self, store: Store, queue: Queue) -> None:
        store.append_entries(
            queue.id,
            [
                (queue.codes[0], score("a", 0.5)),
                (queue.codes[1], score("b", 0.0, ending="step limit")),
                (queue.codes[0], undo("c")),
                (queue.codes[2], skip("d", "lamp")),
            ],
        )
        claimed(store, queue, "grace")
        copied = store.load(store.dump(queue.study), "copy")
        (row,) = store.evaluations(copied)
        (old,) = store.evaluations(queue.study)
        assert replace(row, id=old.id) == old
        digests = {run.id: run.digest for study in (queue.study, copied) for run in store.runs(study)}
        for before, after in zip(store.queue(queue.id), store.queue(row.id), strict=True):
            assert replace(after, run_id=before.run_id) == before
            assert digests[after.run_id] == digests[before.run_id]
        # entries of one trial keep their order; between trials only the times tell
        by_code = [sorted(store.entries(id_), key=lambda entry: entry.code) for id_ in (queue.id, row.id)]
        assert by_code[0] == by_code[1]

    def test_an_export_from_before_people_could_score_is_read(self, store: Store, example: Any) -> None:
        data = store.dump(example.study)
        del data["evaluations"]
        assert store.evaluations(store.load(data, "copy")) == []

    @pytest.mark.parametrize(
        ("spoil", "match"),
        [
            (lambda e: e["queue"][0].update(run="nowhere"), r"queue\[0\].run: there is no run 'nowhere'"),
            (lambda e: e["queue"][0].update(state="lost"), "expected one of open, scored, skipped"),
            (lambda e: e["queue"][0]["entries"][0].update(score=7), r"must lie in \[0, 1\]"),
            (lambda e: e["queue"][0]["entries"][0].update(score=None), "exactly if it scores"),
            (lambda e: e["rubric"].update(levels=[]), "2 to 12 levels"),
            (lambda e: e["queue"].append(e["queue"][0]), "twice"),
        ],
    )
    def test_a_spoilt_export_is_refused(
        self, store: Store, queue: Queue, spoil: Callable[[Any], Any], match: str
    ) -> None:
        store.append_entries(queue.id, [(queue.codes[0], score("a", 0.5))])
        data = copy.deepcopy(store.dump(queue.study))
        spoil(data["evaluations"][0])
        with pytest.raises(InvalidInput, match=match):
            store.load(data, "copy")
        assert len(store.studies()) == 1


class TestTogether:
    def test_threads_that_score_at_once_lose_and_double_nothing(self, store: Store, queue: Queue) -> None:
        barrier = threading.Barrier(6)

        def work(number: int) -> int:
            barrier.wait()
            scored = 0
            while (trial := store.claim_trial(queue.id, f"operator {number}", 60)) is not None:
                entry = score(f"{number}/{trial.code}", 0.5, f"operator {number}")
                scored += store.append_entries(queue.id, [(trial.code, entry)])
                scored += store.append_entries(queue.id, [(trial.code, entry)])  # the answer got lost
            return scored

        with ThreadPoolExecutor(6) as pool:
            assert sum(pool.map(work, range(6))) == 12
        assert {trial.state for trial in store.queue(queue.id)} == {"scored"}
        assert len(store.entries(queue.id)) == 12

    def test_threads_that_send_the_same_entry_store_it_once(self, store: Store, queue: Queue) -> None:
        barrier = threading.Barrier(8)

        def send(_: int) -> int:
            barrier.wait()
            return sum(store.append_entries(queue.id, [(code, score(code))]) for code in queue.codes)

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(send, range(8))) == 12

    def test_processes_never_get_the_same_trial(self, address: str, example_at: Any) -> None:
        example = example_at(address)
        with Store.open(address) as store:
            queue = make_queue(store, example)
        command = [sys.executable, str(PROGRAM), address, str(queue.id), "4"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
        taken = [line.split() for line in done.splitlines()]
        assert sorted(code for _, code in taken) == sorted(queue.codes)
        with Store.open(address) as store:
            assert {trial.code: trial.operator for trial in store.queue(queue.id)} == {c: who for who, c in taken}


def test_an_older_database_gets_the_same_tables(address: str) -> None:
    Store.open(address).close()
    database = Database(address, create=False, clock=None, busy_seconds=5.0)
    before = described(database)
    with database.writing() as connection:
        for table in ("fsc_entries", "fsc_queue", "fsc_evaluations"):
            connection.execute(text(f"DROP TABLE {table}"))
        for index in ("fsc_runs_waiting", "fsc_runs_running", "fsc_trials_by_score"):
            connection.execute(text(f"DROP INDEX {index}"))
        later = ("lease_seconds", "policy", "seed", "settings", "latest_round", "latest_position")
        for column in (*(f"fsc_runs.{name}" for name in later), "fsc_trials.attempt"):
            connection.execute(text("ALTER TABLE {} DROP COLUMN {}".format(*column.split("."))))
        connection.execute(text("UPDATE fsc_meta SET value = '2' WHERE key = 'schema_version'"))
    migrations.prepare(database, create=False)
    assert described(database) == before
    database.close()


def described(database: Database) -> dict[str, Any]:
    with database.reading() as connection:
        found = inspect(connection)
        return {
            name: (
                [(column["name"], str(column["type"]), column["nullable"]) for column in found.get_columns(name)],
                found.get_pk_constraint(name)["constrained_columns"],
                sorted(str(unique["column_names"]) for unique in found.get_unique_constraints(name)),
                sorted(str((index["name"], index["column_names"])) for index in found.get_indexes(name)),
                sorted(str(key["constrained_columns"]) for key in found.get_foreign_keys(name)),
                len(found.get_check_constraints(name)),
            )
            for name in found.get_table_names()
        }
