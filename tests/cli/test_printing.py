"""What people see: tables, help, completion, and how little is loaded to show it."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from factored_scaling.cli import COMMANDS, SECTIONS
from factored_scaling.cli.group import MEANT
from factored_scaling.cli.show import print_table

Answer = subprocess.CompletedProcess[str]
Fsc = Callable[..., Answer]


def test_no_command_shows_help(fsc: Fsc) -> None:
    assert fsc().stdout == fsc("--help").stdout == fsc("-h").stdout
    assert all(f"  {name} " in fsc().stdout for name in COMMANDS)
    assert fsc("--version", "--help").stdout == fsc("--version").stdout  # click's own way says the same
    assert fsc("--help", "--version").stdout == fsc().stdout
    assert fsc("--version").stdout.startswith("fsc, version ")


def test_the_help_has_sections_and_every_command_stands_in_one(fsc: Fsc) -> None:
    shown = fsc().stdout.split("\n\n")
    for heading, commands in SECTIONS.items():
        [section] = [part for part in shown if part.startswith(f"{heading}:\n")]
        assert [line.split()[0] for line in section.splitlines()[1:]] == list(commands)
    assert sum(map(len, SECTIONS.values())) == len(COMMANDS)


@pytest.mark.parametrize("group", ["bench", "dataset", "policy", "sheet", "sim"])
def test_a_group_of_commands_without_one_shows_its_help(group: str, fsc: Fsc) -> None:
    answer = fsc(group)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout == fsc(group, "--help").stdout
    assert "..." not in answer.stdout.split("Commands:")[1], "whole sentences"


def test_a_group_lists_its_commands_in_the_order_of_use_and_suggests_one(fsc: Fsc) -> None:
    listed = fsc("sheet").stdout.split("Commands:")[1]
    order = [listed.index(f"  {name} ") for name in ("evaluate", "import", "close", "collect")]
    assert order == sorted(order)
    answer = fsc("sheet", "colect")
    assert (answer.returncode, answer.stderr) == (2, "fsc: unknown command 'colect'; did you mean collect?\n")


def test_what_other_tools_call_it_is_understood(fsc: Fsc) -> None:
    answer = fsc("status", "my-study")
    assert (answer.returncode, answer.stderr) == (2, "fsc: unknown command 'status'; did you mean runs?\n")
    assert set(MEANT.values()) <= set(COMMANDS)
    assert not set(MEANT) & set(COMMANDS)
    assert "; known: " in fsc("dataset", "train").stderr  # only where the group has such a command


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command(command: str, fsc: Fsc) -> None:
    answer = fsc(command, "--help")
    assert answer.returncode == 0
    assert answer.stdout.startswith(f"Usage: fsc {command}")
    assert max(len(line) for line in answer.stdout.splitlines()) <= 110
    examples = [line for line in answer.stdout.splitlines() if f"fsc {command} " in line]
    assert len(examples) >= 2, "the usage line and an example"


def test_tables_line_up(fsc: Fsc, study: Path) -> None:
    lines = fsc("plan", study).stdout.splitlines()
    assert lines[0] == "fold-towel: 7 policies"
    assert lines[2] == "#  camera_pose  distractor  table_texture  lighting  demos  seed  gives"
    assert lines[4] == "1           30          30             30        30    120     0  every curve"
    assert lines[5] == "2            0           0             30        30     60     0  camera_pose+distractor at n=0"
    assert not any(line != line.rstrip() for line in lines)


def test_a_pipe_gets_the_whole_width(capsys: pytest.CaptureFixture[str]) -> None:
    name = "a_very_long_name_" * 30
    print_table("", ["factor", "a"], [[name, "1.2e+05"], ["größe_高さ", "–"]])
    out = capsys.readouterr().out.splitlines()
    assert out[2] == f"{name}  1.2e+05"
    assert out[3] == "größe_高さ" + " " * (len(name) - 10) + "        –"  # the two wide letters take two cells each


def in_terminal(columns: int, args: list[str], folder: Path) -> list[str]:
    """What the command shows in a terminal of this many columns."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    with subprocess.Popen(
        [sys.executable, "-m", "factored_scaling", *args],
        stdout=follower,
        stderr=follower,
        cwd=folder,
        env=environment,
    ) as process:
        os.close(follower)
        shown = b""
        while True:
            try:
                part = os.read(leader, 65536)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            shown += part
    os.close(leader)
    assert process.returncode == 0
    text = shown.decode().replace("\x1b[1m", "").replace("\x1b[0m", "")
    return text.replace("\r\n", "\n").splitlines()


def test_a_narrow_terminal_breaks_between_words(study: Path) -> None:
    said = in_terminal(60, ["recommend", "study.yaml", "results.csv", "--budget", "100"], study)
    assert max(len(line) for line in said) <= 60
    lines = in_terminal(60, ["fit", "study.yaml", "results.csv"], study)
    assert any(line.startswith("camera_pose+ ") for line in lines)
    assert "distractor" in lines
    wide = in_terminal(200, ["fit", "study.yaml", "results.csv"], study)
    assert any(line.startswith("camera_pose+distractor  ") for line in wide)


def test_a_closed_pipe_is_no_error(study: Path) -> None:
    command = f"'{sys.executable}' -m factored_scaling plan study.yaml | true"
    done = subprocess.run(["bash", "-c", command], cwd=study, capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_sentences_and_warnings_break_at_spaces_and_never_inside_a_name(study: Path) -> None:
    lines = in_terminal(50, ["recommend", "study.yaml", "results.csv", "--budget", "100"], study)
    title, *rest = lines
    assert title.startswith("Collect next")
    prose = rest[next(place for place, line in enumerate(rest) if line.startswith("Collect ")) :]
    assert max(map(len, prose)) <= 50
    assert not any(line.endswith("_") for line in prose)
    assert any(line.startswith("warning: the scores do not distinguish") for line in prose)


def test_a_terminal_without_unicode(study: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "factored_scaling", "plan", "study.yaml"],
        cwd=study,
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert "every curve" in done.stdout


def completed(words: str) -> list[str]:
    environment = {**os.environ, "_FSC_COMPLETE": "bash_complete", "COMP_WORDS": words}
    environment["COMP_CWORD"] = str(len(words.split(" ")) - 1)
    code = "from factored_scaling.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return done.stdout.split()


def test_completion_offers_commands_options_and_choices() -> None:
    assert {"plain,record", "plain,recommend"} <= set(completed("fsc rec"))
    assert "plain,--strategy" in completed("fsc recommend --st")
    assert completed("fsc recommend s --strategy to") == ["plain,top", "plain,top-half"]
    assert completed("fsc plan --construction ") == ["plain,one", "plain,pair", "plain,group", "plain,screen"]
    assert completed("fsc plan stu") == ["file,stu"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_takes_the_completion_script(fsc: Fsc, tmp_path: Path) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(fsc("completion", "bash").stdout)
    done = subprocess.run(
        ["bash", "-c", f"source '{script}' && complete -p fsc"], capture_output=True, text=True, check=True
    )
    assert "_fsc_completion fsc" in done.stdout
    assert all("_FSC_COMPLETE" in fsc("completion", shell).stdout for shell in ("zsh", "fish"))


HEAVY = ("torch", "mani_skill", "sapien", "fastapi", "uvicorn", "ray", "matplotlib", "jinja2")


@pytest.mark.parametrize(
    ("args", "unwanted"),
    [
        (["--help"], (*HEAVY, "numpy", "scipy", "sqlalchemy", "rich", "yaml", "click")),
        (["--version"], (*HEAVY, "numpy", "scipy", "sqlalchemy", "rich", "yaml", "click")),
        (["plan", "study.yaml"], (*HEAVY, "numpy", "scipy", "sqlalchemy", "rich")),
        (
            ["recommend", "study.yaml", "results.csv", "--budget", "9", "--json"],
            (*HEAVY, "scipy", "sqlalchemy", "rich"),
        ),
    ],
)
def test_commands_load_only_what_they_use(args: list[str], unwanted: tuple[str, ...], study: Path) -> None:
    code = (
        "import sys\nfrom factored_scaling.cli import main\n"
        f"try:\n    main({args!r})\n"
        f"except SystemExit:\n    print(*[name for name in {unwanted!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=study, capture_output=True, text=True, check=True)
    assert done.stderr.split() == []


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = f"import sys, factored_scaling\nprint(*[name for name in {(*HEAVY, 'numpy')!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_table_shows_success_on_each_factors_trials_where_that_was_measured(fsc: Fsc, tmp_path: Path) -> None:
    spec, results = tmp_path / "study.yaml", tmp_path / "results.csv"
    spec.write_text("factors: {camera_pose: 30, lighting: 30, background: 30}\n")
    heading = "demos:camera_pose,demos:lighting,demos:background,"
    results.write_text(f"{heading}factor,score,trials\n30,30,30,camera_pose,0.4,600\n30,30,30,lighting,0.9,600\n")
    table = fsc("recommend", spec, results, "--budget", 50).stdout
    shown = {line.split()[0]: line.split()[3] for line in table.splitlines() if line.count("30")}
    assert "  success now  " in table
    assert float(shown["camera_pose"].rstrip("%")) == pytest.approx(40, abs=5)
    assert float(shown["lighting"].rstrip("%")) == pytest.approx(90, abs=4)
    assert shown["background"] == "–"
    results.write_text(f"{heading}score,trials\n30,30,30,0.65,600\n")
    assert "success now" not in fsc("recommend", spec, results, "--budget", 50).stdout
