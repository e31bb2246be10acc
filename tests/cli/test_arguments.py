"""Whatever is typed after `fsc recommend`: an answer or one line, never a traceback."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Answer = subprocess.CompletedProcess[str]
Fsc = Callable[..., Answer]

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
budgets = texts | st.integers().map(str) | st.floats().map(str) | st.from_regex(r"[-+]?[0-9_ ]{1,20}", fullmatch=True)
quick = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@quick
@given(budgets)
def test_any_budget(fsc: Fsc, study: Path, budget: str) -> None:
    answer = fsc("recommend", study, study / "results.csv", f"--budget={budget}", "--strategy", "all", "--json")
    assert answer.returncode in (0, 2)
    if answer.returncode == 0:
        data = json.loads(answer.stdout)
        assert sum(data["allocation"].values()) == data["budget"] == int(budget) > 0
    else:
        assert (answer.stdout, answer.stderr.count("\n")) == ("", 1)


@quick
@given(
    st.lists(
        texts | st.sampled_from(["--json", "--budget", "--strategy", "--save", "-h", "--", "-", "equal"]), max_size=4
    )
)
def test_any_arguments(fsc: Fsc, study: Path, arguments: list[str]) -> None:
    answer = fsc("recommend", study, study / "results.csv", "--budget", "5", *arguments)
    assert answer.returncode in (0, 2)
    if answer.returncode == 2:
        assert (answer.stdout, answer.stderr.count("\n")) == ("", 1)


def test_the_largest_budgets(fsc: Fsc, study: Path) -> None:
    for budget in (1, 500, 10**12):
        for strategy in ("top", "top-half", "all", "auto", "equal"):
            args = ["--budget", str(budget), "--strategy", strategy, "--json"]
            data = json.loads(fsc("recommend", study, study / "results.csv", *args).stdout)
            assert sum(data["allocation"].values()) == budget


def test_what_is_missing_is_told_with_the_command_that_explains_it(fsc: Fsc, study: Path) -> None:
    for args, said in (
        (["plan"], "fsc: Missing argument 'STUDY'. `fsc plan --help` has an example.\n"),
        (["recommend", study], "fsc: Missing option '--budget'. `fsc recommend --help` has an example.\n"),
        (["sheet", "evaluate"], "fsc: Missing argument 'STUDY'. `fsc sheet evaluate --help` has an example.\n"),
    ):
        answer = fsc(*args)
        assert (answer.returncode, answer.stdout, answer.stderr) == (2, "", said)
