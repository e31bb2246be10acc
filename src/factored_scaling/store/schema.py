"""The tables. Every name starts with `fsc_`, so that a PostgreSQL database may be shared with other programs."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    CheckConstraint,
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    event,
    text,
)

metadata = MetaData()

meta = Table(
    "fsc_meta",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

studies = Table(
    "fsc_studies",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("created", Double, nullable=False),
)

rounds = Table(
    "fsc_rounds",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("study_id", ForeignKey(studies.c.id), nullable=False),
    Column("number", Integer, nullable=False),
    # JSON is stored as text: both databases then return exactly what was written, key order included
    Column("spec", Text, nullable=False),
    Column("dataset", Text, nullable=False),
    Column("collected", Text),
    Column("created", Double, nullable=False),
    UniqueConstraint("study_id", "number"),
)

runs = Table(
    "fsc_runs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("study_id", ForeignKey(studies.c.id), nullable=False),
    Column("digest", Text, nullable=False),
    Column("spec", Text, nullable=False),
    Column("state", Text, nullable=False),
    # the number of attempts, which is the fencing token of the lease
    Column("attempts", Integer, nullable=False),
    Column("worker", Text),
    Column("lease_expires", Double),
    Column("error", Text),
    Column("created", Double, nullable=False),
    Column("started", Double),
    Column("finished", Double),
    # when training was over: a pending run with this set waits for trials, and no worker takes it
    Column("trained", Double),
    # the length of the lease: one that ends much later is from before the clock was set back
    Column("lease_seconds", Double),
    # names the policy that a worker trained: set when it is handed over to evaluators or its trials are recorded
    Column("policy", Text),
    # parts of the spec that tables of runs need; the spec itself is long, because it lists every episode
    Column("seed", Text, nullable=False),
    Column("settings", Text, nullable=False),
    # the latest round that the run belongs to and its place there, which decide who is trained first
    Column("latest_round", Integer, nullable=False),
    Column("latest_position", Integer, nullable=False),
    UniqueConstraint("study_id", "digest"),
    CheckConstraint("state IN ('pending', 'running', 'done', 'failed')"),
)
# Index objects with a condition would load the code for PostgreSQL whichever database is used.
WAITING, RUNNING = "state = 'pending' AND trained IS NULL", "state = 'running'"


@event.listens_for(runs, "after_create")
def _index_runs(_: Table, connection: Connection, **__: Any) -> None:
    for index in (
        f"fsc_runs_waiting ON fsc_runs (study_id, latest_round DESC, latest_position) WHERE {WAITING}",
        f"fsc_runs_running ON fsc_runs (study_id) WHERE {RUNNING}",
    ):
        connection.execute(text(f"CREATE INDEX {index}"))


# which rounds a run belongs to: a policy that two rounds share is trained once
placements = Table(
    "fsc_placements",
    metadata,
    Column("round_id", ForeignKey(rounds.c.id), primary_key=True),
    Column("run_id", ForeignKey(runs.c.id), primary_key=True, index=True),
    Column("position", Integer, nullable=False),
    Column("demos", Text, nullable=False),
)

# how finished attempts ended; rows are only added
attempts = Table(
    "fsc_attempts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", ForeignKey(runs.c.id), nullable=False),
    Column("number", Integer, nullable=False),
    Column("worker", Text),
    Column("started", Double, nullable=False),
    Column("ended", Double, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("error", Text),
    UniqueConstraint("run_id", "number"),
    CheckConstraint("outcome IN ('done', 'failed', 'released', 'lost')"),
)

trials = Table(
    "fsc_trials",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", ForeignKey(runs.c.id), nullable=False),
    Column("key", Text, nullable=False),
    Column("score", Double, nullable=False),
    Column("factor", Text, nullable=False),
    Column("setting", Text, nullable=False),
    Column("note", Text, nullable=False),
    Column("created", Double, nullable=False),
    # the lease under which a worker recorded it; none: by hand
    Column("attempt", Integer),
    UniqueConstraint("run_id", "key"),
    CheckConstraint("score >= 0 AND score <= 1"),
    # counts per score are read from it, without the trials
    Index("fsc_trials_by_score", "run_id", "factor", "score"),
)

# results that arrive as means rather than as single trials
scores = Table(
    "fsc_scores",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", ForeignKey(runs.c.id), nullable=False),
    Column("factor", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("score", Double, nullable=False),
    Column("trials", Integer),
    Column("created", Double, nullable=False),
    UniqueConstraint("run_id", "factor", "source"),
    CheckConstraint("score >= 0 AND score <= 1"),
)

documents = Table(
    "fsc_documents",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("study_id", ForeignKey(studies.c.id), nullable=False),
    Column("kind", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("created", Double, nullable=False),
    Index("fsc_documents_by_key", "study_id", "kind", "key"),
)

# trials that people run and score; only this table knows the policy of a label
evaluations = Table(
    "fsc_evaluations",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("study_id", ForeignKey(studies.c.id), nullable=False),
    Column("number", Integer, nullable=False),
    Column("rubric", Text, nullable=False),
    Column("step_limit", Integer),
    Column("seed", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("closed", Double),
    UniqueConstraint("study_id", "number"),
)

queue = Table(
    "fsc_queue",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("evaluation_id", ForeignKey(evaluations.c.id), nullable=False),
    Column("position", Integer, nullable=False),
    Column("code", Text, nullable=False),
    Column("run_id", ForeignKey(runs.c.id), nullable=False),
    Column("label", Text, nullable=False),
    Column("condition", Text, nullable=False),
    Column("repeat", Integer, nullable=False),
    # the state that follows from the latest entry that is not a note
    Column("state", Text, nullable=False),
    Column("operator", Text),
    Column("claim_expires", Double),
    Column("claim_seconds", Double),
    # of the entry that scored or skipped the trial
    Column("score", Double),
    Column("told", Double),
    UniqueConstraint("evaluation_id", "code"),
    UniqueConstraint("evaluation_id", "position"),
    CheckConstraint("state IN ('open', 'scored', 'skipped')"),
    Index("fsc_queue_by_operator", "evaluation_id", "operator", "told"),
    Index("fsc_queue_by_told", "evaluation_id", "told"),
)

# all entries for a queued trial; rows are only added
entries = Table(
    "fsc_entries",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("evaluation_id", ForeignKey(evaluations.c.id), nullable=False),
    Column("queue_id", ForeignKey(queue.c.id), nullable=False, index=True),
    Column("token", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("score", Double),
    Column("ending", Text, nullable=False),
    Column("note", Text, nullable=False),
    Column("operator", Text, nullable=False),
    Column("created", Double, nullable=False),
    UniqueConstraint("evaluation_id", "token"),
    CheckConstraint("kind IN ('score', 'skip', 'undo', 'note')"),
    CheckConstraint("(kind = 'score') = (score IS NOT NULL)"),
    CheckConstraint("score >= 0 AND score <= 1"),
)
