"""fsc run: groups of runs in the progress, and the command itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.runner.test_worker import make_study

from factored_scaling.cli import main
from factored_scaling.cli.run import Bars, named
from factored_scaling.runner.events import RunEnded, RunProgress, Started
from factored_scaling.study import Study


def test_a_group_is_one_bar_and_its_runs_end_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    with Bars() as bars:
        bars.hear(Started(0, 4, 1))
        bars.hear(RunProgress("train", (1, 2, 3), 50, 100, "3 policies"))
        assert len(bars._tasks) == 1
        bars.hear(RunProgress("evaluate", (1, 3), 5, 10, "rolling out"))
        assert list(bars._tasks) == [(1, 3)]
        bars.hear(RunEnded(2, "failed", "the loss is nan" + " and so on" * 20))
        bars.hear(RunEnded(1, "done", ""))
        assert [group for group in bars._tasks if 3 in group]
        bars.hear(RunEnded(3, "done", ""))
        assert not bars._tasks
    told = capsys.readouterr().err
    assert f"run 2: failed: the loss is nan{' and so on' * 20}\n" in told  # one line, however long
    assert "run 3 done (3 of 4" in told
    assert named((4,)) == "run 4"
    assert named((4, 9, 6)) == "3 runs, 4 to 9,"


def test_where_no_bars_are_drawn_a_line_tells_now_and_then_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("factored_scaling.cli.run._now", lambda: now)
    with Bars() as bars:
        bars.hear(Started(0, 2, 1))
        for now in (1.0, 59.0, 61.0, 62.0, 120.0, 122.0):
            bars.hear(RunProgress("train", (1,), int(now), 200, "loss 0.1"))
    assert capsys.readouterr().err.splitlines() == [
        "run 1 training: 61 of 200 (6:23 left)",
        "run 1 training: 122 of 200 (5:22 left)",
    ]


def test_time_left_is_not_guessed_from_what_comes_before_training(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("factored_scaling.cli.run._now", lambda: now)
    with Bars() as bars:
        bars.hear(Started(0, 1, 1))
        now = 30.0
        bars.hear(RunProgress("prepare", (1,), 2, 4, "reading frames"))
        now = 100.0
        bars.hear(RunProgress("prepare", (1,), 4, 4, "reading frames"))
        now = 190.0
        bars.hear(RunProgress("train", (1,), 50, 100, "loss 0.1"))
    assert capsys.readouterr().err.splitlines() == [
        "run 1 preparing: 4 of 4 (reading frames)",
        "run 1 training: 50 of 100 (1:50 left)",  # 90 s for 0.45 of the run
    ]


def test_time_left_counts_only_the_work_since_the_command_was_given(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("factored_scaling.cli.run._now", lambda: now)
    with Bars() as bars:
        bars.hear(Started(6, 10, 1, frozenset({7})))
        now = 10.0
        bars.hear(RunProgress("train", (7,), 0, 1, "loading"))  # a program that has not said yet where it goes on
        now = 15.0
        bars.hear(RunProgress("train", (7,), 600, 1000, ""))
        now = 115.0
        bars.hear(RunProgress("train", (7,), 700, 1000, ""))
        assert not bars._time_left()  # a tenth of a run says too little
        now = 415.0
        bars.hear(RunProgress("train", (7,), 1000, 1000, ""))  # 0.36 of a run in 400 s
        bars.hear(RunEnded(7, "done", ""))
        bars.hear(RunProgress("train", (8,), 0, 1000, ""))
        assert bars._time_left() == f"{(400 / 0.46 * 3) // 60:.0f}:{(400 / 0.46 * 3) % 60:02.0f} left"
        bars.hear(RunProgress("train", (8,), 500, 1000, ""))
        bars.hear(RunEnded(8, "retry", "a worker died"))
        bars.hear(RunProgress("train", (8,), 500, 1000, ""))  # from its checkpoint: that work counts once
        assert bars._work() == pytest.approx(0.46 + 0.45)
    assert "run 7 done (7 of 10; 43:29 left)" in capsys.readouterr().err
    with Bars() as bars:
        bars.hear(Started(6, 10, 1, frozenset({7})))
        bars.hear(RunEnded(7, "done", ""))  # measured again, or all of it was there
    assert "run 7 done (7 of 10)" in capsys.readouterr().err


def test_time_left_includes_a_later_step_and_starts_anew_with_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("factored_scaling.cli.run._now", lambda: now)
    with Bars() as bars:
        bars.later = 2
        bars.hear(Started(0, 2, 1))
        bars.hear(RunProgress("train", (1,), 0, 10))
        now = 60.0
        bars.hear(RunEnded(1, "done"))
        assert bars.seconds_left() == 180.0
        bars.hear(RunProgress("train", (2,), 0, 10))
        now = 120.0
        bars.hear(RunEnded(2, "done"))
        assert bars.seconds_left() == 120.0
        bars.later = 0
        bars.hear(Started(0, 2, 1))  # of another study
        assert bars.seconds_left() is None
        bars.hear(RunProgress("train", (1,), 0, 10))
        now = 240.0
        bars.hear(RunEnded(1, "done"))
        assert bars.seconds_left() == 120.0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "run 1 done (1 of 2; 3:00 left in all)"
    assert lines[-1] == "run 1 done (1 of 2; 2:00 left)"


@pytest.mark.slow
def test_the_command_trains_together(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    make_study(tmp_path).close()
    with pytest.raises(SystemExit) as ended:
        main(["run", str(tmp_path), "--together", "2"])
    assert ended.value.code in (0, None)
    assert "all runs are done" in capfd.readouterr().out
    with Study.open(tmp_path / "study.db") as study:
        assert {run.state for run in study.runs()} == {"done"}
        logs = [(tmp_path / "runs" / run.digest / "log.txt").read_text() for run in study.runs()]
    assert sum("one of 2 together" in log for log in logs) == 2


@pytest.mark.parametrize(("device", "workers"), [("cpu", 3), ("mps", 1), ("xpu:0", 1)])
def test_one_worker_on_a_gpu_of_any_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, workers: int
) -> None:
    counts: list[int] = []

    def start(count: int, *_: object, **__: object) -> bool:
        counts.append(count)
        return True

    monkeypatch.setattr("factored_scaling.runner.executors.local.run_workers", start)
    monkeypatch.setattr("factored_scaling.policies.capacity.check_device", lambda device: None)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setenv("FSC_SIM_PROCESSES", "1")
    make_study(tmp_path).close()
    with pytest.raises(SystemExit):
        main(["run", str(tmp_path), "--device", device])
    assert counts == [workers]


@pytest.mark.parametrize(
    "command",
    [
        ["run", "STUDY"],
        ["remix", "STUDY"],
        ["policy", "serve", "STUDY/run"],
        ["sim", "video", "tabletop/pick-place", "--policy", "STUDY/run", "--out", "STUDY/x.mp4"],
    ],
)
def test_a_device_that_is_not_there_is_bad_input(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_study(tmp_path).close()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "policy.json").write_text("{}")
    with pytest.raises(SystemExit) as ended:
        main([*(word.replace("STUDY", str(tmp_path)) for word in command), "--device", "gpu"])
    assert ended.value.code == 2
    assert "no such device: 'gpu'" in capsys.readouterr().err
