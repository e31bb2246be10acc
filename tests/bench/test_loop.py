"""The whole loop at toy size: every rule's order is collected, trained on and measured; a stop loses nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from factored_scaling.backends.simulation import Lab
from factored_scaling.bench.loop import Cell, Loop, LoopSettings, Outcome, Stop
from factored_scaling.cli import main
from factored_scaling.cli.outcomes import line_of, outcome_row, outcome_rows, read_outcomes, write_outcomes
from factored_scaling.cli.quickstart import verdict
from factored_scaling.cli.reproduce import PAPER, summary
from factored_scaling.core.trials import Result, Score, wilson
from factored_scaling.errors import InvalidInput, UnknownName
from factored_scaling.runner.run import RunSummary, run_study
from factored_scaling.study import Study

TASK = "tabletop/pick-place"
POLICY = {"preset": "small", "updates": 4, "batch": 4, "image_size": 32}
REMIX = {"preset": "small", "updates": 4, "warmup": 1, "validate_every": 2}


def silent(done: int, total: int, note: str = "") -> None: ...


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are carried out by the real runner, in a thread instead of processes that would import torch again."""

    def run(study: Study, folder: Path, **options: Any) -> RunSummary:
        return run_study(study, folder, backend=Lab(TASK, folder, image_size=32), **{**options, "workers": 1})

    monkeypatch.setattr("factored_scaling.bench.loop.run_study", run)


def make_loop(folder: Path, **changes: Any) -> Loop:
    torch.set_num_threads(1)
    settings: dict[str, Any] = {"policy": POLICY, "evaluation": {"settings": 1, "initial_states": 2}, "remix": REMIX}
    return Loop(folder, LoopSettings(TASK, 2, 2, **(settings | changes)), silent)


@pytest.mark.slow
def test_every_rule_gets_what_it_ordered(tmp_path: Path) -> None:
    loop = make_loop(tmp_path)
    loop.measure(["group"])
    cells = [Cell(strategy, 6) for strategy in ("auto", "top", "all", "equal", "greedy", "remix")]
    cells.append(Cell("top", 6, proxy=1))
    outcomes = loop.outcomes(cells)
    assert [outcome.cell for outcome in outcomes] == cells
    labels = ["response model", "group, top", "group, all", "equal", "greedy", "remix", "proxy k=1, group, top"]
    assert [cell.label for cell in cells] == labels
    with Study.open(tmp_path / "outcomes.db") as after:
        trained = {run.digest: run for run in after.runs()}
        assert all(run.state == "done" for run in trained.values())
        sizes = {sum(run.demos.values()) for run in trained.values()}
        assert sizes == {5 * 2 + 6}, "the first demonstrations and the budget, for every rule"
    for outcome in outcomes:
        assert sum(outcome.recommendation.allocation.values()) == 6
        assert outcome.result.overall.trials == 5 * 1 * 2
    assert (tmp_path / "remix" / "weights.png").stat().st_size > 1000
    # A larger budget later on extends the same record, and what is there is not made again.
    before = len(trained)
    again = loop.outcomes([*cells, Cell("equal", 10)])
    assert [o.result for o in again[:-1]] == [o.result for o in outcomes]
    with Study.open(tmp_path / "outcomes.db") as after:
        assert len(after.runs()) == before + 1


def test_replicates_differ_in_demonstrations_and_weights(tmp_path: Path) -> None:
    first, second = (make_loop(tmp_path / str(seed), seed=seed) for seed in (0, 1))
    with first.study() as one, second.study() as two:
        assert not {e.id for e in one.dataset.episodes} & {e.id for e in two.dataset.episodes}
        assert {run.seed for run in two.runs()} == {1}


def test_a_stop_is_passed_on_and_wrong_settings_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = RunSummary((), (), (), (1,), (), {}, stopped=True)
    with monkeypatch.context() as patch:
        patch.setattr("factored_scaling.bench.loop.run_study", lambda *_, **__: stopped)
        with pytest.raises(Stop):
            make_loop(tmp_path).measure(["group"])
    with pytest.raises(InvalidInput, match="other settings"):
        make_loop(tmp_path, policy={**POLICY, "updates": 5}).study()
    with pytest.raises(UnknownName, match="updates"):
        make_loop(tmp_path, policy={"update": 5})


def outcome_of(cell: Cell, mean: float, allocation: dict[str, int] | None = None) -> Outcome:
    score = Score(mean, 100, wilson(mean, 100))
    answer: Any = type("Answer", (), {"allocation": allocation or {"a": 3}})()
    return Outcome(cell, answer, 0.5, Result(score, {("a",): score}))


@pytest.mark.parametrize(
    ("allocations", "means", "text"),
    [
        # the response model's allocation with each seed; success with auto, equal, greedy and remix
        ([{"a": 3, "b": 3}], (0.5, 0.5, 0.4, 0.4), "The response model split the budget evenly, as Equal does."),
        (
            [{"a": 3, "b": 3}],
            (0.5, 0.5, 0.9, 0.4),
            "The response model split the budget evenly, as Equal does. "
            "The response model did not win: Greedy was 40.0 points better.",
        ),
        (
            [{"a": 3, "b": 3}, {"a": 6, "b": 0}],
            (0.9, 0.5, 0.4, 0.4),
            "The response model split the budget evenly, as Equal does, with 1 of 2 seeds. "
            "The response model beat the best baseline, Equal, by 40.0 points.",
        ),
        (
            [{"a": 6, "b": 0}],
            (0.52, 0.5, 0.4, 0.4),
            "The response model and the best baseline, Equal, are less than 14.1 points apart: a tie.",
        ),
    ],
)
def test_the_last_sentence_distinguishes_a_tie_from_the_same_allocation(
    allocations: list[dict[str, int]], means: tuple[float, ...], text: str
) -> None:
    rules = dict(zip(("auto", "equal", "greedy", "remix"), means, strict=True))
    outcomes = [
        (seed, outcome_of(Cell(rule, 6), mean, allocation if rule == "auto" else {"a": 3, "b": 3}))
        for seed, allocation in enumerate(allocations)
        for rule, mean in rules.items()
    ]
    assert verdict(rules, outcomes) == text


def test_a_row_of_the_paper_beside_ours(tmp_path: Path) -> None:
    cell = Cell("top", 100)
    lines = [line_of(TASK, 30, seed, outcome_of(cell, mean)) for seed, mean in enumerate((0.5, 0.6, 0.7))]
    row = summary(outcome_row(lines), 100, PAPER["main"]["Pick Place"])
    assert row["score"] == pytest.approx(0.6)
    assert row["paper"] == 64.4
    assert [seed["score"] for seed in row["by_seed"]] == [0.5, 0.6, 0.7]
    # Student's t over three seeds: 4.3027 × 0.1 / √3
    assert row["interval"][1] - row["score"] == pytest.approx(0.24842, abs=1e-4)
    alone = outcome_row(lines[:1])
    assert (alone.low, alone.high) == (wilson(0.5, 100).low, wilson(0.5, 100).high)
    write_outcomes(tmp_path / "rows.csv", lines)
    assert read_outcomes(tmp_path / "rows.csv") == lines
    assert [row.strategy for row in outcome_rows(lines, 100)] == ["group, top"]
    assert outcome_rows(lines, 20) == []
    assert outcome_row(lines).by_seed == {}
    other = replace(lines[1], allocation={"a": 2})
    assert outcome_row([lines[0], other]).by_seed == {0: {"a": 3}, 1: {"a": 2}}


def test_a_mistake_in_outcome_rows_is_told_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line_of(TASK, 30, 0, outcome_of(Cell("top", 100), 0.5))]
    path = tmp_path / "rows.csv"
    write_outcomes(path, lines)
    path.write_text(path.read_text().replace("0.5000,100", "1.5,100"))
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "main", "--rows", str(path)])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told == f"fsc: {path}: row 1 (line 2), column score: a score must lie in [0, 1], not 1.5\n"


OUTCOMES = "task,demos,seed,budget,method,predicted,score,trials,collect:a,score:a\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task,demos\n", r"header \(line 1\): no column 'seed'; columns are task, "),
        (OUTCOMES, "has a header but no rows"),
        (
            OUTCOMES.replace("budget", "buget"),
            r"header \(line 1\), column 4: unknown column 'buget'; did you mean budget",
        ),
        (OUTCOMES.replace("demos", "seed"), r"header \(line 1\), column 3: column 'seed' appears twice; keep one"),
        (OUTCOMES.replace(",score:a", ""), r"header \(line 1\): no column 'score:a'"),
        (OUTCOMES.replace("collect:a,", ""), r"header \(line 1\): no column 'collect:a'"),
        (OUTCOMES + "t,30,0,9,top,,0.5,100,3\n", r"row 1 \(line 2\), column score:a: 9 cells where the header has 10"),
        (OUTCOMES + "t,30,0,9,top,,half,100,3,0.5\n", r"row 1 \(line 2\), column score: expected a number in \[0, 1\]"),
        (OUTCOMES + "t,30,0,9,top,,45%,100,3,0.5\n", r"column score: .*; write 45% as 0\.45"),
        (OUTCOMES + "t,30,0,9,top,,0.5,100,3,nan\n", "column score:a: expected a number"),
        (OUTCOMES + "t,30.5,0,9,top,,0.5,100,3,0.5\n", "column demos: expected a whole number, not '30.5'"),
        (OUTCOMES + "t,30,0,9,top,,0.5,0,3,0.5\n", "column trials: expected a whole number of at least 1, not 0"),
        (OUTCOMES + 't,30,0,9,"top,,0.5,100,3,0.5\n', r"row 1 \(line 2\): not valid CSV"),
    ],
)
def test_outcome_rows_that_are_wrong_are_refused_with_the_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=rf"rows\.csv: .*{message}"):
        read_outcomes(path)


def test_a_report_for_a_budget_nobody_tried_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_outcomes(tmp_path / "rows.csv", [line_of(TASK, 30, 0, outcome_of(Cell("top", 100), 0.5))])
    (tmp_path / "study.yaml").write_text("factors: {a: 30}")
    for budget, said in (
        ("100", ""),
        ("55", f"warning: {tmp_path}/rows.csv has no rows for a budget of 55, only for 100\n"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["report", str(tmp_path), "--budget", budget, "--outcomes", str(tmp_path / "rows.csv")])
        assert ended.value.code == 0
        assert capsys.readouterr().err == said
        assert ("Outcome</h2>" in (tmp_path / "report.html").read_text()) == (not said)


@pytest.mark.slow
def test_the_quickstart_ends_with_its_table_and_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):  # the second time everything is there already
        with pytest.raises(SystemExit) as ended:
            main(["quickstart", "--tiny", "--folder", str(tmp_path / "q"), "--workers", "2"])
        assert ended.value.code == 0
        printed = capsys.readouterr().out
        assert "After collecting K = 100 more demonstrations" in printed
        verdict = printed[printed.index("Re-Mix", printed.index("After collecting")) :]
        assert "The response model" in verdict  # how it did against the best baseline
        assert f"fsc serve {tmp_path / 'q'}" in verdict
    page = (tmp_path / "q" / "report.html").read_text()
    assert "Re-Mix" in page
    assert len((tmp_path / "q" / "outcomes.csv").read_text().splitlines()) == 7
