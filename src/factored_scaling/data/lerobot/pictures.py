"""Images of episodes, from rows or videos."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from factored_scaling.data.lerobot.dataset import EpisodeEntry, LerobotDataset
from factored_scaling.data.lerobot.rows import read_rows
from factored_scaling.data.lerobot.video import read_video
from factored_scaling.errors import InvalidInput

LONGEST_VIDEO = 1e7  # seconds, some 100 days
Sized = Callable[[NDArray[np.uint8]], NDArray[np.uint8]]


def read_pictures(
    dataset: LerobotDataset, entry: EpisodeEntry, table: Any, camera: str, frames: Sequence[int] | None = None
) -> Iterator[NDArray[np.uint8]]:
    """Some frames of one camera (all of them without `frames`), height × width × 3, in ascending order.

    `table` holds the episode's rows with `timestamp` and, for cameras stored as images, the camera's column.
    """
    chosen = range(entry.length) if frames is None else frames
    if dataset.features[camera].dtype == "image":
        column = table.column(camera)
        for frame in chosen:
            yield _decoded(column[frame].as_py(), dataset.root, f"episode {entry.index}, frame {frame}, {camera}")
        return
    span = entry.videos[camera]
    stamps = table.column("timestamp").to_numpy().astype(np.float64)
    times = [span.start + float(stamps[frame]) for frame in chosen]
    if not all(0.0 <= time < LONGEST_VIDEO for time in times):
        raise InvalidInput("a timestamp lies outside of any video", where=f"{dataset.root}: episode {entry.index}")
    yield from read_video(dataset.root / span.path, times, dataset.fps)


def read_episodes(
    dataset: LerobotDataset, indices: Iterable[int] | None, columns: Sequence[str] = (), cameras: Sequence[str] = ()
) -> Iterator[tuple[EpisodeEntry, Any]]:
    """Episodes with the rows that `read_pictures` needs for these cameras, and other columns."""
    stored = [name for name in cameras if dataset.features[name].dtype == "image"]
    yield from read_rows(dataset, indices, [*columns, *stored, "timestamp"])


def first_pictures(
    dataset: LerobotDataset, camera: str, sized: Sized = lambda picture: picture
) -> dict[int, NDArray[np.uint8]]:
    """The first frame of each episode by its number, `resized` for a policy or `fitted` for people."""
    return {
        entry.index: sized(next(read_pictures(dataset, entry, table, camera, [0])))
        for entry, table in read_episodes(dataset, None, cameras=[camera])
    }


def resized(picture: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """The picture at size × size as policies see it, averaged where it shrinks."""
    if picture.shape[:2] == (size, size):
        return picture
    from PIL import Image

    return np.asarray(Image.fromarray(picture).resize((size, size), Image.Resampling.BILINEAR))


def fitted(picture: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """The picture with its longer side at `side`, with the same proportions."""
    from PIL import Image

    height, width = picture.shape[:2]
    scale = side / max(height, width)
    shape = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(Image.fromarray(picture).resize(shape, Image.Resampling.BILINEAR))


def encoded(picture: NDArray[np.uint8]) -> bytes:
    """The image as PNG, which is lossless."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(picture).save(out, "PNG")
    return out.getvalue()


def _decoded(value: Any, root: Path, where: str) -> NDArray[np.uint8]:
    from PIL import Image

    damaged = (OSError, TypeError, LookupError, ValueError, SyntaxError)  # SyntaxError: Pillow's for broken chunks
    too_large = (Image.DecompressionBombError, Image.DecompressionBombWarning)
    try:
        if value is None or (value["bytes"] is None and value["path"] is None):
            raise ValueError("it is empty")
        data = value["bytes"]
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data) if data is not None else root / value["path"]) as image:
                return np.asarray(image.convert("RGB"))
    except (*damaged, *too_large) as error:
        raise InvalidInput(f"is not a picture ({error})", where=f"{root}: {where}") from None
