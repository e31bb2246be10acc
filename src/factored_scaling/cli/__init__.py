"""`fsc`: parse, call, print. Help is plain text and commands load when they are used: `fsc --help` answers at once."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from factored_scaling.version import __version__

# heading → name → (module, one line for `fsc --help`); the order is the order of use
SECTIONS = {
    "A study": {
        "init": ("start", "Start a study: write a study.yaml and create its record."),
        "plan": ("plan", "Show which policies to train, in which order, at what cost."),
        "run": ("run", "Train and evaluate the pending runs."),
        "runs": ("runs", "List the study's runs with state, trials and score."),
        "stop": ("workers", "Stop the study's workers, on this machine and on others."),
        "record": ("runs", "Append scored trials to a run."),
        "import": ("exchange", "Import results.csv, or a whole study exported as JSON."),
        "export": ("exchange", "Write results as CSV, or everything as JSON."),
    },
    "Answers": {
        "fit": ("advise", "Fit the scaling curves, with diagnostics."),
        "recommend": ("advise", "Recommend how many demonstrations of each factor to collect next."),
        "next": ("next", "Compare collecting now with measuring more first."),
        "report": ("report", "Write an HTML report, and figures for a paper."),
        "extend": ("runs", "Start the next round with newly collected demos."),
    },
    "Real robots": {
        "label": ("label", "Label which factor each episode of a LeRobot dataset varies."),
        "dataset": ("dataset", "Show, select from and merge LeRobot datasets."),
        "sheet": ("sheet", "Print lists: demos to collect, trials to score blind."),
        "serve": ("serve", "Serve a dashboard, and a page for scoring beside the robot."),
        "policy": ("policy", "Serve a policy to a robot, or evaluate a served one in the simulator."),
    },
    "Simulated robots": {
        "quickstart": ("quickstart", "Run the whole method on the embedded simulator."),
        "sim": ("sim", "List simulated tasks, show their factors, render videos."),
        "reproduce": ("reproduce", "Reproduce the paper's tables on a simulated task."),
    },
    "The method": {
        "proxy": ("offline", "Compute proxy scores from embeddings, without rollouts."),
        "remix": ("offline", "Learn Re-Mix's weights over the factors (a baseline)."),
        "bench": ("bench", "Compare strategies on tables of trained policies, and build such tables."),
    },
    "This tool": {
        "completion": ("start", "Print a shell completion script."),
    },
}
COMMANDS = {name: command for section in SECTIONS.values() for name, command in section.items()}

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

  From a LeRobot dataset to a list of demonstrations to record:
    fsc label my-dataset --rule 'task ~ lamp: lighting' --rule 'rest: nominal'
    fsc init my-study --dataset my-dataset
    fsc run my-study                             train the policies
    fsc sheet evaluate my-study                  trials for people to score, blind
    fsc sheet collect my-study --budget 100      demonstrations to record

  STUDY is a folder with a study.yaml, the study.yaml itself, a .db file, or
  DATABASE-URL#NAME. Many commands take --json, which prints one JSON document
  instead of tables. Exit codes: 0 success, 1 failure, 2 invalid input.

Options:
  --version   Show the version and exit.
  -h, --help  Show this message and exit; see also `fsc COMMAND --help`.
"""


def help_text() -> str:
    """What `fsc --help` prints."""
    width = max(map(len, COMMANDS))
    parts = [HELP]
    for heading, commands in SECTIONS.items():
        parts += [f"\n{heading}:\n", *(f"  {name:<{width}}  {line}\n" for name, (_, line) in commands.items())]
    return "".join(parts)


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point: every mistake becomes one line on stderr and an exit code, never a traceback."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args in ([], ["-h"], ["--help"], ["--version"]) and "_FSC_COMPLETE" not in os.environ:
        sys.stdout.write(f"fsc, version {__version__}\n" if args == ["--version"] else help_text())
        sys.exit(0)
    gc.set_threshold(50_000, 10, 10)  # modules and rows of files and records are many, and none of them garbage
    from factored_scaling.cli.group import call  # click alone takes longer to load than all of the above

    call(args)


def process() -> None:
    """`main` as a process of its own, which ends without taking every module apart; that takes a tenth of a second.

    Threads are joined and what others registered with atexit has run by then: what is registered first comes last.
    """
    code = 1

    def leave() -> None:
        with suppress(OSError, ValueError):  # Python says what is wrong with the output
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    atexit.register(leave)
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        raise
