"""The pages in a real browser: a day of scoring with everything that can go wrong, and how the pages look."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import imageio_ffmpeg
import pytest
import yaml
from playwright.sync_api import Browser, Page, expect
from tests.report.cases import study as study_of_scores
from tests.web.browsing import CONTRAST, DESKTOP, PHONE, opened, started
from tests.web.conftest import STEEP, Served, bench_spec, measure, towel_spec, wipe_spec

from factored_scaling.cli.sheet_forms import collection_text, evaluation_text
from factored_scaling.report import render
from factored_scaling.scoring.session import Scoring
from factored_scaling.scoring.sheets import begin_collection
from factored_scaling.study import Snapshot, Study
from factored_scaling.web.serve import outside_address

pytestmark = pytest.mark.slow
expect.set_options(timeout=20_000)  # a page that waits looks again every five seconds
SCORES = (0.0, 0.25, 0.5, 1.0)
TRIALS = 12
# where a phone comes from: over plain HTTP from another address, browsers take away much that they allow on localhost
NETWORK = ("--host", "0.0.0.0" if outside_address() else "127.0.0.1", "--token")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started() as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve trials of three policies are queued."""
    made = tmp_path / "towel"
    made.mkdir()
    (made / "study.yaml").write_text(yaml.safe_dump(towel_spec().to_mapping(), sort_keys=False))
    with Study.create(towel_spec(), made / "study.db") as study:
        Scoring.begin(study, [1, 2, 3], seed=5)
    return made


@pytest.fixture
def scoring(folder: Path) -> Iterator[Scoring]:
    """The record, read beside the server."""
    with Study.open(folder / "study.db") as study:
        yield Scoring.open(study)


def score_page(served: Served) -> str:
    """What the code for a phone's camera holds."""
    base, mark, token = served.url.partition("?")
    return f"{base}score{mark}{token}"


def sign_in(page: Page, served: Served, name: str) -> None:
    page.goto(score_page(served))
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Begin").click()
    ready(page)


def ready(page: Page, after: str = "") -> str:
    """Wait for the trial after `after`, until its buttons can be pressed; returns its code."""
    other = f':not([data-code="{after}"])' if after else ""
    code = page.locator(f"#trial:not(.locked){other}").get_attribute("data-code")
    assert code is not None
    return code


def back(page: Page, code: str) -> None:
    """Wait until this trial is there again to be scored."""
    expect(page.locator(f'#trial[data-code="{code}"]:not(.locked)')).to_be_visible()


def addresses_of(page: Page) -> list[str]:
    """Every address that the page asks for from now on."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    return asked


def press(page: Page, choice: str) -> None:
    page.locator(f'#trial button[value="{choice}"]').click()


class Day:
    """What the operators meant to say, to hold the record against."""

    def __init__(self) -> None:
        self.meant: dict[str, tuple[float, str]] = {}

    def score(self, page: Page, wait: bool = True) -> str:
        """Give the trial on the page the next score of a fixed row."""
        code = ready(page)
        value = SCORES[len(self.meant) % 4]
        press(page, f"score:{value}")
        self.meant[code] = (value, "")
        if wait and len(self.meant) < TRIALS - 1:  # the last one is on the other phone
            ready(page, after=code)
        return code


def test_a_day_of_scoring(browser: Browser, folder: Path, scoring: Scoring, serve: Callable[..., Served]) -> None:
    """Start, score, undo, kill the server in the middle, restart, go on with two phones, finish: rows exactly right."""
    day = Day()
    served = serve(folder, "--port", "0", *NETWORK)
    with opened(browser) as ada:
        sign_in(ada, served, "ada")
        for _ in range(3):
            day.score(ada)
        # undo, and another score instead
        before = ready(ada)
        ada.get_by_role("button", name="Undo").click()
        wrong = ready(ada, after=before)
        assert wrong in day.meant
        press(ada, "score:0.25")
        day.meant[wrong] = (0.25, "")
        assert ready(ada, after=wrong) == before, "the trial that was waiting comes back"
        # a hazard, with a note that looks like markup
        ada.get_by_label("Note").fill("hit <b>the</b> table & stopped")
        press(ada, "ending:hazard")
        day.meant[before] = (0.0, "hazard; hit <b>the</b> table & stopped")
        ready(ada, after=before)
        # the server dies, the operator scores, the server comes back
        served.kill()
        kept = day.score(ada, wait=False)
        expect(ada.get_by_text("Kept on this phone.")).to_be_visible()
        expect(ada.get_by_text("1 score is kept on this phone")).to_be_visible()
        assert scoring.trial(kept).state == "open"
        served = serve(folder, "--port", str(served.port), *NETWORK)
        ready(ada, after=kept)
        assert scoring.trial(kept).state == "scored"
        # the answer is lost on its way back: the score is sent again, and counts once
        lost: list[int] = []

        def lose(route: object) -> None:
            lost.append(route.fetch().status)  # type: ignore[attr-defined]
            route.abort()  # type: ignore[attr-defined]

        ada.route("**/entry", lose, times=1)
        code = day.score(ada)
        assert lost == [200]
        assert [row.entry.kind for row in scoring.history() if row.code == code] == ["score"]
        with opened(browser) as grace:
            sign_in(grace, served, "grace")
            while len(day.meant) < TRIALS - 1:
                held = [ready(ada), ready(grace)]
                assert held[0] != held[1], "two phones show the same trial"
                for page in (ada, grace):
                    if len(day.meant) < TRIALS - 1:
                        day.score(page)
                        waiter = page
            # the phone that scored last but one has none left, and waits for the other
            holder = grace if waiter is ada else ada
            expect(waiter.get_by_text("All other trials are being run.")).to_be_visible()
            day.score(holder)
            for page in (holder, waiter):
                expect(page.get_by_text("Every trial is scored.")).to_be_visible()
        ada.get_by_text("Finish evaluation 1").click()
        expect(ada.get_by_text("no score of evaluation 1 can be changed")).to_be_visible()
        assert not scoring.progress().closed, "it asks once"
        ada.get_by_role("button", name="Yes, finish").click()
        expect(ada.get_by_text("Finished.")).to_be_visible()
    said = {
        trial.code: (trial.score, "; ".join([trial.ending, *trial.notes]).strip("; ")) for trial in scoring.trials()
    }
    assert said == day.meant
    trials = [trial for run in scoring.study.runs() for trial in scoring.study.store.trials(run.id)]
    assert {trial.key.rpartition("/")[2]: (trial.score, trial.note) for trial in trials} == day.meant
    assert len(trials) == TRIALS
    assert [run.state for run in scoring.study.runs()] == ["done"] * 3 + ["pending"] * 2


def test_a_score_outlives_the_page_and_a_browser_without_storage(
    browser: Browser, folder: Path, scoring: Scoring, serve: Callable[..., Served]
) -> None:
    served = serve(folder, "--port", "0")
    with opened(browser) as page:
        sign_in(page, served, "ada")
        served.kill()
        code = ready(page)
        press(page, "score:0.5")
        expect(page.get_by_text("Kept on this phone.")).to_be_visible()
        page.close()  # the phone is put away, its browser ends the page
        served = serve(folder, "--port", str(served.port))
        again = page.context.new_page()
        again.goto(f"{served.url}score")
        ready(again, after=code)
        assert scoring.trial(code).score == 0.5
    with opened(browser) as private:
        private.add_init_script("Storage.prototype.setItem = () => { throw new Error('full'); }")
        sign_in(private, served, "grace")
        code = ready(private)
        private.context.set_offline(True)
        press(private, "score:1.0")
        expect(private.get_by_text("1 score is kept")).to_contain_text("leave it open")
        private.context.set_offline(False)
        ready(private, after=code)
        assert scoring.trial(code).score == 1.0


def test_undo_without_a_connection_and_a_trial_that_somebody_else_scored(
    browser: Browser, folder: Path, scoring: Scoring, serve: Callable[..., Served]
) -> None:
    served = serve(folder, "--port", "0")
    with opened(browser) as page:
        sign_in(page, served, "ada")
        code = ready(page)
        page.context.set_offline(True)
        press(page, "score:0.0")
        page.get_by_role("button", name="Undo").click()
        expect(page.get_by_text("2 scores are kept")).to_be_visible()
        page.context.set_offline(False)
        back(page, code)
        assert [row.entry.kind for row in scoring.history()] == ["score", "undo"]
        scoring.release(str(scoring.trial(code).operator))
        scoring.score(code, 1.0, "grace", "by hand")
        press(page, "score:0.0")
        expect(page.get_by_role("alert")).to_contain_text("is scored already, by grace")
        ready(page, after=code)
        assert scoring.trial(code).score == 1.0


def test_a_second_tap_scores_nothing_and_keys_score(
    browser: Browser, folder: Path, scoring: Scoring, serve: Callable[..., Served]
) -> None:
    served = serve(folder, "--port", "0")
    with opened(browser) as page:
        sign_in(page, served, "ada")
        first = ready(page)
        page.locator('#trial button[value="score:1.0"]').dblclick(no_wait_after=True)
        second = ready(page, after=first)
        assert scoring.progress().scored == 1
        expect(page.get_by_role("alert")).to_have_text("")
        page.keyboard.press("3")
        third = ready(page, after=second)
        page.keyboard.press("h")
        fourth = ready(page, after=third)
        assert [scoring.trial(code).score for code in (first, second, third)] == [1.0, 0.5, 0.0]
        page.keyboard.press("u")
        assert ready(page, after=fourth) == third


def test_the_page_scores_without_scripts(
    browser: Browser, folder: Path, scoring: Scoring, serve: Callable[..., Served]
) -> None:
    served = serve(folder, "--port", "0", *NETWORK)
    with opened(browser, java_script_enabled=False) as page:
        page.goto(score_page(served))
        page.get_by_label("Name").fill("ada")
        page.get_by_role("button", name="Begin").click()
        page.get_by_role("button", name="Next trial").click()
        code = ready(page)
        page.get_by_label("Note").fill("by hand")
        press(page, "score:0.25")
        ready(page, after=code)
        page.get_by_role("button", name="Undo").click()
        back(page, code)
        press(page, "score:1.0")
        ready(page, after=code)
    assert [(row.entry.kind, row.entry.score) for row in scoring.history()] == [
        ("score", 0.25),
        ("undo", None),
        ("score", 1.0),
    ]


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """Four trials of one policy: a red lamp, then the camera far left, or the other way round, twice."""
    made = tmp_path / "bench"
    made.mkdir()
    (made / "study.yaml").write_text(yaml.safe_dump(bench_spec().to_mapping(), sort_keys=False))
    with Study.create(bench_spec(), made / "study.db") as study:
        Scoring.begin(study, [1], seed=2)
    return made


def scene_on(page: Page) -> dict[str, str]:
    """Every factor on the page with what stands beside it; what has to be done is marked with an exclamation mark."""
    rows = page.locator(".setup div").all()
    mark = ["! " if row.get_attribute("class") == "changed" else "" for row in rows]
    texts = [row.inner_text().split("\n", 1) for row in rows]
    return {name: before + " ".join(value.split()) for before, (name, value) in zip(mark, texts, strict=True)}


@pytest.mark.parametrize("size", [PHONE, DESKTOP])
def test_scenes_change_and_go_back_to_normal(
    browser: Browser, bench: Path, serve: Callable[..., Served], size: tuple[int, int]
) -> None:
    served = serve(bench, "--port", "0")
    lit = {"camera pose": "normal", "lighting": "red lamp", "table": "normal"}
    posed = {"camera pose": "far left", "lighting": "normal", "table": "normal"}
    to_lit = {"camera pose": "! back to normal was far left", "lighting": "! red lamp was normal", "table": "normal"}
    to_posed = {"camera pose": "! far left was normal", "lighting": "! back to normal was red lamp", "table": "normal"}
    with opened(browser, size) as page:
        sign_in(page, served, "ada")
        advice = page.locator(".scene .sub")
        expect(advice).to_have_text("Set up the whole scene.")
        begun = lit if "red lamp" in scene_on(page)["lighting"] else posed
        assert scene_on(page) == {name: f"! {value}" for name, value in begun.items()}
        stood, changes = begun, 0
        code = ready(page)
        for _ in range(3):
            press(page, "score:0.5")
            code = ready(page, after=code)
            shown = scene_on(page)
            if shown == stood:
                expect(advice).to_have_text("Same scene as your last trial.")
                continue
            assert shown == (to_posed if stood is lit else to_lit)
            expect(advice).to_have_text("2 changes from your last trial.")
            stood, changes = (posed if stood is lit else lit), changes + 1
        assert changes >= 1


def test_buttons_stay_where_they_are(browser: Browser, bench: Path, serve: Callable[..., Served]) -> None:
    """Whatever the scene, the message above it or a long note need, a thumb finds the same button at the same place."""
    served = serve(bench, "--port", "0")
    for size in (PHONE, DESKTOP):
        with opened(browser, size) as page:
            sign_in(page, served, f"ada at {size[0]}")

            def places(page: Page = page) -> list[object]:
                return [button.bounding_box() for button in page.locator(".answer button").all()]

            code = ready(page)
            before = places()
            page.get_by_label("Note").fill("slipped")
            press(page, "score:0.5")
            code = ready(page, after=code)
            assert places() == before, "another scene, and an undo line"
            page.get_by_role("button", name="Undo").click()
            code = ready(page, after=code)
            expect(page.get_by_label("Note")).to_have_value("slipped")
            assert places() == before
            page.evaluate("document.querySelector('#unsent').hidden = false")
            page.evaluate("document.querySelector('#unsent').textContent = 'No connection. '.repeat(20)")
            page.evaluate("document.querySelector('#note').style.height = '300px'")
            assert places() == before, "a message and a long note"


def test_a_half_written_note_survives_an_undo(browser: Browser, bench: Path, serve: Callable[..., Served]) -> None:
    served = serve(bench, "--port", "0")
    with opened(browser) as page:
        sign_in(page, served, "ada")
        first = ready(page)
        press(page, "score:0.5")
        second = ready(page, after=first)
        page.get_by_label("Note").fill("half a no")
        page.get_by_role("button", name="Undo").click()
        back(page, first)
        expect(page.get_by_label("Note")).to_have_value("")
        press(page, "score:1.0")
        back(page, second)
        expect(page.get_by_label("Note")).to_have_value("half a no")


def test_sheets_fit_a_phone(browser: Browser, bench: Path) -> None:
    """The list of demonstrations as a whole; of the sheet of trials the scenes, while its boxes scroll sideways."""
    with Study.open(bench / "study.db") as study:
        listed = collection_text(study, begin_collection(study, {"camera_pose": 2, "lighting": 2, "table": 1}), "html")
        (bench / "collect.html").write_text(listed)
        (bench / "evaluate.html").write_text(evaluation_text(Scoring.open(study), "html"))
    with opened(browser, PHONE) as page:
        for name in ("collect", "evaluate"):
            page.goto((bench / f"{name}.html").as_uri())
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide == 0, name
        page.locator(".wide").evaluate("element => element.scrollLeft = 1000")
        for place in page.locator(".scene .value").all():
            box = place.bounding_box()
            assert box is not None
            assert 0 <= box["x"] < box["x"] + box["width"] <= PHONE[0]


@pytest.fixture
def wiping(tmp_path: Path) -> Iterator[Study]:
    with Study.create(wipe_spec(), tmp_path / "study.db") as study:
        measure(study, 4)
        (run,) = study.ask(1, worker="bench-7")
        study.fail(run.id, "Traceback\nOutOfMemory: no room")
        yield study


def test_logs_and_videos_open_from_the_overview(browser: Browser, folder: Path, serve: Callable[..., Served]) -> None:
    with Study.open(folder / "study.db") as study:
        place = folder / "runs" / study.runs()[0].digest
    place.mkdir(parents=True)
    (place / "log.txt").write_text("attempt 1: <b>12</b> demos")
    writer = imageio_ffmpeg.write_frames(str(place / "failures.mp4"), (64, 48), fps=10)
    writer.send(None)
    for shade in range(20):
        writer.send(bytes([10 * shade]) * (64 * 48 * 3))
    writer.close()
    served = serve(folder, "--port", "0")
    with opened(browser, DESKTOP) as page:
        page.goto(served.url)
        page.get_by_role("link", name="log").click()
        expect(page.get_by_text("attempt 1: <b>12</b> demos")).to_be_visible()
        page.go_back()
        page.get_by_role("link", name="failures").click()
        expect(page.locator("video")).to_have_js_property("videoWidth", 64)


def test_the_overview_follows_the_record_by_itself(
    browser: Browser, wiping: Study, tmp_path: Path, serve: Callable[..., Served]
) -> None:
    served = serve(f"sqlite:///{tmp_path}/study.db", "--port", "0")
    with opened(browser, DESKTOP) as page:
        page.goto(served.url)
        expect(page.get_by_role("heading", level=1)).to_contain_text("4 of 5 policies are measured.")
        page.get_by_text("full error").click()
        run = next(run for run in wiping.runs() if run.state == "failed")
        wiping.add(dict.fromkeys(STEEP, 30), seed=7)
        expect(page.get_by_role("heading", level=1)).to_contain_text("4 of 6 policies are measured.")
        expect(page.locator("details pre")).to_be_visible()
        wiping.store.retry(run.id)
        measure(wiping, 2)
        expect(page.get_by_role("heading", level=1)).to_contain_text("All 6 policies are measured.")


def test_the_slider_moves_the_recommendation(
    browser: Browser, wiping: Study, tmp_path: Path, serve: Callable[..., Served]
) -> None:
    served = serve(f"sqlite:///{tmp_path}/study.db", "--port", "0")
    with opened(browser, DESKTOP) as page:
        asked = addresses_of(page)
        page.goto(f"{served.url}curves?budget=20&strategy=top")
        heading = page.get_by_role("heading", level=1)
        expect(heading).to_contain_text("Collect 20 camera pose demos.")
        slider = page.get_by_label("Demonstrations to collect next")
        slider.focus()
        for _ in range(15):
            slider.press("ArrowRight")
        expect(heading).to_contain_text("Collect 35 camera pose demos.")
        expect(page.locator("#allocation .amount").first).to_have_text("35")
        assert sum("curves.json" in url for url in asked) < 8, "the server is asked when the hand rests"
        assert page.url.endswith("curves?budget=35&strategy=top")
        chart = page.get_by_role("img").first
        chart.hover()
        expect(page.locator(".readout:not(:empty)")).to_contain_text("demos:")
        page.mouse.move(0, 0)
        chart.focus()
        chart.press("ArrowRight")
        expect(page.locator(".readout:not(:empty)")).to_contain_text("0 demos: measured")
        page.get_by_label("Strategy").select_option("auto")
        expect(page.get_by_text("Gain from each factor")).to_be_visible()
        expect(page.locator("#factors figure")).to_have_count(2)
        page.get_by_label("Strategy").select_option("equal")
        expect(heading).to_contain_text("An equal share for every factor")
        page.get_by_label("Budget").fill("0")
        time.sleep(0.3)
        expect(heading).to_contain_text("An equal share for every factor")


def test_pages_fit_their_screen_can_be_read_and_load_nothing_from_elsewhere(
    browser: Browser, folder: Path, serve: Callable[..., Served]
) -> None:
    with Study.open(folder / "study.db") as study:
        (run,) = study.ask(1, worker="bench-7")
        study.fail(run.id, "OutOfMemory: " + "no_room_" * 40)
    served = serve(folder, "--port", "0")
    for size, scheme in itertools.product((PHONE, DESKTOP), ("light", "dark")):
        with opened(browser, size, color_scheme=scheme) as page:
            asked = addresses_of(page)
            sign_in(page, served, "ada")
            bottom = page.locator(".levels").bounding_box()
            assert bottom is not None
            assert bottom["y"] + bottom["height"] < size[1], "the levels are there without scrolling"
            for button in page.locator("#trial button").all():
                box = button.bounding_box()
                assert box is not None
                assert box["height"] >= 44
            for path in ("score", "", "curves", "nowhere"):
                if path != "score":
                    page.goto(served.url + path)
                wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                assert wide == 0, f"/{path} is wider than {size}"
                assert page.evaluate(CONTRAST) == [], f"/{path}, {scheme}"
            assert {url.split("/")[2] for url in asked} == {f"127.0.0.1:{served.port}"}


def test_the_report_fits_a_phone(browser: Browser, tmp_path: Path) -> None:
    spec, results = study_of_scores(per_factor=True)
    page_file = tmp_path / "report.html"
    page_file.write_text(render(Snapshot(spec, results).report(100, created="today")), encoding="utf-8")
    with opened(browser, PHONE) as page:
        page.goto(page_file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
