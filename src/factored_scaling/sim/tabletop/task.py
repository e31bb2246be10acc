"""The tabletop tasks behind the simulator port: demonstrations, first frames, rollouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from factored_scaling.data.frames import FrameTable
from factored_scaling.errors import FscError, InvalidInput, UnknownTask
from factored_scaling.sim import drawing
from factored_scaling.sim.tabletop import arm, expert, factors
from factored_scaling.sim.tabletop.physics import Situation, start, step
from factored_scaling.sim.tabletop.render import render
from factored_scaling.sim.tabletop.rules import TASKS, Rules
from factored_scaling.sim.tabletop.scene import Scene, SceneBatch
from factored_scaling.sim.task import Act, Condition, DemoRequest

DEFAULT_IMAGE_SIZE = 48
IMAGE_SIZES = (16, 512)
# Environments simulated at once; more conditions are split into parts, to bound memory.
CPU_BATCH, GPU_BATCH = 256, 4096
ATTEMPTS = 20


def make_task(name: str, image_size: int | None = None) -> TabletopTask:
    """The tabletop task of that name, with square images of `image_size` pixels (48 by default)."""
    if name not in TASKS:
        raise UnknownTask(name, TASKS)
    size = DEFAULT_IMAGE_SIZE if image_size is None else image_size
    if not IMAGE_SIZES[0] <= size <= IMAGE_SIZES[1]:
        raise InvalidInput(f"image size {size}", hint=f"choose one from {IMAGE_SIZES[0]} to {IMAGE_SIZES[1]}")
    return TabletopTask(TASKS[name], size)


class TabletopTask:
    """A `Task`. It has no state: results depend only on requests and conditions."""

    def __init__(self, rules: Rules, image_size: int) -> None:
        self.rules = rules
        self.name = rules.name
        self.factors = rules.factors
        self.cameras = rules.cameras
        self.state_size = arm.JOINTS
        self.action_size = arm.JOINTS
        self.max_steps = rules.max_steps
        self.image_size = image_size
        self.settings_per_factor = drawing.SETTINGS

    def demonstrate(self, requests: Sequence[DemoRequest], device: str = "cpu") -> FrameTable:
        """The expert's episodes for the requests; failed attempts are redrawn."""
        episodes: list[FrameTable] = []
        share = _batch(device)
        for first in range(0, len(requests), share):
            episodes += self._demonstrate(requests[first : first + share], device)
        return FrameTable.concatenate(episodes) if episodes else self._no_frames()

    def first_frames(self, conditions: Sequence[Condition], device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
        """Initial images and states of the conditions, without rolling anything out."""
        images = [torch.empty((0, self.cameras, 3, self.image_size, self.image_size), dtype=torch.uint8, device=device)]
        states = [torch.empty((0, self.state_size), device=device)]
        share = _batch(device)
        for first in range(0, len(conditions), share):
            scenes = self._trials(conditions[first : first + share], device)
            images.append(self.frames(scenes))
            states.append(scenes.joints)
        return torch.cat(images), torch.cat(states)

    def rollout(
        self, act: Act, conditions: Sequence[Condition], execute: int = 8, device: str = "cpu"
    ) -> Iterator[tuple[Condition, float]]:
        """Run the policy under every condition and yield each one's score (1 or 0), in the order of the conditions."""
        for row, score in self.rollout_many(act, 1, conditions, execute, device):
            yield conditions[row], score

    def rollout_many(
        self, act: Act, policies: int, conditions: Sequence[Condition], execute: int = 8, device: str = "cpu"
    ) -> Iterator[tuple[int, float]]:
        """Several policies behind one `act`: row r is condition r mod n of policy r div n. Yields (row, score)."""
        if execute < 1:
            raise InvalidInput(f"cannot execute {execute} actions of a prediction", hint="execute at least 1")
        share, count = _batch(device), len(conditions)
        at_once = max(1, share // max(1, count))
        for policy in range(0, policies, at_once):
            for start_at in range(0, count, share):
                first = policy * count + start_at
                scenes = [
                    factors.trial_scene(self.rules, condition) for condition in conditions[start_at : start_at + share]
                ]
                batch = SceneBatch.stack(scenes * min(at_once, policies - policy), device)
                yield from enumerate(self._roll(act, batch, first, execute), first)

    def examples(self, factor: str | None) -> NDArray[np.uint8]:
        """Images for a contact sheet; the scenes of a factor share one arrangement of the table."""
        scenes = factors.examples(self.rules, factor)
        return np.asarray(self.frames(SceneBatch.stack(scenes, "cpu")).numpy())

    def frames(self, scenes: SceneBatch) -> torch.Tensor:
        """Images before anything has moved."""
        return render(self.rules, scenes, start(self.rules, scenes), self.image_size)

    def _roll(self, act: Act, scenes: SceneBatch, first: int, execute: int) -> list[float]:
        now = start(self.rules, scenes)
        rows = torch.arange(len(now.joints), device=now.joints.device)
        scores = torch.zeros(len(rows), device=rows.device)
        taken = 0
        while taken < self.max_steps and len(rows):
            with torch.no_grad():
                images = render(self.rules, scenes, now, self.image_size)
                actions = act(images, now.joints, rows + first)
            _check(actions, len(rows), execute)
            for index in range(min(execute, self.max_steps - taken)):
                now = step(self.rules, scenes, now, actions[:, index].to(now.joints))
                taken += 1
            scores[rows] = now.done.float()
            left = torch.nonzero(~now.done & ~now.lost)[:, 0]
            rows, scenes, now = rows[left], scenes.take(left), now.take(left)
        return [float(score) for score in scores.tolist()]

    def _trials(self, conditions: Sequence[Condition], device: str) -> SceneBatch:
        return SceneBatch.stack([factors.trial_scene(self.rules, condition) for condition in conditions], device)

    def _demonstrate(self, requests: Sequence[DemoRequest], device: str) -> list[FrameTable]:
        """One batch of episodes; failed attempts are repeated with another draw."""
        found: dict[int, FrameTable] = {}
        for attempt in range(ATTEMPTS):
            missing = [index for index in range(len(requests)) if index not in found]
            if not missing:
                break
            scenes = [factors.demo_scene(self.rules, requests[index], attempt) for index in missing]
            found |= {
                missing[row]: _one_episode(requests[missing[row]], images, states, actions)
                for row, images, states, actions in self._play(scenes, device)
            }
        if len(found) < len(requests):
            raise FscError(f"{self.name}: the expert failed {ATTEMPTS} times in a row")
        return [found[index] for index in range(len(requests))]

    def _play(
        self, scenes: Sequence[Scene], device: str
    ) -> Iterator[tuple[int, NDArray[np.uint8], NDArray[np.float32], NDArray[np.float32]]]:
        """The expert in every scene: (row, images, states, actions) of the ones that succeeded."""
        batch = SceneBatch.stack(scenes, device)
        plans = np.stack([expert.plan(self.rules, scene) for scene in scenes])
        actions = torch.from_numpy(plans).to(device)
        seen = [start(self.rules, batch)]
        for index in range(plans.shape[1]):
            seen.append(step(self.rules, batch, seen[-1], actions[:, index]))
        for row in torch.nonzero(seen[-1].done)[:, 0].tolist():
            past = _history(seen[:-1], row)
            alone = batch.take(torch.full((len(past.joints),), row, device=device))
            images = render(self.rules, alone, past, self.image_size)
            yield row, images.cpu().numpy(), past.joints.cpu().numpy(), plans[row]

    def _no_frames(self) -> FrameTable:
        return FrameTable(
            np.empty((0, self.cameras, 3, self.image_size, self.image_size), np.uint8),
            np.empty((0, self.state_size), np.float32),
            np.empty((0, self.action_size), np.float32),
            np.zeros(1, np.int64),
            (),
            (),
        )


def _batch(device: str) -> int:
    return CPU_BATCH if torch.device(device).type == "cpu" else GPU_BATCH


def _history(situations: Sequence[Situation], row: int) -> Situation:
    """One environment's situations over time, as a batch."""
    return Situation(
        torch.stack([past.joints[row] for past in situations]),
        torch.stack([past.thing[row] for past in situations]),
        torch.stack([past.held[row] for past in situations]),
        torch.stack([past.lost[row] for past in situations]),
        torch.stack([past.done[row] for past in situations]),
    )


def _one_episode(
    request: DemoRequest, images: NDArray[np.uint8], states: NDArray[np.float32], actions: NDArray[np.float32]
) -> FrameTable:
    ends = np.array([0, len(images)], dtype=np.int64)
    return FrameTable(images, states, actions, ends, (request.id,), (request.factor,))


def _check(actions: torch.Tensor, batch: int, execute: int) -> None:
    wanted = (batch, execute, arm.JOINTS)
    if actions.dim() != 3 or (actions.shape[0], actions.shape[2]) != (batch, arm.JOINTS) or actions.shape[1] < execute:
        raise InvalidInput(f"the policy returned actions of shape {tuple(actions.shape)}", hint=f"expected {wanted}")
