"""Photographs of the dashboard, from a study whose scores are invented; `docs/make_images.py` calls this.

Clocks, labels and names are fixed, so that a picture changes only when a page does.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from factored_scaling.core.dataset import Dataset
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import Trial
from factored_scaling.scoring.session import Scoring
from factored_scaling.store import Store
from factored_scaling.study import Study
from factored_scaling.web.access import Access
from factored_scaling.web.app import create_app
from factored_scaling.web.serve import bind

NOON = 1_767_268_800.0  # 2026-01-01 12:00 UTC
# how much success is lost without a factor's demonstrations
STEEP = {"camera_pose": 0.14, "distractor": 0.1, "table_texture": 0.05, "lighting": 0.03}
TESTED = {
    "camera_pose": ["15 cm left", "10 cm higher"],
    "distractor": ["mug and keys", "toy car"],
    "table_texture": ["oak", "blue checked cloth"],
    "lighting": ["dusk, lamp on the left", "red LED strip"],
}


def make(browser: str, folder: Path) -> None:
    """Write the pictures into `folder`."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])

        def photograph(url: str, width: int, height: int, scheme: str, before: Callable[[Page], None]) -> Image.Image:
            context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
            context.add_cookies([{"name": "fsc-operator", "value": "Ada%20(k3f9)", "url": url}])
            page = context.new_page()
            page.emulate_media(reduced_motion="reduce")
            page.goto(url)
            before(page)
            picture = Image.open(io.BytesIO(page.screenshot()))
            context.close()
            return picture.convert("RGB")

        with tempfile.TemporaryDirectory() as place:
            with in_the_middle(Path(place) / "middle.db") as url:
                overview = photograph(url, 1200, 1440, "light", lambda page: None)
            with finished(Path(place) / "finished.db") as url:
                curves = photograph(f"{url}curves?budget=100", 1200, 1300, "light", _pointing)
            with to_score(Path(place) / "score.db") as url:
                pictures = [photograph(f"{url}score", 390, 844, scheme, _ready) for scheme in ("light", "dark")]
        chromium.close()
    save(overview, folder / "dashboard-overview.png")
    save(curves, folder / "dashboard-curves.png")
    save(beside(pictures), folder / "dashboard-score.png")


def _ready(page: Page) -> None:
    page.locator("#trial:not(.locked)").wait_for()


def _pointing(page: Page) -> None:
    page.get_by_role("img").first.hover(position={"x": 200, "y": 60})


@contextlib.contextmanager
def in_the_middle(path: Path) -> Iterator[str]:
    """Five policies measured, one at work, one failed, two waiting."""
    hours = [NOON - 4 * 3600]
    with study_at(path, lambda: hours[0]) as study:
        generator = random.Random(0)
        for _ in range(5):
            measure(study, generator, hours, generator.uniform(1000, 1500))
        hours[0] = NOON - 700
        (run,) = study.ask(1, worker="bench-1")
        study.record(run.id, [Trial(f"{k}", float(k % 3 > 0), ("lighting",)) for k in range(40)])
        (run,) = study.ask(1, worker="bench-2")
        study.fail(run.id, "Traceback …\nOutOfMemoryError: tried to allocate 2.20 GiB on the GPU")
        with serving(study) as url:
            yield url


@contextlib.contextmanager
def finished(path: Path) -> Iterator[str]:
    hours = [NOON - 4 * 3600]
    with study_at(path, lambda: hours[0]) as study:
        generator = random.Random(2)
        while any(run.state == "pending" for run in study.runs()):
            measure(study, generator, hours, 1200)
        with serving(study) as url:
            yield url


@contextlib.contextmanager
def to_score(path: Path) -> Iterator[str]:
    """The first scene is done; the next varies another factor."""
    hours = [NOON]
    with study_at(path, lambda: hours[0]) as study:
        scoring = Scoring.begin(study, seed=2)
        for value in (1.0, 0.25, 0.5, 1.0, 0.0, 0.5, 1.0, 0.5, 0.25):
            hours[0] += 80
            trial = scoring.next("Ada (k3f9)")
            assert trial is not None
            scoring.score(trial.code, value, "Ada (k3f9)", trial.code)
        with serving(study) as url:
            yield url


@contextlib.contextmanager
def study_at(path: Path, clock: Callable[[], float]) -> Iterator[Study]:
    factors = {name: {"demos": 30, "test_values": values} for name, values in TESTED.items()}
    scoring = {"preset": "fold-towel", "conditions": "each", "repeats": 1}
    spec = StudySpec(factors, construction="group", points=5, name="fold-towel (invented scores)", scoring=scoring)
    store = Store.open(path, clock=clock)
    with Study(store, store.create_study(spec.name, spec, Dataset.of_sizes(spec.sizes, spec.nominal))) as study:
        study.plan()
        yield study


def measure(study: Study, generator: random.Random, hours: list[float], seconds: float) -> None:
    """A rule with steep and flat factors stands for the robot."""
    (run,) = study.ask(1, worker="bench-1")
    hours[0] += seconds
    chance = 0.62 - sum(steep * (1 - run.demos[name] / 30) ** 1.5 for name, steep in STEEP.items())
    names = list(STEEP)
    trials = [Trial(str(k), float(generator.random() < chance), (names[k % len(names)],)) for k in range(400)]
    study.tell(run.id, trials)


@contextlib.contextmanager
def serving(study: Study) -> Iterator[str]:
    address = bind("127.0.0.1", 0)
    app = create_app(study, Access(), clock=lambda: NOON)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [address.socket]})
    thread.start()
    while not server.started:
        time.sleep(0.05)
    try:
        yield address.url
    finally:
        server.should_exit = True
        thread.join()


def beside(pictures: list[Image.Image], gap: int = 24) -> Image.Image:
    width = sum(picture.width for picture in pictures) + gap * (len(pictures) - 1)
    whole = Image.new("RGB", (width, max(picture.height for picture in pictures)), "#b9c0c8")
    left = 0
    for picture in pictures:
        whole.paste(picture, (left, 0))
        left += picture.width + gap
    return whole


def save(picture: Image.Image, path: Path) -> None:
    """In 256 colours, at a fraction of the size; chosen by octree, which keeps rare ones such as a small dot's."""
    picture.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(path, optimize=True)
