"""Make the README's pictures from examples/fold-towel, which is an illustration: python docs/make_images.py

`curves.png` comes from matplotlib alone; the others are photographs of HTML pages and need Chromium.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import dashboard_images
import model_images
from run_examples import run_page

from factored_scaling.core.trial_queue import plan_queue, short_codes
from factored_scaling.io.files import read_results, read_study
from factored_scaling.model.recommend import recommend
from factored_scaling.report import ReportInput, curves_figure, run_lines, write_report
from factored_scaling.report.sheets import DemoLine, TrialLine, collection_page, evaluation_page
from factored_scaling.report.style import MUTED, save_figure
from factored_scaling.scoring.collection import demos_to_collect, setup_changes

DOCS = Path(__file__).resolve().parent
EXAMPLE = DOCS.parent / "examples" / "fold-towel"
BUDGET = 100
STRATEGIES = ("auto", "top", "all", "equal", "greedy")
SHEET_FACTORS = {
    "camera_pose": {"demos": 30, "values": {"from": -10, "to": 10, "unit": "cm"}, "test_values": ["-15 cm", "15 cm"]},
    "distractor": {"demos": 30, "values": ["mug", "stapler", "banana"], "test_values": ["scissors", "toy car"]},
    "table_texture": {"demos": 30, "values": ["oak", "marble"], "test_values": ["cork", "newspaper"]},
    "lighting": 30,
}
NOTE = "An illustration: the scores of this example are invented, nothing was run."


def example() -> ReportInput:
    """The example's report; its date is a word, so that the picture changes only when the page does."""
    spec = read_study(EXAMPLE / "study.yaml")
    results = read_results(EXAMPLE / "results.csv", spec)
    recommendations = {strategy: recommend(spec, results, BUDGET, strategy) for strategy in STRATEGIES}
    return ReportInput(spec, results, recommendations, run_lines(spec, results), "example", notes=(NOTE,))


def find_browser() -> str | None:
    """This machine's Chromium or Chrome."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def photograph(page: Path, image: Path, width: int, height: int) -> None:
    """The top of a page as a picture."""
    browser = find_browser()
    if browser is None:
        sys.exit(f"{image.name} needs Chromium; {page} was written and can be photographed by hand")
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
        command += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic"]
        command += [f"--user-data-dir={profile}", f"--window-size={width},{height}", f"--screenshot={image}"]
        subprocess.run([*command, page.as_uri()], check=True, capture_output=True, timeout=120)


def sheets() -> dict[str, str]:
    """A sheet of trials and a list of demonstrations, by the names of their pictures."""
    spec = read_study(EXAMPLE / "study.yaml").changed(factors=SHEET_FACTORS, scoring={"preset": "fold-towel"})
    scoring = spec.scoring_spec()
    queue = plan_queue(5, scoring, seed=0)
    trials = [TrialLine(place, t.code, t.label, t.condition) for place, t in enumerate(queue, start=1)]
    demos = demos_to_collect(spec, {"camera_pose": 4, "distractor": 6, "lighting": 2}, {})
    codes = short_codes(len(demos), random.Random(0))
    numbered = enumerate(zip(codes, demos, strict=True), start=1)
    lines = [DemoLine(place, code, demo.factor, demo.value) for place, (code, demo) in numbered]
    return {
        "sheet-evaluate": evaluation_page(
            spec.name, 1, scoring.rubric, scoring.step_limit, trials, "example", spec.names
        ),
        "sheet-collect": collection_page(spec.name, 1, lines, setup_changes(demos), "example"),
    }


def recorded_sheet(image: Path) -> None:
    """The contact sheet of the LeRobot tutorial, from the blocks that the page itself runs up to it."""
    text = (DOCS / "tutorial-lerobot.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for ran in run_page(text):
            if ran.error is not None:
                sys.exit(f"tutorial-lerobot.md, line {ran.block.line}: {ran.error}")
            if "--sheet sheet.png" in ran.block.body:
                shutil.copy("sheet.png", image)
                return


def main() -> None:
    recorded_sheet(DOCS / "images" / "lerobot-sheet.png")
    report = example()
    headline = next(iter(report.recommendations.values()))
    figure = curves_figure(report.spec, headline)
    figure.text(
        0.985,
        0.2 / figure.get_figheight(),
        "illustration, invented scores",
        ha="right",
        va="bottom",
        color=MUTED,
        fontsize=8,
    )
    save_figure(figure, DOCS / "images" / "curves.png")
    with tempfile.TemporaryDirectory() as folder:
        page = write_report(report, Path(folder) / "report.html")
        photograph(page, DOCS / "images" / "report.png", 1200, 1560)
        for name, text in sheets().items():
            sheet = Path(folder) / f"{name}.html"
            sheet.write_text(text, encoding="utf-8")
            photograph(sheet, DOCS / "images" / f"{name}.png", 880, 760)
    dashboard_images.make(str(find_browser()), DOCS / "images")
    model_images.make(DOCS / "images")


if __name__ == "__main__":
    main()
