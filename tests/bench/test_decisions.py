"""The comparison of rules: the paper's rules as `recommend` has them, the same numbers however it is run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from synthetic_worlds import TUNING

from factored_scaling.bench.decisions import Cell, Key, Settings, compare, families, judge, mean
from factored_scaling.bench.measure import REGIMES, results
from factored_scaling.bench.methods import Bench, parse_method
from factored_scaling.bench.tables import Comparison
from factored_scaling.bench.worlds import draw_world
from factored_scaling.core.design import plan
from factored_scaling.errors import InvalidInput, UnknownName
from factored_scaling.model.recommend import recommend

WORLDS = str(Path(__file__).resolve().parents[2] / "benchmarks" / "synthetic_worlds.py")
OWN_FAMILIES = """
import numpy as np
from factored_scaling.bench.worlds import Family

def draw(setting, rng):
    weights = rng.dirichlet(np.full(setting.count, 0.5))

    def response(demos):
        skill = 0.2 + 0.7 * (1 - np.exp(-demos @ weights / 60))
        return np.repeat(skill[..., None], setting.count, axis=-1)

    return response

families = [Family("own", draw)]
broken = [Family("broken", lambda setting, rng: lambda demos: demos.mean(axis=-1))]
"""


def quiet(done: int, total: int) -> None:
    assert 0 < done <= total


@pytest.mark.parametrize("regime", ["simulation", "real", "real-means"])
@pytest.mark.parametrize(
    ("fit", "strategy", "construction"),
    [
        *(("power-law", strategy, c) for strategy in ("top", "top-half", "all") for c in ("one", "group")),
        ("response-model", "auto", "screen"),
    ],
)
def test_rules_allocate_as_recommend_does(regime: str, fit: str, strategy: str, construction: str) -> None:
    world = draw_world(TUNING[0], 5, 1)
    spec = world.spec(construction)
    rows = results(world, [run.demos for run in plan(spec)], REGIMES[regime])
    bench = Bench(world, REGIMES[regime], 0)
    decisions = bench.decide(parse_method(f"{fit}:{strategy}@{construction}"), [20, 100])
    assert decisions is not None
    for budget, decision in zip((20, 100), decisions, strict=True):
        answer = recommend(spec, rows, budget, strategy, fit)
        assert dict(decision.allocation) == answer.allocation
        if answer.summary is not None:
            assert decision.intervals == answer.summary.predicted.intervals
        assert decision.policies == len(plan(spec))


def test_unshared_curves_have_full_data_policies_of_their_own() -> None:
    world = draw_world(TUNING[2], 5, 0)
    shared, apart = (Bench(world, REGIMES["real"], 0).decide(parse_method(name), [100]) for name in
                     ("power-law:all@group", "power-law:all@group-unshared"))  # fmt: skip
    assert shared is not None
    assert apart is not None
    assert (shared[0].policies, apart[0].policies) == (10, 12)
    assert shared[0].allocation != apart[0].allocation


def test_baselines_train_one_policy_and_need_scores_per_factor() -> None:
    world = draw_world(TUNING[1], 8, 0)
    for name, policies in (("equal", 0), ("greedy", 1), ("cubed-failure", 1)):
        decision = Bench(world, REGIMES["simulation"], 1).decide(parse_method(name), [100])
        assert decision is not None
        assert decision[0].policies == policies
        assert sum(decision[0].allocation.values()) == 100
    assert Bench(world, REGIMES["real-means"], 1).decide(parse_method("greedy"), [100]) is None


def test_a_method_may_say_how_many_policies_it_gets() -> None:
    worlds = {place: draw_world(TUNING[1], count, 0) for place, count in enumerate((5, 8))}
    method = parse_method("power-law:all@group:7/9")
    assert [len(method.training_sets(world, place)) for place, world in worlds.items()] == [7, 9]
    assert len(parse_method("power-law:all@group", (4,)).training_sets(worlds[1], 1)) == 4
    with pytest.raises(InvalidInput, match="99 policies asked for"):
        parse_method("power-law:all@group:99").training_sets(worlds[0], 0)
    for text in (
        "gready",
        "power-law:top",
        "power-law:top@ring",
        "linear:top@one",
        "remix",
        "power-law:top@pair-unshared",
    ):
        with pytest.raises(UnknownName, match="unknown method"):
            parse_method(text)


def test_regret_is_zero_at_the_best_and_equal_is_never_worse_than_itself() -> None:
    settings = Settings(WORLDS, ("mechanistic",), budgets=(20, 100), methods=("equal", "greedy"))
    world = draw_world(TUNING[1], 5, 0)
    judged = list(judge(world, 0, settings, settings.parsed()))
    assert len(judged) == 2 * 2 * 2
    for key, cell in judged:
        assert cell.regrets[0] >= -1e-9
        if key.method == "equal":
            assert cell.behind == [0.0]
            spread = np.full(5, key.budget / 5)
            before, after = (float(world.score(world.now + extra)) for extra in (0.0, spread))
            assert cell.regrets[0] < 1
            assert after > before


def test_the_same_settings_give_the_same_cells_in_several_processes() -> None:
    settings = Settings(WORLDS, ("power-law", "steps"), factors=(5,), count=12, methods=("equal", "cubed-failure"))
    alone, together = (compare(settings, jobs, quiet) for jobs in (1, 2))
    assert alone == together
    assert len(alone) == 2 * 2 * 2
    assert all(len(cell.regrets) == 12 for cell in alone.values())
    other = compare(Settings(**{**settings.__dict__, "seed": 1}), 1, quiet)
    assert other != alone


def test_families_come_from_a_file_of_somebody_else(tmp_path: Path) -> None:
    path = tmp_path / "own_worlds.py"
    path.write_text(OWN_FAMILIES)
    settings = Settings(str(path), factors=(4,), count=3, methods=("equal",), regimes=("simulation",))
    cells = compare(settings, 1, quiet)
    assert [key.family for key in cells] == ["own"]
    assert Comparison(settings, cells).to_mapping()["means"][0]["role"] == "held_out"
    with pytest.raises(InvalidInput, match="must map demos per factor"):
        compare(Settings(f"{path}:broken", count=1), 1, quiet)
    (tmp_path / "wrong.py").write_text("families = [1]\n")
    for source, what in (
        (str(tmp_path / "wrong.py"), "not a list of Family"),
        ("no_such_module", "ModuleNotFoundError"),
    ):
        with pytest.raises(InvalidInput, match=what):
            families(source)


def test_unknown_names_are_told() -> None:
    for settings in (Settings(WORLDS, ("power",)), Settings(WORLDS, regimes=("simulated",))):
        with pytest.raises(UnknownName):
            compare(settings, 1, quiet)


def test_means_weigh_families_alike_and_know_their_error() -> None:
    first, second = Cell([0.0, 0.2], [0.0, 0.005]), Cell([0.5] * 4, [0.005, 0.02, 0.02, 0.02])
    got = mean([first, second])
    assert got.regret == pytest.approx(0.3)
    assert got.worse == pytest.approx(0.75)
    assert got.much_worse == pytest.approx(0.375)
    assert got.error == pytest.approx(np.sqrt(0.02 / 2) / 2)
    assert got.worlds == 6


def test_calibration_counts_the_intervals_that_hold_the_truth() -> None:
    settings = Settings(WORLDS, ("power-law",), factors=(5,), methods=("some",), regimes=("real",))
    cell = Cell([0.1, 0.2], [0.0, 0.0], 6, 108, {0.5: [True, False], 0.8: [True, True], 0.95: [True, True]}, [0.02, 0])
    table = Comparison(settings, {Key("some", "real", 100, "power-law", 5): cell}).tables()[-1]
    assert table.rows == (("some", "real", "100", "tuning", "50%", "100%", "100%", "+1.0"),)
    assert "| some | real | 100 | tuning | 50% | 100% | 100% | +1.0 |" in table.markdown()
