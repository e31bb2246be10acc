"""fsc stop, and what `fsc runs` shows of workers: who has which run, where the logs are, how far they are."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from factored_scaling.cli.show import quoted, say
from factored_scaling.cli.target import Target, study_argument
from factored_scaling.errors import StoreError, hide_passwords, printable

if TYPE_CHECKING:
    from factored_scaling.store import RunRow, State
    from factored_scaling.study import Study

STATES: tuple[State, ...] = ("done", "trained", "running", "pending", "failed")
LOOK = 2.0  # seconds between two looks of --watch
MOST_SHOWN = 24  # runs at work that --watch shows


@click.command("stop")
@study_argument
@click.option("--now", is_flag=True, help="Stop at the next safe point; interrupted runs continue later.")
@click.option("--cancel", is_flag=True, help="Also cancel the jobs of the scheduler, including queued ones.")
def stop_command(study: str, now: bool, cancel: bool) -> None:
    """Stop the study's workers, on this machine and on others, after their current runs.

    `fsc run` starts workers again; interrupted runs continue from their last checkpoint.

    \b
    fsc stop my-study
    fsc stop my-study --now
    fsc stop my-study --cancel
    """
    with Target.parse(study).study() as opened:
        opened.stop(now=now or cancel)
        running = sum(run.state == "running" for run in opened.store.outline(opened.id))
        runs = "1 run is" if running == 1 else f"{running} runs are"
        if not running:
            say("no run is in progress; workers stop")
        elif now or cancel:
            say(f"{runs} in progress; workers stop at the next safe point")
        else:
            say(f"{runs} in progress; workers stop after that (`fsc stop {quoted(study)} --now` does not wait)")
        for job in opened.stop(cancel=True) if cancel else ():  # may wait a minute for the safe point
            say(f"cancelled: {job}")
    say(f"`fsc run {quoted(study)}` continues from there")


def watch(study: Study, folder: Path) -> None:
    """Show how far the runs are, again and again until none is left; Ctrl-C ends this and no worker."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console, shown, failed = Console(highlight=False), "", set[int]()
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            try:
                runs = study.runs()
                summary, lines = _summary(study, runs), work_lines(study, folder, runs)
            except StoreError as error:  # the server may be away for a moment
                runs, summary, lines = [], f"{error}; waiting", []
            if console.is_terminal:
                text = printable(hide_passwords("\n".join([summary, *lines[:MOST_SHOWN]])))
                live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)
            elif summary != shown:
                say(summary)
                shown = summary
            for run in runs:
                if run.state == "failed" and run.id not in failed:
                    failed.add(run.id)
                    say(failure(run))
            if runs and not any(run.state in ("pending", "running") for run in runs):
                break
            try:
                time.sleep(LOOK)
            except KeyboardInterrupt:
                break
    if console.is_terminal:
        say(summary)


def _summary(study: Study, runs: Sequence[RunRow]) -> str:
    from factored_scaling.web.overview import duration_words, time_left

    left = time_left(runs, time.time(), study.store.earlier_work(study.id))
    words = f"; about {duration_words(left.seconds)} left" if left is not None else ""
    return f"{study.spec.name}: {count_states(runs)}{words}"


def count_states(runs: Sequence[RunRow]) -> str:
    """`3 done, 1 running, 6 pending`"""
    counts = Counter(run.state for run in runs)
    return ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])


def failure(run: RunRow, job: str = "") -> str:
    """A line about a run that failed; `job` is the scheduler's log."""
    reason = ((run.error or "").splitlines() or ["no reason was given"])[-1]
    return f"run {run.id} failed: {reason}{f'; job: {job}' if job else ''}"


def failures(study: Study, runs: Sequence[RunRow]) -> list[str]:
    """A line for each of these runs that failed, and where the logs are."""
    from factored_scaling.runner.executors import job_log

    failed = [run for run in runs if run.error]
    submissions = _submissions(study) if failed else []
    workers = study.store.last_workers([run.id for run in failed]) if submissions else {}
    return [failure(run, job_log(workers.get(run.id), submissions)) for run in failed]


def _submissions(study: Study) -> list[Mapping[str, Any]]:
    """What was submitted to schedulers for the study, oldest first."""
    from factored_scaling.store.documents import JOBS

    return [row.body for row in study.store.documents(study.id, JOBS)]


def work_lines(study: Study, folder: Path, runs: Sequence[RunRow]) -> list[str]:
    """A line for each of these runs that somebody works on: who, since when, and where the logs are.

    Before them, how many policies are trained and wait to be measured.
    """
    from factored_scaling.runner.executors import job_log
    from factored_scaling.runner.options import run_folder
    from factored_scaling.web.overview import duration_words, is_alive

    now, lines = time.time(), list[str]()
    running = [run for run in runs if run.state == "running"]
    submissions = _submissions(study) if running else []
    for run in running:
        since = duration_words(now - run.started) if run.started is not None and now > run.started else "0 s"
        state = f"for {since}" if is_alive(run, now) else "no heartbeat, another worker takes over"
        own, job = run_folder(folder, run.digest) / "log.txt", job_log(run.worker, submissions)
        logs = [f"log: {own}"] * own.exists() + [f"job: {job}"] * bool(job)
        where = f"; {', '.join(logs)}" if logs else ""
        lines.append(f"run {run.id}: {run.worker or 'somebody'}, {state}{where}")
    if trained := sum(run.state == "pending" and run.policy is not None for run in runs):
        runs_wait = (
            "1 pending run is trained and waits" if trained == 1 else f"{trained} pending runs are trained and wait"
        )
        lines.insert(0, f"{runs_wait} to be measured")
    return lines
