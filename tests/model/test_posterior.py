"""The posterior: exact gradients, correct answers in known worlds, caps and minimums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from factored_scaling import Results, StudySpec, recommend
from factored_scaling.core.spec import Factor
from factored_scaling.model.allocate import optimize_allocation, optimize_allocations
from factored_scaling.model.likelihood import LogLikelihood
from factored_scaling.model.observations import observe
from factored_scaling.model.posterior import REQUIRED_PROBABILITY, Posterior, fit_posterior, probability_at_least
from factored_scaling.model.prior import Floats, draw_mixture
from factored_scaling.model.response import size_of
from factored_scaling.model.sampler import SamplerSettings
from factored_scaling.model.summary import summarize_posterior

NAMES = ("camera", "light", "table", "pose")
SPEC = StudySpec(dict.fromkeys(NAMES, 30))
# every policy but the first thins half of the factors
DESIGN = ((30, 30, 30, 30), (0, 10, 30, 30), (30, 0, 10, 30), (30, 30, 0, 10), (10, 30, 30, 0), (0, 30, 10, 30))


def success(demos: Floats) -> Floats:
    """Camera fails often and its data repair that; light fails as often and nothing repairs it; the rest is easy."""
    camera = 0.9 * (1 + demos[..., 0] / 20) ** -0.8
    light = np.full(camera.shape, 0.5)
    table, pose = 0.15 * (1 + demos[..., 2] / 20) ** -1.0, 0.1 * (1 + demos[..., 3] / 20) ** -1.0
    return 0.95 * (1 - np.stack([camera, light, table, pose], axis=-1))


def rows(
    design: Any = DESIGN, trials: int | None = 400, mean_only: bool = False, seed: int = 0
) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    observations: list[dict[str, Any]] = []
    for demos in design:
        chance = np.clip(success(np.array(demos, dtype=float)) + 0.02 * rng.standard_normal(), 0, 1)
        scores = rng.binomial(trials or 400, chance) / (trials or 400)
        policy = {"demos": dict(zip(NAMES, demos, strict=True)), "trials": trials, "seed": seed}
        if mean_only:
            observations.append({**policy, "score": float(scores.mean())})
        else:
            observations += [{**policy, "factor": n, "score": float(s)} for n, s in zip(NAMES, scores, strict=True)]
    return observations


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    return fit_posterior(SPEC, Results.from_rows(rows()))


@pytest.mark.parametrize("kind", ["per factor", "mixed"])
def test_the_gradient_is_the_likelihoods(kind: str) -> None:
    observations, proxy = rows(), None
    if kind == "mixed":
        few = {"demos": dict(zip(NAMES, (5, 30, 10, 0), strict=True)), "score": 0.4}
        observations = [*observations[:9], {**few, "factor": "camera+light", "seed": 1}, {**few, "factor": "*"}, few]
        proxy = Results.from_rows([few, {**few, "factor": "pose", "score": 0.7}])
    seen = observe(SPEC, Results.from_rows(observations), proxy)
    rng = np.random.default_rng(0)
    posterior, mixture = LogLikelihood(seen), draw_mixture(rng, 4, 4)
    raw = rng.standard_normal((size_of(4), 4))
    _, slope = posterior(raw, mixture)
    for place in range(size_of(4)):
        step = np.zeros_like(raw)
        step[place] = 1e-4
        numeric = (posterior(raw + step, mixture)[0] - posterior(raw - step, mixture)[0]) / 2e-4
        assert slope[place] == pytest.approx(numeric, rel=2e-4, abs=2e-3 * np.abs(slope).max())


def test_it_finds_what_fails_and_can_be_repaired(posterior: Posterior) -> None:
    answer = posterior.allocate(100).demos
    assert sum(answer.values()) == 100
    assert answer["camera"] >= 60
    assert answer["light"] <= 30  # Greedy would spend everything there or on camera


def alike(factors: Any, trials: int = 6) -> Results:
    """One policy that fails on every factor alike: nothing distinguishes them."""
    row = {
        "demos": {factor.name: factor.demos for factor in factors},
        "score": 0.5,
        "trials": trials,
        "seed": 0,
    }
    return Results.from_rows([{**row, "factor": factor.name} for factor in factors])


def test_a_budget_is_split_equally_where_no_allocation_is_likely_enough_to_match_that(posterior: Posterior) -> None:
    clear = posterior.choose(100)
    assert not clear.is_equal
    assert clear.spending == clear.best
    assert clear.probability > 0.8
    unclear = fit_posterior(SPEC, alike(SPEC.factors)).choose(100)
    assert unclear.is_equal
    assert unclear.probability < REQUIRED_PROBABILITY
    assert unclear.spending.demos == dict.fromkeys(NAMES, 25) != unclear.best.demos


def test_an_equal_split_keeps_caps_minimums_and_costs() -> None:
    factors = (
        Factor("camera", 30, cap=10),
        Factor("light", 30, minimum=40),
        Factor("table", 30),
        Factor("pose", 30, cost=2),
    )
    even = fit_posterior(StudySpec(factors), alike(factors)).equal(100)
    assert even.demos["camera"] == 10
    assert even.demos["light"] >= 40
    assert sum(even.demos[factor.name] * factor.cost for factor in factors) + even.left == 100


def test_a_tie_counts_as_a_match() -> None:
    assert probability_at_least(np.array([0.5, 0.6, 0.7, 0.4]), np.array([0.5, 0.5, 0.5, 0.5])) == 0.75


def test_predictions_hold_what_is_true(posterior: Posterior) -> None:
    said = summarize_posterior(posterior, 100)
    now, later = (float(success(posterior.now + np.array(extra)).mean()) for extra in ([0] * 4, [100, 0, 0, 0]))
    assert said.now.low < now < said.now.high
    samples = posterior.score(posterior.now + np.array([[100.0, 0, 0, 0]]))[0]
    assert np.quantile(samples, 0.025) < later < np.quantile(samples, 0.975)
    assert said.curves[0].best > 0.8
    assert sum(curve.best for curve in said.curves) == pytest.approx(1)
    assert sum(said.best) == pytest.approx(1)
    by_factor = [curve.now.mean for curve in said.curves]
    assert by_factor == pytest.approx(success(posterior.now).tolist(), abs=0.06)
    assert sum(by_factor) / 4 == pytest.approx(said.now.mean)
    assert 0 <= said.regret < 0.03


def test_a_seed_gives_one_answer_and_another_seed_nearly_the_same(posterior: Posterior) -> None:
    again = fit_posterior(SPEC, Results.from_rows(rows()))
    assert np.array_equal(again.score(posterior.now), posterior.score(posterior.now))
    other = fit_posterior(SPEC, Results.from_rows(rows()), seed=1)
    assert other.allocate(100).demos["camera"] == pytest.approx(posterior.allocate(100).demos["camera"], abs=20)


def test_several_samples_of_each_chain_are_kept(posterior: Posterior) -> None:
    last = fit_posterior(SPEC, Results.from_rows(rows()), sampler=SamplerSettings(kept=1))
    assert (last.n_samples, posterior.n_samples) == (128, 512)
    assert np.array_equal(last.raw, posterior.raw[:, -128:])
    assert np.array_equal(np.tile(last.mixture.component, 4), posterior.mixture.component)
    ways = posterior.score(posterior.now).reshape(4, 128)
    assert all((np.abs(ways[place] - ways[place + 1]) > 1e-6).mean() > 0.8 for place in range(3))


def test_mean_scores_alone_still_inform() -> None:
    answer = fit_posterior(SPEC, Results.from_rows(rows(mean_only=True))).allocate(100).demos
    assert answer["camera"] == max(answer.values())


def test_one_policy_is_enough_to_prefer_what_fails() -> None:
    answer = fit_posterior(SPEC, Results.from_rows(rows(DESIGN[:1]))).allocate(100).demos
    assert answer["camera"] + answer["light"] >= 80


def test_trials_that_vary_everything_at_once_are_a_target_of_their_own() -> None:
    observations = [
        {"demos": dict(zip(NAMES, demos, strict=True)), "score": float(success(np.array(demos, float)).prod()) ** 0.5}
        | {"factor": "*", "trials": 40, "seed": 0}
        for demos in DESIGN
    ]
    said = recommend(SPEC, Results.from_rows(observations), 40)
    assert said.summary is not None
    assert said.summary.now.mean == pytest.approx(observations[0]["score"], abs=0.12)
    assert {one.trials for one in said.summary.measured("camera")} == {40}


def test_pictures_show_scores_over_all_trials_of_policies_on_a_factors_curve() -> None:
    design = (*DESIGN, (30, 15, 30, 30))
    observations = rows(design)
    found = summarize_posterior(fit_posterior(SPEC, Results.from_rows(observations)), 10).measured("light")
    wanted = [
        (float(demos[1]), np.mean([row["score"] for row in observations[4 * place : 4 * place + 4]]), 1600)
        for place, demos in enumerate(design)
        if demos[0] == demos[2] == demos[3] == 30
    ]
    assert np.array(sorted(found)) == pytest.approx(np.array(sorted(wanted)))
    assert [demos for demos, _, _ in wanted] == [30.0, 15.0]
    some = [row for row in observations if row["factor"] != "pose"]
    assert summarize_posterior(fit_posterior(SPEC, Results.from_rows(some)), 10).measured("light") == []


def test_the_full_policy_under_every_curve_counts_once() -> None:
    listed = [{"combination": "camera+light", "n": n, "score": s} for n, s in ((0, 0.3), (60, 0.6))]
    listed += [{"combination": "table+pose", "n": n, "score": s} for n, s in ((0, 0.5), (60, 0.6))]
    seen = observe(SPEC, Results.from_rows(listed))
    assert (len(seen.demos), len(seen.theta)) == (3, 3)
    repeated = observe(SPEC, Results.from_rows([*listed, listed[1]]))
    assert (len(repeated.demos), len(repeated.theta)) == (4, 4)  # twice under one curve: another policy


def test_overall_scores_beside_a_score_for_every_factor_are_not_counted_again() -> None:
    full = {"demos": dict.fromkeys(NAMES, 30), "trials": 100, "seed": 0}
    each = [{**full, "factor": name, "score": 0.5} for name in NAMES]
    assert len(observe(SPEC, Results.from_rows([*each, {**full, "score": 0.5}])).theta) == 4
    assert len(observe(SPEC, Results.from_rows([*each[:2], {**full, "score": 0.5}])).theta) == 3


def test_a_proxy_that_agrees_helps_and_one_that_disagrees_does_not() -> None:
    observations = Results.from_rows(rows(trials=5))

    def stand_in(sign: float) -> Results:
        scores = [0.5 + sign * (float(success(np.array(demos, float)).mean()) - 0.5) for demos in DESIGN]
        return Results.from_rows(
            [
                {"demos": dict(zip(NAMES, demos, strict=True)), "score": min(1.0, max(0.0, score)), "seed": 0}
                for demos, score in zip(DESIGN, scores, strict=True)
            ]
        )

    truth = float(success(np.full(4, 30.0)).mean())
    alone, good, bad = (
        fit_posterior(SPEC, observations, proxy=proxy).score(np.full((1, 4), 30.0))[0]
        for proxy in (None, stand_in(1), stand_in(-1))
    )
    assert abs(good.mean() - truth) < abs(alone.mean() - truth) + 0.03
    assert bad.mean() == pytest.approx(alone.mean(), abs=0.06)


def test_a_proxy_alone_is_enough_to_recommend() -> None:
    stand_ins = Results.from_rows(
        [{"demos": dict.fromkeys(NAMES, n), "score": n / 40, "seed": 0} for n in (10, 20, 30)]
    )
    assert sum(fit_posterior(SPEC, Results(), proxy=stand_ins).allocate(10).demos.values()) == 10


def test_one_factor_varied_is_all_factors_varied_where_there_is_one() -> None:
    spec = StudySpec({"camera": 30})
    named, starred = (
        observe(spec, Results.from_rows([{"demos": {"camera": 30}, "score": 0.5, "factor": factor}]))
        for factor in ("camera", "*")
    )
    assert len(named.joint) == len(starred.joint) == 0
    assert named.cells.cell.tolist() == starred.cells.cell.tolist() == [0]


def test_rounds_with_smaller_datasets_stay_in_use() -> None:
    grown = SPEC.with_demos({"camera": 40, "light": 5})
    seen = observe(grown, Results.from_rows(rows()))
    assert len(seen.demos) == len(DESIGN)
    assert fit_posterior(grown, Results.from_rows(rows())).now.tolist() == [70, 35, 30, 30]


@pytest.mark.parametrize("budget", [1, 7, 100, 1000])
def test_costs_caps_and_minimums_are_kept(budget: int, posterior: Posterior) -> None:
    factors = (Factor("a", 30, 2.5), Factor("b", 30, cap=20), Factor("c", 30, 0.5, minimum=2), Factor("d", 30, 1, 4))

    def worth(allocations: Floats) -> Floats:
        return np.asarray(np.log1p(allocations * [3.0, 2.0, 1.0, 1.0]).sum(1))

    spent = optimize_allocation(factors, worth, budget)
    cost = sum(spent.demos[f.name] * f.cost for f in factors)
    assert cost + spent.left == pytest.approx(budget)
    assert spent.left < 0.5
    assert spent.demos["b"] <= 20
    assert spent.demos["d"] <= 4
    assert spent.demos["c"] >= 2


def test_spending_finds_the_best_of_a_known_worth() -> None:
    weights = np.array([5.0, 3.0, 1.0, 0.1])
    factors = [Factor(name, 30) for name in NAMES]
    spent = optimize_allocation(factors, lambda allocations: (weights * np.log1p(allocations / 10)).sum(1), 90)
    # water-filling: n_i + 10 in proportion to the weights of those that get anything
    assert list(spent.demos.values()) == pytest.approx([57, 30, 3, 0], abs=1)


def test_searches_in_step_find_what_each_finds_alone() -> None:
    weights = np.array([[5.0, 3.0, 1.0, 0.1], [1.0, 1.0, 1.0, 1.0], [0.1, 0.2, 0.3, 8.0]])
    factors = [Factor(name, 30, cost) for name, cost in zip(NAMES, (1.0, 1.5, 1.0, 2.0), strict=True)]

    def worths(rows: Floats) -> Floats:
        return np.asarray((weights[:, None] * np.log1p(rows / 10)).sum(-1))

    together = optimize_allocations(factors, worths, 90, 3)
    for place, own in enumerate(weights):
        alone = optimize_allocation(factors, lambda rows, own=own: (own * np.log1p(rows / 10)).sum(1), 90)  # type: ignore[misc]
        assert together[place].tolist() == list(alone.demos.values())


def test_every_sample_may_have_training_sets_of_its_own(posterior: Posterior) -> None:
    rng = np.random.default_rng(0)
    demos = rng.integers(0, 60, (3, 4, posterior.n_samples)).astype(float)
    found = posterior.by_factor(demos)
    for draw in (0, 7, posterior.n_samples - 1):
        assert found[:, :, draw] == pytest.approx(posterior.by_factor(demos[:, :, draw])[:, :, draw], rel=1e-9)


def test_what_repairs_its_neighbours_trials_is_found_out() -> None:
    def repaired_by_the_one_before(demos: Floats) -> Floats:
        failure = 0.1 * np.ones(4)
        failure[1] = 0.9 * (1 + demos[0] / 20) ** -1.2
        return 1 - failure

    rng = np.random.default_rng(3)
    observations = [
        {"demos": dict(zip(NAMES, demos, strict=True)), "factor": name, "score": score, "trials": 200, "seed": 0}
        for demos in DESIGN
        for name, score in zip(NAMES, rng.binomial(200, repaired_by_the_one_before(np.array(demos))) / 200, strict=True)
    ]
    allocation = fit_posterior(SPEC, Results.from_rows(observations)).allocate(60).demos
    assert allocation[NAMES[0]] > 40 > allocation[NAMES[1]]
