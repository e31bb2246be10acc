"""Printing: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from factored_scaling.core.scores import Interval

Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(command: Command) -> Command:
    """The `--json` flag, the same on every command."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")(command)


def print_json(data: object) -> None:
    """One JSON document; never NaN, which JSON does not have."""
    click.echo(json.dumps(data, indent=2, allow_nan=False))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table as wide as it needs to be: columns whose cells are all numbers stand to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, title_style="bold")
    for index, column in enumerate(columns):
        numeric = bool(rows) and all(_numeric(row[index]) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:  # a pipe has no width to fit into
        wide = Console(width=10_000)
        console = Console(highlight=False, markup=False, width=wide.measure(table).maximum, no_color=True)
    console.print(table)


def print_warnings(warnings: Sequence[str]) -> None:
    """Warnings go to stderr, so that a table can be piped."""
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


def percent(value: float) -> str:
    """0.61 → 61.0%"""
    return f"{100 * value:.1f}%"


def with_interval(mean: float, interval: Interval | None) -> str:
    """61.0% (55.2–66.5)"""
    if interval is None:
        return percent(mean)
    return f"{percent(mean)} ({100 * interval.low:.1f}–{100 * interval.high:.1f})"


def _numeric(cell: str) -> bool:
    digits = cell.strip("–-+%. ").replace(",", "").replace(".", "", 1).replace("e-", "")
    return digits.isdigit() or cell in ("", "–")
