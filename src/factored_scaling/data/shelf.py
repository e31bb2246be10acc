"""FrameShelf: a folder of frame tables, from which any selection of episodes is read without loading the rest.

Pictures of a study can be larger than memory. Only states, actions and the files' headers stay in memory; a
selection reads only its episodes. A small selection is an array. A large one is copied into an unnamed file and mapped,
so that the system can drop its pages when memory is short.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from factored_scaling.data.frames import FrameTable
from factored_scaling.errors import InvalidInput

IN_MEMORY = 1 << 30  # bytes of pictures; a larger selection is mapped from a file


@dataclass(frozen=True)
class _Book:
    """One file: its table without images, and the offset of the images."""

    path: Path
    offset: int
    outline: FrameTable  # blank pictures

    def read(self, first: int, count: int) -> NDArray[np.uint8]:
        """The pictures of `count` frames."""
        shape = self.outline.images.shape[1:]
        each = math.prod(shape)
        found = np.fromfile(self.path, np.uint8, count * each, offset=self.offset + first * each)
        if len(found) < count * each:
            raise InvalidInput("was cut short since it was opened", where=str(self.path), hint="remove it")
        return found.reshape(count, *shape)


class FrameShelf:
    """The tables in `folder`, by episode. When an episode is missing, the folder is searched again for new tables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._books: dict[Path, _Book] = {}
        self._places: dict[str, tuple[_Book, int]] = {}
        self._held: FrameTable | None = None

    def missing(self, ids: Sequence[str]) -> list[str]:
        """The episodes that no table has, each once."""
        if any(id_ not in self._places for id_ in ids):
            for path in sorted(self.folder.glob("*.safetensors")):
                if path not in self._books:
                    self._open(path)
        return [id_ for id_ in dict.fromkeys(ids) if id_ not in self._places]

    def add(self, table: FrameTable, name: str) -> None:
        """Store a table as a file of that name."""
        path = self.folder / f"{name}.safetensors"
        table.save(path)
        self._open(path)

    def select(self, ids: Sequence[str]) -> FrameTable:
        """The named episodes, in the order named."""
        places = self._find(ids)
        lengths = [int(book.outline.starts[i + 1] - book.outline.starts[i]) for book, i in places]
        shape = (sum(lengths), *places[0][0].outline.images.shape[1:])
        pictures = (
            book.read(int(book.outline.starts[index]), length)
            for (book, index), length in zip(places, lengths, strict=True)
        )
        images = self._in_memory(pictures, shape) if math.prod(shape) <= IN_MEMORY else self._mapped(pictures, shape)
        parts = [(book.outline, book.outline.starts[index], book.outline.starts[index + 1]) for book, index in places]
        return FrameTable(
            images,
            np.concatenate([outline.state[first:end] for outline, first, end in parts]),
            np.concatenate([outline.action[first:end] for outline, first, end in parts]),
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            tuple(ids),
            tuple(book.outline.factors[index] for book, index in places),
        )

    def holding(self, ids: Sequence[str]) -> FrameTable:
        """A table with at least these episodes. It is cached, because runs of a study share most episodes."""
        held = self._held.ids if self._held is not None else ()
        if self._held is None or not set(ids) <= set(held):
            self._held = None  # frees memory for the larger one
            self._held = self.select(list(dict.fromkeys([*held, *ids])))
        return self._held

    def first_images(self, ids: Sequence[str]) -> NDArray[np.uint8]:
        """The pictures of each episode's first frame, without reading the others."""
        return np.concatenate([book.read(int(book.outline.starts[index]), 1) for book, index in self._find(ids)])

    def _find(self, ids: Sequence[str]) -> list[tuple[_Book, int]]:
        missing = self.missing(ids)
        if missing or not ids:
            what = f"no frames for episode {missing[0]!r} ({len(missing)} missing)" if missing else "no episodes named"
            raise InvalidInput(what, where=str(self.folder))
        places = [self._places[id_] for id_ in ids]
        shapes = {book.outline.images.shape[1:] for book, _ in places}
        if len(shapes) > 1:
            raise InvalidInput(f"holds pictures of different shapes: {sorted(shapes)}", where=str(self.folder))
        return places

    def _open(self, path: Path) -> None:
        outline, offset = FrameTable.outline_of(path)
        book = self._books[path] = _Book(path, offset, outline)
        self._places.update({id_: (book, index) for index, id_ in enumerate(outline.ids)})

    @staticmethod
    def _in_memory(pictures: Iterator[NDArray[np.uint8]], shape: tuple[int, ...]) -> NDArray[np.uint8]:
        images, filled = np.empty(shape, np.uint8), 0
        for part in pictures:
            images[filled : filled + len(part)] = part
            filled += len(part)
        return images

    def _mapped(self, pictures: Iterator[NDArray[np.uint8]], shape: tuple[int, ...]) -> NDArray[np.uint8]:
        with tempfile.TemporaryFile(dir=self.folder) as file:
            for part in pictures:
                file.write(part.data)
            file.flush()
            # Copy-on-write, because torch needs writable arrays. The map outlives the file's handle.
            return np.memmap(file, np.uint8, "c", shape=shape)
