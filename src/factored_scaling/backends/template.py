"""Command lines with placeholders. No shell reads them: values are never split or expanded.

A word may itself be a program, as in `bash -c '…'`. There, only values without shell syntax are allowed.
"""

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
# signs that a word is a program, or a piece of one, and texts that mean nothing but themselves in any
_PROGRAM = re.compile(r"""[\s;|&$()<>"'`\\]""")
_HARMLESS = re.compile(r"(?!-)[\w@%+=:,./-]*")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "ash", "fish")
_SHELL_ELSEWHERE = ("ssh", "rsh", "eval")  # they join their words for a shell
_OWN = ("policy.", "evaluation.")  # from the same study.yaml as the command, and may be pieces of a program
LONGEST_ARGUMENT = 120_000  # bytes; Linux takes a little more

Value = str | Sequence[str]


def words(command: object, where: str) -> tuple[str, ...]:
    """A command line's words: a list unchanged, a text split like in a shell."""
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
    """Check that every placeholder is `known`, and that names ending in `*` stand alone in their word."""
    for word in command:
        for match in _PART.finditer(word):
            name = match[2]
            if name is None:
                continue
            if name not in known:
                raise UnknownName("{" + name + "}", ["{" + one + "}" for one in known], kind="placeholder", where=where)
            if name.endswith("*") and match[0] != word:
                raise InvalidInput(
                    f"{match[0]} becomes several words and must stand alone, not in {word!r}", where=where
                )


def fill(command: Sequence[str], values: Mapping[str, Value], where: str) -> list[str]:
    """The words with every placeholder filled in; a name ending in `*` becomes several words."""
    filled: list[str] = []
    for index, word in enumerate(command):
        if _is_program(command, index):
            _refuse_harmful(word, values, where)
        alone = _PART.fullmatch(word)
        value = values.get(alone[2]) if alone is not None and alone[2] else None
        if value is not None and not isinstance(value, str):
            filled += value
        else:
            filled.append(fill_text(word, values, where))
    return filled


def fill_text(text: str, values: Mapping[str, Value], where: str) -> str:
    """A text with every placeholder filled in."""
    word = _PART.sub(lambda match: _text(match, values), text)
    if len(word.encode()) > LONGEST_ARGUMENT:
        what = f"a word of {len(word.encode())} bytes is too long for a command line"
        raise InvalidInput(what, where=where, hint="use {episodes_file}, which holds one id per line")
    return word


def check_ids(command: Sequence[str], ids: Sequence[str], where: str) -> None:
    """Check that every id can be filled into the command line."""
    for index, word in enumerate(command):
        names = [match[2] for match in _PART.finditer(word) if match[2] in ("episodes", "episodes*")]
        if not names:
            continue
        if _is_program(command, index):
            _refuse_harmful(word, dict.fromkeys(names, tuple(ids)), where)
        comma = [id_ for id_ in ids if "," in id_]
        if "episodes" in names and comma:
            what = f"{{episodes}} joins ids by commas, and {shown(comma[0])} has a comma"
            raise InvalidInput(what, where=where, hint="use {episodes*}, one word for each, or {episodes_file}")
        option = [id_ for id_ in ids if id_.startswith("-")]
        if option and word == f"{{{names[0]}}}" and "--" not in command[:index]:
            what = f"{word}: {shown(option[0])} would be read as an option"
            raise InvalidInput(what, where=where, hint="use {episodes_file}, which holds one id per line")


def _is_program(command: Sequence[str], index: int) -> bool:
    """Whether a shell or another interpreter reads this word."""
    if _PROGRAM.search(_PART.sub("", command[index])):
        return True
    if any(_base(word) in _SHELL_ELSEWHERE for word in command[:index]):
        return True
    before = index - 1
    if before < 1 or not re.fullmatch(r"-\w*c\w*", command[before]):
        return False
    while before > 0 and (command[before][:1] in "-+" or command[before - 1] in ("-o", "+o")):
        before -= 1
    return _base(command[before]) in _SHELLS


def _refuse_harmful(word: str, values: Mapping[str, Value], where: str) -> None:
    for match in _PART.finditer(word):
        name = match[2]
        if name is None or name.startswith(_OWN) or name not in values:
            continue
        value = values[name]
        for text in [value] if isinstance(value, str) else value:
            if not _HARMLESS.fullmatch(text):
                what = f"{match[0]} stands inside a program, and {shown(text)} could become a part of it"
                hint = f"pass it as an argument: bash -c '… \"$1\"' bash {match[0]}"
                raise InvalidInput(what, where=where, hint=hint)


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def plain(values: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Settings as placeholders: `policy.steps`, `policy.optimizer.lr`; other types than texts are written as JSON."""
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
