"""What a study hands to other people's programs: ids that nothing executes, no secrets, and an end to all of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.backends.heard import Heard
from tests.backends.made import backend_of
from tests.cli.conftest import run_fsc

from factored_scaling.core.dataset import Dataset, Episode
from factored_scaling.core.design import RunSpec
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import FscError, InvalidInput, RunFailed
from factored_scaling.io.files import write_study
from factored_scaling.study import Study

TREE = Path(__file__).parent / "programs" / "tree.py"


@pytest.mark.parametrize("id_", ["a\nb", "a\r", "\x1b[31mred", "a\tb", "nul\0", "a\u202eb", "\x9b31m", "", "\ud800"])
def test_ids_with_control_characters_are_refused_where_they_enter(id_: str) -> None:
    with pytest.raises(InvalidInput, match="episode") as refused:
        Episode(id_, "lighting")
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("id_", ["day 1/take-003.npz", "é", "取り/1", "a;b", "$(x)", "a\u00a0b", "-x"])
def test_other_ids_are_welcome(id_: str) -> None:
    assert Dataset((Episode(id_),)).episodes[0].id == id_


@pytest.mark.parametrize("entry", ["csv", "import"])
def test_a_file_with_such_an_id_is_refused_with_its_place(tmp_path: Path, entry: str) -> None:
    if entry == "csv":
        (tmp_path / "demos.csv").write_text('episode,factor\ngood,lighting\n"two\nlines",lighting\n')
        done = run_fsc("init", tmp_path / "study", "--episodes", tmp_path / "demos.csv")
        assert (
            "demos.csv: row 2 (line 3), column episode: episode id 'two\\nlines' has a control character" in done.stderr
        )
    else:
        spec = StudySpec({"lighting": 2}, name="x")
        with Study.create(spec, tmp_path / "study.db", Dataset((Episode("a", "lighting"), Episode("b", "lighting")))):
            pass
        exported = run_fsc("export", tmp_path, "--format", "json").stdout
        assert '"a"' in exported
        (tmp_path / "x.json").write_text(exported.replace('"a"', '"a\\nb"'))
        done = run_fsc("import", tmp_path / "copy", tmp_path / "x.json")
        assert "has a control character" in done.stderr
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def run_of(*ids: str) -> RunSpec:
    return RunSpec(ids, seed=7)


def carried_out(home: Path, run: RunSpec, command: Any, **settings: Any) -> str:
    (home / "run").mkdir(exist_ok=True)
    made = backend_of({"command": command, **settings}, {}, home, "cpu")
    made.train(run, home / "run", Heard())
    return (home / "run" / "train.log").read_text()


HOSTILE_IDS = [
    "$(touch gotcha)",
    "`touch gotcha`",
    "x; touch gotcha",
    "x' ; touch gotcha '",
    '" ; touch gotcha "',
    "a b",
]


@pytest.mark.parametrize("id_", HOSTILE_IDS)
@pytest.mark.parametrize(
    "command",
    [
        ["bash", "-c", "echo {episodes}"],
        ["bash", "-c", 'echo "{episodes}"'],
        ["bash", "-c", "echo '{episodes}'"],
        ["sh", "-ec", "echo x >{episodes}"],
        ["env", "A=1", "bash", "-o", "pipefail", "-c", "true|{episodes}"],
        ["bash", "-c", "{episodes}"],
        [sys.executable, "-c", "print('{episodes}')"],
        ["ssh", "nowhere.invalid", "train", "{episodes*}"],
        ["/usr/bin/ssh", "nowhere.invalid", "train", "--ids={episodes}"],
        ["bash", "-c", "echo {resume}", "{resume}"],
    ],
)
def test_an_id_never_becomes_part_of_a_program(tmp_path: Path, command: list[str], id_: str) -> None:
    if "{resume}" in command[-1]:  # the words of `resume` go there only when there is something to go on with
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "train.begun.json").write_text("{}")
        settings: dict[str, Any] = {"resume": "--from {episodes}"}
    else:
        settings = {}
    with pytest.raises(InvalidInput, match=r'trainer\.(command|resume): .*"\$1"'):
        carried_out(tmp_path, run_of("plain", id_), command, **settings)
    assert not (tmp_path / "gotcha").exists()
    assert not (tmp_path / "run" / "train.log").exists()  # nothing was started


@pytest.mark.parametrize("id_", HOSTILE_IDS)
def test_the_way_that_the_hint_shows_takes_any_id(tmp_path: Path, id_: str) -> None:
    said = carried_out(
        tmp_path, run_of(id_), ["bash", "-c", 'printf "<%s>" "$@"', "bash", "{episodes}", "--x={episodes}"]
    )
    assert said == f"<{id_}><--x={id_}>"
    assert not (tmp_path / "gotcha").exists()


def test_plain_ids_and_the_studys_own_settings_may_stand_in_a_script(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    policy = {"flags": "--lr 1e-3; echo done"}
    made = backend_of({"command": ["bash", "-c", "echo {episodes} {seed} {policy.flags}"]}, policy, tmp_path, "cpu")
    made.train(RunSpec(("lighting/1", "take-2.hdf5"), policy=policy, seed=7), tmp_path / "run", Heard())
    assert (tmp_path / "run" / "train.log").read_text() == "lighting/1,take-2.hdf5 7 --lr 1e-3\ndone\n"


def test_a_folder_that_a_shell_would_split_is_not_put_into_a_script(tmp_path: Path) -> None:
    home = tmp_path / "my study"
    home.mkdir()
    with pytest.raises(InvalidInput, match=r"\{folder\}"):
        carried_out(home, run_of("a"), ["bash", "-c", "ls {folder}"])
    assert "my study" in carried_out(home, run_of("a"), ["bash", "-c", 'echo "$1"', "bash", "{folder}"])


def test_it_is_told_before_workers_start(tmp_path: Path) -> None:
    spec = StudySpec(
        {"lighting": 2, "camera": 2},
        construction="one",
        points=2,
        name="x",
        trainer={"command": ["sh", "-c", "x {episodes}"]},
    )
    write_study(spec, tmp_path / "study.yaml")
    ids = Dataset(
        (*(Episode(f"l{k}", "lighting") for k in range(2)), Episode("c", "camera"), Episode("$(x)", "camera"))
    )
    Study.create(spec, tmp_path / "study.db", ids).close()
    done = run_fsc("run", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("fsc: trainer.command: {episodes}")
    assert done.stderr.count("\n") == 1
    with Study.open(tmp_path / "study.db") as study:
        assert {run.state for run in study.runs()} == {"pending"}


@pytest.mark.parametrize(
    ("ids", "command", "message"),
    [
        (("a,b", "c"), ["echo", "{episodes}"], r"'a,b' has a comma.*\{episodes\*\}"),
        (("--delete",), ["echo", "{episodes*}"], r"'--delete' would be read as an option.*\{episodes_file\}"),
        (("-x", "y"), ["echo", "{episodes}"], r"'-x' would be read as an option"),
    ],
)
def test_ids_that_a_program_would_misread_are_told(
    tmp_path: Path, ids: tuple[str, ...], command: list[str], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        carried_out(tmp_path, run_of(*ids), command)


def test_a_program_gets_none_of_our_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {
        "FSC_TOKEN": "token-of-the-dashboard",
        "FSC_POLICY_KEY": "key-of-the-policies",
        "PGPASSWORD": "password-of-the-database",
        "LAB_STUDIES": "postgresql://lab:password-in-an-address@server/studies",
        "LAB_OTHER": "postgresql+psycopg://lab:password%20too@server/studies#wipe",
        "LAB_QUERY": "postgresql://server/studies?user=lab&password=password-at-the-end",
    }
    for name, value in {**secrets, "LAB_PLAIN": "postgresql://lab@server/studies", "LAB_WORD": "stays"}.items():
        monkeypatch.setenv(name, value)
    show = "import json, os; print(json.dumps(dict(os.environ)))"
    seen = json.loads(carried_out(tmp_path, run_of("a"), [sys.executable, "-c", show]))
    assert not [value for value in seen.values() for secret in secrets.values() if secret in value]
    assert (seen["LAB_PLAIN"], seen["LAB_WORD"]) == ("postgresql://lab@server/studies", "stays")
    given = {"FSC_POLICY_KEY": "on purpose"}
    (tmp_path / "run" / "train.finished.json").unlink()
    (tmp_path / "run" / "train.log").unlink()
    seen = json.loads(carried_out(tmp_path, run_of("a"), [sys.executable, "-c", show], environment=given))
    assert seen["FSC_POLICY_KEY"] == "on purpose"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class Chain:
    """`fsc run`, its worker, the watchdog, the trainer and the trainer's children."""

    def __init__(self, home: Path) -> None:
        self.pids = home / "pids.txt"
        trainer = {"command": [sys.executable, str(TREE), str(home)], "patience": 1}
        spec = StudySpec(
            {"lighting": 2, "camera": 2}, construction="one", points=2, policies=1, name="x", trainer=trainer
        )
        write_study(spec, home / "study.yaml")
        command = [sys.executable, "-m", "factored_scaling", "run", str(home), "--lease", "1", "--attempts", "1"]
        self.main = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        wait_for(lambda: self.pids.exists() and self.pids.read_text().endswith("\n"))
        self.trainer, self.child, self.apart = (int(word) for word in self.pids.read_text().split()[:3])
        self.watchdog = parent(self.trainer)
        self.worker = parent(self.watchdog)
        assert parent(self.worker) == self.main.pid

    @property
    def tree(self) -> tuple[int, ...]:
        return self.trainer, self.child, self.apart

    def end(self) -> None:
        self.main.kill()
        self.main.wait()
        everything = [int(word) for word in self.pids.read_text().split()]
        for pid in {self.watchdog, self.worker, *everything}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self.main.stdout is not None
        self.main.stdout.close()


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    made = Chain(tmp_path)
    yield made
    made.end()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("victims", ["main", "worker", "watchdog", "trainer", "main worker", "worker watchdog"])
def test_whoever_is_killed_no_trainer_and_no_child_of_it_stays(chain: Chain, victims: str) -> None:
    assert all(map(alive, chain.tree))
    for victim in victims.split():
        os.kill(chain.main.pid if victim == "main" else getattr(chain, victim), signal.SIGKILL)
    # a worker that is started again ends what is left before it starts the trainer anew
    wait_for(lambda: not any(map(alive, chain.tree)))


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("how", ["stop", "failure"])
def test_a_trainer_that_is_stopped_or_fails_leaves_nothing_behind(tmp_path: Path, how: str) -> None:
    (tmp_path / "run").mkdir()
    pids = tmp_path / "pids.txt"
    script = f"{sys.executable} {TREE} {tmp_path} & while [ ! -s pids.txt ]; do sleep 0.1; done; kill -9 $!; exit 3"
    command = [sys.executable, str(TREE), str(tmp_path)] if how == "stop" else ["bash", "-c", script]
    made = backend_of({"command": command, "patience": 1}, {}, tmp_path, "cpu")
    expected: type[BaseException] = KeyboardInterrupt if how == "stop" else RunFailed
    with pytest.raises(expected):
        made.train(run_of("a"), tmp_path / "run", Heard(lambda _: how == "stop" and pids.exists()))
    assert not any(alive(int(pid)) for pid in pids.read_text().split())


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_what_a_trainer_that_ended_well_left_on_purpose_stays(tmp_path: Path) -> None:
    said = carried_out(tmp_path, run_of("a"), ["bash", "-c", "setsid sleep 600 >&- 2>&- & echo $!"])
    try:
        assert alive(int(said))
    finally:
        os.kill(int(said), signal.SIGKILL)


def test_a_failure_shows_no_control_characters(tmp_path: Path) -> None:
    with pytest.raises(FscError) as failed:
        carried_out(tmp_path, run_of("a"), ["bash", "-c", r"printf '\033]0;title\007 red\033[31m\n'; exit 3"])
    assert str(failed.value).isprintable()
