"""`fsc`: parse, call, print. Help is plain text and commands load when they are used: `fsc --help` answers at once."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from factored_scaling.version import __version__

# name → (module, one line for `fsc --help`); the order is the order of use
COMMANDS = {
    "init": ("start", "Start a study: a study.yaml to edit and a durable record."),
    "label": ("label", "Say which factor each episode of a LeRobot dataset varies."),
    "dataset": ("dataset", "LeRobot datasets: look at them, select, merge."),
    "plan": ("plan", "Which policies to train, in which order, at what cost."),
    "runs": ("runs", "The study's runs: state, trials so far, score with interval."),
    "record": ("runs", "Append scored trials to a run, one or many at a time."),
    "import": ("exchange", "Take in results.csv, or a whole study exported as JSON."),
    "export": ("exchange", "Write results as CSV, or everything as JSON."),
    "fit": ("advise", "Fit the scaling curves and say how far to trust them."),
    "recommend": ("advise", "How many demonstrations of each factor to collect next."),
    "next": ("next", "Act now, or measure more: which policy, trials or seed, and what it adds."),
    "extend": ("runs", "The recommended demos are collected: start the next round."),
    "sheet": ("sheet", "Lists for the bench: demos to collect, trials to score, blind."),
    "report": ("report", "One HTML file with everything; figures for a paper."),
    "serve": ("serve", "A dashboard in the browser, and scoring beside the robot."),
    "run": ("run", "Train and evaluate what is pending."),
    "policy": ("policy", "Serve a policy to a robot; measure a served one in the simulator."),
    "sim": ("sim", "Simulated tasks: list them, see their factors, watch videos."),
    "proxy": ("offline", "Stand-in scores from embeddings, without rollouts."),
    "remix": ("offline", "Learn Re-Mix's weights over the factors, a baseline."),
    "quickstart": ("quickstart", "The whole loop, for real, on the embedded simulator."),
    "reproduce": ("reproduce", "The paper's tables on a simulated task, with intervals."),
    "bench": ("bench", "How well the rules decide, in worlds with a known answer."),
    "completion": ("start", "Print what switches on completion for your shell."),
}

HELP = """\
Usage: fsc [OPTIONS] COMMAND [ARGS]...

  Which factor should your robot's next demonstrations vary, and how many of
  each?

  The short way, for scores you measured yourself:
    fsc plan study.yaml                          what to train
    fsc recommend study.yaml results.csv --budget 100

  With a durable record that grows trial by trial:
    fsc init my-study --factor camera_pose=30 --factor lighting=30
    fsc runs my-study
    fsc record my-study 1 --factor lighting 1 0 1 1
    fsc report my-study --budget 100

  STUDY is a folder with a study.yaml, the study.yaml itself, or
  DATABASE-URL#NAME. Every command prints a table for people and, with --json,
  one JSON document for programs. Exit codes: 0 done, 1 it failed, 2 the input
  is wrong.

Options:
  --version   Show the version and exit.
  -h, --help  Show this message and exit; `fsc COMMAND --help` tells more.

Commands:
"""


def help_text() -> str:
    """What `fsc --help` prints."""
    return HELP + "".join(f"  {name:<10}  {line}\n" for name, (_, line) in COMMANDS.items())


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point: every mistake becomes one line on stderr and an exit code, never a traceback."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args in ([], ["-h"], ["--help"], ["--version"]) and "_FSC_COMPLETE" not in os.environ:
        sys.stdout.write(f"fsc, version {__version__}\n" if args == ["--version"] else help_text())
        sys.exit(0)
    from factored_scaling.cli.group import call  # click alone takes longer to load than all of the above

    call(args)
