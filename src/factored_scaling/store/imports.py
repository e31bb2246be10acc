"""Import files of measured means: match them with the study's runs and store them in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, func, insert, select

from factored_scaling.core.design import PlannedRun
from factored_scaling.core.trials import Measurement, Tally
from factored_scaling.errors import InvalidInput
from factored_scaling.store import leases, results, runs, studies
from factored_scaling.store.rows import RunRow
from factored_scaling.store.schema import rounds, scores
from factored_scaling.store.schema import runs as runs_table

# Maps the study's runs, with their measurements and numbers of trials by id, to the runs in a file and the new
# measurements of each.
Match = Callable[
    [list[RunRow], dict[int, list[Measurement]], dict[int, list[Tally]]],
    Sequence[tuple[PlannedRun | RunRow, Sequence[Measurement]]],
]


def take_in(connection: Connection, now: float, study: int, index: int, match: Match) -> int:
    """Import a file of means: store the new measurements that `match` returns and finish their runs.

    `match` is called with the study's runs, measurements and trials as this transaction sees them. Returns the number
    of new measurements. Fails when round `index` is no longer the latest.
    """
    studies.require(connection, study, lock=True)
    latest = connection.execute(select(func.max(rounds.c.number)).where(rounds.c.study_id == study)).scalar_one()
    if latest != index:
        raise InvalidInput("the study was extended meanwhile", hint="import the file again")
    own = select(runs_table.c.id).where(runs_table.c.study_id == study).order_by(runs_table.c.id)
    connection.execute(own.with_for_update()).all()  # keeps the matched runs unchanged until the end
    known = results.scores_of_study(connection, study), results.tallies(connection, study)
    matched = match(runs.of_study(connection, study), *known)
    ids = runs.add(connection, now, study, index, [run for run, _ in matched])
    rows = [
        {**results.score_values(measurement), "run_id": run_id, "created": now}
        for run_id, (_, new) in zip(ids, matched, strict=True)
        for measurement in new
    ]
    if rows:
        connection.execute(insert(scores), rows)
    leases.finish_all(connection, now, ids)
    return len(rows)
