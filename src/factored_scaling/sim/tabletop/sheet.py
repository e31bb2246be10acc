"""Pictures for people: a contact sheet of every factor and its values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from factored_scaling.io.atomic import whole
from factored_scaling.sim import drawing
from factored_scaling.sim.contact import TRAINING, Picture, annotated, line
from factored_scaling.sim.tabletop import factors
from factored_scaling.sim.tabletop.scene import Scene, SceneBatch
from factored_scaling.sim.tabletop.task import TabletopTask

TILE = 80
# A seed under which nothing on the table hides anything else.
ARRANGEMENT = 46
# The lowest bits of every channel, which nobody sees and which take most of a PNG's bytes.
SHADES = np.uint8(0b111)


def contact_sheet(task: TabletopTask, path: Path | str, wanted: Sequence[str] | None = None) -> None:
    """Draw every factor as a row: four training values (of a continuous factor: four draws), ten held-out settings.

    A row keeps one arrangement of the table, so that only the factor changes along it. All factors are shown between
    rows of nominal scenes, one per camera, unless some are `wanted`.
    """
    large = TabletopTask(task.rules, TILE)
    for factor in wanted or ():
        drawing.known_factor(factor, task.factors, task.name)
    labels = list(wanted or task.factors)
    rows = [_row(large, _factor_scenes(large, factor), 0) for factor in labels]
    if wanted is None:
        first, *others = (_row(large, _nominal_scenes(large), camera) for camera in range(task.cameras))
        rows = [first, *rows, *others]
        labels = ["nominal", *labels, *("nominal,\nwrist camera" for _ in others)]
    _save(annotated(f"{task.name}: what each factor changes", rows, labels, top=44), path)


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
    return line(list(task.frames(SceneBatch.stack(scenes, "cpu"))[:, camera].permute(0, 2, 3, 1).numpy()))


def _save(picture: Image.Image, path: Path | str) -> None:
    """In shades coarse enough to keep the file small."""
    with whole(Path(path)) as partial:
        Image.fromarray(np.asarray(picture) | SHADES).save(partial, format="PNG", optimize=True)
