"""The whole loop at toy size: every rule's order is collected, trained on and measured; a stop loses nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from factored_scaling.backends.simulation import Lab
from factored_scaling.bench.loop import Cell, Loop, LoopSettings, Outcome, Stop
from factored_scaling.bench.usual import Usual, usual_outcome
from factored_scaling.cli import main
from factored_scaling.cli.outcomes import line_of, outcome_row, outcome_rows, read_outcomes, write_outcomes
from factored_scaling.cli.quickstart import POLICY as CONVERGED
from factored_scaling.cli.quickstart import Round, show_outcome, verdict
from factored_scaling.cli.reproduce import PAPER, summary
from factored_scaling.core.trials import Result, Score, wilson
from factored_scaling.errors import InvalidInput, UnknownFactor, UnknownName
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
    return Loop(folder, LoopSettings(TASK, **({"demos": 2, "points": 2} | settings | changes)), silent)


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


@pytest.mark.slow
def test_a_start_may_have_other_numbers_for_every_factor(tmp_path: Path) -> None:
    sizes = {"lighting": 1, "camera_pose": 4, "distractor": 2, "table_texture": 3, "background": 2}
    start = {**sizes, "nominal": 5}
    loop = make_loop(tmp_path, demos=start)
    loop.measure(["group"])
    with loop.study() as study:
        assert (study.spec.sizes, study.spec.nominal) == (sizes, 5)
        assert tuple(study.spec.sizes) == loop.lab.task.factors, "in the task's order"
        answers = study.snapshot().recommendations(6)
        assert {"auto", "top", "equal", "greedy"} <= set(answers)
    cells = [Cell(strategy, 6) for strategy in ("auto", "top", "equal", "greedy")]
    outcomes = loop.outcomes(cells)
    assert all(0 <= outcome.result.overall.mean <= 1 for outcome in outcomes)
    assert loop.before().overall.trials == 5 * 1 * 2
    with Study.open(tmp_path / "outcomes.db") as after:
        for run in after.runs():
            assert sum(run.demos.values()) == 12 + 6
            assert all(run.demos[name] >= count for name, count in sizes.items())
            assert len(set(after.find_run(run.id).spec.episodes)) == 5 + 12 + 6
    lines = [line_of(TASK, start, 0, outcome) for outcome in outcomes]
    write_outcomes(tmp_path / "rows.csv", lines)
    assert [line.demos for line in read_outcomes(tmp_path / "rows.csv")] == [start] * 4
    with pytest.raises(InvalidInput, match="must give a number for each of camera_pose, "):
        make_loop(tmp_path / "other", demos={"lighting": 3})
    path = tmp_path / "rows.csv"
    path.write_text(path.read_text().replace("lighting:1", "light:1"))
    with pytest.raises(UnknownFactor, match=r"column demos: .*light"):
        read_outcomes(path)


def test_demonstrations_are_made_by_one_thread(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)  # on busy cores they wait for each other: 14 times the processor time was measured
        Loop(tmp_path, LoopSettings(TASK, 2), silent)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


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
    noise = type("Summary", (), {"noise": type("Noise", (), {"mean": 0.03})})
    answer: Any = type("Answer", (), {"allocation": allocation or {"a": 3}, "summary": noise})()
    return Outcome(cell, answer, 0.5, Result(score, {("a",): score}))


# two standard errors of a difference: √(2·(0.25/100 + 0.03²)) with one seed
CHANCE = "differences under 16.5 points are within chance (trials and training noise)"


@pytest.mark.parametrize(
    ("allocations", "means", "text"),
    [
        # the response model's allocation with each seed; success with auto, equal, greedy and remix
        ([{"a": 3, "b": 3}], (0.5, 0.5, 0.4, 0.4), "The response model split the budget evenly, as Equal does."),
        (
            [{"a": 3, "b": 3}],
            (0.5, 0.5, 0.9, 0.4),
            "The response model split the budget evenly, as Equal does. "
            f"The response model did not win: Greedy was 40.0 points better; {CHANCE}.",
        ),
        (
            [{"a": 3, "b": 3}, {"a": 6, "b": 0}],
            (0.9, 0.5, 0.4, 0.4),
            "The response model split the budget evenly, as Equal does, with 1 of 2 seeds. "
            "The response model beat the best baseline, Equal, by 40.0 points; "
            "differences under 11.7 points are within chance (trials and training noise).",
        ),
        (
            [{"a": 6, "b": 0}],
            (0.52, 0.5, 0.4, 0.4),
            f"A tie: the response model and the best baseline, Equal, are 2.0 points apart; {CHANCE}.",
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


def test_usual_outcomes_say_what_chance_explains() -> None:
    rules = {"auto": 0.8, "equal": 0.75, "greedy": 0.7}
    outcomes = [(0, outcome_of(Cell(rule, 6), mean, {"a": len(rule)})) for rule, mean in rules.items()]
    usual = {"auto": Usual(0.8, 0.78, 0.82, 8, "x"), "equal": Usual(0.76, 0.74, 0.78, 8, "x"), "greedy": None}
    said = verdict(rules, outcomes, usual)
    # 2·√(0.01² + 0.01²)
    assert said.endswith("by 5.0 points; differences under 2.8 points are within chance (as single runs vary).")


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
        assert "Success after collecting K = 100 more demonstrations" in printed
        assert "emulated" not in printed, "nothing is known of this start"
        closing = printed[printed.index("In scenes that no demonstration showed") :]
        assert "The response model" in closing  # how it did against the best baseline
        assert f"fsc serve {tmp_path / 'q'}" in closing
        assert str(tmp_path / "q" / "outcome.png") in closing
    assert (tmp_path / "q" / "outcome.png").stat().st_size > 1000
    page = (tmp_path / "q" / "report.html").read_text()
    assert "Greedy" in page
    assert len((tmp_path / "q" / "outcomes.csv").read_text().splitlines()) == 5


def test_a_usual_outcome_holds_for_its_task_start_and_budget_only(tmp_path: Path) -> None:
    path, start = tmp_path / "usual.json", {"a": 5, "b": 60}
    assert usual_outcome(TASK, start, 100, "auto", path) is None
    rules = {"auto": {"mean": 0.81, "low": 0.77, "high": 0.85}}
    path.write_text(
        json.dumps([{"task": TASK, "start": start, "budget": 100, "seeds": 8, "source": "x", "rules": rules}])
    )
    assert usual_outcome(TASK, start, 100, "auto", path) == Usual(0.81, 0.77, 0.85, 8, "x")
    for task, demos, budget, rule in (
        ("tabletop/insert", start, 100, "auto"),
        (TASK, {"a": 5, "b": 5}, 100, "auto"),
        (TASK, start, 20, "auto"),
        (TASK, start, 100, "equal"),
    ):
        assert usual_outcome(task, demos, budget, rule, path) is None


def test_the_closing_table_shows_usual_outcomes_where_they_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = [outcome_of(Cell(rule, 100), 0.8) for rule in ("auto", "top", "equal", "greedy")]
    rounds = [Round(LoopSettings(TASK, 3, policy=CONVERGED), {"a": 3}, outcomes[0].result, outcomes)]
    lines = [line_of(TASK, 3, 0, outcome) for outcome in outcomes]
    rules = {"auto": {"mean": 0.81, "low": 0.77, "high": 0.85}}
    tables = tmp_path / "usual.json"
    tables.write_text(
        json.dumps([{"task": TASK, "start": {"a": 3}, "budget": 100, "seeds": 8, "source": "x", "rules": rules}])
    )
    monkeypatch.setattr("factored_scaling.bench.usual.TABLES", tables)
    assert show_outcome(tmp_path, 100, rounds, lines) == tmp_path / "outcome.png"
    printed = capsys.readouterr().out
    assert "in 8 studies emulated from x." in printed
    assert "81.0% (77.0–85.0)" in printed
    short = [replace(rounds[0], settings=LoopSettings(TASK, 3, policy={"updates": 400}))]
    show_outcome(tmp_path, 100, short, lines)
    assert "emulated" not in capsys.readouterr().out
    assert "succeeded in 80 of 100 trials at the start, in 80 after 100 more" in printed
