"""Study: the stateful facade over the store; Snapshot: a study read once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from factored_scaling.runner.queue import Run
    from factored_scaling.study.snapshot import Snapshot
    from factored_scaling.study.study import Study

__all__ = ["Run", "Snapshot", "Study"]


def __getattr__(name: str) -> Any:
    """Names are loaded when first used: scores in a file need no database."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "Snapshot":
        from factored_scaling.study import snapshot

        return snapshot.Snapshot
    from factored_scaling.study import study

    return getattr(study, name)
