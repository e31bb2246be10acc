"""An index of demonstrations: which factor each one varies. The bytes live elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from factored_scaling.core.checks import shown
from factored_scaling.errors import InvalidInput, has_control_characters


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
        episodes = [Episode(f"nominal/{index}") for index in range(nominal)]
        episodes += [Episode(f"{name}/{index}", name) for name, size in sizes.items() for index in range(size)]
        return cls(tuple(episodes))

    def subset(self, factor: str | None) -> tuple[Episode, ...]:
        """The demonstrations that vary `factor` (None: the nominal ones)."""
        return tuple(episode for episode in self.episodes if episode.factor == factor)

    def count(self, factor: str | None) -> int:
        """|D_i|: how many demonstrations vary `factor`."""
        return sum(episode.factor == factor for episode in self.episodes)

    def extended(self, more: Iterable[Episode]) -> Dataset:
        """This dataset and `more`, as a new one."""
        return Dataset((*self.episodes, *more))
