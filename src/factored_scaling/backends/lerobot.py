"""The `lerobot` trainer: `lerobot-train` of the user's own environment, on the run's episodes and their statistics.

The episodes are written as a separate dataset, and all of it is used. LeRobot's own selection, `--dataset.episodes`,
normalises with the statistics of all episodes in every version. In 0.4.4 to 0.5.1 it also reads wrong frames for
policies that drop the ends of episodes, such as the diffusion policy.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factored_scaling.backends.command import CommandSettings, listener
from factored_scaling.backends.embedder import ProxySettings, embedded, varied_factors
from factored_scaling.backends.episodes import found_in
from factored_scaling.backends.outcome import Outcome, OutcomeBackend, measured
from factored_scaling.backends.process import Hear, outside_environment
from factored_scaling.backends.protocol import Context, Embeddings
from factored_scaling.backends.steps import Step
from factored_scaling.backends.template import fill
from factored_scaling.core.checks import check_keys, shown, whole
from factored_scaling.core.design import RunSpec
from factored_scaling.errors import InvalidInput, RunFailed, UnknownName
from factored_scaling.io.text import write_text
from factored_scaling.progress import Progress

if TYPE_CHECKING:
    from factored_scaling.backends import BackendRequest

OLDEST = (0, 4, 0)  # earlier versions have another layout of datasets
LOADED = "All keys loaded successfully!"
# texts that differ between versions
NOT_LOADED = (
    "Returning model without loading pretrained weights",
    "Could not remap state dict keys",
    "Could not load state dict",
)
POLICY_MADE = "Creating optimizer and scheduler"  # printed once the policy is loaded
SAYS_WHETHER_LOADED = ("pi0", "pi05", "pi0_fast")
# π0 as the paper fine-tunes it
PRESETS: dict[str, dict[str, Any]] = {
    "pi0": {
        "type": "pi0",
        "steps": 10_000,
        "batch_size": 32,
        "options": {
            "pretrained_path": "lerobot/pi0_base",
            "train_expert_only": True,
            "freeze_vision_encoder": True,
            "dtype": "bfloat16",
            "gradient_checkpointing": True,
        },
    }
}
CHECKPOINTS = "lerobot/checkpoints"
LAST = f"{CHECKPOINTS}/last/pretrained_model"
SELECTION = "fsc_selection.json"
_OURS = ("output_dir", "resume", "config_path", "seed", "steps", "batch_size", "policy.type", "policy.push_to_hub",
         "policy.device", "dataset.repo_id", "dataset.root", "dataset.episodes")  # fmt: skip
_BAR = re.compile(r"Training:.*?(\d+)/(\d+) \[")
_LOGGED = re.compile(r"\bstep:(\d+(?:\.\d+)?)([KMB]?)\b")
_NUMBERS = re.compile(r"\b(loss|grdn|lr):([-+.\deE]+|nan|inf)\b")
_VERSION = "import importlib.metadata as m; print(m.version('lerobot'))"


@dataclass(frozen=True)
class LerobotPolicy:
    """A study's `policy:` for this trainer. All of it is part of a run's identity."""

    # LeRobot's name of the policy: diffusion, act, pi0, …
    type: str
    # updates, and examples in each
    steps: int
    batch_size: int
    # the policy's own options, without their `--policy.`
    options: Mapping[str, Any]
    # other options of lerobot-train that affect the policy, such as `optimizer.lr`
    training: Mapping[str, Any]

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> LerobotPolicy:
        """Read `policy:`: a `preset`, and settings that override it."""
        known = ("preset", *cls.__dataclass_fields__)
        hint = "options of the policy belong under `options:`, others of lerobot-train under `training:`"
        check_keys(data, known, "policy", hint)
        preset = data.get("preset")
        if preset is not None and preset not in PRESETS:
            raise UnknownName(str(preset), PRESETS, kind="preset", where="policy.preset")
        given = {"batch_size": 8, **(PRESETS[preset] if preset is not None else {}), **data}
        for key in ("type", "steps"):
            if key not in given:
                raise InvalidInput(f"no {key}", where="policy", hint="for example `type: diffusion` and `steps: 50000`")
        if not isinstance(given["type"], str) or not given["type"]:
            raise InvalidInput(f"expected a policy's name, not {shown(given['type'])}", where="policy.type")
        before = PRESETS[preset].get("options", {}) if preset is not None else {}
        return cls(
            given["type"],
            whole(given["steps"], "policy.steps", least=1),
            whole(given["batch_size"], "policy.batch_size", least=1),
            {**before, **_options(data, "options", "policy.")},
            _options(data, "training", ""),
        )

    def flags(self) -> list[str]:
        """Options of the command line for the policy."""
        fixed = {"policy.type": self.type, "steps": self.steps, "batch_size": self.batch_size}
        own = {f"policy.{key}": value for key, value in self.options.items()}
        return [f"--{key}={_flag(value)}" for key, value in {**fixed, **own, **self.training}.items()]


@dataclass(frozen=True)
class LerobotSettings:
    """A study's `trainer:` of kind lerobot."""

    # the Python of the environment in which LeRobot is installed
    python: Path
    # the dataset whose episodes the study names
    dataset: Path
    # options for lerobot-train that do not affect the policy: --num_workers=8, --wandb.enable=true
    arguments: tuple[str, ...]
    # checkpoints per run, at equal intervals
    saves: int
    # held-out scenes and the embedding to compare them by, for FSC-Proxy
    proxy: ProxySettings | None
    # evaluate, environment, directory, patience: as for a command
    common: CommandSettings

    @classmethod
    def from_mapping(
        cls, data: Mapping[str, Any], policy: Mapping[str, Any], home: Path, evaluation: Mapping[str, Any]
    ) -> LerobotSettings:
        """Read `trainer:`; paths are relative to the study's folder."""
        own, shared = (
            ("python", "dataset", "arguments", "saves", "proxy"),
            ("evaluate", "environment", "directory", "patience"),
        )
        check_keys(data, ("kind", *own, *shared), "trainer")
        paths = {}
        for key, what in (("python", "the Python in which LeRobot is installed"), ("dataset", "a LeRobot dataset")):
            if not isinstance(data.get(key), str) or not data[key]:
                raise InvalidInput(f"no {key}", where="trainer", hint=f"give the path of {what}")
            paths[key] = home / Path(data[key]).expanduser()  # not resolved, because a venv's Python is a link
            if not paths[key].exists():
                raise InvalidInput("no such path", where=f"trainer.{key}: {paths[key]}", hint=f"give {what}")
        arguments = data.get("arguments", [])
        if not isinstance(arguments, list) or not all(isinstance(a, str) and a.startswith("--") for a in arguments):
            what = f"expected a list of options such as --num_workers=8, not {shown(arguments)}"
            raise InvalidInput(what, where="trainer.arguments")
        for argument in arguments:
            _refuse_ours(argument.removeprefix("--").partition("=")[0], "trainer.arguments")
        common = {key: data[key] for key in shared if key in data}
        return cls(
            **paths,
            arguments=tuple(arguments),
            saves=whole(data.get("saves", 5), "trainer.saves", least=1),
            proxy=ProxySettings.from_mapping(data.get("proxy"), LerobotPolicy.from_mapping(policy).type, home),
            common=CommandSettings.from_mapping(
                {"command": "lerobot-train", **common}, policy, evaluation, ["checkpoint"]
            ),
        )


class LerobotBackend(OutcomeBackend):
    """Trains each run with LeRobot and leaves its checkpoint in the run's folder."""

    keeps_results = True

    def __init__(self, policy: LerobotPolicy, settings: LerobotSettings, home: Path, device: str | None = None) -> None:
        self.policy = policy
        self.settings = settings
        self.folder = home.resolve()
        self.version = lerobot_version(settings.python, settings.common.environment)
        self._device = device

    @classmethod
    def from_request(cls, request: BackendRequest) -> LerobotBackend:
        """The backend that a study's `trainer:` describes."""
        place = request.folder.resolve()
        settings = LerobotSettings.from_mapping(request.settings, request.policy, place, request.evaluation)
        return cls(LerobotPolicy.from_mapping(request.policy), settings, place, request.device)

    def describe(self) -> dict[str, Any]:
        """The training settings, for the record."""
        return {
            "kind": "lerobot",
            "version": self.version,
            "arguments": list(self.settings.arguments),
            "evaluate": list(self.settings.common.evaluate),
        }

    def check(self, episodes: Sequence[str]) -> None:
        """Check that the dataset has all episodes."""
        found_in(self.settings.dataset, episodes)

    def train(self, run: RunSpec, folder: Path, progress: Progress) -> None:
        """Write the run's episodes as a dataset and train on it, from the last checkpoint if there is one."""
        step = self._step("train", run, folder)
        if step.finished:
            return
        chosen = self._select(run, step.folder / "dataset", progress)
        resuming = (step.folder / LAST / "train_config.json").exists()
        if not resuming:  # LeRobot refuses an existing folder
            shutil.rmtree(step.folder / "lerobot", ignore_errors=True)
        values = {**step.values(), "checkpoint": str(step.folder / LAST), "resume": []}
        environment = step.environment(values, self.settings.common.environment, resuming)
        hear = _listener(self.policy, step.folder, progress)

        def check() -> None:
            read_checkpoint(step.folder)
            write_text((step.folder / LAST).resolve() / SELECTION, chosen)
            _prune(step.folder / CHECKPOINTS, keep=1)
            shutil.rmtree(step.folder / "dataset")  # large, and can be written again

        command = self._command(run, step.folder, resuming)
        step.carry_out(command, self.folder, environment, hear, self.settings.common.patience, check)

    def outcome(self, run: RunSpec, folder: Path, factors: Sequence[str], progress: Progress) -> Outcome:
        """The checkpoint, and the results of the study's `evaluate` command, if there is one."""
        place = folder.resolve()
        checkpoint = read_checkpoint(place)
        outcome = Outcome((), (), str(checkpoint.relative_to(place)), _last_numbers(place / "train.log"))
        common = self.settings.common
        if not common.evaluate:
            return outcome
        step = self._step("evaluate", run, place)
        if not step.finished:
            values = {**step.values(), "checkpoint": str(checkpoint), "resume": []}
            command = fill(common.evaluate, values, "trainer.evaluate")
            environment = step.environment(values, common.environment, False)
            directory = (self.folder / common.directory).resolve()
            step.carry_out(command, directory, environment, listener("", progress), common.patience)
        return outcome.with_evaluation(measured(step, factors))

    def embed(self, run: RunSpec, folder: Path, context: Context) -> Embeddings | None:
        """Embeddings for FSC-Proxy, for studies that name held-out scenes under `proxy`.

        One row per episode of the run, and one per episode of the held-out dataset, in the order of their numbers.
        """
        from factored_scaling.data.lerobot.dataset import LerobotDataset

        settings = self.settings
        if settings.proxy is None:
            return None
        environment = {**outside_environment(), "PYTHONUNBUFFERED": "1", **settings.common.environment}
        rows = partial(embedded, settings.proxy, settings.python, environment, self._device, folder, context)
        scenes = LerobotDataset.open(settings.proxy.held_out)
        held_out = rows(scenes, [entry.index for entry in scenes.episodes])
        trained = rows(*found_in(settings.dataset, run.episodes))
        return Embeddings(trained, held_out, tuple(varied_factors(settings.proxy.held_out)))

    def _step(self, name: str, run: RunSpec, folder: Path) -> Step:
        return Step(name, run, folder.resolve(), self.folder, self._device or "cpu")

    def _select(self, run: RunSpec, target: Path, progress: Progress) -> str:
        """Write the run's episodes as a separate dataset; returns the note on its episodes and statistics."""
        from factored_scaling.data.lerobot.select import SELECTION as NOTE
        from factored_scaling.data.lerobot.select import select_episodes

        if not (target / NOTE).exists():
            progress(0, self.policy.steps, "selecting episodes")
            shutil.rmtree(target, ignore_errors=True)
            select_episodes(*found_in(self.settings.dataset, run.episodes), target)
        return (target / NOTE).read_text(encoding="utf-8")

    def _command(self, run: RunSpec, folder: Path, resuming: bool) -> list[str]:
        start = [str(self.settings.python), "-m", "lerobot.scripts.lerobot_train"]
        if resuming:  # everything else is in the checkpoint
            return [*start, f"--config_path={folder / LAST / 'train_config.json'}", "--resume=true"]
        every = max(1, self.policy.steps // self.settings.saves)
        flags = {
            "dataset.repo_id": "fsc/selected",
            "dataset.root": str(folder / "dataset"),
            "output_dir": str(folder / "lerobot"),
            "seed": run.seed,
            "policy.push_to_hub": False,
            "save_freq": every,
            "log_freq": max(1, min(200, self.policy.steps // 20)),
            "wandb.enable": False,
        }
        if self._device is not None:
            flags["policy.device"] = self._device
        ours = {f"--{key}": f"--{key}={_flag(value)}" for key, value in flags.items()}
        for later in (*self.policy.flags(), *self.settings.arguments):
            ours[later.partition("=")[0]] = later  # LeRobot accepts an option only once
        return [*start, *ours.values()]


def lerobot_version(python: Path, environment: Mapping[str, str]) -> str:
    """The version of LeRobot in this Python; an error if it is missing or too old."""
    try:
        own = {**outside_environment(), **environment}
        done = subprocess.run([python, "-c", _VERSION], env=own, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InvalidInput(f"cannot be run ({error})", where=f"trainer.python: {python}") from None
    version = done.stdout.strip()
    if done.returncode != 0 or not version:
        raise InvalidInput("has no LeRobot", where=f"trainer.python: {python}", hint="give the Python that has it")
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    if numbers < OLDEST:
        hint = "0.4.0 and later read datasets of version 3.0, which is what is written here"
        raise InvalidInput(f"has LeRobot {version}, which is too old", where=f"trainer.python: {python}", hint=hint)
    return version


def read_checkpoint(folder: Path) -> Path:
    """The newest checkpoint in a run's folder, if it is complete."""
    place = (folder / LAST).resolve()
    for name in ("config.json", "model.safetensors", "train_config.json"):
        if not (place / name).is_file():
            raise RunFailed(f"LeRobot left no {name}", where=str(folder / LAST), hint=f"see {folder / 'train.log'}")
    try:
        json.loads((place / "config.json").read_bytes())
    except ValueError:
        raise RunFailed("the checkpoint's config.json is not JSON", where=str(place)) from None
    return place


def _listener(policy: LerobotPolicy, folder: Path, progress: Progress) -> Hear:
    """Progress from the bar or the log lines; ends the training if a pretrained policy was not loaded."""
    must_load = policy.type in SAYS_WHETHER_LOADED and bool(policy.options.get("pretrained_path"))
    done, note, loaded = 0, "", not must_load

    def hear(line: str | None) -> None:
        nonlocal done, note, loaded
        if line is not None:
            note = line.strip()[-60:]
            done = max(done, _steps(line, policy.steps))
            loaded = loaded or LOADED in line
            silent = [text for text in NOT_LOADED if text in line]
            if must_load and (silent or (POLICY_MADE in line and not loaded)):
                path = policy.options["pretrained_path"]
                hint = "without it LeRobot would train from random weights; is it there, and may it be downloaded?"
                what = f"the checkpoint {path} was not loaded whole"
                raise InvalidInput(what, where=str(folder / "train.log"), hint=hint)
            if "Checkpoint policy after step" in line:
                _prune(folder / CHECKPOINTS, keep=2)
        progress(done, policy.steps, note)

    return hear


def _steps(line: str, total: int) -> int:
    bar = _BAR.search(line)
    if bar:  # after a resume the bar counts the remaining steps
        return max(0, total - (int(bar[2]) - int(bar[1])))
    logged = _LOGGED.search(line)
    if logged:
        return min(total, int(float(logged[1]) * {"": 1, "K": 1e3, "M": 1e6, "B": 1e9}[logged[2]]))
    return 0


def _last_numbers(log: Path) -> dict[str, Any]:
    """The last logged loss and other metrics, for the record."""
    metrics: dict[str, str] = dict(_NUMBERS.findall(log.read_text(encoding="utf-8", errors="replace")))
    return {name: float(value) if value not in ("nan", "inf") else value for name, value in metrics.items()}


def _prune(checkpoints: Path, keep: int) -> None:
    """Remove the oldest checkpoints: each is as large as the policy and its optimizer."""
    numbered = sorted((path for path in checkpoints.glob("[0-9]*") if path.is_dir()), key=lambda path: int(path.name))
    for path in numbered[:-keep]:
        shutil.rmtree(path, ignore_errors=True)


def _options(data: Mapping[str, Any], key: str, prefix: str) -> dict[str, Any]:
    given = data.get(key, {})
    if not isinstance(given, Mapping):
        raise InvalidInput(f"expected a mapping, not {shown(given)}", where=f"policy.{key}")
    for name in given:
        _refuse_ours(f"{prefix}{name}", f"policy.{key}")
    return dict(given)


def _refuse_ours(name: str, where: str) -> None:
    if name in _OURS:
        raise InvalidInput(f"{name} is set by the study", where=where, hint="leave it out")


def _flag(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
