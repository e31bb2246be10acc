"""fsc policy: serve a trained policy to a robot, and measure anybody's in the simulator"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from factored_scaling.cli.group import Group
from factored_scaling.cli.output import OutputFile
from factored_scaling.cli.show import json_option, print_json, print_table, say, with_interval
from factored_scaling.core.trials import result_of
from factored_scaling.errors import CheckpointError, InvalidInput

if TYPE_CHECKING:
    from factored_scaling.core.trials import Trial
    from factored_scaling.serving.server import Served


@click.group("policy", cls=Group)
def policy_command() -> None:
    """Serve policies over the network in openpi's protocol, and measure served ones.

    \b
    fsc policy serve my-study/runs/0f3a…
    fsc policy serve my-study
    fsc policy evaluate ws://127.0.0.1:8000 --task tabletop/pick-place
    """


@policy_command.command("serve")
@click.argument("place", metavar="FOLDER|STUDY", type=click.Path())
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; 0.0.0.0 for other machines.")
@click.option(
    "--port",
    default=8000,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 picks a free one.",
)
@click.option("--device", help="cpu, cuda, cuda:1, mps. Default: cpu, or LeRobot's choice.")
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Seed of the noise that actions are sampled from.",
)
@click.option("--python", type=click.Path(exists=True, dir_okay=False), help="For LeRobot policies: LeRobot's Python.")
@click.option("--keep", type=click.IntRange(1), help="With a STUDY: how many policies to hold in memory. Default: all.")
@click.option("--key-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A file with the key.")
def serve_command(
    place: str,
    host: str,
    port: int,
    device: str | None,
    seed: int,
    python: str | None,
    keep: int | None,
    key_file: Path | None,
) -> None:
    """Serve a trained policy to a robot's control loop, until Ctrl-C.

    FOLDER is a run's, STUDY/runs/DIGEST. With a STUDY all policies of its blind evaluation are served, and every
    observation says under `policy` which label is meant; the server never says which policy that is.

    Clients of openpi can talk to it. To one of our policies an observation has `images` (cameras × height × width × 3,
    uint8) and `state`, and the answer has `actions` (horizon × action size). A policy that LeRobot trained takes
    its own features by name, and answers with one action at a time.

    Only this machine can reach it unless --host says otherwise, and then clients need a key: from --key-file or the
    environment variable FSC_POLICY_KEY. The connection is not encrypted.

    \b
    fsc policy serve my-study/runs/0f3a… --device cuda
    fsc policy serve my-study                                    by label, on the day of scoring
    FSC_POLICY_KEY=… fsc policy serve my-study/runs/0f3a… --host 0.0.0.0
    """
    from factored_scaling.serving.server import PolicyServer

    folder = Path(place)
    loaders = None if _is_run(folder) else _by_label(place, device, seed, python)
    if loaders is None:
        policy = _loader(folder, device, seed, python, {})()
    else:
        from factored_scaling.serving.labelled import ServedByLabel

        policy = ServedByLabel(loaders, keep)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with PolicyServer(policy, host, port, _key(key_file)) as server:
        say(f"{place}: {server.address}")
        for name, value in policy.metadata.items():
            say(f"  {name}: {', '.join(value) if isinstance(value, list) else value}")
        say("stop with Ctrl-C")
        sys.stdout.flush()
        stop.wait()


@policy_command.command("evaluate")
@click.argument("address")
@click.option("--task", required=True, help="A simulated task; `fsc sim list` lists them.")
@click.option("--settings", type=click.IntRange(1), help="Held-out settings per factor. Default: all.")
@click.option("--initial-states", type=click.IntRange(1), help="Initial states per setting.")
@click.option("--factor", "factors", multiple=True, help="Only this factor; repeat for several.")
@click.option(
    "--execute", type=click.IntRange(1), help="Actions of a chunk to execute. Default: the policy's own number."
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Seed of the policy's noise.")
@click.option(
    "--image-size", type=click.IntRange(8), help="Width and height of the images in pixels. Default: the policy's own."
)
@click.option("--camera", "cameras", multiple=True, help="Third-party policies: key of a camera's images. Repeatable.")
@click.option(
    "--state-key", default="observation/state", show_default=True, help="Third-party policies: key of the state."
)
@click.option("--prompt", default="", help="Third-party policies: text to send with every observation.")
@click.option("--key-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A file with the key.")
@click.option(
    "--wait",
    default=0.0,
    type=click.FloatRange(0),
    help="Seconds to wait until the server is up. Default: 0.",
)
@click.option("--result", type=OutputFile(), help="Write the trials to this JSON file.")
@json_option
def evaluate_command(
    address: str,
    task: str,
    settings: int | None,
    initial_states: int | None,
    factors: tuple[str, ...],
    execute: int | None,
    seed: int,
    image_size: int | None,
    cameras: tuple[str, ...],
    state_key: str,
    prompt: str,
    key_file: Path | None,
    wait: float,
    result: Path | None,
    as_json: bool,
) -> None:
    """Roll a served policy out in the simulator and score it under held-out values of every factor.

    ADDRESS is HOST, HOST:PORT or ws://HOST:PORT. For other policies, such as openpi's, name the keys
    of their observations. An unreachable server is an error; --wait retries while the server starts. --result writes
    the file that a study's `trainer:` reads, so this command can be its `evaluate`.

    \b
    fsc policy evaluate 127.0.0.1:8000 --task tabletop/pick-place
    fsc policy serve my-study/runs/0f3a… & fsc policy evaluate 127.0.0.1 --task tabletop/pick-place --wait 60
    fsc policy evaluate gpu-box --task tabletop/insert --camera observation/image --prompt "insert the peg" --execute 8
    """
    from factored_scaling.backends.simulation import Lab
    from factored_scaling.cli.run import Bars
    from factored_scaling.io.text import write_text
    from factored_scaling.serving.client import PolicyClient

    sizes = {"settings": settings, "initial_states": initial_states, "factors": list(factors) or None}
    evaluation = {name: size for name, size in sizes.items() if size is not None}
    with PolicyClient(address, _key(key_file), patience=wait) as client:
        from factored_scaling.serving.evaluate import Keys, evaluate_served  # loads torch: not before a server is there

        lab = Lab(task, Path.cwd(), image_size=image_size or client.whole_number("height", 8, 4096))
        steps = execute or client.whole_number("execute", 1, 10_000)
        if steps is None:
            raise InvalidInput("the policy does not say how many actions to carry out", where="--execute")
        keys = Keys(cameras, state_key, prompt) if cameras else None
        if keys is not None and len(cameras) != lab.task.cameras:
            raise InvalidInput(f"cameras of {task}: {lab.task.cameras}, not {len(cameras)}", where="--camera")
        trials = list(evaluate_served(client, lab, evaluation, steps, Bars.single, seed, keys))
    if result is not None:
        import json

        write_text(result, json.dumps({"trials": [_entry(trial) for trial in trials]}) + "\n")
    measured = result_of(trials)
    scores = {"+".join(names): score for names, score in measured.by_factor.items()} | {"all": measured.overall}
    if as_json:
        summary = {name: {"score": s.mean, "interval": [s.interval.low, s.interval.high]} for name, s in scores.items()}
        print_json({"address": client.address, "task": task, "trials": len(trials), "scores": summary})
        return
    rows = [(name, with_interval(score.mean, score.interval), str(score.trials)) for name, score in scores.items()]
    print_table(f"{client.address} in {task}", ("factor", "score", "trials"), rows)


def _is_run(folder: Path) -> bool:
    from factored_scaling.backends.lerobot import LAST

    return (folder / "policy.json").exists() or (folder / LAST).exists()


def _loader(
    folder: Path, device: str | None, seed: int, python: str | None, environment: Mapping[str, str]
) -> Callable[[], Served]:
    """A loader for the policy in a run's folder, whichever backend trained it; an error when there is none."""
    if (folder / "policy.json").exists():
        from factored_scaling.policies.capacity import check_device
        from factored_scaling.serving.diffusion import ServedDiffusion

        check_device(device or "cpu")
        return lambda: ServedDiffusion(folder, device or "cpu", seed)
    if not _is_run(folder):
        hint = "`fsc run` trains it; what a command of your own trained, a program of your own serves"
        raise CheckpointError("no trained policy here", where=str(folder), hint=hint)
    if python is None:
        what, hint = "LeRobot trained this policy", "give the Python that has LeRobot"
        raise InvalidInput(what, where="--python", hint=hint)
    from factored_scaling.serving.lerobot import ServedLerobot

    chosen = Path(python)
    return lambda: ServedLerobot(folder, chosen, environment, device)


def _by_label(place: str, device: str | None, seed: int, python: str | None) -> dict[str, Callable[[], Served]]:
    """The policies of a study's blind evaluation, by label."""
    from factored_scaling.backends import backend_settings
    from factored_scaling.cli.target import Target
    from factored_scaling.runner.options import run_folder
    from factored_scaling.scoring.session import Scoring

    target = Target.parse(place)
    home = target.folder or Path.cwd()
    with target.study() as opened:
        settings = backend_settings(opened.spec)
        if python is None and settings.get("kind") == "lerobot" and isinstance(settings.get("python"), str):
            python = str(home / Path(settings["python"]).expanduser())
        environment = settings.get("environment", {})
        return {
            standing.label: _loader(run_folder(home, standing.run.digest), device, seed, python, environment)
            for standing in Scoring.open(opened).standings()
        }


def _entry(trial: Trial) -> dict[str, object]:
    factor = "+".join(trial.factor)
    return {"key": trial.key, "score": trial.score, "factor": factor, "setting": trial.setting}


def _key(path: Path | None) -> str | None:
    from factored_scaling.io.text import read_text

    if path is not None:
        return read_text(path).strip()  # an empty file is an error: a key was asked for
    return os.environ.get("FSC_POLICY_KEY") or None
