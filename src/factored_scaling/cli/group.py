"""The commands of `fsc` as one click group, and how every mistake ends."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys

import click

from factored_scaling.cli import COMMANDS, help_text
from factored_scaling.errors import FscError, installs, one_line
from factored_scaling.version import __version__

# What other tools call it, where no letters are alike.
MEANT = {
    "status": "runs",
    "list": "runs",
    "show": "runs",
    "watch": "runs",
    "cancel": "stop",
    "kill": "stop",
    "train": "run",
    "create": "init",
    "new": "init",
    "allocate": "recommend",
    "dashboard": "serve",
}


class Group(click.Group):
    """Commands in the order of use, each with its whole first sentence; a slip of the pen gets a suggestion."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:  # `fsc sheet` helps, as `fsc` does
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            from factored_scaling.errors import suggest

            meant = MEANT.get(args[0])
            hint = f"did you mean {meant}?" if meant in known else suggest(args[0], known)
            raise click.UsageError(f"unknown command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, part.get_short_help_str(1000)) for name, part in self.commands.items()])


class LazyGroup(Group):
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

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(help_text())


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="fsc")
def app() -> None:
    """Which factor should your robot's next demonstrations vary, and how many of each?"""


# Packages that the base install does not have, and the extra that brings each.
_EXTRAS = {"torch": "sim", "safetensors": "sim", "mani_skill": "maniskill", "sapien": "maniskill"}


_LONGEST = 1000  # characters of a message, which may quote what a user wrote
# errors of the file system that speak of the name that was given
_NAMES = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR)


def call(args: list[str]) -> None:
    """Run one command; every mistake becomes one line on stderr and an exit code, never a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal without Unicode gets question marks, not an error
        sys.stdout.reconfigure(errors="replace")
    try:
        code = app.main(args=args, prog_name="fsc", standalone_mode=False)
        sys.stdout.flush()
    except FscError as error:
        _complain(str(error))
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _complain(error.format_message() + _where_to_look(error))
        sys.exit(2)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        _complain(f"this needs {package}, which is not installed; {installs(_EXTRAS[package])}")
        sys.exit(1)
    except (click.Abort, KeyboardInterrupt):
        _complain("stopped")
        sys.exit(130)
    except BrokenPipeError:  # `fsc runs … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes at exit
        sys.exit(1)
    except OSError as error:  # a full disk, a lost network drive
        _complain(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
        sys.exit(2 if error.errno in _NAMES else 1)
    sys.exit(code if isinstance(code, int) else 0)


def _where_to_look(error: click.ClickException) -> str:
    """Where something is missing, the command that shows what it is."""
    if not isinstance(error, click.MissingParameter) or error.ctx is None:
        return ""
    return f" `{error.ctx.command_path} --help` has an example."


def _complain(text: str) -> None:
    line = one_line(text)
    print("fsc: " + (line if len(line) <= _LONGEST else f"{line[: _LONGEST - 200]} … {line[-200:]}"), file=sys.stderr)
