"""fsc label: which factor each episode of a LeRobot dataset varies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from factored_scaling.cli.output import OutputFile
from factored_scaling.cli.show import json_option, print_json, print_table, say
from factored_scaling.errors import InvalidInput, printable

if TYPE_CHECKING:
    from factored_scaling.data.lerobot.dataset import LerobotDataset
    from factored_scaling.data.lerobot.labels import Check
    from factored_scaling.data.lerobot.rules import Assignment

ASKED = "FACTOR, FACTOR = VALUE, nominal; xN after it for N episodes at once; s to skip, q to stop"


@click.command("label")
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option(
    "--rule",
    "rules",
    multiple=True,
    metavar="'EPISODES: FACTOR'",
    help="Label many episodes at once, as described above.",
)
@click.option(
    "--csv",
    "table",
    type=click.Path(path_type=Path),
    help="CSV with columns episode (or id), factor, optionally value.",
)
@click.option(
    "--from", "others", multiple=True, type=click.Path(path_type=Path), help="Copy labels from another dataset."
)
@click.option("--ask", is_flag=True, help="Ask for every episode that has no label yet.")
@click.option("--replace", is_flag=True, help="Overwrite existing labels.")
@click.option("--sheet", type=OutputFile(), help="Write the first frames to a .html or .png file.")
@click.option("--camera", help="The camera that the sheet shows. Default: the first.")
@click.option("--repair", is_flag=True, help="Update episode numbers; remove labels of missing episodes.")
@click.option(
    "--check", "only_check", is_flag=True, help="Change nothing; exit with code 1 if a label is missing or wrong."
)
@json_option
def label_command(
    dataset: Path,
    rules: tuple[str, ...],
    table: Path | None,
    others: tuple[Path, ...],
    ask: bool,
    replace: bool,
    sheet: Path | None,
    camera: str | None,
    repair: bool,
    only_check: bool,
    as_json: bool,
) -> None:
    """Label which factor each episode of the LeRobot dataset in the folder DATASET varies, and check the labels.

    Labels are stored in meta/fsc_episodes.parquet. They follow an episode's content, so they survive when
    LeRobot renumbers, splits or merges (--from copies them). EPISODES in a rule are numbers (0-29, 40), all, rest
    (whatever has no label yet), or a condition on a column of meta/episodes, where ~ is a regular expression.

    \b
    fsc label my-dataset                                              what is labelled, what is not
    fsc label my-dataset --rule '0-9: nominal' --rule 'task ~ "lamp": lighting'
    fsc label my-dataset --csv labels.csv                             episode,factor,value
    fsc label my-dataset --sheet sheet.html --ask                     look, and answer one by one
    fsc label merged --from my-dataset --from day-two
    fsc label my-dataset --check
    """
    from factored_scaling.data.lerobot.dataset import LerobotDataset
    from factored_scaling.data.lerobot.identity import episode_ids
    from factored_scaling.data.lerobot.labels import check_labels, read_labels, write_labels
    from factored_scaling.data.lerobot.rules import merged
    from factored_scaling.data.lerobot.sheet import sheet_of
    from factored_scaling.io.atomic import write_whole

    if only_check and (rules or table or others or ask or repair):
        raise InvalidInput("--check changes nothing", where="--check", hint="label first, then check")
    opened = LerobotDataset.open(dataset)
    ids = episode_ids(opened)
    check = check_labels(ids, read_labels(opened.root))
    assignments = _assignments(opened, check, rules, table, others)
    labels = None
    if assignments or repair:
        gone = {label.id for label in check.gone} if repair else set()
        labels = [label for label in merged(check, assignments, replace) if label.id not in gone]
        check = check_labels(ids, {label.id: label for label in labels})
    drawn = None if sheet is None else sheet_of(opened, check, sheet, camera)
    if labels is not None:  # not before a sheet that cannot be drawn is refused
        write_labels(opened.root, labels)
    if sheet is not None and drawn is not None:
        write_whole(sheet, drawn)
        say(f"wrote {sheet}", err=as_json)
    if ask:
        check = _ask(opened, check)
    print_json(_entry(opened, check)) if as_json else _print(opened, check)
    if only_check and check.problems():
        sys.exit(1)


def _assignments(
    dataset: LerobotDataset, check: Check, rules: tuple[str, ...], table: Path | None, others: tuple[Path, ...]
) -> dict[int, Assignment]:
    from factored_scaling.data.lerobot.labels import read_labels
    from factored_scaling.data.lerobot.rules import by_labels, by_rules, by_table
    from factored_scaling.io.text import read_text

    assignments: dict[int, Assignment] = {}
    for other in others:
        known = read_labels(other)
        if not known:
            raise InvalidInput("has no labels", where=f"--from {other}", hint="give a labelled dataset's folder")
        assignments |= by_labels(known, check, f"--from {other}")
    if table is not None:
        assignments |= by_table(dataset, read_text(table), str(table), check)
    return assignments | by_rules(dataset, rules, check)


def _ask(dataset: LerobotDataset, check: Check) -> Check:
    """Go through the episodes without a label; every answer is saved immediately."""
    from factored_scaling.data.lerobot.labels import check_labels, read_labels, write_labels
    from factored_scaling.data.lerobot.rules import merged

    if not check.unlabelled:
        say("every episode has a label")
        return check
    say(f"{ASKED}\n")
    waiting = list(check.unlabelled)
    while waiting:
        entry = dataset.entry(waiting[0])
        about = f"episode {entry.index} ({', '.join(entry.tasks)}, {entry.length / dataset.fps:.1f} s)"
        try:
            answer = click.prompt(printable(about), default="", show_default=False).strip()
        except click.Abort:  # end of input
            say()
            break
        if answer == "q":
            break
        if answer in ("", "s"):
            waiting.pop(0)
            continue
        try:
            assignments = _from_answer(answer, waiting)
        except InvalidInput as error:
            say(f"  {error}")
            continue
        write_labels(dataset.root, merged(check, assignments, replace=False))
        check = check_labels(check.ids, read_labels(dataset.root))
        waiting = [index for index in waiting if index not in assignments]
    return check


def _from_answer(answer: str, waiting: list[int]) -> dict[int, Assignment]:
    import re

    from factored_scaling.data.lerobot.rules import Assignment, factor_names

    words, count = answer, 1
    if (match := re.fullmatch(r"(.+?)\s+x\s*(\d+)", answer)) is not None:
        words, count = match[1], int(match[2])
    names, _, value = words.partition("=")
    factors = factor_names(names.strip(), "")
    return {index: Assignment(factors, value.strip(), "your answer") for index in waiting[:count]}


def _entry(dataset: LerobotDataset, check: Check) -> dict[str, object]:
    return {
        "dataset": str(dataset.root),
        "episodes": len(dataset),
        "counts": check.counts,
        "labels": [
            {"episode": index, "id": label.id, "factor": label.text, "value": label.value}
            for index, label in sorted(check.labels.items())
        ],
        "unlabelled": list(check.unlabelled),
        "doubly_varied": list(check.doubly_varied),
        "renumbered": [{"was": was, "is": now} for was, now in check.renumbered],
        "gone": [{"was": label.index, "id": label.id, "factor": label.text} for label in check.gone],
        "twins": [list(twins) for twins in check.twins],
    }


def _print(dataset: LerobotDataset, check: Check) -> None:
    from factored_scaling.data.lerobot.labels import drawn_together

    members: dict[str, list[int]] = {name: [] for name in check.counts}
    for index, label in check.labels.items():
        members[label.text].append(index)
    rows = [[name, str(len(found)), drawn_together(found)] for name, found in members.items()]
    if check.unlabelled:
        rows.append(["(unlabelled)", str(len(check.unlabelled)), drawn_together(check.unlabelled)])
    title = f"{dataset.root.resolve().name}: {len(dataset)} episodes, LeRobot {dataset.version}"
    print_table(title, ("factor", "demos", "episodes"), rows)
    for sentence in [*check.problems(), *check.remarks()]:
        say(f"• {sentence}")
    if check.renumbered or check.gone:
        say("  labels follow the content, so they still hold; --repair writes today's numbers")
    tasks = {text for index in check.unlabelled for text in dataset.entry(index).tasks}
    if tasks:
        shown = sorted(tasks)[:8]
        more = f" and {len(tasks) - len(shown)} more" if len(tasks) > len(shown) else ""
        say(f"  tasks among the unlabelled: {'; '.join(shown)}{more}")
