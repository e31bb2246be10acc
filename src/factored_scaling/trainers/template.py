"""Command lines with placeholders. No shell reads them: what is filled in is never split or expanded."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from factored_scaling.core.checks import shown
from factored_scaling.errors import InvalidInput, UnknownName

# {name} is filled in and {{name}} becomes {name}; all other braces are the command's own
_NAME = r"[a-z_]+(?:\.\w+)*\*?"
_PART = re.compile(rf"\{{(\{{{_NAME}\}})\}}|\{{({_NAME})\}}")
LONGEST_ARGUMENT = 120_000  # bytes; Linux takes a little more

Value = str | Sequence[str]


class UnknownPlaceholder(UnknownName):
    """A placeholder that is never filled in."""

    kind = "placeholder"


def words(command: object, where: str) -> tuple[str, ...]:
    """A command line's words: a list is taken as it is, a text is split as a shell would split it."""
    if isinstance(command, str):
        try:
            found = shlex.split(command)
        except ValueError as error:
            raise InvalidInput(f"cannot be split into words ({error})", where=where, hint="check the quotes") from None
    elif isinstance(command, Sequence) and all(isinstance(w, str | int | float) for w in command):
        found = [str(word) for word in command]
    else:
        raise InvalidInput(f"expected a command line, not {shown(command)}", where=where, hint="a text or a list")
    if not found:
        raise InvalidInput("is empty", where=where, hint="write the command line that trains a policy")
    return tuple(found)


def check(command: Sequence[str], known: Sequence[str], where: str) -> None:
    """Every placeholder is one of `known`; a name ending in `*` stands alone in its word."""
    for word in command:
        for match in _PART.finditer(word):
            name = match[2]
            if name is None:
                continue
            if name not in known:
                raise UnknownPlaceholder("{" + name + "}", ["{" + one + "}" for one in known], where=where)
            if name.endswith("*") and match[0] != word:
                raise InvalidInput(
                    f"{match[0]} becomes several words and must stand alone, not in {word!r}", where=where
                )


def fill(command: Sequence[str], values: Mapping[str, Value], where: str) -> list[str]:
    """The words with every placeholder filled in; one that stands for several words becomes several words."""
    filled: list[str] = []
    for word in command:
        alone = _PART.fullmatch(word)
        value = values.get(alone[2]) if alone is not None and alone[2] else None
        if value is not None and not isinstance(value, str):
            filled += value
        else:
            filled.append(_PART.sub(lambda match: _text(match, values), word))
    for word in filled:
        if len(word.encode()) > LONGEST_ARGUMENT:
            hint = "use {episodes_file}, which holds one id per line"
            raise InvalidInput(
                f"a word of {len(word.encode())} bytes is too long for a command line", where=where, hint=hint
            )
    return filled


def plain(values: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Settings as placeholders: `policy.steps`, `policy.optimizer.lr`; whatever is not a text is written as JSON."""
    found: dict[str, str] = {}
    for key, value in values.items():
        name = f"{prefix}.{key}"
        found[name] = value if isinstance(value, str) else json.dumps(value)
        if isinstance(value, Mapping):
            found |= plain(value, name)
    return found


def _text(match: re.Match[str], values: Mapping[str, Value]) -> str:
    if match[2] is None:
        return match[1]
    value = values[match[2]]
    return value if isinstance(value, str) else " ".join(value)
