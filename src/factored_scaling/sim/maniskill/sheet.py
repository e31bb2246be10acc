"""Pictures for people: a contact sheet of factors and their values."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from factored_scaling.errors import UnknownFactor
from factored_scaling.sim import drawing
from factored_scaling.sim.maniskill import factors
from factored_scaling.sim.maniskill.scene import Scene
from factored_scaling.sim.maniskill.task import ManiSkillTask, make_task

TILE, GAP, TRAINING = 96, 4, 4
COLOURS = 256  # in the file: enough for the eye, and a third of the bytes
WHITE = 255
Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class Row:
    """A row of the sheet: pictures (height × width × 3) of training values and of held-out settings."""

    label: str
    training: Sequence[Picture]
    held_out: Sequence[Picture]


def gallery(task: ManiSkillTask, wanted: Sequence[str] | None = None) -> list[Row]:
    """A row per factor: four training values (of a continuous factor: four draws), then the ten held-out settings.

    A row keeps one arrangement of the table, so that only the factor changes along it. All factors are shown after
    rows of nominal scenes, one per camera, unless some are `wanted`.
    """
    for factor in wanted or ():
        if factor not in task.factors:
            raise UnknownFactor(factor, task.factors, where=task.name)
    count = TRAINING + drawing.SETTINGS
    rows: list[tuple[str, int, list[Scene]]] = []
    if wanted is None:
        nominal = [factors.make_scene(task.rules, None, None, ("sheet", seed)) for seed in range(count)]
        rows += [("nominal" if camera == 0 else "nominal, wrist", camera, nominal) for camera in range(task.cameras)]
    rows += [(factor, 0, _scenes(task, factor)) for factor in (task.factors if wanted is None else wanted)]
    images = task.preview([scene for _, _, scenes in rows for scene in scenes])
    pictures = images.transpose(0, 1, 3, 4, 2).reshape(len(rows), count, task.cameras, *images.shape[3:], 3)
    return [
        Row(label, list(pictures[i, :TRAINING, camera]), list(pictures[i, TRAINING:, camera]))
        for i, (label, camera, _) in enumerate(rows)
    ]


def contact_sheet(name: str, path: Path | str, wanted: Sequence[str] | None = None) -> None:
    """Draw the setting's factors, or the wanted ones, into a PNG file."""
    task = make_task(name, 2 * TILE)
    try:
        draw(f"{name}: what each factor changes", gallery(task, wanted), path)
    finally:
        task.close()


def draw(title: str, rows: Sequence[Row], path: Path | str) -> None:
    """Rows of pictures below each other with their labels, in few colours so that the file stays small."""
    from PIL import Image

    picture = _stack([_line(row) for row in rows])
    height, width = picture.shape[:2]
    left, top, dots = 104, 46, 100
    with matplotlib.rc_context({"font.size": 8}):
        figure = Figure(figsize=((width + left + GAP) / dots, (height + top + GAP) / dots), dpi=dots)
        figure.figimage(picture, xo=left, yo=GAP, origin="upper")

        def write(text: str, x: float, y: float, **style: Any) -> None:
            figure.text(x / (width + left + GAP), 1 - y / (height + top + GAP), text, va="center", **style)

        write(title, left, 11, fontsize=10, weight="bold")
        write("seen in training", left, 34, color="tab:blue")
        write("held out for evaluation", left + TRAINING * (TILE + GAP) + 2 * GAP, 34, color="tab:red")
        for index, row in enumerate(rows):
            write(row.label.replace("_", " "), left - 6, top + index * (TILE + GAP) + TILE / 2, ha="right")
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
    small = Image.open(buffer).convert("RGB").quantize(COLOURS, kmeans=3, dither=Image.Dither.NONE)
    small.save(path, format="PNG", optimize=True)


def _scenes(task: ManiSkillTask, factor: str) -> list[Scene]:
    values: Sequence[factors.Value]
    if factor in factors.DISCRETE:
        values = factors.DISCRETE[factor][0]
    else:
        rng = np.random.default_rng(1)
        values = [factors.training_value(factor, rng) for _ in range(TRAINING)]
    # One key for the row: what a value does not set is the same in all its scenes.
    return [
        factors.make_scene(task.rules, factor, value, ("sheet", 0)) for value in (*values, *factors.held_out(factor))
    ]


def _line(row: Row) -> Picture:
    apart = np.full((TILE, 2 * GAP, 3), WHITE, np.uint8)
    return np.concatenate([_join(row.training), apart, _join(row.held_out)], axis=1)


def _join(pictures: Sequence[Picture]) -> Picture:
    space = np.full((TILE, GAP, 3), WHITE, np.uint8)
    return np.concatenate([piece for picture in pictures for piece in (_fit(picture), space)], axis=1)


def _stack(lines: Sequence[Picture]) -> Picture:
    space = np.full((GAP, lines[0].shape[1], 3), WHITE, np.uint8)
    return np.concatenate([piece for line in lines for piece in (line, space)][:-1], axis=0)


def _fit(picture: Picture) -> Picture:
    from PIL import Image

    return np.asarray(Image.fromarray(picture).resize((TILE, TILE), Image.Resampling.BOX))
