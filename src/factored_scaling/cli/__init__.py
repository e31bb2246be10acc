"""`fsc`: parse, call, print. Commands load when they are used, so that `fsc --help` answers at once."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence

import click

from factored_scaling.errors import FscError
from factored_scaling.version import __version__

# name → (module, one line for `fsc --help`); the order is the order of use
COMMANDS = {
    "init": ("start", "Start a study: a folder with a study.yaml to edit and a durable record."),
    "plan": ("plan", "Which policies to train, in which order, and what each construction costs."),
    "runs": ("runs", "The study's runs: state, trials so far, score with interval."),
    "record": ("runs", "Append scored trials to a run, one or many at a time."),
    "import": ("exchange", "Take in results.csv, or a whole study exported as JSON."),
    "export": ("exchange", "Write results as CSV, or everything as JSON."),
    "fit": ("advise", "Fit one scaling curve per combination and say how far to trust it."),
    "recommend": ("advise", "How many demonstrations of each factor to collect next."),
    "extend": ("runs", "The recommended demos are collected: start the next round."),
    "report": ("report", "One HTML file with curves, allocation, diagnostics and runs; figures for a paper."),
    "run": ("run", "Train and evaluate what is pending in the simulator; stop and go on at will."),
    "proxy": ("offline", "Stand-in scores from embeddings, without rollouts, and whether to trust them."),
    "remix": ("offline", "Learn Re-Mix's weights over the factors, the strongest data-driven baseline."),
    "quickstart": ("quickstart", "The whole loop, for real, on the embedded simulator."),
    "reproduce": ("reproduce", "The paper's tables on a simulated task, with seeds and intervals."),
    "completion": ("start", "Print the line that switches on completion for your shell."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported only when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"factored_scaling.cli.{COMMANDS[cmd_name][0]}")
        command = getattr(module, f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            from factored_scaling.errors import suggest

            raise click.UsageError(f"unknown command {args[0]!r}; {suggest(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="fsc")
def app() -> None:
    """Which factor should your robot's next demonstrations vary, and how many of each?

    \b
    The short way, for scores you measured yourself:
      fsc plan study.yaml                          what to train
      fsc recommend study.yaml results.csv --budget 100
    \b
    With a durable record that grows trial by trial:
      fsc init my-study --factor camera_pose=30 --factor lighting=30
      fsc runs my-study
      fsc record my-study 1 --factor lighting 1 0 1 1
      fsc report my-study --budget 100

    STUDY is a folder with a study.yaml, the study.yaml itself, or DATABASE-URL#NAME. Every command prints a table for
    people and, with --json, one JSON document for programs. Exit codes: 0 done, 1 it failed, 2 the input is wrong.
    """


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point: every mistake becomes one line on stderr and an exit code, never a traceback."""
    args = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal without Unicode gets question marks, not an error
        sys.stdout.reconfigure(errors="replace")
    try:
        code = app.main(args=args or ["--help"], prog_name="fsc", standalone_mode=False)
        sys.stdout.flush()
    except FscError as error:
        _complain(str(error))
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _complain(error.format_message())
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        _complain("stopped")
        sys.exit(130)
    except BrokenPipeError:  # `fsc runs … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes at exit
        sys.exit(1)
    except OSError as error:  # a full disk, a lost network drive
        _complain(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


def _complain(text: str) -> None:
    print("fsc: " + " ".join(text.split()), file=sys.stderr)
