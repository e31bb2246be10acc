"""Demonstrations that have names of their own: a table of episodes and the factor each one varies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from factored_scaling.core.dataset import Dataset, Episode
from factored_scaling.errors import InvalidInput, UnknownFactor

if TYPE_CHECKING:
    from factored_scaling.study import Study


def listed_episodes(path: Path) -> Dataset:
    """The table's episodes, at least one of which varies a factor."""
    from factored_scaling.io.files import read_episodes

    found = read_episodes(path)
    if not any(episode.factor for episode in found.episodes):
        raise InvalidInput("no episode varies a factor", where=str(path), hint="name it in the column factor")
    return found


@dataclass(frozen=True)
class NewEpisodes:
    """Episodes that the study does not have yet, and how many of the same table it has."""

    episodes: tuple[Episode, ...]
    known: int = 0

    @classmethod
    def read(cls, path: Path, study: Study) -> NewEpisodes:
        """The episodes that the study does not have yet; one table may hold those of all rounds."""
        from factored_scaling.io.files import read_episodes

        held = {episode.id: episode.factor for episode in study.dataset.episodes}
        new, known = [], 0
        for number, episode in enumerate(read_episodes(path).episodes, start=1):
            where = f"{path}: row {number}"
            if episode.factor is not None and episode.factor not in study.spec.names:
                raise UnknownFactor(episode.factor, study.spec.names, where=where)
            if episode.id not in held:
                new.append(episode)
            elif held[episode.id] != episode.factor:
                was, now = (factor or "nothing" for factor in (held[episode.id], episode.factor))
                hint = "what was trained on stays as it was; give another demonstration another name"
                raise InvalidInput(f"{episode.id} varied {was} before, not {now}", where=where, hint=hint)
            else:
                known += 1
        if not new:
            what = "no episode is new to the study"
            raise InvalidInput(what, where=str(path), hint="list the demonstrations that were collected since")
        return cls(tuple(new), known)

    @classmethod
    def of_pool(cls, chosen: Mapping[str, Sequence[str]]) -> NewEpisodes:
        """The episodes that a saved recommendation chose from a pool."""
        return cls(tuple(Episode(id_, factor) for factor, ids in chosen.items() for id_ in ids))

    @property
    def counts(self) -> dict[str, int]:
        """How many vary each factor, and how many nothing."""
        names = [episode.factor or "nominal" for episode in self.episodes]
        return {name: names.count(name) for name in dict.fromkeys(names)}


def named(study: Study) -> bool:
    """Whether the study's demonstrations have names of their own, which counts would not continue."""
    by_count = {f"{factor or 'nominal'}/0" for factor in (None, *study.spec.names)}
    return study.spec.task is None and not any(episode.id in by_count for episode in study.dataset.episodes)
