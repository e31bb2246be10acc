"""Rollouts: trials side by side in lanes. Groups of lanes move while policies compute actions for other groups.

Batches depend on the trials alone, not on timing or the number of processes, and a process that dies is replaced by one
that repeats its trials' actions. So the policy gets the same batches every time.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from factored_scaling.errors import InvalidInput
from factored_scaling.sim.maniskill.pool import Pool, ProcessDied, Ticket
from factored_scaling.sim.maniskill.rules import ACTION_SIZE
from factored_scaling.sim.maniskill.scene import Scene
from factored_scaling.sim.maniskill.worker import Move, Moved
from factored_scaling.sim.task import Act

LANES = 32  # trials at once; fixed, so that the policy's batches do not depend on the machine
GROUPS = 2  # of a policy's lanes: one moves while the policy computes for the other
NOTHING = np.empty((0, ACTION_SIZE), np.float32)


@dataclass
class _Trial:
    """A trial in its lane, and all actions taken in it so far."""

    row: int
    lane: int
    scene: Scene
    taken: list[NDArray[np.float32]] = field(default_factory=list)
    # The generation of its process that has the trial; None for none.
    known_to: int | None = None
    now: Moved | None = None

    @property
    def steps(self) -> int:
        return sum(len(actions) for actions in self.taken)

    def move(self, life: int) -> Move:
        """The message for this generation of the process: the last actions, or all if it does not have the trial."""
        if self.known_to == life:
            return Move(self.lane, None, self.taken[-1])
        return Move(self.lane, self.scene, np.concatenate([NOTHING, *self.taken]))


def run_lanes(
    pool: Pool,
    act: Act,
    scenes: Sequence[Scene],
    execute: int,
    max_steps: int,
    device: str,
    policies: int,
    at_once: int,
) -> Iterator[tuple[int, bool]]:
    """Roll the policies out in every scene; yields (row, success) as trials end.

    Row r is scene r mod n of policy r div n. A policy has its lanes and scenes in `GROUPS` groups. `at_once` policies
    have lanes, and the next ones reuse them. All policies with a group that has moved decide in one call of `act`, in
    parallel on a GPU.
    """
    queues: dict[range, deque[_Group]] = defaultdict(deque)
    for policy in range(policies):
        first = policy % at_once * LANES
        trials = list(enumerate(scenes, policy * len(scenes)))
        for part in range(GROUPS):
            lanes = range(first + part, first + min(LANES, len(scenes)), GROUPS)
            queues[lanes].append(_Group(pool, policy, lanes, deque(trials[part::GROUPS])))
    steps = min(execute, max_steps)
    try:
        groups: list[_Group] = []
        while True:
            groups = [group for group in groups if group.trials]
            taken = {group.lanes for group in groups}
            for lanes, queue in queues.items():
                if queue and lanes not in taken:
                    groups.append(queue.popleft())
                    groups[-1].go()
            if not groups:
                return
            # One group of a policy at a time, so that its batches do not depend on timing.
            moved = [*{group.policy: group for group in reversed(groups) if group.has_moved()}.values()]
            pool.listen(wait_for_one=not moved)
            for group in moved:
                yield from group.meet(max_steps)
            _decide(act, [trial for group in moved for trial in group.trials], steps, max_steps, device)
            for group in moved:
                group.go()
    finally:
        pool.forget()  # if the caller stops early, answers are still pending


class _Group:
    """Lanes of one policy, spread evenly over the processes, which decide together; `waiting` are trials to begin."""

    def __init__(self, pool: Pool, policy: int, lanes: range, waiting: deque[tuple[int, Scene]]) -> None:
        self.pool = pool
        self.policy = policy
        self.lanes = lanes
        self.waiting = waiting
        self.trials: list[_Trial] = []
        self.sent: dict[int, Ticket] = {}  # pending moves per process

    def go(self) -> None:
        """Start the next trials in free lanes and send every lane's move."""
        busy = {trial.lane for trial in self.trials}
        for lane in self.lanes:
            if lane not in busy and self.waiting:
                self.trials.append(_Trial(*_swap(lane, self.waiting.popleft())))
        self.trials.sort(key=lambda trial: trial.lane)
        for process in sorted({self._process(trial) for trial in self.trials}):
            self._send(process)

    def has_moved(self) -> bool:
        """Whether all answers have arrived."""
        return all(self.pool.has(ticket) for ticket in self.sent.values())

    def meet(self, max_steps: int) -> Iterator[tuple[int, bool]]:
        """Receive every lane's answer; yields finished trials and frees their lanes."""
        for process in sorted(self.sent):
            self._receive(process)
        self.sent = {}
        for trial in list(self.trials):
            assert trial.now is not None
            if trial.now.done or trial.steps >= max_steps:
                self.trials.remove(trial)
                yield trial.row, trial.now.done

    def _process(self, trial: _Trial) -> int:
        return trial.lane // GROUPS % len(self.pool)

    def _members(self, process: int) -> list[_Trial]:
        return [trial for trial in self.trials if self._process(trial) == process]

    def _send(self, process: int) -> None:
        life = self.pool.life(process)
        self.sent[process] = self.pool.send(process, [trial.move(life) for trial in self._members(process)])

    def _receive(self, process: int) -> None:
        """Read the process's answers; if it died, its successor replays everything from the start."""
        while True:
            try:
                answers = self.pool.receive(self.sent[process])
                break
            except ProcessDied:
                self._send(process)
        for trial, answer in zip(self._members(process), answers, strict=True):
            assert isinstance(answer, Moved)
            trial.now, trial.known_to = answer, self.sent[process].life


def _decide(act: Act, trials: Sequence[_Trial], execute: int, max_steps: int, device: str) -> None:
    """Ask for the next actions of all these trials at once."""
    if not trials:
        return
    images = np.stack([trial.now.images for trial in trials if trial.now is not None and trial.now.images is not None])
    states = np.stack([trial.now.state for trial in trials if trial.now is not None])
    rows = torch.tensor([trial.row for trial in trials], device=device)
    with torch.no_grad():
        actions = act(torch.from_numpy(images).to(device), torch.from_numpy(states).to(device), rows)
    _check(actions, len(trials), execute)
    chosen = actions[:, :execute].float().cpu().numpy()
    for trial, ahead in zip(trials, chosen, strict=True):
        trial.taken.append(np.ascontiguousarray(ahead[: max_steps - trial.steps]))


def _swap(lane: int, numbered: tuple[int, Scene]) -> tuple[int, int, Scene]:
    row, scene = numbered
    return row, lane, scene


def _check(actions: torch.Tensor, batch: int, execute: int) -> None:
    shape = tuple(actions.shape)
    if len(shape) != 3 or (shape[0], shape[2]) != (batch, ACTION_SIZE) or shape[1] < execute:
        wanted = f"expected ({batch}, at least {execute}, {ACTION_SIZE})"
        raise InvalidInput(f"the policy returned actions of shape {shape}", hint=wanted)
    if not torch.isfinite(actions).all():
        raise InvalidInput("the policy returned actions that are not finite numbers")
