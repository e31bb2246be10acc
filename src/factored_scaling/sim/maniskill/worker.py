"""A simulator process: it holds one environment per lane and carries out jobs from its pipe."""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from factored_scaling.errors import FscError
from factored_scaling.sim.maniskill.rules import Rules
from factored_scaling.sim.maniskill.scene import Scene

if TYPE_CHECKING:
    from factored_scaling.sim.maniskill.stage import Stage

Actions = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Options:
    """How a process simulates."""

    rules: Rules
    image_size: int
    render: bool = True
    coarse: bool = True


@dataclass(frozen=True, slots=True)
class Move:
    """Continue in a lane: start `scene` if given, take the actions, and stop at success."""

    lane: int
    scene: Scene | None
    actions: Actions


@dataclass(frozen=True, slots=True)
class Moved:
    """The state of a lane: whether the task is done, and the images (none when it is over)."""

    done: bool
    state: NDArray[np.float32]
    images: NDArray[np.uint8] | None


@dataclass(frozen=True, slots=True)
class Show:
    """Play the expert's episode, with or without images."""

    scene: Scene
    pictures: bool


@dataclass(frozen=True, slots=True)
class Shown:
    """An episode. `actions` is empty if the expert has no plan."""

    state: NDArray[np.float32]
    actions: Actions
    images: NDArray[np.uint8] | None
    done: bool


Job = Move | Show
Answer = Moved | Shown


class Simulator:
    """Environments of one setting in this process, made when a lane is first used."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._stages: dict[int, Stage] = {}

    def do(self, jobs: Sequence[Job]) -> list[Answer]:
        """Carry out the jobs. All lanes move and start rendering before the first image is awaited."""
        answers: list[Answer] = []
        rendering: dict[int, Stage] = {}
        for place, job in enumerate(jobs):
            if isinstance(job, Show):
                answers.append(self._show(job))
                continue
            stage, done = self._move(job)
            answers.append(Moved(done, stage.proprioception(), None))
            if self.options.render and not done:
                stage.capture()
                rendering[place] = stage
        for place, stage in rendering.items():
            answer = answers[place]
            assert isinstance(answer, Moved)
            answers[place] = replace(answer, images=stage.captured())
        return answers

    def stage(self, lane: int, scene: Scene) -> Stage:
        """The lane's environment, reset to the scene."""
        if lane not in self._stages:
            self._stages[lane] = self._make(scene)
            # Every reset collects garbage. Exclude loaded objects to make it faster.
            gc.collect()
            gc.freeze()
        self._stages[lane].play(scene)
        return self._stages[lane]

    def _make(self, scene: Scene) -> Stage:
        from factored_scaling.sim.maniskill.renderer import find_renderer
        from factored_scaling.sim.maniskill.stages import stage_class

        render = find_renderer() if self.options.render else None
        return stage_class(self.options.rules)(
            self.options.rules, scene, self.options.image_size, render, self.options.coarse
        )

    def _move(self, job: Move) -> tuple[Stage, bool]:
        stage = self._stages[job.lane] if job.scene is None else self.stage(job.lane, job.scene)
        for action in job.actions:
            stage.act(action)
            if stage.succeeded():
                return stage, True
        return stage, False

    def _show(self, job: Show) -> Shown:
        stage = self.stage(0, job.scene)
        plan = stage.plan()
        if plan is None:
            return Shown(np.empty((0, 8), np.float32), np.empty((0, 8), np.float32), None, False)
        states, images, done = [], [], False
        for action in plan:
            states.append(stage.proprioception())
            if job.pictures:
                stage.capture()
            stage.act(action)  # while the pictures are rendered
            if job.pictures:
                images.append(stage.captured())
            done = done or stage.succeeded()
        return Shown(np.stack(states), plan, np.stack(images) if images else None, done)


def serve(pipe: Connection, options: Options) -> None:
    """Answer lists of jobs until the parent ends."""
    import signal

    # Mesa would start a thread per core in every process. Processes share the cores better; LP_NUM_THREADS overrides.
    os.environ.setdefault("LP_NUM_THREADS", "0")
    # a terminal sends Ctrl-C to all processes, a scheduler SIGTERM; the parent decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    import torch

    torch.set_num_threads(1)
    simulator = Simulator(options)
    while True:
        try:
            jobs: list[Job] = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)  # the parent closed the pipe or died; skip the shutdown of Vulkan
        answer: object
        try:
            answer = simulator.do(jobs)
        except FscError as error:
            answer = error
        except Exception:
            answer = FscError(f"the simulator failed:\n{traceback.format_exc()}")
        try:
            pipe.send(answer)
        except (BrokenPipeError, OSError):
            os._exit(0)
