"""Recording trials, finishing runs, and going round after round."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from factored_scaling.core.design import PlannedRun, run_spec
from factored_scaling.io.files import read_study
from factored_scaling.store import connections
from factored_scaling.study import Study

Answer = subprocess.CompletedProcess[str]
Fsc = Callable[..., Answer]


def refused(answer: Answer, *said: str, code: int = 2) -> None:
    """One line that says all of `said`."""
    assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (code, "", 1), answer
    for words in said:
        assert words in answer.stderr


def done(answer: Answer) -> str:
    assert answer.returncode == 0, answer
    return answer.stdout


def runs(fsc: Fsc, study: Path) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(done(fsc("runs", study, "--json")))["runs"]
    return listed


def test_record(fsc: Fsc, study: Path) -> None:
    assert done(fsc("record", study, "1", "1", "0", "1", "1", "--factor", "lighting")).startswith(
        "run 1: 4 new trials; score 75.0% ("
    )
    assert "0 trials" not in done(fsc("record", study, "1", "0.5", "--factor", "*", "--note", "slipped"))
    assert "6 trials" in done(fsc("record", study, "1", "0.25", "--factor", "camera_pose + lighting"))
    exported = fsc("export", study)
    assert len(exported.stdout.splitlines()) == 1
    assert "run 1 has scores but is not finished and is left out (--partial uses it)" in exported.stderr
    assert fsc("export", study, "--partial").stderr == ""
    assert runs(fsc, study)[0]["factors"] == {"lighting": 0.75, "*": 0.5, "camera_pose+lighting": 0.25}
    digest = runs(fsc, study)[0]["digest"]
    assert done(fsc("record", study, digest[:8], "1")).startswith("run 1: 1 new")
    assert done(fsc("record", study, "1", "--done")).endswith("done\n")
    assert [run["state"] for run in runs(fsc, study)][:2] == ["done", "pending"]
    refused(fsc("record", study, "1", "1"), "run 1 is done", "a new seed is a new run")
    assert done(fsc("record", study, "1", "--done")).endswith("done\n")  # told twice is told once


def test_keys_make_telling_twice_harmless(fsc: Fsc, study: Path) -> None:
    assert done(fsc("record", study, "1", "0.5", "--key", "monday/1")).startswith("run 1: 1 new")
    assert done(fsc("record", study, "1", "0.5", "--key", "monday/1")).startswith("run 1: 0 new")
    refused(fsc("record", study, "1", "0.75", "--key", "monday/1"), "monday/1", "already stored with score 0.5")
    refused(fsc("record", study, "1", "0.5", "0.5", "--key", "monday/2"), "--key", "one score")
    refused(fsc("record", study, "1", "--key", "monday/2"), "--key")
    assert runs(fsc, study)[0]["trials"] == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["99", "1"], "no run '99'"),
        (["first", "1"], "no run 'first'"),
        (["1", "1.5"], "score 1: a score must lie in [0, 1], not 1.5"),
        (["1", "5"], "not 5; give one number from 0 to 1 per trial, such as 1 0 1 or 0.8"),
        (["1", "1", "nan"], "score 2: expected a number in [0, 1], not 'nan'; give one number"),
        (["1", "inf"], "not 'inf'"),
        (["1", "60%"], "score 1: expected a number in [0, 1], not '60%'; give one number from 0 to 1 per trial"),
        (["1", "3/5"], "not '3/5'; give one number"),
        (["1", "half"], "half"),
        (["1", "-1"], "score 1: a score must lie in [0, 1], not -1"),
        (["1"], "no scores"),
        (["1", "--done"], "has no trials yet"),
        (["1", "1", "--factor", "lightning"], "did you mean lighting?"),
        (["1", "1", "--factor", "lighting+"], "joined by +"),
        (["1", "1", "--factor", "lighting+lighting"], "each once"),
        (["1", "1", "--factor", "*+lighting"], "* alone"),
        (["1", "1", "--key", "k" * 500], "at most 400"),
        (["1", "1", "--key", ""], "key"),
    ],
)
def test_record_refuses(args: list[str], said: str, fsc: Fsc, study: Path) -> None:
    answer = fsc("record", study, *args)
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1), answer
    assert said in answer.stderr
    assert all(run["trials"] == 0 and run["state"] == "pending" for run in runs(fsc, study))


def suggested(text: str) -> list[list[str]]:
    """The arguments of every `fsc …` in a message, as a shell would read them."""
    return [shlex.split(command)[1:] for command in re.findall("`(fsc [^`]+)`", text)]


def test_commands_that_are_suggested_can_be_copied(fsc: Fsc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (plan,) = suggested(done(fsc("init", "my study/cups 2", "--factor", "camera=6", "--factor", "light=6")))
    assert plan == ["plan", "my study/cups 2"]
    assert "policies" in done(fsc(*plan))
    Path("my study/results.csv").write_text(
        "demos:camera,demos:light,score,trials\n6,6,0.6,50\n0,6,0.2,50\n6,0,0.4,50\n3,6,0.5,50\n6,3,0.5,50\n"
    )
    Path("my study/study.yaml").write_text(Path("my study/cups 2/study.yaml").read_text())
    saved = ("recommend", "my study/study.yaml", "my study/results.csv", "--budget", "10", "--save")
    answer = fsc(*saved)
    assert f"wrote {Path('my study/study.db')}\n" in answer.stderr, answer
    (extend,) = suggested(answer.stderr)
    assert extend == ["extend", "my study/study.yaml", "--as-recommended"]
    assert "wrote" not in fsc(*saved).stderr
    (runs,) = suggested(done(fsc(*extend)))
    assert "round 1" in done(fsc(*runs))


def test_a_digest_must_name_one_run(fsc: Fsc, study: Path) -> None:
    done(fsc("runs", study))
    with Study.open(study / "study.db") as opened:
        spec, dataset = opened.spec, opened.dataset
        many: dict[str, PlannedRun] = {}
        for seed in range(3000):
            planned = PlannedRun(run_spec(spec, dataset, spec.sizes, seed), spec.sizes, ())
            beginning = planned.spec.digest[:4]
            if beginning in many and not beginning.isdigit():
                break
            many[beginning] = planned
        first, second = opened.store.add_runs(opened.id, 0, [many[beginning], planned])
    refused(fsc("record", study, beginning, "1"), f"more than one run '{beginning}'")
    assert done(fsc("record", study, planned.spec.digest, "1")).startswith(f"run {second}: 1 new")
    refused(fsc("record", study, planned.spec.digest[:3], "1"), "no run")  # too short to mean anything
    assert first != second


def test_partial_results_are_left_out_unless_asked_for(fsc: Fsc, study: Path) -> None:
    refused(fsc("recommend", study, "--budget", "5"), "nothing is recorded yet", "RESULTS.csv")
    assert runs(fsc, study)
    refused(fsc("recommend", study, "--budget", "5"), "no finished run has scores yet", "fsc runs")
    done(fsc("record", study, "1", "1", "0"))
    refused(fsc("recommend", study, "--budget", "5"), "no finished run has scores yet", "--partial")
    for run in range(1, 8):
        done(fsc("record", study, str(run), *["1", "0", "1"][: 2 + run % 2]))
        if run < 7:
            done(fsc("record", study, str(run), "--done"))
    left_out = fsc("recommend", study, "--budget", "5", "--json")
    assert left_out.returncode == 0
    assert left_out.stderr == "warning: run 7 has scores but is not finished and is left out (--partial uses it)\n"
    used = fsc("recommend", study, "--budget", "5", "--json", "--partial")
    assert used.stderr == ""
    assert json.loads(used.stdout)["curves"] != json.loads(left_out.stdout)["curves"]
    rows = [len(done(fsc("export", study, *extra)).splitlines()) for extra in ([], ["--partial"])]
    assert rows == [7, 8]


def test_a_round(fsc: Fsc, study: Path) -> None:
    refused(fsc("extend", study, "--as-recommended"), "no recommendation was saved in this round")
    done(fsc("import", study, study / "results.csv"))
    done(fsc("recommend", study, "--budget", "20", "--strategy", "top", "--save"))
    before = json.loads(done(fsc("export", study, "--format", "json")))
    printed = done(fsc("extend", study, "--as-recommended"))
    assert "differs from the order" not in printed
    assert "6 policies to train" in printed or "7 policies to train" in printed
    after = json.loads(done(fsc("export", study, "--format", "json")))
    assert after["rounds"][:1] == before["rounds"]
    assert after["rounds"][1]["order"]["allocation"]["camera_pose"] == 10
    old = {run["digest"]: run for run in before["runs"]}
    shared = [run for run in after["runs"] if run["digest"] in old and len(run["placements"]) == 2]
    assert shared, "n = 0 of the grown curve trains on what n = 0 trained on before"
    for run in after["runs"]:
        if run["digest"] in old:
            kept = old[run["digest"]]
            assert {key: run[key] for key in kept if key != "placements"} == {
                key: kept[key] for key in kept if key != "placements"
            }
    data = json.loads(done(fsc("plan", study, "--json")))
    assert data["runs"][0]["demos"] == {"camera_pose": 40, "distractor": 40, "table_texture": 30, "lighting": 30}
    assert json.loads(done(fsc("runs", study, "--json")))["round"] == 1
    # the same allocation is not followed twice by a slip of the finger
    refused(fsc("extend", study, "--as-recommended"), "no recommendation was saved in this round")


def test_the_next_round_looks_back(fsc: Fsc, study: Path) -> None:
    done(fsc("import", study, study / "results.csv"))
    done(fsc("extend", study, "--collected", "camera_pose=40"))
    assert "Looking back" not in done(fsc("recommend", study, "--budget", "20"))
    pending = json.loads(done(fsc("runs", study, "--state", "pending", "--json")))["runs"]
    whole = next(run for run in pending if run["demos"]["camera_pose"] == 70 and sum(run["demos"].values()) == 160)
    done(fsc("record", study, str(whole["id"]), *["1"] * 7, *["0"] * 3, "--done"))
    last = json.loads(done(fsc("recommend", study, "--budget", "20", "--json")))["last_round"]
    assert (last["measured"], last["policies"]) == (0.7, 1)
    predicted = f"Looking back: the last round was predicted to reach {100 * last['expected']['mean']:.1f}% ("
    scored = "one policy trained on everything scored 70.0%."
    for text in (done(fsc("recommend", study, "--budget", "20")), page(fsc, study)):
        assert predicted in text
        assert scored in text
    scores = study / "scores.csv"
    done(fsc("export", study, "--out", scores))
    assert "last_round" not in done(fsc("recommend", study, scores, "--budget", "20", "--json"))  # it has no rounds


def page(fsc: Fsc, study: Path) -> str:
    done(fsc("report", study, "--budget", "20"))
    return (study / "report.html").read_text()


def test_saving_says_what_comes_next(fsc: Fsc, study: Path) -> None:
    scores = study / "results.csv"
    said = fsc("recommend", study, scores, "--budget", "20", "--strategy", "top", "--save")
    assert (
        said.stderr == f"wrote {study / 'study.db'}\n"
        f"saved as the allocation of this round; next: `fsc extend {study} --as-recommended` when it is collected\n"
    )
    assert "extend" not in fsc("recommend", study, scores, "--budget", "20", "--strategy", "top").stderr
    quiet = fsc("recommend", study, scores, "--budget", "20", "--strategy", "top", "--save", "--json")
    assert quiet.stderr == ""


def test_what_was_collected_may_differ_from_the_order(fsc: Fsc, study: Path) -> None:
    done(fsc("import", study, study / "results.csv"))
    done(fsc("recommend", study, "--budget", "20", "--strategy", "top", "--save"))
    refused(fsc("extend", study, "--collected", "lightning=3"), "did you mean lighting?")
    refused(fsc("extend", study, "--collected", "lighting"), "--collected", "NAME=DEMOS")
    refused(fsc("extend", study, "--collected", "lighting=0"), "no new demonstrations")
    refused(fsc("extend", study, "--collected", "lighting=99999999"), "lighting", "1000000")
    answer = fsc("extend", study, "--collected", "lighting=3", "--collected", "nominal=2")
    assert "what was collected differs from the recommendation" in done(answer)
    data = json.loads(done(fsc("plan", study, "--json")))
    assert data["runs"][0]["demos"]["lighting"] == 33
    extended = json.loads(done(fsc("extend", study, "--collected", "distractor=1", "--json")))
    assert extended == {
        "round": 2,
        "factors": {"camera_pose": 30, "distractor": 31, "table_texture": 30, "lighting": 33},
        "nominal": 2,
        "order": None,
    }


def test_settings_may_change_and_demos_may_not(fsc: Fsc, study: Path) -> None:
    done(fsc("import", study, study / "results.csv"))
    text = (study / "study.yaml").read_text()
    one = text.replace("construction: group", "construction: one").replace("groups:", "# groups:")
    (study / "study.yaml").write_text(one)
    listed = runs(fsc, study)
    assert sum(run["state"] == "done" for run in listed) == 7
    assert len({run["digest"] for run in listed}) == len(listed) == 7 + 12
    refused(fsc("recommend", study, "--budget", "5", "--strategy", "top"), "the curve of camera_pose needs scores")
    (study / "study.yaml").write_text(text)
    done(fsc("recommend", study, "--budget", "5"))
    for change in ("lighting: 31", "lightning: 30"):
        (study / "study.yaml").write_text(text.replace("lighting: 30", change).replace("groups:", "# groups:"))
        refused(fsc("runs", study), "study.yaml", "fsc extend", "start a new study")


def test_a_screening_study_has_no_curves_and_is_told_what_fits_it(fsc: Fsc, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("factors: {camera_pose: 4, lighting: 4, table: 4}\nconstruction: screen\n")
    for run in ("1", "2"):
        done(fsc("record", tmp_path, run, "1", "0", "1", "--done"))
    hint = "the response model needs none: `fsc recommend --fit response-model`"
    refused(fsc("fit", tmp_path), "construction screen has no curves", hint)
    refused(fsc("recommend", tmp_path, "--budget", "5", "--strategy", "top"), hint)
    done(fsc("recommend", tmp_path, "--budget", "5", "--strategy", "top", "--fit", "response-model"))


def test_an_export_takes_the_settings_of_today_along(fsc: Fsc, study: Path, tmp_path: Path) -> None:
    """With those of the first day the copy would plan policies that nobody wants any more."""
    done(fsc("record", study, "1", "1", "0", "--done"))
    done(fsc("extend", study, "--collected", "lighting=4"))
    declared = study / "study.yaml"
    declared.write_text(declared.read_text() + "policy: {updates: 40}\ndataset: recordings\n")
    planned = len(runs(fsc, study))
    done(fsc("plan", study))
    done(fsc("export", study, "--out", tmp_path / "all.json"))
    done(fsc("import", tmp_path / "copy", tmp_path / "all.json"))
    assert read_study(tmp_path / "copy" / "study.yaml") == read_study(declared)
    assert len(runs(fsc, tmp_path / "copy")) == planned


def test_what_an_earlier_round_left_is_told_apart(fsc: Fsc, study: Path) -> None:
    done(fsc("record", study, "1", "1", "0", "--done"))
    left = sum(run["state"] == "pending" for run in runs(fsc, study))
    said = done(fsc("extend", study, "--collected", "camera_pose=40"))
    pending = sum(run["state"] == "pending" for run in runs(fsc, study))
    shared = sum(run["demos"]["camera_pose"] == 0 for run in runs(fsc, study))  # a policy of both rounds
    assert shared == 1
    told = (
        f"{pending - left + shared} policies to train, after them {left - shared} that earlier rounds left; `fsc runs"
    )
    assert told in said


def test_rows_of_an_earlier_round_in_short_form_are_not_read_with_todays_demos(fsc: Fsc, study: Path) -> None:
    scores = study / "results.csv"
    done(fsc("import", study, scores))
    first = done(fsc("export", study))
    done(fsc("extend", study, "--collected", "camera_pose=40", "--collected", "lighting=10"))
    before = runs(fsc, study)
    said = ("results.csv: row 2 (line 3)", "no policy of round 1 has n = 20 of camera_pose+distractor", "fsc export")
    refused(fsc("import", study, scores), *said)
    refused(fsc("recommend", study, scores, "--budget", "20"), *said)
    assert runs(fsc, study) == before
    (study / "first.csv").write_text(first)  # the same scores, with the demonstrations they were measured with
    assert done(fsc("import", study, study / "first.csv")).startswith("0 new scores")
    (study / "second.csv").write_text("combination,n,score,trials\ncamera_pose+distractor,100,0.7,400\n")
    assert done(fsc("import", study, study / "second.csv")).startswith("1 new score in")
    assert [run["demos"]["camera_pose"] for run in runs(fsc, study) if run["score"] == 0.7] == [70]


def test_a_study_that_may_not_be_written_to_is_read(
    fsc: Fsc, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fsc("import", study, study / "results.csv").returncode == 0
    reading = (
        ("runs", study),
        ("recommend", study, "--budget", "10", "--strategy", "top", "--fit", "power-law"),
        ("export", study),
        ("report", study, "--out", tmp_path / "elsewhere.html"),
    )
    before = [fsc(*command).stdout for command in reading]
    monkeypatch.setattr(connections, "_writable", lambda _: False)
    for command, said in zip(reading, before, strict=True):
        answer = fsc(*command)
        assert (answer.returncode, answer.stdout) == (0, said), answer
    writing = (
        ("record", study, "1", "1"),
        ("recommend", study, "--budget", "10", "--strategy", "equal", "--save"),
        ("import", study, study / "results.csv"),
    )
    for command in writing:
        answer = fsc(*command)
        assert answer.returncode == 1
        assert (
            "study.db: the database may not be written to; check the file's and the folder's permissions"
            in answer.stderr
        )


class TestNamesOfOnesOwn:
    """Demonstrations are files of anybody's: a run must name those files, in later rounds too."""

    @pytest.fixture
    def demos(self, fsc: Fsc, tmp_path: Path) -> Path:
        rows = [f"{factor}_{take}.npz,{factor}\n" for factor in ("lighting", "camera_pose") for take in range(4)]
        (tmp_path / "demos.csv").write_text("episode,factor\n" + "".join(rows) + "still_0.npz,\n")
        done(fsc("init", tmp_path / "study", "--episodes", tmp_path / "demos.csv"))
        return tmp_path / "demos.csv"

    def test_runs_name_them(self, fsc: Fsc, demos: Path) -> None:
        study = demos.parent / "study"
        spec = read_study(study / "study.yaml")
        assert (spec.sizes, spec.nominal) == ({"lighting": 4, "camera_pose": 4}, 1)
        first = done(fsc("runs", study, "--episodes", "1")).split()
        assert sorted(first) == sorted(line.split(",")[0] for line in demos.read_text().splitlines()[1:])

    def test_what_was_collected_since_is_added_by_name(self, fsc: Fsc, demos: Path) -> None:
        study = demos.parent / "study"
        with demos.open("a") as table:
            table.write("lighting_4.npz,lighting\nlighting_5.npz,lighting\nstill_1.npz,nominal\n")
        compared = done(fsc("extend", study, "--episodes", demos, "--compare"))
        assert "Round 0, so far" in compared
        assert "9 episodes of" in compared
        assert json.loads(done(fsc("runs", study, "--json")))["round"] == 0
        added = json.loads(done(fsc("extend", study, "--episodes", demos, "--json")))
        assert added["collected"] == {"lighting": 2, "nominal": 1}
        with Study.open(study / "study.db") as opened:
            assert [e.id for e in opened.dataset.episodes][-3:] == ["lighting_4.npz", "lighting_5.npz", "still_1.npz"]
        refused(fsc("extend", study, "--episodes", demos), "no episode is new to the study")

    def test_numbers_would_name_nothing(self, fsc: Fsc, demos: Path) -> None:
        study = demos.parent / "study"
        refused(fsc("extend", study, "--collected", "lighting=3"), "have names", "--episodes CSV")
        said = fsc("recommend", study, "--budget", "6", "--strategy", "equal", "--save").stderr
        assert "`fsc extend" in said
        assert "--episodes CSV` when it is collected" in said
        refused(fsc("extend", study, "--as-recommended"), "have names", "--episodes CSV")

    def test_slips(self, fsc: Fsc, demos: Path) -> None:
        study, table = demos.parent / "study", demos.parent / "new.csv"
        table.write_text("episode,factor\nnew.npz,ligting\n")
        refused(fsc("extend", study, "--episodes", table), "new.csv: row 1", "did you mean lighting?")
        table.write_text("episode,factor\nlighting_0.npz,camera_pose\n")
        refused(fsc("extend", study, "--episodes", table), "row 1", "varied lighting before, not camera_pose")
        refused(fsc("extend", study, "--episodes", table, "--as-recommended"), "give one of --collected")
        table.write_text("episode,factor\nstill.npz,\n")
        other = demos.parent / "other"
        refused(fsc("init", other, "--episodes", table), "no episode varies a factor")
        refused(fsc("init", other, "--episodes", demos, "--factor", "a=3"), "--episodes", "leave --factor out")
        refused(fsc("init", other, "--episodes", demos, "--dataset", demos.parent), "leave the others out")
        assert not other.exists()

    def test_what_was_chosen_from_a_pool_is_added_as_recommended(self, fsc: Fsc, demos: Path) -> None:
        study, pool = demos.parent / "study", demos.parent / "pool.csv"
        pool.write_text("episode,factor\n" + "".join(f"old/{take}.npz,lighting\n" for take in range(9)))
        given = ("recommend", study, "--budget", "4", "--strategy", "equal", "--pool", pool)
        assert "--as-recommended` adds these episodes" in fsc(*given, "--save").stderr
        chosen = json.loads(done(fsc(*given, "--json")))["episodes"]["lighting"]
        assert len(chosen) == 4
        done(fsc("extend", study, "--as-recommended"))
        with Study.open(study / "study.db") as opened:
            assert [e.id for e in opened.dataset.episodes][-4:] == chosen
