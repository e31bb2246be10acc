"""Scenarios of the crash campaign in which runs get results: told, recorded, run and scored."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections import Counter

from crash_scenario import LEASE, SCALE, Findings, Scenario, append, command, plain_spec, voiced

from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Trial
from factored_scaling.errors import LeaseLost, TrialTaken
from factored_scaling.io.files import write_study
from factored_scaling.runner.options import WorkOptions
from factored_scaling.runner.worker import work
from factored_scaling.scoring.session import Scoring
from factored_scaling.store import Entry, RunRow
from factored_scaling.store.documents import TRAINED
from factored_scaling.study import Study


def many_runs(title: str) -> StudySpec:
    return plain_spec(title, seeds=3)


class Tell(Scenario):
    """Workers ask for runs and tell their whole outcome, some after their lease ended."""

    name = "tell"
    reach = 0.5

    def prepare(self) -> None:
        self.create(many_runs(self.title))

    def child(self, voice: int, generator: random.Random) -> None:
        late = generator.random() < 0.3
        with self.opened() as study:
            while True:
                for run in study.ask(1, f"voice {voice}", 0.02 if late else LEASE):
                    time.sleep(generator.uniform(0.04, 0.08) if late else generator.uniform(0, 0.005))
                    for _ in range(3 if late else 1):  # every later call must be refused too
                        try:
                            study.tell(run.id, {"a": [voiced(voice)] * 3, "b": voiced(voice)})
                        except LeaseLost:
                            append(self.refused, run.id, voice)
                            continue
                        self.acknowledge(run.id, voice)
                        break
                if all(run.state == "done" for run in study.runs()):
                    return
                time.sleep(0.01)

    def finished(self) -> bool:
        with self.opened() as study:
            return all(run.state == "done" for run in study.runs())

    def verify(self, found: Findings) -> None:
        with self.opened() as study:
            for run in study.runs():
                scores = [trial.score for trial in study.store.trials(run.id)]
                means = [mean.score for mean in study.store.scores(run.id)]
                check_voices(self, run, scores, means, (3, 1), found)


def check_voices(
    scenario: Scenario, run: RunRow, scores: list[float], means: list[float], counts: tuple[int, int], found: Findings
) -> None:
    """Check that a run has the results of one voice only, complete, and of the acknowledged one."""
    where = f"{scenario.title}, run {run.id}"
    voices = {round(score * SCALE) for score in (*scores, *means)}
    if len(voices) > 1:
        found.mixed.append(f"{where}: results of {sorted(voices)}")
    if len(scores) > counts[0] or len(means) > counts[1]:
        found.doubled.append(f"{where}: {len(scores)} trials and {len(means)} means")
    said = {int(voice) for id_, voice, *_ in scenario.acknowledged() if int(id_) == run.id}
    if len(said) > 1:
        found.doubled.append(f"{where}: acknowledged to {sorted(said)}")
    if said - voices or (len(scores), len(means)) < counts:
        found.lost.append(f"{where}: {len(scores)} trials and {len(means)} means, acknowledged to {sorted(said)}")


class Record(Scenario):
    """Workers record trial by trial and finish; a lost policy is trained again and has other results."""

    name = "record"
    reach = 0.5
    trials = 5

    def prepare(self) -> None:
        self.create(many_runs(self.title))

    def child(self, voice: int, generator: random.Random) -> None:
        with self.opened() as study:
            while True:
                for run in study.ask(1, f"voice {voice}", LEASE):
                    try:
                        self.measure(study, run.id, voice, generator)
                    except LeaseLost:
                        append(self.refused, run.id, voice)
                if all(run.state == "done" for run in study.runs()):
                    return
                time.sleep(0.01)

    def measure(self, study: Study, run_id: int, voice: int, generator: random.Random) -> None:
        kept = self.folder / f"{run_id}.policy"
        policy = kept.read_text() if kept.exists() and generator.random() < 0.5 else str(voice)
        partial = kept.with_name(f"{run_id}.{voice}.tmp")
        partial.write_text(policy)
        partial.replace(kept)
        known = set()
        if study.find_run(run_id).policy == policy:
            known = {trial.key for trial in study.store.trials(run_id)}
        late = generator.random() < 0.2
        for number in range(self.trials):
            if f"{number}" not in known:
                if late:
                    time.sleep(LEASE / 3)
                study.record(run_id, [Trial(f"{number}", voiced(int(policy)), ("a",))], policy)
                self.acknowledge(run_id, policy, number)
        study.finish(run_id)
        self.acknowledge(run_id, policy, "done")

    def finished(self) -> bool:
        with self.opened() as study:
            return all(run.state == "done" for run in study.runs())

    def verify(self, found: Findings) -> None:
        log = self.acknowledged()
        with self.opened() as study:
            for run in study.runs():
                where = f"{self.title}, run {run.id}"
                trials = study.store.trials(run.id)
                voices = {str(round(trial.score * SCALE)) for trial in trials}
                if len(voices) > 1 or voices != {run.policy}:
                    found.mixed.append(f"{where}: policy {run.policy}, trials of {sorted(voices)}")
                if len(trials) > self.trials:
                    found.doubled.append(f"{where}: {len(trials)} trials")
                done = {policy for id_, policy, what in log if int(id_) == run.id and what == "done"}
                keys = {key for id_, policy, key in log if int(id_) == run.id and policy == run.policy} - {"done"}
                if done - voices or keys - {trial.key for trial in trials} or len(trials) < self.trials:
                    found.lost.append(f"{where}: {len(trials)} trials of {run.policy}, {sorted(done)} acknowledged")


class ByHand(Scenario):
    """A person types `fsc record` commands, one after another, and types the last one again after a crash."""

    name = "fsc record"

    def prepare(self) -> None:
        spec = plain_spec(self.title)
        self.create(spec)
        if self.on_files:
            write_study(spec, self.folder / "study.yaml")
        with self.opened() as study:
            self.commands = [
                words
                for run in study.runs()
                for words in (
                    *([run.id, number / 4, "--key", number] for number in range(3)),
                    [run.id, 1, "--key", "last", "--done"],
                )
            ]

    def child(self, voice: int, generator: random.Random) -> None:
        while left := self.left():
            code, said = command("record", self.target, *self.commands[left[0]])
            if code:
                raise RuntimeError(said)
            self.acknowledge(left[0])

    def left(self) -> list[int]:
        ticked = {int(place) for (place,) in self.acknowledged()}
        return [place for place in range(len(self.commands)) if place not in ticked]

    def finished(self) -> bool:
        return not self.left()

    def verify(self, found: Findings) -> None:
        with self.opened() as study:
            for run in study.runs():
                scores = sorted(trial.score for trial in study.store.trials(run.id))
                if scores != [0.0, 0.25, 0.5, 1.0] or run.state != "done":
                    wrong = found.doubled if len(scores) > 4 else found.lost
                    wrong.append(f"{self.title}, run {run.id}: {run.state}, {scores}")


class Quiet:
    """A worker's line that discards events."""

    stopping = False
    training = False

    def say(self, message: object) -> None: ...

    def check(self) -> None: ...


class Work(Scenario):
    """Workers of `fsc run` with a program that trains and one that measures; run folders are lost now and then."""

    name = "run"
    reach = 1.0
    train = """voice=$(od -An -N2 -tu2 /dev/urandom | tr -d ' ')
echo "$voice" > "$FSC_FOLDER/weights.tmp" && mv "$FSC_FOLDER/weights.tmp" "$FSC_FOLDER/weights"
"""
    evaluate = """voice=$(cat "$FSC_FOLDER/weights")
score=$(printf '0.%05d' "$voice")
printf '{"scores": {"a": [%s, %s], "b": %s}, "metrics": {"voice": %s}}' $score $score $score $voice > "$FSC_RESULT.tmp"
mv "$FSC_RESULT.tmp" "$FSC_RESULT"
"""

    def prepare(self) -> None:
        for name in ("train", "evaluate"):
            (self.folder / f"{name}.sh").write_text(getattr(self, name))
        trainer = {"command": ["sh", "train.sh"], "evaluate": ["sh", "evaluate.sh"], "patience": 1}
        spec = plain_spec(self.title, trainer=trainer)
        self.create(spec)
        if self.on_files:
            write_study(spec, self.folder / "study.yaml")
        with self.opened() as study:
            self.id = study.id
        self.options = WorkOptions(lease_seconds=0.6, device="", proxy=False, backend=trainer)

    def child(self, voice: int, generator: random.Random) -> None:
        work(Quiet(), self.address, self.id, self.folder, self.options)

    def between(self, generator: random.Random) -> None:
        """The folder of a run that is not done was on a machine that is gone; failed runs are tried again."""
        with self.opened() as study:
            for run in study.runs():
                if run.state == "failed":
                    study.store.retry(run.id)
                if run.state != "done" and generator.random() < 0.5:
                    shutil.rmtree(self.folder / "runs" / run.digest, ignore_errors=True)

    def finished(self) -> bool:
        with self.opened() as study:
            return all(run.state == "done" for run in study.runs())

    def verify(self, found: Findings) -> None:
        with self.opened() as study:
            for run in study.runs():
                where = f"{self.title}, run {run.id}"
                scores = [trial.score for trial in study.store.trials(run.id)]
                means = [mean.score for mean in study.store.scores(run.id)]
                kept = study.store.document(study.id, TRAINED, run.digest)
                self.acknowledge(run.id)  # by its state, because there is no other acknowledgement
                voices = {round(score * SCALE) for score in (*scores, *means)}
                if len(voices) > 1 or kept is None or {kept["metrics"].get("voice")} != voices:
                    found.mixed.append(f"{where}: results of {sorted(voices)}, document {kept}")
                if (len(scores), len(means)) != (2, 1):
                    wrong = found.doubled if len(scores) > 2 or len(means) > 1 else found.lost
                    wrong.append(f"{where}: {len(scores)} trials and {len(means)} means")


class RunCommand(Work):
    """The same with the command itself, which starts its workers."""

    name = "fsc run"
    reach = 4.0

    def child(self, voice: int, generator: random.Random) -> None:
        words = ["run", self.target, "--workers", "1", "--lease", "1", "--retry-failed"]
        ended = subprocess.run(
            [sys.executable, "-m", "factored_scaling", *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        # a run that crashed five workers fails, and the next command retries it
        if ended.returncode and "the run crashed" not in ended.stderr:
            raise RuntimeError(ended.stderr)


class Score(Scenario):
    """Operators claim trials, score, skip and undo, send again what was not acknowledged, and close the evaluation."""

    name = "scoring"
    reach = 0.5
    operators = ("ada", "grace", "hedy")
    claim = 0.2

    def prepare(self) -> None:
        scoring = {"conditions": [{"a": "1"}, {"b": "1"}], "repeats": 2}
        self.create(plain_spec(self.title, scoring=scoring))
        with self.opened() as study:
            Scoring.begin(study, [run.id for run in study.runs()][:3], seed=self.seed)

    def child(self, voice: int, generator: random.Random) -> None:
        operator = self.operators[voice % len(self.operators)]
        phone = self.folder / f"{operator}.phone"  # entries without acknowledgement are stored, and sent again first
        with self.opened() as study:
            scoring = Scoring.open(study)
            number = 0
            while not scoring.progress().closed:
                if phone.exists():
                    kind, code, token = phone.read_text().split()
                    self.send(scoring, operator, kind, code, token)
                    phone.unlink(missing_ok=True)
                    continue
                trial = scoring.next(operator, self.claim)
                if trial is None:
                    if not scoring.progress().left:
                        scoring.close()
                    time.sleep(0.01)
                    continue
                if generator.random() < 0.2:
                    time.sleep(self.claim * 1.5)
                number += 1
                kind = generator.choices(["score", "skip", "undone"], [8, 1, 1])[0]
                partial = phone.with_name(f"{voice}.tmp")
                partial.write_text(f"{kind} {trial.code} {voice}.{number}")
                partial.replace(phone)

    def send(self, scoring: Scoring, operator: str, kind: str, code: str, token: str) -> None:
        try:
            if kind == "skip":
                scoring.skip(code, operator, token)
            else:
                scoring.score(code, 1.0, operator, token, note=token)
            self.acknowledge(token, code)
            if kind == "undone":
                undo = Entry("undo", f"{token}u", operator)  # as `Scoring.undo`, which claims the trial for longer
                scoring.study.store.append_entries(scoring.id, [(code, undo)], self.claim)
                self.acknowledge(f"{token}u", code)
        except TrialTaken:
            append(self.refused, token, code)

    def finished(self) -> bool:
        with self.opened() as study:
            return Scoring.open(study).progress().closed

    def verify(self, found: Findings) -> None:
        with self.opened() as study:
            scoring = Scoring.open(study)
            tokens = Counter(row.entry.token for row in scoring.history())
            for token, code in self.acknowledged():
                if token not in tokens:
                    found.lost.append(f"{self.title}: entry {token} of {code}")
            if max(tokens.values(), default=0) > 1:
                found.doubled.append(f"{self.title}: {tokens.most_common(1)}")
            queued = study.store.queue(scoring.id)
            scored = {f"scored/{scoring.number}/{trial.code}": trial for trial in queued if trial.state == "scored"}
            kept = {run.id: study.store.trials(run.id) for run in study.runs()}
            stored = Counter(trial.key for trials in kept.values() for trial in trials)
            if set(scored) - set(stored):
                found.lost.append(f"{self.title}: {len(set(scored) - set(stored))} scored trials")
            if set(stored) - set(scored) or max(stored.values(), default=0) > 1:
                found.doubled.append(f"{self.title}: {len(stored)} trials of {len(scored)} scored")
            for run_id, trials in kept.items():
                for trial in trials:
                    if trial.key in scored and scored[trial.key].run_id != run_id:
                        found.mixed.append(f"{self.title}: {trial.key} is with run {run_id}")
