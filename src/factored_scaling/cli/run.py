"""fsc run: carry out what is pending, with progress bars, on this machine or a cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from factored_scaling.cli.placement import executor_options
from factored_scaling.cli.show import quoted, say, say_again
from factored_scaling.cli.target import Target, planned_anew, study_argument
from factored_scaling.errors import hide_passwords, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from factored_scaling.runner.events import Event

STAGES = {"prepare": "preparing", "train": "training", "evaluate": "evaluating"}
QUIET_SECONDS = 60.0  # where no bars can be drawn, a line tells at least so often that something goes on


@click.command("run")
@study_argument
@click.option("--on", "executor", metavar="EXECUTOR", help="local (the default), slurm, ray, or package.module:Class.")
@click.option(
    "--workers",
    type=click.IntRange(1, 4096),
    help="Number of parallel workers; by default one per core in the simulator, one on a GPU or with a `trainer:`, "
    "eight on a cluster.",
)
@executor_options
@click.option("--detach", is_flag=True, help="On a cluster: return as soon as the workers are submitted.")
@click.option(
    "--together",
    type=click.IntRange(1, 256),
    help="Runs of the built-in policy that a worker trains as one job; by default as many as fit on a GPU, else one.",
)
@click.option(
    "--device", help="Where networks are trained: cpu, cuda, cuda:1, mps. The built-in policy uses cpu by default."
)
@click.option(
    "--attempts", default=2, show_default=True, type=click.IntRange(1), help="Attempts before a run counts as failed."
)
@click.option("--retry-failed", is_flag=True, help="Also retry runs that failed before.")
@click.option(
    "--lease",
    default=60.0,
    show_default=True,
    type=click.FloatRange(1),
    help="Seconds without a heartbeat after which a worker counts as dead.",
)
def run_command(
    study: str,
    executor: str | None,
    workers: int | None,
    detach: bool,
    together: int | None,
    device: str | None,
    attempts: int,
    retry_failed: bool,
    lease: float,
    **resources: Any,
) -> None:
    """Train and evaluate every pending run, in the simulator or with the `trainer:` of study.yaml.

    Without a `trainer:`, a study of a LeRobot dataset trains the built-in diffusion policy; people score it.

    Ctrl-C stops at a safe point; the same command continues from there. Several `fsc run` on one study share the work,
    also from several machines with the same database. STUDY/runs/DIGEST holds each run's log and policy.

    On a GPU the pending runs of the built-in policy are trained together as one job, and rolled out together in the
    simulator. A policy that diverges does not affect the others. A program of `trainer:` gets one run at a time.

    With --evaluators N the workers only train, and N more workers on the CPU evaluate each trained policy.

    On a cluster, `--on slurm` submits an array of jobs and `--on ray` starts tasks, one worker each. They keep running
    when this command is interrupted; `fsc runs STUDY --watch` follows them and `fsc stop STUDY` ends them.

    \b
    fsc run my-study --workers 2
    fsc run my-study --device cuda --evaluators 6
    fsc run my-study --on slurm --workers 16 --gpus 1 --time 04:00:00 --partition gpu --detach
    fsc run my-study --on slurm --workers 4 --gpus 1 --evaluators 8 --evaluator-resources partition=cpu
    fsc run my-study --device cuda --retry-failed
    fsc run my-study --device cuda --together 4
    """
    from factored_scaling.runner.executors import executor_settings, make_executor
    from factored_scaling.runner.queue import listed
    from factored_scaling.runner.run import check_backend, run_study

    target = Target.parse(study)
    folder = (target.folder or Path.cwd()).resolve()
    if not target.recorded and (declared := target.declared()) is not None:
        check_backend(declared, folder)  # before a record is made
        make_executor(*executor_settings(declared.executor, executor, workers, resources)[::2])
    name = quoted(study)
    with target.study() as opened, Bars() as bars:
        planned_anew(opened)
        summary = run_study(
            opened,
            folder,
            executor=executor,
            workers=workers,
            device=device,
            together=together,
            attempts=attempts,
            lease_seconds=lease,
            retry_failed=retry_failed,
            detach=detach,
            on_event=bars.hear,
            **resources,
        )
        requested = opened.stop_requested()
    for run in summary.failed_before:  # of the others the reason was printed when they failed
        say(f"run {run} failed: {summary.errors[run]}", err=True)
    if summary.detached:
        say(
            f"workers keep running: `fsc runs {name} --watch` follows them, `fsc stop {name}` stops them",
            err=not detach,
        )
        sys.exit(0 if detach else 130)
    if summary.stopped:
        by = " by `fsc stop`" if requested else ""
        say(f"stopped{by}; the same command continues from here", err=True)
        sys.exit(130)
    if summary.failed:
        left = len(summary.pending)
        if left:
            why = "every run so far failed with the same error"
            say(f"stopped early: {why}; {left} not started (`fsc run {name}` continues)", err=True)
        failed = listed(summary.failed)
        say(f"{failed} failed; `fsc run {name} --retry-failed` retries once the cause is fixed", err=True)
        sys.exit(1)
    if left := len(summary.pending):  # evaluators found damaged policies after the last that trains had ended
        say(f"{left} {'run is' if left == 1 else 'runs are'} left; `fsc run {name}` continues with them", err=True)
        sys.exit(1)
    if trained := len(summary.trained):
        wait = "1 policy is trained and waits" if trained == 1 else f"{trained} policies are trained and wait"
        say(f"{wait} for trials: `fsc sheet evaluate {name}` queues them")
        return
    say(f"all runs are done; next: `fsc recommend {name} --budget 100` or `fsc report {name}`")


class Bars:
    """Progress of all workers, drawn from the runner's events; plain lines when the output is not a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = Console(stderr=True, highlight=False)
        self._live = self._console.is_terminal
        self._progress = Progress(
            TextColumn("{task.description:<28}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=self._console,
            disable=not self._live,
        )
        self._all: Any = None
        self._tasks: dict[tuple[int, ...], Any] = {}
        self._begun, self._total = _now(), 0
        self.title = "runs"  # of the bar of all runs
        self.later = 0  # runs of a later step, which the time left includes
        self._done, self._printed = 0, self._begun
        self._share: dict[int, float] = {}  # of each run under way that is done
        self._before = set[int]()  # runs that were begun by an earlier command and may go on half done
        self._since: dict[int, float] = {}  # the share that a run had when its work began here
        self._worked = 0.0  # runs' worth of work that was done here and is over
        self._reasons: dict[int, str] = {}

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @staticmethod
    def single(done: int, total: int, note: str = "") -> None:
        """Progress of one long step in this process: a line that rewrites itself, only on a terminal."""
        say_again(f"{note:<28} {done} of {total}", done >= total)

    def hear(self, event: Event) -> None:
        """Show one event."""
        from factored_scaling.runner.events import Finished, RunProgress, Started, Warned

        if isinstance(event, Warned):
            say(f"warning: {event.message}", err=True)
            return
        if isinstance(event, Started):
            self._begun = self._printed = _now()
            self._share, self._since, self._worked = {}, {}, 0.0  # runs of another study may have the same numbers
            self._done, self._total, self._before = event.done, event.total, set(event.resumed)
            self._all = self._progress.add_task(self.title, total=event.total, completed=event.done, note="")
            self._progress.start()
            return
        if isinstance(event, Finished):
            self._progress.stop()
            self._progress.remove_task(self._all)
            return
        note = printable(hide_passwords(event.note))
        if isinstance(event, RunProgress):
            kind, runs, done, total = event.stage, event.runs, event.done, event.total
            if runs not in self._tasks:  # also a group that has become smaller: its old bar goes
                self._remove([group for group in self._tasks if set(group) & set(runs)])
                self._tasks[runs] = self._progress.add_task("", total=total, note=note)
            label = f"  {named(runs)} {STAGES[kind]}"
            self._progress.update(self._tasks[runs], description=label, completed=done, total=total, note=note)
            if kind == "prepare":
                for run in runs:
                    self._share.setdefault(run, 0.0)
                if not self._work():  # what is prepared once does not take its time again for every run
                    self._begun = _now()
            else:
                # training is nearly all of a run's time; rolling out is taken as the last tenth
                share = 0.9 * done / max(total, 1) if kind == "train" else 0.9 + 0.1 * done / max(total, 1)
                self._share.update(dict.fromkeys(runs, share))
                self._begin(runs, share)
            if not self._live and _now() - self._printed >= QUIET_SECONDS:
                self._printed = _now()
                self._console.print(
                    f"{label.strip()}: {done} of {total} ({self._time_left() or note})", markup=False, soft_wrap=True
                )
        else:
            self._close(event.state, event.run, note)
        self._remove([group for group in self._tasks if not any(run in self._share for run in group)])
        self._progress.update(self._all, note=self._time_left())

    def _remove(self, groups: Sequence[tuple[int, ...]]) -> None:
        for group in groups:
            self._progress.remove_task(self._tasks.pop(group))

    def _close(self, kind: str, run: int, note: str) -> None:
        reached = 1.0 if kind in ("done", "trained") else self._share.get(run, 0.0)
        self._worked += max(reached - self._since.pop(run, reached), 0.0)
        self._share.pop(run, None)
        self._before.add(run)  # tried again, it goes on from its checkpoint
        if kind in ("done", "failed", "trained"):
            self._done += 1
            self._progress.update(self._all, completed=self._done)
        if kind == "failed" and self._reasons.get(run) == note:
            self._console.print(f"run {run}: failed, for the same reason again")
        elif kind != "done":
            self._reasons[run] = note
            self._console.print(f"run {run}: {kind}: {note}", markup=False, soft_wrap=True)
        elif not self._live:
            state = "; ".join(filter(None, (f"{self._done} of {self._total}", self._time_left())))
            self._console.print(f"run {run} done ({state})", markup=False, soft_wrap=True)

    def _begin(self, runs: Sequence[int], share: float) -> None:
        """Note where the work on runs begins: at nothing, or where an earlier command left them."""
        new = [run for run in runs if run not in self._since]
        if self._before.isdisjoint(runs):
            self._since.update(dict.fromkeys(new, 0.0))
        elif new and share:  # a program that goes on has not told how far it is before its first step
            self._since.update(dict.fromkeys(new, share))
            if not self._work():
                self._begun = _now()

    def _work(self) -> float:
        """Runs' worth of work that was done here, which the time since the beginning went into."""
        return self._worked + sum(self._share[run] - since for run, since in self._since.items())

    def seconds_left(self) -> float | None:
        """Estimated seconds until all runs are done, later ones included; None while too little is done to tell."""
        work = self._work()
        if work < 0.2:
            return None
        left = self._total - self._done - sum(self._share.values()) + self.later
        return max(0.0, (_now() - self._begun) / work * left)

    def _time_left(self) -> str:
        left = self.seconds_left()
        if left is None:
            return ""
        minutes, seconds = divmod(round(left), 60)
        return f"{minutes}:{seconds:02d} left" + (" in all" if self.later else "")


def named(runs: Sequence[int]) -> str:
    """A group of runs in few letters."""
    if len(runs) == 1:
        return f"run {runs[0]}"
    return f"{len(runs)} runs, {min(runs)} to {max(runs)},"


def _now() -> float:
    import time

    return time.monotonic()
