"""Strict JSON: errors name the place."""

from __future__ import annotations

import json
import re
from typing import Any

from factored_scaling.errors import InvalidInput

MOST_LEVELS = 100  # of nested lists and objects; recursive code must be able to process them
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_json(text: str, where: str, *, finite: bool = False) -> Any:
    """The data in a JSON text. With `finite`, NaN and Infinity are errors."""
    try:
        data = json.loads(text, parse_constant=_refused if finite else None)
    except json.JSONDecodeError as error:
        place = f"{where}: line {error.lineno}, column {error.colno}"
        raise InvalidInput(f"not JSON ({error.msg})", where=place) from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
        raise InvalidInput(f"not JSON that can be read ({error})", where=where) from None
    level, depth = [data], 0
    while level := [value for node in level if isinstance(node, dict | list) for value in _values(node)]:
        depth += 1
        if depth > MOST_LEVELS:
            raise InvalidInput(f"not JSON that can be read (nested deeper than {MOST_LEVELS} levels)", where=where)
    if _SURROGATE.search(text):
        try:
            json.dumps(data, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            what = "not JSON that can be read (half of a character, such as \\ud800)"
            raise InvalidInput(what, where=where, hint="save it as UTF-8") from None
    return data


def _values(node: dict[str, Any] | list[Any]) -> list[Any]:
    values = node.values() if isinstance(node, dict) else node
    return [value for value in values if isinstance(value, dict | list)]


def _refused(name: str) -> float:
    raise ValueError(f"{name} is not a number in JSON")
