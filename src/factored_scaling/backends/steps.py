"""Steps of external programs in a run's folder. The start and the success of each step are recorded."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from factored_scaling.backends.process import Hear, outside_environment, run_command
from factored_scaling.backends.template import Value, fill_text, plain
from factored_scaling.backends.watchdog import end_all
from factored_scaling.core.design import RunSpec
from factored_scaling.errors import InvalidInput
from factored_scaling.io.text import write_text

PLACEHOLDERS = (
    "episodes",
    "episodes*",
    "episodes_file",
    "run_file",
    "seed",
    "folder",
    "result",
    "resume",
    "digest",
    "device",
    "study",
)
_TOLD = ("episodes_file", "run_file", "seed", "folder", "result", "device")  # in the environment too


@dataclass(frozen=True)
class Step:
    """One program of a trainer: `train` or `evaluate`."""

    name: str
    run: RunSpec
    # the run's folder, and the study's
    folder: Path
    home: Path
    device: str

    @property
    def result(self) -> Path:
        """The program's result file."""
        return self.folder / ("result.json" if self.name == "train" else "evaluation.json")

    @property
    def finished(self) -> bool:
        """Whether the program has already succeeded."""
        return (self.folder / f"{self.name}.finished.json").exists()

    def forget(self) -> None:
        """Discard the result, so that the next attempt runs the program again."""
        (self.folder / f"{self.name}.finished.json").unlink(missing_ok=True)

    @property
    def begun(self) -> bool:
        """Whether an earlier attempt was made here."""
        return (self.folder / f"{self.name}.begun.json").exists()

    def values(self) -> dict[str, Value]:
        """Values of the placeholders. Files among them are written."""
        write_text(self.folder / "episodes.txt", "".join(f"{id_}\n" for id_ in self.run.episodes))
        whole = {
            **self.run.to_mapping(),
            "digest": self.run.digest,
            "folder": str(self.folder),
            "result": str(self.result),
        }
        write_text(self.folder / "run.json", json.dumps(whole, indent=1) + "\n")
        return {
            **plain(self.run.policy, "policy"),
            **plain(self.run.evaluation, "evaluation"),
            "episodes": ",".join(self.run.episodes),
            "episodes*": list(self.run.episodes),
            "episodes_file": str(self.folder / "episodes.txt"),
            "run_file": str(self.folder / "run.json"),
            "seed": str(self.run.seed),
            "folder": str(self.folder),
            "result": str(self.result),
            "digest": self.run.digest,
            "device": self.device,
            "study": str(self.home),
        }

    def environment(self, values: Mapping[str, Value], own: Mapping[str, str], resuming: bool) -> dict[str, str]:
        """The program's environment: ours, the placeholders, and the study's `environment:`."""
        return {
            "PYTHONUNBUFFERED": "1",  # otherwise a Python program's output is buffered in blocks of 8 kB
            **outside_environment(),
            **{f"FSC_{name.upper()}": str(values[name]) for name in _TOLD},
            "FSC_RESUME": "1" if resuming else "0",
            **{key: fill_text(text, values, f"trainer.environment.{key}") for key, text in own.items()},
        }

    def carry_out(
        self,
        command: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        hear: Hear,
        patience: float,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Run the program; `check` validates its results before the step counts as finished."""
        if not directory.is_dir():
            raise InvalidInput("no such folder", where=f"trainer.directory: {directory}")
        self._end_leftovers()
        note = {
            "command": list(command),
            "directory": str(directory),
            "resumed": environment["FSC_RESUME"] == "1",
            "began": time.time(),
            "mark": uuid.uuid4().hex,
        }
        write_text(self.folder / f"{self.name}.begun.json", json.dumps(note, indent=1) + "\n")
        self.result.unlink(missing_ok=True)  # a failed attempt may have left one
        log = self.folder / f"{self.name}.log"
        run_command(command, directory, environment, log, hear, patience, str(note["mark"]))
        check()
        ended = {**note, "ended": time.time()}
        write_text(self.folder / f"{self.name}.finished.json", json.dumps(ended, indent=1) + "\n")

    def _end_leftovers(self) -> None:
        """End processes of an earlier attempt on this machine whose worker and watchdog were both killed."""
        with contextlib.suppress(OSError, ValueError):
            note = json.loads((self.folder / f"{self.name}.begun.json").read_text(encoding="utf-8"))
            if isinstance(note, dict) and isinstance(note.get("mark"), str):
                end_all(note["mark"])
