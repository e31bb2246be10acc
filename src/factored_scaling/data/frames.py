"""FrameTable: the frames of many episodes as flat arrays, the form that training reads."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from factored_scaling.errors import InvalidInput
from factored_scaling.io.atomic import whole


@dataclass(frozen=True)
class FrameTable:
    """All frames of some episodes, concatenated. Episode e owns frames `starts[e]` to `starts[e + 1]`."""

    images: NDArray[np.uint8]  # frames × cameras × 3 × height × width
    state: NDArray[np.float32]  # frames × state size
    action: NDArray[np.float32]  # frames × action size
    starts: NDArray[np.int64]  # episodes + 1
    ids: tuple[str, ...]  # one per episode
    factors: tuple[str | None, ...]  # the factor each episode varies; None for nominal

    def __post_init__(self) -> None:
        frames = len(self.images)
        if not (len(self.state) == len(self.action) == frames == int(self.starts[-1])):
            raise InvalidInput("images, states, actions and starts disagree on the number of frames")
        if not (len(self.ids) == len(self.factors) == len(self.starts) - 1):
            raise InvalidInput("ids, factors and starts disagree on the number of episodes")

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, ids: Iterable[str]) -> FrameTable:
        """The named episodes, in the order named."""
        outline = self.outline(ids)
        return replace(outline, images=self.images[self.rows_of(outline.ids)])

    def outline(self, ids: Iterable[str]) -> FrameTable:
        """`select` with blank images that take no memory."""
        wanted = tuple(ids)
        chosen, rows = self._places(wanted), self.rows_of(wanted)
        lengths = [int(self.starts[e + 1] - self.starts[e]) for e in chosen]
        return FrameTable(
            _blank((len(rows), *self.images.shape[1:])),
            self.state[rows],
            self.action[rows],
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            wanted,
            tuple(self.factors[e] for e in chosen),
        )

    def rows_of(self, ids: Iterable[str]) -> NDArray[np.int64]:
        """The frames of the named episodes, in the order named."""
        spans = [np.arange(self.starts[e], self.starts[e + 1]) for e in self._places(tuple(ids))]
        return np.concatenate([np.zeros(0, np.int64), *spans])

    def _places(self, ids: Sequence[str]) -> list[int]:
        place = {id_: index for index, id_ in enumerate(self.ids)}
        missing = [id_ for id_ in ids if id_ not in place]
        if missing:
            raise InvalidInput(f"no frames for episode {missing[0]!r} ({len(missing)} missing)")
        return [place[id_] for id_ in ids]

    @staticmethod
    def concatenate(tables: Sequence[FrameTable]) -> FrameTable:
        """Several tables as one."""
        offsets = np.cumsum([0] + [int(table.starts[-1]) for table in tables[:-1]])
        starts = [table.starts[:-1] + offset for table, offset in zip(tables, offsets, strict=True)]
        return FrameTable(
            np.concatenate([table.images for table in tables]),
            np.concatenate([table.state for table in tables]),
            np.concatenate([table.action for table in tables]),
            np.concatenate([*starts, [sum(int(table.starts[-1]) for table in tables)]]).astype(np.int64),
            tuple(id_ for table in tables for id_ in table.ids),
            tuple(factor for table in tables for factor in table.factors),
        )

    def save(self, path: Path) -> None:
        """Write the table as one safetensors file, atomically."""
        from safetensors.numpy import save_file

        arrays: dict[str, NDArray[Any]] = {
            "images": self.images,
            "state": self.state,
            "action": self.action,
            "starts": self.starts,
        }
        with whole(path) as partial:
            save_file(arrays, partial, {"episodes": json.dumps([self.ids, self.factors])})

    @classmethod
    def load(cls, path: Path) -> FrameTable:
        """Read a file of `save`."""
        outline, offset = cls.outline_of(path)
        images = np.fromfile(path, np.uint8, math.prod(outline.images.shape), offset=offset)
        return replace(outline, images=images.reshape(outline.images.shape))

    @classmethod
    def outline_of(cls, path: Path) -> tuple[FrameTable, int]:
        """The table in a file with blank images, and the offset of the images in the file."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                ids, factors = json.loads(file.metadata()["episodes"])
                arrays = {name: file.get_tensor(name) for name in ("state", "action", "starts")}
            # safetensors: the header's length in 8 bytes, the header as JSON, then the tensors' bytes.
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                images = json.loads(file.read(length))["images"]
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            raise InvalidInput(f"is not a whole frame table ({error})", where=str(path), hint="remove it") from None
        outline = cls(_blank(images["shape"]), **arrays, ids=tuple(ids), factors=tuple(factors))
        return outline, 8 + length + int(images["data_offsets"][0])


def _blank(shape: Sequence[int]) -> NDArray[np.uint8]:
    """Black images that share one byte of memory."""
    return np.broadcast_to(np.zeros((), np.uint8), tuple(shape))
