"""Scenarios of the crash campaign: the work of processes until they are killed, and the checks afterwards.

A scenario is one study and the work on it. Its processes are forks of the campaign. Each has a voice, a unique number
that is part of all its scores, so that results of different processes can be distinguished. Everything that the store
acknowledged is written to a log beside it.
"""

from __future__ import annotations

import io
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from factored_scaling.cli import main
from factored_scaling.core.dataset import Dataset
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import StudyExists
from factored_scaling.study import Study

LEASE = 0.25  # seconds; a killed worker's run comes back after that
SCALE = 100_000  # voices are encoded as scores


@dataclass
class Findings:
    """Errors found, one sentence each."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    mixed: list[str] = field(default_factory=list)
    half_done: list[str] = field(default_factory=list)
    dead_ends: list[str] = field(default_factory=list)


class Scenario:
    """One study at one place. `child` is what a process does; it may be killed at any instant."""

    name: ClassVar[str]
    # initial estimate of the seconds of a process; the campaign adapts it
    reach: ClassVar[float] = 0.2

    def __init__(self, folder: Path, address: str | None, title: str, seed: int) -> None:
        self.folder = folder
        self.address: str | Path = address if address is not None else folder / "study.db"
        self.on_files = address is None
        self.title = title
        self.seed = seed
        self.log = folder / "acknowledged"
        self.refused = folder / "refused"
        for file in (self.log, self.refused):
            file.touch()
        self.prepare()

    @property
    def target(self) -> str:
        """The study for a command line."""
        return str(self.folder) if self.on_files else f"{self.address}#{self.title}"

    def prepare(self) -> None:
        """Create the study."""

    def child(self, voice: int, generator: random.Random) -> None:
        """Work until everything is done."""
        raise NotImplementedError

    def between(self, generator: random.Random) -> None:
        """An event between processes."""

    def finished(self) -> bool:
        """Whether all of the work is done."""
        raise NotImplementedError

    def look(self, found: Findings) -> None:
        """Check what must hold after every kill."""

    def verify(self, found: Findings) -> None:
        """Check what must hold at the end."""
        raise NotImplementedError

    @contextmanager
    def opened(self) -> Iterator[Study]:
        with Study.open(self.address, self.title) as study:
            yield study

    def create(self, spec: StudySpec, dataset: Dataset | None = None) -> None:
        with suppress(StudyExists):
            Study.create(spec, self.address, dataset).close()

    def acknowledge(self, *words: object) -> None:
        append(self.log, *words)

    def acknowledged(self) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().splitlines()]


def append(file: Path, *words: object) -> None:
    """Append one line to a log in a single write, which a kill cannot split."""
    opened = os.open(file, os.O_WRONLY | os.O_APPEND)
    os.write(opened, (" ".join(map(str, words)) + "\n").encode())
    os.close(opened)


def voiced(voice: int) -> float:
    return voice / SCALE


def command(*words: object) -> tuple[int, str]:
    """Exit code of an `fsc` command and what it said on stderr."""
    said = io.StringIO()
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(said):
            main([str(word) for word in words])
    except SystemExit as ended:
        return int(ended.code or 0), said.getvalue()
    return 0, said.getvalue()


def plain_spec(title: str, **more: Any) -> StudySpec:
    return StudySpec({"a": 4, "b": 4}, construction="one", points=3, name=title, **more)
