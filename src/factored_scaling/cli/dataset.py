"""fsc dataset: look at LeRobot datasets, take episodes out of them, put them together"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from factored_scaling.cli.group import Group
from factored_scaling.cli.show import json_option, print_json, print_table, say
from factored_scaling.cli.target import Target
from factored_scaling.errors import InvalidInput, UnknownFactor

if TYPE_CHECKING:
    from factored_scaling.data.lerobot.dataset import LerobotDataset

out_option = click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="The folder of the new dataset; it must not exist."
)


@click.group("dataset", cls=Group)
def dataset_command() -> None:
    """LeRobot datasets, without LeRobot: look at them, take episodes out, put them together.

    \b
    fsc dataset show recordings/day-one
    fsc dataset select recordings/day-one --run my-study 3 --out run-3        what run 3 is trained on
    fsc dataset merge recordings/day-one recordings/day-two --out recordings/all
    """


@dataset_command.command("show")
@click.argument("dataset", type=click.Path(path_type=Path))
@json_option
def show_command(dataset: Path, as_json: bool) -> None:
    """What the dataset in the folder DATASET holds, from its metadata alone."""
    from factored_scaling.data.lerobot.dataset import LerobotDataset

    opened = LerobotDataset.open(dataset)
    frames = sum(entry.length for entry in opened.episodes)
    tasks = Counter(text for entry in opened.episodes for text in entry.tasks)
    if as_json:
        print_json(
            {
                "dataset": str(dataset),
                "version": opened.version,
                "fps": opened.fps,
                "episodes": len(opened),
                "frames": frames,
                "features": {name: feature.to_mapping() for name, feature in opened.features.items()},
                "tasks": dict(tasks),
            }
        )
        return
    minutes = frames / opened.fps / 60
    title = f"{dataset.resolve().name}: LeRobot {opened.version}, {len(opened)} episodes, {minutes:.1f} minutes"
    rows = [[name, f.dtype, " × ".join(map(str, f.shape))] for name, f in opened.features.items()]
    print_table(title, ("feature", "stored as", "shape"), rows)
    print_table("", ("task", "episodes"), [[text, str(count)] for text, count in tasks.most_common()])


@dataset_command.command("select")
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option("--episodes", metavar="NUMBERS", help="Numbers and ranges, such as 0-9,12.")
@click.option("--factor", "factors", multiple=True, help="Episodes with this label (or nominal); repeat for several.")
@click.option("--run", type=(str, str), metavar="STUDY RUN", help="The episodes that a run of a study is trained on.")
@out_option
def select_command(
    dataset: Path, episodes: str | None, factors: tuple[str, ...], run: tuple[str, str] | None, out: Path
) -> None:
    """Write some episodes of DATASET as a dataset of their own, with statistics of these episodes alone.

    Rows and pictures are copied, videos linked and not encoded again. Any trainer that reads LeRobot datasets can
    train on it. Labels come along.

    \b
    fsc dataset select recordings --episodes 0-9,12 --out ten
    fsc dataset select recordings --factor nominal --factor lighting --out lamps
    fsc dataset select recordings --run my-study 3 --out run-3
    """
    from factored_scaling.data.lerobot.dataset import LerobotDataset
    from factored_scaling.data.lerobot.select import select_episodes

    if (episodes is not None) + bool(factors) + (run is not None) != 1:
        raise InvalidInput("say which episodes", hint="one of --episodes, --factor and --run")
    opened = LerobotDataset.open(dataset)
    made = select_episodes(opened, _chosen(opened, episodes, factors, run), out)
    say(f"wrote {out} ({_size(made)})")


@dataset_command.command("merge")
@click.argument("datasets", nargs=-1, required=True, type=click.Path(path_type=Path))
@out_option
def merge_command(datasets: tuple[Path, ...], out: Path) -> None:
    """Put the episodes of several DATASETS together into one.

    They must have the same features. An episode that an earlier one has already is taken once. Videos are linked, not
    encoded again; labels come along.

    \b
    fsc dataset merge recordings/day-one recordings/day-two --out recordings/all
    """
    from factored_scaling.data.lerobot.dataset import LerobotDataset
    from factored_scaling.data.lerobot.select import merge_datasets

    made, left_out = merge_datasets([LerobotDataset.open(path) for path in datasets], out)
    again = f"; {left_out} of a later dataset were there already" if left_out else ""
    say(f"wrote {out} ({_size(made)}{again})")


def _chosen(
    dataset: LerobotDataset, episodes: str | None, factors: tuple[str, ...], run: tuple[str, str] | None
) -> list[int]:
    from factored_scaling.data.lerobot.identity import episode_ids, indices_of
    from factored_scaling.data.lerobot.labels import check_labels, read_labels
    from factored_scaling.data.lerobot.rules import numbers_in

    if episodes is not None:
        return numbers_in(episodes, "--episodes")
    if run is not None:
        with Target.parse(run[0]).study() as study:
            return indices_of(dataset, study.find_run(run[1]).spec.episodes)
    check = check_labels(episode_ids(dataset), read_labels(dataset.root))
    for name in factors:
        if name not in check.counts:
            raise UnknownFactor(name, check.counts, where="--factor")
    return [index for index, label in check.labels.items() if label.text in factors]


def _size(dataset: LerobotDataset) -> str:
    frames = sum(entry.length for entry in dataset.episodes)
    return f"{len(dataset)} episodes, {frames} frames"
