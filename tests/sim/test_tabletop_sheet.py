"""The pictures for people come out, small enough for the documentation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from factored_scaling.errors import UnknownFactor
from factored_scaling.sim.contact import TILE, contact_sheet
from factored_scaling.sim.tabletop import make_task


def _pixels(path: Path) -> NDArray[np.uint8]:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rows"), [("tabletop/pick-place", 6), ("tabletop/insert", 10), ("tabletop/push", 6)])
def test_the_contact_sheet_has_a_row_per_factor(tmp_path: Path, name: str, rows: int) -> None:
    path = tmp_path / "sheet.png"
    contact_sheet(make_task(name, None), path)
    assert path.stat().st_size < 300_000
    pixels = _pixels(path)
    assert rows * TILE < pixels.shape[0] < (rows + 1) * (TILE + 4) + TILE
    # Down a line through the last tiles, right of all words: white between the tiles, never white for long in them.
    inside = (pixels[:, -20] < 250).any(axis=1)
    assert (np.diff(inside.astype(int)) == 1).sum() == rows


def test_wanted_factors_alone_are_shown(tmp_path: Path) -> None:
    path, task = tmp_path / "sheet.png", make_task("tabletop/insert", None)
    contact_sheet(task, path, ["lighting", "distractor"])
    assert 2 * TILE < len(_pixels(path)) < 3 * TILE
    with pytest.raises(UnknownFactor, match="did you mean lighting"):
        contact_sheet(task, path, ["lightin"])
