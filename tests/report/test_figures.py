"""The figures show what the values say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.report.cases import SPATIAL, VISUAL, report, study

from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.core.trials import wilson
from factored_scaling.errors import InvalidInput, NotEnoughData
from factored_scaling.model.recommend import recommend
from factored_scaling.report import OutcomeRow, allocation_figure, curves_figure, outcome_figure, save_figures
from factored_scaling.report.figures import bare_figure, panels, shared_limits
from factored_scaling.report.style import (
    ACCENT,
    COLOURS,
    REST,
    colour_places,
    factor_places,
    funded_labels,
    save_figure,
    undrawable,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def lines(axes: Axes, label: str) -> list[tuple[list[float], list[float]]]:
    found = [line for line in axes.get_lines() if line.get_label() == label]
    return [
        ([float(x) for x in np.asarray(line.get_xdata())], [float(y) for y in np.asarray(line.get_ydata())])
        for line in found
    ]


@pytest.mark.parametrize("budget", [1, 20, 100, 500])
def test_curves_are_solid_up_to_now_and_dashed_up_to_the_prediction(budget: int) -> None:
    spec, results = study()
    answer = recommend(spec, results, budget, "top")
    figure = curves_figure(spec, answer)
    drawn = panels(spec, answer)
    assert len(figure.axes) == len(drawn) == 3
    for axes, panel in zip(figure.axes, drawn, strict=True):
        curve, size = panel.report.curve, panel.report.curve.combination.size
        [(fitted_x, fitted_y)] = lines(axes, "fitted")
        [(further_x, further_y)] = lines(axes, "extrapolated")
        assert (fitted_x[0], fitted_x[-1], further_x[0], further_x[-1]) == (0, size, size, size + budget)
        assert fitted_y == pytest.approx([curve.at(n) for n in fitted_x])
        assert further_y[-1] == pytest.approx(panel.report.predicted)
        [(end_x, end_y)] = lines(axes, "prediction")
        assert end_x == [float(size + budget)]
        assert end_y == pytest.approx([panel.report.predicted])
        assert lines(axes, "now")[0][0] == [size, size]
        assert axes.get_ylim() == figure.axes[0].get_ylim()


def test_panels_come_steepest_first_with_their_own_colours() -> None:
    spec, results = study()
    answer = recommend(spec, results, 100, "top")
    drawn = panels(spec, answer)
    slopes = [panel.report.slope for panel in drawn]
    assert slopes == sorted(slopes, reverse=True)
    assert slopes[0] != answer.curves[0].slope  # the declared order is another one
    for panel in drawn:  # one colour per factor; a group has its first one's
        assert panel.colour == COLOURS[spec.names.index(panel.report.curve.combination.factors[0])][0]
    assert len(set(factor_places(spec, answer).values())) == len(spec.names)


def test_points_have_wilson_intervals_and_seeds_stand_side_by_side() -> None:
    spec, results = study(seeds=3, trials=50)
    axes = curves_figure(spec, recommend(spec, results, 20, "top")).axes[0]
    points, bars = lines(axes, "measured"), lines(axes, "interval")
    assert len(points) == len(bars) == 4 * 3
    for (x, y), (bar_x, bar_y) in zip(points, bars, strict=True):
        interval = wilson(y[0], 50)
        assert bar_x == [x[0], x[0]]
        assert bar_y == pytest.approx([interval.low, interval.high])
    assert len({x[0] for x, _ in points}) == 12


def test_without_trials_there_are_points_but_no_intervals() -> None:
    spec, results = study(trials=None)
    axes = curves_figure(spec, recommend(spec, results, 20, "top")).axes[0]
    assert len(lines(axes, "measured")) == 4
    assert lines(axes, "interval") == []


def test_the_band_holds_the_curve() -> None:
    spec, results = study(trials=60)
    for panel in panels(spec, recommend(spec, results, 100, "top")):
        low, high = panel.band
        fitted = np.array([panel.report.curve.at(n) for n in panel.sizes])
        assert np.all(low <= fitted)
        assert np.all(fitted <= high)
        assert high[-1] - low[-1] > 0.02


@pytest.mark.parametrize(("construction", "count"), [("one", 8), ("group", 4), ("pair", 28)])
def test_everything_drawn_lies_inside_the_shared_scale(construction: str, count: int) -> None:
    spec, results = study((*VISUAL, *SPATIAL), construction)
    answer = recommend(spec, results, 100, "top")
    figure = curves_figure(spec, answer)
    assert len(figure.axes) == count
    low, high = shared_limits(panels(spec, answer))
    assert (low, high) == figure.axes[0].get_ylim()
    for axes in figure.axes:
        for label in ("measured", "interval", "prediction"):
            assert all(low <= value <= high for _, values in lines(axes, label) for value in values)


def test_a_curve_without_other_demonstrations_starts_at_its_first_point() -> None:
    spec, results = study(VISUAL[:1], "one", points=4)
    [panel] = panels(spec, recommend(spec, results, 10, "top"))
    assert panel.sizes[0] == 10
    assert np.all(np.isfinite(panel.band))


def test_no_curves_cannot_be_drawn() -> None:
    spec = StudySpec(factors={"lighting": 30})
    with pytest.raises(NotEnoughData):
        curves_figure(spec, recommend(spec, Results(), 10, "equal"))


def test_more_combinations_than_hues_show_where_the_money_goes() -> None:
    spec, results = study(VISUAL, "pair")
    answer = recommend(spec, results, 100, "top")
    places = colour_places(spec, answer)
    assert [label for label, place in places.items() if place == ACCENT] == ["camera_pose+distractor"]
    assert set(places.values()) == {ACCENT, REST}


def test_funded_combinations_are_those_that_the_strategy_includes() -> None:
    spec, results = study()
    assert len(funded_labels(spec, recommend(spec, results, 100, "top-half"))) == 1
    assert len(funded_labels(spec, recommend(spec, results, 100, "all"))) > 1
    assert funded_labels(spec, recommend(spec, results, 100, "equal")) == ()


def test_allocations_stand_side_by_side_with_their_numbers() -> None:
    given = report(*study(per_factor=True))
    figure = allocation_figure(given.spec, given.recommendations)
    assert len(figure.axes) == len(given.recommendations) == 5
    for axes, answer in zip(figure.axes, given.recommendations.values(), strict=True):
        widths = [bar.get_width() for bar in axes.patches]  # type: ignore[attr-defined]
        assert widths == list(answer.allocation.values())
        assert [text.get_text() for text in axes.texts] == [str(amount) for amount in answer.allocation.values()]
        assert axes.get_xlim() == figure.axes[0].get_xlim()


def test_the_outcome_shows_prediction_and_measurement() -> None:
    rows = [OutcomeRow("top", 0.7, 0.68, 0.66, 0.71, 3000), OutcomeRow("equal", None, 0.63, 0.6, 0.65, 3000)]
    [axes] = outcome_figure(rows).axes
    assert lines(axes, "measured") == [([0.68], [1]), ([0.63], [0])]
    assert lines(axes, "predicted") == [([0.7], [1])]
    assert lines(axes, "interval") == [([0.66, 0.71], [1, 1]), ([0.6, 0.65], [0, 0])]
    with pytest.raises(InvalidInput):
        outcome_figure([])


def test_figures_are_saved_in_every_format_and_the_same_every_time(tmp_path: Path) -> None:
    given = report(*study())
    outcome = [OutcomeRow("top", 0.7, 0.68, 0.66, 0.71, 3000)]
    made = []
    for name in ("first", "second"):
        paths = save_figures(given.spec, given.recommendations, tmp_path / name, ("png", "svg", "pdf"), outcome)
        assert [path.stem for path in paths[::3]] == ["curves", "allocation", "outcome"]
        made.append([path.read_bytes() for path in paths])
    assert made[0] == made[1]
    assert made[0][0].startswith(b"\x89PNG")
    assert b"<dc:date>" not in made[0][1]
    with pytest.raises(InvalidInput, match="one of png, svg, pdf"):
        save_figures(given.spec, given.recommendations, tmp_path, ("bmp",))


def test_drawing_leaves_no_trace(tmp_path: Path) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    given = report(*study(VISUAL[:2]))
    save_figures(given.spec, given.recommendations, tmp_path)
    assert dict(matplotlib.rcParams) == before


def test_letters_that_no_font_has_are_told_once_and_draw_as_boxes(tmp_path: Path) -> None:
    nobody = "\U000f1234"  # for private use: no font of a system draws it
    assert undrawable("camera_pose, lumière") == ""
    assert undrawable(f"a{nobody}b{nobody}") == nobody
    figure = bare_figure(2, 1)
    figure.text(0.5, 0.5, nobody)
    save_figure(figure, tmp_path / "boxes.png")  # in silence: warnings are errors here
    assert (tmp_path / "boxes.png").stat().st_size > 0
