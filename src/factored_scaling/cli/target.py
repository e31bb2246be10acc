"""What STUDY on the command line means: a folder, a study.yaml, a database file, or DATABASE-URL#NAME."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from factored_scaling.cli.show import say
from factored_scaling.core.checks import shown
from factored_scaling.core.dataset import Dataset
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput, NotEnoughData, StudyExists, StudyMissing

if TYPE_CHECKING:  # `fsc plan` needs no numpy
    from factored_scaling.core.results import Results
    from factored_scaling.model.hindsight import Hindsight
    from factored_scaling.study import Study

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
                    hint = f"`fsc init {text}` starts a study"
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
        from factored_scaling.study import check_counts

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

    def spec_and_results(
        self, csv: str | None, required: bool = True, partial: bool = False
    ) -> tuple[StudySpec, Results]:
        """The study and its scores: from a CSV if given, else from the record."""
        if csv is not None:
            return self.read_scores(Path(csv))
        if not self.recorded:
            spec, _ = self.spec_and_dataset()
            from factored_scaling.core.results import Results

            if required:
                raise NotEnoughData("no scores: nothing is recorded yet", hint="give a RESULTS.csv after the study")
            return spec, Results()
        from factored_scaling.runner.run import mixed_settings

        with self.study() as study:
            spec, runs = study.spec, study.runs()
            results, unfinished = study.results(partial, runs), study.unfinished(runs)
            waiting = any(run.state == "trained" for run in runs)
            mixed = mixed_settings(spec, [run for run in runs if run.trials or run.scores])
        if required and not results.rows:
            hint = "`fsc runs STUDY` shows what is pending"
            if waiting:
                hint = "policies are trained and wait for trials; `fsc sheet status STUDY` tells how far the scoring is"
            if unfinished:
                hint = "--partial uses what is recorded so far"
            raise NotEnoughData("no finished run has scores yet", hint=hint)
        if mixed:
            say(f"warning: {mixed}; their scores count as if nothing had", err=True)
        if unfinished and not partial:
            say(f"warning: {_left_out([run.id for run in unfinished])}", err=True)
        return spec, results

    def hindsight(self, csv: str | None) -> Hindsight | None:
        """Prediction and outcome of the last round, where scores come from the record."""
        if csv is not None or not self.recorded:
            return None
        with self.study() as study:
            return study.hindsight()

    def read_scores(self, path: Path) -> tuple[StudySpec, Results]:
        """The study and the scores of a file, whose short form speaks of the study's current round."""
        from factored_scaling.io.files import read_results

        spec, _ = self.spec_and_dataset()
        results = read_results(path, spec)
        if self.recorded and any(row.combination is not None for row in results.rows):
            with self.study() as study:
                if study.round.index:
                    _check_round(spec, results, path, [run.demos for run in study.runs()], study.round.index)
        return spec, results

    def spec_and_proxy(self, k: int) -> tuple[StudySpec, Results]:
        """The study and FSC-Proxy's stand-in scores."""
        from factored_scaling.study.proxy import proxy_results

        with self.study() as study:
            return study.spec, proxy_results(study, k)

    def remix_weights(self, path: Path | None, strategy: str) -> dict[str, float] | None:
        """Re-Mix's weights from a file, or from the record."""
        from factored_scaling.io.files import read_weights

        if path is not None:
            if strategy != "remix":
                raise InvalidInput("weights are for strategy remix only", where="--weights")
            return read_weights(path)
        if strategy != "remix" or not self.recorded:
            return None
        with self.study() as study:
            found = study.store.document(study.id, "remix", "weights")
        return found["weights"] if found is not None else None


def is_database(path: Path) -> bool:
    """Whether a file is an SQLite database, whatever its name."""
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def _check_round(
    spec: StudySpec, results: Results, path: Path, known: Sequence[Mapping[str, int]], number: int
) -> None:
    """Rows of an earlier round in short form would be read with the demonstrations of today: `n` of another whole."""
    from factored_scaling.core.results import resolve

    planned = {tuple(demos[name] for name in spec.names) for demos in known}
    for row in results.rows:
        demos, _ = resolve(spec, row)
        if row.combination is not None and demos not in planned:
            file = "standard input" if str(path) == "-" else str(path)
            raise InvalidInput(
                f"no policy of round {number} has n = {row.n} of {'+'.join(row.combination)}",
                where=f"{file}: {row.place}",
                hint="give rows of an earlier round with demos: columns, as `fsc export` writes them",
            )


def planned_anew(study: Study) -> None:
    """Plan as study.yaml is now, and tell which runs of an earlier plan that took back."""
    from factored_scaling.runner.run import listed

    gone = study.replan()
    if gone:
        text = f"{listed(gone)} of the plan before {'is' if len(gone) == 1 else 'are'} removed, without scores"
        say(f"study.yaml has changed: {text}", err=True)


def _left_out(ids: list[int]) -> str:
    from factored_scaling.runner.run import listed

    if len(ids) == 1:
        return f"{listed(ids)} has scores but is not finished and is left out (--partial uses it)"
    return f"{listed(ids)} have scores but are not finished and are left out (--partial uses them)"
