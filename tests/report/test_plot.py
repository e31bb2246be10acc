"""The page's own plots: what is drawn lies where the numbers say, inside the picture, with named axes."""

from __future__ import annotations

import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from tests.report.cases import study

from factored_scaling.model.recommend import recommend
from factored_scaling.model.text import percent
from factored_scaling.report.figures import panels, shared_limits
from factored_scaling.report.model import factor_plot, model_limits
from factored_scaling.report.plot import HEIGHT, WIDTH, Plot, plot_svg


def drawn(plot: Plot, limits: tuple[float, float]) -> ElementTree.Element:
    return ElementTree.fromstring(plot_svg(plot, limits, 'a "curve" & its <band>'))


def places(svg: ElementTree.Element, kind: str) -> list[tuple[float, float]]:
    """The points of a path, or the centres of circles."""
    if kind in ("dot", "ring"):
        return [(float(one.attrib["cx"]), float(one.attrib["cy"])) for one in svg if one.get("class") == kind]
    (path,) = [one.attrib["d"] for one in svg if one.get("class") == kind]
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+) ([\d.]+)", path)]


@pytest.mark.parametrize("construction", ["one", "group"])
def test_the_dots_lie_on_the_line_and_the_line_inside_its_band(construction: str) -> None:
    spec, results = study(construction=construction, per_factor=True, trials=400)
    answer = recommend(spec, results, 40)
    assert answer.summary is not None
    curves = panels(spec, answer)
    cases = [(panel.plot, shared_limits(curves)) for panel in curves]
    cases += [(factor_plot(answer.summary, curve), model_limits(answer.summary)) for curve in answer.summary.curves]
    for plot, limits in cases:
        svg = drawn(plot, limits)
        assert svg.attrib["aria-label"] == 'a "curve" & its <band>'
        line = places(svg, "fitted") + places(svg, "beyond")
        assert places(svg, "fitted")[-1] == places(svg, "beyond")[0], "dashed from the current demonstrations on"
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in places(svg, "band"))
        (ring,) = places(svg, "ring")
        assert ring == line[-1]
        assert len(places(svg, "dot")) == len(plot.points)
        for x, y in places(svg, "dot"):
            nearest = min(line, key=lambda place: abs(place[0] - x))
            assert y == pytest.approx(nearest[1], abs=0.12 * HEIGHT)
        words = [text.text for text in svg.iter("text")]
        assert {"success", "demonstrations", "now", percent(plot.line[-1][1])} <= set(words)
        assert f"{plot.end:.0f}" in words


def test_error_bars_are_not_cut() -> None:
    spec, results = study(trials=6)
    curves = panels(spec, recommend(spec, results, 40, "top"))
    for panel in curves:
        svg = drawn(panel.plot, shared_limits(curves))
        (axis,) = [one.attrib["d"] for one in svg if one.get("class") == "axis"]
        foot = float(re.findall(r"[\d.]+", axis)[1])
        for bar in [one.attrib["d"] for one in svg if one.get("class") == "interval"]:
            _, low, high = (float(number) for number in re.findall(r"[\d.]+", bar))
            assert high < low <= foot


def test_a_small_budget_keeps_the_labels_apart() -> None:
    plot = Plot([(0.0, 0.4, 0.3, 0.5), (30.0, 0.6, 0.5, 0.7), (32.0, 0.61, 0.5, 0.7)], [], 30)
    svg = drawn(plot, (0.3, 0.7))
    anchors = {text.text: text.get("text-anchor") for text in svg.iter("text") if text.get("class") == "at"}
    assert anchors == {"0": "middle", "30": "end", "32": "start"}


def test_a_page_without_outcomes_needs_no_drawing_library() -> None:
    program = (
        "import sys; sys.path.insert(0, '.')\n"
        "from tests.report.cases import study\n"
        "from factored_scaling.report import render\n"
        "from factored_scaling.study import Snapshot\n"
        "render(Snapshot(*study()).report(40, created='today'))\n"
        "print('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "False"
