"""Make the README's pictures from examples/fold-towel, which is an illustration: python docs/make_images.py

`curves.png` comes from matplotlib alone; `report.png` is a photograph of the HTML page and needs Chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from factored_scaling.core.recommend import recommend
from factored_scaling.files import read_results, read_spec
from factored_scaling.report import ReportInput, curves_figure, run_lines, write_report
from factored_scaling.report.style import MUTED, save_figure

DOCS = Path(__file__).resolve().parent
EXAMPLE = DOCS.parent / "examples" / "fold-towel"
BUDGET = 100
STRATEGIES = ("top", "all", "equal", "greedy")
NOTE = "An illustration: the scores of this example are invented, nothing was run."


def example() -> ReportInput:
    """The example's report; its date is a word, so that the picture changes only when the page does."""
    spec = read_spec(EXAMPLE / "study.yaml")
    results = read_results(EXAMPLE / "results.csv", spec)
    recommendations = {strategy: recommend(spec, results, BUDGET, strategy) for strategy in STRATEGIES}
    return ReportInput(spec, results, recommendations, run_lines(spec, results), "example", notes=(NOTE,))


def photograph(page: Path, image: Path, width: int, height: int) -> None:
    """The top of a page as a picture."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        sys.exit(f"{image.name} needs Chromium; {page} was written and can be photographed by hand")
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
        command += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic"]
        command += [f"--user-data-dir={profile}", f"--window-size={width},{height}", f"--screenshot={image}"]
        subprocess.run([*command, page.as_uri()], check=True, capture_output=True, timeout=120)


def main() -> None:
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


if __name__ == "__main__":
    main()
