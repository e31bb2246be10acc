"""Study: the stateful facade over the store."""

from factored_scaling.study.study import Run, Study, check_counts

__all__ = ["Run", "Study", "check_counts"]
