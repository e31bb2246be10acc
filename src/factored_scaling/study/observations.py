"""What is said of runs: trials and means as callers tell them, rows of a file, and back again as rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from factored_scaling.core.checks import real, shown
from factored_scaling.core.dataset import Dataset
from factored_scaling.core.design import PlannedRun, run_specs
from factored_scaling.core.results import Results, Row, distinct
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Tally, Trial, mean_of
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
) -> list[tuple[PlannedRun, list[Measurement]]]:
    """The runs that rows belong to, and what the rows say of each."""
    told: dict[tuple[tuple[int, ...], int], list[Measurement]] = {}
    for index, row, demos in distinct(spec, results):
        try:
            measurement = Measurement(row.score, row.trials, row.factor, f"{source}:{index + 1}")
        except InvalidInput as error:
            raise error.at(f"{source}: {row.place}") from None
        told.setdefault((demos, row.seed or 0), []).append(measurement)
    wanted = [(dict(zip(spec.names, demos, strict=True)), seed) for demos, seed in told]
    specs = run_specs(spec, dataset, wanted)
    runs = [PlannedRun(run, demos, ()) for run, (demos, _) in zip(specs, wanted, strict=True)]
    return list(zip(runs, told.values(), strict=True))


def means_of(tallies: Iterable[Tally]) -> list[Measurement]:
    """One mean per condition of a run's trials."""
    by_factor: dict[tuple[str, ...], list[tuple[float, int]]] = {}
    for factor, score, count in tallies:
        by_factor.setdefault(factor, []).append((score, count))
    return [Measurement(*mean_of(levels), factor, "trials") for factor, levels in by_factor.items()]


def by_training_set(runs: Iterable[RunRow]) -> Callable[[PlannedRun], list[RunRow]]:
    """Finds those of the runs that have the counts, seed and settings of a planned one.

    After another round their episodes may be others.
    """
    known: dict[tuple[frozenset[tuple[str, int]], int], list[RunRow]] = {}
    for row in runs:
        known.setdefault((frozenset(row.demos.items()), row.seed), []).append(row)

    def alike(run: PlannedRun) -> list[RunRow]:
        near = known.get((frozenset(run.demos.items()), run.spec.seed), [])
        return [row for row in near if row.settings == run.spec.settings]

    return alike


def matching_run(
    run: PlannedRun, told: Sequence[Measurement], runs: Sequence[RunRow], known: Mapping[int, Sequence[Measurement]]
) -> PlannedRun | RunRow:
    """Which of the runs that are alike rows with these demonstrations are about, or `run` where there is none.

    After another round the same counts would be drawn from more demonstrations, and be another policy. Whoever measured
    a policy before means that one: first the run that knows one of these scores, then the one the study would draw now,
    then the newest.
    """
    said = {(m.factor, m.score, m.trials) for m in told}
    knowing = [row for row in runs if any((m.factor, m.score, m.trials) in said for m in known[row.id])]
    drawn = [row for row in runs if row.digest == run.spec.digest]
    return next(iter([*knowing, *drawn, *reversed(runs)]), run)


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


def rows_of(run: RunRow, tallies: Iterable[Tally], means: Sequence[Measurement]) -> list[Row]:
    """One row per condition of a run's trials, and one per mean that was told."""
    return [
        Row(mean.score, run.demos, None, None, mean.trials, run.seed, mean.factor, f"run {run.id}")
        for mean in (*means_of(tallies), *means)
    ]
