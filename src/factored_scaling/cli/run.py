"""fsc run: carry out what is pending, with progress bars, on this machine."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from factored_scaling.cli.show import say, say_again
from factored_scaling.cli.target import Target, listed, mixed_settings, planned_anew, study_argument
from factored_scaling.errors import InvalidInput, UnknownFactor, hide_passwords, printable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from factored_scaling.backends import OutsideTrainer
    from factored_scaling.core.spec import StudySpec
    from factored_scaling.runner.worker import Message, WorkOptions
    from factored_scaling.study import Study

MIXED = "curves may mix what does not belong together"
STAGES = {"prepare": "preparing", "train": "training", "evaluate": "evaluating"}
QUIET_SECONDS = 60.0  # where no bars can be drawn, a line tells at least so often that something goes on


@click.command("run")
@study_argument
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    help="Processes side by side; by default one per core in the simulator, one on a GPU or with a `trainer:`.",
)
@click.option(
    "--together",
    type=click.IntRange(1, 256),
    help="Runs of our own policy that a worker takes as one job; by default as many as fit on a GPU, one elsewhere.",
)
@click.option("--device", help="cpu, cuda, cuda:1, mps: where networks are trained. Our own policy: cpu without it.")
@click.option(
    "--attempts", default=2, show_default=True, type=click.IntRange(1), help="Tries before a run stays failed."
)
@click.option("--retry-failed", is_flag=True, help="Also take up runs that failed before.")
@click.option(
    "--lease",
    default=60.0,
    show_default=True,
    type=click.FloatRange(1),
    help="Seconds of silence after which a worker counts as dead.",
)
def run_command(
    study: str,
    workers: int | None,
    together: int | None,
    device: str | None,
    attempts: int,
    retry_failed: bool,
    lease: float,
) -> None:
    """Train and evaluate every pending run, in the simulator or with what `trainer:` in study.yaml names.

    A study of a LeRobot dataset without a trainer gets our own diffusion policy; people measure it.

    Ctrl-C stops at a safe point; the same command goes on from there. Several `fsc run` on one study, on one or more
    machines with the same database, share the work. Each run's log and policy lie in STUDY/runs/DIGEST.

    On a GPU the pending runs of our own policy are one job, in the simulator and on a LeRobot dataset: the policies
    share the demonstrations' pictures, train side by side, and are rolled out side by side in the simulator. One that
    diverges fails alone. A program that `trainer:` names gets one run at a time.

    \b
    fsc run my-study --workers 2
    fsc run my-study --device cuda --retry-failed
    fsc run my-study --device cuda --together 4
    """
    from factored_scaling.backends import trained_here, trainer_settings
    from factored_scaling.runner.worker import WorkOptions

    target = Target.parse(study)
    folder = (target.folder or Path.cwd()).resolve()
    if not target.recorded and (declared := target.declared()) is not None:
        check_settings(declared, folder)  # before a record is made
    with target.study() as opened:
        outside = check_settings(opened.spec, folder)
        planned_anew(opened)
        if outside is not None:
            _check_episodes(opened, outside, retry_failed)
        if retry_failed:
            for run in opened.runs():
                if run.state == "failed":
                    opened.store.retry(run.id)
        _tell_settings(opened)
        trainer = trainer_settings(opened.spec)
        device = device or ("cpu" if trained_here(trainer) else "")
        options = WorkOptions(lease, attempts, device, trainer=trainer, together=together)
        if outside is not None:
            _tell_trainer(opened, outside, device)
        before = {run.id for run in opened.runs() if run.state == "failed"}
        complete = work_off(opened, target.address, folder, options, workers)
        failed = [run for run in opened.runs() if run.state == "failed"]
        left = sum(run.state == "pending" for run in opened.runs())
        trained = sum(run.state == "trained" for run in opened.runs())
    for run in failed:
        if run.id in before:  # of the others the reason was told when they failed
            say(f"run {run.id} failed: {run.error}", err=True)
    if not complete:
        say("stopped; the same command goes on from here", err=True)
        sys.exit(130)
    if failed:
        told = listed([run.id for run in failed])
        if left:
            more, them = ("1 more is", "it") if left == 1 else (f"{left} more are", "them")
            why = "those that were tried failed for one reason, and none succeeded"
            say(f"{more} left alone: {why}; `fsc run {study}` goes on with {them}", err=True)
        say(f"{told} failed; `fsc run {study} --retry-failed` goes on once the reason is gone", err=True)
        sys.exit(1)
    if trained:
        told = "1 policy is trained and waits" if trained == 1 else f"{trained} policies are trained and wait"
        say(f"{told} for trials: `fsc sheet evaluate {study}` queues them")
        return
    say(f"all runs are done; next: `fsc recommend {study} --budget 100` or `fsc report {study}`")


def check_settings(spec: StudySpec, folder: Path) -> OutsideTrainer | None:
    """A mistake in trainer, task, policy or evaluation is told before a worker starts.

    Returns what trains the study; None where the simulator does.
    """
    from factored_scaling.backends import load_trainer, trainer_settings

    trainer = trainer_settings(spec)
    if trainer:
        if spec.task is not None:
            what = "a study is trained by its `trainer:` or in the simulator's `task:`, not by both"
            raise InvalidInput(what, where="trainer", hint="remove one of them from study.yaml")
        return load_trainer(trainer, spec.policy, folder, None, spec.evaluation)
    if spec.task is None:
        hint = "add `dataset:`, `trainer:` or `task: tabletop/pick-place`; or train it yourself and `fsc record` scores"
        raise InvalidInput("this study names no dataset, no trainer and no simulator task", where="trainer", hint=hint)
    _check_simulated(spec)
    return None


def _check_episodes(study: Study, trainer: OutsideTrainer, retry_failed: bool) -> None:
    """Demos that the dataset has lost, or does not have yet, are told once and not by every run."""
    states = ("pending", "failed") if retry_failed else ("pending",)
    specs = study.store.specs([run.id for run in study.runs() if run.state in states])
    wanted = {id_: None for spec in specs.values() for id_ in spec.episodes}
    if wanted:
        trainer.check(list(wanted))


def _tell_settings(study: Study) -> None:
    """Runs from before a change of study.yaml are carried out too, beside those that the change made."""
    mixed = mixed_settings(study, study.runs())
    if mixed and any(run.state == "pending" for run in study.runs()):
        hint = "they stay as they were planned; a new study leaves them behind"
        say(f"warning: {mixed}; {hint}; {MIXED}", err=True)


def _tell_trainer(study: Study, trainer: OutsideTrainer, device: str) -> None:
    """Policies of one curve should differ in their demos alone: a command that was changed meanwhile is told."""
    from factored_scaling.runner.worker import TRAINED

    now = trainer.described
    kept = {document.key: document.body["trainer"] for document in study.store.documents(study.id, TRAINED)}
    other = [run.id for run in study.runs() if kept.get(run.digest, now) != now]
    if other:
        told = f"`trainer:` has changed since {listed(other)} {'was' if len(other) == 1 else 'were'} trained"
        say(f"warning: {told}; {MIXED}", err=True)
    if not study.spec.trainer and any(run.state == "pending" for run in study.runs()):
        from factored_scaling.backends.diffusion import DiffusionTrainer

        assert isinstance(trainer, DiffusionTrainer)
        updates = trainer.settings.config.updates
        told = f"no `trainer:` in study.yaml: our own diffusion policy, {updates:,} updates for each run"
        say(f"{told}, on {device}", err=True)


def _check_simulated(spec: StudySpec) -> None:
    from factored_scaling.backends.simulation import evaluation_sizes, policy_config
    from factored_scaling.sim import load_task

    assert spec.task is not None
    task = load_task(spec.task, spec.policy.get("image_size"))
    for name in spec.names:
        if name not in task.factors:
            raise UnknownFactor(name, task.factors, where=f"task {spec.task}")
    try:
        policy_config(spec.policy)
    except InvalidInput as error:
        raise error.at("policy") from None
    evaluation_sizes(spec.evaluation, task.settings_per_factor)


def work_off(
    study: Study, address: str | Path | None, folder: Path, options: WorkOptions, workers: int | None = None
) -> bool:
    """Carry out all pending runs with a bar for the whole and one per worker; False when stopped."""
    from factored_scaling.backends import trained_here
    from factored_scaling.runner.executors.local import run_workers
    from factored_scaling.runner.worker import work

    if trained_here(options.trainer):
        from factored_scaling.policies.capacity import check_device

        check_device(options.device)
    assert address is not None
    waiting = [run for run in study.runs() if run.state in ("pending", "running")]
    if not waiting:
        return True
    # A program of one's own wants the machine for itself; two workers on one GPU would share its memory unknowingly.
    cores = os.cpu_count() or 1
    usual = cores if options.device == "cpu" and not options.trainer else 1
    count = min(workers or usual, math.ceil(len(waiting) / options.runs_at_once))
    done = sum(run.state == "done" for run in study.runs())
    share = max(1, cores // count)
    # A simulator that has processes of its own shares the cores among the workers.
    os.environ.setdefault("FSC_SIM_PROCESSES", str(share))
    if options.trainer and trained_here(options.trainer):
        # A robot's pictures are larger than the simulator's, and keep more than one core busy. Threads that wait must
        # sleep: spinning, they take the core from the one they wait for as soon as anything else runs.
        options = replace(options, threads=share)
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    with Bars(done, done + len(waiting), count, {run.id for run in waiting if run.attempts}) as bars:
        return run_workers(count, work, (address, study.id, folder, options), bars.hear)


class Bars:
    """Progress of all workers; plain lines when the output is not a terminal.

    `before` are runs that were begun by an earlier command and may go on half done.
    """

    def __init__(self, done: int, total: int, workers: int, before: Collection[int] = ()) -> None:
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
        self._all = self._progress.add_task("runs", total=total, completed=done, note="")
        self._tasks: dict[tuple[int, ...], Any] = {}
        self._begun, self._total = _now(), total
        self._done, self._told = done, self._begun
        self._share: dict[int, float] = {}  # of each run under way that is done
        self._before = set(before)
        self._since: dict[int, float] = {}  # the share that a run had when its work began here
        self._worked = 0.0  # runs' worth of work that was done here and is over
        self._reasons: dict[int, str] = {}
        self._workers = workers

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @staticmethod
    def single(done: int, total: int, note: str = "") -> None:
        """Progress of one long step in this process: a line that rewrites itself, only on a terminal."""
        say_again(f"{note:<28} {done} of {total}", done >= total)

    def hear(self, message: Message) -> None:
        """Show one message of a worker."""
        kind, runs, done, total, note = message
        note = printable(hide_passwords(note))
        if kind in STAGES:
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
            if not self._live and _now() - self._told >= QUIET_SECONDS:
                self._told = _now()
                self._console.print(
                    f"{label.strip()}: {done} of {total} ({self._time_left() or note})", markup=False, soft_wrap=True
                )
        else:
            self._close(kind, runs[0], note)
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
            told = "; ".join(filter(None, (f"{self._done} of {self._total}", self._time_left())))
            self._console.print(f"run {run} done ({told})", markup=False, soft_wrap=True)

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

    def _time_left(self) -> str:
        work = self._work()
        if work < 0.2:
            return ""
        left = (_now() - self._begun) / work * (self._total - self._done - sum(self._share.values()))
        minutes, seconds = divmod(round(max(left, 0)), 60)
        return f"{minutes}:{seconds:02d} left"


def named(runs: Sequence[int]) -> str:
    """A group of runs in few letters."""
    if len(runs) == 1:
        return f"run {runs[0]}"
    return f"{len(runs)} runs, {min(runs)} to {max(runs)},"


def _now() -> float:
    import time

    return time.monotonic()
