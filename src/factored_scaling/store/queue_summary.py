"""Progress of an evaluation, counted in the database because every recorded score is answered with it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, and_, bindparam, case, func, select

from factored_scaling.store import trial_queue as queues
from factored_scaling.store.rows import QueueSummary
from factored_scaling.store.schema import queue
from factored_scaling.store.trial_queue import CLAIMED, HERE, OWN

_DEALT_WITH = and_(queue.c.state != "open", queue.c.told.is_not(None))
_COUNTS = (
    select(
        queue.c.state,
        queue.c.score,
        func.count(),
        func.sum(case((CLAIMED, 1), else_=0)),
        func.sum(case((and_(OWN, queue.c.state == "scored"), 1), else_=0)),
    )
    .where(HERE)
    .group_by(queue.c.state, queue.c.score)
)
_RECENT = select(queue.c.told).where(HERE, _DEALT_WITH).order_by(queue.c.told.desc()).limit(bindparam("recent"))
_LAST = select(queue).where(HERE, OWN, _DEALT_WITH).order_by(queue.c.told.desc(), queue.c.position.desc()).limit(1)
_CURRENT = select(queue).where(HERE, OWN, CLAIMED).order_by(queue.c.position).limit(1)


def summary(connection: Connection, now: float, evaluation: int, operator: str, recent: int) -> QueueSummary:
    """Progress of the evaluation, with the operator's last and current trial.

    It includes the times at which the `recent` latest trials were scored or skipped.
    """
    closed = queues.one(connection, evaluation).closed is not None
    asked = {"evaluation": evaluation, "operator": operator, "now": now}
    counts, levels, claimed, mine = dict.fromkeys(("open", "scored", "skipped"), 0), dict[float, int](), 0, 0
    rows: Any = connection.execute(_COUNTS, asked)
    for state, score, count, held, own in rows:
        counts[state] += count
        claimed, mine = claimed + held, mine + own
        if score is not None:
            levels[score] = count
    moments = connection.execute(_RECENT, asked | {"recent": recent}).scalars().all()
    last, current = (connection.execute(query, asked).first() for query in (_LAST, _CURRENT))
    both = [row for row in (last, current) if row is not None]
    found = iter(queues.with_entries(connection, now, both, [row.id for row in both]) if both else ())
    return QueueSummary(
        closed=closed,
        open=counts["open"],
        scored=counts["scored"],
        skipped=counts["skipped"],
        claimed=claimed,
        levels=levels,
        recent=tuple(moments),
        mine=mine,
        last=None if last is None else next(found),
        current=None if current is None else next(found),
    )
