"""scripts/gpu_study.py: rows that are neither lost nor written twice, and a study that continues after any end."""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from factored_scaling.core.trials import Trial, result_of
from factored_scaling.errors import FscError

SCRIPT = Path(__file__).parents[1] / "scripts" / "gpu_study.py"
FACTORS = ("camera_pose", "distractor", "table_texture", "lighting", "background")
TASK = "tabletop/pick-place"
# As on a machine that has none of these packages.
WITHOUT = """
import importlib.machinery
missing = {"sqlalchemy", "yaml", "click", "rich", "jinja2", "matplotlib", "pyarrow", "pandas", "segno"}
found = importlib.machinery.PathFinder.find_spec
importlib.machinery.PathFinder.find_spec = lambda name, *rest: (
    None if name.partition(".")[0] in missing else found(name, *rest)
)
"""


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("gpu_study", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_study"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def study(script: Any, tmp_path: Path, **changes: Any) -> Any:
    given = {
        "task": TASK,
        "out": tmp_path / "out",
        "demos": 2,
        "seeds": [0],
        "states": 1,
        "nominal": 4,
        "image_size": 32,
        "policy": {"preset": "small"},
        "budgets": [4],
        "rules": ["equal"],
        "orders": None,
        "variants": {"as given": {}},
        "remix": {"preset": "small"},
    }
    return script.Study(argparse.Namespace(**{**given, **changes}))


def keep(one: Any, job: Any, score: float) -> None:
    """Write the rows of a policy that has this score on every factor."""
    trials = [Trial(f"{name}/{i}", score, (name,)) for name in FACTORS for i in range(2)]
    one.keep(job, result_of(trials), [1.0] * job.nominal, {"1": [0.5]})


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_policy_is_kept_whole_or_not_at_all(tmp_path: Path, script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = study(script, tmp_path)
    planned = one.study()
    keep(one, planned[1], 1.0)
    write = script.write

    def killed(path: Path, *rest: Any) -> None:
        if path.name == "results.csv":
            raise KeyboardInterrupt
        write(path, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(script, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            keep(one, planned[0], 0.5)
    assert one.study() == [planned[0], *planned[2:]]
    keep(one, planned[0], 0.5)
    assert one.study() == planned[2:]
    assert len(rows(tmp_path / "out" / "results.csv")) == 10
    checked = rows(tmp_path / "out" / "check.csv")
    assert [(row["name"], row["nominal"], row["score"]) for row in checked] == [("full data", "1.0", "0.5")]
    assert set(json.loads((tmp_path / "out" / "similarity.json").read_text())) == {"0/0/2/2/2/0", "2/2/2/2/2/0"}
    assert not list((tmp_path / "out").glob("*.tmp"))


def test_rows_cut_short_are_measured_again_and_replaced(tmp_path: Path, script: Any) -> None:
    one = study(script, tmp_path)
    planned = one.study()
    keep(one, planned[0], 1.0)
    keep(one, planned[1], 1.0)
    path = tmp_path / "out" / "results.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-2]))
    assert one.study() == planned[1:]
    keep(one, planned[1], 0.5)
    assert [row["score"] for row in rows(path)] == ["1.0"] * 5 + ["0.5"] * 5


def test_rows_with_other_columns_stay_in_theirs(tmp_path: Path, script: Any) -> None:
    path = tmp_path / "check.csv"
    script.write(path, ("name",), [{"name": "a", "nominal": 1.0, "score": 0.5}])
    script.write(path, ("name",), [{"name": "b, too", "score": 0.25}])
    assert [(row["name"], row["nominal"], row["score"]) for row in rows(path)] == [
        ("a", "1.0", "0.5"),
        ("b, too", "", "0.25"),
    ]


def test_rows_of_another_study_are_not_mixed_in(tmp_path: Path, script: Any) -> None:
    study(script, tmp_path).study()
    one = study(script, tmp_path, states=2)  # nothing is measured yet
    keep(one, one.study()[0], 1.0)
    study(script, tmp_path, states=2, seeds=[1]).study()  # another seed of it
    for change in ({"image_size": 48}, {"policy": {"preset": "small", "updates": 5}}, {"demos": 3}):
        with pytest.raises(SystemExit, match=r"rows of another study .* give another --out"):
            study(script, tmp_path, **{"states": 2, **change}).study()


def test_allocations_of_a_seed_follow_its_own_study(tmp_path: Path, script: Any) -> None:
    one = study(script, tmp_path, seeds=[0, 1])
    given: list[Any] = []

    def measured(jobs: Any, weigh_seeds: Any, more: Any) -> None:
        assert not weigh_seeds
        waiting = [*jobs, *more()]
        while waiting:
            job = waiting.pop(0)
            given.append((job.file, job.run.seed))
            keep(one, job, 0.5)
            waiting = [*more(), *waiting]

    one.run = measured
    one.all()
    planned = len(given) // 2
    assert given[:planned] == [("results.csv", 0)] * (planned - 1) + [("outcomes.csv", 0)]
    assert given[planned:] == [("results.csv", 1)] * (planned - 1) + [("outcomes.csv", 1)]


def test_the_allocation_of_remix_follows_when_its_weights_are_learned(
    tmp_path: Path, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = study(script, tmp_path, rules=["equal", "remix"])
    given: list[str] = []

    def measured(jobs: Any, weigh_seeds: Any, more: Any) -> None:
        assert list(weigh_seeds) == [0]
        for job in jobs:
            keep(one, job, 0.5)
        given.extend(job.row["method"] for job in more())
        one.keep_weights(0, dict.fromkeys(FACTORS, 0.0) | {"lighting": 1.0})
        remixed = more()
        given.extend(job.row["method"] for job in remixed)
        assert [job.row["collect:lighting"] for job in remixed] == [4]
        assert more() == []

    monkeypatch.setattr(one, "run", measured)
    one.all()
    assert given == ["equal", "remix"]
    assert one.remix() == []  # weights that are there are not learned again


def test_a_loop_says_that_weights_are_missing(tmp_path: Path, script: Any) -> None:
    one = study(script, tmp_path, rules=["equal", "remix"])
    for job in one.study():
        keep(one, job, 0.5)
    with pytest.raises(SystemExit, match=r"seed 0: .*remix\.json has no weights: `remix` first"):
        one.loop()


def test_rules_wait_for_the_whole_study_and_given_allocations_do_not(tmp_path: Path, script: Any) -> None:
    one = study(script, tmp_path)
    planned = one.study()
    keep(one, planned[0], 1.0)
    with pytest.raises(SystemExit, match=f"seed 0: {len(planned) - 1} policies of the study are not measured"):
        one.loop()
    order = {
        "seed": 0,
        "budget": 4,
        "method": "mine",
        "predicted": None,
        "order": dict.fromkeys(FACTORS, 0) | {"lighting": 4},
    }
    path = tmp_path / "orders.json"
    path.write_text(json.dumps([order, {**order, "seed": 7}]))
    (job,) = study(script, tmp_path, orders=path, rules=[]).loop()
    assert [id_ for id_ in job.run.episodes if id_.startswith("lighting")] == [f"lighting/{i}" for i in range(6)]
    keep(one, job, 0.5)
    assert study(script, tmp_path, orders=path, rules=[]).loop() == []


def test_variants_that_come_to_the_same_policy_are_all_checked(tmp_path: Path, script: Any) -> None:
    one = study(script, tmp_path, seeds=[0, 1], variants={"as given": {}, "short": {"updates": 5}})
    jobs = one.check()
    assert [(job.row["name"], job.run.seed) for job in jobs] == [
        (name, seed) for seed in (0, 1) for name in ("as given", "short")
    ]
    keep(one, jobs[1], 0.5)
    assert one.check() == [jobs[0], *jobs[2:]]


def test_a_check_without_nominal_scenes_has_its_rows(tmp_path: Path, script: Any) -> None:
    one = study(script, tmp_path, nominal=0)
    (job,) = one.check()
    keep(one, job, 0.5)
    assert one.check() == []


@pytest.mark.parametrize("name", ["pull-visual", "pull-spatial"])
def test_published_options_describe_the_study_of_their_rows(tmp_path: Path, script: Any, name: str) -> None:
    pytest.importorskip("mani_skill")
    pytest.importorskip("sapien")
    folder = SCRIPT.parents[1] / "results" / "main" / name
    one = study(script, tmp_path, **script.read_options(folder / "options.json", script.build_parser()))
    assert json.loads(json.dumps(one.spec(0).to_mapping())) == json.loads((folder / "spec.json").read_text())
    weighed = json.loads((folder / "remix.json").read_text())
    assert sorted(weighed) == [str(seed) for seed in one.options.seeds]
    assert all(of_seed["policy"] == one.remix_settings() for of_seed in weighed.values())
    outcomes = rows(folder / "outcomes.csv") if (folder / "outcomes.csv").exists() else []
    measured = {(int(row["seed"]), int(row["budget"]), row["method"]) for row in outcomes}
    planned = {(s, k, rule) for s in one.options.seeds for k in one.options.budgets for rule in one.options.rules}
    assert measured <= planned


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"rounds": 2}', "unknown option 'rounds'"),
        ('{"what": "all"}', "unknown option 'what'"),
        ('{"seeds": 3}', "'seeds' needs a list, not 3"),
        ('{"demos": [3]}', r"'demos' needs one value, not \[3\]"),
        ('{"rules": ["group top"]}', "wrong value"),
        ("[]", "needs an object with options by name, not a list"),
    ],
)
def test_options_in_a_file_are_checked(tmp_path: Path, script: Any, text: str, message: str) -> None:
    path = tmp_path / "options.json"
    path.write_text(text)
    with pytest.raises(SystemExit, match=message):
        script.read_options(path, script.build_parser())


def test_given_allocations_are_measured_with_the_rest(tmp_path: Path, script: Any, monkeypatch: Any) -> None:
    orders = tmp_path / "orders.json"
    one = {"seed": 0, "budget": 2, "method": "mine", "predicted": None, "order": dict.fromkeys(FACTORS, 0)}
    orders.write_text(json.dumps([one]))
    everything = study(script, tmp_path, orders=orders)
    given: list[Any] = []
    monkeypatch.setattr(everything, "run", lambda jobs, weigh_seeds, more: given.extend(jobs))
    everything.all()
    assert [job.row["method"] for job in given if job.file == "outcomes.csv"] == ["mine"]


def test_mistakes_in_the_settings_of_remix_show_before_anything_is_trained(tmp_path: Path, script: Any) -> None:
    with pytest.raises(FscError, match="updats"):
        study(script, tmp_path, rules=["remix"], remix={"preset": "small", "updats": 3}).all()
    one = study(script, tmp_path, rules=["remix"])
    one.keep_weights(0, dict.fromkeys(FACTORS, 0.2))
    with pytest.raises(SystemExit, match="weights of seed 0 with other settings"):
        study(script, tmp_path, rules=["remix"], remix={"preset": "small", "updates": 3}).all()


def command(tmp_path: Path, what: str, updates: int, **more: Any) -> list[str]:
    given = {"task": TASK, "out": tmp_path / "out", "work": tmp_path / "work", "device": "cpu", "demos": 1}
    given |= {"states": 1, "nominal": 2, "image-size": 32, **more}
    given["policy"] = json.dumps({"preset": "small", "updates": updates, "batch": 8})
    return [sys.executable, str(SCRIPT), what, *(f"--{name}={value}" for name, value in given.items())]


@pytest.mark.slow
def test_the_whole_procedure_needs_few_packages(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    absent = subprocess.run([sys.executable, "-c", "import sqlalchemy"], env=environment, capture_output=True)
    assert b"No module named 'sqlalchemy'" in absent.stderr
    remix = {"remix": '{"preset": "small", "updates": 20, "warmup": 5, "validate_every": 10, "batch": 8}'}
    for what, more in (("study", {}), ("loop", {}), ("proxy", {}), ("remix", remix), ("loop", {"rules": "remix"})):
        given = command(tmp_path, what, 60, demos=2, budgets=4, **more)
        subprocess.run(given, env=environment, check=True, timeout=240)
    out = tmp_path / "out"
    measured = rows(out / "results.csv")
    assert {row["trials"] for row in measured} == {"10"}
    outcomes = rows(out / "outcomes.csv")
    assert [row["method"] for row in outcomes] == ["group, top", "group, all", "equal", "greedy", "remix"]
    weights = json.loads((out / "remix.json").read_text())["0"]["weights"]
    assert sum(weights.values()) == pytest.approx(1)
    most = max(weights, key=weights.__getitem__)
    assert int(outcomes[-1][f"collect:{most}"]) == max(int(outcomes[-1][f"collect:{name}"]) for name in FACTORS)
    assert all(sum(int(row[f"collect:{name}"]) for name in FACTORS) == 4 for row in outcomes)
    assert [row["name"] for row in rows(out / "check.csv")] == ["full data"]
    times = rows(out / "times.csv")
    assert sum(int(row["policies"]) for row in times if row["file"] == "results.csv") == len(measured) / len(FACTORS)
    assert all(float(row[column]) >= 0 for row in times for column in ("demonstrate", "train", "measure"))
    assert all(float(row["ended"]) >= float(row["train"]) for row in times)
    assert len(rows(out / "proxy-k1.csv")) == len(measured)
    once = tmp_path / "once"
    for folder in (tmp_path / "work").glob("remix-*"):
        shutil.rmtree(folder)
    everything = command(tmp_path, "all", 60, demos=2, budgets=4, out=once, **remix)
    everything += ["--rules", "group, top", "group, all", "equal", "greedy", "remix"]
    subprocess.run(everything, env=environment, check=True, timeout=240)
    assert json.loads((once / "remix.json").read_text()) == json.loads((out / "remix.json").read_text())
    for name in ("results.csv", "outcomes.csv"):
        assert sorted(map(str, rows(once / name))) == sorted(map(str, rows(out / name)))


@pytest.mark.slow
def test_a_stop_saves_what_is_in_training_and_the_same_command_goes_on(tmp_path: Path) -> None:
    check = command(tmp_path, "check", 600)
    with subprocess.Popen(check, stderr=subprocess.PIPE, text=True) as first:
        wait_for(tmp_path, "work/demos/*/*.safetensors")
        time.sleep(2)
        first.send_signal(signal.SIGTERM)
        assert first.stderr is not None
        assert first.stderr.read() == "stopped; the same command continues\n"  # ends when its workers do too
    assert first.returncode == 1
    assert list((tmp_path / "work").glob("*/resume-*.json"))
    for _ in range(2):
        subprocess.run(check, check=True, timeout=120)
        assert len(rows(tmp_path / "out" / "check.csv")) == 1


@pytest.mark.slow
def test_remix_that_fails_leaves_the_rows_of_policies(tmp_path: Path) -> None:
    everything = command(
        tmp_path, "all", 30, budgets=4, remix='{"preset": "small", "updates": 20, "learning_rate": 1e30}'
    )
    everything += ["--rules", "equal", "remix"]
    ended = subprocess.run(everything, capture_output=True, text=True, timeout=240)
    assert ended.stderr == "1 jobs failed; the same command tries them again\n"
    assert "remix, seed 0 failed: the loss" in ended.stdout
    assert [row["method"] for row in rows(tmp_path / "out" / "outcomes.csv")] == ["equal"]


@pytest.mark.slow
def test_policies_that_fail_are_told_and_leave_no_rows(tmp_path: Path) -> None:
    check = command(tmp_path, "check", 60, variants=json.dumps({"hot": {"learning_rate": 1e30}, "fine": {}}), nominal=0)
    for _ in range(2):  # the second time, all that is left fails
        ended = subprocess.run(check, capture_output=True, text=True, timeout=120)
        assert ended.stderr == "1 jobs failed; the same command tries them again\n"
        assert "check.csv hot seed 0 failed: the loss" in ended.stdout
    assert [row["name"] for row in rows(tmp_path / "out" / "check.csv")] == ["fine"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="finds the workers in /proc")
def test_a_dead_worker_ends_the_command_and_a_dead_command_ends_its_workers(tmp_path: Path) -> None:
    check = command(tmp_path, "check", 100_000, workers=1)
    with subprocess.Popen(check, stderr=subprocess.PIPE, text=True) as first:
        wait_for(tmp_path, "work/demos/*/*.safetensors")
        (worker,) = workers_of(first.pid)
        os.kill(worker, signal.SIGKILL)
        assert first.stderr is not None
        assert first.stderr.read() == "a worker has died; the same command continues\n"
    with subprocess.Popen(check, stderr=subprocess.DEVNULL) as second:
        wait_for(tmp_path, "work/*/resume-*.json")
        (worker,) = workers_of(second.pid)
        second.kill()
    until = time.monotonic() + 20
    while Path(f"/proc/{worker}").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not Path(f"/proc/{worker}").exists()


def wait_for(tmp_path: Path, pattern: str) -> None:
    until = time.monotonic() + 60
    while not list(tmp_path.glob(pattern)):
        assert time.monotonic() < until
        time.sleep(0.1)


def workers_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
