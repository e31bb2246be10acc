"""The `command` trainer: any command line, with placeholders for its input and output."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factored_scaling.backends.episodes import found_in
from factored_scaling.backends.outcome import Outcome, OutcomeBackend, measured, read_outcome
from factored_scaling.backends.process import Hear
from factored_scaling.backends.steps import PLACEHOLDERS, Step
from factored_scaling.backends.template import check, check_ids, fill, plain, words
from factored_scaling.core.checks import check_keys, real, shown
from factored_scaling.core.design import RunSpec
from factored_scaling.errors import InvalidInput
from factored_scaling.progress import Progress

if TYPE_CHECKING:
    from factored_scaling.backends import BackendRequest

MOST_PATIENCE = 50  # seconds; after a minute `fsc run` ends its workers, and others may take their runs
SHOWN_EVERY = 0.1  # seconds; a program may print thousands of lines in that time
# "120/1000", "120 / 1,000", as progress bars and most loops print it; the last one of a line counts
_STEPS = re.compile(r"(\d[\d,]*)\s*/\s*(\d[\d,]*)")


@dataclass(frozen=True)
class CommandSettings:
    """A study's `trainer:` of kind command."""

    # the command line that trains a policy: a text, or a list of words
    command: tuple[str, ...]
    # a second command line that measures it; it must write scores or trials
    evaluate: tuple[str, ...] = ()
    # words that replace {resume} when an earlier attempt is resumed
    resume: tuple[str, ...] = ()
    # a file or folder in the run's folder that resuming requires; may contain * and ?
    resume_if: str = ""
    # a regular expression with two groups, steps done and steps in all, searched in every line of the output
    progress: str = ""
    # environment variables for the commands
    environment: Mapping[str, str] = field(default_factory=dict)
    # the LeRobot dataset that must hold the episodes, relative to the study's folder; not checked if empty
    dataset: str = ""
    # where the commands run, relative to the study's folder
    directory: str = "."
    # seconds for a stopped command to save its work
    patience: float = 30.0

    @classmethod
    def from_mapping(
        cls, data: Mapping[str, Any], policy: Mapping[str, Any], evaluation: Mapping[str, Any], more: Sequence[str] = ()
    ) -> CommandSettings:
        """Read `trainer:`; errors name the place, and for an unknown placeholder the nearest known one."""
        known = tuple(cls.__dataclass_fields__)
        check_keys(data, ("kind", *known), "trainer")
        if "command" not in data:
            raise InvalidInput("no command", where="trainer", hint="write the command line that trains a policy")
        placeholders = (*PLACEHOLDERS, *more, *plain(policy, "policy"), *plain(evaluation, "evaluation"))
        lines = {}
        for key in ("command", "evaluate", "resume"):
            lines[key] = words(data[key], f"trainer.{key}") if key in data else ()
            check(lines[key], placeholders, f"trainer.{key}")
        if lines["resume"] and "{resume}" not in (*lines["command"], *lines["evaluate"]):
            hint = "put {resume} where these words belong in the command"
            raise InvalidInput("{resume} is not in the command", where="trainer.resume", hint=hint)
        environment = _environment(data.get("environment", {}))
        check(tuple(environment.values()), placeholders, "trainer.environment")
        patience = real(data.get("patience", 30.0))
        if patience is None or not 0 < patience <= MOST_PATIENCE:
            raise InvalidInput(
                f"expected seconds up to {MOST_PATIENCE}, not {shown(data['patience'])}", where="trainer.patience"
            )
        return cls(
            **lines,
            resume_if=_text(data, "resume_if"),
            progress=_pattern(_text(data, "progress")),
            environment=environment,
            dataset=_text(data, "dataset"),
            directory=_text(data, "directory") or ".",
            patience=patience,
        )


class CommandBackend(OutcomeBackend):
    """Runs the study's command lines. Finished steps are recorded and not repeated."""

    keeps_results = True

    def __init__(self, settings: CommandSettings, home: Path, device: str | None = None) -> None:
        self.settings = settings
        self.folder = home.resolve()
        self._device = device or "cpu"

    @classmethod
    def from_request(cls, request: BackendRequest) -> CommandBackend:
        """The backend that a study's `trainer:` describes."""
        settings = CommandSettings.from_mapping(request.settings, request.policy, request.evaluation)
        return cls(settings, request.folder, request.device)

    def describe(self) -> dict[str, Any]:
        """The training settings, for the record: runs with different ones should not share a curve."""
        return {"kind": "command", "command": list(self.settings.command), "evaluate": list(self.settings.evaluate)}

    def check(self, episodes: Sequence[str]) -> None:
        """Check that the commands can take every id and that the study's dataset has all episodes."""
        for name in ("command", "evaluate", "resume"):
            check_ids(getattr(self.settings, name), episodes, f"trainer.{name}")
        if self.settings.dataset:
            found_in(self.folder / Path(self.settings.dataset).expanduser(), episodes)

    def train(self, run: RunSpec, folder: Path, progress: Progress) -> None:
        """Run the command unless an earlier attempt succeeded."""
        if not self._step("train", run, folder).finished:
            self.check(run.episodes)
        self._carry_out("train", self.settings.command, run, folder, progress)

    def outcome(self, run: RunSpec, folder: Path, factors: Sequence[str], progress: Progress) -> Outcome:
        """The outcome that the commands reported. Runs the second command if there is one."""
        outcome = read_outcome(self._step("train", run, folder).result, factors)
        if self.settings.evaluate:
            self._carry_out("evaluate", self.settings.evaluate, run, folder, progress)
            outcome = outcome.with_evaluation(measured(self._step("evaluate", run, folder), factors))
        return outcome

    def _step(self, name: str, run: RunSpec, folder: Path) -> Step:
        return Step(name, run, folder.resolve(), self.folder, self._device)

    def _carry_out(self, name: str, line: Sequence[str], run: RunSpec, folder: Path, progress: Progress) -> None:
        step = self._step(name, run, folder)
        if step.finished:
            return
        settings = self.settings
        directory = (self.folder / settings.directory).resolve()
        values = step.values()
        resuming = step.begun and (not settings.resume_if or any(step.folder.glob(settings.resume_if)))
        values["resume"] = fill(settings.resume, values, "trainer.resume") if resuming else []
        command = fill(line, values, "trainer.command" if name == "train" else "trainer.evaluate")
        environment = step.environment(values, settings.environment, resuming)
        step.carry_out(command, directory, environment, listener(settings.progress, progress), settings.patience)


def listener(pattern: str, progress: Progress) -> Hear:
    """Turns a program's lines into progress; `pattern` has two groups, steps done and steps in all."""
    steps = re.compile(pattern) if pattern else _STEPS
    done, total, note, last_report = 0, 1, "", 0.0

    def hear(line: str | None) -> None:
        nonlocal done, total, note, last_report
        if line is not None:
            note = line.strip()[-60:]
            counts = steps.findall(line)
            first, second = map(_number, counts[-1]) if counts else (None, None)
            if first is not None and second and first <= second:
                done, total = first, second
        if line is None or time.monotonic() - last_report >= SHOWN_EVERY:
            last_report = time.monotonic()
            progress(done, total, note)

    return hear


def _number(text: str) -> int | None:
    digits = text.replace(",", "")
    return int(digits) if digits.isdecimal() and len(digits) < 13 else None


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key, "")
    if not isinstance(value, str):
        raise InvalidInput(f"expected a text, not {shown(value)}", where=f"trainer.{key}")
    return value


def _pattern(pattern: str) -> str:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise InvalidInput(f"not a regular expression ({error})", where="trainer.progress") from None
    if pattern and groups != 2:
        what = f"has {groups} groups; two are needed: steps done and steps in all"
        raise InvalidInput(what, where="trainer.progress", hint=r"for example `step (\d+) of (\d+)`")
    return pattern


def _environment(data: object) -> dict[str, str]:
    if not isinstance(data, Mapping):
        raise InvalidInput(f"expected a mapping, not {shown(data)}", where="trainer.environment")
    for key, value in data.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise InvalidInput(f"expected a text, not {shown(value)}", where=f"trainer.environment.{key}")
    return {str(key): str(value) for key, value in data.items()}
