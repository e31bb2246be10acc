"""The factor of each episode, in a sidecar file `meta/fsc_episodes.parquet` that LeRobot ignores.

A label belongs to an episode's id, which comes from its content. The episode's number is stored too, for people and to
detect renumbering by a tool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from factored_scaling.core.checks import shown
from factored_scaling.core.dataset import Dataset, Episode
from factored_scaling.data.lerobot import layout
from factored_scaling.data.lerobot.identity import content_of
from factored_scaling.errors import InvalidInput
from factored_scaling.io.atomic import whole

SIDECAR = "meta/fsc_episodes.parquet"
NOMINAL = "nominal"
VERSION = "1"
_COLUMNS = {
    "episode_index": pa.types.is_integer,
    "id": pa.types.is_string,
    "factor": pa.types.is_string,
    "value": pa.types.is_string,
}


@dataclass(frozen=True, slots=True)
class Label:
    """The factor of one episode. `factors` has one name, or none for the nominal scene; several are an error."""

    id: str
    index: int  # the episode's number when it was labelled
    factors: tuple[str, ...]
    value: str = ""  # which value of the factor, in the operator's words

    def at(self, index: int) -> Label:
        """The same label with the episode's current number."""
        return replace(self, index=index)

    @property
    def text(self) -> str:
        """The factor's name, `nominal`, or names joined by +."""
        return "+".join(self.factors) or NOMINAL


@dataclass(frozen=True)
class Check:
    """A dataset's labels, checked against its episodes."""

    ids: Mapping[int, str]  # every episode's id by its number
    labels: Mapping[int, Label]  # the labels by the episode's number as it is now
    unlabelled: tuple[int, ...]
    doubly_varied: tuple[int, ...]
    renumbered: tuple[tuple[int, int], ...]  # number when labelled, number now
    gone: tuple[Label, ...]  # labels whose episode is no longer there
    twins: tuple[tuple[int, ...], ...]  # episodes whose content is the same

    @property
    def counts(self) -> dict[str, int]:
        """Episodes per label: nominal first, then by first appearance."""
        found = Counter(self.labels[index].text for index in sorted(self.labels))
        first = {NOMINAL: found[NOMINAL]} if NOMINAL in found else {}
        return first | dict(found)

    def problems(self) -> list[str]:
        """Problems that keep the labels from being used in a study, one sentence each."""
        sentences = []
        if self.unlabelled:
            sentences.append(f"unlabelled: {listed('episode', self.unlabelled)}")
        sentences += [
            f"doubly varied: episode {index} varies {' and '.join(self.labels[index].factors)}; "
            "every demonstration may vary one factor"
            for index in self.doubly_varied
        ]
        return sentences + [
            f"twice there: {listed('episode', twins)} hold the same states and actions" for twins in self.twins
        ]

    def remarks(self) -> list[str]:
        """Changes of the dataset since the labels were written. No label is lost, because ids follow the content."""
        sentences = []
        if self.renumbered:
            moves = [f"{was} is now {now}" for was, now in self.renumbered[:6]]
            more = f" and {len(self.renumbered) - 6} more" if len(self.renumbered) > 6 else ""
            sentences.append(f"re-indexed since they were labelled: episode {', '.join(moves)}{more}")
        if self.gone:
            numbers = [label.index for label in self.gone]
            sentences.append(
                f"labelled but no longer in the dataset: {listed('episode', numbers)} (numbers of that time)"
            )
        return sentences

    def dataset(self) -> Dataset:
        """The index of the episodes that vary at most one factor, for a study."""
        usable = [index for index in sorted(self.labels) if len(self.labels[index].factors) <= 1]
        return Dataset(tuple(Episode(self.labels[i].id, next(iter(self.labels[i].factors), None)) for i in usable))


def read_labels(root: Path) -> dict[str, Label]:
    """The sidecar's labels by id; empty without a sidecar."""
    path = root / SIDECAR
    if not path.exists():
        return {}
    table = layout.read_parquet(path)
    version = (table.schema.metadata or {}).get(b"fsc_version", b"").decode()
    if version != VERSION:
        hint = f"this release reads version {VERSION}"
        raise InvalidInput(f"is a label file of version {version or 'unknown'}", where=str(path), hint=hint)
    for name, check in _COLUMNS.items():
        if name not in table.column_names:
            raise InvalidInput(f"has no column {name!r}", where=str(path), hint="restore the file, or label again")
        if not check(table.schema.field(name).type) or table.column(name).null_count:
            what = f"the column {name!r} holds {table.schema.field(name).type} or gaps"
            raise InvalidInput(what, where=str(path), hint="restore the file, or label again")
    labels = {}
    with layout.sensible(path):  # texts that are not UTF-8
        rows = table.select(list(_COLUMNS)).to_pylist()
    for row in rows:
        factors = () if row["factor"] == NOMINAL else tuple(row["factor"].split("+"))
        if not all(name.strip() for name in factors):
            raise InvalidInput(f"{row['factor']!r} names no factor", where=f"{path}: column factor")
        labels[row["id"]] = Label(row["id"], row["episode_index"], factors, row["value"])
    return labels


def write_labels(root: Path, labels: Iterable[Label]) -> None:
    """Write the sidecar file, in the order of the episodes' numbers."""
    rows = sorted(labels, key=lambda label: label.index)
    for label in rows:
        if any("\ud800" <= character <= "\udfff" for character in label.value):
            raise InvalidInput(
                f"the value {shown(label.value)} is not text that can be stored", hint="write it in UTF-8"
            )
    table = pa.table(
        {
            "episode_index": pa.array([label.index for label in rows], pa.int64()),
            "id": pa.array([label.id for label in rows], pa.string()),
            "factor": pa.array([label.text for label in rows], pa.string()),
            "value": pa.array([label.value for label in rows], pa.string()),
        }
    ).replace_schema_metadata({"fsc_version": VERSION})
    with whole(root / SIDECAR) as partial:
        pq.write_table(table, partial)


def check_labels(ids: Mapping[int, str], labels: Mapping[str, Label]) -> Check:
    """Check labels against the current episodes."""
    now = {id_: index for index, id_ in ids.items()}
    present = {now[label.id]: label for label in labels.values() if label.id in now}
    content: dict[str, list[int]] = {}
    for index, id_ in ids.items():
        content.setdefault(content_of(id_), []).append(index)
    return Check(
        ids,
        present,
        tuple(index for index in sorted(ids) if index not in present),
        tuple(index for index in sorted(present) if len(present[index].factors) > 1),
        tuple((present[index].index, index) for index in sorted(present) if present[index].index != index),
        tuple(label for label in labels.values() if label.id not in now),
        tuple(tuple(indices) for indices in content.values() if len(indices) > 1),
    )


def listed(noun: str, numbers: Sequence[int]) -> str:
    """`episodes 0–4, 7, 9`."""
    return f"{noun}{'s' if len(set(numbers)) > 1 else ''} {drawn_together(numbers)}"


def drawn_together(numbers: Sequence[int]) -> str:
    """`0–4, 7, 9`: numbers in a row as a range; not more than a dozen parts."""
    ordered = sorted(set(numbers))
    spans: list[list[int]] = []
    for number in ordered:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    parts = [
        str(low) if low == high else f"{low}–{high}" if high > low + 1 else f"{low}, {high}" for low, high in spans
    ]
    shown = parts if len(parts) <= 12 else [*parts[:12], f"… ({len(ordered)} in all)"]
    return ", ".join(shown)
