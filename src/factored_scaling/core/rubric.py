"""Rubrics: which scores a trial may get, and what each of them means to the person who gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from factored_scaling.core.checks import check_keys, real, shown
from factored_scaling.errors import InvalidInput, UnknownName

# How a rollout may end without being judged by the rubric. Both are failures; the reason is kept.
Ending = Literal["step limit", "hazard"]
ENDINGS: tuple[Ending, ...] = get_args(Ending)
MOST_LEVELS = 12  # more do not fit on a phone, and nobody tells them apart beside a robot


@dataclass(frozen=True, slots=True)
class Level:
    """One score of a rubric: a short name for the button, and what one has to see to give it."""

    score: float
    name: str
    means: str = ""


@dataclass(frozen=True, slots=True)
class Rubric:
    """The scores that a trial may get, lowest first."""

    name: str
    levels: tuple[Level, ...]

    def level(self, score: object) -> Level:
        """The level with this score; other scores are errors."""
        value = real(score)
        for level in self.levels:
            if value is not None and abs(level.score - value) < 1e-9:
                return level
        known = ", ".join(f"{level.score:g}" for level in self.levels)
        raise InvalidInput(f"{shown(score)} is no score of the rubric {self.name}", hint=f"its scores are {known}")

    def to_mapping(self) -> dict[str, Any]:
        """Plain data that `from_mapping` reads back."""
        levels = [{"score": level.score, "name": level.name, "means": level.means} for level in self.levels]
        return {"name": self.name, "levels": levels}

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Rubric:
        """Read what `to_mapping` wrote."""
        return cls(data["name"], _levels(data["levels"], "levels"))


RUBRICS: dict[str, Rubric] = {
    rubric.name: rubric
    for rubric in (
        Rubric("success", (Level(0.0, "failed", "the task was not done"), Level(1.0, "done", "the task was done"))),
        # the paper's bounds: 5 cm or 20° apart is far, 3 cm or 5° apart is near
        Rubric(
            "fold-towel",
            (
                Level(0.0, "failed", "no fold"),
                Level(0.25, "far off", "folded, but the edges miss each other by more than 5 cm or 20°"),
                Level(0.5, "nearly", "within 5 cm and 20°, but off by more than 3 cm or 5°"),
                Level(1.0, "folded", "the edges meet within 3 cm and 5°"),
            ),
        ),
        Rubric(
            "mouse-in-drawer",
            (
                Level(0.0, "failed", "the drawer stays shut, or the mouse is never picked up"),
                Level(0.25, "picked", "the mouse was picked up but did not get into the drawer"),
                Level(0.5, "put in", "the mouse lies in the drawer, which is still open"),
                Level(1.0, "closed", "the mouse lies in the closed drawer"),
            ),
        ),
    )
}


def rubric_of(declared: object, where: str = "rubric") -> Rubric:
    """A rubric by its name, or from a list of levels of one's own."""
    if isinstance(declared, str):
        if declared not in RUBRICS:
            raise UnknownName(declared, RUBRICS, kind="rubric", where=where)
        return RUBRICS[declared]
    return Rubric("own", _levels(declared, where))


def _levels(declared: object, where: str) -> tuple[Level, ...]:
    if not isinstance(declared, Sequence) or isinstance(declared, str):
        hint = f"name one of {', '.join(RUBRICS)}, or list levels with score, name and means"
        raise InvalidInput(f"expected a rubric's name or its levels, not {shown(declared)}", where=where, hint=hint)
    levels = [_level(entry, f"{where}[{index}]") for index, entry in enumerate(declared)]
    if not 2 <= len(levels) <= MOST_LEVELS:
        raise InvalidInput(f"a rubric has 2 to {MOST_LEVELS} levels, not {len(levels)}", where=where)
    for field in ("score", "name"):
        values = [getattr(level, field) for level in levels]
        for index, value in enumerate(values):
            if value in values[:index]:
                raise InvalidInput(f"two levels have the {field} {value!r}", where=f"{where}[{index}].{field}")
    if not any(level.score == 0.0 for level in levels):
        hint = "a hazard and the step limit score 0"
        raise InvalidInput("no level has the score 0", where=where, hint=hint)
    return tuple(sorted(levels, key=lambda level: level.score))


def _level(entry: object, where: str) -> Level:
    known = ("score", "name", "means")
    if not isinstance(entry, Mapping):
        hint = "write for example {score: 0.5, name: nearly, means: off by less than 5 cm}"
        raise InvalidInput(f"expected a level, not {shown(entry)}", where=where, hint=hint)
    check_keys(entry, known, where)
    score = real(entry.get("score"))
    if score is None or not 0.0 <= score <= 1.0:
        raise InvalidInput(f"a score must lie in [0, 1], not {shown(entry.get('score'))}", where=f"{where}.score")
    name, means = entry.get("name", f"{score:g}"), entry.get("means", "")
    for field, text, longest in (("name", name, 24), ("means", means, 240)):
        if not isinstance(text, str) or len(text) > longest or (field == "name" and not text.strip()):
            what = f"expected a text of at most {longest} characters, not {shown(text)}"
            raise InvalidInput(what, where=f"{where}.{field}")
    return Level(score, " ".join(name.split()), " ".join(means.split()))
