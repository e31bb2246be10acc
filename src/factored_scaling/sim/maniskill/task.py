"""The ManiSkill settings behind the simulator port: demonstrations, first frames, rollouts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from factored_scaling.data.frames import FrameTable
from factored_scaling.errors import FscError, InvalidInput, UnknownTask
from factored_scaling.sim import drawing
from factored_scaling.sim.maniskill import factors
from factored_scaling.sim.maniskill.lanes import LANES, run_lanes
from factored_scaling.sim.maniskill.pool import Pool
from factored_scaling.sim.maniskill.rules import ACTION_SIZE, SETTINGS, STATE_SIZE, Rules
from factored_scaling.sim.maniskill.scene import Scene
from factored_scaling.sim.maniskill.worker import Move, Moved, Options, Show, Shown
from factored_scaling.sim.task import Act, Condition, DemoRequest

IMAGE_SIZES = (16, 1024)
ATTEMPTS = 20
MOST_AT_ONCE = 4  # policies that are rolled out at once; more would wait for the same processes
LANES_EACH = 16  # scenes that a process may hold, each some tens of MB
PROCESSES = "FSC_SIM_PROCESSES"  # environment variable: the default number of simulator processes


def make_task(
    name: str, image_size: int | None = None, processes: int | None = None, coarse: bool = True
) -> ManiSkillTask:
    """The setting of that name.

    Pictures are square with `image_size` pixels a side (the paper's by default). `processes` simulate side
    by side (one per core by default); their number changes only the speed. `coarse` renders the
    robot with simplified meshes.
    """
    if name not in SETTINGS:
        raise UnknownTask(name, SETTINGS)
    rules = SETTINGS[name]
    size = rules.image_size if image_size is None else image_size
    if not IMAGE_SIZES[0] <= size <= IMAGE_SIZES[1]:
        raise InvalidInput(f"image size {size}", hint=f"choose one from {IMAGE_SIZES[0]} to {IMAGE_SIZES[1]}")
    return ManiSkillTask(rules, size, _processes() if processes is None else processes, coarse)


class ManiSkillTask:
    """A `Task`. Results depend only on requests and conditions; the processes only affect the speed."""

    def __init__(self, rules: Rules, image_size: int, processes: int, coarse: bool = True) -> None:
        if processes < 1:
            raise InvalidInput(f"{processes} simulator processes", hint="at least one is needed")
        self.rules = rules
        self.name = rules.name
        self.factors = rules.factors
        self.cameras = rules.cameras
        self.state_size = STATE_SIZE
        self.action_size = ACTION_SIZE
        self.max_steps = rules.max_steps
        self.image_size = image_size
        self.settings_per_factor = drawing.SETTINGS
        self.processes = processes
        self.coarse = coarse
        self._pools: dict[bool, Pool] = {}

    def demonstrate(self, requests: Sequence[DemoRequest], device: str = "cpu") -> FrameTable:
        """The expert's episodes for the requests; failed attempts are redrawn."""
        found = self.attempt(requests)
        return self._table([(request, shown) for request, (_, shown) in zip(requests, found, strict=True)])

    def first_frames(self, conditions: Sequence[Condition], device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
        """Initial images and states of the conditions, without rolling anything out."""
        images, states = self._first([factors.trial_scene(self.rules, condition) for condition in conditions])
        return torch.from_numpy(images).to(device), torch.from_numpy(states).to(device)

    def examples(self, factor: str | None) -> NDArray[np.uint8]:
        """Images for a contact sheet; the scenes of a factor share one arrangement of the table."""
        return self.preview(factors.examples(self.rules, factor))

    def preview(self, scenes: Sequence[Scene]) -> NDArray[np.uint8]:
        """Initial images of any scenes: scenes × cameras × 3 × height × width."""
        return self._first(scenes)[0]

    def rollout(
        self, act: Act, conditions: Sequence[Condition], execute: int = 8, device: str = "cpu"
    ) -> Iterator[tuple[Condition, float]]:
        """Run the policy under every condition and yield each one's score (1 or 0), in the order of the conditions."""
        for row, score in self.rollout_many(act, 1, conditions, execute, device):
            yield conditions[row], score

    def rollout_many(
        self, act: Act, policies: int, conditions: Sequence[Condition], execute: int = 8, device: str = "cpu"
    ) -> Iterator[tuple[int, float]]:
        """Several policies behind one `act`: row r is condition r mod n of policy r div n. Yields (row, score).

        Policies have separate lanes in the same processes. Scores of a policy are in the order of its rows.
        """
        if execute < 1:
            raise InvalidInput(f"cannot execute {execute} actions of a prediction", hint="execute at least 1")
        scenes = [factors.trial_scene(self.rules, condition) for condition in conditions]
        at_once = max(1, min(MOST_AT_ONCE, self.processes * LANES_EACH // LANES))
        scores: dict[int, float] = {}
        waiting = [policy * len(scenes) for policy in range(policies)]
        pool = self.pool(True)
        for row, done in run_lanes(pool, act, scenes, execute, self.max_steps, device, policies, at_once):
            scores[row] = float(done)
            one = row // len(scenes)
            while waiting[one] in scores and waiting[one] // len(scenes) == one:
                yield waiting[one], scores.pop(waiting[one])
                waiting[one] += 1

    def pool(self, render: bool) -> Pool:
        """The processes with or without rendering."""
        if render not in self._pools:
            options = Options(self.rules, self.image_size, render, self.coarse)
            self._pools[render] = Pool(options, self.processes)
        return self._pools[render]

    def close(self) -> None:
        """End the processes; the next call starts new ones."""
        for pool in self._pools.values():
            pool.close()
        self._pools = {}

    def _first(self, scenes: Sequence[Scene]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        nothing = np.empty((0, ACTION_SIZE), np.float32)
        images = np.empty((len(scenes), self.cameras, 3, self.image_size, self.image_size), np.uint8)
        states = np.empty((len(scenes), STATE_SIZE), np.float32)
        for index, answer in self.pool(True).map([Move(0, scene, nothing) for scene in scenes]):
            assert isinstance(answer, Moved)
            assert answer.images is not None
            images[index], states[index] = answer.images, answer.state
        return images, states

    def attempt(self, requests: Sequence[DemoRequest], pictures: bool = True) -> list[tuple[int, Shown]]:
        """For each request the first attempt at which the expert succeeds, and its episode.

        Without `pictures` no renderer is needed.
        """
        found: dict[int, tuple[int, Shown]] = {}
        for attempt in range(ATTEMPTS):
            missing = [index for index in range(len(requests)) if index not in found]
            if not missing:
                break
            jobs = [Show(factors.demo_scene(self.rules, requests[i], attempt), pictures) for i in missing]
            for place, shown in self.pool(pictures).map(jobs):
                assert isinstance(shown, Shown)
                if shown.done:
                    found[missing[place]] = attempt, shown
        if len(found) < len(requests):
            raise FscError(f"{self.name}: the expert failed {ATTEMPTS} times in a row")
        return [found[index] for index in range(len(requests))]

    def _table(self, episodes: Sequence[tuple[DemoRequest, Shown]]) -> FrameTable:
        size = self.image_size
        images = [shown.images for _, shown in episodes if shown.images is not None]
        none = np.empty((0, self.cameras, 3, size, size), np.uint8)
        empty = np.empty((0, ACTION_SIZE), np.float32)
        return FrameTable(
            np.concatenate([none, *images]),
            np.concatenate([empty, *(shown.state for _, shown in episodes)]),
            np.concatenate([empty, *(shown.actions for _, shown in episodes)]),
            np.cumsum([0, *(len(shown.state) for _, shown in episodes)]).astype(np.int64),
            tuple(request.id for request, _ in episodes),
            tuple(request.factor for request, _ in episodes),
        )


def _processes() -> int:
    given = os.environ.get(PROCESSES, "")
    if given:
        if not given.isdigit() or int(given) < 1:
            raise InvalidInput(f"not a number of processes: {given!r}", where=PROCESSES)
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
