"""Do something again and again, killed at the first, second, … statement that it sends to the database.

`kill_at.py ACTION ADDRESS FOLDER STEP` forks a child per try, `{n}` in ADDRESS standing for its number, and prints each
child's exit code. With a STEP above 1, not every statement has its turn. It ends after the first child that came
through alive.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from factored_scaling.cli.exchange import _load
from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.errors import InvalidInput
from factored_scaling.study import Study

MOST = 300  # statements; a guard against a child that never comes through
ROWS = [{"combination": name, "n": n, "score": n / 10, "trials": 20} for name in ("camera", "light") for n in (0, 2, 4)]
OUTCOME: dict[str, float | list[float]] = {"light": [1.0, 0.0], "camera": 0.5}


def spec(number: int) -> StudySpec:
    return StudySpec({"camera": 4, "light": 4}, construction="one", points=3, name=f"study {number}")


def kill_at(number: int) -> None:
    """Kill this process before the statement or commit that has its turn in this try, counted from now."""
    left = 1 + (number - 1) * int(sys.argv[4])

    def count(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", count)
    event.listen(Engine, "commit", count)


def create(address: str, number: int) -> None:
    kill_at(number)
    Study.create(spec(number), address).close()


def tell(address: str, number: int) -> None:
    with Study.create(spec(number), address) as study:
        (run,) = study.ask(lease_seconds=0.01)
        kill_at(number)
        study.tell(run.id, OUTCOME)


def import_csv(address: str, number: int) -> None:
    with Study.create(spec(number), address) as study:
        study.ask()
        kill_at(number)
        study.import_results(Results.from_rows(ROWS), "results.csv")


def extend(address: str, number: int) -> None:
    with Study.create(spec(number), address) as study:
        kill_at(number)
        study.extend({"light": 4})


def import_json(address: str, number: int) -> None:
    """Into a folder, or under a name of its own into a shared database."""
    file = Path(sys.argv[3]) / f"{number}.json"
    if not file.exists():
        path = file.with_suffix(".made")
        with Study.create(spec(number), path) as study:
            study.import_results(Results.from_rows(ROWS), "results.csv")
            file.write_text(json.dumps(study.store.dump(study.id)))
    kill_at(number)
    place = address if "://" in address else str(Path(address).with_suffix(""))
    try:
        _load(place, file)
    except InvalidInput as error:
        print(error, file=sys.stderr)


def main(action: str, address: str) -> None:
    for number in range(1, MOST):
        pid = os.fork()
        if pid == 0:
            sys.stdout = sys.stderr
            globals()[action](address.replace("{n}", str(number)), number)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(status, flush=True)
        if status != -signal.SIGKILL:
            return
    sys.exit("never came through")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
