"""What is said of runs: trials and means as callers tell them, rows of a file, and back again as rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from factored_scaling.core.checks import real, shown
from factored_scaling.core.dataset import Dataset
from factored_scaling.core.design import PlannedRun, run_spec
from factored_scaling.core.results import Results, Row, distinct
from factored_scaling.core.scores import Trial
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput, UnknownFactor
from factored_scaling.store import Measurement, RunRow

# What a caller may tell of a run: one mean score, scores of single trials, trials, or any of the first two per factor.
Told = float | Sequence[float] | Sequence[Trial] | Mapping[str, "float | Sequence[float]"]


def check_factors(factor: Sequence[str], spec: StudySpec) -> None:
    """Every factor that is named is one of the study; `*` stands for all."""
    for name in factor:
        if name != "*" and name not in spec.names:
            raise UnknownFactor(name, spec.names)


def read_told(outcome: Told, spec: StudySpec) -> tuple[list[Trial], list[Measurement]]:
    """Trials and means of whatever a caller told."""
    parts: Mapping[str, Any] = outcome if isinstance(outcome, Mapping) else {"": outcome}
    trials: list[Trial] = []
    means: list[Measurement] = []
    for name, part in parts.items():
        factor = tuple(name.split("+")) if name else ()
        check_factors(factor, spec)
        mean = float(part) if isinstance(part, bool) else real(part)
        if mean is not None:
            means.append(Measurement(mean, None, factor, "told"))
        elif isinstance(part, str | bytes | Mapping) or not isinstance(part, Iterable):
            raise InvalidInput(f"expected a score or scores, not {shown(part)}", where=name)
        else:
            key = f"told/{name}" if name else "told"
            trials += [t if isinstance(t, Trial) else Trial(f"{key}/{k}", t, factor) for k, t in enumerate(part)]
    for trial in trials:
        check_factors(trial.factor, spec)
    return trials, means


def measured(
    spec: StudySpec, dataset: Dataset, results: Results, source: str
) -> tuple[dict[str, PlannedRun], dict[str, list[Measurement]]]:
    """The runs that rows belong to, and what the rows say of them, by digest."""
    planned: dict[str, PlannedRun] = {}
    told: dict[str, list[Measurement]] = {}
    for index, row, demos in distinct(spec, results):
        counts = dict(zip(spec.names, demos, strict=True))
        run = PlannedRun(run_spec(spec, dataset, counts, row.seed or 0), counts, ())
        try:
            measurement = Measurement(row.score, row.trials, row.factor, f"{source}:{index + 1}")
        except InvalidInput as error:
            raise error.at(f"{source}: {row.place}") from None
        planned.setdefault(run.spec.digest, run)
        told.setdefault(run.spec.digest, []).append(measurement)
    return planned, told


def means_of(trials: Sequence[Trial]) -> list[Measurement]:
    """One mean per condition of a run's trials."""
    by_factor: dict[tuple[str, ...], list[float]] = {}
    for trial in trials:
        by_factor.setdefault(trial.factor, []).append(trial.score)
    return [Measurement(math.fsum(s) / len(s), len(s), factor, "trials") for factor, s in by_factor.items()]


def alike(run: PlannedRun, runs: Iterable[RunRow]) -> list[RunRow]:
    """Runs with the counts, seed and settings of `run`; after another round their episodes may be others."""
    own = replace(run.spec, episodes=())
    return [row for row in runs if row.demos == run.demos and replace(row.spec, episodes=()) == own]


def known_as(
    run: PlannedRun, told: Sequence[Measurement], runs: Sequence[RunRow], known: Mapping[int, Sequence[Measurement]]
) -> PlannedRun:
    """The run, of those `alike`, that rows with these demonstrations are about, or `run` where there is none.

    After another round the same counts would be drawn from more demonstrations, and be another policy. Whoever measured
    a policy before means that one: first the run that knows one of these scores, then the one the study would draw now,
    then the newest.
    """
    said = {(m.factor, m.score, m.trials) for m in told}
    knowing = [row for row in runs if any((m.factor, m.score, m.trials) in said for m in known[row.id])]
    drawn = [row for row in runs if row.digest == run.spec.digest]
    found = [*knowing, *drawn, *reversed(runs)]
    return PlannedRun(found[0].spec, run.demos, ()) if found else run


def fresh(
    told: Sequence[Measurement], stored: Sequence[Measurement], known: Sequence[Measurement]
) -> list[Measurement]:
    """What is told of a run and not known of those alike; a source may not say otherwise than it did of this run."""
    sources = {(m.factor, m.source): m for m in stored}
    left = Counter((m.factor, m.score, m.trials) for m in known)
    found = []
    for measurement in told:
        same = (measurement.factor, measurement.score, measurement.trials)
        if left[same] > 0:
            left[same] -= 1
            continue
        before = sources.get((measurement.factor, measurement.source))
        if before is not None:
            raise InvalidInput(
                f"is stored already with score {before.score:g}, not {measurement.score:g}",
                where=measurement.source,
                hint="results never change; import a correction under another file name",
            )
        found.append(measurement)
    return found


def rows_of(run: RunRow, trials: Sequence[Trial], means: Sequence[Measurement]) -> list[Row]:
    """One row per condition of a run's trials, and one per mean that was told."""
    return [
        Row(mean.score, run.demos, None, None, mean.trials, run.seed, mean.factor, f"run {run.id}")
        for mean in (*means_of(trials), *means)
    ]
