"""Write docs/reference/cli.md from the command line itself: python docs/make_reference.py"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import click

from factored_scaling.cli import COMMANDS, SECTIONS
from factored_scaling.cli.group import app

PAGE = Path(__file__).resolve().parent / "reference" / "cli.md"
INTRODUCTION = """\
# Command line

<!-- Made by `python docs/make_reference.py`; edit the help texts in src/factored_scaling/cli instead. -->

`STUDY` is one of four things:

- a folder with a `study.yaml`, a `study.db`, or both;
- a `study.yaml` itself, or any other YAML file of the same form (only a file named `study.yaml` gets a record);
- a `.db` file with one study, as `Study.load_or_create` makes it; `FILE.db#NAME` where it holds several;
- `DATABASE-URL#NAME`, for example `postgresql://lab@server/studies#fold-towel`; `#NAME` may be left out when the
  database holds one study.

`RESULTS.csv` may be `-` for standard input. Where `--json` exists it prints one document, described in
[json.md](json.md). Exit codes are in [errors.md](errors.md). Warnings go to standard error.
"""


def page() -> str:
    """The whole page."""
    context = click.Context(app, info_name="fsc")
    table = ["| command | |", "|---|---|"]
    for heading, commands in SECTIONS.items():
        table += [f"| **{heading}** | |"]
        table += [f"| [`fsc {name}`](#fsc-{name}) | {line} |" for name, (_, line) in commands.items()]
    parts = [INTRODUCTION, "\n".join(table)]
    for name in COMMANDS:
        command = app.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        parts.append(section(command, inner))
        if isinstance(command, click.Group):
            for part in command.list_commands(inner):
                below = command.get_command(inner, part)
                assert below is not None
                parts.append(section(below, click.Context(below, info_name=part, parent=inner)))
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def section(command: click.Command, context: click.Context) -> str:
    """One command: usage, explanation, arguments and options."""
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines = [f"## {context.command_path}", "", "```console", usage, "```", "", *_help(command.help or "")]
    options = [parameter for parameter in command.get_params(context) if isinstance(parameter, click.Option)]
    rows = [_option(option, context) for option in options if "--help" not in option.opts]
    if rows:
        lines += ["", "| option | value | default | |", "|---|---|---|---|", *rows]
    return "\n".join(lines)


def _help(text: str) -> list[str]:
    """The help text; what click keeps as it stands (after \\b) becomes a block of its own."""
    lines: list[str] = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        kept = paragraph.startswith("\b\n")
        body = paragraph.removeprefix("\b\n").rstrip()
        lines += ["", "```console", body, "```"] if kept else ["", body]
    return lines[1:]


def _option(option: click.Option, context: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    value = "" if option.is_flag else _cell(f"`{option.make_metavar(context)}`")
    info: dict[str, Any] = option.to_info_dict()
    shown = info["default"] if option.show_default else None
    default = "required" if option.required else "" if shown is None or option.is_flag else f"`{shown}`"
    repeated = " Repeatable." if option.multiple and "epeat" not in (option.help or "") else ""
    return f"| {names} | {value} | {default} | {_cell((option.help or '') + repeated)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
