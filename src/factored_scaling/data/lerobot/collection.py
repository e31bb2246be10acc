"""A labelled dataset as input of a study: its index, and new episodes after collecting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from factored_scaling.core.dataset import Dataset, Episode
from factored_scaling.data.lerobot.dataset import LerobotDataset
from factored_scaling.data.lerobot.identity import episode_ids
from factored_scaling.data.lerobot.labels import NOMINAL, Check, Label, check_labels, listed, read_labels


@dataclass(frozen=True, slots=True)
class Listed:
    """The entry of one recorded episode on an operator's list."""

    code: str
    factor: str
    value: str = ""

    def text(self) -> str:
        """The entry as readable text."""
        return f"{self.factor} = {self.value}" if self.value else self.factor


@dataclass(frozen=True)
class Collected:
    """The episodes that a study does not have yet, compared with what was recommended."""

    episodes: tuple[Episode, ...]  # episodes that can join the study
    places: Mapping[str, tuple[int, ...]]  # their numbers, by label
    recommended: Mapping[str, int] | None  # demos per factor; None when nothing was recommended
    unlabelled: tuple[int, ...]
    doubly_varied: tuple[int, ...]
    unknown: Mapping[str, tuple[int, ...]]  # numbers of episodes with a label that the study has no factor for
    mislabelled: tuple[tuple[int, Listed, Label], ...]  # the list and the label disagree
    nowhere: tuple[tuple[int, Listed], ...]  # on the list, not in the dataset
    relabelled: tuple[tuple[int, str, str], ...]  # number, factor in the study, label now
    gone: int  # episodes of the study that the dataset does not have

    @property
    def counts(self) -> dict[str, int]:
        """The number of episodes per factor that can join, with `nominal` for those that vary nothing."""
        return {name: len(places) for name, places in self.places.items()}

    @property
    def missing(self) -> dict[str, int]:
        """Recommended demonstrations that the dataset lacks, per factor."""
        return _above(self.recommended or {}, self.counts)

    @property
    def extra(self) -> dict[str, int]:
        """Demonstrations beyond the recommended ones, per factor."""
        return {} if self.recommended is None else _above(self.counts, self.recommended)

    def sentences(self) -> list[str]:
        """Sentences on differences from the recommendation and on unusable episodes."""
        sentences = [
            f"{name}: {count} missing of {(self.recommended or {})[name]} recommended"
            for name, count in self.missing.items()
        ]
        for name, count in self.extra.items():
            wanted = (self.recommended or {}).get(name, 0)
            what = (
                f"{name}: {count} more than the {wanted} recommended" if wanted else f"{name}: {count} not recommended"
            )
            doubt = f"; mislabelled {' or '.join(self.missing)}?" if self.missing else ""
            sentences.append(f"{what} ({listed('episode', self.places[name][-count:])}){doubt}")
        if self.unlabelled:
            sentences.append(f"unlabelled and left out: {listed('episode', self.unlabelled)}")
        if self.doubly_varied:
            sentences.append(f"varying more than one factor and left out: {listed('episode', self.doubly_varied)}")
        for name, places in self.unknown.items():
            sentences.append(
                f"labelled {name}, which is no factor of the study, and left out: {listed('episode', places)}"
            )
        for index, listed_as, label in self.mislabelled:
            now = Listed("", label.text, label.value).text()
            what = f"{listed_as.text()} on the list ({listed_as.code}) and labelled {now}"
            sentences.append(f"mislabelled? episode {index} is {what}; the label counts")
        for index, listed_as in self.nowhere:
            sentences.append(
                f"episode {index} ({listed_as.code} on the list, {listed_as.text()}) is not in the dataset"
            )
        for index, was, now in self.relabelled:
            sentences.append(f"episode {index} is {was} in the study and labelled {now} now; the study keeps {was}")
        if self.gone:
            whole = "training needs one that holds them all: `fsc dataset merge`"
            sentences.append(f"{self.gone} demos of the study are not in this dataset; {whole}")
        return sentences


def labelled(root: str | Path) -> Check:
    """The labels of the dataset in a folder, checked against its episodes."""
    dataset = LerobotDataset.open(root)
    return check_labels(episode_ids(dataset), read_labels(dataset.root))


def collected(
    check: Check,
    known: Dataset,
    factors: Sequence[str],
    recommended: Mapping[str, int] | None,
    lists: Mapping[int, Listed] | None = None,
) -> Collected:
    """The dataset's episodes that are not in the study yet.

    `recommended` are demos per factor; `lists` are the entries of operators' lists by episode number.
    """
    before = {episode.id: episode.factor or NOMINAL for episode in known.episodes}
    new = {index for index, id_ in check.ids.items() if id_ not in before}
    usable: list[Episode] = []
    places: dict[str, list[int]] = {}
    unknown: dict[str, list[int]] = {}
    for index in sorted(new & set(check.labels)):
        label = check.labels[index]
        if len(label.factors) > 1:
            continue
        if label.factors and label.factors[0] not in factors:
            unknown.setdefault(label.text, []).append(index)
            continue
        usable.append(Episode(label.id, next(iter(label.factors), None)))
        places.setdefault(label.text, []).append(index)
    moved = [
        (index, before[label.id], label.text)
        for index, label in sorted(check.labels.items())
        if label.id in before and before[label.id] != label.text
    ]
    wrong = [
        (index, entry, check.labels[index])
        for index, entry in sorted((lists or {}).items())
        if index in new and index in check.labels and not _agree(entry, check.labels[index])
    ]
    return Collected(
        tuple(usable),
        {name: tuple(found) for name, found in places.items()},
        recommended,
        tuple(index for index in check.unlabelled if index in new),
        tuple(index for index in check.doubly_varied if index in new),
        {name: tuple(found) for name, found in unknown.items()},
        tuple(wrong),
        tuple((index, entry) for index, entry in sorted((lists or {}).items()) if index not in check.ids),
        tuple(moved),
        len(before) - sum(id_ in before for id_ in check.ids.values()),
    )


def _agree(entry: Listed, label: Label) -> bool:
    return entry.factor == label.text and (not entry.value or not label.value or entry.value == label.value)


def _above(wanted: Mapping[str, int], there: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(wanted) - Counter(there))
