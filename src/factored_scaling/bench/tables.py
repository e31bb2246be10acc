"""The benchmark's cells as tables for people and as plain data for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from factored_scaling.bench.decisions import Cell, Key, Mean, Settings, mean
from factored_scaling.model.estimate import LEVELS

ROLES = {"tuning": "families that rules were tuned on", "held_out": "families kept apart for reporting"}


@dataclass(frozen=True, slots=True)
class Table:
    """A title, columns and rows of texts."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """The table as Markdown."""
        lines = [f"### {self.title}", "", "| " + " | ".join(self.columns) + " |"]
        lines.append("|" + "|".join(["---", *["---:"] * (len(self.columns) - 1)]) + "|")
        return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in self.rows)]) + "\n"


@dataclass(frozen=True)
class Comparison:
    """All cells of one comparison, with several summaries."""

    settings: Settings
    cells: Mapping[Key, Cell]

    def tables(self) -> list[Table]:
        """Means over families first, then every family on its own, then calibration."""
        roles = {family.name: family.role for family in self.settings.chosen()}
        tables = []
        for budget in self.settings.budgets:
            for role, words in ROLES.items():
                if names := [name for name, own in roles.items() if own == role]:
                    tables.append(self._means(budget, names, f"K = {budget}, mean over {words}"))
        for budget in self.settings.budgets:
            tables += [self._families(budget, regime, list(roles)) for regime in self.settings.regimes]
        return [table for table in [*tables, self._calibration(roles)] if table.rows]

    def to_mapping(self) -> dict[str, Any]:
        """Every cell's mean, and the means over the families of each role."""
        roles = {family.name: family.role for family in self.settings.chosen()}
        settings = self.settings
        entries = [
            {"method": key.method, "regime": key.regime, "budget": key.budget, "family": key.family}
            | {"role": roles[key.family], "factors": key.factors, "policies": cell.policies, "rollouts": cell.rollouts}
            | _plain(mean([cell]))
            for key, cell in self.cells.items()
        ]
        means = [
            {"method": method, "regime": regime, "budget": budget, "role": role} | _plain(got)
            for method, regime, budget, role, got in self._by_role(roles)
        ]
        return {
            "settings": {
                "families": [family.name for family in settings.chosen()],
                "worlds": settings.worlds,
                "factors": list(settings.factors),
                "worlds_per_family": settings.count,
                "budgets": list(settings.budgets),
                "regimes": list(settings.regimes),
                "seed": settings.seed,
            },
            "means": means,
            "cells": entries,
        }

    def _by_role(self, roles: Mapping[str, str]) -> Iterator[tuple[str, str, int, str, Mean]]:
        """Every rule under every regime and budget, with its mean over the families of a role."""
        for rule in dict.fromkeys((key.method, key.regime, key.budget) for key in self.cells):
            for role in ROLES:
                if chosen := self._pick(*rule, [name for name, own in roles.items() if own == role]):
                    yield *rule, role, mean(list(chosen.values()))

    def _pick(self, method: str, regime: str, budget: int, names: Sequence[str]) -> dict[Key, Cell]:
        return {
            key: cell
            for key, cell in self.cells.items()
            if (key.method, key.regime, key.budget) == (method, regime, budget) and key.family in names
        }

    def _counts(self, chosen: Mapping[Key, Cell], what: str) -> str:
        each = {key.factors: getattr(cell, what) for key, cell in chosen.items()}
        return "/".join(f"{each[count]:,}" for count in self.settings.factors if count in each)

    def _means(self, budget: int, names: Sequence[str], title: str) -> Table:
        counts = "/".join(str(count) for count in self.settings.factors)
        columns = ["method", f"policies, N={counts}"]
        for regime in self.settings.regimes:
            columns += [f"{regime}: regret", "worse than Equal", "by a point", "rollouts"]
        rows = []
        for method in self.settings.methods:
            row = [method, ""]
            for regime in self.settings.regimes:
                chosen = self._pick(method, regime, budget, names)
                if not chosen:
                    row += ["–"] * 4
                    continue
                got = mean(list(chosen.values()))
                row[1] = self._counts(chosen, "policies")
                worse = [f"{100 * share:.0f}%" for share in (got.worse, got.much_worse)]
                row += [_regret(got), *worse, self._counts(chosen, "rollouts")]
            rows.append(tuple(row))
        return Table(title, tuple(columns), tuple(rows))

    def _families(self, budget: int, regime: str, names: Sequence[str]) -> Table:
        rows = []
        for method in self.settings.methods:
            row = [method]
            for name in names:
                chosen = self._pick(method, regime, budget, [name])
                row.append(_regret(mean(list(chosen.values()))) if chosen else "–")
            if any(cell != "–" for cell in row[1:]):
                rows.append(tuple(row))
        return Table(f"K = {budget}, {regime}: regret by family", ("method", *names), tuple(rows))

    def _calibration(self, roles: Mapping[str, str]) -> Table:
        rows = []
        for method, regime, budget, role, got in self._by_role(roles):
            if got.coverage:
                shares = [f"{100 * got.coverage[level]:.0f}%" for level in LEVELS]
                bias = "–" if got.bias is None else f"{100 * got.bias:+.1f}"
                rows.append((method, regime, str(budget), role.replace("_", " "), *shares, bias))
        columns = ("method", "regime", "K", "families", *(f"{100 * level:.0f}%" for level in LEVELS), "bias, points")
        title = "How often the predicted interval holds the true success of the chosen allocation"
        return Table(title, columns, tuple(rows))


def _regret(got: Mean) -> str:
    return f"{got.regret:.3f} ± {got.error:.3f}"


def _plain(got: Mean) -> dict[str, Any]:
    data: dict[str, Any] = {"worlds": got.worlds, "regret": got.regret, "error": got.error}
    data |= {"worse": got.worse, "much_worse": got.much_worse}
    if got.coverage:
        data["coverage"] = {f"{level:g}": share for level, share in got.coverage.items()}
        data["bias"] = got.bias
    return data
