"""fsc bench: how well the rules decide"""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from factored_scaling.cli.group import Group
from factored_scaling.cli.output import OutputFile
from factored_scaling.cli.show import json_option, print_json, print_table, say, say_again
from factored_scaling.errors import InvalidInput
from factored_scaling.io.reading import parse_json

if TYPE_CHECKING:
    from factored_scaling.bench.tables import Comparison


@click.group("bench", cls=Group)
def bench_command() -> None:
    """Compare strategies on tables of trained policies, and build such tables.

    \b
    fsc bench decisions --worlds results/tables
    """


@bench_command.command("decisions")
@click.option(
    "--worlds",
    required=True,
    metavar="FOLDER|MODULE|FILE.py",
    help="Where the families come from: policy tables, or a list `families`.",
)
@click.option("--families", help="Names of families, separated by commas; all by default.")
@click.option(
    "--worlds-per-family",
    "count",
    default=20,
    show_default=True,
    type=click.IntRange(1),
    help="And per N. A world takes 0.05 s without rules that fit the response model, and 0.1 s for each of their fits.",
)
@click.option("--factors", default="5,8", show_default=True, help="N: numbers of factors.")
@click.option("--budget", "budgets", default="100", show_default=True, help="K: one budget or several.")
@click.option(
    "--regime",
    "regimes",
    default="rollouts,real",
    show_default=True,
    help="rollouts: 60 rollouts per factor. simulation: 600. real: 18 trials per policy. simulation-means, real-means: "
    "only each policy's mean score is kept.",
)
@click.option("--methods", help="Rules, separated by commas: equal, greedy, cubed-failure, FIT:STRATEGY@CONSTRUCTION.")
@click.option("--policies", help="Most policies of rules that do not say so themselves: 6, or 6/8 for N=5/8.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Other worlds.")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(1, 256), help="Processes side by side.")
@click.option("--save", type=OutputFile(), help="Write the tables as Markdown as well.")
@json_option
def decisions_command(
    worlds: str,
    families: str | None,
    count: int,
    factors: str,
    budgets: str,
    regimes: str,
    methods: str | None,
    policies: str | None,
    seed: int,
    jobs: int,
    save: Path | None,
    as_json: bool,
) -> None:
    """Compare rules by their regret, on tables of trained policies or in worlds of your own.

    Regret is (best − chosen) / (best − before): 0 is the best allocation of K there is, 1 is no gain at all. Worlds of
    the families marked `tuning` may be looked at when a rule is made; the others are for reporting. All rules face the
    same worlds and the same noise.

    FIT:STRATEGY@CONSTRUCTION[:POLICIES] is a rule of `fsc recommend` given the first so many policies of a
    construction, 6/8 meaning 6 for the first number of factors and 8 for the second; @group-unshared trains the
    full-data policy once per curve.

    \b
    fsc bench decisions --worlds results/tables
    fsc bench decisions --worlds results/tables --families insert/10,insert/30 --budget 20,100 --regime real
    fsc bench decisions --worlds my_worlds.py --methods equal,power-law:top@one
    """
    from factored_scaling.bench.decisions import Settings, compare
    from factored_scaling.bench.methods import DEFAULT
    from factored_scaling.bench.tables import Comparison
    from factored_scaling.io.text import write_text

    settings = Settings(
        worlds=worlds,
        families=tuple(_parts(families)),
        factors=_numbers(factors, "--factors", least=2),
        count=count,
        budgets=_numbers(budgets, "--budget"),
        regimes=tuple(_parts(regimes)),
        methods=tuple(_parts(methods)) or DEFAULT,
        policies=None if policies is None else _numbers(policies.replace("/", ","), "--policies"),
        seed=seed,
    )
    begun = time.monotonic()
    comparison = Comparison(settings, compare(settings, jobs, _progress))
    seconds = time.monotonic() - begun
    if save is not None:
        write_text(save, _page(comparison, seconds, jobs))
    if as_json:
        print_json(comparison.to_mapping())
        return
    for table in comparison.tables():
        print_table(table.title, table.columns, table.rows)


@bench_command.command("table")
@click.argument("task")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--start", default=10, show_default=True, type=click.IntRange(1), help="Demonstrations per factor.")
@click.option("--policies", default=100, show_default=True, type=click.IntRange(1), help="Rows of this start.")
@click.option("--policy", default="{}", help="Policy settings as JSON, as under `policy:` in study.yaml.")
@click.option("--states", default=12, show_default=True, type=click.IntRange(1), help="Initial states per setting.")
@click.option("--pool", default=200, show_default=True, type=click.IntRange(1), help="Demonstrations to draw from.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Draws other compositions.")
@click.option("--device", default="cpu", show_default=True, help="Where policies are trained.")
@click.option("--together", default=16, show_default=True, type=click.IntRange(1), help="Policies side by side.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1), help="Processes, each with as many.")
@click.option("--work", type=click.Path(path_type=Path), help="Frames and policies; FOLDER/work by default.")
def table_command(
    task: str,
    folder: Path,
    start: int,
    policies: int,
    policy: str,
    states: int,
    pool: int,
    seed: int,
    device: str,
    together: int,
    workers: int,
    work: Path | None,
) -> None:
    """Train policies on many dataset compositions and write their successes to FOLDER.

    FOLDER/policies.csv has one row per policy, FOLDER/card.json says how they were made. The same command goes on
    where it was stopped; another --start adds rows to the same table.

    \b
    fsc bench table tabletop/pick-place tables/pick-place --start 10 --policies 200 --device cuda
    """
    from factored_scaling.bench.policy_tables import design_table
    from factored_scaling.bench.table_builder import TableSettings, build_table
    from factored_scaling.machine import prepare_device, processor
    from factored_scaling.policies.capacity import check_device
    from factored_scaling.sim import load_task
    from factored_scaling.version import __version__

    check_device(device)
    prepare_device(device)
    settings = TableSettings(task, _json_object(policy, "--policy"), {"initial_states": states}, pool)
    compositions = design_table(load_task(task).factors, start, policies, seed)
    made = {"version": __version__, "machine": processor(), "date": datetime.date.today().isoformat()}
    table = build_table(
        folder,
        settings,
        compositions,
        work or folder / "work",
        _step,
        device=device,
        at_once=together,
        workers=workers,
        provenance=made,
    )
    say(f"{len(table)} policies in {folder}")


def _json_object(text: str, option: str) -> dict[str, Any]:
    value = parse_json(text, option, finite=True)
    if not isinstance(value, dict):
        raise InvalidInput("expected an object", where=option, hint='for example {"updates": 3600}')
    return value


def _step(done: int, total: int, note: str = "") -> None:
    say_again(f"{done} of {total} {note:<50}", False)


def _parts(given: str | None) -> list[str]:
    return [part.strip() for part in (given or "").split(",") if part.strip()]


def _numbers(given: str, option: str, least: int = 1) -> tuple[int, ...]:
    parts = _parts(given)
    if not parts or not all(part.isdecimal() and int(part) >= least for part in parts):
        raise InvalidInput(
            f"expected whole numbers of at least {least} separated by commas, not {given!r}", where=option
        )
    return tuple(dict.fromkeys(int(part) for part in parts)) if option != "--policies" else tuple(map(int, parts))


def _progress(done: int, total: int) -> None:
    say_again(f"worlds {done:,} of {total:,}", done >= total)


def _page(comparison: Comparison, seconds: float, jobs: int) -> str:
    import numpy as np

    from factored_scaling.machine import processor

    command = shlex.join(["fsc", *sys.argv[1:]])
    cores = "one process" if jobs == 1 else f"{jobs} processes"
    parts = [
        "# Decisions in worlds with a known best answer",
        "",
        f"{datetime.date.today().isoformat()}, {processor()}, {cores} of {os.cpu_count()} cores, {seconds:.0f} s, "
        f"{platform.system()}, Python {platform.python_version()}, numpy {np.__version__}; `{command}`.",
        "",
        "Regret is (best − chosen) / (best − before), ± its standard error; "
        f"{comparison.settings.count} worlds per family and N, seed {comparison.settings.seed}.",
        "",
    ]
    return "\n".join([*parts, *(table.markdown() for table in comparison.tables())])
