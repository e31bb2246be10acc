"""Studies, their rounds, and the JSON documents stored with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, func, insert, select
from sqlalchemy.exc import IntegrityError

from factored_scaling.core.dataset import Dataset, Episode
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput, StudyExists, StudyMissing, suggest
from factored_scaling.store.rows import LONGEST_NAME, DocumentRow, RoundRow, StudyRow, checked_text, to_json
from factored_scaling.store.schema import documents, rounds, studies


def create(connection: Connection, now: float, name: str) -> int:
    """An empty study; its first round follows."""
    checked_text(name, "the study's name", longest=LONGEST_NAME, empty=False)
    taken = StudyExists(f"there is already a study {name!r}", hint="open it, or choose another name")
    if connection.execute(select(studies.c.id).where(studies.c.name == name)).first() is not None:
        raise taken
    try:
        added = connection.execute(insert(studies).values(name=name, created=now).returning(studies.c.id))
    except IntegrityError:  # another process created it after the read
        raise taken from None
    return int(added.scalar_one())


def every(connection: Connection) -> list[StudyRow]:
    """All studies, oldest first."""
    return [
        StudyRow(row.id, row.name, row.created) for row in connection.execute(select(studies).order_by(studies.c.id))
    ]


def named(connection: Connection, name: str) -> StudyRow:
    """The study of this name."""
    known = {row.name: row for row in every(connection)}
    if name not in known:
        raise StudyMissing(f"there is no study {name!r}", hint=suggest(name, known))
    return known[name]


def require(connection: Connection, study: int, *, lock: bool = False) -> None:
    """Fail unless the study exists; with `lock`, keep other writers of the study out until the transaction ends."""
    query = select(studies.c.id).where(studies.c.id == study)
    if connection.execute(query.with_for_update() if lock else query).first() is None:
        raise StudyMissing(f"there is no study with number {study}")


def add_round(
    connection: Connection,
    now: float,
    study: int,
    spec: StudySpec,
    dataset: Dataset,
    recommendation: Mapping[str, Any] | None,
    index: int | None,
) -> int:
    """Append a round; returns its index."""
    require(connection, study, lock=True)
    last = connection.execute(select(func.max(rounds.c.number)).where(rounds.c.study_id == study)).scalar()
    number = 0 if last is None else int(last) + 1
    if index is not None and index != number:
        raise InvalidInput(
            f"round {index} cannot be added, the next one is round {number}",
            hint="somebody else may have extended the study; look at its rounds first",
        )
    connection.execute(
        insert(rounds).values(
            study_id=study,
            number=number,
            spec=to_json(spec.to_mapping(), "the spec"),
            dataset=to_json([[episode.id, episode.factor] for episode in dataset.episodes], "the dataset"),
            collected=None if recommendation is None else to_json(dict(recommendation), "the recommendation"),
            created=now,
        )
    )
    return number


def rounds_of(connection: Connection, study: int) -> list[RoundRow]:
    """The study's rounds, oldest first."""
    require(connection, study)
    query = select(rounds).where(rounds.c.study_id == study).order_by(rounds.c.number)
    return [
        RoundRow(
            index=row.number,
            spec=StudySpec.from_mapping(json.loads(row.spec)),
            dataset=Dataset(tuple(Episode(id_, factor) for id_, factor in json.loads(row.dataset))),
            recommendation=None if row.collected is None else json.loads(row.collected),
            created=row.created,
        )
        for row in connection.execute(query)
    ]


def round_id(connection: Connection, study: int, index: int) -> int:
    """The database's own number for a round."""
    require(connection, study)
    query = select(rounds.c.id).where(rounds.c.study_id == study, rounds.c.number == index)
    found = connection.execute(query).scalar()
    if found is None:
        raise StudyMissing(f"the study has no round {index}")
    return int(found)


def put_document(connection: Connection, now: float, study: int, kind: str, key: str, body: Any) -> None:
    """Append a document; it replaces earlier ones of the same kind and key for reads."""
    require(connection, study)
    connection.execute(
        insert(documents).values(
            study_id=study,
            kind=checked_text(kind, "a document's kind", longest=LONGEST_NAME, empty=False),
            key=checked_text(key, "a document's key", longest=LONGEST_NAME),
            body=to_json(body, "the document"),
            created=now,
        )
    )


def require_no_document(connection: Connection, study: int, kind: str, key: str) -> None:
    """Fail if there is such a document, and keep other writers of the study out until the transaction ends."""
    require(connection, study, lock=True)
    if documents_of(connection, study, kind, key):
        hint = "somebody else may have made it just now; try again"
        raise InvalidInput(f"there is already a {kind} {key}", hint=hint)


def documents_of(
    connection: Connection, study: int, kind: str | None = None, key: str | None = None
) -> list[DocumentRow]:
    """The latest document of every kind and key, or of one, in the order in which they were first put."""
    require(connection, study)
    query = select(documents).where(documents.c.study_id == study).order_by(documents.c.id)
    if kind is not None:
        query = query.where(documents.c.kind == kind)
    if key is not None:
        query = query.where(documents.c.key == key)
    latest: dict[tuple[str, str], DocumentRow] = {}
    for row in connection.execute(query):
        latest[row.kind, row.key] = DocumentRow(row.kind, row.key, json.loads(row.body), row.created)
    return list(latest.values())
