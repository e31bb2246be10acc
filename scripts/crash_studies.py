"""Scenarios of the crash campaign that create studies, by import and `fsc init`."""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

from crash_scenario import Findings, Scenario, command, plain_spec

from factored_scaling.core.dataset import Dataset, Episode
from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import FscError, StudyExists, StudyMissing
from factored_scaling.io.files import write_study
from factored_scaling.study import Study


class Import(Scenario):
    """Files are imported into a new study, sometimes two at the same time."""

    name = "import"
    rows = 6

    def prepare(self) -> None:
        self.spec = StudySpec({"a": 6, "b": 6, "c": 6}, construction="one", name=self.title)
        self.files = [self.folder / f"{name}.csv" for name in self.spec.names]
        for name, file in zip(self.spec.names, self.files, strict=True):
            with file.open("w", newline="") as opened:
                writer = csv.writer(opened)
                writer.writerow(["combination", "n", "score", "trials"])
                writer.writerows([name, n, n / 10, 20] for n in range(self.rows))
        if self.on_files:
            write_study(self.spec, self.folder / "study.yaml")

    def child(self, voice: int, generator: random.Random) -> None:
        if not self.on_files:
            self.create(self.spec)
        files = [file for file in self.files if [file.name] not in self.acknowledged()]
        for file in generator.sample(files, len(files)):
            code, said = command("import", self.target, file)
            if code:
                raise RuntimeError(said)
            self.acknowledge(file.name)

    def finished(self) -> bool:
        return {name for (name,) in self.acknowledged()} == {file.name for file in self.files}

    def look(self, found: Findings) -> None:
        with suppress(StudyMissing), self.opened() as study:
            if not study.runs():
                found.half_done.append(f"{self.title}: a study without runs")
            counts = Counter(
                mean.source.split(":")[0] for means in study.store.study_scores(study.id).values() for mean in means
            )
            for file, count in counts.items():
                if count != self.rows:
                    found.half_done.append(f"{self.title}: {count} rows of {file}")

    def verify(self, found: Findings) -> None:
        self.look(found)
        with self.opened() as study:
            rows = Counter((tuple(row.demos.items()), row.score) for row in study.results().rows if row.demos)
            if len(rows) < self.rows * len(self.files):
                found.lost.append(f"{self.title}: {len(rows)} rows")
            if max(rows.values(), default=0) > 1:
                found.doubled.append(f"{self.title}: {rows.most_common(1)}")
        check_folder(self, {"study.yaml", "study.db", *(file.name for file in self.files)}, found)


def check_folder(scenario: Scenario, names: set[str], found: Findings) -> None:
    """Check that there are no other files; temporary files of a killed process are not studies."""
    own = {scenario.log.name, scenario.refused.name}
    beside = {f"study.db{suffix}" for suffix in ("-wal", "-shm", "-journal")}
    for path in scenario.folder.iterdir():
        if path.name not in names | own | beside and not path.name.endswith(
            (".tmp", ".tmp-wal", ".tmp-shm", ".tmp-journal")
        ):
            found.half_done.append(f"{scenario.title}: left {path.name}")


class ImportStudy(Scenario):
    """A whole study is imported from JSON, into a new folder or a shared database."""

    name = "import JSON"
    copies = 3

    def prepare(self) -> None:
        self.file = self.folder / "whole.json"
        with Study.create(plain_spec("whole"), self.folder / "made.db") as study:
            rows = [{"combination": "a", "n": n, "score": n / 10} for n in range(4)]
            study.import_results(Results.from_rows(rows), "a.csv")
            self.dump = study.store.dump(study.id)
        self.file.write_text(json.dumps(self.dump))

    def place(self, number: int) -> str:
        return str(self.folder / f"copy-{number}") if self.on_files else f"{self.address}#{self.title} {number}"

    def child(self, voice: int, generator: random.Random) -> None:
        for number in range(self.copies):
            if [str(number)] not in self.acknowledged():
                code, said = command("import", self.place(number), self.file)
                if code and "already" not in said:  # it may be complete, by this or another process
                    raise RuntimeError(said)
                self.acknowledge(number)

    def finished(self) -> bool:
        return {int(number) for (number,) in self.acknowledged()} == set(range(self.copies))

    def look(self, found: Findings) -> None:
        for number in range(self.copies):
            folder = Path(self.place(number))
            if (
                self.on_files
                and folder.exists()
                and {path.name for path in folder.iterdir()} < {"study.db", "study.yaml"}
            ):
                found.half_done.append(f"{self.title}: {folder.name} has {[path.name for path in folder.iterdir()]}")

    def verify(self, found: Findings) -> None:
        for number in range(self.copies):
            address = Path(self.place(number)) / "study.db" if self.on_files else self.address
            name = "whole" if self.on_files else f"{self.title} {number}"
            try:
                with Study.open(address, name) as study:
                    if study.store.dump(study.id) | {"name": "whole"} != self.dump:
                        found.mixed.append(f"{self.title}: copy {number} differs")
            except FscError as error:
                found.lost.append(f"{self.title}: copy {number}: {error}")


class Init(Scenario):
    """A study of named demonstrations is created, by `fsc init` or by `Study.create` on a server."""

    name = "init"
    studies = 3

    def prepare(self) -> None:
        self.episodes = [Episode(f"take-{number}.hdf5", "ab"[number % 2]) for number in range(8)]
        self.table = self.folder / "demos.csv"
        rows = [f"{episode.id},{episode.factor}" for episode in self.episodes]
        self.table.write_text("\n".join(["episode,factor", *rows, ""]))

    def child(self, voice: int, generator: random.Random) -> None:
        for number in range(self.studies):
            if [str(number)] in self.acknowledged():
                continue
            if self.on_files:
                code, said = command("init", self.folder / f"study-{number}", "--episodes", self.table)
                if code and "already there" not in said:
                    raise RuntimeError(said)
            else:
                spec = plain_spec(f"{self.title} {number}")
                with suppress(StudyExists):
                    Study.create(spec, self.address, Dataset(tuple(self.episodes))).close()
            self.acknowledge(number)

    def finished(self) -> bool:
        return {int(number) for (number,) in self.acknowledged()} == set(range(self.studies))

    def look(self, found: Findings) -> None:
        for number in range(self.studies):
            if self.on_files:
                folder = self.folder / f"study-{number}"
                if (folder / "study.yaml").exists() and not (folder / "study.db").exists():
                    found.half_done.append(f"{self.title}: study-{number} would make up its episodes")
            else:
                self.check(number, found, missing=False)

    def verify(self, found: Findings) -> None:
        for number in range(self.studies):
            self.check(number, found, missing=True)

    def check(self, number: int, found: Findings, missing: bool) -> None:
        where = f"{self.title}, study {number}"
        address = self.folder / f"study-{number}" / "study.db" if self.on_files else self.address
        try:
            with Study.open(address, None if self.on_files else f"{self.title} {number}") as study:
                if not study.runs():
                    found.half_done.append(f"{where}: no runs")
                if {episode.id for episode in study.dataset.episodes} != {episode.id for episode in self.episodes}:
                    found.mixed.append(f"{where}: other episodes")
        except StudyMissing as error:
            if missing:
                found.dead_ends.append(f"{where}: {error}")
