"""What STUDY on the command line means: a folder, a study.yaml, a database file, or DATABASE-URL#NAME."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from factored_scaling.cli.show import quoted, say
from factored_scaling.core.checks import shown
from factored_scaling.core.dataset import Dataset
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput, NotEnoughData, StudyExists, StudyMissing

if TYPE_CHECKING:  # `fsc plan` needs no numpy
    from factored_scaling.core.results import Results
    from factored_scaling.study import Snapshot, Study

Command = TypeVar("Command", bound=Callable[..., Any])


def study_argument(command: Command) -> Command:
    """The STUDY argument, the same on every command."""
    return click.argument("study", metavar="STUDY", type=click.Path())(command)  # a path: shells complete it


@dataclass(frozen=True)
class Target:
    """Where a study is declared and where its record lies; either may be missing."""

    yaml: Path | None
    address: str | Path | None
    name: str | None

    @classmethod
    def parse(cls, text: str) -> Target:
        """Find the study that `text` means."""
        if "://" in text:
            address, _, name = text.partition("#")
            return cls(None, address, name or None)
        path, name = Path(text), ""
        try:
            file, _, after = text.rpartition("#")
            if not path.exists() and Path(file).is_file():
                path, name = Path(file), after
            if path.is_dir():
                declared, record = path / "study.yaml", path / "study.db"
                if not declared.exists() and not record.exists():
                    hint = f"`fsc init {quoted(text)}` starts a study"
                    raise StudyMissing("no study.yaml in this folder", where=text, hint=hint)
                return cls(declared if declared.exists() else None, record, None)
            if path.is_file() and (path.suffix == ".db" or is_database(path)):
                declared = path.with_name("study.yaml")
                beside = path.name == "study.db" and not name and declared.exists()
                return cls(declared if beside else None, path, name or None)
            if path.exists() and not name:
                return cls(path, path.parent / "study.db" if path.name == "study.yaml" else None, None)
        except (OSError, ValueError) as error:  # no permission, a name that is too long, a NUL in it
            what = f"cannot be read ({getattr(error, 'strerror', None) or error})"
            raise StudyMissing(what, where=shown(text)) from None
        hint = "give a folder with a study.yaml, the file itself, a .db file, or DATABASE-URL#NAME"
        raise StudyMissing("no such study", where=text, hint=hint)

    @property
    def folder(self) -> Path | None:
        """The study's folder, for things that are not in the database."""
        if self.yaml is not None:
            return self.yaml.parent
        return self.address.parent if isinstance(self.address, Path) else None

    def declared(self) -> StudySpec | None:
        """The study.yaml, if there is one."""
        from factored_scaling.io.files import read_study

        return None if self.yaml is None else read_study(self.yaml)

    @property
    def recorded(self) -> bool:
        """Whether there may be a durable record."""
        return isinstance(self.address, str) or (self.address is not None and self.address.exists())

    def study(self) -> Study:
        """The durable study; made from study.yaml on first use."""
        from factored_scaling.study import Study

        declared = self.declared()
        if self.recorded:
            assert self.address is not None
            return Study.open(self.address, self.name, declared)
        if declared is None or self.address is None:
            raise StudyMissing("this study has no durable record", hint="name the file study.yaml, or give its folder")
        try:
            return Study.create(declared, self.address, self._recorded_demos(declared))
        except StudyExists:  # another command made it at the same moment
            return Study.open(self.address, self.name, declared)

    def _recorded_demos(self, declared: StudySpec) -> Dataset | None:
        """The index of the labelled dataset that a study.yaml names."""
        if declared.dataset is None:
            return None
        from factored_scaling.data.lerobot.collection import labelled

        return labelled((self.folder or Path()) / declared.dataset).dataset()

    def trouble_ahead(self) -> list[str]:
        """Errors that making the record would raise: study.yaml and the labels of its dataset must agree."""
        declared = None if self.recorded else self.declared()
        if declared is None or declared.dataset is None or not ((self.folder or Path()) / declared.dataset).exists():
            return []
        from factored_scaling.core.dataset import check_counts

        try:
            found = self._recorded_demos(declared)
            assert found is not None
            check_counts(declared, found)
        except InvalidInput as error:
            return [str(error)]
        return []

    def spec_and_dataset(self) -> tuple[StudySpec, Dataset | None]:
        """What is declared, or recorded where there is a record."""
        if self.recorded:
            with self.study() as study:
                return study.spec, study.dataset
        declared = self.declared()
        assert declared is not None
        return declared, None

    def snapshot(
        self, csv: str | None = None, required: bool = True, partial: bool = False, proxy: int | None = None
    ) -> Snapshot:
        """The study and its scores, from a CSV if given, else from the record. The record is read once."""
        from factored_scaling.core.results import Results
        from factored_scaling.study.snapshot import Snapshot

        if not self.recorded:
            spec = self.declared()
            assert spec is not None
            if csv is not None:
                return Snapshot(spec, _read_csv(Path(csv), spec))
            if required:
                raise NotEnoughData("no scores: nothing is recorded yet", hint="give a RESULTS.csv after the study")
            return Snapshot(spec, Results())
        with self.study() as study:
            found = study.snapshot(partial, proxy)
        if csv is not None:
            results = _read_csv(Path(csv), found.spec)
            _check_round(found, results, Path(csv))
            return replace(found, results=results, record=None)
        assert found.record is not None
        unfinished = found.record.unfinished
        if required and not found.results.rows:
            hint = "`fsc runs STUDY` shows what is pending"
            if any(run.state == "trained" for run in found.record.runs):
                hint = "policies are trained and wait for trials; `fsc sheet status STUDY` tells how far the scoring is"
            if unfinished:
                hint = "--partial uses what is recorded so far"
            raise NotEnoughData("no finished run has scores yet", hint=hint)
        from factored_scaling.runner.queue import mixed_settings

        mixed = mixed_settings(found.spec, [run for run in found.record.runs if run.trials or run.scores])
        if mixed:
            say(f"warning: {mixed}; their scores are used all the same", err=True)
        if unfinished and not partial:
            say(f"warning: {left_out([run.id for run in unfinished])}", err=True)
        return found


def is_database(path: Path) -> bool:
    """Whether a file is an SQLite database, whatever its name."""
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def _read_csv(path: Path, spec: StudySpec) -> Results:
    from factored_scaling.io.files import read_results

    return read_results(path, spec)


def _check_round(recorded: Snapshot, results: Results, path: Path) -> None:
    """Rows of an earlier round in short form would be read with the demonstrations of today: `n` of another whole."""
    from factored_scaling.core.results import resolve

    assert recorded.record is not None
    number = recorded.record.rounds[-1].index
    if number == 0:
        return
    names = recorded.spec.names
    planned = {tuple(run.demos[name] for name in names) for run in recorded.record.runs}
    for row in results.rows:
        demos, _ = resolve(recorded.spec, row)
        if row.combination is not None and demos not in planned:
            file = "standard input" if str(path) == "-" else str(path)
            raise InvalidInput(
                f"no policy of round {number} has n = {row.n} of {'+'.join(row.combination)}",
                where=f"{file}: {row.place}",
                hint="give rows of an earlier round with demos: columns, as `fsc export` writes them",
            )


def planned_anew(study: Study) -> None:
    """Plan as study.yaml is now, and tell which runs of an earlier plan that took back."""
    from factored_scaling.runner.queue import listed

    gone = study.replan()
    if gone:
        say(f"study.yaml has changed: removed {listed(gone)} of the earlier plan, which had no scores", err=True)


def left_out(ids: list[int]) -> str:
    """A sentence about runs whose scores are not used because they are not finished."""
    from factored_scaling.runner.queue import listed

    if len(ids) == 1:
        return f"{listed(ids)} has scores but is not finished and is left out (--partial uses it)"
    return f"{listed(ids)} have scores but are not finished and are left out (--partial uses them)"
