"""Carrying out a study's pending runs: workers that lease, train, measure, record, and survive being killed."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from factored_scaling.core.proxy import KS, cosine_similarities, nearest_mean
from factored_scaling.core.scores import Trial
from factored_scaling.errors import CheckpointError, FscError, InvalidInput, LeaseLost
from factored_scaling.exec.local import Line, Stopped
from factored_scaling.lab import CHUNK, Lab
from factored_scaling.ports import Progress
from factored_scaling.proxy import KIND
from factored_scaling.study import Run, Study
from factored_scaling.trainers import OutsideTrainer, load_trainer

MOST_DEATHS = 5
TRAINED = "trained"  # kind of the documents that say where a policy lies and which command made it

# What workers say: (kind, run id, …). Shown by the command line, ignored by tests.
Message = tuple[str, int, int, int, str]


@dataclass(frozen=True)
class WorkOptions:
    """How runs are carried out."""

    # seconds without a heartbeat after which another worker may take a run
    lease_seconds: float = 60.0
    # how often a run is tried before it stays failed
    attempts: int = 2
    # where networks are trained and run
    device: str = "cpu"
    # keep the similarities that FSC-Proxy needs
    proxy: bool = True
    # the study's `trainer:`; empty when the simulator trains
    trainer: Mapping[str, Any] = field(default_factory=dict)


def run_folder(folder: Path, digest: str) -> Path:
    """Where a run's checkpoint and log lie."""
    return folder / "runs" / digest


def work(line: Line, address: str | Path, study_id: int, folder: Path, options: WorkOptions) -> None:
    """Take runs until none is left. Waits for runs that others hold: if their worker dies, they come back."""
    if not options.trainer:
        _limit_threads(options.device)
    with Study.open_by_id(address, study_id) as study:
        lab: Lab | OutsideTrainer | None = None
        while not line.stopping:
            taken = study.ask(1, lease_seconds=options.lease_seconds)
            if not taken:
                if not any(run.state == "running" for run in study.runs()):
                    return
                time.sleep(0.5)
                continue
            lab = lab if lab is not None else _lab(taken[0], folder, options)
            carry_out(study, taken[0], lab, line, options)


def carry_out(study: Study, run: Run, lab: Lab | OutsideTrainer, line: Line, options: WorkOptions) -> None:
    """One run from lease to done; an error is kept with the run, a stop gives it back unfinished."""
    folder = run_folder(lab.folder, run.spec.digest)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.txt").open("a", encoding="utf-8") as log, _heartbeat(study, run, options) as lost:

        def write(text: str) -> None:
            log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
            log.flush()

        def progress(done: int, total: int, note: str = "") -> None:
            line.check()
            if lost.is_set():
                raise LeaseLost(f"run {run.id} was taken over")
            line.say((stage, run.id, done, total, note))

        stage = "train"
        try:
            write(f"attempt {run.lease_token}: {len(run.episodes)} demos, seed {run.seed}")
            _check_deaths(study, run)
            lab.train(run.spec, folder, progress)
            write("trained")
            stage = "evaluate"
            if not isinstance(lab, Lab):
                if not _take_outcome(study, run, lab, folder, progress):
                    study.trained(run.id)
                    write("waits for trials")
                    line.say(("trained", run.id, 1, 1, "waits for trials"))
                    return
            else:
                _measure(study, run, lab, folder, progress)
                if options.proxy:
                    _keep_similarities(study, run, lab, folder)
            study.finish(run.id)
            write("done")
            line.say(("done", run.id, 1, 1, ""))
        except Stopped:
            write("stopped")
            study.release(run.id)
            raise
        except LeaseLost as error:
            write(str(error))
        except Exception as error:
            write(traceback.format_exc())
            _give_up(study, run, error, folder, options, line)


def _lab(run: Run, folder: Path, options: WorkOptions) -> Lab | OutsideTrainer:
    if options.trainer:
        return load_trainer(options.trainer, run.spec.policy, folder, options.device)
    return Lab.of_run(run.spec, folder, options.device)


def _take_outcome(study: Study, run: Run, trainer: OutsideTrainer, folder: Path, progress: Progress) -> bool:
    """Record what the trainer's own program measured; False when it measured nothing and people are to."""
    outcome = trainer.outcome(run.spec, folder, study.spec.names, progress)
    body = {
        "policy": str((folder / outcome.policy).resolve()),
        "metrics": outcome.metrics,
        "trainer": trainer.described,
    }
    study.store.put_document(study.id, TRAINED, run.spec.digest, body)
    if outcome.trials:
        study.record(run.id, outcome.trials)
    if outcome.scores:
        study.store.append_scores(run.id, outcome.scores)
    return outcome.measured


def _check_deaths(study: Study, run: Run) -> None:
    """A run that kills every worker (memory, most likely) must not be taken for ever."""
    outcomes = [attempt.outcome for attempt in study.store.attempts(run.id)]
    since = max((place + 1 for place, outcome in enumerate(outcomes) if outcome == "failed"), default=0)
    lost = outcomes[since:].count("lost")
    if lost >= MOST_DEATHS:
        hint = "is there enough memory? `fsc run --retry-failed` tries again"
        raise InvalidInput(f"{lost} workers died over this run", hint=hint)


def _measure(study: Study, run: Run, lab: Lab, folder: Path, progress: Progress) -> None:
    done = {trial.key for trial in study.store.trials(run.id)}
    batch: list[Trial] = []
    for trial in lab.evaluate(run.spec, folder, done, progress):
        batch.append(trial)
        if len(batch) == CHUNK:
            study.record(run.id, batch)
            batch = []
    if batch:
        study.record(run.id, batch)


def _keep_similarities(study: Study, run: Run, lab: Lab, folder: Path) -> None:
    trained, held_out = lab.embed(folder, run.episodes), lab.embed_held_out(folder, run.spec)
    similarities = cosine_similarities(held_out, trained)
    nearest = {str(k): nearest_mean(similarities, k).round(6).tolist() for k in KS}
    factors = [condition.factor for condition in lab.conditions(run.spec.evaluation)]
    study.store.put_document(study.id, KIND, run.spec.digest, {"nearest": nearest, "factors": factors})


def _give_up(study: Study, run: Run, error: Exception, folder: Path, options: WorkOptions, line: Line) -> None:
    """Keep the reason; try again unless trying again cannot help."""
    reason = str(error) if isinstance(error, FscError) else f"{type(error).__name__}: {error}"
    study.fail(run.id, f"{reason} (log: {folder / 'log.txt'})")
    hopeless = isinstance(error, InvalidInput)
    if isinstance(error, CheckpointError):
        for path in folder.glob("policy.*"):  # a damaged policy is trained again
            path.unlink()
    if run.lease_token < options.attempts and not hopeless:
        study.store.retry(run.id)
        line.say(("retry", run.id, 0, 1, reason))
    else:
        line.say(("failed", run.id, 0, 1, reason))


@contextmanager
def _heartbeat(study: Study, run: Run, options: WorkOptions) -> Iterator[threading.Event]:
    """Keeps the lease alive from a thread of its own; the event is set when the lease was lost."""
    ended, lost = threading.Event(), threading.Event()

    def beat() -> None:
        while not ended.wait(options.lease_seconds / 4):
            try:
                study.store.heartbeat(run.id, run.lease_token, options.lease_seconds)
            except LeaseLost:
                if not ended.is_set():
                    lost.set()
                return
            except FscError:
                continue  # the database was busy; the next beat comes before the lease ends

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield lost
    finally:
        ended.set()
        thread.join()


def _limit_threads(device: str) -> None:
    """Workers side by side: each computes on one core, or they slow each other down."""
    import torch

    if device == "cpu":
        torch.set_num_threads(1)
