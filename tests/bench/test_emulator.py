"""Emulators of policy tables, the worlds made of them, and regressors without a model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import check_grad

from factored_scaling.bench.decisions import Settings, compare, families
from factored_scaling.bench.emulator import Emulator, _negative_evidence, angle, features, read_emulator, success
from factored_scaling.bench.measure import REGIMES, measure
from factored_scaling.bench.methods import Bench, parse_method
from factored_scaling.bench.policy_tables import PolicyTable, read_table
from factored_scaling.bench.regressors import REGRESSORS, mean_of_best
from factored_scaling.bench.table_worlds import table_families
from factored_scaling.errors import InvalidInput

TABLES = Path(__file__).parents[2] / "results" / "tables"
NAMES = ("a", "b", "c")
TRIALS = 200


def truth(demos: np.ndarray, nominal: np.ndarray) -> np.ndarray:
    """Trials of every factor need a skill that all demonstrations teach, and their own factor's."""
    total = demos.sum(-1, keepdims=True) + nominal[..., None]
    return np.asarray((1 - 0.6 * (1 + total / 30) ** -1.0) * (1 - 0.5 * (1 + demos / 20) ** -1.0))


def made(rows: int = 150, noise: float = 0.03) -> PolicyTable:
    rng = np.random.default_rng(0)
    demos = np.round(np.exp(rng.uniform(0, 4.6, (rows, 3)))).astype(np.int64)
    nominal = rng.integers(0, 2, rows) * 20
    theta = angle(truth(demos, nominal) * 1e6, np.full((rows, 3), 1e6))
    theta = theta + noise * (0.8 * rng.standard_normal((rows, 1)) + 0.6 * rng.standard_normal((rows, 3)))
    trials = np.full((rows, 3), TRIALS)
    successes = rng.binomial(trials, success(theta))
    card = {"task": "x", "role": "tuning"}
    start = np.full(rows, 10)
    return PolicyTable(NAMES, ("inside",) * rows, start, np.arange(rows), nominal, demos, successes, trials, card)


@pytest.fixture(scope="module")
def emulator() -> Emulator:
    return Emulator.fit(made())


def test_success_is_found_again_at_compositions_that_no_row_has(emulator: Emulator) -> None:
    rng = np.random.default_rng(1)
    demos = np.exp(rng.uniform(0.5, 4.3, (200, 3)))
    error = emulator.success(demos) - truth(demos, np.zeros(200))
    assert np.sqrt((error**2).mean()) < 0.02
    assert abs(error.mean()) < 0.01


def test_left_out_rows_are_predicted_as_well_as_noise_allows(emulator: Emulator) -> None:
    table = emulator.table
    miss = angle(table.successes, table.trials) - emulator.held_out()
    expected = np.sqrt(0.03**2 + 0.25 / TRIALS)
    assert np.sqrt((miss**2).mean()) == pytest.approx(expected, rel=0.15)


def test_policies_of_one_composition_differ_as_those_of_the_table(emulator: Emulator) -> None:
    rng = np.random.default_rng(2)
    demos = np.full(3, 10.0)
    drawn = np.array([emulator.trained(demos, 0.0, rng) for _ in range(2000)])
    theta = np.arcsin(np.sqrt(drawn))
    assert theta.std(0) == pytest.approx(np.full(3, 0.03), rel=0.35)
    assert 0.35 < np.corrcoef(theta.T)[0, 1] < 0.9  # 0.64 in the table
    assert drawn.mean(0) == pytest.approx(emulator.success(demos), abs=0.01)


def test_resampled_rows_give_another_emulator_and_the_same_one_again(emulator: Emulator) -> None:
    demos = np.full((1, 3), 40.0)
    assert emulator.resampled(0) is emulator
    first, again, other = (emulator.resampled(number).success(demos) for number in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first == pytest.approx(emulator.success(demos), abs=0.05)


def test_the_gradient_of_the_evidence_is_right() -> None:
    table = made(25)
    points, theta = features(table.demos, table.nominal), angle(table.successes, table.trials)[:, 0]
    known = np.full(25, 0.25 / TRIALS)
    centred = theta - theta.mean()
    at = np.array([-6.0, -0.4, -2.0, -2.5, 1.0, 0.6, 1.3, 0.9, 0.7])

    def value(hyper: np.ndarray) -> float:
        return _negative_evidence(hyper, points, centred, known)[0]

    def slope(hyper: np.ndarray) -> np.ndarray:
        return _negative_evidence(hyper, points, centred, known)[1]

    assert check_grad(value, slope, at) < 1e-3 * np.linalg.norm(slope(at))


def test_kept_hyperparameters_are_used_for_the_same_rows_only(tmp_path: Path) -> None:
    folder = tmp_path / "insert"
    folder.mkdir()
    for name in ("policies.csv", "card.json", "emulator.json"):
        (folder / name).write_text((TABLES / "pick-place-no-jitter" / name).read_text())
    kept = read_emulator(folder)
    assert kept.to_mapping() == json.loads((folder / "emulator.json").read_text())
    data = json.loads((folder / "emulator.json").read_text())
    (folder / "emulator.json").write_text(json.dumps({**data, "rows": 3, "common": 0.99}))
    assert read_emulator(folder).common != 0.99


def test_published_emulators_belong_to_their_tables() -> None:
    for place in ("pick-place", "pick-place-no-jitter", "insert"):
        assert json.loads((TABLES / place / "emulator.json").read_text())["rows"] == len(read_table(TABLES / place))


def test_a_folder_of_tables_has_a_family_of_every_start() -> None:
    found = {family.name: family for family in families(str(TABLES))}
    assert {name for name in found if name.startswith("insert/")} == {
        f"insert/{kind}" for kind in ("10", "30", "unbalanced", "nominal-heavy")
    }
    assert found["insert/10"].role == "held_out"
    assert found["pick-place/5"].role == "tuning"
    assert found["insert/10"].has(8)
    assert not found["insert/10"].has(5)
    assert [family.name for family in table_families(TABLES / "insert")] == [
        name for name in found if "insert/" in name
    ]


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"holds no policies\.csv"):
        table_families(tmp_path)


def test_studies_of_one_start_differ_in_their_noise_alone() -> None:
    family = next(family for family in table_families(TABLES / "pick-place") if family.kind == "unbalanced")
    first, again = family.world(5, 4), family.world(5, 4)
    assert first.setting == again.setting
    assert first.seed == again.seed
    assert first.setting.sizes == family.world(5, 4 + 32).setting.sizes
    assert first.setting.sizes != family.world(5, 8).setting.sizes
    full = dict(zip(first.factors, first.setting.sizes, strict=True))
    one, same = (measure(world, full, REGIMES["rollouts"]) for world in (first, again))
    assert one.scores.tolist() == same.scores.tolist()
    assert one.trials.tolist() == [60] * 5
    other = measure(family.world(5, 4 + 32), full, REGIMES["rollouts"])
    assert one.scores.tolist() != other.scores.tolist()
    best = first.best(100)
    assert best.sum() == 100
    assert first.score(first.now + best) >= first.score(first.now + 20)


def test_nominal_heavy_starts_have_as_many_nominal_demonstrations_as_others_or_twice_that() -> None:
    family = next(family for family in table_families(TABLES / "insert") if family.kind == "nominal-heavy")
    settings = [family.world(8, index).setting for index in (0, 4)]
    assert [(one.sizes, one.nominal) for one in settings] == [((5,) * 8, 40), ((5,) * 8, 80)]
    assert family.world(8, 4).spec().nominal == 80


@pytest.mark.parametrize("name", list(REGRESSORS))
def test_a_regressor_finds_the_factor_that_matters(name: str) -> None:
    if name == "lightgbm":
        pytest.importorskip("lightgbm")
    demos = np.array([[30, 30, 30], [0, 30, 30], [30, 0, 30], [30, 30, 0], [15, 15, 30], [30, 15, 15]], dtype=float)
    predict = REGRESSORS[name](demos, 0.3 + 0.4 * np.log1p(demos[:, 1]) / np.log1p(30))
    now = np.full(3, 30.0)
    gains = predict(now + 50 * np.eye(3)) - predict(now)
    assert gains.argmax() == 1


def test_regressors_and_the_response_model_decide_on_a_table() -> None:
    family = next(family for family in table_families(TABLES / "pick-place-no-jitter") if family.kind == "10")
    bench = Bench(family.world(5, 0), REGIMES["rollouts"], 0)
    for text in ("log-linear:best@screen:6/8", "gaussian-process:best@screen:6/8", "response-model:auto@screen:6/8"):
        decided = bench.decide(parse_method(text), [20, 100])
        assert decided is not None
        assert [sum(one.allocation.values()) for one in decided] == [20, 100]
        assert all(one.policies == 6 for one in decided)


def test_lightgbm_spends_most_on_the_factor_that_matters() -> None:
    pytest.importorskip("lightgbm")
    demos = np.array([[30, 30, 30], [0, 30, 30], [30, 0, 30], [30, 30, 0], [15, 30, 15], [30, 15, 30]], dtype=float)
    shares = demos[:, 1] / demos.sum(1)
    now = np.full(3, 30.0)
    given = mean_of_best(REGRESSORS["lightgbm"](demos, 0.2 + shares), now, 100)
    assert given.sum() == 100
    assert (given == given.round()).all()
    assert given.argmax() == 1
    assert given[1] > 50
    flat = mean_of_best(lambda at: np.zeros(at.shape[:-1]), now, 100)
    assert sorted(flat) == [33, 33, 34]  # ties count alike


def test_lightgbm_decides_on_a_table() -> None:
    pytest.importorskip("lightgbm")
    family = next(family for family in table_families(TABLES / "insert") if family.kind == "unbalanced")
    decided = Bench(family.world(8, 0), REGIMES["real"], 1).decide(parse_method("lightgbm:best@screen:6/8"), [20, 100])
    assert decided is not None
    assert [sum(one.allocation.values()) for one in decided] == [20, 100]
    assert all(one.policies == 8 for one in decided)


def test_without_lightgbm_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("factored_scaling.bench.regressors.find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"lightgbm:best@screen: this needs LightGBM.*pip install '\.\[bench\]'"):
        parse_method("lightgbm:best@screen")
    assert parse_method("log-linear:best@screen").fit == "log-linear"


def test_rules_are_compared_on_tables_of_either_number_of_factors() -> None:
    settings = Settings(
        str(TABLES),
        ("pick-place-no-jitter/30", "insert/30"),
        count=2,
        regimes=("real",),
        methods=("equal", "greedy"),
    )
    cells = compare(settings, 1, lambda done, total: None)
    assert {(key.family, key.factors) for key in cells} == {("pick-place-no-jitter/30", 5), ("insert/30", 8)}
    equal = [cell for key, cell in cells.items() if key.method == "equal"]
    assert all(0 < regret < 0.5 for cell in equal for regret in cell.regrets)
