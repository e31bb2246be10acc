"""Measured means: from rows of a file to the runs that they belong to, and from runs to rows."""

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
    """The run that each row belongs to, with the measurements of its rows."""
    by_run: dict[tuple[tuple[int, ...], int], list[Measurement]] = {}
    for index, row, demos in distinct(spec, results):
        try:
            measurement = Measurement(row.score, row.trials, row.factor, f"{source}:{index + 1}")
        except InvalidInput as error:
            raise error.at(f"{source}: {row.place}") from None
        by_run.setdefault((demos, row.seed or 0), []).append(measurement)
    wanted = [(dict(zip(spec.names, demos, strict=True)), seed) for demos, seed in by_run]
    specs = run_specs(spec, dataset, wanted)
    runs = [PlannedRun(run, demos, ()) for run, (demos, _) in zip(specs, wanted, strict=True)]
    return list(zip(runs, by_run.values(), strict=True))


def means_of(tallies: Iterable[Tally]) -> list[Measurement]:
    """One mean per condition of a run's trials."""
    by_factor: dict[tuple[str, ...], list[tuple[float, int]]] = {}
    for factor, score, count in tallies:
        by_factor.setdefault(factor, []).append((score, count))
    return [Measurement(*mean_of(levels), factor, "trials") for factor, levels in by_factor.items()]


def by_training_set(runs: Iterable[RunRow]) -> Callable[[PlannedRun], list[RunRow]]:
    """A function that returns the runs with the counts, seed and settings of a planned run.

    Their episodes may differ, because a later round draws from more demonstrations.
    """
    groups: dict[tuple[frozenset[tuple[str, int]], int], list[RunRow]] = {}
    for row in runs:
        groups.setdefault((frozenset(row.demos.items()), row.seed), []).append(row)

    def candidates(run: PlannedRun) -> list[RunRow]:
        group = groups.get((frozenset(run.demos.items()), run.spec.seed), [])
        return [row for row in group if row.settings == run.spec.settings]

    return candidates


def matching_run(
    run: PlannedRun, rows: Sequence[Measurement], runs: Sequence[RunRow], stored: Mapping[int, Sequence[Measurement]]
) -> PlannedRun | RunRow:
    """The candidate among `runs` that was measured, or `run` where there are no candidates.

    After another round the same counts are drawn from more demonstrations, which makes another policy. In order of
    preference: the run that already has one of these scores in `stored`, the run that the study would plan now, the
    newest run.
    """
    scores = {(m.factor, m.score, m.trials) for m in rows}
    scored = [row for row in runs if any((m.factor, m.score, m.trials) in scores for m in stored[row.id])]
    planned = [row for row in runs if row.digest == run.spec.digest]
    newest = sorted(runs, key=lambda row: row.id, reverse=True)
    return next(iter([*scored, *planned, *newest]), run)


def new_only(
    rows: Sequence[Measurement], own: Sequence[Measurement], stored: Sequence[Measurement]
) -> list[Measurement]:
    """The measurements that are not in `stored`, the scores of all candidate runs.

    InvalidInput where the same source gave another score for the run before (`own`).
    """
    sources = {(m.factor, m.source): m for m in own}
    left = Counter((m.factor, m.score, m.trials) for m in stored)
    found = []
    for measurement in rows:
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
    """One row per condition of a run's trials, and one per mean that was recorded."""
    return [
        Row(mean.score, run.demos, None, None, mean.trials, run.seed, mean.factor, f"run {run.id}")
        for mean in (*means_of(tallies), *means)
    ]
