"""fsc init, fsc completion"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from factored_scaling.cli.show import quoted, say
from factored_scaling.core.checks import shown
from factored_scaling.core.spec import CONSTRUCTIONS, StudySpec
from factored_scaling.errors import InvalidInput

if TYPE_CHECKING:
    from factored_scaling.core.dataset import Dataset

TEMPLATE = """\
name: {name}
{dataset}
# What varies in your demonstrations, and how many demonstrations vary it. Each demonstration varies one factor.
# Order matters: it breaks ties, and `group` pairs neighbours.
factors:
{factors}
# Optional, per factor: the cost of one more demonstration, the most and the fewest to collect:
#   camera_pose: {{demos: 30, cost: 3, cap: 40, minimum: 0}}

{settings}{more}"""

# optional settings for a study of your own demonstrations
OWN = """
# What `fsc run` starts for every policy. Without it, train them yourself and `fsc record` or `fsc import` the scores:
#   policy: {steps: 20000}
#   trainer:
#     command: python train.py {episodes_file} {policy.steps} {seed} {folder}
#     evaluate: python evaluate.py {folder} {result}
"""

# what a study of a real robot's recordings also says; `fsc run` and `fsc sheet` do with these defaults
ROBOT = """
# Optional, per factor: values to show in demonstrations, and held-out values for trials:
#   lighting: {demos: 30, values: [ceiling, desk lamp], test_values: [red lamp]}

# What trains the policies. Default: the built-in diffusion policy.
#   trainer: {kind: lerobot, python: /path/to/lerobot/bin/python}
#   trainer: {command: "python train.py {episodes_file} {folder}"}
# Settings of the policy:
#   policy: {updates: 20000}

# How people score trials: rubric `success`, `fold-towel`, `mouse-in-drawer`, or your own levels:
#   scoring: {rubric: success, combinations: 10, repeats: 2}
"""


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--factor",
    "factors",
    multiple=True,
    metavar="NAME=DEMOS",
    help="A factor and its number of demos. Repeat for each factor.",
)
@click.option("--nominal", default=0, show_default=True, help="Demonstrations that vary nothing.")
@click.option(
    "--dataset", type=click.Path(path_type=Path), help="Take factors and demos from this labelled LeRobot dataset."
)
@click.option(
    "--episodes",
    type=click.Path(path_type=Path),
    help="Take factors and demos from this CSV with columns episode and factor.",
)
@click.option("--leave-out", is_flag=True, help="With --dataset: leave out episodes that have no usable label.")
@click.option(
    "--construction",
    type=click.Choice(CONSTRUCTIONS),
    help="Which policies to train. Default: group; one for two factors, which a group cannot distinguish.",
)
@click.option("--points", default=4, show_default=True, help="Policies per curve; not with screen.")
@click.option("--seeds", default=1, show_default=True, help="Training seeds per policy.")
@click.option("--name", help="Name of the study. Default: the folder's name.")
def init_command(
    folder: Path,
    factors: tuple[str, ...],
    nominal: int,
    dataset: Path | None,
    episodes: Path | None,
    leave_out: bool,
    construction: str | None,
    points: int,
    seeds: int,
    name: str | None,
) -> None:
    """Start a study in FOLDER: write a commented study.yaml, and create a record that later commands append to.

    Without --factor, --episodes and --dataset the file holds four example factors to replace. In that case, and with
    --dataset, the record is created on first use, so you can edit the file first.

    \b
    fsc init fold-towel --factor camera_pose=30 --factor lighting=30 --factor table_texture=20
    fsc init fold-towel --episodes demos.csv                     file names of your own, in any format
    fsc init fold-towel --dataset recordings/fold-towel          after `fsc label`
    """
    from factored_scaling.cli.episodes import listed_episodes
    from factored_scaling.cli.folder import DECLARED, RECORD, new_study
    from factored_scaling.io.files import check_plan_size
    from factored_scaling.io.text import write_text
    from factored_scaling.study import Study

    given = pairs(factors, "--factor") or {"camera_pose": 30, "distractor": 30, "table_texture": 30, "lighting": 30}
    index = None
    if dataset is not None or episodes is not None:
        if factors or nominal or (dataset is not None and episodes is not None):
            where, which = ("--dataset", "labels") if dataset is not None else ("--episodes", "rows")
            hint = "leave the others out" if dataset is not None and episodes is not None else "leave --factor out"
            raise InvalidInput(f"factors and demos come from its {which}", where=where, hint=hint)
        if dataset is not None:
            index = _labelled(dataset, leave_out)
        else:
            assert episodes is not None
            index = listed_episodes(episodes)
        varied = dict.fromkeys(episode.factor for episode in index.episodes if episode.factor is not None)
        given, nominal = {name: index.count(name) for name in varied}, index.count(None)
    given_points = click.get_current_context().get_parameter_source("points") is ParameterSource.COMMANDLINE
    if construction == "screen" and given_points:
        hint = "leave it out; `policies:` in study.yaml says how many to train"
        raise InvalidInput("construction screen has no curves", where="--points", hint=hint)
    construction = construction or ("one" if len(given) < 3 else "group")
    named = name or folder.resolve().name
    home = None if dataset is None else seen_from(folder, dataset)
    try:
        spec = StudySpec(given, nominal, construction, points=points, seeds=seeds, name=named, dataset=home)
    except InvalidInput as error:
        raise (error if episodes is None else error.at(str(episodes))) from None
    check_plan_size(spec)
    recorded = bool(factors) or episodes is not None
    with new_study(folder) as place:
        write_text(place / DECLARED, _yaml(spec))
        if recorded:
            Study.create(spec, place / RECORD, index).close()
    for file in (DECLARED, RECORD)[: 2 if recorded else 1]:
        say(f"wrote {folder / file}")
    edit = "choose `trainer:` and `scoring:` in it, then " if dataset else "" if recorded else "edit the factors, then "
    say(f"next: {edit}`fsc plan {quoted(folder)}`")


def _labelled(root: Path, leave_out: bool) -> Dataset:
    """The episodes that vary at most one factor; those that cannot be used are named."""
    from factored_scaling.data.lerobot.collection import labelled

    check = labelled(root)
    problems = check.problems()
    if problems and not leave_out:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        hint = f"`fsc label {quoted(root)}` says it all; --leave-out begins without them"
        raise InvalidInput(problems[0] + more, where=str(root), hint=hint)
    index = check.dataset()
    if not any(episode.factor for episode in index.episodes):
        hint = "label at least one factor's episodes with `fsc label`"
        raise InvalidInput("no episode is labelled with a factor", where=str(root), hint=hint)
    for problem in problems:
        say(f"left out: {problem}" if "twice there" not in problem else f"warning: {problem}", err=True)
    return index


def seen_from(folder: Path, dataset: Path) -> str:
    """A path for study.yaml: relative where it was given so, so that both folders can move together."""
    return str(dataset) if dataset.is_absolute() else os.path.relpath(dataset.resolve(), folder.resolve())


def _yaml(spec: StudySpec) -> str:
    width = max(len(name) for name in spec.names)
    lines = "".join(f"  {name + ':':<{width + 1}} {size}\n" for name, size in spec.sizes.items())
    dataset = "" if spec.dataset is None else f"dataset: {_quoted(spec.dataset)}  # seen from here\n"
    return TEMPLATE.format(
        name=_quoted(spec.name),
        dataset=dataset,
        factors=lines,
        settings=_settings(spec),
        more=OWN if spec.dataset is None else ROBOT,
    )


def _settings(spec: StudySpec) -> str:
    """What the chosen construction goes by, each with its meaning beside it."""
    which = "a curve per factor (one), two (pair) or disjoint group (group); no curves (screen)"
    lines = [(f"nominal: {spec.nominal}", "demonstrations that vary nothing")]
    lines += [(f"construction: {spec.construction}", which)]
    if spec.construction == "group":
        groups = ", ".join(f"[{', '.join(combination.factors)}]" for combination in spec.combinations())
        lines += [(f"groups: [{groups}]", "")]
    if spec.construction == "screen":
        lines += [(f"policies: {len(spec.names) + 1}", "to train per seed; one may stop after any, or raise it later")]
    else:
        lines += [(f"points: {spec.points}", "policies per curve, sizes equally spaced from 0 to all")]
    lines += [(f"seeds: {spec.seeds}", "training seeds per policy")]
    return "".join(f"{setting:<20}  # {meaning}\n" if meaning else f"{setting}\n" for setting, meaning in lines)


def _quoted(name: str) -> str:
    import yaml

    return yaml.safe_dump(name, allow_unicode=True).splitlines()[0]


def pairs(given: tuple[str, ...], option: str) -> dict[str, int]:
    """NAME=NUMBER, as often as the option was given."""
    found: dict[str, int] = {}
    for text in given:
        name, _, number = text.partition("=")
        if not re.fullmatch("[0-9]{1,12}", number):
            raise InvalidInput(f"expected NAME=DEMOS, not {shown(text)}", where=option, hint="such as camera_pose=30")
        if name in found:
            raise InvalidInput(f"factor {name!r} is given twice", where=option, hint="once per factor")
        found[name] = int(number)
    return found


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print the script that completes commands and options in SHELL.

    \b
    bash: eval "$(fsc completion bash)"        in ~/.bashrc
    zsh:  eval "$(fsc completion zsh)"         in ~/.zshrc
    fish: fsc completion fish | source         in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    from factored_scaling.cli.group import app

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(app, {}, "fsc", "_FSC_COMPLETE").source())
