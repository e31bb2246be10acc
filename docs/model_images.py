"""The pictures of docs/model.md, from a world whose true response is known: python docs/model_images.py"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from factored_scaling.bench.decisions import families
from factored_scaling.bench.measure import REGIMES, results
from factored_scaling.bench.worlds import World
from factored_scaling.core.design import plan
from factored_scaling.core.results import Results
from factored_scaling.core.spec import StudySpec
from factored_scaling.model.recommend import Recommendation, recommend
from factored_scaling.report.figures import bare_figure, dress_axes
from factored_scaling.report.model import model_figure
from factored_scaling.report.style import COLOURS, INK, MUTED, factor_places, save_figure

DOCS = Path(__file__).resolve().parent
WORLDS = DOCS.parent / "benchmarks" / "synthetic_worlds.py"
FAMILY, FACTORS, INDEX, SEED = "mechanistic", 5, 7, 0
POLICIES, BUDGET = 6, 100
SHOWN = 40  # samples in the picture of samples


def known_world() -> tuple[World, StudySpec, Results, Recommendation]:
    """A world, the study that somebody in it would have run, its scores, and the answer."""
    family = next(family for family in families(str(WORLDS)) if family.name == FAMILY)
    world = family.world(FACTORS, INDEX, SEED)
    spec = StudySpec(dict.fromkeys(world.factors, 30), world.setting.nominal, "screen", policies=POLICIES)
    scores = results(world, [run.demos for run in plan(spec)], REGIMES["simulation"])
    return world, spec, scores, recommend(spec, scores, BUDGET)


def expected(world: World, spec: StudySpec, answer: Recommendation) -> Figure:
    """Predicted success against every factor's demonstrations, and in black the truth."""
    figure = model_figure(spec, answer)
    assert answer.summary is not None
    for index, (axes, curve) in enumerate(zip(figure.axes, answer.summary.curves, strict=True)):
        demos = np.repeat(world.now[None, :], len(curve.demos), axis=0)
        demos[:, index] = curve.demos
        axes.plot(curve.demos, world.score(demos), color=INK, linewidth=1.2, dashes=(1, 1.5), zorder=6)
    return figure


def samples(world: World, spec: StudySpec, scores: Results, answer: Recommendation) -> Figure:
    """Posterior samples: success on the trials of the factor that is given most."""
    said = answer.summary
    assert said is not None
    name = max(answer.allocation, key=lambda factor: answer.allocation[factor])
    index = spec.names.index(name)
    places = np.linspace(0.0, 30.0 + BUDGET, 80)
    demos = np.repeat(world.now[None, :], len(places), axis=0)
    demos[:, index] = places
    figure = bare_figure(6.2, 3.4)
    axes = figure.add_axes((0.09, 0.14, 0.86, 0.76))
    colour = COLOURS[factor_places(spec, answer)[name]][0]
    axes.plot(places, said.posterior.by_factor(demos)[:, index, :SHOWN], color=colour, linewidth=0.8, alpha=0.35)
    axes.plot(places, world.factor_success(demos)[:, index], color=INK, linewidth=1.6, dashes=(1, 1.5))
    for row in scores.rows:
        if row.factor == (name,) and row.demos is not None:
            axes.plot([row.demos[name]], [row.score], "o", ms=6, color=colour, mec="white", mew=0.9, zorder=5)
    dress_axes(axes, 30, 30 + BUDGET, (0.0, 1.0))
    text = f"success on trials of {name.replace('_', ' ')}, over its demonstrations"
    axes.annotate(
        text, (0, 1), (0, 8), "axes fraction", "offset points", color=MUTED, fontsize=9, annotation_clip=False
    )
    return figure


def make(folder: Path = DOCS / "images") -> None:
    world, spec, scores, answer = known_world()
    save_figure(expected(world, spec, answer), folder / "model-expected.png", 110)
    save_figure(samples(world, spec, scores, answer), folder / "model-samples.png", 110)
    allocation = np.array([answer.allocation[name] for name in spec.names])
    said = answer.summary
    assert said is not None
    print(answer.sentence)
    then = world.score(world.now + allocation)
    print(f"true: {world.score(world.now):.3f} now, {then:.3f} with this allocation, ", end="")
    print(f"{world.score(world.now + BUDGET / FACTORS):.3f} with an equal split; {said.now.mean:.3f} predicted now")


if __name__ == "__main__":
    make()
