"""The pool of `fsc recommend --pool`: read, held against the study, and what was chosen from it written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from factored_scaling.cli.show import say
from factored_scaling.core.dataset import Dataset
from factored_scaling.core.pool import capped, chosen_episodes, without
from factored_scaling.core.spec import StudySpec
from factored_scaling.model.recommend import Recommendation

if TYPE_CHECKING:
    from factored_scaling.study import Snapshot


@dataclass(frozen=True)
class Pool:
    """Episodes that may be chosen, the study capped by them, and what was left out of them."""

    episodes: Dataset
    spec: StudySpec
    warnings: tuple[str, ...]
    verb: ClassVar[str] = "Add"  # episodes of a pool are there already

    @classmethod
    def read(cls, path: Path, study: Snapshot) -> Pool:
        """A table of episodes and factors, or a folder with a labelled LeRobot dataset."""
        pool, spec = _read(path), study.spec
        fresh = without(pool, [episode.id for episode in study.episodes])
        warnings = []
        if len(fresh.episodes) < len(pool.episodes):
            warnings.append(f"{len(pool.episodes) - len(fresh.episodes)} episodes of the pool are in the study already")
        useless = sum(episode.factor not in spec.names for episode in fresh.episodes)
        if useless:
            warnings.append(f"{useless} episodes of the pool vary no factor of the study")
        return cls(fresh, capped(spec, fresh), tuple(warnings))

    def chosen(self, answer: Recommendation, seed: int) -> dict[str, Any]:
        """What `--json` says otherwise, or besides: the chosen episodes, and what was left out of the pool."""
        ids = chosen_episodes(self.episodes, answer.allocation, seed)
        made = {"episodes": {name: list(own) for name, own in ids.items()}, "pool_warnings": list(self.warnings)}
        return made if answer.summary is None else {"answer": answer.say(self.verb), **made}

    def write(self, allocation: Mapping[str, int], seed: int, out: Path) -> None:
        """The chosen episodes as a table; says where."""
        from factored_scaling.io.tables import table_csv
        from factored_scaling.io.text import write_text

        chosen = chosen_episodes(self.episodes, allocation, seed)
        rows = [(id_, name) for name, ids in chosen.items() for id_ in ids]
        write_text(out, table_csv(("episode", "factor"), rows))
        say(f"wrote {out} ({len(rows)} episodes)", err=True)


def _read(path: Path) -> Dataset:
    if path.is_dir():
        from factored_scaling.data.lerobot.collection import labelled

        return labelled(path).dataset()
    from factored_scaling.io.files import read_episodes

    return read_episodes(path)
