"""Make the example database that tests/store/databases keeps for every schema version: `make_database.py v5.db`.

Run it once, with the release that introduces the version, and never again: later ones must read what it wrote.
"""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

from factored_scaling.core.dataset import Dataset, Episode
from factored_scaling.core.design import plan
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trial_queue import plan_queue
from factored_scaling.core.trials import Trial
from factored_scaling.store import Entry, Measurement, Store


def main(path: Path) -> None:
    now = 1_700_000_000.0
    with Store.open(path, clock=lambda: now) as store:
        spec = StudySpec({"camera": 4, "light": 4}, nominal=1, construction="one", points=3, name="old")
        dataset = Dataset.of_sizes(spec.sizes, spec.nominal)
        study = store.create_study("old", spec, dataset)
        planned = plan(spec, dataset)
        planned_ids = store.add_runs(study, 0, planned)
        done = store.lease(study, "first", 60)
        assert done is not None
        trials = [Trial("a", 1.0, ("light",), "dim", "slipped"), Trial("b", 0.5)]
        store.append_trials(done.id, trials, done.lease_token, policy="weights")
        store.tell(done.id, lease_token=done.lease_token)
        failed = store.lease(study, "second", 60)
        assert failed is not None
        store.fail(failed.id, failed.lease_token, "out of memory")
        running = store.lease(study, "third", 60)
        assert running is not None
        store.append_scores(running.id, [Measurement(0.25, 20, ("camera",), "results.csv")])
        grown = spec.with_demos({"light": 1})
        store.add_round(study, grown, dataset.extended([Episode("light/4", "light")]), {"light": 1})
        store.add_runs(study, 1, planned[:1])
        store.tell(planned_ids[4], waits=True)
        store.put_document(study, "remix", "0", {"light": 0.75})
        waiting = [run.id for run in store.runs(study) if run.state in ("pending", "trained")]
        scoring = spec.scoring_spec()
        queued = plan_queue(len(waiting), scoring, seed=0)
        evaluation = store.add_evaluation(study, waiting, queued, scoring.rubric, scoring.step_limit, seed=0)
        first, second, third, fourth = (trial.code for trial in queued[:4])
        store.append_entries(
            evaluation,
            [
                (first, Entry("score", "a", "ada", 1.0)),
                (second, Entry("score", "b", "ada", 0.0, "hazard", "hit the table")),
                (third, Entry("score", "c", "ada", 1.0)),
                (third, Entry("undo", "d", "ada")),
                (fourth, Entry("skip", "e", "ada", note="the lamp broke")),
            ],
        )
        store.claim_trial(evaluation, "grace", 60)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
    connection.execute("PRAGMA page_size = 1024")  # and a small one: it is kept in the repository
    connection.execute("VACUUM")
    connection.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
