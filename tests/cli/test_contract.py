"""The files and the JSON that outsiders rely on, and the ways into a study that must all give the same answer."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Answer = subprocess.CompletedProcess[str]
Fsc = Callable[..., Answer]

STRATEGIES = ("top", "top-half", "all", "auto", "equal", "greedy", "cubed-failure", "remix")
NAMES = ("camera_pose", "distractor", "table_texture", "lighting")


def parsed(answer: Answer) -> Any:
    """The JSON document on stdout, and no complaint beside it."""
    assert (answer.returncode, answer.stderr) == (0, ""), answer
    return json.loads(answer.stdout)


def per_factor(shared_rows: bool) -> str:
    """Results per factor in the short form; the full-data policy under the first curve only, or under every one."""
    lines = ["combination,n,score,trials,seed,factor"]
    for curve, (first, second) in enumerate([NAMES[:2], NAMES[2:]]):
        for n in (0, 20, 40, 60):
            if n == 60 and curve and not shared_rows:
                continue
            for k, name in enumerate(NAMES):
                own = name in (first, second)
                score = 0.62 - 0.05 * k - (0.004 if own else 0.001) * (60 - n) if n < 60 else 0.62 - 0.05 * k
                lines.append(f"{first}+{second},{n},{score:.4f},150,0,{name}")
    return "\n".join(lines) + "\n"


def test_plan_json(fsc: Fsc, study: Path) -> None:
    data = parsed(fsc("plan", study, "--json"))
    assert list(data) == ["policies", "runs"]
    assert data["policies"] == len(data["runs"]) == 7
    assert data["runs"][0] == {"demos": dict.fromkeys(NAMES, 30), "seed": 0}
    assert all(list(run) == ["demos", "seed"] and tuple(run["demos"]) == NAMES for run in data["runs"])
    assert {tuple(run["demos"].values()) for run in data["runs"]} == {
        (30, 30, 30, 30),
        *((n, n, 30, 30) for n in (0, 10, 20)),
        *((30, 30, n, n) for n in (0, 10, 20)),
    }
    assert parsed(fsc("plan", study, "--policies", "3", "--json"))["runs"] == data["runs"][:3]
    assert parsed(fsc("plan", study, "--construction", "one", "--json"))["policies"] == 13
    assert parsed(fsc("plan", study, "--construction", "pair", "--json"))["policies"] == 19


def test_plan_says_what_the_regret_means_and_where_it_comes_from(fsc: Fsc, study: Path, tmp_path: Path) -> None:
    said = fsc("plan", study).stdout
    assert "Regret: 0 = optimal allocation, 1 = no improvement." in said
    few = "With so few factors an equal split is expected to do about as well: measuring pays with more factors"
    assert few in said
    assert "emulated studies with 5 and 8 factors (4 count as 5 with as many policies per curve), ±0.0" in said
    (tmp_path / "study.yaml").write_text(f"factors: {{{', '.join(f'f{n}: 30' for n in range(8))}}}")
    assert few not in fsc("plan", tmp_path / "study.yaml").stdout
    (tmp_path / "study.yaml").write_text("factors: {camera_pose: 30}")
    assert "egret" not in fsc("plan", tmp_path / "study.yaml").stdout  # nothing to split


def test_the_regret_of_a_small_plan_is_that_of_as_many_policies_per_curve(fsc: Fsc, tmp_path: Path) -> None:
    def regret_of(text: str) -> dict[str, dict[str, str]]:
        (tmp_path / "study.yaml").write_text(text)
        said = fsc("plan", tmp_path / "study.yaml").stdout
        heading, _, *rows = said[said.index("policies", said.index("Regret to expect")) :].splitlines()
        cells = [row.split() for row in rows[: rows.index("")]]
        return {row[0]: dict(zip(heading.split()[1:], row[1:], strict=True)) for row in cells}

    small = regret_of("factors: {a: 4, b: 4, c: 4}\nconstruction: one\npoints: 2\n")
    large = regret_of("factors: {a: 4, b: 4, c: 4, d: 4, e: 4}\nconstruction: one\npoints: 2\n")
    assert small["4"]["one"] == large["6"]["one"] != "–", "every curve has its two ends"
    assert small["3"]["one"] == large["4"]["one"] == "–"
    assert "group" not in small["4"], "no group of two points was measured"


def test_recommend_json(fsc: Fsc, study: Path) -> None:
    data = parsed(fsc("recommend", study, study / "results.csv", "--budget", "100", "--strategy", "top", "--json"))
    assert list(data) == ["budget", "strategy", "fit", "curves", "allocation", "warnings"]
    assert (data["budget"], data["strategy"], data["fit"], data["warnings"]) == (100, "top", "power-law", [])
    assert [curve["combination"] for curve in data["curves"]] == [list(NAMES[:2]), list(NAMES[2:])]
    for curve in data["curves"]:
        assert list(curve) == ["combination", "size", "base", "a", "b", "now", "predicted", "slope"]
        assert (curve["size"], curve["base"]) == (60, 60)
        assert math.isclose(curve["now"], 1 - curve["a"] * 120 ** curve["b"])
        assert math.isclose(curve["predicted"], 1 - curve["a"] * 220 ** curve["b"])
        assert math.isclose(curve["slope"], (curve["predicted"] - curve["now"]) / 100, rel_tol=1e-9)
    assert data["allocation"] == {"camera_pose": 50, "distractor": 50, "table_texture": 0, "lighting": 0}


def test_the_general_form_says_the_same(fsc: Fsc, study: Path) -> None:
    lines = [",".join([*(f"demos:{name}" for name in reversed(NAMES)), "score", "trials"])]  # in any order
    rows = {(0, 0): 0.40, (10, 0): 0.50, (20, 0): 0.56, (30, 1): 0.61, (0, 2): 0.55, (10, 2): 0.58, (20, 2): 0.60}
    for (n, curve), score in rows.items():
        demos = (n, n, 30, 30) if curve == 0 else (30, 30, n, n) if curve == 2 else (30, 30, 30, 30)
        lines.append(",".join(str(value) for value in (*reversed(demos), score, 600)))
    (study / "general.csv").write_text("\n".join(lines))
    answers = [
        parsed(fsc("recommend", study, study / name, "--budget", "37", "--strategy", "all", "--json"))
        for name in ("results.csv", "general.csv")
    ]
    assert answers[0] == answers[1]


def test_every_form_of_study(fsc: Fsc, study: Path) -> None:
    assert fsc("import", study, study / "results.csv").stdout == "7 new scores in 8 rows\n"
    forms = [study, study / "study.yaml", f"sqlite:///{study}/study.db#fold-towel", f"sqlite:///{study}/study.db"]
    for command in (["plan"], ["runs"], ["fit"], ["recommend", "--budget", "9"]):
        outputs = {fsc(command[0], form, *command[1:], "--json").stdout for form in forms}
        assert len(outputs) == 1
        assert json.loads(outputs.pop())


def test_a_yaml_of_another_name_has_no_record_to_write(fsc: Fsc, study: Path) -> None:
    (study / "study.yaml").rename(study / "mine.yaml")
    assert parsed(fsc("plan", study / "mine.yaml", "--json"))["policies"] == 7
    answer = fsc("runs", study / "mine.yaml")
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
    assert "study.yaml" in answer.stderr


@pytest.mark.parametrize("shared_rows", [False, True], ids=["listed once", "listed under every curve"])
def test_the_csv_and_its_import_agree(shared_rows: bool, fsc: Fsc, study: Path, tmp_path: Path) -> None:
    (study / "results.csv").write_text(per_factor(shared_rows))
    (study / "weights.json").write_text(json.dumps(dict(zip(NAMES, (4, 3, 2, 1), strict=True))))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "study.yaml").write_text((study / "study.yaml").read_text())

    def ask(*where: Path) -> list[Any]:
        base = ["recommend", *where, "--budget", "101", "--json"]
        extra = {"remix": ["--weights", study / "weights.json"]}
        return [parsed(fsc(*base, "--strategy", s, *extra.get(s, []))) for s in STRATEGIES]

    from_csv = ask(study, study / "results.csv")
    assert len({tuple(answer["allocation"].values()) for answer in from_csv}) > 3  # the strategies do differ
    assert fsc("import", study, study / "results.csv").returncode == 0
    imported = ask(study)
    assert fsc("import", study, study / "results.csv").stdout.startswith("0 new scores")
    assert ask(study) == imported
    assert fsc("export", study, "--out", study / "out.csv").returncode == 0
    assert fsc("import", tmp_path / "other", study / "out.csv").returncode == 0
    moved = ask(tmp_path / "other")
    for one, two, three in zip(from_csv, imported, moved, strict=True):
        assert two == three
        assert one["allocation"] == two["allocation"]
        assert one["warnings"] == two["warnings"]
        for curve, again in zip(one["curves"], two["curves"], strict=True):
            assert curve.pop("combination") == again.pop("combination")
            assert curve == pytest.approx(again, rel=1e-12)


def test_repeats_of_one_policy_stay_repeats(fsc: Fsc, study: Path) -> None:
    """Two policies of one size that scored alike are two points, before and after the import."""
    text = (study / "results.csv").read_text()
    (study / "results.csv").write_text(text + "camera_pose+distractor,0,0.40,600\n")
    args = ["--budget", "10", "--strategy", "all", "--json"]
    once = study / "once.csv"
    once.write_text(text)
    direct = parsed(fsc("recommend", study, study / "results.csv", *args))
    assert direct["curves"] != parsed(fsc("recommend", study, once, *args))["curves"]
    assert fsc("import", study, study / "results.csv").stdout == "8 new scores in 9 rows\n"
    assert fsc("import", study, study / "results.csv").stdout == "0 new scores in 9 rows\n"
    assert parsed(fsc("recommend", study, *args)) == direct


def test_rows_that_equal_those_of_another_file_are_told(fsc: Fsc, study: Path) -> None:
    header, first, *_ = (study / "results.csv").read_text().splitlines()
    assert fsc("import", study, study / "results.csv").returncode == 0
    (study / "day2.csv").write_text(f"{header}\n{first}\n")
    answer = fsc("import", study, study / "day2.csv")
    assert answer.stdout == "0 new scores in 1 row\n"
    said = "1 row is stored already and was not added (day2.csv:1); if it is a new measurement, give another seed\n"
    assert answer.stderr == said
    assert fsc("import", study, study / "results.csv").stderr == ""


def test_an_import_that_contradicts_the_record_changes_nothing(fsc: Fsc, study: Path) -> None:
    text = (study / "results.csv").read_text()
    half = [line for line in text.splitlines() if not line.startswith("camera_pose+distractor,20")]
    (study / "results.csv").write_text("\n".join(half))
    assert fsc("import", study, study / "results.csv").returncode == 0
    before = fsc("export", study, "--format", "json").stdout
    # a row is new, another one now says something else
    changed = [*half, "camera_pose+distractor,20,0.5,600"]
    changed[1] = "camera_pose+distractor,0,0.41,600"
    (study / "results.csv").write_text("\n".join(changed))
    answer = fsc("import", study, study / "results.csv")
    assert answer.returncode == 2
    assert "results.csv:1" in answer.stderr
    assert "stored already with score 0.4, not 0.41" in answer.stderr
    assert fsc("export", study, "--format", "json").stdout == before


def test_trials_beyond_the_record_are_told_with_their_row(fsc: Fsc, study: Path) -> None:
    (study / "results.csv").write_text("combination,n,score,trials\nlighting+table_texture,0,0.5,99999999999\n")
    answer = fsc("import", study, study / "results.csv")
    assert answer.returncode == 2
    assert "results.csv: row 1 (line 2)" in answer.stderr


def test_the_whole_record_goes_out_and_in(fsc: Fsc, study: Path, tmp_path: Path) -> None:
    assert fsc("import", study, study / "results.csv").returncode == 0
    assert fsc("recommend", study, "--budget", "20", "--strategy", "all", "--save").returncode == 0
    assert fsc("extend", study, "--as-recommended").returncode == 0
    assert fsc("record", study, "8", "1", "0.5", "--factor", "*", "--note", "späte Ernte").returncode == 0
    assert fsc("export", study, "--out", tmp_path / "all.json").returncode == 0
    dump = json.loads((tmp_path / "all.json").read_text())
    assert fsc("import", tmp_path / "copy", tmp_path / "all.json").returncode == 0
    assert parsed(fsc("export", tmp_path / "copy", "--format", "json")) == dump
    for command in (["plan"], ["runs"], ["recommend", "--budget", "5", "--strategy", "equal"]):
        assert (
            fsc(command[0], study, *command[1:], "--json").stdout
            == fsc(command[0], tmp_path / "copy", *command[1:], "--json").stdout
        )
    again = fsc("import", tmp_path / "copy", tmp_path / "all.json")
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert "already there" in again.stderr
    address = f"sqlite:///{tmp_path}/many.db"
    for name in ("one", "two"):
        assert fsc("import", f"{address}#{name}", tmp_path / "all.json").returncode == 0
    one = parsed(fsc("export", f"{address}#one", "--format", "json"))
    assert one | {"name": dump["name"]} == dump


def test_init_writes_the_settings_that_the_construction_goes_by(fsc: Fsc, tmp_path: Path) -> None:
    given = ("--factor", "camera=4", "--factor", "light=4", "--factor", "table=2")
    for construction, has, lacks in (("screen", "policies: 4 ", "points:"), ("one", "points: 4 ", "policies:")):
        folder = tmp_path / construction
        assert fsc("init", folder, *given, "--construction", construction).returncode == 0
        lines = (folder / "study.yaml").read_text().splitlines()
        assert any(line.startswith(has) for line in lines)
        assert not any(line.startswith(lacks) for line in lines)
        assert len({line.index("#") for line in lines if line.startswith(("nominal", "construction", "seeds"))}) == 1
        default = parsed(fsc("plan", folder, "--json"))["policies"]
        assert default == parsed(fsc("plan", folder, "--construction", construction, "--json"))["policies"]


def test_points_of_curves_that_there_are_not_are_refused(fsc: Fsc, tmp_path: Path) -> None:
    answer = fsc("init", tmp_path / "study", "--construction", "screen", "--points", "6")
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
    assert "--points: construction screen has no curves; leave it out; `policies:` in study.yaml" in answer.stderr
    assert not (tmp_path / "study").exists()


def test_a_budget_that_the_full_quickstart_would_forget_is_refused(fsc: Fsc, tmp_path: Path) -> None:
    answer = fsc("quickstart", "--full", "--tiny", "--budget", "50", "--folder", tmp_path / "quick")
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
    assert "--budget: --full has budgets of its own, 20 and 100" in answer.stderr
    assert not (tmp_path / "quick").exists()


def test_init_writes_what_plan_reads(fsc: Fsc, tmp_path: Path) -> None:
    folder = tmp_path / "a: study"
    factors = itertools.chain.from_iterable(
        ("--factor", f"{name}=6") for name in ("camera", "größe", "light", "pose", "x")
    )
    assert fsc("init", folder, *factors, "--nominal", "3", "--points", "3", "--seeds", "2").returncode == 0
    data = parsed(fsc("plan", folder, "--json"))
    assert data["policies"] == 2 * (3 * 2 + 1)
    assert parsed(fsc("runs", folder, "--json"))["study"] == "a: study"
    assert {path.name for path in folder.iterdir()} == {"study.yaml", "study.db"}
    assert parsed(fsc("plan", folder / "study.yaml", "--json")) == data
    assert fsc("init", tmp_path / "example").returncode == 0
    assert parsed(fsc("plan", tmp_path / "example", "--json"))["policies"] == 7
    assert [path.name for path in (tmp_path / "example").iterdir()] == ["study.yaml"]


def test_two_factors_get_curves_of_their_own(fsc: Fsc, tmp_path: Path) -> None:
    factors = ("--factor", "camera=6", "--factor", "light=6")
    assert fsc("init", tmp_path / "two", *factors).returncode == 0
    answer = fsc("plan", tmp_path / "two")
    assert ("7 policies" in answer.stdout, answer.stderr) == (True, "")
    assert fsc("init", tmp_path / "grouped", *factors, "--construction", "group").returncode == 0
    assert "all factors share one curve" in fsc("plan", tmp_path / "grouped").stderr


def test_results_may_come_through_a_pipe(fsc: Fsc, study: Path) -> None:
    data = (study / "results.csv").read_bytes()
    args = ["--budget", "12", "--json"]
    assert parsed(fsc("recommend", study, "-", *args, stdin=data)) == parsed(
        fsc("recommend", study, study / "results.csv", *args)
    )
    assert fsc("import", study, "-", stdin=data).stdout == "7 new scores in 8 rows\n"
