"""fsc next and fsc recommend --pool: what is printed, what is kept, and mistakes in one line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Answer = subprocess.CompletedProcess[str]
Fsc = Callable[..., Answer]
NAMES = ("a", "b", "c")
STUDY = "name: s\nfactors: {a: 30, b: 30, c: 30}\nconstruction: screen\npolicies: 3\n"
HEADER = "demos:a,demos:b,demos:c,factor,score,trials\n"
SCORES = {(30, 30, 30): (0.3, 0.6, 0.9), (0, 30, 30): (0.1, 0.6, 0.9), (30, 0, 0): (0.3, 0.3, 0.9)}


@pytest.fixture
def screening(tmp_path: Path) -> Path:
    (tmp_path / "study.yaml").write_text(STUDY)
    lines = [
        f"{','.join(map(str, demos))},{name},{score},20\n"
        for demos, scores in SCORES.items()
        for name, score in zip(NAMES, scores, strict=True)
    ]
    (tmp_path / "results.csv").write_text(HEADER + "".join(lines))
    return tmp_path


def test_next_weighs_acting_now_against_every_step(fsc: Fsc, screening: Path) -> None:
    answer = fsc("next", screening, screening / "results.csv", "--budget", "60")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("Acting now: collect ")
    for text in ("  and then", "train again, seed 1", "more trials", "gain, points"):
        assert text in answer.stdout
    data = json.loads(fsc("next", screening, screening / "results.csv", "--budget", "60", "--json").stdout)
    assert sum(data["act_now"]["allocation"].values()) == 60
    assert {step["kind"] for step in data["steps"]} == {"train", "seed", "evaluate"}
    assert data["next"] is None or data["next"]["gain"] > data["next"]["needed"]


def test_costs_stand_in_the_table_where_there_are_any(fsc: Fsc, screening: Path) -> None:
    given = ("next", screening, screening / "results.csv", "--budget", "60")
    for costs, headings in (((), ["trials", "gain,"]), (("--trial-cost", "0.01"), ["trials", "cost", "gain,"])):
        heading = next(line for line in fsc(*given, *costs).stdout.splitlines() if line.startswith("next "))
        assert heading.split()[1 + len(NAMES) : -1] == headings


def test_gains_that_perfect_information_limits_are_marked(fsc: Fsc, screening: Path) -> None:
    rows = [f"30,30,30,{name},{score},20\n" for name, score in zip(NAMES, (0.4, 0.5, 0.75), strict=True)]
    (screening / "results.csv").write_text(HEADER + "".join(rows))
    given = ("next", screening, screening / "results.csv", "--budget", "60")
    steps = json.loads(fsc(*given, "--json").stdout)["steps"]
    limited = {f"{100 * step['gain']:+.2f}" for step in steps if step["limited"]}
    assert limited, "this study has such gains"
    assert all(step["gain"] <= max(s["gain"] for s in steps if s["limited"]) for step in steps)
    lines = fsc(*given).stdout.splitlines()
    marked = [line.split() for line in lines if "  max" in line]
    assert {next(word for word in words if word[0] == "+") for words in marked} == limited
    assert len(marked) == sum(step["limited"] for step in steps)
    assert "max: limited to the value of perfect information, the most that a measurement can add." in lines


@pytest.mark.parametrize("construction", ["screen", "group"])
def test_what_to_do_first_is_marked_policy_by_policy(fsc: Fsc, screening: Path, construction: str) -> None:
    (screening / "study.yaml").write_text(STUDY.replace("screen", construction))
    given = ("next", screening, screening / "results.csv", "--budget", "60", "--worth", "0")
    step = json.loads(fsc(*given, "--json").stdout)["next"]
    marked = [line.split() for line in fsc(*given).stdout.splitlines() if line.endswith("  ←")]
    assert len(step["demos"]) == len(marked)
    for demos, words in zip(step["demos"], marked, strict=True):
        assert " ".join(str(demos[name]) for name in NAMES) in " ".join(words)


def test_a_measurement_that_costs_all_there_is_is_not_shown(fsc: Fsc, screening: Path) -> None:
    costs = ("--policy-cost", "60", "--trial-cost", "1")
    answer = fsc("next", screening, screening / "results.csv", "--budget", "60", *costs)
    assert "Value of measuring more" not in answer.stdout
    assert "every measurement would cost the whole budget" in answer.stdout


def test_a_negative_threshold_is_refused_in_the_unit_it_was_given_in(fsc: Fsc, screening: Path) -> None:
    answer = fsc("next", screening, screening / "results.csv", "--budget", "60", "--worth", "-1")
    assert answer.returncode == 2
    assert answer.stderr == "fsc: --worth: must be at least 0, not -1\n"


def test_acting_now_is_what_recommend_says(fsc: Fsc, screening: Path) -> None:
    scores = (screening, screening / "results.csv", "--budget", "60", "--json")
    now = json.loads(fsc("next", *scores).stdout)["act_now"]
    answer = json.loads(fsc("recommend", *scores).stdout)
    assert now["allocation"] == answer["allocation"]
    assert now["expected"] == answer["response_model"]["predicted"]["mean"]
    assert now["regret"] == answer["response_model"]["regret"]


def test_next_adds_what_it_advises_to_the_record(fsc: Fsc, screening: Path) -> None:
    assert fsc("import", screening, screening / "results.csv").returncode == 0
    before = len(json.loads(fsc("runs", screening, "--json").stdout)["runs"])
    answer = fsc("next", screening, "--budget", "60", "--worth", "0", "--add", "--json")
    assert answer.returncode == 0, answer.stderr
    data = json.loads(answer.stdout)
    assert data["next"] is not None
    runs = json.loads(fsc("runs", screening, "--json").stdout)["runs"]
    asked = [] if data["next"]["kind"] == "evaluate" else data["next"]["demos"]
    assert len(data["added"]) == len(asked)
    assert len(runs) == before + len(asked)
    for number, demos in zip(data["added"], asked, strict=True):
        run = next(run for run in runs if run["id"] == number)
        assert (run["demos"], run["state"]) == (demos, "pending")
    said = fsc("next", screening, "--budget", "60", "--worth", "0", "--add").stdout  # the same again
    numbers = ", ".join(str(number) for number in data["added"])
    many = len(data["added"]) > 1
    assert f"added as run{'s' * many} {numbers}; `fsc run` or `fsc record` fills {'them' if many else 'it'}\n" in said


def test_recommend_chooses_episodes_from_a_pool(fsc: Fsc, screening: Path) -> None:
    pool, out = screening / "pool.csv", screening / "chosen.csv"
    rows = [f"p/{name}{number},{name}\n" for name, count in (("a", 8), ("b", 50), ("z", 5)) for number in range(count)]
    pool.write_text("episode,factor\n" + "".join(rows))
    given = ("recommend", screening, screening / "results.csv", "--budget", "30", "--pool", pool)
    answer = fsc(*given, "--out", out, "--json")
    assert answer.returncode == 0, answer.stderr
    data = json.loads(answer.stdout)
    assert data["allocation"]["c"] == 0
    assert data["allocation"]["a"] <= 8
    assert sum(data["allocation"].values()) == 30
    assert data["pool_warnings"] == ["5 episodes of the pool vary no factor of the study"]
    written = out.read_text().splitlines()
    assert written[0] == "episode,factor"
    assert written[1:] == [f"{id_},{name}" for name, ids in data["episodes"].items() for id_ in ids]
    assert set(written[1:]) <= {row.strip() for row in rows}
    again = json.loads(fsc(*given, "--json").stdout)["episodes"]
    other = json.loads(fsc(*given, "--seed", "1", "--json").stdout)["episodes"]
    assert again == data["episodes"] != other
    table = fsc(*given)
    assert "in the pool" in table.stdout
    assert data["answer"].startswith("Add ")
    assert f"\n{data['answer']}\n" in table.stdout
    assert "vary no factor" in table.stderr


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (("next", "{}", "{}/results.csv", "--budget", "0"), "the budget must be"),
        (("next", "{}", "{}/results.csv", "--budget", "9", "--policy-cost", "-1"), "policy_cost: must be at least 0"),
        (("next", "{}", "{}/results.csv", "--budget", "9", "--add"), "--add: there is no record"),
        (("recommend", "{}", "{}/results.csv", "--budget", "9", "--out", "x.csv"), "--out: episodes can be written"),
        (("recommend", "{}", "{}/results.csv", "--budget", "9", "--pool", "{}/none.csv"), "none.csv"),
        (("recommend", "{}", "{}/results.csv", "--budget", "9", "--pool", "{}/results.csv"), "no column 'episode'"),
    ],
)
def test_mistakes_are_one_line(fsc: Fsc, screening: Path, args: tuple[str, ...], what: str) -> None:
    answer = fsc(*(arg.replace("{}", str(screening)) for arg in args))
    assert (answer.returncode, answer.stdout) == (2, "")
    assert what in answer.stderr
    assert answer.stderr.count("\n") == 1
