"""The two readers under any text at all: they answer, or say InvalidInput; what is written reads back."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from factored_scaling.core.results import Results, Row, resolve
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput
from factored_scaling.io.files import read_results, read_study, results_csv, write_study
from factored_scaling.io.text import read_json, write_text

Value = TypeVar("Value")

quick = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])

SPEC = StudySpec({"camera_pose": 30, "lighting": 20, "table": 7}, nominal=5, construction="group")
YAML = """\
name: towel   # a comment
factors:
  camera_pose: {demos: 30, cost: 2.5, cap: 40}
  lighting: 20
nominal: 0
construction: group
groups: [[camera_pose], [lighting]]
points: 4
policy: {lr: 1e-4}
"""
CSV = """\
combination,n,score,trials,seed,factor
camera_pose+lighting,0,0.40,600,0,lighting
camera_pose+lighting,50,0.5,,,
table,7,1,3,1,*
"""


@contextmanager
def file_of(content: bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(content)
        yield path


def read_or_refuse(read: Callable[[], Value], path: Path) -> Value | None:
    """What is read, or None where it is refused with the file's name; nothing else may happen."""
    refusal = None
    try:
        return read()
    except InvalidInput as error:
        refusal = error
    assert str(path) in refusal.where
    assert refusal.what
    return None


def check_spec(content: bytes) -> None:
    """Either a spec, which then also round-trips, or one InvalidInput that names the file."""
    with file_of(content) as path:
        spec = read_or_refuse(lambda: read_study(path), path)
        if spec is None:
            return
        write_study(spec, path)
        assert read_study(path) == spec


def check_results(content: bytes) -> None:
    with file_of(content) as path:
        results = read_or_refuse(lambda: read_results(path, SPEC), path)
        if results is None:
            return
        path.write_text(results_csv(results.rows, SPEC), encoding="utf-8")
        again = read_results(path, SPEC)
        assert [comparable(row) for row in again.rows] == [comparable(row) for row in results.rows]


def comparable(row: Row) -> Row:
    """The row in the general form and without its place."""
    demos = dict(zip(SPEC.names, resolve(SPEC, row)[0], strict=True))
    return replace(row, demos=demos, combination=None, n=None, place="")


PIECES = [
    *"-{}[]:,\n\t'\"#|>~+*\r=%é0",
    *("&a", "*a", "!!int ", "? ", "<<", "\ufeff", "\x85", "\x00", "nan", ".inf", "1e999", "-1", "9" * 30, "true"),
    *("2024-02-30", "demos:table", "factors", "groups", "score", "combination"),
]


@st.composite
def mutated(draw: st.DrawFn, valid: str) -> bytes:
    """A valid file after a few slips of the finger."""
    text = valid
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        text = text[:start] + draw(st.sampled_from(PIECES) | st.text(max_size=3)) + text[end:]
    return text.encode("utf-8", "surrogatepass")


@quick
@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes(content: bytes) -> None:
    check_spec(content)
    check_results(content)


@quick
@given(st.lists(st.sampled_from([*PIECES, " ", "  ", "a", "factors:\n", "n"]), max_size=40).map("".join))
def test_any_punctuation(text: str) -> None:
    check_spec(text.encode())
    check_results(text.encode())


@quick
@given(mutated(YAML))
def test_a_spoilt_study(content: bytes) -> None:
    check_spec(content)


@quick
@given(mutated(CSV))
def test_spoilt_results(content: bytes) -> None:
    check_results(content)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
data = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@quick
@given(st.sampled_from([*SPEC.to_mapping(), "policy", "groups", "seeds", "task"]), data)
def test_any_value_under_any_key(key: str, value: Any) -> None:
    import yaml

    check_spec(yaml.safe_dump({"factors": {"camera_pose": 3, "lighting": 2}, key: value}, allow_unicode=True).encode())
    check_spec(yaml.safe_dump({"factors": {"a": value}}, allow_unicode=True).encode())
    check_spec(yaml.safe_dump({"factors": {"a": {"demos": 3, "cost": value}}}, allow_unicode=True).encode())


names = st.from_regex(r"[^\W\d][\w.-]{0,8}", fullmatch=True).filter(lambda name: name != "nominal")
plain = st.dictionaries(
    st.text(max_size=8),
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["1e-4", "1e5", "030", "yes", "null", "1:30", "0x1f", "2024-01-01", "~", "", "- a", "a: b", "#"]),
    max_size=4,
)


@st.composite
def specs(draw: st.DrawFn) -> StudySpec:
    chosen = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    factors: dict[str, Any] = {}
    for name in chosen:
        demos = draw(st.integers(1, 500))
        least = draw(st.integers(0, 3))
        cost = draw(st.floats(1e-5, 1e5))
        full = {"demos": demos, "cost": cost, "cap": draw(st.none() | st.integers(3, 99)), "minimum": least}
        factors[name] = draw(st.sampled_from([demos, full]))
    construction = draw(st.sampled_from(["one", "group"] if len(chosen) < 2 else ["one", "pair", "group"]))
    cut = draw(st.integers(0, len(chosen)))
    groups = draw(st.sampled_from([None, [part for part in (chosen[:cut], chosen[cut:]) if part]]))
    return StudySpec(
        factors,
        nominal=draw(st.integers(0, 99)),
        construction=construction,
        groups=groups,
        group_size=draw(st.integers(1, 5)),
        points=draw(st.integers(2, 9)),
        seeds=draw(st.integers(1, 5)),
        name=draw(st.text(min_size=1, max_size=20).filter(str.strip)),
        task=draw(st.none() | names),
        policy=draw(plain),
        evaluation=draw(plain),
    )


@quick
@given(specs())
def test_a_study_written_reads_back(spec: StudySpec) -> None:
    with file_of(b"") as path:
        try:
            write_study(spec, path)
        except UnicodeEncodeError:  # half a character cannot be written by anyone
            assume(False)
        assert read_study(path) == spec


rows = st.builds(
    lambda demos, score, trials, seed, factor: {
        "demos": dict(zip(SPEC.names, demos, strict=True)),
        "score": score,
        "trials": trials,
        "seed": seed,
        "factor": "+".join(factor),
    },
    st.tuples(st.integers(0, 30), st.integers(0, 20), st.integers(0, 7)),
    st.floats(0, 1),
    st.none() | st.integers(1, 10**9),
    st.none() | st.integers(0, 10**6),
    st.just(["*"]) | st.lists(st.sampled_from(SPEC.names), max_size=3, unique=True),
)


@quick
@given(st.lists(rows, min_size=1, max_size=8))
def test_results_written_read_back(given_rows: list[dict[str, Any]]) -> None:
    results = Results.from_rows(given_rows)
    with file_of(results_csv(results.rows, SPEC).encode()) as path:
        again = read_results(path, SPEC)
    assert [replace(row, place="") for row in again.rows] == [replace(row, place="") for row in results.rows]


def test_numbers_mean_what_they_look_like(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("factors: {a: 1_000}\npolicy: {lr: 1e-4, wd: 1.5E+2, name: '1e-4', steps: 0}\n")
    spec = read_study(path)
    assert spec.sizes == {"a": 1000}
    assert spec.policy == {"lr": 0.0001, "wd": 150.0, "name": "1e-4", "steps": 0}
    write_study(spec, path)
    assert read_study(path) == spec


def test_order_of_factors_is_kept(tmp_path: Path) -> None:
    spec = StudySpec(dict.fromkeys("zyxabc", 3))
    write_study(spec, tmp_path / "study.yaml")
    assert read_study(tmp_path / "study.yaml").names == tuple("zyxabc")


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "file.txt"
    write_text(path, "first")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "second \ud800")
    assert path.read_text() == "first"

    def fail(self: Path, target: Path) -> Path:
        raise OSError("power cut")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(InvalidInput, match=r"file\.txt: cannot be written \(power cut\)"):
        write_text(path, "third")
    assert [(entry.name, entry.read_text()) for entry in path.parent.iterdir()] == [("file.txt", "first")]


def test_json_says_where(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a":\n ?}')
    with pytest.raises(InvalidInput, match=r"a\.json: line 2, column 2: not JSON"):
        read_json(path)


@pytest.mark.parametrize("mark", [";", "\t"])
def test_a_spreadsheet_with_other_separators_is_told_so(tmp_path: Path, mark: str) -> None:
    spec = StudySpec({"camera_pose": 30, "lighting": 30}, construction="one")
    path = tmp_path / "results.csv"
    for header, row in (
        (["combination", "n", "score"], ["lighting", "0", "1"]),
        (["demos:lighting", "score"], ["0", "1"]),
    ):
        path.write_text(f"{mark.join(header)}\n{mark.join(row)}\n")
        with pytest.raises(InvalidInput, match="separate the columns by commas"):
            read_results(path, spec)


def test_trials_as_pandas_writes_them_where_some_are_missing(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("combination,n,score,trials\ncamera,0,0.5,20.0\ncamera,3,0.5,\n")
    assert [row.trials for row in read_results(tmp_path / "results.csv").rows] == [20, None]


def test_paths_may_be_texts_and_results_need_no_study(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(YAML)
    (tmp_path / "results.csv").write_text(CSV)
    assert read_study(str(tmp_path / "study.yaml")) == read_study(tmp_path / "study.yaml")
    alone = read_results(str(tmp_path / "results.csv"))
    assert alone == read_results(
        tmp_path / "results.csv", replace(SPEC, groups=(("camera_pose", "lighting"), ("table",)))
    )
    (tmp_path / "results.csv").write_text("combination,n,score\nweather,0,1.5\n")
    with pytest.raises(InvalidInput, match=r"results.csv: .*column score"):
        read_results(str(tmp_path / "results.csv"))
