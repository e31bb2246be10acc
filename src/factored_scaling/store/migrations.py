"""The schema's version: new databases get the newest tables, older ones are brought up step by step."""

from __future__ import annotations

import json
from collections.abc import Callable

from sqlalchemy import Connection, insert, inspect, select, text, update

from factored_scaling.errors import StoreError
from factored_scaling.store.connections import Database, missing
from factored_scaling.store.schema import meta, metadata


def _add_trained(connection: Connection) -> None:
    kind = "DOUBLE" if connection.dialect.name == "sqlite" else "DOUBLE PRECISION"
    connection.exec_driver_sql(f"ALTER TABLE fsc_runs ADD COLUMN trained {kind}")


def _add_evaluations(connection: Connection) -> None:
    number = "SERIAL" if connection.dialect.name == "postgresql" else "INTEGER"
    real = "DOUBLE PRECISION" if connection.dialect.name == "postgresql" else "DOUBLE"
    for statement in (
        f"""CREATE TABLE fsc_evaluations (
            id {number} NOT NULL PRIMARY KEY,
            study_id INTEGER NOT NULL REFERENCES fsc_studies (id),
            number INTEGER NOT NULL,
            rubric TEXT NOT NULL,
            step_limit INTEGER,
            seed TEXT NOT NULL,
            created {real} NOT NULL,
            closed {real},
            UNIQUE (study_id, number))""",
        f"""CREATE TABLE fsc_queue (
            id {number} NOT NULL PRIMARY KEY,
            evaluation_id INTEGER NOT NULL REFERENCES fsc_evaluations (id),
            position INTEGER NOT NULL,
            code TEXT NOT NULL,
            run_id INTEGER NOT NULL REFERENCES fsc_runs (id),
            label TEXT NOT NULL,
            condition TEXT NOT NULL,
            repeat INTEGER NOT NULL,
            state TEXT NOT NULL,
            operator TEXT,
            claim_expires {real},
            UNIQUE (evaluation_id, code),
            UNIQUE (evaluation_id, position),
            CHECK (state IN ('open', 'scored', 'skipped')))""",
        f"""CREATE TABLE fsc_entries (
            id {number} NOT NULL PRIMARY KEY,
            evaluation_id INTEGER NOT NULL REFERENCES fsc_evaluations (id),
            queue_id INTEGER NOT NULL REFERENCES fsc_queue (id),
            token TEXT NOT NULL,
            kind TEXT NOT NULL,
            score {real},
            ending TEXT NOT NULL,
            note TEXT NOT NULL,
            operator TEXT NOT NULL,
            created {real} NOT NULL,
            UNIQUE (evaluation_id, token),
            CHECK (kind IN ('score', 'skip', 'undo', 'note')),
            CHECK ((kind = 'score') = (score IS NOT NULL)),
            CHECK (score >= 0 AND score <= 1))""",
        "CREATE INDEX ix_fsc_entries_queue_id ON fsc_entries (queue_id)",
    ):
        connection.exec_driver_sql(statement)


def _add_lease_seconds(connection: Connection) -> None:
    real = "DOUBLE PRECISION" if connection.dialect.name == "postgresql" else "DOUBLE"
    for statement in (
        f"ALTER TABLE fsc_runs ADD COLUMN lease_seconds {real}",
        "ALTER TABLE fsc_runs ADD COLUMN policy TEXT",
        "ALTER TABLE fsc_trials ADD COLUMN attempt INTEGER",
        f"ALTER TABLE fsc_queue ADD COLUMN claim_seconds {real}",
        # at most as long as since the run was taken; operators claim trials for half an hour
        "UPDATE fsc_runs SET lease_seconds = lease_expires - started WHERE state = 'running'",
        "UPDATE fsc_queue SET claim_seconds = 1800 WHERE claim_expires IS NOT NULL",
    ):
        connection.exec_driver_sql(statement)


def _add_what_is_asked_often(connection: Connection) -> None:
    for column in ("seed TEXT", "settings TEXT", "latest_round INTEGER", "latest_position INTEGER"):
        default = "''" if column.endswith("TEXT") else "0"
        connection.exec_driver_sql(f"ALTER TABLE fsc_runs ADD COLUMN {column} NOT NULL DEFAULT {default}")
    specs = connection.exec_driver_sql("SELECT id, spec FROM fsc_runs").all()
    for start in range(0, len(specs), 1000):
        values = []
        for id_, spec in specs[start : start + 1000]:
            read = json.loads(spec)
            settings = {key: read[key] for key in ("task", "policy", "evaluation")}
            values.append({"id": id_, "seed": str(read["seed"]), "settings": json.dumps(settings)})
        connection.execute(text("UPDATE fsc_runs SET seed = :seed, settings = :settings WHERE id = :id"), values)
    real = "DOUBLE PRECISION" if connection.dialect.name == "postgresql" else "DOUBLE"
    last = "FROM fsc_entries e WHERE e.queue_id = fsc_queue.id AND e.kind <> 'note' ORDER BY e.id DESC LIMIT 1"
    for column, source in (("score", "score"), ("told", "created")):
        connection.exec_driver_sql(f"ALTER TABLE fsc_queue ADD COLUMN {column} {real}")
        connection.exec_driver_sql(f"UPDATE fsc_queue SET {column} = (SELECT e.{source} {last}) WHERE state <> 'open'")
    placed = "FROM fsc_placements p JOIN fsc_rounds r ON r.id = p.round_id WHERE p.run_id = fsc_runs.id"
    here = f"SELECT p.position {placed} AND r.number = fsc_runs.latest_round"
    for statement in (
        f"UPDATE fsc_runs SET latest_round = COALESCE((SELECT max(r.number) {placed}), 0)",
        f"UPDATE fsc_runs SET latest_position = COALESCE(({here}), 0)",
        "CREATE INDEX fsc_runs_waiting ON fsc_runs (study_id, latest_round DESC, latest_position)"
        " WHERE state = 'pending' AND trained IS NULL",
        "CREATE INDEX fsc_runs_running ON fsc_runs (study_id) WHERE state = 'running'",
        "CREATE INDEX fsc_queue_by_operator ON fsc_queue (evaluation_id, operator, told)",
        "CREATE INDEX fsc_queue_by_told ON fsc_queue (evaluation_id, told)",
        "CREATE INDEX fsc_trials_by_score ON fsc_trials (run_id, factor, score)",
    ):
        connection.exec_driver_sql(statement)


# MIGRATIONS[i] turns version i + 1 into version i + 2. A step never changes once released, and it names tables and
# columns in SQL rather than through schema.py, which describes the newest version only.
MIGRATIONS: list[Callable[[Connection], None]] = [
    _add_trained,
    _add_evaluations,
    _add_lease_seconds,
    _add_what_is_asked_often,
]
_ADVISORY_LOCK = 7_253_910_442  # any number that no other program uses; one process migrates, the others wait


def newest_version() -> int:
    """The version this release writes."""
    return 1 + len(MIGRATIONS)


def prepare(database: Database, *, create: bool) -> None:
    """Bring the database to the newest version; make its tables when there are none and `create` is set."""
    with database.reading() as connection:
        found = _version(connection, database)
    if found is None and not create:
        raise missing(database.place)
    if found == newest_version():
        return
    with database.writing() as connection:
        if not database.is_sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _ADVISORY_LOCK})
        found = _version(connection, database)  # another process may have been faster
        if found is None:
            metadata.create_all(connection)
            connection.execute(insert(meta).values(key="schema_version", value=str(newest_version())))
            return
        for step in MIGRATIONS[found - 1 :]:
            step(connection)
        connection.execute(update(meta).where(meta.c.key == "schema_version").values(value=str(newest_version())))


def _version(connection: Connection, database: Database) -> int | None:
    place = database.place
    tables = inspect(connection).get_table_names()
    if meta.name not in tables:
        if tables and database.is_sqlite:
            raise StoreError("is a database of another program", where=place, hint="give the study a file of its own")
        return None
    value = connection.execute(select(meta.c.value).where(meta.c.key == "schema_version")).scalar()
    if value is None or not value.isdecimal() or int(value) < 1:
        raise StoreError(f"the schema version reads {value!r}", where=place, hint="restore a backup")
    if int(value) > newest_version():
        raise StoreError(
            f"the database has version {value}, this release knows versions up to {newest_version()}",
            where=place,
            hint="upgrade with `git pull` and `pip install .` in a clone of factored-scaling",
        )
    return int(value)
