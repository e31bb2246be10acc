"""fsc sim: what the simulators' tasks look like"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from factored_scaling.cli.group import Group
from factored_scaling.cli.output import OutputFile
from factored_scaling.cli.show import json_option, print_json, print_table, say
from factored_scaling.errors import InvalidInput, UnknownFactor

if TYPE_CHECKING:
    from factored_scaling.sim.task import Condition, Task
    from factored_scaling.sim.video import Clip


@click.group("sim", cls=Group)
def sim_command() -> None:
    """See the simulators' tasks: what each factor means, how the expert does it, how a policy fails.

    \b
    fsc sim list
    fsc sim show maniskill/pull-visual --factor camera_pose --out camera.png
    fsc sim video tabletop/insert --factor lighting --out demo.mp4
    fsc sim video tabletop/insert --policy my-study/runs/0f3a… --failures --out failures.mp4
    """


@sim_command.command("list")
@json_option
def list_command(as_json: bool) -> None:
    """The tasks and their factors."""
    from factored_scaling.sim.maniskill.rules import SETTINGS
    from factored_scaling.sim.tabletop.rules import TASKS

    known = {name: (rules.cameras, rules.factors) for name, rules in TASKS.items()}
    known |= {name: (rules.cameras, rules.factors) for name, rules in SETTINGS.items()}
    if as_json:
        print_json([{"task": name, "cameras": cameras, "factors": list(f)} for name, (cameras, f) in known.items()])
        return
    rows = [(name, str(cameras), " ".join(factors)) for name, (cameras, factors) in known.items()]
    print_table("", ("task", "cameras", "factors"), rows)


@sim_command.command("show")
@click.argument("task")
@click.option("--factor", "factors", multiple=True, help="Only this factor; repeat for several.")
@click.option("--out", type=OutputFile(), required=True, help="The PNG file to write.")
def show_command(task: str, factors: Sequence[str], out: Path) -> None:
    """A contact sheet: every factor's training values and held-out settings, side by side."""
    _check_name(out, ".png")
    from factored_scaling.sim import load_task
    from factored_scaling.sim.contact import TILE, Illustrated, contact_sheet

    loaded = load_task(task, 2 * TILE)
    if not isinstance(loaded, Illustrated):
        raise InvalidInput(f"{task} has no examples to draw", hint="`Illustrated` in sim/contact.py says what it needs")
    contact_sheet(loaded, out, factors or None)
    say(f"wrote {out}")


@sim_command.command("video")
@click.argument("task")
@click.option("--factor", help="The factor that varies; none for nominal demonstrations, all for a policy.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The first demonstration.")
@click.option("--count", type=click.IntRange(min=1), default=1, show_default=True, help="How many episodes.")
@click.option("--policy", type=click.Path(path_type=Path, file_okay=False), help="A run's folder: its policy acts.")
@click.option("--failures", is_flag=True, help="With --policy: only trials that fail.")
@click.option("--device", default="cpu", show_default=True, help="Where the policy runs.")
@click.option(
    "--out", type=OutputFile(), required=True, help="FILE.mp4, or FILE.png for eight moments of each episode."
)
def video_command(
    task: str, factor: str | None, seed: int, count: int, policy: Path | None, failures: bool, device: str, out: Path
) -> None:
    """A video or a picture of the expert's demonstrations, or of a policy under held-out conditions."""
    from factored_scaling.sim import load_task
    from factored_scaling.sim.video import demonstration, write_still, write_video

    _check_name(out, ".mp4", ".png")
    if failures and policy is None:
        raise InvalidInput("there is no policy that could fail", where="--failures", hint="give --policy RUNFOLDER")
    if policy is None:
        made = load_task(task)
        _check_factor(made, factor)
        clips: Iterator[Clip] = (demonstration(made, factor, seed + index) for index in range(count))
    else:
        clips = _policy_clips(task, factor, policy, count, failures, device)
    write = write_video if out.suffix.lower() == ".mp4" else write_still
    say(f"wrote {out} ({write(clips, out)} frames)")


def _policy_clips(
    name: str, factor: str | None, folder: Path, count: int, failures: bool, device: str
) -> Iterator[Clip]:
    """Trials of the policy until there are enough, in the order of the evaluation and as many of each factor."""
    from factored_scaling.policies.capacity import check_device
    from factored_scaling.policies.diffusion import load_policy
    from factored_scaling.sim import load_task
    from factored_scaling.sim.video import rollouts

    check_device(device)
    loaded = load_policy(folder, device)
    task = load_task(name, loaded.shape[1])
    _check_factor(task, factor)
    shown: Counter[str] = Counter()
    most = count if factor else -(-count // len(task.factors))  # of each factor
    for start, conditions in enumerate(_in_parts(_conditions(task, factor), min(8, count + 1))):
        wanted = [condition for condition in conditions if shown[condition.factor or ""] < most]
        if not wanted:
            continue
        clips = rollouts(task, loaded.actor(start), wanted, loaded.config.execute, device)
        for condition, clip in zip(wanted, clips, strict=True):
            name = condition.factor or ""
            if shown.total() < count and shown[name] < most and not (failures and clip.score >= 1):
                shown[name] += 1
                yield clip
        if shown.total() == count:
            return


def _conditions(task: Task, factor: str | None) -> list[Condition]:
    from factored_scaling.sim import Condition

    chosen = task.factors if factor is None else (factor,)
    return [
        Condition(name, setting, initial)
        for initial in range(6)
        for setting in range(task.settings_per_factor)
        for name in chosen
    ]


def _in_parts(conditions: list[Condition], size: int) -> Iterator[list[Condition]]:
    for start in range(0, len(conditions), size):
        yield conditions[start : start + size]


def _check_factor(task: Task, factor: str | None) -> None:
    if factor is not None and factor not in task.factors:
        raise UnknownFactor(factor, task.factors, where=task.name)


def _check_name(out: Path, *endings: str) -> None:
    if out.suffix.lower() not in endings:
        raise InvalidInput(f"must end in {' or '.join(endings)}", where=f"--out {out}")
    if not out.parent.is_dir():
        raise InvalidInput("its folder does not exist", where=f"--out {out}")
