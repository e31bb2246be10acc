"""Updates per second of LeRobot's diffusion policy in its own training loop, beside ours, on the same frames and sizes.

    python benchmarks/lerobot_throughput.py                       # in an environment that has lerobot
    python benchmarks/lerobot_throughput.py --device cuda --batch 64 --image-sizes 96 128 192 --cameras 1 2

Both train a ResNet-18 per camera and a U-Net of the same widths, horizon, batch and pictures, in single precision, one
policy. LeRobot's is `lerobot-train` itself, with its dataset (pictures kept as PNG, which it reads faster than video),
data loader, processors and optimiser; the time of an update alone, without waiting for data, stands beside it. Ours is
the plain loop, which also jitters colours and averages the weights; `train_throughput.py` measures what graphs add to
it. The two take turns and the fastest round of each is kept. On a CPU one thread is used and its own seconds are
counted, not the clock's, so that other programs do not matter; LeRobot's data loader then works in the loop.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.util
import io
import logging
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from factored_scaling.data.frames import FrameTable
from factored_scaling.machine import processor
from factored_scaling.policies.config import DiffusionConfig
from factored_scaling.policies.diffusion import build_learner
from factored_scaling.policies.training import Training
from factored_scaling.policies.windows import DeviceFrames
from factored_scaling.sim import DemoRequest, load_task

TASKS = {1: "tabletop/pick-place", 2: "tabletop/insert"}  # by number of cameras
WARM = 2  # updates at the start of a round that are not counted


@dataclass
class Round:
    """Seconds per update: with everything between two updates, and of the update alone."""

    whole: float
    update: float
    weights: int


def main() -> None:
    options = _options()
    if importlib.util.find_spec("lerobot") is None:
        print("lerobot is not installed here: nothing to compare with")
        return
    logging.disable(logging.WARNING)
    lines = [*_where(options), ""]
    lines += [
        "| image | cameras | LeRobot, its own loop | waiting for data | LeRobot, update alone | ours, plain loop | "
        "ours against its loop | against its update | weights, LeRobot | ours |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for size in options.image_sizes:
        for cameras in options.cameras:
            lines.append(_row(size, cameras, options))
            print(lines[-1], file=sys.stderr, flush=True)
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--image-sizes", type=int, nargs="+", default=[96])
    parser.add_argument("--cameras", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--updates", type=int, default=6, help="counted updates per round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loaders", type=int, default=4, help="LeRobot's data loader processes, on a GPU")
    parser.add_argument("--demos", type=int, default=20)
    parser.add_argument("--out", type=Path, help="also write the report to this file")
    options = parser.parse_args()
    if options.device == "cpu":
        torch.set_num_threads(1)
        options.loaders = 0
    return options


def _row(size: int, cameras: int, options: argparse.Namespace) -> str:
    task = load_task(TASKS[cameras], size)
    table = task.demonstrate([DemoRequest(str(i), task.factors[i % 5], i) for i in range(options.demos)])
    with tempfile.TemporaryDirectory() as folder:
        dataset = Path(folder) / "dataset"
        _write(table, dataset)
        theirs, ours = [], []
        for number in range(options.rounds):
            theirs.append(_lerobot(dataset, Path(folder) / f"out-{number}", cameras, options))
            ours.append(_plain(table, options))
    best = Round(min(r.whole for r in theirs), min(r.update for r in theirs), theirs[0].weights)
    mine = min(ours, key=lambda one: one.whole)
    cells = [
        f"{size} px",
        str(cameras),
        f"{1 / best.whole:.2f}",
        f"{1 - best.update / best.whole:.0%}",
        f"{1 / best.update:.2f}",
        f"{1 / mine.whole:.2f}",
        f"{best.whole / mine.whole:.2f}×",
        f"{best.update / mine.whole:.2f}×",
        f"{best.weights / 1e6:.1f} M",
        f"{mine.weights / 1e6:.1f} M",
    ]
    return f"| {' | '.join(cells)} |"


def _write(table: FrameTable, root: Path) -> None:
    """The frames as a LeRobot dataset."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    _, cameras, _, height, width = table.images.shape
    features: dict[str, Any] = {
        f"observation.images.camera{camera}": {
            "dtype": "image",
            "shape": (height, width, 3),
            "names": ["height", "width", "channels"],
        }
        for camera in range(cameras)
    }
    features |= {
        "observation.state": {"dtype": "float32", "shape": (table.state.shape[1],), "names": None},
        "action": {"dtype": "float32", "shape": (table.action.shape[1],), "names": None},
    }
    with _quiet():
        dataset = LeRobotDataset.create("benchmark/frames", 10, features, root=root, use_videos=False)
        for episode in range(len(table)):
            for frame in range(table.starts[episode], table.starts[episode + 1]):
                pictures = {
                    f"observation.images.camera{camera}": table.images[frame, camera].transpose(1, 2, 0)
                    for camera in range(cameras)
                }
                rest = {"observation.state": table.state[frame], "action": table.action[frame], "task": "task"}
                dataset.add_frame({**pictures, **rest})
            dataset.save_episode()
        dataset.finalize()


def _lerobot(dataset: Path, out: Path, cameras: int, options: argparse.Namespace) -> Round:
    """A round of `lerobot-train`, timed from the end of one update to the end of the next."""
    from lerobot.configs.default import DatasetConfig
    from lerobot.configs.train import TrainPipelineConfig
    from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig as TheirConfig
    from lerobot.scripts import lerobot_train

    same = DiffusionConfig.preset("paper")
    policy = TheirConfig(
        n_obs_steps=1,
        horizon=same.horizon,
        n_action_steps=same.execute,
        down_dims=same.widths,
        kernel_size=same.kernel,
        diffusion_step_embed_dim=same.time_embedding,
        num_train_timesteps=same.diffusion_steps,
        use_separate_rgb_encoder_per_camera=cameras > 1,
        device=options.device,
        push_to_hub=False,
    )
    settings = TrainPipelineConfig(
        dataset=DatasetConfig(repo_id="benchmark/frames", root=str(dataset)),
        policy=policy,
        output_dir=out,
        batch_size=options.batch,
        steps=WARM + options.updates,
        num_workers=options.loaders,
        save_checkpoint=False,
        eval_freq=0,
        log_freq=0,
        seed=0,
    )
    ends: list[float] = []
    updates: list[float] = []
    weights = 0
    original: Callable[..., Any] = lerobot_train.update_policy

    def timed(tracker: Any, model: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal weights
        weights = sum(parameter.numel() for parameter in model.parameters())
        _wait(options.device)
        began = _now(options)
        answer = original(tracker, model, *arguments, **named)
        _wait(options.device)
        ends.append(_now(options))
        updates.append(ends[-1] - began)
        return answer

    lerobot_train.update_policy = timed
    argv, sys.argv = sys.argv, sys.argv[:1]  # its configuration looks for arguments of its own
    try:
        with _quiet():
            lerobot_train.train(settings)
    finally:
        lerobot_train.update_policy = original
        sys.argv = argv
    return Round((ends[-1] - ends[WARM - 1]) / options.updates, sum(updates[WARM:]) / options.updates, weights)


def _plain(table: FrameTable, options: argparse.Namespace) -> Round:
    """A round of our plain loop."""
    config = DiffusionConfig.preset("paper", batch=options.batch, precision="float32")
    frames = DeviceFrames.of(table, options.device)
    learner = build_learner(frames, torch.arange(len(frames.state), device=options.device), config, 0)
    training = Training(learner, config.optimisation)
    for _ in range(WARM):
        training.update()
    _wait(options.device)
    began = _now(options)
    for _ in range(options.updates):
        training.update()
    _wait(options.device)
    took = (_now(options) - began) / options.updates
    return Round(took, took, sum(parameter.numel() for parameter in learner.module.parameters()))


def _now(options: argparse.Namespace) -> float:
    """On a CPU the processor's seconds of this process, so that other programs on the machine do not count."""
    return time.process_time() if options.device == "cpu" else time.perf_counter()


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


@contextlib.contextmanager
def _quiet() -> Any:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def _where(options: argparse.Namespace) -> list[str]:
    from importlib.metadata import version

    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    machine = torch.cuda.get_device_name() if options.device.startswith("cuda") else processor()
    return [
        "# LeRobot's diffusion policy and ours: updates per second of one policy",
        "",
        f"{today}, {machine}, {torch.get_num_threads()} thread(s), torch {torch.__version__}, "
        f"lerobot {version('lerobot')}, Python {platform.python_version()}; load before it {os.getloadavg()[0]:.1f}.",
        f"`{' '.join(['python', *sys.argv])}`",
        "",
        f"Batch {options.batch}, ResNet-18 per camera, U-Net {DiffusionConfig.preset('paper').widths}, "
        f"single precision; best of {options.rounds} rounds of {options.updates} updates; "
        + (f"{options.loaders} loader processes." if options.loaders else "the processor's seconds, not the clock's."),
    ]


if __name__ == "__main__":
    main()
