"""Events of the runner, in the order in which they happen; `on_event` of `Study.run` receives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Stage = Literal["prepare", "train", "evaluate"]


@dataclass(frozen=True, slots=True)
class Started:
    """Workers start. `done` of `total` runs are done; `resumed` are runs with an earlier attempt."""

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
    """A worker ended its run. "retry": it failed and will be retried; "trained": people score it later."""

    run: int
    state: Literal["done", "trained", "failed", "retry"]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning about the results."""

    message: str


@dataclass(frozen=True, slots=True)
class Finished:
    """Workers have stopped, because no run is left or because the user stopped them."""

    stopped: bool


Event = Started | RunProgress | RunEnded | Warned | Finished
