"""Success of each rule over many emulated studies: what a single run varies around (benchmarks/usual_outcomes.py)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TABLES = Path(__file__).with_name("usual.json")


@dataclass(frozen=True, slots=True)
class Usual:
    """Mean success of a rule over `seeds` emulated studies, and the interval that holds 95% of them."""

    mean: float
    low: float
    high: float
    seeds: int
    source: str


def usual_outcome(
    task: str, start: Mapping[str, int], budget: int, rule: str, path: Path | None = None
) -> Usual | None:
    """The rule's usual success on this task, start and budget; None if it is unknown.

    The file lists tables: `task`, `start` (demonstrations per factor), `budget`, `source`, `seeds` and, for each rule,
    `mean`, `low` and `high`.
    """
    path = TABLES if path is None else path
    if not path.exists():
        return None
    for table in json.loads(path.read_text(encoding="utf-8")):
        if (table["task"], table["start"], table["budget"]) == (task, dict(start), budget) and rule in table["rules"]:
            return Usual(**table["rules"][rule], seeds=table["seeds"], source=table["source"])
    return None
