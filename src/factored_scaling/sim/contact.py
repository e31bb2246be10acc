"""A contact sheet of a simulated task: every factor as a row of training values and held-out settings."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from factored_scaling.io.atomic import whole
from factored_scaling.sim.drawing import EXAMPLES, known_factor

TILE, GAP = 96, 4  # pixels of a tile's side and between tiles
COLOURS = 256  # in the file, a third of its bytes
_LEFT, _TOP, _DOTS, _WHITE = 104, 46, 100, 255
Picture = NDArray[np.uint8]


@runtime_checkable
class Illustrated(Protocol):
    """A task with example images of its factors."""

    name: str
    factors: tuple[str, ...]
    cameras: int

    def examples(self, factor: str | None) -> Picture:
        """Initial images of four training values of a factor and its held-out settings, or of as many nominal scenes.

        Shape: scenes × cameras × 3 × height × width.
        """
        ...


def contact_sheet(task: Illustrated, path: Path | str, wanted: Sequence[str] | None = None) -> None:
    """Draw every factor, or those `wanted`, as a row below rows of nominal scenes, one per camera."""
    rows: list[tuple[str | None, int]] = [(known_factor(f, task.factors, task.name), 0) for f in wanted or task.factors]
    if wanted is None:
        rows = [*((None, camera) for camera in range(task.cameras)), *rows]
    lines = [
        _row([_fit(image) for image in task.examples(factor)[:, camera].transpose(0, 2, 3, 1)])
        for factor, camera in rows
    ]
    labels = [
        factor.replace("_", " ") if factor else "nominal, wrist" if camera else "nominal" for factor, camera in rows
    ]
    picture = _annotated(f"{task.name}: what each factor changes", lines, labels)
    with whole(Path(path)) as partial:
        few = picture.quantize(COLOURS, kmeans=3, dither=Image.Dither.NONE)
        few.save(partial, format="PNG", optimize=True)


def _fit(image: Picture) -> Picture:
    return np.asarray(Image.fromarray(image).resize((TILE, TILE), Image.Resampling.BOX))


def _side_by_side(tiles: Sequence[Picture], gap: int = GAP) -> Picture:
    """Pictures of one height in a row."""
    space = np.full((tiles[0].shape[0], gap, 3), _WHITE, np.uint8)
    return np.concatenate([piece for tile in tiles for piece in (tile, space)][:-1], axis=1)


def _row(tiles: Sequence[Picture]) -> Picture:
    """The training values, a gap, and the held-out settings."""
    return _side_by_side([_side_by_side(tiles[:EXAMPLES]), _side_by_side(tiles[EXAMPLES:])], 2 * GAP)


def _annotated(title: str, lines: Sequence[Picture], labels: Sequence[str]) -> Image.Image:
    """The rows with labels, below a title and column headings."""
    width = lines[0].shape[1]
    space = np.full((GAP, width, 3), _WHITE, np.uint8)
    picture = np.concatenate([piece for row in lines for piece in (row, space)][:-1], axis=0)
    size = (width + _LEFT + GAP, len(picture) + _TOP + GAP)
    with matplotlib.rc_context({"font.size": 8}):
        figure = Figure(figsize=(size[0] / _DOTS, size[1] / _DOTS), dpi=_DOTS)
        figure.figimage(picture, xo=_LEFT, yo=GAP, origin="upper")

        def write(text: str, x: float, y: float, **style: Any) -> None:
            figure.text(x / size[0], 1 - y / size[1], text, va="center", **style)

        write(title, _LEFT, 11, fontsize=10, weight="bold")
        write("seen in training", _LEFT, _TOP - 12, color="tab:blue")
        write("held out for evaluation", _LEFT + EXAMPLES * (TILE + GAP) + GAP, _TOP - 12, color="tab:red")
        for index, label in enumerate(labels):
            write(label, _LEFT - 6, _TOP + index * (TILE + GAP) + TILE / 2, ha="right")
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
    return Image.open(buffer).convert("RGB")
