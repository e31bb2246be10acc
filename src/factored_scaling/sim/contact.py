"""What the simulators' contact sheets share: tiles side by side, rows below each other, and their labels."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

GAP, TRAINING = 4, 4  # pixels between tiles; training values in a row, before the held-out settings
_LEFT, _DOTS, _WHITE = 104, 100, 255
Picture = NDArray[np.uint8]


def side_by_side(tiles: Sequence[Picture], gap: int = GAP) -> Picture:
    """Pictures of one height in a row."""
    space = np.full((tiles[0].shape[0], gap, 3), _WHITE, np.uint8)
    return np.concatenate([piece for tile in tiles for piece in (tile, space)][:-1], axis=1)


def line(tiles: Sequence[Picture]) -> Picture:
    """A row of the sheet: the training values, then, a little apart, the held-out settings."""
    return side_by_side([side_by_side(tiles[:TRAINING]), side_by_side(tiles[TRAINING:])], 2 * GAP)


def annotated(title: str, lines: Sequence[Picture], labels: Sequence[str], top: int) -> Image.Image:
    """The rows with a label before each and `top` pixels for the title and what the columns are."""
    tile, width = lines[0].shape[:2]
    space = np.full((GAP, width, 3), _WHITE, np.uint8)
    picture = np.concatenate([piece for row in lines for piece in (row, space)][:-1], axis=0)
    whole = (width + _LEFT + GAP, len(picture) + top + GAP)
    with matplotlib.rc_context({"font.size": 8}):
        figure = Figure(figsize=(whole[0] / _DOTS, whole[1] / _DOTS), dpi=_DOTS)
        figure.figimage(picture, xo=_LEFT, yo=GAP, origin="upper")

        def write(text: str, x: float, y: float, **style: Any) -> None:
            figure.text(x / whole[0], 1 - y / whole[1], text, va="center", **style)

        write(title, _LEFT, 11, fontsize=10, weight="bold")
        write("seen in training", _LEFT, top - 12, color="tab:blue")
        write("held out for evaluation", _LEFT + TRAINING * (tile + GAP) + GAP, top - 12, color="tab:red")
        for index, label in enumerate(labels):
            write(label, _LEFT - 6, top + index * (tile + GAP) + tile / 2, ha="right")
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
    return Image.open(buffer).convert("RGB")
