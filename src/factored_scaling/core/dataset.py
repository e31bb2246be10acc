"""An index of demonstrations: which factor each one varies. The bytes live elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from factored_scaling.core.checks import shown, whole
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput, UnknownFactor, has_control_characters

MOST_COLLECTED = 1_000_000  # demos of one factor in one round; more is a slip of the finger


@dataclass(frozen=True, slots=True)
class Episode:
    """One demonstration. `factor` is the one factor it varies, or None for the nominal scene."""

    id: str
    factor: str | None = None

    def __post_init__(self) -> None:
        # ids stand in files of one per line, on command lines and in terminals
        if not isinstance(self.id, str) or not self.id or has_control_characters(self.id):
            what = f"episode id {shown(self.id)} has a control character" if self.id else "an episode has no id"
            raise InvalidInput(what, hint="ids are texts of one line, such as file names")


@dataclass(frozen=True, slots=True)
class Dataset:
    """All demonstrations of a study, in the order they were collected."""

    episodes: tuple[Episode, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for episode in self.episodes:
            if episode.id in seen:
                raise InvalidInput(f"episode {episode.id!r} is listed twice", hint="episode ids must be unique")
            seen.add(episode.id)

    @classmethod
    def of_sizes(cls, sizes: Mapping[str, int], nominal: int = 0) -> Dataset:
        """A dataset known only by its counts; episodes are named `factor/0`, `factor/1`, …"""
        if not isinstance(sizes, Mapping):
            raise InvalidInput(f"expected demos per factor, not {shown(sizes)}", where="sizes")
        counts = {name: whole(size, str(name)) for name, size in sizes.items()}
        episodes = [Episode(f"nominal/{index}") for index in range(whole(nominal, "nominal"))]
        episodes += [Episode(f"{name}/{index}", name) for name, size in counts.items() for index in range(size)]
        return cls(tuple(episodes))

    def subset(self, factor: str | None) -> tuple[Episode, ...]:
        """The demonstrations that vary `factor` (None: the nominal ones)."""
        return tuple(episode for episode in self.episodes if episode.factor == factor)

    def count(self, factor: str | None) -> int:
        """|D_i|: how many demonstrations vary `factor`; 0 for a name that no demonstration has."""
        return sum(episode.factor == factor for episode in self.episodes)

    def extended(self, more: Iterable[Episode]) -> Dataset:
        """This dataset and `more`, as a new one."""
        return Dataset((*self.episodes, *more))


def check_counts(spec: StudySpec, dataset: Dataset) -> None:
    """The demos that a study declares are those that its dataset has, factor by factor."""
    for name in dict.fromkeys(episode.factor for episode in dataset.episodes):
        if name is not None and name not in spec.names:
            hint = f"`factors:` has {', '.join(spec.names)}; give it one name in both"
            raise UnknownFactor(name, where="a label of the dataset", hint=hint)
    for name, size in [(None, spec.nominal), *spec.sizes.items()]:
        if dataset.count(name) != size:
            what = (
                f"the dataset has {dataset.count(name)} demos of {name or 'the nominal scene'}, the study says {size}"
            )
            hint = f"write `{name or 'nominal'}: {dataset.count(name)}`, or label the rest (`fsc label` counts them)"
            raise InvalidInput(what, hint=hint)


def numbered_episodes(counts: Mapping[str, int], dataset: Dataset, spec: StudySpec) -> tuple[Episode, ...]:
    """Fresh index entries for demonstrations known only by their number."""
    taken = {episode.id for episode in dataset.episodes}
    made = []
    for name, count in counts.items():
        factor = None if name == "nominal" else name
        if factor is not None and factor not in spec.names:
            raise UnknownFactor(name, spec.names)
        index = dataset.count(factor)
        for _ in range(whole(count, name, what="the number of demos", most=MOST_COLLECTED)):
            while f"{name}/{index}" in taken:
                index += 1
            taken.add(f"{name}/{index}")
            made.append(Episode(f"{name}/{index}", factor))
    return tuple(made)
