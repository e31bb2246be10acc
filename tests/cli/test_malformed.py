"""Every mistake in a file: exit code 2 and one line that says where and what would be right; nothing is written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Answer = subprocess.CompletedProcess[str]
Fsc = Callable[..., Answer]

FACTORS = "factors:\n  camera_pose: 30\n  lighting: 20\n"
HEADER = "combination,n,score\n"
GENERAL = "demos:camera_pose,demos:distractor,demos:table_texture,demos:lighting,score\n"


def one_line(answer: Answer, *said: str) -> None:
    """Exit code 2, nothing on stdout, one line on stderr that says all of `said`."""
    assert answer.returncode == 2, answer
    assert answer.stdout == ""
    assert answer.stderr.startswith("fsc: ")
    assert answer.stderr.count("\n") == 1
    assert answer.stderr.endswith("\n")
    assert "Traceback" not in answer.stderr
    for words in said:
        assert words in answer.stderr, answer.stderr


def tree(folder: Path) -> dict[str, bytes]:
    """Every file under the folder and what it holds."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# what the file holds → where the mistake is, and words of the message
YAML: dict[str, tuple[str | bytes, str, str]] = {
    "empty": ("", "", "is empty"),
    "only white space": (" \n\n", "", "is empty"),
    "only a comment": ("# nothing\n", "line 1, column 1", "expected `name:`, `factors:`"),
    "null": ("~\n", "line 1, column 1", "expected `name:`"),
    "a list": ("- a\n- b\n", "line 1, column 1", "expected `name:`"),
    "a text": ("hello\n", "line 1, column 1", "expected `name:`"),
    "a number": ("7\n", "line 1, column 1", "expected `name:`"),
    "two documents": (FACTORS + "---\n" + FACTORS, "line 4, column 1", "not valid YAML"),
    "binary": (bytes(range(256)), "line 2", "UTF-8"),
    "NUL": (b"factors:\n  a: 1\0\n", "line 2", "binary"),
    "UTF-16": (FACTORS.encode("utf-16"), "line 1", "save it as UTF-8"),
    "UTF-16 without mark": (FACTORS.encode("utf-16-le"), "line 1", "binary"),
    "Latin-1": ("name: gefäß\n".encode("latin-1") + FACTORS.encode(), "line 1", "UTF-8"),
    "control character": ("name: a\nfactors: {b\x01: 3}\n", "line 2, column 12", "control character"),
    "tab": ("factors:\n\tcamera_pose: 30\n", "line 2, column 1", "indent with spaces"),
    "unclosed bracket": ("factors: {a: 1\n", "line 2, column 1", "not valid YAML"),
    "unclosed quote": ("name: 'a\n" + FACTORS, "column 1", "not valid YAML"),
    "bad indent": ("factors:\n  a: 1\n b: 2\n", "line 3, column 2", "not valid YAML"),
    "unknown tag": ("factors: {a: !thing 3}\n", "line 1, column 14", "not valid YAML"),
    "python tag": ("factors: !!python/object:os.system {a: 1}\nx: !!python/name:os.system x\n", "line 2", "YAML"),
    "impossible bool": ("factors: {a: !!bool maybe}\n", "line 1, column 14", "cannot be read"),
    "impossible int": ("factors: {a: !!int ''}\n", "line 1, column 14", "cannot be read"),
    "impossible date": ("name: 2024-13-45\n" + FACTORS, "line 1, column 7", "in quotes"),
    "deep": ("factors: " + "[" * 600, "", "nested too deep"),
    "alias": ("factors: &f {a: 3}\npolicy: *f\n", "line 1, column 10", "aliases"),
    "merge": ("factors:\n  <<: {a: 3}\n", "line 2, column 3", "YAML"),
    "duplicate key": (FACTORS + "nominal: 1\nnominal: 2\n", "line 5, column 1", "'nominal' appears twice"),
    "duplicate factor": ("factors:\n  a: 1\n  a: 2\n", "line 3, column 3", "'a' appears twice"),
    "unknown key": (FACTORS + "nominel: 3\n", "line 4, column 1", "did you mean nominal?"),
    "key is a number": (FACTORS + "3: 4\n", "line 4, column 1", "is not a name"),
    "key is a bool": ("factors:\n  yes: 30\n", "line 2, column 3", "is not a name"),
    "key is a list": (FACTORS + "[a, b]: 3\n", "line 4, column 1", "is not a name"),
    "no factors": ("name: x\nnominal: 3\n", "line 1, column 1", "no factors"),
    "factors null": ("factors:\n", "line 1, column 1", "factor names to numbers"),
    "factors empty": ("factors: {}\n", "line 1, column 1", "no factors"),
    "factors a list": ("factors: [a, b]\n", "line 1, column 1", "camera_pose: 30"),
    "factors a text": ("factors: a\n", "line 1, column 1", "camera_pose: 30"),
    "factor name": ("factors:\n  a+b: 3\n", "line 1, column 1", "cannot name a factor"),
    "factor name *": ("factors:\n  '*': 3\n", "line 1, column 1", "cannot name a factor"),
    "factor name empty": ("factors:\n  '': 3\n", "line 1, column 1", "cannot name a factor"),
    "factor named nominal": ("factors:\n  nominal: 3\n", "line 2, column 3", "cannot name a factor"),
    "demos 0": ("factors:\n  a: 0\n", "line 2, column 3", "at least 1"),
    "demos negative": ("factors:\n  a: -4\n", "line 2, column 3", "at least 1"),
    "demos a float": ("factors:\n  a: 3.0\n", "line 2, column 3", "whole number"),
    "demos a bool": ("factors:\n  a: true\n", "line 2, column 3", "whole number"),
    "demos quoted": ("factors:\n  a: '30'\n", "line 2, column 3", "whole number"),
    "demos null": ("factors:\n  a:\n", "line 2, column 3", "whole number"),
    "demos a list": ("factors:\n  a: [30]\n", "line 2, column 3", "whole number"),
    "demos a date": ("factors:\n  a: 2024-01-01\n", "line 2, column 3", "whole number"),
    "demos nan": ("factors:\n  a: .nan\n", "line 2, column 3", "whole number"),
    "demos inf": ("factors:\n  a: .inf\n", "line 2, column 3", "whole number"),
    "demos octal": ("factors:\n  a: 030\n", "line 2, column 6", "030 would be read as 24"),
    "demos as time": ("factors:\n  a: 1:30\n", "line 2, column 6", "plain digits"),
    "demos huge": ("factors:\n  a: 1000000000000\n", "line 1, column 1", "at most"),
    "demos endless": ("factors:\n  a: 1" + "0" * 6000 + "\n", "line 2, column 6", "cannot be read"),
    "no demos": ("factors:\n  a: {cost: 3}\n", "line 2, column 3", "demos: 30"),
    "unknown in factor": ("factors:\n  a: {demos: 3, coast: 3}\n", "line 2, column 17", "did you mean cost?"),
    "cost 0": ("factors:\n  a: {demos: 3, cost: 0}\n", "line 2, column 17", "above 0"),
    "cost nan": ("factors:\n  a: {demos: 3, cost: .nan}\n", "line 2, column 17", "above 0"),
    "cost a text": ("factors:\n  a: {demos: 3, cost: cheap}\n", "line 2, column 17", "above 0"),
    "cap negative": ("factors:\n  a: {demos: 3, cap: -1}\n", "line 2, column 17", "at least 0"),
    "cap a float": ("factors:\n  a: {demos: 3, cap: 1.5}\n", "line 2, column 17", "whole number"),
    "minimum above cap": ("factors:\n  a: {demos: 3, cap: 1, minimum: 2}\n", "line 2, column 25", "above cap"),
    "nominal negative": (FACTORS + "nominal: -1\n", "line 4, column 1", "at least 0"),
    "nominal a bool": (FACTORS + "nominal: false\n", "line 4, column 1", "whole number"),
    "nominal null": (FACTORS + "nominal:\n", "line 4, column 1", "whole number"),
    "nominal huge": (FACTORS + "nominal: 9999999999\n", "line 1, column 1", "is a number too long?"),
    "construction": (FACTORS + "construction: grup\n", "line 4, column 1", "did you mean group?"),
    "construction a list": (FACTORS + "construction: [one]\n", "line 4, column 1", "one"),
    "construction null": (FACTORS + "construction:\n", "line 4, column 1", "one?"),
    "pair of one": ("factors: {a: 3}\nconstruction: pair\n", "line 2, column 1", "two factors"),
    "points 1": (FACTORS + "points: 1\n", "line 4, column 1", "at least 2"),
    "points a float": (FACTORS + "points: 4.5\n", "line 4, column 1", "whole number"),
    "seeds 0": (FACTORS + "seeds: 0\n", "line 4, column 1", "at least 1"),
    "seeds huge": (FACTORS + "seeds: 99999999\n", "line 4, column 1", "policies to train"),
    "group_size 0": (FACTORS + "group_size: 0\n", "line 4, column 1", "at least 1"),
    "name a number": (FACTORS + "name: 7\n", "line 4, column 1", "expected a text"),
    "name empty": (FACTORS + "name: ''\n", "line 4, column 1", "expected a text"),
    "policy a text": (FACTORS + "policy: big\n", "line 4, column 1", "expected a mapping"),
    "policy nan": (FACTORS + "policy: {lr: .nan}\n", "line 4, column 1", "plain data"),
    "groups a text": (FACTORS + "groups: all\n", "line 4, column 1", "list of lists"),
    "groups flat": (FACTORS + "groups: [camera_pose, lighting]\n", "line 4, column 10", "list of factors"),
    "groups of numbers": (FACTORS + "groups: [[1, 2]]\n", "line 4, column 10", "unknown factor"),
    "group unknown": (FACTORS + "groups: [[camera_pose, lihgting]]\n", "line 4, column 10", "did you mean lighting?"),
    "group empty": (FACTORS + "groups: [[camera_pose, lighting], []]\n", "line 4, column 35", "an empty group"),
    "group twice": (FACTORS + "groups: [[lighting, lighting]]\n", "line 4, column 10", "named twice"),
    "groups overlap": (
        FACTORS + "groups: [[camera_pose, lighting],\n  [lighting]]\n",
        "line 5, column 3",
        "already in groups[0]",
    ),
    "groups lack one": (FACTORS + "groups: [[camera_pose]]\n", "line 4, column 1", "'lighting' is in no group"),
}


@pytest.mark.parametrize("case", YAML)
def test_study_yaml(case: str, fsc: Fsc, tmp_path: Path) -> None:
    content, place, said = YAML[case]
    path = tmp_path / "study.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = tree(tmp_path)
    for command in (["plan"], ["recommend", "--budget", "10"], ["runs"], ["record", "1", "0.5"]):
        one_line(fsc(command[0], path, *command[1:]), str(path), place, said)
    assert tree(tmp_path) == before


CSV: dict[str, tuple[str | bytes, str, str]] = {
    "empty": ("", "", "is empty"),
    "blank": ("\n  \n", "", "is empty"),
    "only commas": (",,\n,,\n", "", "no rows"),
    "only a header": (HEADER, "", "no rows"),
    "no header": ("camera_pose+distractor,0,0.4\n", "header (line 1), column 1", "unknown column"),
    "binary": (bytes(range(256)), "line 2", "UTF-8"),
    "NUL": (HEADER + "lighting+table_texture,0,0\0\n", "line 2", "binary"),
    "UTF-16": (HEADER.encode("utf-16"), "line 1", "save it as UTF-8"),
    "YAML instead": (FACTORS, "header (line 1), column 1", "unknown column"),
    "semicolons": ("combination;n;score\na;1;0.5\n", "header (line 1), column 1", "commas"),
    "tabs": ("combination\tn\tscore\na\t1\t0.5\n", "header (line 1), column 1", "commas"),
    "late header": ("\n\ncombination,n,scor\n", "header (line 3), column 3", "did you mean score?"),
    "unknown column": ("combination,n,score,notes\na,1,0.5,x\n", "header (line 1), column 4", "'notes'"),
    "nameless column": (
        "combination,n,score,\na,1,0.5,\n",
        "header (line 1), column 4",
        "empty column name; remove the last",
    ),
    "nameless demos": ("demos:,score\n1,0.5\n", "header (line 1), column 1", "demos:NAME"),
    "column twice": ("combination,n,score,n\na,1,0.5,1\n", "header (line 1), column 4", "'n' appears twice"),
    "no score": ("combination,n\na,1\n", "header (line 1)", "no column 'score'"),
    "no n": ("combination,score\na,0.5\n", "header (line 1)", "no column 'n'"),
    "no combination": ("n,score\n1,0.5\n", "header (line 1)", "no column 'combination'"),
    "both forms": ("combination,n,demos:lighting,score\n", "header (line 1)", "use one form"),
    "cell missing": (HEADER + "lighting+table_texture,0\n", "row 1 (line 2), column score", "2 cells"),
    "cell too many": (HEADER + "lighting+table_texture,0,0.5,1\n", "row 1 (line 2), column 4", "4 cells"),
    "decimal comma": (HEADER + "lighting+table_texture,0,0,45\n", "row 1 (line 2), column 4", "4 cells"),
    "unclosed quote": (HEADER + '"lighting,0,0.5\n', "row 1 (line 2)", "not valid CSV"),
    "row after gap": (HEADER + "\n\nlighting+table_texture,0,2\n", "row 1 (line 4), column score", "[0, 1]"),
    "row over lines": (
        HEADER + '"lighting\n+table_texture",0,0.2\nlighting+table_texture,0,2\n',
        "row 2 (line 4), column score",
        "[0, 1]",
    ),
    "score nan": (HEADER + "lighting+table_texture,0,nan\n", "row 1 (line 2), column score", "'nan'"),
    "score inf": (HEADER + "lighting+table_texture,0,inf\n", "row 1 (line 2), column score", "'inf'"),
    "score huge": (HEADER + "lighting+table_texture,0,1e999\n", "row 1 (line 2), column score", "[0, 1]"),
    "score above": (HEADER + "lighting+table_texture,0,1.01\n", "row 1 (line 2), column score", "[0, 1], not 1.01"),
    "score below": (HEADER + "lighting+table_texture,0,-0.1\n", "row 1 (line 2), column score", "[0, 1], not -0.1"),
    "score comma": (HEADER + 'lighting+table_texture,0,"0,45"\n', "row 1 (line 2), column score", "write 0.45"),
    "score percent": (HEADER + "lighting+table_texture,0,45%\n", "row 1 (line 2), column score", "45% as 0.45"),
    "score counted": (
        "combination,n,score,trials\nlighting+table_texture,0,7,20\n",
        "row 1 (line 2), column score",
        "not 7; if 7 of 20 succeeded, write 0.35",
    ),
    "trials a part": (
        "combination,n,score,trials\nlighting+table_texture,0,0.5,20.5\n",
        "row 1 (line 2), column trials",
        "expected a whole number, not '20.5'",
    ),
    "score text": (HEADER + "lighting+table_texture,0,high\n", "row 1 (line 2), column score", "'high'"),
    "score missing": (HEADER + "lighting+table_texture,0,\n", "row 1 (line 2), column score", "missing"),
    "score bool": (HEADER + "lighting+table_texture,0,true\n", "row 1 (line 2), column score", "a number"),
    "score long": (HEADER + f"lighting+table_texture,0,{'x' * 500}\n", "row 1 (line 2), column score", "xxx..."),
    "n above size": (HEADER + "lighting+table_texture,61,0.5\n", "row 1 (line 2), column n", "more than the 60"),
    "n negative": (HEADER + "lighting+table_texture,-1,0.5\n", "row 1 (line 2), column n", "whole number"),
    "n a float": (HEADER + "lighting+table_texture,20.0,0.5\n", "row 1 (line 2), column n", "whole number"),
    "n missing": (HEADER + "lighting+table_texture,,0.5\n", "row 1 (line 2), column n", "missing"),
    "n endless": (HEADER + f"lighting+table_texture,{'9' * 6000},0.5\n", "row 1 (line 2), column n", "whole"),
    "n foreign digits": (HEADER + "lighting+table_texture,²,0.5\n", "row 1 (line 2), column n", "whole number"),
    "unknown factor": (HEADER + "camera_pos+distractor,0,0.5\n", "row 1 (line 2), column combination", "camera_pose?"),
    "unknown combination": (HEADER + "camera_pose+lighting,0,0.5\n", "column combination", "table_texture+lighting"),
    "combination missing": (HEADER + ",0,0.5\n", "row 1 (line 2), column combination", "missing"),
    "combination +": (HEADER + "+,0,0.5\n", "row 1 (line 2), column combination", "joined by +"),
    "combination twice": (HEADER + "lighting+lighting,0,0.5\n", "row 1 (line 2), column combination", "twice"),
    "quoted comma": (HEADER + '"lighting,table_texture",0,0.5\n', "column combination", "unknown factor"),
    "trials 0": ("combination,n,score,trials\nlighting+table_texture,0,0.5,0\n", "column trials", "at least 1"),
    "trials negative": ("combination,n,score,trials\nlighting+table_texture,0,0.5,-4\n", "column trials", "at least 0"),
    "trials float": ("combination,n,score,trials\nlighting+table_texture,0,0.5,6e2\n", "column trials", "whole"),
    "seed negative": ("combination,n,score,seed\nlighting+table_texture,0,0.5,-1\n", "column seed", "whole"),
    "factor unknown": (
        "combination,n,score,factor\nlighting+table_texture,0,0.5,lightning\n",
        "row 1 (line 2), column factor",
        "did you mean lighting?",
    ),
    "factor * and": (
        "combination,n,score,factor\nlighting+table_texture,0,0.5,*+lighting\n",
        "row 1 (line 2), column factor",
        "stands alone",
    ),
    "demos unknown": ("demos:camera,score\n3,0.5\n", "column demos:camera", "camera_pose"),
    "demos lacking": ("demos:camera_pose,score\n3,0.5\n", "column demos:distractor", "every factor"),
    "demos above": (GENERAL + "31,30,30,30,0.5\n", "row 1 (line 2), column demos:camera_pose", "more than the 30"),
    "demos empty": (GENERAL + "30,,30,30,0.5\n", "row 1 (line 2), column demos:distractor", "missing"),
    "demos float": (GENERAL + "30,3.5,30,30,0.5\n", "row 1 (line 2), column demos:distractor", "whole number"),
    "third row": (
        GENERAL + "30,30,30,30,.5\r\n0,0,30,30,.4\r\n0,0,30,30,4\r\n",
        "row 3 (line 4), column score",
        "[0, 1]",
    ),
    "one point": (HEADER + "lighting+table_texture,0,0.5\n", "", "two or more sizes"),
}


@pytest.mark.parametrize("case", CSV)
def test_results_csv(case: str, fsc: Fsc, study: Path) -> None:
    content, place, said = CSV[case]
    path = study / "bad.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = tree(study)
    asked = ("--budget", "10", "--strategy", "top")
    one_line(fsc("recommend", study, path, *asked), str(path), place, said)
    one_line(fsc("fit", study / "study.yaml", path, "--json"), str(path), place, said)
    one_line(fsc("recommend", study, "-", *asked, stdin=path.read_bytes()), "standard input", place, said)
    if case != "one point":  # a result, only not enough for a curve
        one_line(fsc("import", study, path), str(path), place, said)
    assert tree(study) == before


@pytest.mark.parametrize(
    "content",
    [b"\xef\xbb\xbf%s", b"%s\r\n\r\n", b"\r\n%s"],
    ids=["byte order mark", "trailing blank lines", "leading blank line"],
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_what_spreadsheets_do_to_text_is_no_mistake(content: bytes, end: bytes, fsc: Fsc, study: Path) -> None:
    right = fsc("recommend", study, study / "results.csv", "--budget", "7", "--json")
    for name in ("study.yaml", "results.csv"):
        path = study / name
        path.write_bytes(content % path.read_bytes().replace(b"\n", end))
    answer = fsc("recommend", study, study / "results.csv", "--budget", "7", "--json")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, right.stdout, "")


@pytest.mark.parametrize(
    "budget", ["0", "-1", "1.5", "ten", "", "1e3", "nan", "1" + "0" * 13, "9" * 5000, "²", "1,000"]
)
@pytest.mark.parametrize("command", ["recommend", "fit"])
def test_budgets(command: str, budget: str, fsc: Fsc, study: Path) -> None:
    one_line(fsc(command, study, study / "results.csv", "--budget", budget), "budget")


def test_strategies_and_fits(fsc: Fsc, study: Path) -> None:
    args = ["recommend", study, study / "results.csv", "--budget", "10"]
    one_line(fsc(*args, "--strategy", "tpo"), "unknown strategy 'tpo'", "did you mean top?")
    one_line(fsc(*args, "--fit", "linear"), "unknown fit 'linear'", "power-law")
    one_line(fsc(*args, "--strategy", "greedy"), "results.csv", "column factor")
    one_line(fsc(*args, "--strategy", "remix"), "--weights")
    one_line(fsc(*args[:3]), "--budget")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("{", "line 1, column 2"),
        ("[1, 2]", "expected an object"),
        ("[" * 100_000, "not JSON"),
        ('{"a": ' + "9" * 6000 + "}", "not JSON"),
        ('{"camera_pose": 1}', "no weight for factor 'distractor'"),
        ('{"camera_pos": 1}', "did you mean camera_pose?"),
        (
            '{"weights": {"camera_pose": "1", "distractor": 1, "table_texture": 1, "lighting": 1}}',
            "weights.camera_pose",
        ),
        ('{"camera_pose": NaN, "distractor": 1, "table_texture": 1, "lighting": 1}', "at least 0, not nan"),
        ('{"camera_pose": 0, "distractor": 0, "table_texture": 0, "lighting": 0}', "every weight is 0"),
    ],
)
def test_weights(content: str, said: str, fsc: Fsc, study: Path) -> None:
    path = study / "weights.json"
    path.write_text(content)
    args = ["recommend", study, "--budget", "10", "--weights", path]
    one_line(fsc(*args, "--strategy", "remix"), str(path), said)
    one_line(fsc(*args, "--strategy", "equal"), "--weights", "remix only")


def test_places_without_a_study(fsc: Fsc, tmp_path: Path, study: Path) -> None:
    nowhere = tmp_path / "nowhere"
    empty = tmp_path / "empty"
    empty.mkdir()
    for command in (["plan"], ["runs"], ["recommend", "--budget", "3"], ["export"], ["extend", "--as-recommended"]):
        one_line(fsc(command[0], nowhere, *command[1:]), str(nowhere), "no such study")
        one_line(fsc(command[0], empty, *command[1:]), str(empty), "no study.yaml in this folder", "fsc init")
        one_line(fsc(command[0], f"sqlite:///{nowhere}.db#x", *command[1:]), "nowhere.db", "no study database")
    one_line(fsc("recommend", study, nowhere, "--budget", "3"), str(nowhere), "no such file")
    one_line(fsc("recommend", study, empty, "--budget", "3"), str(empty), "is a folder, not a file")
    one_line(fsc("plan", "x" * 5000), "too long")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["empty", "results.csv", "study", "study.yaml"]


def test_endless_files_are_left_alone(fsc: Fsc, study: Path) -> None:
    one_line(fsc("plan", "/dev/zero"), "/dev/zero", "right file")
    one_line(fsc("recommend", study, "/dev/zero", "--budget", "3"), "/dev/zero", "right file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_without_permission(fsc: Fsc, study: Path) -> None:
    (study / "results.csv").chmod(0)
    one_line(fsc("recommend", study, study / "results.csv", "--budget", "3"), "results.csv", "Permission denied")


def test_a_file_that_fails_to_read(fsc: Fsc, study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    one_line(fsc("plan", study), "study.yaml", "cannot be read (Permission denied)")


def test_databases(fsc: Fsc, tmp_path: Path, study: Path) -> None:
    assert fsc("runs", study).returncode == 0
    url = f"sqlite:///{study}/study.db"
    one_line(fsc("runs", f"{url}#fold-towl"), "no study 'fold-towl'", "did you mean fold-towel?")
    one_line(fsc("runs", "mysql://host/db#x"), "mysql", "postgresql://")
    one_line(fsc("runs", "nonsense://x"), "nonsense", "sqlite:///")
    one_line(fsc("runs", "://"), "database address", "sqlite:////full/path.db")
    one_line(fsc("runs", "sqlite://#x"), "in memory")
    shutil.copy(study / "study.db", tmp_path / "two.db")
    assert fsc("export", study, "--out", tmp_path / "study.json").returncode == 0
    assert fsc("import", f"sqlite:///{tmp_path}/two.db#second", tmp_path / "study.json").returncode == 0
    one_line(fsc("runs", f"sqlite:///{tmp_path}/two.db"), "holds 2 studies", "fold-towel, second", "#NAME")


def test_an_export_that_cannot_be_read_leaves_what_was_put_aside(fsc: Fsc, tmp_path: Path) -> None:
    folder = tmp_path / "again"
    folder.mkdir()
    (folder / "study.db.old").write_bytes(b"put aside")
    (tmp_path / "study.json").write_text("{}")
    one_line(fsc("import", folder, tmp_path / "study.json"), "study.json", "expected the fields")
    assert [path.name for path in folder.iterdir()] == ["study.db.old"]


@pytest.mark.parametrize(
    "content", [b"not a database at all, but long enough to look at" * 99, b"SQLite format 3\0" + b"x" * 4096]
)
def test_a_broken_record_is_told_and_kept(content: bytes, fsc: Fsc, study: Path) -> None:
    (study / "study.db").write_bytes(content)
    before = tree(study)
    for command in (["runs"], ["plan"], ["recommend", "--budget", "3"], ["import", str(study / "results.csv")]):
        answer = fsc(command[0], study, *command[1:])
        assert answer.returncode in (1, 2)
        assert answer.stdout == ""
        assert answer.stderr.count("\n") == 1
        assert "study.db" in answer.stderr
    assert tree(study) == before


def test_usage(fsc: Fsc, study: Path) -> None:
    one_line(fsc("recomend"), "unknown command 'recomend'", "did you mean recommend?")
    one_line(fsc("plan"), "STUDY")
    one_line(fsc("plan", study, "--jsn"), "--json")
    one_line(fsc("plan", study, "extra"), "extra")
    one_line(fsc("plan", study, "--policies", "0"), "--policies", "at least 1")
    one_line(fsc("plan", study, "--trials", "-1"), "--trials", "at least 1")
    one_line(fsc("plan", study, "--construction", "two"), "'one', 'pair', 'group'")
    one_line(fsc("extend", study), "--as-recommended")
    one_line(fsc("extend", study, "--as-recommended", "--collected", "lighting=3"), "--as-recommended")
    one_line(fsc("export", study, "--out", study / "study.yaml" / "x.csv"), "x.csv", "cannot be written")
    one_line(fsc("export", study, "--out", study), "is a folder")


@pytest.mark.parametrize(
    "factor", ["lighting", "lighting=", "lighting=-3", "lighting=3.5", "lighting=²", "lighting=0", "=3"]
)
def test_init_refuses_and_writes_nothing(factor: str, fsc: Fsc, tmp_path: Path) -> None:
    one_line(fsc("init", tmp_path / "new", "--factor", factor))
    assert tree(tmp_path) == {}


def test_init_that_cannot_finish_leaves_nothing(fsc: Fsc, tmp_path: Path) -> None:
    one_line(fsc("init", tmp_path / "new", "--factor", "a=3", "--factor", "a=3"), "twice")
    one_line(fsc("init", tmp_path / "new", "--factor", "a=3", "--name", "x" * 500), "at most 400")
    one_line(fsc("init", tmp_path / "new", "--factor", "a=99999999999"), "at most")
    assert tree(tmp_path) == {}
    (tmp_path / "file").write_text("mine")
    one_line(fsc("init", tmp_path / "file"), "is a file")
    assert fsc("init", tmp_path / "new", "--factor", "a=3").returncode == 0
    one_line(fsc("init", tmp_path / "new", "--factor", "a=3"), "already there; nothing was changed")


def test_a_study_whose_record_cannot_be_made_leaves_no_record(fsc: Fsc, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(f"name: {'x' * 500}\n{FACTORS}")
    one_line(fsc("runs", tmp_path), "at most 400")
    assert [path.name for path in tmp_path.iterdir()] == ["study.yaml"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"),
        ("{", "line 1, column 2"),
        ("[" * 100_000, "not JSON"),
        ("[]", "export"),
        ("{}", ""),
        ('{"format": "factored-scaling study"}', ""),
        (
            '{"format": "x", "version": 1, "name": "a", "created": 0, "rounds": [], "runs": [], "documents": []}',
            "format",
        ),
    ],
)
def test_imports_of_broken_json(content: str, said: str, fsc: Fsc, tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    path.write_text(content)
    one_line(fsc("import", tmp_path / "new", path), str(path), said)
    one_line(fsc("import", path, path), "study.json")
    assert [path.name for path in tmp_path.iterdir()] == ["study.json"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["plan", "bad.yaml"], "bad.yaml: line 2, column 3"),
        (["recommend", "study.yaml", "bad.csv", "--budget", "10"], "bad.csv: row 1 (line 2), column score"),
        (["recommend", "study.yaml", "results.csv", "--budget", "0"], "budget"),
    ],
)
def test_as_a_process(args: list[str], said: str, study: Path) -> None:
    (study / "bad.yaml").write_text("factors:\n  a: many\n")
    (study / "bad.csv").write_text(HEADER + "lighting+table_texture,0,7\n")
    done = subprocess.run(
        [sys.executable, "-m", "factored_scaling", *args], cwd=study, capture_output=True, text=True, check=False
    )
    one_line(done, said)
