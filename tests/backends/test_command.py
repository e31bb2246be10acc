"""Studies that somebody else's program trains, for real: scored, left to people, stopped, killed, resumed, failed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.backends.heard import Heard
from tests.backends.made import backend_of
from tests.cli.conftest import run_fsc
from tests.data.lerobot_cases import write

from factored_scaling.backends.command import CommandSettings
from factored_scaling.backends.embeddings import similarities
from factored_scaling.core.design import RunSpec
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput, RunFailed
from factored_scaling.io.files import read_study, write_study
from factored_scaling.runner.carry_out import carry_out
from factored_scaling.runner.events import Event, RunProgress
from factored_scaling.runner.options import WorkOptions
from factored_scaling.study import Study
from factored_scaling.study.proxy import proxy_of_runs

PROGRAM = Path(__file__).parent / "programs" / "train.py"
COMMAND = [sys.executable, str(PROGRAM), "--episodes", "{episodes_file}", "--seed", "{seed}", "--out", "{folder}"]
RUN = RunSpec(("lighting/1", "camera_pose/0"), policy={"steps": 3}, seed=7)


def trainer(home: Path, *words: str, policy: dict[str, Any] | None = None, **settings: Any) -> Any:
    made = backend_of({"command": [*COMMAND, *words], **settings}, policy or RUN.policy, home, "cuda:1")
    (home / "run").mkdir(exist_ok=True)
    return made


def test_a_command_trains_reports_and_is_not_run_twice(tmp_path: Path) -> None:
    made, heard = trainer(tmp_path, "--steps", "{policy.steps}", "--pause", "0.15"), Heard()
    made.train(RUN, tmp_path / "run", heard)
    assert (tmp_path / "run" / "episodes.txt").read_text() == "lighting/1\ncamera_pose/0\n"
    steps = [done for done, total, _ in heard.told if total == 3]
    assert steps == sorted(steps)
    assert len(set(steps)) > 1  # as it went, not only at the end
    assert heard.told[-1] == (3, 3, "step 3/3 loss 0.1")
    assert "step 2/3" in (tmp_path / "run" / "train.log").read_text()
    outcome = made.outcome(RUN, tmp_path / "run", ("camera_pose", "lighting"), heard)
    assert [(s.score, s.trials, s.factor) for s in outcome.scores] == [(0.25, 20, ("camera_pose",))]
    assert [(t.key, t.score, t.factor) for t in outcome.trials][:2] == [
        ("lighting/0", 1.0, ("lighting",)),
        ("lighting/1", 0.0, ("lighting",)),
    ]
    made.train(RUN, tmp_path / "run", heard)
    assert (tmp_path / "run" / "starts.txt").read_text() == "0\n"


@pytest.mark.slow
def test_a_stop_ends_the_command_and_the_next_call_goes_on(tmp_path: Path) -> None:
    words = ("--steps", "6", "--pause", "0.3", "{resume}")
    made = trainer(tmp_path, *words, resume="--resume", resume_if="state.js*n")
    with pytest.raises(KeyboardInterrupt):
        made.train(RUN, tmp_path / "run", Heard(lambda done: done == 2))
    made.train(RUN, tmp_path / "run", Heard())
    first, second = (tmp_path / "run" / "starts.txt").read_text().split()
    assert (first, second) in {("0", "2"), ("0", "3")}  # the stop did not wait for the rest
    assert json.loads((tmp_path / "run" / "train.begun.json").read_text())["resumed"] is True


def test_without_anything_to_go_on_with_it_starts_anew(tmp_path: Path) -> None:
    made = trainer(tmp_path, "{resume}", "--fail-at", "0", resume="--resume", resume_if="state.json")
    for _ in range(2):
        with pytest.raises(RunFailed, match="exit code 3"):
            made.train(RUN, tmp_path / "run", Heard())
    assert (tmp_path / "run" / "starts.txt").read_text() == "0\n0\n"


def test_a_failure_tells_the_last_lines_and_where_all_of_them_are(tmp_path: Path) -> None:
    made = trainer(tmp_path, "--fail-at", "2")
    with pytest.raises(RunFailed, match=r"step 1/3 .* / step 2/3 .* / loss is not a number; all .*train\.log"):
        made.train(RUN, tmp_path / "run", Heard())
    with pytest.raises(RunFailed, match="no-such-program: No such file"):
        backend_of({"command": "no-such-program {seed}"}, {}, tmp_path, "cpu").train(RUN, tmp_path / "run", Heard())
    (tmp_path / "train.sh").write_text("#!/bin/sh\n")
    with pytest.raises(RunFailed, match=r"train\.sh: No such file or directory; write \./train\.sh"):
        backend_of({"command": "train.sh {seed}"}, {}, tmp_path, "cpu").train(RUN, tmp_path / "run", Heard())


def test_a_stubborn_command_is_asked_twice_and_then_ended_for_good_with_its_children(tmp_path: Path) -> None:
    script = (
        'for signal in INT TERM; do trap "echo $signal >> asked" $signal; done\n'
        "(trap '' INT TERM; echo $BASHPID > child; while :; do sleep 0.1; done) & echo up\n"
        "while kill -0 $!; do wait; done"
    )
    made = backend_of({"command": ["bash", "-c", script], "patience": 1}, {}, tmp_path, "cpu")
    with pytest.raises(KeyboardInterrupt):
        made.train(RUN, folder(tmp_path), Heard(lambda _: (tmp_path / "child").exists()))
    assert (tmp_path / "asked").read_text().split() == ["INT", "TERM"]
    assert gone(int((tmp_path / "child").read_text()))


def test_two_commands_train_and_measure(tmp_path: Path) -> None:
    write = "import json, os; json.dump({'scores': {'lighting': 0.25}}, open(os.environ['FSC_RESULT'], 'w'))"
    made = trainer(tmp_path, "--score", "none", evaluate=[sys.executable, "-c", write])
    made.train(RUN, tmp_path / "run", Heard())
    outcome = made.outcome(RUN, tmp_path / "run", ("lighting",), Heard())
    assert [score.score for score in outcome.scores] == [0.25]
    silent = trainer(tmp_path, "--score", "none", evaluate="true")
    (tmp_path / "run" / "evaluate.finished.json").unlink()
    with pytest.raises(InvalidInput, match=r"evaluation\.json: the evaluation wrote no scores"):
        silent.outcome(RUN, tmp_path / "run", ("lighting",), Heard())


def test_a_worker_that_lost_its_run_leaves_neither_scores_nor_documents(tmp_path: Path) -> None:
    spec = StudySpec({"lighting": 4, "camera_pose": 4}, construction="one", points=2, policy=RUN.policy)
    write = "import json, os; json.dump({'scores': {'lighting': 0.9}}, open(os.environ['FSC_RESULT'], 'w'))"
    made = trainer(tmp_path, "--score", "none", evaluate=[sys.executable, "-c", write])

    class Line:
        """Another worker takes the run over while this one measures."""

        stopping = False
        training = False

        def say(self, event: Event) -> None:
            if (
                isinstance(event, RunProgress)
                and event.stage == "evaluate"
                and rightful.find_run(run.id).worker != "rightful"
            ):
                rightful.take(run.id, "rightful")

        def check(self) -> None: ...

    with Study.create(spec, tmp_path / "study.db") as study, Study.open(tmp_path / "study.db") as rightful:
        run = study.ask(lease_seconds=0.01)[0]
        options = WorkOptions(lease_seconds=600, proxy=False)  # no heartbeat comes in time
        carry_out(study, run, made, Line(), options)
        row = study.find_run(run.id)
        assert (row.state, row.worker, row.trials, row.scores) == ("running", "rightful", 0, 0)
        assert study.store.documents(study.id) == []
        rightful.tell(run.id, 0.1)
        assert [one.score for one in study.results().rows] == [0.1]


def test_placeholders_and_the_environment_say_the_same(tmp_path: Path) -> None:
    show = (
        "import json, os, sys; print(json.dumps([sys.argv[1:], {k: v for k, v in os.environ.items() if 'FSC_' in k}]))"
    )
    words = [
        "{episodes}",
        "{episodes*}",
        "{seed}",
        "{device}",
        "{policy.name} {policy.depth.x} {evaluation.trials}",
        "{{seed}}",
        '{"a": 1}',
    ]
    policy = {"name": "a b", "depth": {"x": True}}
    own = {"FSC_MINE": "{seed}", "FSC_ALL": "{episodes*}", "FSC_AGAIN": "{resume}"}
    settings = {"command": [sys.executable, "-c", show, *words], "environment": own}
    run = RunSpec(("b", "a c"), policy=policy, evaluation={"trials": 50}, seed=7)
    backend_of(settings, policy, tmp_path, "cuda:1", run.evaluation).train(run, folder(tmp_path), Heard())
    argv, environment = json.loads((tmp_path / "run" / "train.log").read_text())
    assert argv == ["b,a c", "b", "a c", "7", "cuda:1", "a b true 50", "{seed}", '{"a": 1}']
    assert (environment["FSC_SEED"], environment["FSC_MINE"], environment["FSC_RESUME"]) == ("7", "7", "0")
    assert (environment["FSC_ALL"], environment["FSC_AGAIN"]) == ("b a c", "")
    whole = json.loads(Path(environment["FSC_RUN_FILE"]).read_text())
    assert (whole["seed"], whole["episodes"]) == (7, ["a c", "b"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"command": "train {sed}"}, r"trainer\.command: unknown placeholder '\{sed\}'; did you mean \{seed\}"),
        ({"command": "train {policy.step}"}, r"\{policy.steps\}"),
        ({"command": "train --x={episodes*}"}, "must stand alone"),
        ({"command": "train 'x"}, "check the quotes"),
        ({"command": ""}, "is empty"),
        ({"command": {"a": 1}}, "expected a command line"),
        ({}, "no command"),
        ({"comand": "train"}, "did you mean command"),
        ({"kind": "comand"}, "unknown backend 'comand'; did you mean command"),
        ({"command": "x", "progress": "step (\\d+)"}, "has 1 groups; two are needed"),
        ({"command": "x", "progress": "("}, "not a regular expression"),
        ({"command": "x", "resume": "--resume"}, r"\{resume\} is not in the command"),
        ({"command": "x", "patience": -1}, "seconds up to 50"),
        ({"command": "x", "environment": {"A": []}}, r"trainer\.environment\.A"),
        ({"command": "x", "environment": {"A": "{sed}"}}, "did you mean"),
        ({"command": "x", "directory": 3}, r"trainer\.directory"),
    ],
)
def test_mistakes_are_told_before_anything_is_spent(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=message):
        backend_of(settings, {"steps": 3}, tmp_path, "cpu")


def test_so_many_episodes_do_not_fit_into_a_word(tmp_path: Path) -> None:
    run = RunSpec(tuple(f"episode-{number:010d}" for number in range(9000)))
    with pytest.raises(InvalidInput, match=r"too long .*episodes_file"):
        backend_of({"command": "echo {episodes}"}, {}, tmp_path, "cpu").train(run, folder(tmp_path), Heard())


def test_progress_is_found_by_a_pattern_of_ones_own(tmp_path: Path) -> None:
    script = "printf 'epoch 1/2 batch 5 of 9\\r'; sleep 0.3; printf 'epoch 2/2 batch 1,000 of 1,200\\n'; sleep 0.3"
    settings = {"command": ["bash", "-c", script], "progress": r"batch ([\d,]+) of ([\d,]+)"}
    heard = Heard()
    backend_of(settings, {}, tmp_path, "cpu").train(RUN, folder(tmp_path), heard)
    assert {(5, 9), (1000, 1200)} <= {(done, total) for done, total, _ in heard.told}


def make_study(home: Path, *words: str, dataset: str | None = None, **settings: Any) -> None:
    home.mkdir(exist_ok=True)
    spec = StudySpec(
        factors={"camera_pose": 4, "lighting": 4},
        construction="one",
        points=2,
        name="outside",
        dataset=dataset,
        policy={"steps": 3},
        trainer={"command": shlex.join([*COMMAND, "--steps", "{policy.steps}", *words]), **settings},
    )
    write_study(spec, home / "study.yaml")


def fsc(*words: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = run_fsc(*words)
    assert done.returncode == code, done.stderr
    return done


def test_fsc_run_trains_a_study_to_a_recommendation(tmp_path: Path) -> None:
    make_study(tmp_path)
    done = fsc("run", tmp_path)
    assert "all runs are done" in done.stdout
    with Study.open(tmp_path / "study.db") as study:
        assert {run.state for run in study.runs()} == {"done"}
        assert [(run.trials, run.scores) for run in study.runs()] == [(3, 1)] * 3
        [first, *_] = study.store.documents(study.id, "trained")
        assert first.body["trainer"]["command"][0] == sys.executable
    assert sum(json.loads(fsc("recommend", tmp_path, "--budget", "10", "--json").stdout)["allocation"].values()) == 10
    make_study(tmp_path, "--pause", "0")
    assert "`trainer:` has changed since runs 1, 2, 3 were trained" in fsc("run", tmp_path).stderr


@pytest.mark.slow
def test_a_change_of_the_policy_in_the_middle_is_told_wherever_both_meet(tmp_path: Path) -> None:
    """Otherwise people would score twice as many trials, and curves would mix policies of two kinds, unknowingly."""
    make_study(tmp_path, "--score", "none")
    assert "changed" not in fsc("run", tmp_path).stderr
    spec = read_study(tmp_path / "study.yaml")
    write_study(replace(spec, policy={"steps": 2}), tmp_path / "study.yaml")
    told = "warning: `policy:` in study.yaml changed after runs 1, 2, 3 had been planned"
    assert f"{told}; those runs keep the old settings" in fsc("run", tmp_path).stderr
    assert f"{told}; `fsc sheet close {tmp_path} --early`" in fsc("sheet", "evaluate", tmp_path).stderr
    fsc("sheet", "close", tmp_path, "--early")
    for run in range(1, 4):
        fsc("record", tmp_path, str(run), "1", "0", "--done")
    assert "changed" not in fsc("sheet", "evaluate", tmp_path).stderr  # those that are left have one policy
    assert "changed" not in fsc("recommend", tmp_path, "--budget", "10").stderr
    fsc("record", tmp_path, "4", "1", "0", "--done")
    assert f"{told}; their scores are used all the same" in fsc("recommend", tmp_path, "--budget", "10").stderr


def test_settings_that_change_before_anything_is_measured_are_those_that_are_trained(tmp_path: Path) -> None:
    make_study(tmp_path)
    spec = read_study(tmp_path / "study.yaml")
    with Study.create(spec, tmp_path / "study.db") as study:
        study.fail(study.ask(1)[0].id, "out of memory")
    write_study(replace(spec, policy={"steps": 2}), tmp_path / "study.yaml")
    done = fsc("run", tmp_path)  # the failed run would end it with exit code 1
    assert "study.yaml has changed: removed runs 1, 2, 3 of the earlier plan, which had no scores" in done.stderr
    assert "warning" not in done.stderr
    with Study.open(tmp_path / "study.db") as study:
        assert [(run.state, run.settings["policy"]["steps"]) for run in study.runs()] == [("done", 2)] * 3


def test_a_study_that_people_measure_waits_and_is_not_trained_again(tmp_path: Path) -> None:
    make_study(tmp_path, "--score", "none")
    assert "3 policies are trained and wait for trials" in fsc("run", tmp_path).stdout
    fsc("run", tmp_path)
    with Study.open(tmp_path / "study.db") as study:
        assert {run.state for run in study.runs()} == {"trained"}
        starts = [(tmp_path / "runs" / run.digest / "starts.txt").read_text() for run in study.runs()]
    assert starts == ["0\n"] * 3
    assert "3 trained" in fsc("runs", tmp_path, "--state", "trained").stdout
    fsc("record", tmp_path, "1", "--factor", "lighting", "1", "0", "--done")
    assert "2 policies are trained" in fsc("run", tmp_path).stdout


def test_results_of_another_study_in_the_same_folder_are_not_used(tmp_path: Path) -> None:
    script = "import json, os, sys; json.dump({'scores': float(sys.argv[1])}, open(os.environ['FSC_RESULT'], 'w'))"

    def scores(score: str, name: str) -> list[float]:
        trainer = {"command": [sys.executable, "-c", script, score]}
        spec = StudySpec({"camera_pose": 2, "lighting": 2}, construction="one", points=2, name=name, trainer=trainer)
        with Study.load_or_create(spec, tmp_path / "lab.db") as study:
            study.run(workers=1)
            return [row.score for row in study.results().rows]

    assert scores("0.2", "first") == [0.2] * 3
    with pytest.raises(InvalidInput, match=r"belongs to another study, 'first' of .*; give each study a folder"):
        scores("0.8", "second")
    (tmp_path / "lab.db").unlink()
    with pytest.raises(InvalidInput, match="belongs to another study, 'first'"):
        scores("0.9", "first")
    shutil.rmtree(tmp_path / "runs")
    assert scores("0.9", "first") == [0.9] * 3
    assert scores("0.9", "first") == [0.9] * 3


def test_a_wrong_result_keeps_the_policy_and_says_what_is_wrong(tmp_path: Path) -> None:
    make_study(tmp_path, "--score", "wrong")
    done = fsc("run", tmp_path, code=1)
    assert "result.json: scores.lightning: unknown factor 'lightning'; did you mean lighting?" in done.stderr
    assert "; correct the file, or remove its folder to train again, and `fsc run --retry-failed`" in done.stderr
    assert "Traceback" not in done.stderr
    assert f"runs 1, 2, 3 failed; `fsc run {tmp_path} --retry-failed` retries once the cause is fixed" in done.stderr
    with Study.open(tmp_path / "study.db") as study:
        run = study.runs()[0]
        assert [attempt.outcome for attempt in study.store.attempts(run.id)] == ["failed"]  # trying again cannot help
        for row in study.runs():
            (tmp_path / "runs" / row.digest / "result.json").write_text('{"scores": 0.5}')
    fsc("run", tmp_path, "--retry-failed")
    assert (tmp_path / "runs" / run.digest / "starts.txt").read_text() == "0\n"  # mended, not trained again


@pytest.mark.slow
def test_a_wrong_evaluation_is_done_again_and_the_policy_kept(tmp_path: Path) -> None:
    """Hours of training are not thrown away for a slip in the program that measures."""
    program = tmp_path / "measure.py"
    make_study(tmp_path, "--score", "none")
    spec = read_study(tmp_path / "study.yaml")
    evaluate = {**spec.trainer, "evaluate": [sys.executable, str(program), "{result}"]}
    write_study(replace(spec, trainer=evaluate), tmp_path / "study.yaml")
    slips = {
        "{'scores': {'lighting': 61}}": "write 61% as 0.61",
        "{'scores': {'nominal': 0.9}}": "leave trials of the nominal scene out",
        "{}": "the evaluation wrote no scores",
    }
    for slip, reason in slips.items():
        program.write_text(f"import json, sys; json.dump({slip}, open(sys.argv[1], 'w'))")
        done = fsc("run", tmp_path, "--retry-failed", code=1)
        assert reason in done.stderr
        assert "correct the program; `fsc run --retry-failed` measures again and does not train" in done.stderr
    program.write_text("import json, sys; json.dump({'scores': {'lighting': 0.61}}, open(sys.argv[1], 'w'))")
    fsc("run", tmp_path, "--retry-failed")
    with Study.open(tmp_path / "study.db") as study:
        assert [run.state for run in study.runs()] == ["done"] * 3
        starts = [(tmp_path / "runs" / run.digest / "starts.txt").read_text() for run in study.runs()]
    assert starts == ["0\n"] * 3


@pytest.mark.slow
def test_embeddings_of_somebody_elses_policy_become_proxy_scores(tmp_path: Path) -> None:
    program = tmp_path / "measure.py"
    make_study(tmp_path, "--score", "none")
    spec = read_study(tmp_path / "study.yaml")
    trainer = {**spec.trainer, "evaluate": [sys.executable, str(program), "{episodes_file}", "{folder}", "{result}"]}
    write_study(replace(spec, trainer=trainer), tmp_path / "study.yaml")
    text = """
import json, sys, numpy
episodes = open(sys.argv[1]).read().split()
axis = {"camera_pose": [1.0, 0.0], "lighting": [0.0, 1.0]}
trained = [axis[episode.split("/")[0]] for episode in episodes]
numpy.savez(sys.argv[2] + "/seen.npz", trained=trained, held_out=list(axis.values()), factors=FACTORS)
json.dump({"scores": {"lighting": [1, 0]}, "embeddings": "seen.npz"}, open(sys.argv[3], "w"))
"""
    program.write_text(text.replace("FACTORS", "['lightning', 'lighting']"))
    told = fsc("run", tmp_path, code=1).stderr
    assert re.search(
        r"evaluation\.json: embeddings \(seen\.npz\): factors: unknown factor 'lightning'; did you mean", told
    )
    program.write_text(text.replace("FACTORS", "list(axis)"))
    fsc("run", tmp_path, "--retry-failed")
    with Study.open(tmp_path / "study.db") as study:
        near = {tuple(n > 0 for n in run.demos.values()): score.by_factor for run, score in proxy_of_runs(study)}
    assert near[True, True] == {"camera_pose": 1.0, "lighting": 1.0}
    assert near[False, True] == {"camera_pose": 0.0, "lighting": 1.0}
    assert "k = 10" in fsc("proxy", tmp_path).stdout


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"trained": [[1.0]]}, "no array 'held_out'"),
        ({"trained": [[1.0]], "held_out": [["a"]]}, "held_out: expected rows of numbers"),
        ({"trained": [[1.0]], "held_out": []}, "held_out: expected rows of numbers"),
        ({"trained": [[1.0]], "held_out": [[1.0, 2.0]]}, "sizes 2 and 1"),
        ({"trained": [[float("nan")]], "held_out": [[1.0]]}, "finite rows"),
        ({"trained": [1.0], "held_out": [[1.0]]}, "finite rows"),
        ({"trained": [[1.0]], "held_out": [[1.0]], "factors": ["lighting"] * 2}, "2 factors for 1 rows"),
        ({"trained": [[1.0]], "held_out": [[1.0]], "factors": "lighting"}, "one name per row"),
        (None, "cannot be read"),
    ],
)
def test_mistakes_in_embeddings_are_told(arrays: dict[str, Any] | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "seen.npz"
    with pytest.raises(InvalidInput, match=r"cannot be read \(No such file"):
        similarities(path, ("lighting",))
    if arrays is None:
        path.write_bytes(b"PK nothing")
    else:
        np.savez(path, **arrays)
    with pytest.raises(InvalidInput, match=message):
        similarities(path, ("lighting",))


@pytest.mark.slow
def test_the_reason_of_a_failure_is_told_once_by_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_study(tmp_path / "study", "--no-such-option")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    told = fsc("run", "../study", code=1).stderr
    with Study.open("../study/study.db") as study:
        for run in study.runs():
            log = tmp_path / "study" / "runs" / run.digest / "log.txt"
            assert told.count(f"{log})") == 1
            assert re.search(rf"^run {run.id}: retry: .*--no-such-option.* \(log: {log}\)$", told, re.MULTILINE)
            assert f"\nrun {run.id}: failed, for the same reason again\n" in told
    assert ".." not in told.replace("`fsc run ../study", "")
    again = fsc("run", "../study", code=1).stderr  # nothing is tried; the reason is still there
    assert again.count("--no-such-option") == 3
    assert again.startswith("run 1 failed: ")


@pytest.mark.slow
def test_a_command_that_cannot_work_is_not_tried_with_every_run(tmp_path: Path) -> None:
    make_study(tmp_path, "--no-such-option", "{folder}/{seed}")
    write_study(read_study(tmp_path / "study.yaml").changed(seeds=4, policies=1), tmp_path / "study.yaml")
    told = fsc("run", tmp_path, "--attempts", "1", code=1).stderr
    # what differs between them is where their files lie, and a number
    assert told.count("--no-such-option") == 3
    assert (
        f"stopped early: every run so far failed with the same error; 1 not started (`fsc run {tmp_path}` continues)"
        in told
    )
    with Study.open(tmp_path / "study.db") as study:
        assert [run.state for run in study.runs()] == [*["failed"] * 3, "pending"]
    assert "run 4: failed" in fsc("run", tmp_path, "--attempts", "1", code=1).stderr


def test_neither_and_both_are_told(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(
        "factors: {camera_pose: 2}\ntask: tabletop/pick-place\ntrainer: {command: x}\n"
    )
    assert "not by both" in fsc("run", tmp_path, code=2).stderr
    (tmp_path / "study.yaml").write_text("factors: {camera_pose: 2}\n")
    assert "no dataset, no trainer and no simulator task" in fsc("run", tmp_path, code=2).stderr


class TestAStudyOfADataset:
    """The command is given ids; that they are in `dataset:` is looked at before it runs."""

    @pytest.fixture
    def study(self, tmp_path: Path) -> Path:
        write(tmp_path / "data", range(8))
        fsc("label", tmp_path / "data", "--rule", "0-3: camera_pose", "--rule", "4-7: lighting")
        make_study(tmp_path / "study", dataset="../data")
        fsc("runs", tmp_path / "study")
        return tmp_path / "study"

    def test_episodes_that_it_does_not_have_yet_are_told_and_nothing_is_trained(self, study: Path) -> None:
        both = write(study.parent / "both", [*reversed(range(8)), 20, 21])  # renumbered: the same demonstrations
        fsc("label", both, "--from", study.parent / "data", "--rule", "8-9: camera_pose")
        fsc("extend", study, "--dataset", both)
        refused = fsc("run", study, code=2).stderr
        hint = "name one that holds them all under `dataset:` in study.yaml; `fsc dataset merge` makes it of several"
        where = re.escape(str(study.parent / "data"))
        assert re.fullmatch(rf"fsc: {where}: no episode with id \w+ \(2 of 10 missing\); {hint}\n", refused)
        assert not (study / "runs").exists()
        make_study(study, dataset="../both")
        assert "all runs are done" in fsc("run", study).stdout

    def test_a_dataset_that_is_gone_is_told_too(self, study: Path) -> None:
        shutil.rmtree(study.parent / "data")
        assert "data: is not a LeRobot dataset" in fsc("run", study, code=2).stderr

    def test_a_worker_looks_again(self, study: Path) -> None:
        with Study.open(study / "study.db") as opened:
            run = opened.find_run(opened.runs()[0].id).spec
        made = trainer(study, dataset="../data")
        shutil.rmtree(study.parent / "data")
        write(study.parent / "data", range(1, 8))
        with pytest.raises(InvalidInput, match=r"no episode with id \w+ \(1 of 8 missing\)"):
            made.train(run, study / "run", Heard())
        assert not (study / "run" / "starts.txt").exists()


@pytest.mark.slow
def test_ctrl_c_and_kill_9_leave_no_command_behind_and_the_study_goes_on(tmp_path: Path) -> None:
    make_study(tmp_path, "--pause", "0.4", "{resume}", resume="--resume", resume_if="state.json")
    command = [sys.executable, "-m", "factored_scaling", "run", str(tmp_path), "--lease", "1"]
    for number in (signal.SIGINT, signal.SIGKILL):
        process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: bool(running(tmp_path)))
        os.killpg(process.pid, number)  # as a terminal does: the whole group
        _, errors = process.communicate(timeout=60)
        if number == signal.SIGINT:
            assert process.returncode == 130
            assert "the same command continues from here" in errors
        wait_for(lambda: not running(tmp_path))
    fsc("run", tmp_path, "--lease", "1")
    with Study.open(tmp_path / "study.db") as study:
        assert {run.state for run in study.runs()} == {"done"}


def running(home: Path) -> list[int]:
    """The trainers at work in this study, whoever their parent is."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if str(PROGRAM).encode() in words and any(str(home).encode() in word for word in words):
                found.append(int(entry.name))
    return found


def gone(pid: int) -> bool:
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2])
    return True


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def folder(home: Path) -> Path:
    (home / "run").mkdir(exist_ok=True)
    return home / "run"


def test_the_settings_are_all_explained() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "own-trainer.md").read_text()
    assert [name for name in CommandSettings.__dataclass_fields__ if f"| `{name}` |" not in page] == []
