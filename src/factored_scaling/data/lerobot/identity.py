"""Ids of episodes from their content, which survive renumbering, merging and re-encoding."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable

import numpy as np

from factored_scaling.data.lerobot.dataset import LerobotDataset
from factored_scaling.data.lerobot.layout import ACTION, INDEX_FEATURES, STATE
from factored_scaling.data.lerobot.rows import read_rows, vectors
from factored_scaling.errors import InvalidInput


def episode_ids(dataset: LerobotDataset) -> dict[int, str]:
    """Each episode's id by its number; computed once per opened dataset.

    The digest of its length and of all its states and actions; images, tasks and numbers are not used. Episodes
    with equal content get `-2`, `-3` and so on after the first.
    """
    if dataset.ids is None:
        digests = _digests(dataset)
        dataset.ids = dict(zip(sorted(digests), distinct_ids([digests[i] for i in sorted(digests)]), strict=True))
    return dict(dataset.ids)


def distinct_ids(digests: Iterable[str]) -> list[str]:
    """Digests of contents, in the order of the episodes, as ids: repeated digests get `-2`, `-3` and so on."""
    seen: Counter[str] = Counter()
    ids = []
    for digest in digests:
        seen[digest] += 1
        ids.append(digest if seen[digest] == 1 else f"{digest}-{seen[digest]}")
    return ids


def content_of(id_: str) -> str:
    """The digest in an id, the same for episodes of equal content."""
    return id_.partition("-")[0]


def indices_of(dataset: LerobotDataset, ids: Iterable[str]) -> list[int]:
    """The numbers that episodes with these ids have in the dataset now, in the order of the ids."""
    places = {id_: index for index, id_ in episode_ids(dataset).items()}
    wanted = list(ids)
    missing = [id_ for id_ in wanted if id_ not in places]
    if missing:
        what = f"no episode with id {missing[0]} ({len(missing)} of {len(wanted)} missing)"
        hint = "name one that holds them all under `dataset:` in study.yaml; `fsc dataset merge` makes it of several"
        raise InvalidInput(what, where=str(dataset.root), hint=hint)
    return [places[id_] for id_ in wanted]


def _digests(dataset: LerobotDataset) -> dict[int, str]:
    columns = _columns(dataset)
    found = {}
    for entry, table in read_rows(dataset, None, columns):
        digest = hashlib.sha256(f"{entry.length}".encode())
        for name in columns:
            values = vectors(table.column(name), entry.length, f"{dataset.root}: episode {entry.index}, {name}")
            digest.update(f"\0{name}\0{values.shape[1]}\0".encode())
            digest.update(np.ascontiguousarray(values, dtype="<f4").tobytes())
        found[entry.index] = digest.hexdigest()[:16]
    return found


def _columns(dataset: LerobotDataset) -> list[str]:
    named = [name for name in (ACTION, STATE) if name in dataset.features]
    if named:
        return named
    numbers = [
        name
        for name, feature in dataset.features.items()
        if feature.dtype.startswith(("float", "int")) and name not in INDEX_FEATURES
    ]
    if not numbers:
        raise InvalidInput("has no states or actions to tell episodes apart by", where=str(dataset.root))
    return sorted(numbers)
