"""Outcomes of runs, as functions and callers of `Study.tell` give them, read into trials and means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from factored_scaling.core.checks import real, shown
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Measurement, Trial
from factored_scaling.errors import InvalidInput, UnknownFactor

# One mean score, scores of single trials, trials, or any of the first two per factor.
Outcome = float | Sequence[float] | Sequence[Trial] | Mapping[str, "float | Sequence[float]"]
SOURCE = "told"  # of means; with the factor it names their rows in the database


def check_factors(factor: Sequence[str], spec: StudySpec) -> None:
    """Raise InvalidInput unless every name is another factor of the study; `*` stands for all, alone."""
    if len(factor) > 1 and ("*" in factor or len(set(factor)) < len(factor)):
        what = f"a factor is named twice in {'+'.join(factor)!r}"
        raise InvalidInput(f"* stands alone, not in {'+'.join(factor)!r}" if "*" in factor else what)
    for name in factor:
        if name != "*" and name not in spec.names:
            raise UnknownFactor(name, spec.names)


def read_outcome(outcome: Outcome, spec: StudySpec) -> tuple[list[Trial], list[Measurement]]:
    """Trials and means of an outcome."""
    parts: Mapping[str, Any] = outcome if isinstance(outcome, Mapping) else {"": outcome}
    trials: list[Trial] = []
    means: list[Measurement] = []
    for name, part in parts.items():
        factor = tuple(name.split("+")) if name else ()
        check_factors(factor, spec)
        mean = float(part) if isinstance(part, bool) else real(part)
        if mean is not None:
            means.append(Measurement(mean, None, factor, SOURCE))
        elif isinstance(part, str | bytes | Mapping) or not isinstance(part, Iterable):
            raise InvalidInput(f"expected a score or scores, not {shown(part)}", where=name)
        else:
            key = f"{SOURCE}/{name}" if name else SOURCE
            trials += [t if isinstance(t, Trial) else Trial(f"{key}/{k}", t, factor) for k, t in enumerate(part)]
    for trial in trials:
        check_factors(trial.factor, spec)
    return trials, means
