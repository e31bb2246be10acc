"""What callers pass to a Study, checked, with errors that say what to pass instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from factored_scaling.core.checks import shown
from factored_scaling.core.dataset import Episode
from factored_scaling.errors import InvalidInput
from factored_scaling.model.recommend import Recommendation


def check_training_set(episodes: object, known: Container[str]) -> None:
    """Refuse a training set that is empty, repeats an episode or has one that is not known."""
    if isinstance(episodes, str) or not isinstance(episodes, Sequence):
        raise InvalidInput(f"expected a list of episode ids, not {shown(episodes)}", where="episodes")
    unknown = [id_ for id_ in episodes if not isinstance(id_, str) or id_ not in known]
    if unknown:
        raise InvalidInput(f"episode {shown(unknown[0])} is not in the dataset ({len(unknown)} unknown)")
    if not episodes:
        raise InvalidInput("no episodes", where="episodes", hint="name those to train on")
    twice = [id_ for id_, times in Counter(episodes).items() if times > 1]
    if twice:
        raise InvalidInput(f"episode {twice[0]!r} is listed twice", where="episodes", hint="name each once")


def as_mapping(recommendation: object) -> dict[str, Any]:
    """A recommendation as plain data."""
    if isinstance(recommendation, Recommendation):
        return recommendation.to_mapping()
    if not isinstance(recommendation, Mapping) or not isinstance(recommendation.get("allocation"), Mapping):
        what = f"expected a Recommendation or its to_mapping(), not {shown(recommendation)}"
        raise InvalidInput(what, where="recommendation")
    return dict(recommendation)


def episodes_of(collected: object) -> tuple[Episode, ...]:
    """New demonstrations that were not given as counts."""
    if isinstance(collected, Recommendation):
        hint = "say what was collected: extend(answer.allocation, answer) if it was all of it"
        raise InvalidInput("a recommendation is not what was collected", where="collected", hint=hint)
    found = tuple(collected) if isinstance(collected, Iterable) and not isinstance(collected, str | bytes) else None
    if found is None or not all(isinstance(episode, Episode) for episode in found):
        what = f"expected counts per factor, such as {{'light': 12}}, or Episodes, not {shown(collected)}"
        raise InvalidInput(what, where="collected")
    return found


def check_address(address: object) -> None:
    """Refuse what is no database file and no database URL, and name the file in a study's folder."""
    if not isinstance(address, str | Path):
        raise InvalidInput(f"expected a path or a database URL, not {shown(address)}", where="address")
    if str(address) == ":memory:":
        raise InvalidInput("a database in memory is not saved", where="address", hint="give a file, such as study.db")
    if "://" in str(address):
        return
    path = Path(address).expanduser()
    if path.is_dir() or (path.suffix in (".yaml", ".yml") and path.exists()):
        record = (path if path.is_dir() else path.parent) / "study.db"
        what = "is a folder" if path.is_dir() else "is a study's settings"
        hint = f"give {record}" if record.exists() else "give the study's .db file"
        raise InvalidInput(f"{what}, not a study's database", where=str(path), hint=hint)
