"""Pictures for people: a contact sheet of factors and their values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from factored_scaling.io.atomic import whole
from factored_scaling.sim import drawing
from factored_scaling.sim.contact import TRAINING, Picture, annotated, line
from factored_scaling.sim.maniskill import factors
from factored_scaling.sim.maniskill.scene import Scene
from factored_scaling.sim.maniskill.task import ManiSkillTask, make_task

TILE = 96
COLOURS = 256  # in the file: enough for the eye, and a third of the bytes


def contact_sheet(name: str, path: Path | str, wanted: Sequence[str] | None = None) -> None:
    """Draw every factor as a row: four training values (of a continuous factor: four draws), ten held-out settings.

    A row keeps one arrangement of the table, so that only the factor changes along it. All factors are shown after
    rows of nominal scenes, one per camera, unless some are `wanted`.
    """
    task = make_task(name, 2 * TILE)
    try:
        rows = _rows(task, wanted)
        images = task.preview([scene for _, _, scenes in rows for scene in scenes]).transpose(0, 1, 3, 4, 2)
    finally:
        task.close()
    pictures = images.reshape(len(rows), -1, *images.shape[1:])
    lines = [line([_fit(one) for one in pictures[place, :, camera]]) for place, (_, camera, _) in enumerate(rows)]
    labels = [label.replace("_", " ") for label, _, _ in rows]
    _save(annotated(f"{name}: what each factor changes", lines, labels, top=46), path)


def _rows(task: ManiSkillTask, wanted: Sequence[str] | None) -> list[tuple[str, int, list[Scene]]]:
    """Each row's label, camera and scenes."""
    for factor in wanted or ():
        drawing.known_factor(factor, task.factors, task.name)
    rows: list[tuple[str, int, list[Scene]]] = []
    if wanted is None:
        count = TRAINING + drawing.SETTINGS
        nominal = [factors.make_scene(task.rules, None, None, ("sheet", seed)) for seed in range(count)]
        rows += [("nominal" if camera == 0 else "nominal, wrist", camera, nominal) for camera in range(task.cameras)]
    return rows + [(factor, 0, _scenes(task, factor)) for factor in wanted or task.factors]


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


def _fit(picture: Picture) -> Picture:
    return np.asarray(Image.fromarray(picture).resize((TILE, TILE), Image.Resampling.BOX))


def _save(picture: Image.Image, path: Path | str) -> None:
    """In few colours, so that the file stays small."""
    with whole(Path(path)) as partial:
        picture.quantize(COLOURS, kmeans=3, dither=Image.Dither.NONE).save(partial, format="PNG", optimize=True)
