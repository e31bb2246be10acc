"""Videos of a task: the expert's demonstrations, and a policy's rollouts step by step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from factored_scaling.errors import FscError, installs
from factored_scaling.io.atomic import whole
from factored_scaling.sim.task import Act, Condition, DemoRequest, Task

RATE = 20  # frames per second: real time for the Panda
HEIGHT = 320  # pixels; smaller pictures are magnified
HOLD = 12  # how long the last frame of a clip stays
MOMENTS, TILE, GAP = 8, 112, 4  # of a still: frames of each clip, pixels of a frame's height and between frames
Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class Clip:
    """One episode: its title, its result, and a frame (cameras side by side, height × width × 3) per step."""

    label: str
    score: float
    frames: list[Picture]


class StepByStep:
    """Calls a policy at every `execute`-th step, but is called at every step, so that every step is recorded."""

    def __init__(self, act: Act, execute: int) -> None:
        self.act = act
        self.execute = execute
        self.ahead: dict[int, torch.Tensor] = {}
        self.asked: dict[int, int] = {}
        self.frames: dict[int, list[Picture]] = {}

    def __call__(self, images: torch.Tensor, state: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """The next action of every row."""
        numbers = [int(row) for row in rows.tolist()]
        for picture, row in zip(images.cpu().numpy(), numbers, strict=True):
            self.frames.setdefault(row, []).append(side_by_side(picture))
        due = [place for place, row in enumerate(numbers) if self.asked.get(row, 0) % self.execute == 0]
        if due:
            chosen = self.act(images[due], state[due], rows[due])
            self.ahead.update({numbers[place]: actions for place, actions in zip(due, chosen, strict=True)})
        now = []
        for row in numbers:
            step = self.asked.get(row, 0) % self.execute
            self.asked[row] = self.asked.get(row, 0) + 1
            now.append(self.ahead[row][step])
        return torch.stack(now)[:, None]


def demonstration(task: Task, factor: str | None, seed: int) -> Clip:
    """The expert's demonstration with the id FACTOR/SEED."""
    name = f"{factor or 'nominal'}/{seed}"
    table = task.demonstrate([DemoRequest(name, factor, seed)])
    return Clip(f"expert {name}", 1.0, [side_by_side(images) for images in table.images])


def rollouts(task: Task, act: Act, conditions: Sequence[Condition], execute: int, device: str = "cpu") -> list[Clip]:
    """Rollouts of the policy under the conditions, with every step."""
    watched = StepByStep(act, execute)
    scores = [score for _, score in task.rollout(watched, conditions, 1, device)]
    return [
        Clip(condition.key, score, watched.frames[row])
        for row, (condition, score) in enumerate(zip(conditions, scores, strict=True))
    ]


def side_by_side(images: NDArray[np.uint8]) -> Picture:
    """The cameras' pictures (cameras × 3 × height × width) next to each other."""
    return np.ascontiguousarray(np.concatenate(list(images.transpose(0, 2, 3, 1)), axis=1))


def write_video(clips: Iterable[Clip], path: Path) -> int:
    """Write the clips one after another as an H.264 MP4 that browsers play, whole or not at all; returns its frames.

    imageio-ffmpeg brings its own encoder in one wheel.
    """
    try:
        encoder: Any = import_module("imageio_ffmpeg")
    except ImportError:
        raise FscError("videos need the package imageio-ffmpeg", hint=installs("sim")) from None
    writer: Any = None
    count = 0
    with whole(path) as partial:
        try:
            for clip in clips:
                for frame in [*clip.frames, *[clip.frames[-1]] * HOLD]:
                    picture = _labelled(_magnified(frame), clip)
                    if writer is None:
                        size = picture.shape[1], picture.shape[0]
                        how = {"quality": 7, "macro_block_size": 2, "ffmpeg_log_level": "error"}
                        writer = encoder.write_frames(str(partial), size, fps=RATE, output_params=["-f", "mp4"], **how)
                        writer.send(None)
                    writer.send(picture)
                    count += 1
            if writer is None:
                raise FscError("there is nothing to show")
        finally:
            if writer is not None:
                writer.close()
    return count


def write_still(clips: Iterable[Clip], path: Path) -> int:
    """Write a PNG with one row per clip, its frames evenly spaced in time; returns the number of frames."""
    from PIL import Image

    rows = [_row(clip) for clip in clips]
    if not rows:
        raise FscError("there is nothing to show")
    picture = Image.fromarray(np.concatenate(rows))
    with whole(path) as partial:
        picture.quantize(256, kmeans=1, dither=Image.Dither.NONE).save(partial, format="PNG", optimize=True)
    return len(rows) * MOMENTS


def _row(clip: Clip) -> Picture:
    """A clip's label above its frames."""
    from PIL import Image

    tiles = []
    for index in np.linspace(0, len(clip.frames) - 1, MOMENTS).round().astype(int):
        frame = Image.fromarray(clip.frames[index])
        width = round(frame.width * TILE / frame.height)
        tiles.append(
            np.pad(np.asarray(frame.resize((width, TILE))), ((20, GAP), (0, GAP), (0, 0)), constant_values=255)
        )
    return _labelled(np.concatenate(tiles, axis=1), clip)


def _magnified(frame: Picture) -> Picture:
    times = max(1, -(-HEIGHT // frame.shape[0]))
    large = frame.repeat(times, axis=0).repeat(times, axis=1)
    return large[: large.shape[0] // 2 * 2, : large.shape[1] // 2 * 2]  # the encoder wants even sides


def _labelled(frame: Picture, clip: Clip) -> Picture:
    from PIL import Image, ImageDraw

    picture = Image.fromarray(frame)
    ending = "success" if clip.score >= 1 else f"score {clip.score:g}" if clip.score > 0 else "failure"
    draw = ImageDraw.Draw(picture)
    text = f"{clip.label}   {ending}"
    draw.rectangle((0, 0, 12 + draw.textlength(text), 18), fill=(0, 0, 0))
    draw.text((6, 3), text, fill=(255, 255, 255))
    return np.asarray(picture)
