"""Events of the runner, in the order in which they happen; `on_event` of `Study.run` receives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Stage = Literal["prepare", "train", "evaluate"]


@dataclass(frozen=True, slots=True)
class Started:
    """Workers start. `done` of `total` runs are done; `resumed` are runs that were begun before."""

    done: int
    total: int
    workers: int
    resumed: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class RunProgress:
    """A worker has done `done` of `total` steps of a stage of these runs, which it carries out as one job."""

    stage: Stage
    runs: tuple[int, ...]
    done: int
    total: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run left its worker. "retry": it failed and is tried again; "trained": it waits for people's trials."""

    run: int
    state: Literal["done", "trained", "failed", "retry"]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Warned:
    """Something that a person should know before reading the results."""

    message: str


@dataclass(frozen=True, slots=True)
class Finished:
    """Workers have ended: no run is left for them, or the user stopped them."""

    stopped: bool


Event = Started | RunProgress | RunEnded | Warned | Finished
