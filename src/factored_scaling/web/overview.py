"""Content of the overview page: progress, active runs, failures with reasons, and the remaining time."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from factored_scaling.core.checks import listed
from factored_scaling.core.design import run_on
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Score, known_result, score_of_tallies
from factored_scaling.report.words import counted_factors, plain, score_words
from factored_scaling.runner.executors import job_log
from factored_scaling.store import RoundRow, RunOutline, RunRow
from factored_scaling.store.documents import JOBS
from factored_scaling.study import Study
from factored_scaling.web.files import RunFiles

STATES = ("done", "trained", "running", "pending", "failed")  # as `fsc runs` names them, in the order of the bar
PAGE = 100  # policies in the table at once
MOST_CARDS = 24  # of running and of failed runs


@dataclass(frozen=True)
class TimeLeft:
    """Estimated time of the unfinished runs, from `known` finished ones, with `abreast` runs in parallel."""

    seconds: float
    known: int
    abreast: int


def time_left(
    runs: Sequence[RunOutline], now: float, before: Mapping[int, float] = MappingProxyType({})
) -> TimeLeft | None:
    """Estimate from the median duration of finished runs; None when none has finished or none is left.

    Assumes as many parallel runs as now, at least one. A run older than the median is assumed to end soon. `before` is
    the result of `Store.earlier_work`, because one worker may train a run and another measure it.
    """
    ended = [run for run in runs if run.state in ("done", "trained")]
    lasted = [seconds for run in ended if (seconds := worked(run, before)) is not None]
    running = [run for run in runs if is_alive(run, now)]
    waiting = [run for run in runs if run.state in ("pending", "running") and not is_alive(run, now)]
    if not lasted or not (running or waiting):
        return None
    typical = statistics.median(lasted)

    def rest(run: RunOutline, since: float | None) -> float:
        spent = before.get(run.id, 0.0) + (now - since if since is not None else 0.0)
        return max(typical - spent, 0.05 * typical)

    begun = [rest(run, run.started) for run in running]
    abreast = max(1, len(running))
    seconds = max([(sum(begun) + sum(rest(run, None) for run in waiting)) / abreast, *begun])
    return TimeLeft(seconds, len(lasted), abreast)


def worked(run: RunOutline, before: Mapping[int, float]) -> float | None:
    """How long workers were busy with the run. Scoring by people afterwards is not included."""
    ended = run.trained if run.trained is not None else run.finished
    if run.started is None or ended is None or ended <= run.started:
        return None
    return ended - run.started + before.get(run.id, 0.0)


def is_alive(run: RunOutline, now: float) -> bool:
    """Whether a worker holds the run. After its lease expires a run is still marked as running."""
    return run.state == "running" and (run.lease_expires is None or run.lease_expires > now)


def duration_words(seconds: float) -> str:
    """A rounded duration: '40 s', '12 min', '3 h 20 min', '2 days 4 h'."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(5 * round(minutes / 5), 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours + round(minutes / 60), 24)
    return f"{days} days {hours} h" if hours else f"{days} days"


class Overview:
    """The page's content. It is polled, so it reads only what it shows."""

    def __init__(self, study: Study, files: RunFiles, argument: str) -> None:
        """`argument` names the study in the commands that the page shows."""
        self.study = study
        self.files = files
        self.argument = argument

    def content(self, now: float, evaluations: Sequence[Mapping[str, Any]], page: int = 1) -> dict[str, Any]:
        """The template's variables. Runs hold no scores of a blind evaluation before it is closed."""
        with self.study.store.one_moment():
            return self._content(now, evaluations, page)

    def _content(self, now: float, evaluations: Sequence[Mapping[str, Any]], page: int) -> dict[str, Any]:
        store, study = self.study.store, self.study.id
        runs, rounds, spec = store.outline(study), store.rounds(study), self.study.spec
        counts = Counter[str](run.state for run in runs)
        pages = max(1, math.ceil(len(runs) / PAGE))
        here = min(page, pages)
        shown = [run.id for run in runs[PAGE * (here - 1) : PAGE * here]]
        running = [run.id for run in runs if run.state == "running"]
        failed = [run.id for run in runs if run.state == "failed"]
        alive = sum(is_alive(run, now) for run in runs)
        before = store.earlier_work(study)
        submissions = [row.body for row in store.documents(study, JOBS)]
        workers = store.last_workers(failed[:MOST_CARDS])

        def links(run: RunRow) -> list[dict[str, str]]:
            return self._links(run, run.worker or workers.get(run.id), submissions)

        groups = self._groups(shown, spec, now, before, submissions)
        return {
            "name": spec.name,
            "headline": _headline(counts),
            "detail": _detail(counts, time_left(runs, now, before)),
            "next": next_action(spec, counts, alive, evaluations, self.argument),
            "parts": _parts(counts),
            "facts": _facts(spec, runs, rounds, store.counts(study)[0]),
            "running": [_at_work(run, now) | {"files": links(run)} for run in store.some_runs(running[:MOST_CARDS])],
            "more_running": max(0, len(running) - MOST_CARDS),
            "failed": [_failure(run) | {"files": links(run)} for run in store.some_runs(failed[:MOST_CARDS])],
            "more_failed": max(0, len(failed) - MOST_CARDS),
            "factors": [plain(name) for name in spec.names],
            "groups": groups,
            "links": any(line["files"] for group in groups for line in group["runs"]),
            "page": here,
            "pages": pages,
            "first": PAGE * (here - 1) + 1,
            "last": PAGE * (here - 1) + len(shown),
            "total": len(runs),
            "evaluations": evaluations,
            "rounds": [_round(row, rounds[: row.index + 1], runs) for row in reversed(rounds)],
        }

    def _links(self, run: RunRow, worker: str | None, submissions: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
        """Logs and videos of the run, and the log of the scheduler's job that worked on it."""
        return [*self.files.links(run.digest), *self.files.job_link(job_log(worker, submissions))]

    def _groups(
        self,
        run_ids: Sequence[int],
        spec: StudySpec,
        now: float,
        before: Mapping[int, float],
        submissions: Sequence[Mapping[str, Any]],
    ) -> list[dict[str, Any]]:
        """Table rows by settings: those of study.yaml first, then those of runs from before it was changed."""
        store, study = self.study.store, self.study.id
        tallies, means = store.tallies(study, run_ids), store.study_scores(study, run_ids)
        current = run_on(spec, (), 0).settings
        groups: dict[str, list[dict[str, Any]]] = {"": []}
        for run in store.some_runs(run_ids):
            score = None
            if run.id in tallies:
                score = score_of_tallies(tallies[run.id])
            elif run.id in means:
                score = known_result((mean.factor, mean.score, mean.trials) for mean in means[run.id]).overall
            line = _line(run, score, spec, now, before) | {"files": self._links(run, run.worker, submissions)}
            groups.setdefault(settings_words(run.settings, current), []).append(line)
        return [{"words": words, "runs": lines} for words, lines in groups.items() if lines]


def settings_words(own: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    """How a run's settings differ from the current ones: 'policy.updates 200 (now 400)'; empty if they do not."""
    changes = []
    for key in dict.fromkeys((*current, *own)):
        before, after = own.get(key), current.get(key)
        if before == after:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            names = [name for name in dict.fromkeys((*after, *before)) if before.get(name) != after.get(name)]
            changes += [f"{key}.{name} {_value(before.get(name))} (now {_value(after.get(name))})" for name in names]
        else:
            changes.append(f"{key} {_value(before)} (now {_value(after)})")
    return listed(changes) if changes else ""


def _value(value: object) -> str:
    text = "default" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def next_action(
    spec: StudySpec, counts: Mapping[str, int], alive: int, evaluations: Sequence[Mapping[str, Any]], argument: str
) -> dict[str, str]:
    """What to do next: a sentence, and the page or the command that does it."""
    for one in evaluations:
        if not one["closed"]:
            trials = "1 trial" if one["left"] == 1 else f"{one['left']:,} trials"
            what = f"score the {trials} that are left" if one["left"] else "finish the evaluation"
            return {"text": what, "address": f"/score?evaluation={one['number']}", "command": ""}
    total = sum(counts.values())
    if not total:
        return {"text": "see which policies to train", "address": "", "command": f"fsc plan {argument}"}
    if counts["done"] == total:
        return {"text": "see what to collect", "address": "/curves", "command": ""}
    if alive:
        runs = "1 run is" if alive == 1 else f"{alive} runs are"
        what = f"see below why {counts['failed']} failed" if counts["failed"] else "nothing to do"
        return {"text": f"{what}; {runs} at work", "address": "", "command": ""}
    if counts["trained"]:
        policies = "trained policy" if counts["trained"] == 1 else f"{counts['trained']} trained policies"
        return {"text": f"queue trials of the {policies}", "address": "", "command": f"fsc sheet evaluate {argument}"}
    here = spec.task is not None or spec.dataset is not None or bool(spec.trainer)
    if counts["pending"] or counts["running"]:
        if here:
            return {"text": "train the pending policies", "address": "", "command": f"fsc run {argument}"}
        what = "train and record the pending policies"
        return {"text": what, "address": "", "command": f"fsc runs {argument} --state pending"}
    what = "solve what made runs fail, then try them again"
    command = f"fsc run {argument} --retry-failed" if here else f"fsc runs {argument} --state failed"
    return {"text": what, "address": "", "command": command}


def _line(run: RunRow, score: Score | None, spec: StudySpec, now: float, before: Mapping[int, float]) -> dict[str, Any]:
    sizes, lasted = spec.sizes, worked(run, before)
    return {
        "id": run.id,
        "digest": run.digest[:8],
        "seed": run.seed,
        "state": run.state,
        "word": run.state if run.state != "running" or is_alive(run, now) else "no heartbeat",
        "trials": f"{score.trials:,}" if score is not None and score.trials else "–",
        "score": "" if score is None else score_words(score),
        "demos": [
            {"count": run.demos.get(name, 0), "less": run.demos.get(name, 0) < sizes[name]} for name in spec.names
        ],
        "lasted": duration_words(lasted) if lasted else "–",
    }


def _headline(counts: Mapping[str, int]) -> str:
    total, done = sum(counts.values()), counts["done"]
    if not total:
        return "Nothing is planned yet."
    if done == total:
        return "The only policy is measured." if total == 1 else f"All {total} policies are measured."
    return f"{done} of {total} policies {'is' if done == 1 else 'are'} measured."


def _detail(counts: Mapping[str, int], left: TimeLeft | None) -> str:
    rest = [f"{counts[state]} {state}" for state in STATES[1:] if counts[state]]
    if not rest:
        return "This round is complete." if counts["done"] else ""
    text = listed(rest).capitalize() + "."
    if left is not None:
        runs = "the one finished run" if left.known == 1 else f"{left.known} finished runs"
        text += f" About {duration_words(left.seconds)} left, judged by {runs}, {left.abreast} at a time."
    return text


def _parts(counts: Mapping[str, int]) -> list[dict[str, Any]]:
    """The progress bar: start and length of each state, in thousandths."""
    total, parts, start = sum(counts.values()), [], 0.0
    for state in STATES:
        if counts[state]:
            width = 1000 * counts[state] / total
            parts.append({"state": state, "count": counts[state], "start": start, "width": width})
            start += width
    return parts


def _facts(
    spec: StudySpec, runs: Sequence[RunOutline], rounds: Sequence[RoundRow], trials: int
) -> list[tuple[str, str]]:
    ended = max((run.finished for run in runs if run.finished is not None), default=None)
    curves = "none" if spec.construction == "screen" else str(len(spec.combinations()))
    facts = [
        ("round", str(rounds[-1].index)),
        ("current", f"{spec.total:,} demos, {counted_factors(spec)}"),
        ("curves", f"{curves} ({spec.construction})"),
        ("trials", f"{trials:,}"),
    ]
    return [*facts, ("last finished", moment(ended))] if ended is not None else facts


def _at_work(run: RunRow, now: float) -> dict[str, Any]:
    since = now - run.started if run.started is not None else 0.0
    # whole minutes, so that the page changes only when it must
    elapsed = "less than a minute" if since < 60 else duration_words(60 * math.floor(since / 60))
    return {
        "id": run.id,
        "worker": run.worker or "somebody",
        "elapsed": elapsed,
        "trials": run.trials,
        "attempt": run.attempts,
        "alive": is_alive(run, now),
    }


def _failure(run: RunRow) -> dict[str, Any]:
    lines = (run.error or "no reason was given").strip().splitlines() or ["no reason was given"]
    return {"id": run.id, "reason": lines[-1], "whole": run.error if len(lines) > 1 else "", "attempt": run.attempts}


def _round(row: RoundRow, until: Sequence[RoundRow], runs: Sequence[RunOutline]) -> dict[str, Any]:
    mine = [run for run in runs if row.index in run.rounds]
    before = until[-2].spec.sizes if len(until) > 1 else {}
    grown = [(plain(name), size - before.get(name, size)) for name, size in row.spec.sizes.items()]
    return {
        "index": row.index,
        "began": moment(row.created),
        "demos": row.spec.total,
        "done": sum(run.state == "done" for run in mine),
        "total": len(mine),
        "collected": ", ".join(f"{name} +{count}" for name, count in grown if count) if before else "",
    }


def moment(seconds: float) -> str:
    """A time of day in this machine's time zone."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
