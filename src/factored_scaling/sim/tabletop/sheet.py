"""Pictures for people: a contact sheet of every factor and its values, and a demonstration as a strip of frames."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from factored_scaling.sim import drawing
from factored_scaling.sim.tabletop import factors
from factored_scaling.sim.tabletop.scene import Scene, SceneBatch
from factored_scaling.sim.tabletop.task import TabletopTask
from factored_scaling.sim.task import DemoRequest

TILE, GAP, TRAINING = 80, 4, 4
# A seed under which nothing on the table hides anything else.
ARRANGEMENT = 46
WHITE = 255
# The lowest bits of every channel, which nobody sees and which take most of a PNG's bytes.
SHADES = np.uint8(0b111)
Picture = NDArray[np.uint8]


def contact_sheet(task: TabletopTask, path: Path | str) -> None:
    """Draw every factor as a row: four training values (of a continuous factor: four draws), ten held-out settings.

    A row keeps one arrangement of the table, so that only the factor changes along it.
    """
    large = TabletopTask(task.rules, TILE)
    labels = ["nominal", *task.factors]
    rows = [_row(large, _nominal_scenes(large), 0)]
    rows += [_row(large, _factor_scenes(large, factor), 0) for factor in task.factors]
    for camera in range(1, task.cameras):
        labels.append("nominal,\nwrist camera")
        rows.append(_row(large, _nominal_scenes(large), camera))
    _save(rows, labels, f"{task.name}: what each factor changes", path)


def episode_strip(task: TabletopTask, request: DemoRequest, path: Path | str, every: int = 3) -> None:
    """Draw one demonstration, every third frame of it, a row per camera."""
    table = TabletopTask(task.rules, TILE).demonstrate([request])
    frames = table.images[::every].transpose(1, 0, 3, 4, 2)
    rows = [_join(list(camera)) for camera in frames]
    labels = ["third person", "wrist"][: task.cameras]
    _save(rows, labels, f"{task.name}: a demonstration ({request.factor or 'nominal'})", path, heads=False)


def _nominal_scenes(task: TabletopTask) -> list[Scene]:
    count = TRAINING + drawing.SETTINGS
    return [factors.compose(task.rules, None, None, np.random.default_rng(seed)) for seed in range(count)]


def _factor_scenes(task: TabletopTask, factor: str) -> list[Scene]:
    values: Sequence[factors.Value]
    if factor in factors.DISCRETE:
        values = factors.DISCRETE[factor][0]
    else:
        rng = np.random.default_rng(1)
        values = [factors.training_value(factor, rng) for _ in range(TRAINING)]
    everything = [*values, *factors.held_out(factor)]
    return [factors.compose(task.rules, factor, value, np.random.default_rng(ARRANGEMENT)) for value in everything]


def _row(task: TabletopTask, scenes: list[Scene], camera: int) -> Picture:
    images = task.frames(SceneBatch.stack(scenes, "cpu"))[:, camera].permute(0, 2, 3, 1).numpy()
    apart = np.full((TILE, 2 * GAP, 3), WHITE, np.uint8)
    return np.concatenate([_join(list(images[:TRAINING])), apart, _join(list(images[TRAINING:]))], axis=1)


def _join(tiles: list[Picture]) -> Picture:
    space = np.full((TILE, GAP, 3), WHITE, np.uint8)
    return np.concatenate([piece for tile in tiles for piece in (tile, space)][:-1], axis=1)


def _save(rows: list[Picture], labels: list[str], title: str, path: Path | str, heads: bool = True) -> None:
    """Rows of tiles below each other with their labels, in shades coarse enough to keep the file small."""
    space = np.full((GAP, rows[0].shape[1], 3), WHITE, np.uint8)
    picture = np.concatenate([piece for row in rows for piece in (row, space)][:-1], axis=0)
    height, width = picture.shape[:2]
    left, top, dots = 104, 44 if heads else 26, 100
    with matplotlib.rc_context({"font.size": 8}):
        figure = Figure(figsize=((width + left + GAP) / dots, (height + top + GAP) / dots), dpi=dots)
        figure.figimage(picture, xo=left, yo=GAP, origin="upper")

        def write(text: str, x: float, y: float, **style: Any) -> None:
            figure.text(x / (width + left + GAP), 1 - y / (height + top + GAP), text, va="center", **style)

        write(title, left, 11, fontsize=10, weight="bold")
        if heads:
            training = TRAINING * (TILE + GAP)
            write("seen in training", left, 32, color="tab:blue")
            write("held out for evaluation", left + training + GAP, 32, color="tab:red")
        for index, label in enumerate(labels):
            write(label, left - 6, top + index * (TILE + GAP) + TILE / 2, ha="right")
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
    pixels = np.asarray(Image.open(buffer).convert("RGB"))
    Image.fromarray(pixels | SHADES).save(path, format="PNG", optimize=True)
