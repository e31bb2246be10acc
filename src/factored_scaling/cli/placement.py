"""Options that say where workers run and what each of them gets, the same for `fsc run` and `fsc plan`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from factored_scaling.errors import InvalidInput

Command = TypeVar("Command", bound=Callable[..., Any])


def _pairs(context: click.Context, parameter: click.Parameter, given: Sequence[str]) -> dict[str, str] | None:
    pairs = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            where = f"--{(parameter.name or '').replace('_', '-')}"
            raise InvalidInput(f"expected KEY=VALUE, not {text!r}", where=where)
        pairs[key.lstrip("-")] = value
    return pairs or None


OPTIONS = (
    click.option(
        "--evaluators",
        type=click.IntRange(1, 4096),
        help="Additional workers, without a GPU, that evaluate policies while the others train.",
    ),
    click.option(
        "--evaluator-resources",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_pairs,
        help="Resources of an evaluator where they differ from a worker's: partition=cpu, cpus=8. Repeatable.",
    ),
    click.option("--gpus", type=click.FloatRange(0), help="GPUs per worker on a cluster; a fraction only on Ray."),
    click.option("--cpus", type=click.IntRange(1), help="Cores per worker on a cluster. Default: 1."),
    click.option("--memory", type=click.FloatRange(0, min_open=True), help="GB per worker on a cluster."),
    click.option(
        "--time", help="Time limit of a Slurm job, HH:MM:SS; the job is then queued again. Default: 04:00:00."
    ),
    click.option("--partition", help="Slurm partition."),
    click.option(
        "--resources",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_pairs,
        help="More sbatch options, such as constraint=a100, or custom Ray resources. Repeatable.",
    ),
)


def executor_options(command: Command) -> Command:
    """The options for the resources of a worker; they arrive as keywords, None where they were not given."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command
