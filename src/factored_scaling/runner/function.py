"""Use a function as a backend: it trains and measures a run in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from factored_scaling.backends import Context
from factored_scaling.core.design import RunSpec
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Measurement, Trial
from factored_scaling.errors import InvalidInput
from factored_scaling.runner.outcomes import Outcome, read_outcome
from factored_scaling.runner.queue import Run


class FunctionBackend:
    """Calls `function(run)`, which returns what `Study.tell` takes. The study's factors are those of `spec`."""

    def __init__(self, function: Callable[[Run], Outcome], spec: StudySpec) -> None:
        self._function = function
        self._spec = spec

    def train(self, run: RunSpec, folder: Path, context: Context) -> None:
        """Do nothing: the function trains when it is asked to measure."""

    def evaluate(self, run: RunSpec, folder: Path, context: Context) -> Iterator[Trial | Measurement]:
        """Call the function and yield its trials or means."""
        outcome = self._function(Run(context.run_id, run, dict(context.demos), 0))
        trials, means = read_outcome(outcome, self._spec)
        if not trials and not means:
            raise InvalidInput("the function returned no scores", where=f"run {context.run_id}")
        yield from trials
        yield from means
