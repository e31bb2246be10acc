"""The durable record behind a study: an SQLite file by default, a PostgreSQL database by URL."""

from __future__ import annotations

from factored_scaling.store.rows import (
    AttemptRow,
    Document,
    DocumentRow,
    Entry,
    EntryRow,
    EvaluationRow,
    Measurement,
    Planned,
    QueuedTrial,
    RoundRow,
    RunRow,
    State,
    StudyRow,
)
from factored_scaling.store.store import Store

__all__ = [
    "AttemptRow",
    "Document",
    "DocumentRow",
    "Entry",
    "EntryRow",
    "EvaluationRow",
    "Measurement",
    "Planned",
    "QueuedTrial",
    "RoundRow",
    "RunRow",
    "State",
    "Store",
    "StudyRow",
]
