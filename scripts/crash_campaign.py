"""Kill processes at random instants while they work on studies, and check that nothing is lost, doubled or mixed.

    python scripts/crash_campaign.py                          1,000 kills on SQLite
    export FSC_POSTGRES_HOME=/tmp/fsc-crash
    FSC_TEST_POSTGRES=$(scripts/postgres-for-tests start) python scripts/crash_campaign.py --save

With FSC_TEST_POSTGRES half of the kills are on PostgreSQL. Up to three processes at a time work on one study: they
tell, record, import, create studies, run a trainer's programs or score trials, and are killed with SIGKILL after a
random time. Leases are short, so that killed workers' runs come back, and slow workers lose theirs but still report.
After some kills the rest of the work is done undisturbed; work that cannot be finished is an error. `--seed` determines
the schedule; the progress of a process at its kill depends on the machine. Exit code 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from crash_results import ByHand, Record, RunCommand, Score, Tell, Work
from crash_scenario import Findings, Scenario
from crash_studies import Import, ImportStudy, Init
from sqlalchemy import create_engine, make_url, text

import factored_scaling.cli.exchange  # commands load when they are used: here, before the forks
import factored_scaling.cli.runs
import factored_scaling.cli.start  # noqa: F401

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "crash_campaign.md"
# with the share of kills of each
SCENARIOS: dict[type[Scenario], int] = {
    Tell: 5,
    Record: 4,
    ByHand: 2,
    Import: 3,
    ImportStudy: 2,
    Init: 3,
    Work: 2,
    RunCommand: 1,
    Score: 4,
}
KILLS_PER_STUDY = 12
ASLEEP = 0.2  # share of the processes that are stopped for a while and then continued
PEACE = 40  # processes that may finish a study undisturbed, one after another
PATIENCE = 60.0  # seconds for each of them


@dataclass
class Tally:
    """What happened in one kind of scenario on one database."""

    studies: int = 0
    processes: int = 0
    kills: int = 0
    acknowledged: int = 0
    refused: int = 0
    found: Findings = field(default_factory=Findings)
    # unexpected errors of processes, by their last line
    broken: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        found = self.found
        return [*found.lost, *found.doubled, *found.mixed, *found.half_done, *found.dead_ends, *self.broken]


class Campaign:
    """Draws scenarios until each database has seen enough kills."""

    def __init__(self, home: Path, seed: int) -> None:
        self.home = home
        self.generator = random.Random(seed)
        self.reach = {kind: kind.reach for kind in SCENARIOS}
        self.tallies: dict[tuple[str, str], Tally] = {}
        self.numbers = 0

    def run(self, database: str, address: str | None, kills: int, until: float) -> None:
        """Spread `kills` over all kinds of scenarios, by their weight."""
        whole = sum(SCENARIOS.values())
        for kind, weight in SCENARIOS.items():
            tally = self.tallies.setdefault((kind.name, database), Tally())
            wanted = max(2, round(kills * weight / whole))
            while tally.kills < wanted and time.monotonic() < until:
                self.study(kind, address, tally, min(KILLS_PER_STUDY, wanted - tally.kills))
            print(f"{database}, {kind.name}: {tally.kills} kills", file=sys.stderr, flush=True)

    def study(self, kind: type[Scenario], address: str | None, tally: Tally, kills: int) -> None:
        """One study from start to end, with some kills."""
        self.numbers += 1
        folder = self.home / f"{self.numbers}"
        folder.mkdir()
        scenario = kind(folder, address, f"{kind.name} {self.numbers}", self.generator.getrandbits(30))
        tally.studies += 1
        wanted, voice, idle = tally.kills + kills, 0, 0
        while tally.kills < wanted and idle < 5 and not scenario.finished():
            count = self.generator.choice([1, 2, 3, 3])
            before = tally.kills
            self.killed_together(scenario, tally, range(voice + 1, voice + 1 + count))
            voice += count
            idle = 0 if tally.kills > before else idle + 1
            scenario.look(tally.found)
            scenario.between(self.generator)
        for _ in range(PEACE):
            if scenario.finished():
                break
            voice += 1
            if not self.in_peace(scenario, tally, voice):
                break
            scenario.between(self.generator)
        if scenario.finished():
            scenario.verify(tally.found)
        else:
            tally.found.dead_ends.append(f"{scenario.title}: not finished")
        tally.acknowledged += len(scenario.log.read_text().splitlines())
        tally.refused += len(scenario.refused.read_text().splitlines())
        if not tally.wrong:
            shutil.rmtree(folder)

    def killed_together(self, scenario: Scenario, tally: Tally, voices: Sequence[int]) -> None:
        """Start a process per voice and kill each after a random time; some sleep before, longer than leases."""
        reach = self.reach[type(scenario)]
        began = time.monotonic()
        planned: list[tuple[float, int, signal.Signals]] = []
        for voice in voices:
            pid, after = self.start(scenario, voice), self.generator.uniform(0.0, reach)
            if self.generator.random() < ASLEEP:
                planned.append((after, pid, signal.SIGSTOP))
                after += self.generator.uniform(0.3, 1.0)
                planned.append((after, pid, signal.SIGCONT))
                after += self.generator.uniform(0.0, reach)
            planned.append((after, pid, signal.SIGKILL))
        for after, pid, number in sorted(planned):
            time.sleep(max(0.0, began + after - time.monotonic()))
            os.killpg(pid, number)
            if number != signal.SIGKILL:
                continue
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            tally.processes += 1
            if code == -signal.SIGKILL:
                tally.kills += 1
            self.reach[type(scenario)] *= 1.03 if code == -signal.SIGKILL else 0.9
            self.note(scenario, tally, code)

    def in_peace(self, scenario: Scenario, tally: Tally, voice: int) -> bool:
        """Let one process finish the work; False if it does not end."""
        pid = self.start(scenario, voice)
        tally.processes += 1
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self.note(scenario, tally, os.waitstatus_to_exitcode(status))
                return True
            time.sleep(0.005)
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return False

    def note(self, scenario: Scenario, tally: Tally, code: int) -> None:
        if code not in (0, -signal.SIGKILL):
            words = (scenario.folder / "broken.txt").read_text().strip().splitlines()
            tally.broken.append(f"{scenario.title}: {words[-1] if words else code}")

    def start(self, scenario: Scenario, voice: int) -> int:
        generator = random.Random(self.generator.getrandbits(30))
        pid = os.fork()
        if pid:
            with suppress(OSError):  # as the child does too: all of its processes are killed together
                os.setpgid(pid, pid)
            return pid
        code = 1
        try:
            os.setpgid(0, 0)
            scenario.child(voice, generator)
            code = 0
        except BaseException:
            (scenario.folder / "broken.txt").write_text(traceback.format_exc())
        finally:
            os._exit(code)


@contextmanager
def server(given: str) -> Iterator[tuple[str, str]]:
    """A schema of our own on a PostgreSQL server, dropped afterwards, and the server's name."""
    url = make_url(given).set(drivername="postgresql+psycopg")
    engine = create_engine(url)
    schema = f"crash_{os.getpid()}"
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
        version = str(connection.execute(text("SHOW server_version")).scalar()).split()[0]
    engine.dispose()
    try:
        address = url.update_query_dict({"options": f"-csearch_path={schema}"})
        yield address.render_as_string(hide_password=False), f"PostgreSQL {version}"
    finally:
        with engine.begin() as connection:
            connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
        engine.dispose()


def table(tallies: dict[tuple[str, str], Tally]) -> list[str]:
    columns = ("studies", "processes", "kills", "acknowledged", "refused")
    problems = ("lost", "doubled", "mixed", "half_done", "dead_ends")
    head = ["what", "database", *columns, *(name.replace("_", " ") for name in problems), "errors"]
    lines = [f"| {' | '.join(head)} |", f"|---|---|{'---:|' * (len(head) - 2)}"]
    whole = [0] * (len(head) - 2)
    for (what, database), tally in tallies.items():
        numbers = [getattr(tally, name) for name in columns]
        numbers += [len(getattr(tally.found, name)) for name in problems] + [len(tally.broken)]
        whole = [one + other for one, other in zip(whole, numbers, strict=True)]
        lines.append(f"| {' | '.join([what, database, *map(str, numbers)])} |")
    return [*lines, f"| {' | '.join(['all', '', *map(str, whole)])} |"]


def page(tallies: dict[tuple[str, str], Tally], arguments: argparse.Namespace, seconds: float) -> str:
    cores, python = os.cpu_count(), platform.python_version()
    machine = f"{platform.system()} {platform.machine()}, {cores} cores, Python {python}"
    described = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    commit = subprocess.run(described, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    return "\n".join(
        [
            "# Crash campaign",
            "",
            f"{datetime.date.today()}, {machine}, commit {commit}, {seconds / 60:.0f} minutes; run again with",
            f"`python scripts/crash_campaign.py --kills {arguments.kills} --seed {arguments.seed} --save`.",
            "",
            "Processes were killed with SIGKILL at random instants. *Acknowledged*: calls that returned; *refused*:",
            "calls of workers and operators that had lost their run or trial. *Half done*: part of a call was there",
            "after a kill. *Dead end*: work that could not be finished in peace afterwards. *Errors*: processes that",
            "ended in any other way.",
            "",
            *table(tallies),
            "",
        ]
    )


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000, help="over all databases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no new study after that")
    parser.add_argument(
        "--keep", type=Path, help="a folder for the studies; those in which nothing was wrong are removed"
    )
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args(given)
    began = time.monotonic()
    address = os.environ.get("FSC_TEST_POSTGRES")
    kills = -(-arguments.kills // 2) if address else arguments.kills
    until = began + arguments.seconds
    home = Path(tempfile.mkdtemp(dir=arguments.keep))
    campaign = Campaign(home, arguments.seed)
    try:
        campaign.run(f"SQLite {sqlite3.sqlite_version}", None, kills, until)
        if address:
            with server(address) as (url, name):
                campaign.run(name, url, kills, until)
    finally:
        if arguments.keep is None:
            shutil.rmtree(home)
    report = page(campaign.tallies, arguments, time.monotonic() - began)
    print(report)
    wrong = [line for tally in campaign.tallies.values() for line in tally.wrong]
    for line in wrong[:50]:
        print(line)
    if arguments.save:
        RESULTS.write_text(report)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
