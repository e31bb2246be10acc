"""The frame table of a LeRobot dataset, for training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from factored_scaling.data.frames import FrameTable
from factored_scaling.data.lerobot.dataset import LerobotDataset
from factored_scaling.data.lerobot.layout import ACTION, STATE
from factored_scaling.data.lerobot.pictures import read_episodes, read_pictures, resized
from factored_scaling.data.lerobot.rows import vectors
from factored_scaling.errors import InvalidInput


def frame_table(
    dataset: LerobotDataset,
    episodes: Mapping[int, tuple[str, str | None]],
    image_size: int,
    cameras: Sequence[str] | None = None,
) -> FrameTable:
    """The frames of the episodes with these numbers; each has an id and the factor it varies.

    Images of all `cameras` (by default every one of the dataset) become image_size × image_size.
    """
    chosen = tuple(cameras) if cameras else dataset.cameras
    for name in (STATE, ACTION, *chosen):
        if name not in dataset.features:
            hint = f"it has {', '.join(dataset.features)}"
            raise InvalidInput(f"has no {name!r}", where=str(dataset.root), hint=hint)
    if not chosen:
        raise InvalidInput("has no camera", where=str(dataset.root), hint="the diffusion policy looks at pictures")
    parts: dict[int, tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.float32]]] = {}
    for entry, table in read_episodes(dataset, episodes, (STATE, ACTION), chosen):
        images = np.empty((entry.length, len(chosen), 3, image_size, image_size), dtype=np.uint8)
        for place, camera in enumerate(chosen):
            for frame, picture in enumerate(read_pictures(dataset, entry, table, camera)):
                images[frame, place] = resized(picture, image_size).transpose(2, 0, 1)
        where = f"{dataset.root}: episode {entry.index}"
        state, action = (
            vectors(table.column(name), entry.length, f"{where}, {name}").astype(np.float32) for name in (STATE, ACTION)
        )
        parts[entry.index] = (images, state, action)
    ordered = [parts[index] for index in episodes]
    return FrameTable(
        np.concatenate([part[0] for part in ordered]),
        np.concatenate([part[1] for part in ordered]),
        np.concatenate([part[2] for part in ordered]),
        np.cumsum([0, *(len(part[1]) for part in ordered)]).astype(np.int64),
        tuple(id_ for id_, _ in episodes.values()),
        tuple(factor for _, factor in episodes.values()),
    )
