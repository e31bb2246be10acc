"""Study: the stateful facade over the store."""

from factored_scaling.runner.queue import Run
from factored_scaling.study.study import Study, check_counts

__all__ = ["Run", "Study", "check_counts"]
