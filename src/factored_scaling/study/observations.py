"""Measured means as rows of a file and as rows of results, and the runs that they belong to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from factored_scaling.core.dataset import Dataset
from factored_scaling.core.design import PlannedRun, run_specs
from factored_scaling.core.results import Results, Row, distinct
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Measurement, Tally, mean_of
from factored_scaling.errors import InvalidInput
from factored_scaling.store import RunRow


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
