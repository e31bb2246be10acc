"""Tables of trained policies: compositions, rows that resume, and strict reading."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.sim.maniskill_cases import needs_maniskill

from factored_scaling.bench.policy_tables import Composition, design_table, read_table
from factored_scaling.bench.table_builder import TableSettings, build_table
from factored_scaling.cli import main
from factored_scaling.errors import InvalidInput, NotEnoughData

FACTORS = ("camera_pose", "distractor", "table_texture", "lighting", "background")
GROUPS = {
    "start",
    "equal-100",
    "equal-20",
    "inside",
    "split-100",
    "split-20",
    "one-factor-100",
    "unbalanced",
    "nominal-heavy",
}


@pytest.mark.parametrize("start", [5, 10, 30])
def test_a_design_covers_every_group_and_is_the_same_again(start: int) -> None:
    made = design_table(FACTORS, start, 140)
    assert made == design_table(FACTORS, start, 140)
    assert made[:40] == design_table(FACTORS, start, 40)
    assert {one.group for one in made[:14]} == GROUPS
    assert len({one.id for one in made}) == len({one.seed for one in made}) == 140
    for one in made:
        extra = sum(one.demos.values()) - start * len(FACTORS)
        assert min(one.demos.values()) >= 0
        assert sum(one.demos.values()) > 0
        if one.group.endswith("-100") or one.group.endswith("-20"):
            assert extra == int(one.group.rpartition("-")[2])
            assert min(one.demos.values()) >= start
        if one.group == "inside":
            assert max(one.demos.values()) <= start
            assert extra < 0
        assert (one.nominal > 0) == (one.group == "nominal-heavy")
    counts = Counter(one.group for one in made)
    assert counts["start"] >= 10
    assert counts["equal-100"] >= 10
    assert {max(one.demos, key=one.demos.__getitem__) for one in made if one.group == "one-factor-100"} == set(FACTORS)


def test_other_seeds_draw_other_compositions() -> None:
    first, other = (design_table(FACTORS, 10, 24, seed) for seed in (0, 1))
    assert not {one.id for one in first} & {one.id for one in other}


SETTINGS = TableSettings(
    "tabletop/pick-place", {"preset": "small", "updates": 2}, {"settings": 1, "initial_states": 2}, 30
)


def silent(done: int, total: int, note: str = "") -> None: ...


def test_a_table_resumes_and_keeps_its_rows(tmp_path: Path) -> None:
    made = [
        Composition("start", 2, dict.fromkeys(FACTORS, 2), 1, seed=4),
        Composition("inside", 2, {**dict.fromkeys(FACTORS, 0), "lighting": 2}, 0, seed=5),
        Composition("start", 2, dict.fromkeys(FACTORS, 2), 0, seed=6),
    ]
    folder, work = tmp_path / "table", tmp_path / "work"
    build_table(folder, SETTINGS, made[:2], work, silent, at_once=2)
    before = (folder / "policies.csv").read_text()
    table = build_table(folder, SETTINGS, made, work, silent, at_once=2, provenance={"version": "x"})
    assert (folder / "policies.csv").read_text().startswith(before)
    assert len(table) == 3
    assert table.factors == FACTORS
    assert table.demos.tolist() == [[2] * 5, [0, 0, 0, 2, 0], [2] * 5]
    assert table.nominal.tolist() == [1, 0, 0]
    assert (table.trials == 2).all()
    assert table.scores.shape == (3, 5)
    assert table.card["version"] == "x"
    assert len(table.where(table.nominal == 0)) == 2
    assert not list((work / "policies").iterdir())  # measured policies are removed
    other = TableSettings(SETTINGS.task, {"preset": "small", "updates": 3}, SETTINGS.evaluation, 30)
    with pytest.raises(InvalidInput, match="another policy"):
        build_table(folder, other, made, work, silent)
    with pytest.raises(NotEnoughData, match="needs 31"):
        build_table(folder, SETTINGS, [Composition("x", 2, dict.fromkeys(FACTORS, 31), 0, 1)], work, silent)


@pytest.mark.slow
def test_processes_measure_what_one_process_measures(tmp_path: Path) -> None:
    made = [Composition("start", 2, dict.fromkeys(FACTORS, 2), 1, seed) for seed in range(3)]
    one = build_table(tmp_path / "one", SETTINGS, made, tmp_path / "work", silent, at_once=2)
    two = build_table(tmp_path / "two", SETTINGS, made, tmp_path / "work", silent, at_once=1, workers=2)
    by_seed = np.argsort(two.seed)
    assert one.seed.tolist() == two.seed[by_seed].tolist()
    assert one.successes.tolist() == two.successes[by_seed].tolist()


@pytest.mark.slow
def test_a_simulator_with_processes_serves_the_workers_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_maniskill()
    monkeypatch.delenv("FSC_SIM_PROCESSES", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    policy = {"preset": "small", "updates": 2, "image_size": 32}
    settings = TableSettings("maniskill/pull-visual", policy, {"settings": 1, "initial_states": 1}, 1)
    names = ("camera_pose", "distractor", "table_texture", "lighting", "background")
    made = [Composition("start", 1, dict.fromkeys(names, 1), 1, seed) for seed in range(2)]
    mine: list[int] = []

    def watch(done: int, total: int, note: str = "") -> None:
        if note == "policies":  # the workers' simulators are their children
            mine.append(sum(child.name.startswith("SpawnProcess") for child in multiprocessing.active_children()))

    table = build_table(tmp_path / "table", settings, made, tmp_path / "work", watch, at_once=1, workers=2)
    assert table.trials.tolist() == [[1] * 5] * 2
    assert mine == [2, 2]  # two workers, and no simulator of this process


def test_rows_that_cannot_be_are_refused(tmp_path: Path) -> None:
    header = "id,group,start,seed,nominal,demos:a,successes:a,trials:a,loss"
    path = tmp_path / "policies.csv"
    path.write_text(f"{header}\nq,start,5,0,0,5,3,4,0.1\n")
    assert np.allclose(read_table(tmp_path).scores, 0.75)
    for row, reason in (
        ("q,start,5,0,0,5,5,4,0.1", "exceed"),
        ("q,start,5,0,0,5,0,0,0.1", "at least 1"),
        ("q,start,5,0,0,x,3,4,0.1", "row 1.*demos:a"),
    ):
        path.write_text(f"{header}\n{row}\n")
        with pytest.raises(InvalidInput, match=reason):
            read_table(path)
    path.write_text("id,group,start,seed,demos:a,successes:a,trials:a\nq,start,5,0,5,3,4\n")
    with pytest.raises(InvalidInput, match="no column 'nominal'"):
        read_table(path)
    with pytest.raises(InvalidInput, match="no such file"):
        read_table(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("card.json", b"", "card.json: is empty"),
        ("card.json", b"\xff\xfe", "UTF-8"),
        ("card.json", b"[1]", "expected an object"),
        ("card.json", b"[" * 100_000, "not JSON"),
        ("policies.csv", b"\xff\xfe", "UTF-8"),
        ("policies.csv", b"group,start\nq,5\n", "no column 'id'"),
        ("policies.csv", b'id,"group\n', "not valid CSV"),
        ("policies.csv", b"id,id\nq,q\n", "appears twice"),
    ],
)
def test_a_malformed_table_is_refused_and_left_alone(file: str, content: bytes, said: str, tmp_path: Path) -> None:
    header = "id,group,start,seed,nominal,demos:a,successes:a,trials:a"
    (tmp_path / "policies.csv").write_text(f"{header}\nq,start,5,0,0,5,3,4\n")
    (tmp_path / file).write_bytes(content)
    settings = TableSettings("tabletop/pick-place", {}, {}, 200)
    with pytest.raises(InvalidInput, match=said):
        read_table(tmp_path)
    with pytest.raises(InvalidInput, match=said):
        build_table(tmp_path, settings, design_table(FACTORS, 1, 1), tmp_path / "work", lambda *_: None)
    assert (tmp_path / file).read_bytes() == content


def test_the_command_builds_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = json.dumps({"preset": "small", "updates": 2})
    words = ["bench", "table", "tabletop/pick-place", str(tmp_path / "t"), "--start", "1", "--policies", "1"]
    for given, code, said in ((policy, 0, "1 policies"), ("[1]", 2, "expected an object")):
        with pytest.raises(SystemExit) as left:
            main([*words, "--policy", given, "--states", "1", "--pool", "2"])
        assert left.value.code == code
        output = capsys.readouterr()
        assert said in output.out + output.err
    assert read_table(tmp_path / "t").card["task"] == "tabletop/pick-place"
