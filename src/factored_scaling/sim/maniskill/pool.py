"""The parent's side of the simulator processes: start them, send jobs through pipes, replace dead ones."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.util import Finalize

from factored_scaling.errors import FscError
from factored_scaling.machine import without_script
from factored_scaling.sim.maniskill.worker import Answer, Job, Options, serve

RESTARTS = 5  # of processes that die, between two answers of any of them


class ProcessDied(Exception):
    """A process ended before it answered; a new one without its state takes its place."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """Identifies the answer to some jobs: process, its generation, and the answer's number since its start."""

    process: int
    life: int
    number: int


@dataclass
class _Process:
    process: SpawnProcess
    pipe: Connection
    sent: int = 0
    received: int = 0
    # Answers below this number are no longer needed.
    wanted_from: int = 0
    early: dict[int, list[Answer] | FscError] = field(default_factory=dict)


class Pool:
    """Simulator processes of one setting. They end with `close`, with the pool, and with this process."""

    def __init__(self, options: Options, processes: int) -> None:
        self.options = options
        self._processes: list[_Process | None] = [None] * processes
        self._lives = [0] * processes
        self._deaths = 0
        # not weakref.finalize: at exit, multiprocessing first waits for processes, which ignore its SIGTERM
        Finalize(self, _end, (self._processes,), exitpriority=0)

    def __len__(self) -> int:
        return len(self._processes)

    def close(self) -> None:
        """End the processes; they start again when they are needed."""
        self._lives = [life + 1 for life in self._lives]
        _end(self._processes)

    def life(self, index: int) -> int:
        """The generation of the process: how often it was replaced, each time losing its state."""
        return self._lives[index]

    def pids(self) -> list[int]:
        """The processes that run now."""
        return [one.process.pid for one in self._processes if one is not None and one.process.pid is not None]

    def send(self, index: int, jobs: Sequence[Job]) -> Ticket:
        """Give a process some jobs. It answers them in the order in which they were given."""
        found = self._processes[index]
        if found is None:
            found = self._processes[index] = _start(self.options)
        # A dead process is detected when its answer is received.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            found.pipe.send(list(jobs))
        found.sent += 1
        return Ticket(index, self._lives[index], found.sent - 1)

    def receive(self, ticket: Ticket) -> list[Answer]:
        """The answers to the jobs of the ticket; ProcessDied if the process ended before."""
        found = self._processes[ticket.process]
        if found is None or ticket.life != self._lives[ticket.process]:
            raise ProcessDied
        while ticket.number not in found.early:
            if not self._read(ticket.process):
                raise ProcessDied
        answers = found.early.pop(ticket.number)
        if isinstance(answers, FscError):
            raise answers
        return answers

    def has(self, ticket: Ticket) -> bool:
        """Whether `receive` would return, or raise, at once."""
        found = self._processes[ticket.process]
        return found is None or ticket.life != self._lives[ticket.process] or ticket.number in found.early

    def listen(self, wait_for_one: bool) -> None:
        """Read the answers that have arrived; if there are none, optionally wait for one."""
        busy = [index for index, one in enumerate(self._processes) if one is not None and one.received < one.sent]
        for index in self._ready(busy, None if wait_for_one else 0):
            self._read(index)

    def forget(self) -> None:
        """Ignore the answers to all jobs sent so far."""
        for found in self._processes:
            if found is not None:
                found.wanted_from = found.sent
                found.early.clear()

    def map(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Answer]]:
        """Run jobs in free processes; yields (index of the job, answer) in order of completion."""
        waiting = list(range(len(jobs)))[::-1]
        busy: dict[int, tuple[int, Ticket]] = {}

        def give(index: int) -> None:
            if waiting:
                job = waiting.pop()
                busy[index] = job, self.send(index, [jobs[job]])

        try:
            for index in range(len(self)):
                give(index)
            while busy:
                for index in self._ready(list(busy)):
                    job, ticket = busy.pop(index)
                    try:
                        yield job, self.receive(ticket)[0]
                    except ProcessDied:
                        waiting.append(job)
                    give(index)
        finally:
            self.forget()

    def _read(self, index: int) -> bool:
        """Read the process's next answer; False if it died."""
        found = self._processes[index]
        assert found is not None
        try:
            answer = found.pipe.recv()
        except (EOFError, OSError):
            self._bury(index)
            return False
        self._deaths = 0
        if found.received >= found.wanted_from:
            found.early[found.received] = answer
        found.received += 1
        return True

    def _ready(self, indices: list[int], timeout: float | None = None) -> list[int]:
        pipes = {one.pipe: index for index in indices if (one := self._processes[index]) is not None}
        return [pipes[pipe] for pipe in wait(list(pipes), timeout) if isinstance(pipe, Connection)]

    def _bury(self, index: int) -> None:
        dead = self._processes[index]
        assert dead is not None
        dead.pipe.close()
        dead.process.join(timeout=10)
        self._processes[index] = None
        self._lives[index] += 1
        if dead.process.exitcode != -signal.SIGTERM:  # which ends only those that are starting
            self._deaths += 1
        if self._deaths > RESTARTS:
            self.close()
            raise FscError(
                f"simulator processes keep dying (exit code {dead.process.exitcode})",
                hint="is there enough memory? each takes about 1 GB; fewer processes need less",
            )


def _start(options: Options) -> _Process:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, options), daemon=True)
    with without_script():
        process.start()
    theirs.close()  # so that the pipe ends when the process does
    return _Process(process, ours)


def _end(processes: list[_Process | None]) -> None:
    for index, one in enumerate(processes):
        if one is not None:
            one.pipe.close()
            one.process.kill()
            one.process.join(timeout=10)
            processes[index] = None
