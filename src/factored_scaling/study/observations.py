"""Measured means: from rows of a file to the runs that they belong to, and from runs to rows."""

from __future__ import annotations

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
) -> tuple[list[Measurement], list[str]]:
    """The measurements that are not in `stored`, the scores of all candidate runs.

    Also the places of those that are not new although their equal in `stored` has another source. InvalidInput where
    the same source gave another score for the run before (`own`).
    """
    sources = {(m.factor, m.source): m for m in own}
    left: dict[tuple[object, ...], list[str]] = {}
    for mean in stored:
        left.setdefault((mean.factor, mean.score, mean.trials), []).append(mean.source)
    found, known = list[Measurement](), list[str]()
    for measurement in rows:
        same = left.get((measurement.factor, measurement.score, measurement.trials))
        if same:
            ours = [source for source in same if _file(source) == _file(measurement.source)]
            same.remove(ours[0] if ours else same[0])
            if not ours:
                known.append(measurement.source)
            continue
        before = sources.get((measurement.factor, measurement.source))
        if before is not None:
            raise InvalidInput(
                f"is stored already with score {before.score:g}, not {measurement.score:g}",
                where=measurement.source,
                hint="the stored score stays; under another file name this one is added, and both count",
            )
        found.append(measurement)
    return found, known


def _file(source: str) -> str:
    return source.rpartition(":")[0]


def known_already(places: Sequence[str]) -> str:
    """A sentence about rows that were taken for scores that are stored."""
    some = ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
    what, it = ("1 row is", "it is") if len(places) == 1 else (f"{len(places)} rows are", "they are")
    was, a = ("was", "a new measurement") if len(places) == 1 else ("were", "new measurements")
    return f"{what} stored already and {was} not added ({some}); if {it} {a}, give another seed"


def matched(
    measurements: Sequence[tuple[PlannedRun, list[Measurement]]],
    known: list[str],
    runs: list[RunRow],
    scores: Mapping[int, list[Measurement]],
    tallies: Mapping[int, list[Tally]],
) -> list[tuple[PlannedRun | RunRow, list[Measurement]]]:
    """The run that each measurement belongs to, with the new ones among its measurements.

    Places of rows that equal a score from another source are added to `known`.
    """
    stored = {run.id: [*scores.get(run.id, []), *means_of(tallies.get(run.id, []))] for run in runs}
    candidates, found = by_training_set(runs), list[tuple[PlannedRun | RunRow, list[Measurement]]]()
    for run, means in measurements:
        group = candidates(run)
        chosen = matching_run(run, means, group, stored)
        own = stored[chosen.id] if isinstance(chosen, RunRow) else []
        new, same = new_only(means, own, [mean for row in group for mean in stored[row.id]])
        found.append((chosen, new))
        known += same
    return found


def rows_of(run: RunRow, tallies: Iterable[Tally], means: Sequence[Measurement]) -> list[Row]:
    """One row per condition of a run's trials, and one per mean that was recorded."""
    return [
        Row(mean.score, run.demos, None, None, mean.trials, run.seed, mean.factor, f"run {run.id}")
        for mean in (*means_of(tallies), *means)
    ]
