"""The durable record behind a study: an SQLite file by default, a PostgreSQL database by URL."""

from __future__ import annotations

from factored_scaling.core.trials import Measurement
from factored_scaling.store.rows import (
    AttemptRow,
    Document,
    DocumentRow,
    Entry,
    EntryRow,
    EvaluationRow,
    QueuedTrial,
    RoundRow,
    RunOutline,
    RunRow,
    Stage,
    State,
    StudyRow,
    WholeRun,
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
    "QueuedTrial",
    "RoundRow",
    "RunOutline",
    "RunRow",
    "Stage",
    "State",
    "Store",
    "StudyRow",
    "WholeRun",
]
