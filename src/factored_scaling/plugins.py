"""Extension points: objects found by a registered name, an entry point, or `package.module:attribute`.

A registry maps names to references of the form `package.module:attribute`. Built-in names are part of the
registry; installed packages add names with an entry point in its group. Nothing is imported until it is used.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from factored_scaling.errors import FscError, InvalidInput, UnknownName


class Registry:
    """Names of one extension point, such as tasks or backends.

    `group` is the entry point group, `kind` the word for an entry in error messages.
    """

    def __init__(self, group: str, kind: str, builtin: Mapping[str, str]) -> None:
        self.group = group
        self.kind = kind
        self._builtin = dict(builtin)

    @cached_property
    def references(self) -> dict[str, str]:
        """Every known name and its reference. A built-in name cannot be replaced by an installed package."""
        from importlib.metadata import entry_points  # slow to load and to ask

        installed = {point.name: point.value for point in entry_points(group=self.group)}
        return {**installed, **self._builtin}

    def __iter__(self) -> Iterator[str]:
        return iter(self.references)

    def __contains__(self, name: object) -> bool:
        return name in self._builtin or name in self.references

    def load(self, name: str, error: type[UnknownName] = UnknownName, where: str = "") -> Any:
        """The object registered under `name`, or by a reference `package.module:attribute`."""
        if name in self._builtin:
            return self._resolve(self._builtin[name], name, where)
        if name in self.references:
            return self._resolve(self.references[name], name, where)
        if ":" in name:
            return self._resolve(name, name, where)
        raise error(name, self.references, kind=self.kind, where=where)

    def _resolve(self, reference: str, name: str, where: str) -> Any:
        module, _, attribute = reference.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in attribute.split("."):
                found = getattr(found, part)
        except FscError:
            raise
        except Exception as error:  # third-party code may raise anything
            if name in self._builtin:
                raise
            reason = f"{type(error).__name__}: {error}"
            hint = "write it as package.module:attribute, importable where `fsc` runs"
            raise InvalidInput(f"{self.kind} {name!r} cannot be loaded ({reason})", where=where, hint=hint) from None
        return found
