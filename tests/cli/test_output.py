"""What is printed: no passwords of databases, nothing that a terminal obeys, no formulas in sheets."""

from __future__ import annotations

import csv
import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import make_url
from tests.cli.conftest import run_fsc
from tests.store.conftest import postgres, postgres_address, postgres_engine  # noqa: F401  fixtures

from factored_scaling.cli import COMMANDS
from factored_scaling.cli.group import app
from factored_scaling.cli.show import print_json, print_table, print_text, print_warnings, say
from factored_scaling.core.dataset import Dataset, Episode
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput, hide_passwords, printable
from factored_scaling.io.files import read_episodes, write_study
from factored_scaling.io.tables import csv_table, table_csv
from factored_scaling.scoring.session import Scoring
from factored_scaling.scoring.sheets import (
    begin_collection,
    collection_csv,
    evaluation_csv,
    import_sheet,
    labels_csv,
    open_collection,
)
from factored_scaling.study import Study

SECRET = "pass-Wo0rd"
CLI = Path(__file__).parents[2] / "src" / "factored_scaling" / "cli"


def commands(group: click.Group = app, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*before, name))
        else:
            yield (*before, name), command


# what a command needs besides the study; commands that are not named need nothing
MORE: dict[tuple[str, ...], list[list[str]]] = {
    ("record",): [["1", "1", "0", "--factor", "lighting", "--done"], ["99", "1"]],
    ("import",): [["{csv}"], ["{json}"]],
    ("recommend",): [
        ["--budget", "10"],
        ["--budget", "10", "--save", "--strategy", "equal"],
        ["--budget", "10", "--json"],
    ],
    ("next",): [["--budget", "10"]],
    ("report",): [["--budget", "10", "--out", "{out}.html"]],
    ("extend",): [["--episodes", "{episodes}", "--compare"], ["--episodes", "{episodes}"], ["--collected", "x=1"], []],
    ("sheet", "collect"): [["--budget", "4", "--strategy", "equal", "--out", "{out}.csv"]],
    ("sheet", "evaluate"): [["--out", "{out}.csv"], ["--out", "-"]],
    ("sheet", "import"): [["{csv}"]],
    ("sheet", "undo"): [["ABCD"]],
    ("sheet", "close"): [["--early"], []],
    ("run",): [["--device", "cpu"], ["--retry-failed"]],
    ("fit",): [[], ["{csv}"]],
    ("runs",): [[], ["--json"], ["--episodes", "1"], ["--state", "failed"]],
    ("export",): [[], ["--format", "json"]],
}
OF_A_STUDY = [words for words, command in commands() if command.params and command.params[0].name in ("study", "place")]


def test_the_commands_of_a_study_are_all_known() -> None:
    assert {words[0] for words in OF_A_STUDY} >= {"runs", "extend", "run", "serve", "policy", "sheet", "report", "plan"}
    assert {words[0] for words, _ in commands()} == set(COMMANDS)


def calls(words: tuple[str, ...], address: str, files: Path) -> Iterator[list[str]]:
    """The command on this study, in every way that is listed."""
    (files / "results.csv").write_text("combination,n,score\nlighting,0,0.5\nlighting,4,0.6\n")
    (files / "study.json").write_text("{}")
    (files / "episodes.csv").write_text("episode,factor\nnew-1,lighting\nnew-2,camera\n")
    places = {"csv": files / "results.csv", "json": files / "study.json", "out": files / "out"}
    for more in MORE.get(words, [[]]):
        yield [*words, address, *(text.format(**places, episodes=files / "episodes.csv") for text in more)]


@pytest.mark.parametrize("words", OF_A_STUDY, ids=" ".join)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_command_prints_a_password_when_the_database_cannot_be_used(
    words: tuple[str, ...], tmp_path: Path, data: st.DataObject
) -> None:
    user = data.draw(st.sampled_from(["lab", "", "a.b"]))
    salt = data.draw(st.text("abc/:%? $!`'\"", max_size=4))
    password = f"{salt}{SECRET}{salt}"
    written = data.draw(st.sampled_from([password.replace("%", "%25"), quote(password, safe="")]))
    address = data.draw(
        st.sampled_from(
            [
                f"postgresql://{user}:{written}@127.0.0.1:9/studies#wipe",
                f"postgres://{user}:{written}@127.0.0.1:9/studies",
                f"postgresql+psycopg://{user}:{written}@127.0.0.1:9/studies#a",
                f"postgresql://127.0.0.1:9/studies?user={user}&password={quote(password, safe='')}#wipe",
                f"postgresql://{user}:{written}@127.0.0.1:port/studies#wipe",
                f"mysql://{user}:{written}@127.0.0.1/studies#wipe",
                f"postgresql://{user}:{written}@/studies?host=/nowhere#wipe",
            ]
        )
    )
    if words in (("serve",), ("policy", "serve")):
        return  # they are asked below, as processes that can be ended
    for call in calls(words, address, tmp_path):
        done = run_fsc(*call)
        assert SECRET not in done.stdout + done.stderr
        assert done.returncode in (1, 2)
        assert done.stderr.count("\n") == 1


def a_study(place: str | Path, **changes: Any) -> Study:
    """Two factors, one measured run, one that failed."""
    factors = changes.pop("factors", {"lighting": 4, "camera": 4})
    spec = StudySpec(factors, construction="one", points=2, name="wipe", **changes)
    ids = tuple(Episode(f"{name}-{k}", name) for name in spec.names for k in range(4))
    return Study.create(spec, place, Dataset(ids))


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["true", "false"])
def test_no_command_prints_the_password_of_a_database_that_works(
    postgres_address: str,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trainer: str,
) -> None:
    """The server takes any password: it is reached over a socket that is trusted."""
    url = make_url(postgres_address).set(password=SECRET)
    address = url.render_as_string(hide_password=False)
    monkeypatch.chdir(tmp_path)
    factors = {"lighting": {"demos": 4, "test_values": ["dim"]}, "camera": {"demos": 4, "test_values": ["left"]}}
    changes: dict[str, Any] = {"factors": factors, "trainer": {"command": trainer}, "scoring": {"preset": "pick-place"}}
    a_study(address, **changes).close()
    said = []
    # a round is trained, queued and closed, and then extended
    first, last = [("run",), ("sheet", "evaluate")], [("sheet", "close"), ("extend",)]
    for words in [*first, *(words for words in OF_A_STUDY if words not in first + last), *last]:
        if words in (("serve",), ("policy", "serve")):
            continue
        for call in calls(words, f"{address}#wipe", tmp_path):
            done = run_fsc(*call)
            said.append(done.stdout + done.stderr)
            assert SECRET not in said[-1], call
            assert "Traceback" not in said[-1], call
    assert sum("fsc:***@" in text for text in said) >= 4, "addresses are shown, without the password"
    for server in (["serve"], ["policy", "serve"]):
        command = [sys.executable, "-m", "factored_scaling", *server, f"{address}#wipe", "--port", "0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            shown = process.communicate(timeout=15)[0]
        except subprocess.TimeoutExpired:
            process.terminate()
            shown = process.communicate(timeout=30)[0]
        assert shown
        assert SECRET not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("`fsc runs postgresql://lab:secret@server/db#x` lists", "`fsc runs postgresql://lab:***@server/db#x` lists"),
        ("postgresql://lab:a/b:c d@server/db", "postgresql://lab:***@server/db"),
        ("postgresql://server/db?password=secret&user=a", "postgresql://server/db?password=***&user=a"),
        ("http://lab:secret@server/x", "http://lab:***@server/x"),
        ("postgresql://lab@server:5432/db", "postgresql://lab@server:5432/db"),
        ("postgresql://server:5432/db", "postgresql://server:5432/db"),
        ("http://127.0.0.1:8765/?token=abc and a@b", "http://127.0.0.1:8765/?token=abc and a@b"),
        ("sqlite:////home/lab/study.db", "sqlite:////home/lab/study.db"),
        ("12:30 lab@robot", "12:30 lab@robot"),
    ],
)
def test_passwords_are_found_and_nothing_else(text: str, shown: str) -> None:
    assert hide_passwords(text) == shown
    assert str(InvalidInput("wrong", where=text)) == f"{shown}: wrong"


ESCAPES = "\x1b]0;title\x07\x1b[31m\x9b2J\r\x08\u202e\u2066"


@given(st.text(), st.text())
def test_nothing_that_a_terminal_obeys_is_printed(left: str, right: str) -> None:
    text = f"{left}{ESCAPES}{right}"
    assert all(char in "\n\t" or char.isprintable() or char.isspace() or ord(char) > 0xA0 for char in printable(text))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", printable(text))


@pytest.mark.parametrize(
    "show",
    [
        lambda text: say(text),
        lambda text: say(text, err=True),
        lambda text: print_text(text),
        lambda text: print_warnings([text]),
        lambda text: print_table(text, [text, "b"], [[text, "1"]]),
        lambda text: print_json({text: [text]}),
    ],
)
def test_every_way_of_printing_is_safe(show: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    show(f"a{ESCAPES}b postgresql://lab:{SECRET}@server/db")
    out, err = capsys.readouterr()
    shown = out + err
    assert "postgresql" in shown
    assert SECRET not in shown
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)


def test_a_cell_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("", ["name", "n"], [["two\nlines\tand a tab", "1"]])
    assert "two\\nlines\\tand a tab  1\n" in capsys.readouterr().out


def test_only_one_module_prints() -> None:
    """Whatever a command prints goes through `show`; what is written there as it is, is named here."""
    allowed = {
        "show.py": 4,  # the place itself
        "group.py": 1,  # help
        "start.py": 1,  # a shell's own code for completion
        "serve.py": 1,  # a code for a phone's camera, drawn in colours
    }
    found = {
        path.name: path.read_text().count("click.echo(") + path.read_text().count("click.secho(")
        for path in CLI.glob("*.py")
    }
    assert {name: count for name, count in found.items() if count} == allowed


@pytest.mark.slow
def test_names_errors_and_lines_of_trainers_reach_no_terminal(tmp_path: Path) -> None:
    """A study from somewhere else, whose trainer fails with a coloured message, on a real terminal."""
    steps = r"for k in 1 2 3; do printf 'step %s/3 \033]0;gotcha\007 [bold]x[/bold] \033[2J\n' $k; sleep 0.3; done; "
    script = steps + r"printf '\033[31mred\033[0m\n' >&2; exit 3"
    spec = StudySpec(
        {"lighting": 2, "camera": 2},
        construction="one",
        points=2,
        policies=1,
        name=f"wipe{ESCAPES}",
        trainer={"command": ["bash", "-c", script]},
    )
    with Study.create(spec, tmp_path / "study.db") as study:
        study.ask(1, worker=f"worker{ESCAPES}")
        study.fail(1, f"reason{ESCAPES}\nlast line{ESCAPES}")
    shown = {}
    for call in (
        ["runs", str(tmp_path)],
        ["run", str(tmp_path), "--retry-failed"],
        ["runs", str(tmp_path)],
        ["plan", str(tmp_path)],
    ):
        shown[call[0]] = on_a_terminal(call)
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown[call[0]])  # what rich draws its bars with
        assert "\x1b" not in text, call
        assert "\x07" not in text
        assert "\x9b" not in text
        assert "\u202e" not in text
        assert "\x1b[2J" not in shown[call[0]]
        assert "\x1b[31m" not in shown[call[0]]
    assert "\\x1b" in shown["runs"]
    assert "[bold]x[/bold]" in shown["run"]


def on_a_terminal(arguments: list[str]) -> str:
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"}
    with subprocess.Popen(
        [sys.executable, "-m", "factored_scaling", *arguments], stdin=child, stdout=child, stderr=child, env=environment
    ) as process:
        os.close(child)
        parts = []
        try:
            while part := os.read(parent, 65536):
                parts.append(part)
        except OSError:  # the other end is closed
            pass
        process.wait(60)
    os.close(parent)
    return b"".join(parts).decode()


DANGEROUS = "=+-@\t\r\n＝＋－＠"
TEXTS = st.one_of(
    st.text(max_size=8),
    st.builds(
        lambda quotes, first, rest: "'" * quotes + first + rest,
        st.integers(0, 3),
        st.sampled_from(DANGEROUS),
        st.text(max_size=6),
    ),
    st.sampled_from(['=HYPERLINK("http://x.example","click")', "+1+1", "-2+3", "@SUM(A1)", "'=1", "\t=1", "-", "- 5"]),
)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5))
def test_no_text_is_a_formula_and_all_are_read_back(rows: list[tuple[str, str]]) -> None:
    text = table_csv(["a", "n", "b"], [[left, -1.5, right] for left, right in rows])
    written = list(csv.reader(io.StringIO(text, newline="")))
    for line in written[1:]:
        assert line[1] == "-1.5"
        for cell in (line[0], line[2]):
            number = re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", cell)
            assert number or not cell.lstrip(" ")[:1] or cell.lstrip(" ")[0] not in DANGEROUS
    read = [(cells["a"], cells["b"]) for _, cells in csv_table(text, lambda header, place: None)]
    for cells, row in zip(read, rows, strict=True):
        for cell, original in zip(cells, row, strict=True):
            assert cell.strip() == original.strip()  # spaces around a text are not kept


@pytest.mark.parametrize("number", ["0.5", "-0.5", "+3", "1e-5", "-15", ".5"])
def test_numbers_stay_numbers(number: str) -> None:
    assert table_csv(["a"], [[number]]) == f"a\n{number}\n"


FORMULA = '=HYPERLINK("http://x.example";"click")'
NOTE = "=cmd|x"


def test_sheets_and_results_hold_no_formulas_and_come_back(tmp_path: Path) -> None:
    factors: dict[str, Any] = {
        "lighting": {"demos": 4, "values": [FORMULA, "+2", "@x"], "test_values": ["=1+1", "-15"]},
        "camera": {"demos": 4, "test_values": ["@x", "dusk"]},
    }
    scoring: dict[str, Any] = {"preset": "pick-place", "combinations": 2, "repeats": 2}
    spec = StudySpec(factors, construction="one", points=2, name="x", scoring=scoring)
    with Study.create(spec, tmp_path / "study.db") as study:
        queue = Scoring.begin(study, [2, 3])
        sheet = evaluation_csv(queue)
        begin_collection(study, {"lighting": 3, "camera": 0})
        listed = collection_csv(open_collection(study))
        assert not formulas(sheet)
        assert not formulas(listed)
        assert "'=1+1" in sheet
        assert ",-15," in sheet
        assert "'=HYPERLINK" in listed
        (tmp_path / "sheet.csv").write_text(re.sub(r",,,$", f",1,,{NOTE}", sheet, flags=re.MULTILINE))
        taken = import_sheet(study, tmp_path / "sheet.csv", "op")
        assert taken.new == taken.rows > 0
        assert all(trial.notes == (NOTE,) for trial in queue.trials())
        again = evaluation_csv(queue)
        assert not formulas(again)
        assert f",'{NOTE}\n" in again
        (tmp_path / "again.csv").write_text(again)
        assert import_sheet(study, tmp_path / "again.csv", "op").new == 0  # nothing differs
        lines = listed.splitlines()
        filled = [lines[0], *(f"{line[:-2]}x,=take {k},-note" for k, line in enumerate(lines[1:]))]
        (tmp_path / "list.csv").write_text("\n".join(filled) + "\n")
        assert import_sheet(study, tmp_path / "list.csv", "op").new == 3
        labels, _ = labels_csv(study)
        rows = [cells for _, cells in csv_table(labels, lambda header, place: None)]
    assert not formulas(labels)
    assert {row["episode"] for row in rows} == {"=take 0", "=take 1", "=take 2"}
    assert {row["value"] for row in rows} == {FORMULA, "+2", "@x"}


def formulas(text: str) -> list[str]:
    """Cells that a spreadsheet would run."""
    cells = [cell for line in csv.reader(io.StringIO(text, newline="")) for cell in line]
    return [cell for cell in cells if cell[:1] in tuple("=@+-") and not re.fullmatch(r"[+-][0-9]+", cell)]


def test_a_pool_and_a_table_of_episodes_come_back(tmp_path: Path) -> None:
    ids = ['=HYPERLINK("x")', "@take", "-", "'=1", "plain,with a comma", "+1", "a"]
    lines = table_csv(["episode", "factor"], [[id_, "lighting"] for id_ in ids])
    (tmp_path / "pool.csv").write_text(lines)
    assert [episode.id for episode in read_episodes(tmp_path / "pool.csv").episodes] == ids
    spec = StudySpec({"lighting": 4, "camera": 4}, construction="one", points=2, name="x")
    write_study(spec, tmp_path / "study.yaml")
    out = tmp_path / "chosen.csv"
    done = run_fsc(
        "recommend",
        tmp_path,
        "--budget",
        "7",
        "--strategy",
        "equal",
        "--pool",
        tmp_path / "pool.csv",
        "--out",
        out,
    )
    assert done.returncode == 0, done.stderr
    assert {episode.id for episode in read_episodes(out).episodes} <= set(ids)
    assert not formulas(out.read_text())
