"""A snapshot is one moment, read in one transaction, and computes nothing twice."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event
from tests.report.cases import study as scored
from tests.store.conftest import address, postgres, postgres_address, postgres_engine  # noqa: F401  fixtures

from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Trial
from factored_scaling.errors import NotEnoughData
from factored_scaling.model import recommend as recommend_module
from factored_scaling.model.recommend import STRATEGIES, recommend
from factored_scaling.report import render
from factored_scaling.study import Snapshot, Study
from factored_scaling.study import snapshot as snapshot_module

TWO = StudySpec({"camera": 6, "light": 6}, construction="one", points=3, name="two")


def measured(path: Path) -> Study:
    study = Study.create(TWO, path)
    while runs := study.ask():
        for run in runs:
            good = 20 + 4 * run.demos["camera"] + run.demos["light"]
            study.tell(run.id, [Trial(str(k), float(k < good), ("light",)) for k in range(80)])
    return study


def test_everything_is_read_in_one_transaction(tmp_path: Path) -> None:
    with measured(tmp_path / "study.db") as study:
        begun: list[int] = []
        event.listen(study.store._database._engine, "begin", lambda _: begun.append(1))
        now = study.snapshot()
        now.report(20, created="today")
        assert sum(begun) == 1


def test_what_is_written_meanwhile_is_seen_whole_or_not_at_all(address: str) -> None:  # noqa: F811
    """Runs, their trials and their results belong together, however often somebody else writes in between."""
    wide = StudySpec({"camera": 30, "light": 30}, construction="one", points=16, name="wide")
    stop = threading.Event()

    def write() -> None:
        with Study.open(address) as own:
            while not stop.is_set() and (runs := own.ask()):
                for run in runs:
                    own.tell(run.id, [Trial(str(k), float(k % 2), ("light",)) for k in range(40)])

    with Study.create(wide, address) as study:
        writer = threading.Thread(target=write)
        writer.start()
        try:
            seen = []
            while writer.is_alive():
                now = study.snapshot()
                assert now.record is not None
                counts = {
                    run.id: sum(one.trials for one in now.record.tallies.get(run.id, [])) for run in now.record.runs
                }
                assert counts == {run.id: run.trials for run in now.record.runs}
                done = sum(run.state == "done" for run in now.record.runs)
                assert len(now.results.rows) == done
                seen.append(done)
        finally:
            stop.set()
            writer.join()
        assert seen == sorted(seen)
        assert len(set(seen)) > 2, "something was written between two readings"


def test_answers_are_those_of_recommend() -> None:
    spec, results = scored(per_factor=True)
    now = Snapshot(spec, results)
    for strategy in STRATEGIES:
        if strategy == "remix":
            continue
        assert now.recommend(100, strategy) == recommend(spec, results, 100, strategy)
    assert now.recommend(100, "top", "response-model") == recommend(spec, results, 100, "top", "response-model")
    weights = dict(zip(spec.names, (0.2, 0.5, 0.1, 0.1, 0.1), strict=True))
    weighted = replace(now, weights=weights)
    assert weighted.recommend(100, "remix") == recommend(spec, results, 100, "remix", weights=weights)
    assert "remix" not in now.recommendations(100)
    assert list(weighted.recommendations(100, "top"))[:2] == ["top", "auto"]


def test_a_page_fits_the_model_and_refits_the_curves_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counting(module: object, name: str) -> None:
        original = getattr(module, name)

        def counted(*given: object, **options: object) -> object:
            calls.append(name)
            return original(*given, **options)

        monkeypatch.setattr(module, name, counted)

    counting(snapshot_module, "fit_posterior")
    counting(recommend_module, "fit_posterior")
    counting(recommend_module, "refit")
    counting(recommend_module, "fit_curves")
    spec, results = scored(per_factor=True)
    render(Snapshot(spec, results).report(100, created="today"))
    assert sorted(calls) == ["fit_curves", "fit_posterior", "refit"]


def test_without_scores_there_is_an_equal_split_alone() -> None:
    assert list(Snapshot(TWO, Results()).recommendations(10, "top")) == ["equal"]
    few = Results.from_rows([{"demos": {"camera": 6, "light": 6}, "score": 0.5}])
    with pytest.raises(NotEnoughData):
        Snapshot(TWO, few).recommendations(10, "top")


def test_the_run_table_is_the_record(tmp_path: Path) -> None:
    with measured(tmp_path / "study.db") as study:
        now = study.snapshot()
        assert [line.label.split()[0] for line in now.run_lines] == [str(run.id) for run in study.runs()]
        assert [line.score.mean for line in now.run_lines if line.score is not None] == [
            run.mean for run in study.runs()
        ]
        file = replace(now, record=None)
        assert [line.state for line in file.run_lines] == ["measured"] * len(now.run_lines)


def test_scores_in_a_file_need_no_database() -> None:
    program = (
        "import sys; from factored_scaling.study import Snapshot\n"
        "print({'sqlalchemy', 'matplotlib', 'jinja2'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "set()"
