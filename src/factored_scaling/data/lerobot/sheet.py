"""A contact sheet of a dataset: the first frame of every episode with its number, label and task; HTML or PNG."""

from __future__ import annotations

import base64
import html
import io
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from factored_scaling.data.lerobot.dataset import LerobotDataset
from factored_scaling.data.lerobot.labels import Check
from factored_scaling.data.lerobot.pictures import first_pictures, fitted
from factored_scaling.errors import InvalidInput, UnknownName

SIDE = 144  # pixels of a thumbnail
UNLABELLED = "unlabelled"
_COLUMNS, _CAPTION, _HEADING = 8, 30, 34
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 15px/1.4 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; color: #1b1f24 }}
h1 {{ font-size: 1.3rem }} h2 {{ font-size: 1.05rem; margin: 1.6rem 0 .5rem }}
.grid {{ display: grid; grid-template-columns: repeat(auto-fill, minmax({side}px, 1fr)); gap: .8rem }}
figure {{ margin: 0 }} img {{ width: 100%; display: block; border-radius: 4px }}
figcaption {{ font-size: .8rem; color: #57606a; overflow-wrap: anywhere }} figcaption b {{ color: #1b1f24 }}
</style>
<h1>{title}</h1>
<p>{summary}</p>
{groups}
</html>
"""


def sheet_of(dataset: LerobotDataset, check: Check, path: Path, camera: str | None = None) -> bytes:
    """The content of a .html or .png file, grouped by label; unlabelled episodes come first."""
    if path.suffix.lower() not in (".html", ".png"):
        raise InvalidInput("must end in .html or .png", where=str(path))
    if not dataset.cameras:
        raise InvalidInput("has no camera", where=str(dataset.root))
    if camera is not None and camera not in dataset.cameras:
        raise UnknownName(camera, dataset.cameras, kind="camera")
    pictures = first_pictures(dataset, camera or dataset.cameras[0], partial(fitted, side=SIDE))
    groups: dict[str, list[int]] = {name: [] for name in (UNLABELLED, *check.counts)}
    for index in sorted(pictures):
        groups[check.labels[index].text if index in check.labels else UNLABELLED].append(index)
    shown = {name: members for name, members in groups.items() if members}
    if path.suffix.lower() == ".html":
        return _page(dataset, check, shown, pictures).encode()
    return _picture(check, shown, pictures)


def _page(
    dataset: LerobotDataset, check: Check, groups: dict[str, list[int]], pictures: dict[int, NDArray[np.uint8]]
) -> str:
    parts = []
    for name, members in groups.items():
        figures = "".join(_figure(dataset, check, index, pictures[index]) for index in members)
        parts.append(f'<h2>{html.escape(name)} ({len(members)})</h2>\n<div class="grid">{figures}</div>')
    title = html.escape(dataset.root.resolve().name)
    summary = f"{len(dataset)} episodes, {len(check.unlabelled)} without a label. First frame of each."
    return _PAGE.format(title=title, summary=summary, groups="\n".join(parts), side=SIDE)


def _figure(dataset: LerobotDataset, check: Check, index: int, picture: NDArray[np.uint8]) -> str:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(picture).save(out, "JPEG", quality=85)
    data = base64.b64encode(out.getvalue()).decode()
    entry, label = dataset.entry(index), check.labels.get(index)
    words = [f"<b>{index}</b>"]
    if label is not None and label.value:
        words.append(html.escape(label.value))
    words += [html.escape(", ".join(entry.tasks)), f"{entry.length / dataset.fps:.1f} s"]
    image = f'<img src="data:image/jpeg;base64,{data}" alt="First frame of episode {index}" loading="lazy">'
    return f"<figure>{image}<figcaption>{' · '.join(words)}</figcaption></figure>"


def _picture(check: Check, groups: dict[str, list[int]], pictures: dict[int, NDArray[np.uint8]]) -> bytes:
    from PIL import Image, ImageDraw

    cell, columns = SIDE + _CAPTION, min(_COLUMNS, max(len(members) for members in groups.values()))
    heights = [_HEADING + cell * -(-len(members) // columns) for members in groups.values()]
    sheet = Image.new("RGB", (columns * (SIDE + 8) + 8, sum(heights) + 8), "white")
    draw = ImageDraw.Draw(sheet)
    top = 8
    for (name, members), height in zip(groups.items(), heights, strict=True):
        draw.text((8, top + 6), f"{name} ({len(members)})", fill="black", font_size=16)
        for place, index in enumerate(members):
            row, column = divmod(place, columns)
            left, upper = 8 + column * (SIDE + 8), top + _HEADING + row * cell
            sheet.paste(Image.fromarray(pictures[index]), (left, upper))
            value = check.labels[index].value if index in check.labels else ""
            draw.text((left, upper + SIDE + 2), f"{index} {value}"[:22], fill="#57606a", font_size=13)
        top += height
    out = io.BytesIO()
    sheet.save(out, "PNG")
    return out.getvalue()
