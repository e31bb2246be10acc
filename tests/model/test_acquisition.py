"""What to measure next: gains shrink as more is known, costs are subtracted, uninformative measurements add nothing."""

from __future__ import annotations

import functools
import json
from dataclasses import replace

import numpy as np
import pytest
from synthetic_worlds import TUNING

from factored_scaling import Results, StudySpec, plan
from factored_scaling.bench.measure import REGIMES, results
from factored_scaling.bench.worlds import World, draw_world
from factored_scaling.errors import InvalidInput
from factored_scaling.model.acquisition import Advice, Step, advise
from factored_scaling.model.posterior import Posterior, fit_posterior
from factored_scaling.model.sampler import SamplerSettings


@functools.cache
def world() -> World:
    return draw_world(TUNING[2], 5, 4)


@functools.cache
def known(policies: int, regime: str = "real") -> tuple[Posterior, Results]:
    spec = StudySpec(world().spec().sizes, nominal=world().setting.nominal, construction="screen", policies=policies)
    measured = results(world(), [run.demos for run in plan(spec)], REGIMES[regime])
    return fit_posterior(spec, measured, sampler=SamplerSettings(draws=256)), measured


def best_training(advice: Advice) -> float:
    return max(step.gain for step in advice.steps if step.kind == "train")


def test_more_policies_leave_less_to_gain() -> None:
    few, many = (advise(*known(policies, "simulation"), 100) for policies in (1, 9))
    assert few.regret > many.regret
    assert best_training(few) > 0.001
    assert best_training(few) > 3 * best_training(many)
    for advice in (few, many):
        assert all(-1e-9 <= step.gain <= advice.regret for step in advice.steps)


def test_more_trials_add_more() -> None:
    posterior, measured = known(1)
    little, much = (advise(posterior, measured, 100, trials=trials) for trials in (5, 3000))
    assert best_training(much) > best_training(little)


def test_the_steps_are_the_next_policies_seeds_and_trials() -> None:
    posterior, measured = known(4)
    advice = advise(posterior, measured, 100)
    longer = plan(posterior.spec.changed(policies=8))
    trained = [step for step in advice.steps if step.kind == "train"]
    assert [len(step.demos) for step in trained] == [1, 2, 4]
    assert [dict(demos) for demos in trained[-1].demos] == [run.demos for run in longer[4:8]]
    assert {step.trials for step in trained} == {18}
    again = [step for step in advice.steps if step.kind == "seed"]
    assert again[0].demos[0] == posterior.spec.sizes
    assert {step.seed for step in again} == {1}
    assert [step.seed for step in advice.steps if step.kind == "evaluate"] == [0, 0, 0]


def test_a_study_with_curves_is_offered_its_own_plan_and_the_screening_order() -> None:
    posterior, measured = known(1)
    spec = posterior.spec.changed(construction="one", policies=None)
    advice = advise(replace(posterior, spec=spec), measured, 100)
    first = [step.demos[0] for step in advice.steps if step.kind == "train" and len(step.demos) == 1]
    assert first == [plan(spec)[1].demos, plan(spec.changed(construction="screen"))[1].demos]


def test_costs_are_taken_from_the_budget() -> None:
    posterior, measured = known(1, "simulation")
    free, dear = (advise(posterior, measured, 100, policy_cost=cost, trials=100) for cost in (0.0, 30.0))
    assert best_training(dear) < best_training(free)
    assert [step.cost for step in dear.steps if step.kind == "train"] == [30.0, 60.0]  # 4 policies cost too much
    assert all(step.cost == 0 for step in dear.steps if step.kind == "evaluate")
    assert dear.best is None or dear.best.kind == "evaluate"
    per_trial = advise(posterior, measured, 100, trial_cost=0.1, trials=100)
    assert per_trial.steps[0].cost == pytest.approx(10.0)


def test_the_stop_rule() -> None:
    posterior, measured = known(1, "simulation")
    assert advise(posterior, measured, 100, worth=0.2).best is None
    eager = advise(posterior, measured, 100, worth=0.0)
    assert eager.best == max(eager.steps, key=lambda step: step.gain)
    assert advise(posterior, measured, 100).steps[0].needed == 0.001
    cheap = Step("train", ({"a": 1},), 0, 18, 0.0, 0.002, 0.001)
    large = Step("train", ({"a": 1},) * 4, 0, 18, 0.0, 0.0045, 0.004)
    assert Advice(10, {"a": 10}, 0.5, 0.1, (cheap, large)).best is cheap


def test_the_same_again_and_plain_data() -> None:
    posterior, measured = known(4)
    first, again = (advise(posterior, measured, 100).to_mapping() for _ in range(2))
    assert first == again
    assert list(json.loads(json.dumps(first))) == ["budget", "act_now", "steps", "next"]


def test_acting_now_is_the_recommended_allocation_even_if_that_is_an_equal_split() -> None:
    spec = StudySpec(dict.fromkeys(("camera", "light", "table"), 30), construction="screen")
    row = {"demos": dict(spec.sizes), "score": 0.5, "trials": 6, "seed": 0}
    measured = Results.from_rows([{**row, "factor": name} for name in spec.names])
    posterior = fit_posterior(spec, measured)
    choice, advice = posterior.choose(100), advise(posterior, measured, 100)
    assert choice.is_equal
    assert advice.allocation == choice.spending.demos
    equal, most = (
        posterior.score(posterior.now + np.array(list(spending.demos.values()), dtype=float))[0].mean()
        for spending in (choice.spending, choice.best)
    )
    assert advice.expected == pytest.approx(equal)
    assert advice.regret > most - equal


def test_mean_scores_are_enough() -> None:
    spec = known(4)[0].spec
    measured = results(world(), [run.demos for run in plan(spec)], REGIMES["real-means"])
    advice = advise(fit_posterior(spec, measured, sampler=SamplerSettings(draws=64)), measured, 50)
    assert {step.kind for step in advice.steps} == {"train", "seed"}
    assert all(np.isfinite(step.gain) for step in advice.steps)


@pytest.mark.parametrize("wrong", [{"policy_cost": -1.0}, {"trial_cost": float("nan")}, {"worth": -0.1}])
def test_costs_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match="must be at least 0"):
        advise(*known(4), 100, **wrong)  # type: ignore[arg-type]


def test_trials_in_several_rows_count_together() -> None:
    posterior, measured = known(4)
    rows = [{"demos": dict(row.demos or {}), "factor": row.factor, "score": row.score, "trials": row.trials, "seed": 0}
            for row in measured.rows]  # fmt: skip
    whole, parts = (
        advise(posterior, Results.from_rows(given), 100).steps[0].trials
        for given in (rows, [{**row, "trials": n} for row in rows for n in (2, 3)])
    )
    assert (whole, parts) == (18, 25)


def test_another_seed_is_one_that_was_not_trained_whatever_the_order_of_rows() -> None:
    spec = StudySpec({"a": 30, "b": 30}, construction="screen", policies=1)
    rows = [
        {"demos": {"a": 30, "b": 30}, "factor": name, "score": 0.5, "trials": 50, "seed": seed}
        for seed in (2, 0)
        for name in ("a", "b")
    ]
    measured = Results.from_rows(rows)
    advice = advise(fit_posterior(spec, measured), measured, 20)
    assert [step.seed for step in advice.steps if step.kind == "seed"] == [3]


def test_a_policy_that_is_listed_under_every_curve_was_measured_once() -> None:
    spec = StudySpec({"camera": 6, "light": 6}, construction="one")

    def rows(combination: str, n: int, *scores: float) -> list[dict[str, object]]:
        return [
            {"combination": combination, "n": n, "factor": name, "score": score, "trials": 40}
            for name, score in zip(spec.names, scores, strict=True)
        ]

    listed = [*rows("camera", 0, 0.2, 0.5), *rows("light", 0, 0.5, 0.1), *rows("camera", 6, 0.6, 0.4)]
    once, twice = Results.from_rows(listed), Results.from_rows([*listed, *rows("light", 6, 0.6, 0.4)])
    posterior = fit_posterior(spec, once, sampler=SamplerSettings(draws=64))
    advice = advise(posterior, twice, 20)
    assert {step.trials for step in advice.steps} == {80}
    assert advice == advise(posterior, once, 20)
