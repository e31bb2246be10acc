"""The first page: what it says of a study at every stage, and that it costs little to watch."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, event
from starlette.testclient import TestClient
from tests.web.conftest import client_of, measure, wipe_spec

from factored_scaling.core.design import plan
from factored_scaling.core.trials import Trial
from factored_scaling.scoring.session import Scoring
from factored_scaling.store import RunRow, Store
from factored_scaling.store.documents import JOBS
from factored_scaling.study import Study
from factored_scaling.web.files import LONGEST_LOG
from factored_scaling.web.overview import _facts, duration_words, time_left


@pytest.fixture
def row(study: Study) -> RunRow:
    return study.runs()[0]


def done(row: RunRow, seconds: float) -> RunRow:
    return replace(row, state="done", started=1000.0, finished=1000.0 + seconds)


def running(row: RunRow, since: float, lease: float = 1e6) -> RunRow:
    return replace(row, state="running", started=since, lease_expires=lease)


def test_time_left_is_the_median_of_finished_runs_times_those_waiting(row: RunRow) -> None:
    runs = [done(row, 100), done(row, 200), done(row, 900), row, row, row]
    left = time_left(runs, 5000.0)
    assert left is not None
    assert (left.seconds, left.known, left.abreast) == (600.0, 3, 1)


def test_runs_at_work_share_the_rest_and_the_slowest_ends_last(row: RunRow) -> None:
    runs = [done(row, 100), running(row, 4980), running(row, 4940), row, row]
    left = time_left(runs, 5000.0)
    assert left is not None
    assert (left.seconds, left.abreast) == ((80 + 40 + 200) / 2, 2)
    alone = time_left([done(row, 100), running(row, 4990), running(row, 4000)], 5000.0)
    assert alone is not None
    assert alone.seconds == 90.0


def test_a_run_past_its_time_ends_soon_and_an_abandoned_one_begins_again(row: RunRow) -> None:
    late = time_left([done(row, 100), running(row, 0)], 5000.0)
    assert late is not None
    assert late.seconds == 5.0
    abandoned = time_left([done(row, 100), running(row, 0, lease=4000.0)], 5000.0)
    assert abandoned is not None
    assert abandoned.seconds == 100.0


def test_without_a_finished_run_or_with_nothing_left_there_is_no_time_to_tell(row: RunRow) -> None:
    assert time_left([row], 0.0) is None
    assert time_left([done(row, 100)], 5000.0) is None
    assert time_left([replace(row, state="done", finished=1.0), row], 5000.0) is None, "told, never timed"
    assert time_left([done(row, 100), replace(row, state="failed")], 5000.0) is None


def test_training_is_what_lasts_where_people_measure(row: RunRow) -> None:
    trained = replace(row, state="trained", started=1000.0, trained=1100.0)
    finished = replace(done(row, 90_000), trained=1300.0)
    left = time_left([trained, finished, row], 5000.0)
    assert left is not None
    assert left.seconds == 200.0


def test_time_of_those_that_trained_counts_with_that_of_those_that_measured(study: Study, tmp_path: Path) -> None:
    now = 1000.0
    with Study(Store.open(tmp_path / "timed.db", clock=lambda: now), 1) as timed:
        timed.store.create_study("timed", study.spec, study.dataset, plan(study.spec, study.dataset))

        def train(seconds: float) -> None:
            nonlocal now
            run = timed.ask(1, worker="a", stage="train")[0]
            now += seconds
            timed.hand_over(run.id, "policy")

        train(100.0)
        run = timed.ask(1, worker="b", stage="evaluate")[0]
        now += 20.0
        timed.tell(run.id, [1.0])
        for _ in range(len(timed.runs()) - 1):
            train(90.0)
        left = time_left(timed.store.outline(1), now, timed.store.earlier_work(1))
        assert left is not None
        assert left.seconds == pytest.approx(30.0 * (len(timed.runs()) - 1))
        timed.ask(1, worker="b", stage="evaluate")
        now += 10.0
        later = time_left(timed.store.outline(1), now, timed.store.earlier_work(1))
        assert later is not None
        assert later.seconds == pytest.approx(left.seconds - 10.0)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "1 s"),
        (45, "45 s"),
        (600, "10 min"),
        (7140, "119 min"),
        (8000, "2 h 15 min"),
        (10_800, "3 h"),
        (3e5, "3 days 11 h"),
    ],
)
def test_durations_are_as_exact_as_they_deserve(seconds: float, words: str) -> None:
    assert duration_words(seconds) == words


def test_the_page_counts_runs_by_state_and_gives_reasons(study: Study, client: TestClient) -> None:
    assert "0 of 5 policies are measured." in client.get("/").text
    measure(study, 2)
    (running, failing) = study.ask(2, worker="bench-7")
    study.record(running.id, [Trial("a", 1.0, ("lighting",))])
    study.fail(failing.id, "Traceback …\n  in <module>\nOutOfMemory: <b>no room</b>")
    text = client.get("/").text
    assert "2 of 5 policies are measured." in text
    assert "1 running, 1 pending and 1 failed." in text
    assert "left, judged by 2 finished runs, 1 at a time." in text
    assert "bench-7, for less than a minute · 1 trials so far" in text
    assert "OutOfMemory: &lt;b&gt;no room&lt;/b&gt;" in text
    assert "wipe &lt;table&gt;" in text
    assert "<table>:" not in text.replace("&lt;table&gt;", "")


def next_of(client: TestClient) -> str:
    found = re.search(r'<p class="next">(.*?)</p>', client.get("/").text)
    assert found is not None
    return html.unescape(re.sub(r"</?(b|code|span)( class=\"command\")?>", "", found[1]))


def test_the_page_says_what_to_do_next(study: Study, client: TestClient) -> None:
    assert next_of(client) == "Next: train and record the pending policies: fsc runs my-study --state pending"
    (run,) = study.ask(1)
    assert next_of(client) == "Next: nothing to do; 1 run is at work"
    study.fail(run.id, "no room")
    assert "pending policies" in next_of(client)
    (other,) = study.ask(1)
    assert next_of(client) == "Next: see below why 1 failed; 1 run is at work"
    study.release(other.id)
    measure(study, 3)
    (last,) = study.ask(1)
    study.trained(last.id)
    assert next_of(client) == "Next: queue trials of the trained policy: fsc sheet evaluate my-study"
    scoring = Scoring.begin(study, [last.id])
    left = scoring.progress().left
    assert next_of(client) == f'Next: <a href="/score?evaluation=1">score the {left} trials that are left</a>'
    for trial in scoring.trials():
        scoring.score(trial.code, 1.0, "ada", trial.code)
    assert next_of(client) == 'Next: <a href="/score?evaluation=1">finish the evaluation</a>'
    scoring.close()
    assert next_of(client) == ("Next: solve what made runs fail, then try them again: fsc runs my-study --state failed")
    study.store.retry(run.id)
    measure(study, 1)
    assert next_of(client) == 'Next: <a href="/curves">see what to collect</a>'


def test_studies_that_fsc_trains_are_pointed_to_fsc_run(tmp_path: Path) -> None:
    spec = wipe_spec().changed(trainer={"command": "true"})
    with Study.create(spec, tmp_path / "own.db") as study, client_of(study) as client:
        assert next_of(client) == "Next: train the pending policies: fsc run my-study"
        for run in study.ask(5):
            study.fail(run.id, "no room")
        assert next_of(client).endswith("fsc run my-study --retry-failed")


def test_runs_link_to_their_logs_and_videos_and_to_nothing_else(study: Study, tmp_path: Path) -> None:
    run = study.runs()[0]
    folder = tmp_path / "runs" / run.digest
    (folder / "videos").mkdir(parents=True)
    (folder / "log.txt").write_bytes(b"x" * LONGEST_LOG + b"\nthe end <b>\xff\n")
    (folder / "train.log").write_text("step 1")
    (folder / "videos" / "all failures.mp4").write_bytes(bytes(range(256)) * 10)
    (folder / "policy.safetensors").write_text("weights")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    with client_of(study, folder=tmp_path) as client:
        found = re.findall(r'<a href="(/files/[^"]*)">([^<]*)</a>', client.get("/").text)
        base = f"/files/{run.digest}"
        assert found == [
            (f"{base}/log.txt", "log"),
            (f"{base}/train.log", "train.log"),
            (f"{base}/videos/all%20failures.mp4", "all failures"),
        ]
        log = client.get(found[0][0])
        assert log.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert (len(log.content), log.content[-9:]) == (LONGEST_LOG, b"end <b>\xff\n")
        video = client.get(found[2][0], headers={"Range": "bytes=0-9"})
        assert (video.status_code, video.content) == (206, bytes(range(10)))
        for name in ("link.txt", "policy.safetensors", "../../secret.txt", "%2e%2e/%2e%2e/secret.txt", "videos", ""):
            assert client.get(f"{base}/{name}").status_code == 404, name
        assert client.get("/files/../secret.txt").status_code == 404
        assert client.get("/files/%2e%2e/secret.txt").status_code == 404
    with client_of(study) as client:
        assert client.get(f"{base}/log.txt").status_code == 404, "a study without a folder"
        assert "/files/" not in client.get("/").text


def test_runs_link_to_the_logs_of_their_jobs_and_to_nothing_else_of_them(study: Study, tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "slurm-a"
    folder.mkdir(parents=True)
    for job in ("17_1", "17_2"):
        (folder / f"{job}_0_log.out").write_text(f"job {job}")
    (folder / "job.json").write_text("address with a password")
    (tmp_path / "secret.log").write_text("secret")
    (folder / "link.log").symlink_to(tmp_path / "secret.log")
    # it was submitted elsewhere, where the shared folder has another path
    submission = {"executor": "slurm", "logs": "/other/jobs/slurm-a", "ids": ["17_1", "17_2", "17_3"]}
    study.store.put_document(study.id, JOBS, "slurm-a", submission)
    _, second, _ = (study.ask(1, worker=f"slurm:17_{k} node:1")[0] for k in (1, 2, 3))
    study.fail(second.id, "out of memory")
    with client_of(study, folder=tmp_path) as client:
        text = client.get("/").text
        found = re.findall(r'<a href="(/jobs/[^"]*)">job log</a>', text)
        # the run at work on its card and in the table, the failed one on its card; the third has left no log yet
        assert found == [f"/jobs/slurm-a/17_{k}_0_log.out" for k in (1, 2, 1)]
        assert client.get(found[0]).text == "job 17_1"
        for name in ("job.json", "link.log", "..%2f..%2fsecret.log", "%2e%2e/secret.log", "17_9_0_log.out"):
            assert client.get(f"/jobs/slurm-a/{name}").status_code == 404, name
        for place in ("/jobs/../secret.log", "/jobs/%2e%2e/secret.log", "/jobs/%2e/secret.log", "/jobs/secret.log"):
            assert client.get(place).status_code == 404, place
    with client_of(study) as client:
        assert client.get(found[0]).status_code == 404, "a study without a folder"
        assert "/jobs/" not in client.get("/").text


def test_runs_of_changed_settings_stand_together_below_what_changed(tmp_path: Path) -> None:
    before = wipe_spec().changed(policy={"updates": 200, "batch": 8})
    after = before.changed(policy={"updates": 400, "batch": 8})
    with Study.create(before, tmp_path / "study.db") as study:
        measure(study, 2)
    with Study.open(tmp_path / "study.db", settings=after) as study:
        study.plan()
        with client_of(study) as client:
            text = client.get("/").text
        counts = [len(re.findall(r'<th scope="row">', part)) for part in text.split('class="group"')[1:]]
        titles = re.findall(r'class="group"><th[^>]*><span>([^<]*)', text)
        assert titles == ["Settings of study.yaml", "Planned with other settings: policy.updates 200 (now 400)"]
        states = [run.settings["policy"]["updates"] for run in study.runs()]
        assert counts[0] == states.count(400)


def test_a_finished_study_says_so(study: Study, client: TestClient) -> None:
    measure(study, 5)
    assert "All 5 policies are measured." in client.get("/").text


def test_screening_is_not_said_to_have_curves(study: Study) -> None:
    for construction, said in (("one", "2 (one)"), ("screen", "none (screen)")):
        spec = study.spec.changed(construction=construction)
        assert ("curves", said) in _facts(spec, study.runs(), study.store.rounds(study.id), 0)


def test_rounds_are_listed_with_what_was_collected(study: Study, client: TestClient) -> None:
    measure(study, 5)
    study.extend({"camera_pose": 20, "lighting": 4})
    text = client.get("/").text
    assert "camera pose +20, lighting +4" in text
    assert "5 of 5" in text


def test_a_long_table_has_pages(study: Study, client: TestClient) -> None:
    assert "Pages of the table" not in client.get("/").text
    for seed in range(1, 250):
        study.add({"camera_pose": 1, "lighting": 1}, seed)
    rows = study.runs()
    assert len(rows) == 254
    study.tell(rows[110].id, [1.0, 0.0, 1.0])
    study.tell(rows[111].id, 0.625)
    first, second, last = (client.get(f"/?page={page}").text for page in (1, 2, 3))
    for text, (begin, end) in zip((first, second, last), ((0, 100), (100, 200), (200, 254)), strict=True):
        assert f"{begin + 1}–{end} of 254" in text
        assert [row.digest[:8] in text for row in rows] == [begin <= place < end for place in range(254)]
    assert "66.7%" in second
    assert "62.5%" in second
    assert "Previous" not in first
    assert 'href="/?page=2#runs-title">Next' in first
    assert 'href="/?page=1#runs-title">Previous' in second
    assert ">Next<" not in last
    assert client.get("/").text == first
    assert client.get("/?page=99").text == last, "runs may be withdrawn while somebody looks at the last page"
    assert client.get("/overview?page=2").text.strip() in second
    assert client.get("/?page=0").status_code == 422


def test_many_failures_are_counted_and_some_are_shown(study: Study, client: TestClient) -> None:
    for seed in range(1, 40):
        study.add({"camera_pose": 1, "lighting": 1}, seed)
    for number, run in enumerate(study.ask(30)):
        study.fail(run.id, f"reason number {number:02}")
    study.ask(14, worker="bench")
    text = client.get("/").text
    assert [f"reason number {number:02}" in text for number in range(30)] == [True] * 24 + [False] * 6
    assert "And 6 more; <code>fsc runs --state failed</code> lists them." in text
    assert text.count("bench, for less than a minute") == 14


def test_a_page_reads_what_it_shows(study: Study, client: TestClient) -> None:
    """Whatever the study's size: the number of queries does not grow with the number of runs."""

    def queries() -> int:
        seen: list[str] = []
        event.listen(Engine, "before_cursor_execute", look := lambda *given: seen.append(given[2]))
        try:
            client.get("/overview")
        finally:
            event.remove(Engine, "before_cursor_execute", look)
        assert not [statement for statement in seen if "fsc_runs.spec" in statement]
        return len(seen)

    few = queries()
    measure(study, 5)
    for seed in range(1, 90):
        study.tell(study.add({"camera_pose": 1, "lighting": 1}, seed), [1.0, 0.0])
    assert queries() == few


def test_the_part_is_sent_again_only_when_it_changed(study: Study, client: TestClient) -> None:
    first = client.get("/overview")
    tag = first.headers["ETag"]
    again = client.get("/overview", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    measure(study, 1)
    changed = client.get("/overview", headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["ETag"] != tag
    assert client.get("/").text.count(changed.text.strip()) == 1, "the page is made of the same part"
