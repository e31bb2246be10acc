"""The small preset in the embedded simulator: slow, and the one test that says that it is worth anything."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from factored_scaling.policies.config import DiffusionConfig
from factored_scaling.policies.diffusion import load_policy, train_diffusion
from factored_scaling.progress import Progress
from factored_scaling.sim import Condition, DemoRequest, load_task


@pytest.mark.slow
def test_thirty_demos_per_factor_solve_the_nominal_scene_and_a_part_of_the_others(
    tmp_path: Path, silent: Progress
) -> None:
    task = load_task("tabletop/pick-place")
    requests = [DemoRequest(f"{factor}/{seed}", factor, seed) for factor in task.factors for seed in range(30)]
    train_diffusion(task.demonstrate(requests), DiffusionConfig.preset("small"), 0, tmp_path, silent)
    policy = load_policy(tmp_path)
    nominal = [Condition(None, 0, initial) for initial in range(50)]
    varied = [
        Condition(factor, setting, initial)
        for factor in task.factors
        for setting in range(task.settings_per_factor)
        for initial in range(3)
    ]
    scores = dict(task.rollout(policy.actor(0), nominal + varied))
    assert np.mean([scores[condition] for condition in nominal]) >= 0.7
    assert np.mean([scores[condition] for condition in varied]) >= 0.3
